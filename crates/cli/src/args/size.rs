//! Sizes as people write them.

use weighbridge::tensor::Bytes;

/// A number of bytes, of which there is at least one.
pub(super) fn size(text: &str) -> Result<u64, String> {
    text.parse().map(|Bytes(bytes)| bytes).map_err(|wrong| wrong.what)
}

/// Bytes of a file, at least: a number without a unit is in bytes, where llama-gguf-split wants one.
const SMALLEST: u64 = 4096;

/// A number of bytes that a file may have.
pub(super) fn file_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes @ SMALLEST.. => Ok(bytes),
        bytes => Err(format!(
            "{bytes} bytes are too few for a file: wanted at least {SMALLEST}; add a unit, such as {bytes}G"
        )),
    }
}

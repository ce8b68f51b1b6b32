//! Sizes as people write them.

/// The units of sizes; alone as llama-gguf-split has them.
const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
];

/// A number of bytes, of which there is at least one.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    let bytes =
        unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "wanted a size such as 500MB or 2GiB".to_owned())
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

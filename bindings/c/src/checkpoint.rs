//! Checkpoints.

use std::ffi::{CString, c_char};
use std::ptr;

use weighbridge::Checkpoint;

use crate::error::{caught, misuse, wb_error};
use crate::text::{given, text};

/// A checkpoint whose headers have been read and found sound.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_checkpoint {
    pub(crate) checkpoint: Checkpoint,
    format: CString,
    entries: Vec<(CString, CString, Vec<u64>)>,
}

/// A tensor of a checkpoint.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_entry {
    /// Its name there.
    pub name: *const c_char,
    /// How it is stored: `bf16`, `q4_k`.
    pub scheme: *const c_char,
    /// The extents, slowest axis first.
    pub shape: *const u64,
    /// The number of extents.
    pub rank: usize,
    /// Its bytes in the file.
    pub bytes: u64,
}

/// Opens the checkpoint at `path` (UTF-8), a file or a directory of any format. It reads headers alone. Returns null on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_open(path: *const c_char, error: *mut *mut wb_error) -> *mut wb_checkpoint {
    let open = || {
        // SAFETY: the caller's: a text that ends with a NUL.
        let path = unsafe { given(path) }.ok_or_else(|| misuse("there is no path"))?.map_err(misuse)?;
        let checkpoint = weighbridge::open(path)?;
        let entry = |e: &weighbridge::TensorEntry| {
            (text(e.name.as_str()), text(e.scheme.to_string()), e.shape.to_vec())
        };
        let entries = checkpoint.entries().iter().map(entry).collect();
        Ok(wb_checkpoint { format: text(checkpoint.format().name()), entries, checkpoint })
    };
    // SAFETY: the caller's.
    unsafe { caught(error, open) }.map_or(ptr::null_mut(), |opened| Box::into_raw(Box::new(opened)))
}

/// Returns the format of its files: `gguf`, `hf`, `safetensors`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_checkpoint_format(checkpoint: *const wb_checkpoint) -> *const c_char {
    // SAFETY: the caller's: it is one that this library made.
    unsafe { (*checkpoint).format.as_ptr() }
}

/// Returns the number of its tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_checkpoint_count(checkpoint: *const wb_checkpoint) -> usize {
    // SAFETY: as above.
    unsafe { (*checkpoint).entries.len() }
}

/// Fills `out` with tensor `index`, counted from 0. Returns false if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_checkpoint_entry(
    checkpoint: *const wb_checkpoint,
    index: usize,
    out: *mut wb_entry,
) -> bool {
    // SAFETY: as above.
    let this = unsafe { &*checkpoint };
    let Some((name, scheme, shape)) = this.entries.get(index) else { return false };
    let bytes = this.checkpoint.entries().get(index).map_or(0, weighbridge::TensorEntry::byte_len);
    let entry = wb_entry {
        name: name.as_ptr(),
        scheme: scheme.as_ptr(),
        shape: shape.as_ptr(),
        rank: shape.len(),
        bytes,
    };
    // SAFETY: the caller's: it may be written to.
    unsafe { out.write(entry) };
    true
}

/// Frees a checkpoint. Its plans stay. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_checkpoint_free(checkpoint: *mut wb_checkpoint) {
    if !checkpoint.is_null() {
        // SAFETY: the caller's: it is one that this library made, and is not used again.
        drop(unsafe { Box::from_raw(checkpoint) });
    }
}

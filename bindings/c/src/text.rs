//! Texts for C.

use std::ffi::{CStr, CString, c_char};

/// A text that C reads; one with a NUL inside ends there.
pub(crate) fn text(text: impl Into<String>) -> CString {
    let mut bytes = text.into().into_bytes();
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    CString::new(bytes).unwrap_or_default()
}

/// The text at `text`.
///
/// # Safety
/// It is null, or ends with a NUL and lives as long as is said.
pub(crate) unsafe fn given<'a>(text: *const c_char) -> Option<Result<&'a str, String>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_str().map_err(|_| format!("`{}` is not UTF-8", text.to_string_lossy())))
}

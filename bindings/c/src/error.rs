//! Errors, and how they get out.

use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use weighbridge::Error;
use weighbridge::tensor::{Diagnostic, Diagnostics};

use crate::text::text;

/// The kind of an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub enum wb_error_kind {
    /// The request is impossible: neither the model nor a file is wrong.
    WB_ERROR_MISUSE = 1,
    /// The checkpoint cannot be opened.
    WB_ERROR_CHECKPOINT = 2,
    /// The checkpoint does not fit its model, or cannot be planned as asked.
    WB_ERROR_PLAN = 3,
    /// No family claims the checkpoint: it can be planned with the layout `source` all the same.
    WB_ERROR_UNKNOWN_MODEL = 4,
    /// Loading failed.
    WB_ERROR_LOAD = 5,
    /// The caller has ended it.
    WB_ERROR_CANCELLED = 6,
    /// The library has a bug.
    WB_ERROR_INTERNAL = 7,
}

/// An error: all problems, each with its hints.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_error {
    kind: wb_error_kind,
    message: CString,
    problems: Vec<(CString, Vec<CString>)>,
}

/// Why a function failed.
pub(crate) enum Failure {
    Ours(Box<Error>),
    Misuse(Diagnostic),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Ours(Box::new(error.into()))
    }
}

/// The failure of an impossible request.
pub(crate) fn misuse(what: impl Into<String>) -> Failure {
    Failure::Misuse(Diagnostic::new(what))
}

impl wb_error {
    fn new(kind: wb_error_kind, diagnostics: &Diagnostics) -> wb_error {
        let hints = |d: &Diagnostic| d.hints.iter().map(|hint| text(hint.as_str())).collect();
        wb_error {
            kind,
            message: text(diagnostics.to_string()),
            problems: diagnostics.iter().map(|d| (text(d.what.as_str()), hints(d))).collect(),
        }
    }

    fn of(failure: Failure) -> wb_error {
        use wb_error_kind::{
            WB_ERROR_CANCELLED, WB_ERROR_CHECKPOINT, WB_ERROR_LOAD, WB_ERROR_MISUSE, WB_ERROR_PLAN,
            WB_ERROR_UNKNOWN_MODEL,
        };
        match failure {
            Failure::Misuse(what) => wb_error::new(WB_ERROR_MISUSE, &what.into()),
            Failure::Ours(error) => {
                let kind = match &*error {
                    error if error.is_unknown_model() => WB_ERROR_UNKNOWN_MODEL,
                    Error::Load(weighbridge::load::Error::Cancelled { .. }) => WB_ERROR_CANCELLED,
                    error if error.is_misuse() => WB_ERROR_MISUSE,
                    Error::Checkpoint(_) => WB_ERROR_CHECKPOINT,
                    Error::Plan(_) => WB_ERROR_PLAN,
                    _ => WB_ERROR_LOAD,
                };
                wb_error::new(kind, &error.diagnostics())
            }
        }
    }
}

/// The result of `work`; what goes wrong in it goes to `error`, and `None` comes back.
///
/// # Safety
/// `error` is null or may be written to.
pub(crate) unsafe fn caught<T>(
    error: *mut *mut wb_error,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Option<T> {
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(failure)) => wb_error::of(failure),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            let what = format!("the library has a bug: {}", said.unwrap_or_default());
            wb_error::new(wb_error_kind::WB_ERROR_INTERNAL, &what.into())
        }
    };
    if !error.is_null() {
        // SAFETY: the caller's.
        unsafe { *error = Box::into_raw(Box::new(failed)) };
    }
    None
}

/// Returns the kind of an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_get_kind(error: *const wb_error) -> wb_error_kind {
    // SAFETY: the caller's: it is one that this library made.
    unsafe { (*error).kind }
}

/// Returns the whole message with its hints, as people read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_message(error: *const wb_error) -> *const c_char {
    // SAFETY: as above.
    unsafe { (*error).message.as_ptr() }
}

/// Returns the number of problems.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_problem_count(error: *const wb_error) -> usize {
    // SAFETY: as above.
    unsafe { (*error).problems.len() }
}

/// Returns problem `problem`, counted from 0; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_problem(error: *const wb_error, problem: usize) -> *const c_char {
    // SAFETY: as above.
    let problems = unsafe { &(*error).problems };
    problems.get(problem).map_or(ptr::null(), |(what, _)| what.as_ptr())
}

/// Returns hint `hint` for problem `problem`, both counted from 0; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_hint(error: *const wb_error, problem: usize, hint: usize) -> *const c_char {
    // SAFETY: as above.
    let problems = unsafe { &(*error).problems };
    problems.get(problem).and_then(|(_, hints)| hints.get(hint)).map_or(ptr::null(), |hint| hint.as_ptr())
}

/// Frees an error. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_error_free(error: *mut wb_error) {
    if !error.is_null() {
        // SAFETY: the caller's: it is one that this library made, and is not used again.
        drop(unsafe { Box::from_raw(error) });
    }
}

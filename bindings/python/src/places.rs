//! Memory of the caller's, into which a plan is run.

use std::collections::HashMap;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use weighbridge::load::{self, Destination, Place, Sink};
use weighbridge::plan::PlannedParam;
use weighbridge::tensor::{Diagnostic, Diagnostics};

use crate::error::{Failure, Result, mismatch};
use crate::tensor::format;

/// Buffers of Python's, which keeps them where they are as long as this lives.
pub(crate) struct Places {
    /// By the parameter's name: one for each plane.
    buffers: HashMap<String, Vec<PyUntypedBuffer>>,
    /// Parameters that are tied and have a place of their own, each after the one that it is tied to.
    tied: Vec<(String, String)>,
}

impl Places {
    /// The places of the parameters of `plan`.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn of(plan: &load::Plan, given: &HashMap<String, Bound<'_, PyAny>>) -> Result<Places> {
        let mut problems: Vec<Diagnostic> = vec![];
        let mut places = Places { buffers: HashMap::new(), tied: vec![] };
        for param in plan.params() {
            let root = param.tied_to.map(|root| &plan.params()[root].name);
            match (given.get(&param.name), root) {
                (Some(place), root) => match fitting(place, param) {
                    Ok(found) => places.add(&param.name, root, found),
                    Err(what) => problems.push(Diagnostic::new(format!("`{}`: {what}", param.name))),
                },
                (None, None) => problems.push(Diagnostic::new(format!("`{}` has no place", param.name))),
                // A tied parameter is there when its root is.
                (None, Some(_)) => {}
            }
        }
        let mut others: Vec<&String> = given.keys().filter(|name| plan.find(name).is_none()).collect();
        others.sort();
        problems
            .extend(others.iter().map(|name| Diagnostic::new(format!("the plan has no parameter `{name}`"))));
        problems.extend(places.overlaps());
        if problems.is_empty() {
            return Ok(places);
        }
        let all: Diagnostics = problems.into_iter().collect();
        Err(Failure::Python(mismatch(&all.under("the memory does not fit the plan:"))))
    }

    fn add(&mut self, name: &str, root: Option<&String>, found: Vec<PyUntypedBuffer>) {
        let at = |all: &[PyUntypedBuffer]| all.iter().map(|b| b.buf_ptr().addr()).collect::<Vec<_>>();
        if let Some(root) = root {
            // It may have its root's place, or one of its own.
            if self.buffers.get(root).is_some_and(|roots| at(roots) == at(&found)) {
                return;
            }
            self.tied.push((root.clone(), name.to_owned()));
        }
        self.buffers.insert(name.to_owned(), found);
    }

    /// The places that share memory.
    fn overlaps(&self) -> Vec<Diagnostic> {
        let range = |b: &PyUntypedBuffer| b.buf_ptr().addr()..b.buf_ptr().addr() + b.len_bytes();
        let all = self.buffers.iter().flat_map(|(name, all)| all.iter().map(move |b| (range(b), name)));
        let mut all: Vec<_> = all.filter(|(range, _)| !range.is_empty()).collect();
        all.sort_by_key(|(range, name)| (range.start, *name));
        let pairs = all.windows(2).filter(|pair| pair[0].0.end > pair[1].0.start);
        let said = |pair: &[(_, &String)]| format!("`{}` and `{}` share memory", pair[0].1, pair[1].1);
        pairs.map(|pair| Diagnostic::new(said(pair))).collect()
    }

    /// Lends each place once.
    pub(crate) fn sink(&self) -> Given {
        let memory = |b: &PyUntypedBuffer| Memory { at: b.buf_ptr().cast(), len: b.len_bytes() };
        let all = self.buffers.iter().map(|(name, all)| (name.clone(), all.iter().map(memory).collect()));
        Given { places: all.collect() }
    }

    /// Copies what the roots have to the places of those that are tied to them, after a load.
    pub(crate) fn fill_tied(&self) {
        for (root, name) in &self.tied {
            let (Some(from), Some(to)) = (self.buffers.get(root), self.buffers.get(name)) else { continue };
            for (from, to) in from.iter().zip(to) {
                let (from, to, len) =
                    (from.buf_ptr().cast::<u8>(), to.buf_ptr().cast::<u8>(), from.len_bytes());
                // SAFETY: both have as many bytes and share none, which was checked, and Python keeps them.
                unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            }
        }
    }
}

/// The buffers in `place`, one or a sequence of them, if they are as `param` wants them; or else why not.
fn fitting(
    place: &Bound<'_, PyAny>,
    param: &PlannedParam,
) -> std::result::Result<Vec<PyUntypedBuffer>, String> {
    let several = place.cast::<PyList>().is_ok() || place.cast::<PyTuple>().is_ok();
    let found: PyResult<Vec<PyUntypedBuffer>> = if several {
        place.try_iter().and_then(|all| all.map(|one| PyUntypedBuffer::get(&one?)).collect())
    } else {
        PyUntypedBuffer::get(place).map(|one| vec![one])
    };
    let found = found.map_err(|error| error.to_string())?;
    let bytes = |plane| param.scheme.plane_bytes(plane, &param.shape).unwrap_or(0);
    let sizes: Vec<u64> = param.scheme.planes.iter().map(bytes).collect();
    let lengths: Vec<u64> = found.iter().map(|buffer| buffer.len_bytes() as u64).collect();
    if lengths != sizes {
        return Err(format!("wanted {sizes:?} bytes, found {lengths:?}"));
    }
    if found.iter().any(|buffer| buffer.readonly() || !buffer.is_c_contiguous()) {
        return Err("its place cannot be written to as one".to_owned());
    }
    found.iter().try_for_each(|buffer| alike(buffer, param))?;
    Ok(found)
}

/// True if the elements of `buffer` are those of `param`, or bytes.
fn alike(buffer: &PyUntypedBuffer, param: &PlannedParam) -> std::result::Result<(), String> {
    let found = buffer.format().to_string_lossy();
    if matches!(&*found, "B" | "b" | "c") {
        return Ok(());
    }
    let wanted = param.scheme.dtype().and_then(format).map(|format| format.to_string_lossy());
    // `long` is the other name of 64 bits, where it has as many.
    let long = matches!((wanted.as_deref(), &*found), (Some("q"), "l") | (Some("Q"), "L"));
    if wanted.as_deref() != Some(found.trim_start_matches(['<', '=', '@'])) && !long {
        let wanted = wanted.map_or_else(String::new, |wanted| format!("elements of `{wanted}`, or "));
        return Err(format!("wanted {wanted}bytes, found elements of `{found}`"));
    }
    let same = buffer.shape().iter().map(|n| *n as u64).eq(param.shape.iter().copied());
    if same { Ok(()) } else { Err(format!("wanted the shape {}, found {:?}", param.shape, buffer.shape())) }
}

/// Bytes of a buffer that Python keeps.
struct Memory {
    at: *mut u8,
    len: usize,
}

// SAFETY: the buffers stay where they are while the load runs, and each is lent once.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference gives nothing.
unsafe impl Sync for Memory {}

/// Lends each place once.
pub(crate) struct Given {
    places: HashMap<String, Vec<Memory>>,
}

impl<'m> Sink<'m> for Given {
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> std::result::Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let places = self.places.remove(param.name).ok_or("it has no place")?;
        let lend = |memory: Memory| {
            if memory.len == 0 {
                return &mut [][..];
            }
            // SAFETY: Python's buffers live until `Places` is dropped, after the load. They may be written to, are as long as they say,
            // share no memory and are lent once. That others read them meanwhile, the caller rules out.
            unsafe { std::slice::from_raw_parts_mut(memory.at, memory.len) }
        };
        Ok(Destination::Memory(places.into_iter().map(lend).collect()))
    }
}

//! Loads.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ops::ControlFlow;
use std::ptr;

use weighbridge::Pool;
use weighbridge::load::{self, Destination, Options, Place, Progress, Sink, Watch};

use crate::error::{Failure, caught, misuse, wb_error};
use crate::plan::{Known, wb_plan};
use crate::text::{given, text};

/// Is told how many bytes are there of those that are wanted, by any thread; ends the load by returning false.
#[allow(non_camel_case_types, reason = "as C has it")]
pub type wb_progress_fn = Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> bool>;

/// How to load. Set `size` to `sizeof(wb_load_options)` and all else to zero, then what differs.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_load_options {
    /// `sizeof(wb_load_options)`.
    pub size: usize,
    /// Threads; 0 is as many as the machine has.
    pub threads: usize,
    /// The limit on bytes of buffers; 0 for none.
    pub memory: u64,
    /// True gives all parameters memory of their own: none is borrowed from a mapped file.
    pub owned: bool,
    /// Is told how far the load is; null for nobody.
    pub progress: wb_progress_fn,
    /// The first argument of `progress`. Threads share it.
    pub context: *mut c_void,
}

/// Options whose words are checked.
pub(crate) struct Asked {
    owned: bool,
    memory: Option<u64>,
    progress: wb_progress_fn,
    context: *mut c_void,
}

// SAFETY: the header says that threads share the context.
unsafe impl Sync for Asked {}

impl Asked {
    pub(crate) fn options<'a>(&self, watch: Option<&'a Watch<'a>>) -> Options<'a> {
        Options { owned: self.owned, memory: self.memory, watch, ..Options::default() }
    }

    fn told(&self, progress: Progress) -> ControlFlow<()> {
        // SAFETY: the caller's: a function that may be called by any thread.
        let goes_on = self.progress.is_none_or(|f| unsafe { f(self.context, progress.done, progress.total) });
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The options, and the number of threads.
///
/// # Safety
/// They are null or as the header says.
pub(crate) unsafe fn options_of(options: *const wb_load_options) -> Result<(Asked, usize), Failure> {
    let nothing = Asked { owned: false, memory: None, progress: None, context: ptr::null_mut() };
    if options.is_null() {
        return Ok((nothing, Pool::available()));
    }
    // SAFETY: the caller's.
    let options = unsafe { &*options };
    if options.size != size_of::<wb_load_options>() {
        let (here, said) = (size_of::<wb_load_options>(), options.size);
        return Err(misuse(format!("wb_load_options has {here} bytes here, and its size says {said}")));
    }
    let wb_load_options { owned, progress, context, .. } = *options;
    let memory = Some(options.memory).filter(|n| *n > 0);
    let threads = if options.threads == 0 { Pool::available() } else { options.threads.min(1024) };
    Ok((Asked { owned, memory, progress, context }, threads))
}

/// Parameters in memory, by name. They stay where they are.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_loaded {
    loaded: load::Loaded,
}

/// The bytes of one plane of a parameter.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_plane {
    /// The first byte; null if there is none. The bytes live as long as the loaded parameters.
    pub data: *const c_void,
    /// Their number.
    pub bytes: usize,
    /// True if they lie in a mapped file. The system reads them when they are touched.
    pub borrowed: bool,
}

/// Loads the parameters of a plan, each once. `options` may be null. Returns null on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_load(
    plan: *const wb_plan,
    options: *const wb_load_options,
    error: *mut *mut wb_error,
) -> *mut wb_loaded {
    let load = || {
        // SAFETY: the caller's.
        let (asked, threads) = unsafe { options_of(options) }?;
        let watch = |progress| asked.told(progress);
        // SAFETY: the caller's: it is one that this library made.
        let plan = unsafe { &(*plan).plan };
        Ok(wb_loaded { loaded: plan.load_with(&mut Pool::new(threads), asked.options(Some(&watch)))? })
    };
    // SAFETY: the caller's.
    unsafe { caught(error, load) }.map_or(ptr::null_mut(), |loaded| Box::into_raw(Box::new(loaded)))
}

/// Fills `out` with a plane, counted from 0, of the parameter called `name`. Returns false if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_loaded_plane(
    loaded: *const wb_loaded,
    name: *const c_char,
    plane: usize,
    out: *mut wb_plane,
) -> bool {
    // SAFETY: the caller's: a text that ends with a NUL.
    let Some(Ok(name)) = (unsafe { given(name) }) else { return false };
    // SAFETY: the caller's: it is one that this library made.
    let Some(tensor) = (unsafe { (*loaded).loaded.get(name) }) else { return false };
    let Some(slot) = tensor.slots().get(plane) else { return false };
    let bytes = slot.bytes();
    let data = if bytes.is_empty() { ptr::null() } else { bytes.as_ptr().cast() };
    // SAFETY: the caller's: it may be written to.
    unsafe { out.write(wb_plane { data, bytes: bytes.len(), borrowed: slot.is_borrowed() }) };
    true
}

/// Frees loaded parameters. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_loaded_free(loaded: *mut wb_loaded) {
    if !loaded.is_null() {
        // SAFETY: the caller's: it is one that this library made, and is not used again.
        drop(unsafe { Box::from_raw(loaded) });
    }
}

/// A parameter that is about to be loaded.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_place {
    /// Its index in the plan.
    pub index: usize,
    /// Its name.
    pub name: *const c_char,
    /// Bytes of each plane.
    pub plane_bytes: *const u64,
    /// The number of planes.
    pub planes: usize,
    /// The address of each plane must be a multiple of this many bytes.
    pub align: usize,
}

/// Puts into `planes` where each plane of the parameter goes, which is as long as `place` says; ends the load by returning false. Called in the
/// order of the plan before anything is read, once for each parameter that is not tied to another.
#[allow(non_camel_case_types, reason = "as C has it")]
pub type wb_place_fn = Option<
    unsafe extern "C" fn(context: *mut c_void, place: *const wb_place, planes: *mut *mut c_void) -> bool,
>;

/// Loads the parameters of a plan into the caller's memory, which `place` names. Files are read straight into it. `options` may be null.
/// Returns false on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_load_into(
    plan: *const wb_plan,
    place: wb_place_fn,
    place_context: *mut c_void,
    options: *const wb_load_options,
    error: *mut *mut wb_error,
) -> bool {
    let load = || {
        let place = place.ok_or_else(|| misuse("there is no function that places parameters"))?;
        // SAFETY: the caller's.
        let (asked, threads) = unsafe { options_of(options) }?;
        let watch = |progress| asked.told(progress);
        // SAFETY: the caller's: it is one that this library made.
        let plan = unsafe { &*plan };
        let by_name = plan.params.iter().map(|known| (known.name.clone(), known)).collect();
        let mut sink = Given { place, context: place_context, params: by_name };
        plan.plan.load_into(&mut sink, &mut Pool::new(threads), asked.options(Some(&watch)))?;
        Ok(())
    };
    // SAFETY: the caller's.
    unsafe { caught(error, load) }.is_some()
}

/// Memory of the caller's.
struct Given<'p> {
    place: unsafe extern "C" fn(*mut c_void, *const wb_place, *mut *mut c_void) -> bool,
    context: *mut c_void,
    params: HashMap<CString, &'p Known>,
}

// SAFETY: the context is used by the thread that began the load alone.
unsafe impl Sync for Given<'_> {}

impl<'m> Sink<'m> for Given<'_> {
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let known = self.params.get(&text(param.name)).ok_or("the plan has no such parameter")?;
        let mut planes = vec![ptr::null_mut::<c_void>(); param.planes.len()];
        let asked = wb_place {
            index: param.index,
            name: known.name.as_ptr(),
            plane_bytes: known.planes.as_ptr(),
            planes: planes.len(),
            align: param.align,
        };
        // SAFETY: the caller's function, with what the header says.
        if !unsafe { (self.place)(self.context, &raw const asked, planes.as_mut_ptr()) } {
            return Err("the caller gave it no place".into());
        }
        let lend = |(at, len): (&*mut c_void, &usize)| {
            if *len == 0 {
                return Ok(&mut [][..]);
            }
            if at.is_null() || !at.addr().is_multiple_of(param.align) {
                return Err(format!("its place is {at:p}, wanted a multiple of {}", param.align));
            }
            // SAFETY: the caller's: the memory is as long, and nobody else's while the load runs.
            Ok(unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), *len) })
        };
        let planes = planes.iter().zip(param.planes).map(lend).collect::<Result<_, String>>()?;
        Ok(Destination::Memory(planes))
    }
}

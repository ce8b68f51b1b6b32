//! Plans.

use std::ffi::{CString, c_char};
use std::ptr;

use weighbridge::load::Plan;
use weighbridge::planner::{EncodeRule, Encoding, Preset, read_rules};
use weighbridge::{Mesh, PlanBuilder};

use crate::checkpoint::wb_checkpoint;
use crate::error::{Failure, caught, misuse, wb_error};
use crate::loading::{options_of, wb_load_options};
use crate::text::{given, text};

/// Options of a plan. Set `size` to `sizeof(wb_plan_options)` and all else to zero, then what differs.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_plan_options {
    /// `sizeof(wb_plan_options)`. Another size is an error.
    pub size: usize,
    /// `source`, `canonical`, `in-place`, `gguf`, `hf`, `mlx`, `vllm`, `modules` or `packed`; null for `canonical`.
    pub layout: *const c_char,
    /// Ranks that share each layer; 0 is 1.
    pub tp: u64,
    /// Stages that the layers are dealt to; 0 is 1.
    pub pp: u64,
    /// Groups that the experts are dealt to; 0 is 1.
    pub ep: u64,
    /// The rank whose share is planned, counted from 0.
    pub rank: u64,
    /// Rules `PATTERN=SCHEME`; the first that matches wins.
    pub encode: *const *const c_char,
    /// Their number.
    pub encode_count: usize,
    /// A scheme for each tensor by its role, as `q4_k_m`; null for none.
    pub preset: *const c_char,
    /// A file with rules for names; null for none.
    pub rules: *const c_char,
}

/// How to fill every slot of a runtime, and the checkpoint to fill it from.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_plan {
    pub(crate) plan: Plan,
    pub(crate) params: Vec<Known>,
    summary: CString,
}

/// A parameter in C's words.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: CString,
    pub(crate) scheme: CString,
    pub(crate) shape: Vec<u64>,
    pub(crate) planes: Vec<u64>,
}

/// A parameter as it will be in memory.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_param {
    /// The runtime's name.
    pub name: *const c_char,
    /// How it is held: `bf16`, `q4_k`.
    pub scheme: *const c_char,
    /// The extents, slowest axis first.
    pub shape: *const u64,
    /// The number of extents.
    pub rank: usize,
    /// Bytes of all planes.
    pub bytes: u64,
    /// Bytes of each plane.
    pub plane_bytes: *const u64,
    /// The number of planes.
    pub planes: usize,
    /// The earlier parameter whose bytes it shares, by its index; `SIZE_MAX` if it has its own.
    pub tied_to: usize,
}

/// The needs of a load.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "as C has it")]
pub struct wb_needs {
    /// Bytes that stay in mapped files.
    pub borrowed: u64,
    /// Bytes of memory for parameters.
    pub owned: u64,
    /// Bytes of buffers at most, all threads together.
    pub scratch: u64,
    /// Bytes taken from files.
    pub read: u64,
    /// The number of reads.
    pub reads: usize,
}

/// Plans how a checkpoint becomes the parameters of a runtime. It reads no tensor. `options` may be null. Returns null if anything does not
/// fit: the error has all problems.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_new(
    checkpoint: *const wb_checkpoint,
    options: *const wb_plan_options,
    error: *mut *mut wb_error,
) -> *mut wb_plan {
    let build = || {
        // SAFETY: the caller's: it is one that this library made.
        let builder = PlanBuilder::new(unsafe { &(*checkpoint).checkpoint });
        let plan = if options.is_null() {
            builder.build()?
        } else {
            // SAFETY: the caller's: they are as the header says.
            unsafe { with(builder, &*options) }?.build()?
        };
        let known = |p: &weighbridge::plan::PlannedParam| Known {
            name: text(p.name.as_str()),
            scheme: text(p.scheme.to_string()),
            shape: p.shape.to_vec(),
            planes: p
                .scheme
                .planes
                .iter()
                .map(|plane| p.scheme.plane_bytes(plane, &p.shape).unwrap_or(0))
                .collect(),
        };
        let params = plan.params().iter().map(known).collect();
        Ok(wb_plan { params, summary: text(plan.summary().to_string()), plan })
    };
    // SAFETY: the caller's.
    unsafe { caught(error, build) }.map_or(ptr::null_mut(), |plan| Box::into_raw(Box::new(plan)))
}

/// # Safety
/// The options are as the header says.
unsafe fn with<'a>(builder: PlanBuilder<'a>, options: &wb_plan_options) -> Result<PlanBuilder<'a>, Failure> {
    if options.size != size_of::<wb_plan_options>() {
        return Err(misuse(format!(
            "wb_plan_options has {} bytes here, and its size says {}",
            size_of::<wb_plan_options>(),
            options.size
        )));
    }
    // SAFETY: the caller's: texts that end with a NUL.
    let text = |at: *const c_char| unsafe { given(at) }.transpose().map_err(misuse);
    let or_one = |n: u64| n.max(1);
    let mesh =
        Mesh { tp: or_one(options.tp), pp: or_one(options.pp), ep: or_one(options.ep), ..Mesh::default() };
    let mut encoding = Encoding::default();
    for n in 0..options.encode_count {
        // SAFETY: the caller's: there are as many.
        let rule =
            text(unsafe { *options.encode.add(n) })?.ok_or_else(|| misuse("a rule of encoding is null"))?;
        encoding.rules.push(rule.parse::<EncodeRule>()?);
    }
    if let Some(name) = text(options.preset)? {
        encoding.preset =
            Some(Preset::named(name).ok_or_else(|| misuse(format!("no preset is called `{name}`")))?);
    }
    let mut builder = builder.mesh(mesh).rank(options.rank).encoding(encoding);
    if let Some(layout) = text(options.layout)? {
        builder = builder.layout(weighbridge::layout(layout)?);
    }
    match text(options.rules)? {
        Some(rules) => Ok(builder.mapping(read_rules(rules)?)),
        None => Ok(builder),
    }
}

/// Returns a summary for people: the bytes that the plan moves, changes and reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_summary(plan: *const wb_plan) -> *const c_char {
    // SAFETY: the caller's: it is one that this library made.
    unsafe { (*plan).summary.as_ptr() }
}

/// Returns the number of parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_count(plan: *const wb_plan) -> usize {
    // SAFETY: as above.
    unsafe { (*plan).params.len() }
}

/// Fills `out` with parameter `index`, counted from 0 in the order of the layout. Returns false if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_param(plan: *const wb_plan, index: usize, out: *mut wb_param) -> bool {
    // SAFETY: as above.
    let this = unsafe { &*plan };
    let (Some(known), Some(param)) = (this.params.get(index), this.plan.params().get(index)) else {
        return false;
    };
    let param = wb_param {
        name: known.name.as_ptr(),
        scheme: known.scheme.as_ptr(),
        shape: known.shape.as_ptr(),
        rank: known.shape.len(),
        bytes: param.slot_bytes(),
        plane_bytes: known.planes.as_ptr(),
        planes: known.planes.len(),
        tied_to: param.tied_to.unwrap_or(usize::MAX),
    };
    // SAFETY: the caller's: it may be written to.
    unsafe { out.write(param) };
    true
}

/// Fills `out` with the needs of a load with `options`, which may be null. It reads nothing. Returns false on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_needs(
    plan: *const wb_plan,
    options: *const wb_load_options,
    out: *mut wb_needs,
    error: *mut *mut wb_error,
) -> bool {
    let needs = || {
        // SAFETY: the caller's.
        let (options, threads) = unsafe { options_of(options) }?;
        // SAFETY: the caller's: it is one that this library made.
        Ok(unsafe { &(*plan).plan }.needs(options.options(None), threads)?)
    };
    // SAFETY: the caller's.
    let Some(needs) = (unsafe { caught(error, needs) }) else { return false };
    let needs = wb_needs {
        borrowed: needs.borrowed,
        owned: needs.owned,
        scratch: needs.scratch,
        read: needs.read,
        reads: needs.reads.count,
    };
    // SAFETY: the caller's: it may be written to.
    unsafe { out.write(needs) };
    true
}

/// Frees a plan. Parameters that it has loaded stay. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_plan_free(plan: *mut wb_plan) {
    if !plan.is_null() {
        // SAFETY: the caller's: it is one that this library made, and is not used again.
        drop(unsafe { Box::from_raw(plan) });
    }
}

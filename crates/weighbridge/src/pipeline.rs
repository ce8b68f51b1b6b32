//! The steps from a path to filled slots.

use std::path::Path;

use checkpoint::{Checkpoint, OpenOptions};
use load::{Codecs, Loaded, Pool};
use model::{Canonical, InPlace, Layout, Model, Packed, Param, RopeOrder, RuntimeLayout};
use plan::{LoadPlan, Resolved};

use crate::Error;

/// How a runtime wants the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Canonical names, shapes and order; matrices encoded as stored.
    Canonical,
    /// As it lies in the file, to borrow all that can be.
    InPlace,
    /// Fused, and rows interleaved by this many.
    Packed {
        /// Rows of a group: 8 for AVX2, 16 for AVX-512.
        rows: u64,
    },
}

impl LayoutKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            LayoutKind::Canonical => "canonical",
            LayoutKind::InPlace => "in-place",
            LayoutKind::Packed { .. } => "packed",
        }
    }

    fn targets(self, model: &Model, params: &[Param]) -> RuntimeLayout {
        match self {
            LayoutKind::Canonical => Canonical.targets(model, params),
            LayoutKind::InPlace => InPlace.targets(model, params),
            LayoutKind::Packed { rows } => {
                let interleaved = |scheme: &tensor::Scheme, k: u64| {
                    let rows = usize::try_from(rows).ok()?;
                    quant::interleaved(&scheme.name, rows).filter(|s| {
                        // Whole units along the input: else the matrix stays as stored.
                        s.byte_len(&[rows as u64, k].into()).is_ok()
                    })
                };
                Packed { rows, interleaved: &interleaved }.targets(model, params)
            }
        }
    }
}

/// The packed layout with as many interleaved rows as this machine's kernels take (16 if it has none).
///
/// # Errors
/// If `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
pub fn packed_layout() -> Result<LayoutKind, Error> {
    let rows = isa()?.interleave().unwrap_or(16);
    Ok(LayoutKind::Packed { rows: rows as u64 })
}

/// The instruction set that kernels use.
pub(crate) fn isa() -> Result<quant::Isa, Error> {
    Ok(quant::Isa::detect()?)
}

/// A compiled plan, and what the kernels must know about the layout it fills.
pub struct Planned {
    /// The plan.
    pub plan: LoadPlan,
    /// The order in which rows of q and k lie.
    pub rope_order: RopeOrder,
    /// The layout.
    pub layout: LayoutKind,
}

/// Opens a checkpoint: headers only.
///
/// # Errors
/// If it is not there, not readable, or malformed: every problem of the file at once.
pub fn open(path: &Path) -> Result<Checkpoint, Error> {
    Ok(checkpoint::open(path)?)
}

/// The same, with a choice of how to read.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Checkpoint, Error> {
    Ok(checkpoint::open_with(path, options)?)
}

/// What model the checkpoint says it is.
///
/// # Errors
/// If no family claims it, or its configuration is wrong.
pub fn describe(checkpoint: &Checkpoint) -> Result<Model, Error> {
    Model::from_facts(checkpoint.metadata())
        .map_err(|source| Error::Model { path: shown(checkpoint), source })
}

/// Matches the checkpoint's entries with the model's parameters.
///
/// # Errors
/// Everything that is missing, unused or mis-shaped.
pub fn resolve(checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
    let names = checkpoint.entries().iter().map(|e| e.name.as_str());
    plan::resolve(checkpoint.entries(), &model.bindings(names)).map_err(|p| misfit(checkpoint, model, p))
}

/// Compiles the plan that fills `layout` from the checkpoint. Reads nothing.
///
/// # Errors
/// Every way in which the checkpoint does not fit the model or the layout.
pub fn plan(checkpoint: &Checkpoint, model: &Model, layout: LayoutKind) -> Result<Planned, Error> {
    let resolved = resolve(checkpoint, model)?;
    let params: Vec<Param> = resolved
        .params
        .iter()
        .map(|p| Param {
            name: p.name.clone(),
            shape: p.shape.clone(),
            scheme: p.scheme.clone(),
            encoded: !p.steps.is_empty(),
            tied_to: p.tied_to.clone(),
        })
        .collect();
    let runtime = layout.targets(model, &params);
    let plan = plan::compile(checkpoint.entries(), &resolved, &runtime.targets, &Codecs)
        .map_err(|p| misfit(checkpoint, model, p))?;
    Ok(Planned { plan, rope_order: runtime.rope_order, layout })
}

/// Runs the plan: every slot filled once.
///
/// # Errors
/// If a file cannot be read or memory is not to be had.
pub fn load(planned: &Planned, checkpoint: &Checkpoint, pool: &mut Pool) -> Result<Loaded, Error> {
    Ok(load::execute(&planned.plan, checkpoint, pool)?)
}

fn misfit(checkpoint: &Checkpoint, model: &Model, problems: plan::Problems) -> Error {
    Error::Plan { path: shown(checkpoint), family: model.family.name(), problems }
}

pub(crate) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}

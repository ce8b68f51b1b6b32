//! The steps from a path to filled slots.

use std::path::Path;

use checkpoint::{Checkpoint, OpenOptions};
use load::{Codecs, Loaded, Pool};
use model::{
    Canonical, DialectName, Export, InPlace, Layout, Model, Named, Packed, Param, RopeOrder, RuntimeLayout,
};
use plan::{LoadPlan, Resolved};
use tensor::{OneWay, Target};

use crate::Error;

/// How a runtime wants the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Names, shapes and encodings of the file: needs no model, and nothing runs it.
    Source,
    /// Canonical names, shapes and order; matrices encoded as stored.
    Canonical,
    /// As it lies in the file, to borrow all that can be.
    InPlace,
    /// Names and shapes of an ecosystem's files, whatever those of this one are.
    Named(DialectName),
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
            LayoutKind::Source => "source",
            LayoutKind::Canonical => "canonical",
            LayoutKind::InPlace => "in-place",
            LayoutKind::Named(DialectName::Gguf) => "gguf",
            LayoutKind::Named(DialectName::Hf) => "hf",
            LayoutKind::Packed { .. } => "packed",
        }
    }

    fn targets(self, model: &Model, params: &[Param]) -> Result<Export, OneWay> {
        let layout = match self {
            // As stored, the parameters are the entries: there is no model to ask.
            LayoutKind::Source => RuntimeLayout { targets: vec![], rope_order: RopeOrder::Half },
            LayoutKind::Named(dialect) => return Named(dialect).targets(model, params),
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
        };
        Ok(Export { layout, nameless: vec![] })
    }

    /// Whether an engine of ours runs it.
    pub(crate) fn runs(self) -> bool {
        !matches!(self, LayoutKind::Source | LayoutKind::Named(_))
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
    plan::resolve(checkpoint.entries(), &model.bindings(names))
        .map_err(|p| misfit(checkpoint, Some(model.family.name()), p))
}

/// Compiles the plan that fills `layout` from the checkpoint. Reads nothing.
///
/// # Errors
/// Every way in which the checkpoint does not fit the model or the layout.
pub fn plan(checkpoint: &Checkpoint, model: &Model, layout: LayoutKind) -> Result<Planned, Error> {
    Wanted::of(checkpoint, model, layout)?.compile(checkpoint)
}

/// Compiles the plan of [`LayoutKind::Source`], which needs no model: every entry under its own name.
///
/// # Errors
/// If the entries contradict each other.
pub fn plan_as_stored(checkpoint: &Checkpoint) -> Result<Planned, Error> {
    Wanted::as_stored(checkpoint)?.compile(checkpoint)
}

/// What a layout wants of a checkpoint: the last step before pieces.
pub(crate) struct Wanted {
    pub(crate) resolved: Resolved,
    /// The runtime parameters.
    pub(crate) targets: Vec<Target>,
    /// Canonical parameters that the layout has no name for.
    pub(crate) nameless: Vec<String>,
    rope_order: RopeOrder,
    layout: LayoutKind,
    /// The family, if there is a model.
    family: Option<&'static str>,
}

impl Wanted {
    /// What `layout` wants of a model.
    pub(crate) fn of(checkpoint: &Checkpoint, model: &Model, layout: LayoutKind) -> Result<Wanted, Error> {
        if layout == LayoutKind::Source {
            return Wanted::as_stored(checkpoint);
        }
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
        let export = layout.targets(model, &params).map_err(|OneWay { name, why }| Error::NoWayBack {
            path: shown(checkpoint),
            layout: layout.name(),
            name,
            why,
        })?;
        let Export { layout: RuntimeLayout { targets, rope_order }, nameless } = export;
        Ok(Wanted { resolved, targets, nameless, rope_order, layout, family: Some(model.family.name()) })
    }

    /// Every entry as it is.
    pub(crate) fn as_stored(checkpoint: &Checkpoint) -> Result<Wanted, Error> {
        let (bindings, targets) = plan::as_stored(checkpoint.entries());
        let resolved = plan::resolve(checkpoint.entries(), &bindings)
            .map_err(|problems| misfit(checkpoint, None, problems))?;
        let (rope_order, layout) = (RopeOrder::Half, LayoutKind::Source);
        Ok(Wanted { resolved, targets, nameless: vec![], rope_order, layout, family: None })
    }

    /// The plan of one runtime parameter, the checkpoint's others left alone.
    pub(crate) fn only(&self, checkpoint: &Checkpoint, target: Target) -> Result<LoadPlan, Error> {
        let name = target.name.clone();
        let mut targets = self.targets.clone();
        targets.push(target);
        let mut plan = plan::compile(checkpoint.entries(), &self.resolved, &targets, &Codecs)
            .map_err(|problems| misfit(checkpoint, self.family, problems))?;
        plan.params.retain(|p| p.name == name);
        Ok(plan)
    }

    /// The plan.
    pub(crate) fn compile(&self, checkpoint: &Checkpoint) -> Result<Planned, Error> {
        let plan = plan::compile(checkpoint.entries(), &self.resolved, &self.targets, &Codecs)
            .map_err(|problems| misfit(checkpoint, self.family, problems))?;
        Ok(Planned { plan, rope_order: self.rope_order, layout: self.layout })
    }
}

/// Runs the plan: every slot filled once.
///
/// # Errors
/// If a file cannot be read or memory is not to be had.
pub fn load(planned: &Planned, checkpoint: &Checkpoint, pool: &mut Pool) -> Result<Loaded, Error> {
    Ok(load::execute(&planned.plan, checkpoint, pool)?)
}

fn misfit(checkpoint: &Checkpoint, family: Option<&'static str>, problems: plan::Problems) -> Error {
    let path = shown(checkpoint);
    match family {
        Some(family) => Error::Plan { path, family, problems },
        None => Error::AsStored { path, problems },
    }
}

pub(crate) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}

//! Plans, asked for step by step.

use std::fmt;
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Plan;
use model::module::Declared;
use model::{Axis, Mesh, Model, Module, Tree};
use tensor::{Binding, Bindings, Diagnostic, DropRule, Expr, Mapping, Pattern, SharedStage};

use crate::merging::Merging;
use crate::ranks::{Of, Ranks};
use crate::shared::Shared;
use crate::{Adapter, EncodeRule, Encoding, Error, LayoutKind, Preset, Request, describe};

/// Collects what to load of a checkpoint: the model, the layout, the rank. Nothing is read before [`build`](Self::build),
/// and no tensor then.
///
/// ```no_run
/// # use weighbridge_planner as planner;
/// # fn main() -> Result<(), planner::Error> {
/// use model::Mesh;
/// use planner::{LayoutKind, PlanBuilder};
///
/// let checkpoint = checkpoint::open("model")?;
/// let mesh = Mesh { tp: 8, ..Mesh::default() };
/// let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Modules).mesh(mesh).rank(3).build()?;
/// # Ok(())
/// # }
/// ```
pub struct PlanBuilder<'a> {
    checkpoint: &'a Checkpoint,
    model: Option<&'a Model>,
    module: Option<&'a dyn Module>,
    layout: LayoutKind,
    mesh: Mesh,
    rank: u64,
    adapter: Adapter,
    encoding: Encoding,
    stages: Vec<(Pattern, SharedStage)>,
    loras: Vec<Arc<lora::Adapter>>,
}

impl fmt::Debug for PlanBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanBuilder")
            .field("layout", &self.layout)
            .field("mesh", &self.mesh)
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

impl<'a> PlanBuilder<'a> {
    /// Asks for a plan of `checkpoint`: of all of it, in canonical names, if nothing else is said.
    pub fn new(checkpoint: &'a Checkpoint) -> PlanBuilder<'a> {
        let (layout, mesh) = (LayoutKind::Canonical, Mesh::default());
        PlanBuilder {
            checkpoint,
            model: None,
            module: None,
            layout,
            mesh,
            rank: 0,
            adapter: Adapter::default(),
            encoding: Encoding::default(),
            stages: vec![],
            loras: vec![],
        }
    }

    /// The model, where it is known already; else the checkpoint is asked what it holds.
    #[must_use]
    pub fn model(self, model: &'a Model) -> PlanBuilder<'a> {
        PlanBuilder { model: Some(model), ..self }
    }

    /// A model of one's own: the checkpoint's entries have the names that the modules declare, and what the modules
    /// hold is filled.
    #[must_use]
    pub fn module(self, module: &'a dyn Module) -> PlanBuilder<'a> {
        PlanBuilder { module: Some(module), layout: LayoutKind::Modules, ..self }
    }

    /// Sets the layout in which the runtime wants the parameters; the default is canonical.
    #[must_use]
    pub fn layout(self, layout: LayoutKind) -> PlanBuilder<'a> {
        PlanBuilder { layout, ..self }
    }

    /// The ranks that share the model; one if nothing is said.
    #[must_use]
    pub fn mesh(self, mesh: Mesh) -> PlanBuilder<'a> {
        PlanBuilder { mesh, ..self }
    }

    /// Sets the rank whose share is planned, counted from 0.
    #[must_use]
    pub fn rank(self, rank: u64) -> PlanBuilder<'a> {
        PlanBuilder { rank, ..self }
    }

    /// Rules that turn the checkpoint's entries into the tensors that its dialect, or one's own modules, look for.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> PlanBuilder<'a> {
        self.adapter.mapping = Some(mapping);
        self
    }

    /// Parameters whose entries may be absent, all of them: they are not in the plan then, which lists them. The pattern
    /// is of a parameter, or of an entry. Nothing else is excused.
    #[must_use]
    pub fn allow_missing(mut self, pattern: &str) -> PlanBuilder<'a> {
        self.adapter.allow_missing.push(Pattern::new(pattern));
        self
    }

    /// Sets all of these at once, replacing earlier values.
    #[must_use]
    pub fn adapter(self, adapter: Adapter) -> PlanBuilder<'a> {
        PlanBuilder { adapter, ..self }
    }

    /// Entries that may stay in the checkpoint, and why nothing is lost: the plan lists them.
    #[must_use]
    pub fn leave(mut self, pattern: &str, why: &str) -> PlanBuilder<'a> {
        self.adapter.drops.push(DropRule { pattern: Pattern::new(pattern), why: why.to_owned() });
        self
    }

    /// Adds encoding rules. Their patterns match canonical names, or entry names in [`LayoutKind::Source`], whatever
    /// scheme the parameters are stored in. The first rule that matches wins, and each rule must decide something.
    ///
    /// The parameters are encoded during the load. The layout sees the new encodings: it fuses parameters that are
    /// encoded alike, and interleaves their rows where it can. Each rank encodes the share that it holds.
    #[must_use]
    pub fn encode(mut self, rules: impl IntoIterator<Item = EncodeRule>) -> PlanBuilder<'a> {
        self.encoding.rules.extend(rules);
        self
    }

    /// The preset decides where no rule matches, by the purpose of the parameter.
    #[must_use]
    pub fn preset(mut self, preset: &'static Preset) -> PlanBuilder<'a> {
        self.encoding.preset = Some(preset);
        self
    }

    /// Adds a stage of one's own: it changes the runtime parameters that `pattern` matches, after all movement and some rows at a
    /// time, and shows in the plan. Stages of one parameter run in the order in which they were added; each must match something.
    #[must_use]
    pub fn stage(mut self, pattern: &str, stage: SharedStage) -> PlanBuilder<'a> {
        self.stages.push((Pattern::new(pattern), stage));
        self
    }

    /// Merges `LoRA` adapters: each matrix that one changes is decoded, changed and encoded again as it would be without. Several
    /// are added one after the other.
    #[must_use]
    pub fn loras(mut self, adapters: impl IntoIterator<Item = Arc<lora::Adapter>>) -> PlanBuilder<'a> {
        self.loras.extend(adapters);
        self
    }

    /// Sets rules and preset at once, replacing earlier ones.
    #[must_use]
    pub fn encoding(self, encoding: Encoding) -> PlanBuilder<'a> {
        PlanBuilder { encoding, ..self }
    }

    /// The plan of the rank.
    ///
    /// # Errors
    /// Every way in which the checkpoint does not fit the model or the layout, or the model the mesh; every rule that
    /// decides nothing, and every parameter that cannot be encoded as asked.
    pub fn build(self) -> Result<Plan, Error> {
        self.request()?.compile()
    }

    /// The request of the layout on the rank, not compiled yet.
    ///
    /// # Errors
    /// As [`PlanBuilder::build`], but for what only the pieces show.
    pub fn request(self) -> Result<Request, Error> {
        let rank = self.rank;
        self.ranks()?.request(rank)
    }

    /// Returns the plans of all ranks. Work that they have in common is done once.
    ///
    /// # Errors
    /// Every way in which the checkpoint does not fit the model; a mesh that is not one.
    pub fn ranks(self) -> Result<Ranks, Error> {
        let PlanBuilder { checkpoint, layout, mesh, encoding, adapter, stages, loras, .. } = self;
        let merges = !loras.is_empty();
        let count = mesh.ranks().ok_or_else(Error::no_mesh)?;
        if self.rank >= count {
            let what = format!("there is no rank {} of {count}: ranks are counted from 0", self.rank);
            return Err(Error::Mesh { what: Diagnostic::new(what) });
        }
        if mesh.is_many() && !layout.is_shared() {
            let what =
                format!("the layout `{}` is for whole files and cannot be split across ranks", layout.name());
            let hint = "use canonical, modules, packed or another runtime's layout".to_owned();
            return Err(Error::Mesh { what: Diagnostic::new(what).with_hint(hint) });
        }
        let mut merging = None;
        let (of, resolved) = if let Some(module) = self.module {
            if merges {
                let what = "an adapter is merged into a model of a family, not into modules of one's own";
                return Err(Error::Stage { what: Diagnostic::new(what) });
            }
            let tree = Tree::of(module).map_err(|problems| Error::Owners { problems })?;
            let mapped = adapter.mapped(checkpoint)?;
            let own = Some("the caller's");
            let resolved = adapter.matched(checkpoint, mapped.as_ref(), own_bindings(&tree), own)?;
            share_experts(&mesh, &tree, "this model")?;
            (Of::Module(Shared::of(&tree), tree), resolved)
        } else if layout == LayoutKind::Source {
            let (resolved, targets) = adapter.as_stored(checkpoint)?;
            if merges {
                let model = self.model.cloned().map_or_else(|| describe(checkpoint), Ok)?;
                let merged = Merging::of(&loras, &model, &adapter.resolve(checkpoint, &model)?)?;
                merging = Some(Arc::new(merged.in_entries(adapter.bound(checkpoint, &model)?)?));
            }
            (Of::Stored { model: self.model.cloned().map(Box::new), targets, adapter }, resolved)
        } else {
            let model = self.model.cloned().map_or_else(|| describe(checkpoint), Ok)?;
            share_experts(&mesh, model.tree(), &format!("this `{}` model", model.family.name()))?;
            let resolved = adapter.resolve(checkpoint, &model)?;
            if merges {
                merging = Some(Arc::new(Merging::of(&loras, &model, &resolved)?));
            }
            (Of::Model(Shared::of(model.tree()), Box::new(model)), resolved)
        };
        let (checkpoint, resolved) = (checkpoint.clone(), Arc::new(resolved));
        Ok(Ranks { checkpoint, of, resolved, layout, mesh, count, encoding, stages, merging })
    }
}

/// Refuses groups of experts where there are no experts: all of them would hold the same.
fn share_experts(mesh: &Mesh, tree: &Tree, model: &str) -> Result<(), Error> {
    let has = |declared: &Declared| declared.spec.axes.iter().any(|along| along.axis == Axis::Expert);
    if mesh.ep == 1 || tree.declared().iter().any(has) {
        return Ok(());
    }
    let what = format!("{model} has no experts to distribute to {} groups of ranks", mesh.ep);
    Err(Error::Mesh { what: Diagnostic::new(what) })
}

/// The parameters that the modules of a user's own model want.
fn own_bindings(tree: &Tree) -> Bindings {
    let bindings = tree.declared().iter().map(|declared| Binding {
        name: declared.spec.name.clone(),
        shape: declared.spec.shape(),
        expr: declared.stored.clone().unwrap_or_else(|| Expr::source(&declared.spec.name)),
        presence: declared.spec.presence.clone(),
    });
    Bindings { bindings: bindings.collect(), drops: vec![] }
}

//! Plans, asked for step by step.

use std::fmt;
use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{Mesh, Model, Module, Tree};
use plan::Resolved;
use tensor::{Binding, Bindings, Drop, Expr, Mapping, Pattern, RopeOrder, Target};

use crate::pipeline::misfit;
use crate::wanted::{Shared, Wanted, compiled, cut, untorn};
use crate::{Adapter, EncodeRule, Encoding, Error, LayoutKind, Plan, Preset, describe};

/// What is to be loaded of a checkpoint: the model, the layout, the rank. Nothing is read before [`build`](Self::build),
/// and no tensor then.
///
/// ```no_run
/// # fn main() -> Result<(), weighbridge::Error> {
/// use weighbridge::{LayoutKind, Mesh, PlanBuilder};
///
/// let checkpoint = weighbridge::open("model")?;
/// let mesh = Mesh { tp: 8, ..Mesh::default() };
/// let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Vllm).mesh(mesh).rank(3).build()?;
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

    /// How the runtime wants the parameters; canonical if nothing is said.
    #[must_use]
    pub fn layout(self, layout: LayoutKind) -> PlanBuilder<'a> {
        PlanBuilder { layout, ..self }
    }

    /// The ranks that share the model; one if nothing is said.
    #[must_use]
    pub fn mesh(self, mesh: Mesh) -> PlanBuilder<'a> {
        PlanBuilder { mesh, ..self }
    }

    /// Whose share it is, counted from 0.
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

    /// All of that at once, in the place of what was said of it before.
    #[must_use]
    pub fn adapter(self, adapter: Adapter) -> PlanBuilder<'a> {
        PlanBuilder { adapter, ..self }
    }

    /// Entries that may stay in the checkpoint, and why nothing is lost: the plan lists them.
    #[must_use]
    pub fn leave(mut self, pattern: &str, why: &str) -> PlanBuilder<'a> {
        self.adapter.drops.push(Drop { pattern: Pattern::new(pattern), why: why.to_owned() });
        self
    }

    /// Parameters that are encoded on the way, whatever they are stored in: rules for their canonical names, or for
    /// those of the entries in [`LayoutKind::Source`]. The first that matches wins; each must decide something.
    ///
    /// What the parameters are encoded in is what the layout is told: it fuses what is encoded alike and interleaves
    /// rows that can be. On ranks each encodes the share that it holds.
    #[must_use]
    pub fn encode(mut self, rules: impl IntoIterator<Item = EncodeRule>) -> PlanBuilder<'a> {
        self.encoding.rules.extend(rules);
        self
    }

    /// What no rule matches is encoded by what it is for.
    #[must_use]
    pub fn preset(mut self, preset: &'static Preset) -> PlanBuilder<'a> {
        self.encoding.preset = Some(preset);
        self
    }

    /// Rules and preset at once, in the place of what was said of them before.
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
        if self.layout == LayoutKind::Source && !self.mesh.is_many() && self.module.is_none() {
            return Wanted::as_stored_but(self.checkpoint, &self.adapter, &self.encoding, self.model)?
                .compile(self.checkpoint);
        }
        let rank = self.rank;
        self.ranks()?.plan(rank)
    }

    /// The plans of all ranks: what they have in common is done once.
    ///
    /// # Errors
    /// Every way in which the checkpoint does not fit the model; a mesh that is not one.
    pub fn ranks(self) -> Result<Ranks<'a>, Error> {
        let PlanBuilder { checkpoint, layout, mesh, encoding, .. } = self;
        let count = mesh.ranks().ok_or_else(Error::no_mesh)?;
        if self.rank >= count {
            let what = format!("there is no rank {} of {count}: they are counted from 0", self.rank);
            return Err(Error::Mesh { what });
        }
        if mesh.is_many() && !layout.is_shared() {
            let what = format!(
                "the layout `{}` is of whole files, which ranks do not share\nhint: canonical, modules, packed or vllm",
                layout.name()
            );
            return Err(Error::Mesh { what });
        }
        if let Some(module) = self.module {
            let tree = Tree::of(module).map_err(|problems| Error::Owners { problems })?;
            let mapped = self.adapter.mapped(checkpoint)?;
            let own = Some("the caller's");
            let resolved = self.adapter.matched(checkpoint, mapped.as_ref(), own_bindings(&tree), own)?;
            let shared = Shared::of(&tree);
            let (of, resolved) = (Of::Module(tree), Arc::new(resolved));
            return Ok(Ranks { checkpoint, of, resolved, shared, layout, mesh, count, encoding });
        }
        let model = match self.model {
            Some(model) => Borrowed::There(model),
            None => Borrowed::Own(Box::new(describe(checkpoint)?)),
        };
        let resolved = Arc::new(self.adapter.resolve(checkpoint, model.get())?);
        let shared = Shared::of(&model.get().tree());
        Ok(Ranks { checkpoint, of: Of::Model(model), resolved, shared, layout, mesh, count, encoding })
    }
}

/// What the modules of a user's own model ask of a checkpoint.
fn own_bindings(tree: &Tree) -> Bindings {
    let bindings = tree.declared().iter().map(|declared| Binding {
        name: declared.spec.name.clone(),
        shape: declared.spec.shape(),
        expr: declared.stored.clone().unwrap_or_else(|| Expr::source(&declared.spec.name)),
        presence: declared.spec.presence.clone(),
    });
    Bindings { bindings: bindings.collect(), drops: vec![] }
}

enum Borrowed<'a> {
    There(&'a Model),
    Own(Box<Model>),
}

impl Borrowed<'_> {
    fn get(&self) -> &Model {
        match self {
            Borrowed::There(model) => model,
            Borrowed::Own(model) => model,
        }
    }
}

enum Of<'a> {
    Model(Borrowed<'a>),
    Module(Tree),
}

/// The ranks of a mesh: what their plans have in common.
pub struct Ranks<'a> {
    checkpoint: &'a Checkpoint,
    of: Of<'a>,
    resolved: Arc<Resolved>,
    shared: Shared,
    layout: LayoutKind,
    mesh: Mesh,
    count: u64,
    encoding: Encoding,
}

impl fmt::Debug for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("layout", &self.layout)
            .field("mesh", &self.mesh)
            .finish_non_exhaustive()
    }
}

impl Ranks<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The canonical parameters, as the checkpoint gives them: not encoded yet.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The plan of one rank.
    ///
    /// # Errors
    /// Every parameter that cannot be divided, moved or encoded.
    pub fn plan(&self, rank: u64) -> Result<Plan, Error> {
        let (checkpoint, mesh, encoding) = (self.checkpoint, &self.mesh, &self.encoding);
        match &self.of {
            Of::Model(model) => Wanted::of_rank(
                checkpoint,
                model.get(),
                Arc::clone(&self.resolved),
                &self.shared,
                self.layout,
                (mesh, rank),
                encoding,
            )?
            .compile(checkpoint),
            Of::Module(tree) => {
                let names = self.resolved.params.iter().map(|p| p.name.as_str());
                let shares = self.shared.shares(names, mesh, rank, self.layout.holding(None))?;
                let encoded = self.shared.encoded(&self.resolved, &shares, encoding)?;
                let held =
                    tree.held().iter().filter(|h| h.parts().iter().all(|part| shares.contains_key(part)));
                let mut targets: Vec<Target> = held
                    .map(|h| Target { name: h.name.clone(), expr: h.expr.clone(), scheme: None })
                    .collect();
                for target in &mut targets {
                    cut(target, &shares);
                }
                encoded.upright(&targets)?;
                let arrangement = self.layout.arrangement(RopeOrder::Half, mesh, rank);
                untorn(tree, &encoded.resolved, &targets)
                    .and_then(|()| compiled(checkpoint, &encoded.resolved, &targets, arrangement))
                    .map_err(|problems| misfit(checkpoint, Some("the caller's"), problems))
            }
        }
    }
}

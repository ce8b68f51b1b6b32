//! Modules: a model as a tree in which each layer owns its parameters.
//!
//! A module declares what it holds, and its children, under names of their own; nesting composes the names. The tree
//! gives the parameters that a checkpoint must have, the parts of a fused layer, and how ranks share them. Nothing is
//! loaded here, and parameters carry no loader. The families of this crate are declared this way, and so is a user's
//! own model:
//!
//! ```ignore
//! #[derive(Module)]
//! struct Block {
//!     input_layernorm: RmsNorm,
//!     self_attn: Attention,
//! }
//!
//! #[derive(Module)]
//! struct Attention {
//!     qkv_proj: QkvParallelLinear, // made of q_proj, k_proj and v_proj
//!     o_proj: RowParallelLinear,
//! }
//! ```

mod layers;
mod moe;
mod vectors;

use std::collections::HashMap;

use tensor::{Expr, Presence};

use crate::param::{Contract, ParamSpec, PipelinePlace};

pub use crate::computes::{
    Attention, AudioEncoder, Branch, Computes, CrossAttention, Decoder, Encoder, FeedForward, GatedDelta,
    Groups, LatentAttention, Mixture, Norm, NotRun, Relative, Routing, Score, Scores,
};
pub use layers::{
    ColumnParallelLinear, Embedding, FusedPart, Linear, MergedColumnParallelLinear, ParallelLmHead,
    QkvParallelLinear, RowParallelLinear, VocabParallelEmbedding,
};
pub use moe::FusedMoe;
pub use vectors::{LayerNorm, RmsNorm, Table};

/// A part of a model that owns parameters, or parts that do. Usually derived.
///
/// It declares what it computes ([`Computes`]) beside the parameters it owns, so that an engine needs no second
/// description.
pub trait Module {
    /// Declares what it owns.
    fn declare(&self, tree: &mut Tree);

    /// The kind of module, for messages.
    fn kind(&self) -> &'static str {
        let name = std::any::type_name::<Self>();
        name.split('<').next().and_then(|n| n.rsplit("::").next()).unwrap_or(name)
    }
}

/// A parameter that a checkpoint must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its specification.
    pub spec: ParamSpec,
    /// How it is made of a checkpoint's entries that have the tree's own names; `None`: it is the entry of its name.
    pub stored: Option<Expr>,
    /// The module that owns it: `layers.0.attention.qkv (QkvParallelLinear)`.
    pub owner: String,
}

/// A parameter that a module holds when it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeParam {
    /// Its name.
    pub name: String,
    /// How it is made of declared parameters: one, or several that are fused. It has no sizes in it, so that it is as
    /// true of the shares of a rank as of the whole.
    pub expr: Expr,
    /// The module that owns it.
    pub owner: String,
}

impl RuntimeParam {
    /// Whether it is a declared parameter under its own name.
    pub fn is_plain(&self) -> bool {
        self.expr == Expr::source(&self.name)
    }

    /// The declared parameters that it is made of.
    pub fn parts(&self) -> Vec<&str> {
        let mut parts = Vec::new();
        self.expr.for_each_source(&mut |name| parts.push(name));
        parts
    }
}

/// Two modules own one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two modules own `{name}`: {} and {}", owners[0], owners[1])]
pub struct TwoOwners {
    /// The name.
    pub name: String,
    /// The modules.
    pub owners: [String; 2],
}

/// The declarations of a model's modules.
#[derive(Debug, Default)]
pub struct Tree {
    declared: Vec<Declared>,
    held: Vec<RuntimeParam>,
    computed: Vec<(String, Result<Computes, NotRun>)>,
    path: Vec<String>,
    owner: Vec<&'static str>,
    place: Option<PipelinePlace>,
    /// Whether there were layers.
    layered: bool,
    /// Whether names are those of a checkpoint's entries.
    by_entries: bool,
    names: HashMap<String, String>,
    problems: Vec<TwoOwners>,
    /// Contract of the parameters being declared, where they have none of their own.
    contract: Contract,
}

impl Tree {
    /// The tree of a whole model.
    ///
    /// # Errors
    /// Every name that two modules own.
    pub fn of(module: &dyn Module) -> Result<Tree, Vec<TwoOwners>> {
        Tree { by_entries: true, ..Tree::default() }.grow(module)
    }

    /// The same, where dialects say how parameters are made of entries: [`Declared::stored`] is left out.
    pub(crate) fn canonical(module: &dyn Module) -> Result<Tree, Vec<TwoOwners>> {
        Tree::default().grow(module)
    }

    fn grow(self, module: &dyn Module) -> Result<Tree, Vec<TwoOwners>> {
        let mut tree = self;
        tree.owner.push(module.kind());
        module.declare(&mut tree);
        if tree.problems.is_empty() { Ok(tree) } else { Err(tree.problems) }
    }

    /// The parameters that a checkpoint must have, in the order of declaration.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// The parameters that the modules hold, in the order of declaration.
    pub fn held(&self) -> &[RuntimeParam] {
        &self.held
    }

    /// The computations of the modules, by path, or why the engine does not run it, in the order of declaration. The model's own path
    /// is empty.
    pub fn computed(&self) -> &[(String, Result<Computes, NotRun>)] {
        &self.computed
    }

    /// The module computes this.
    pub fn computes(&mut self, what: Result<Computes, NotRun>) {
        self.computed.push((self.path.join("."), what));
    }

    /// Declares a child under `name`.
    pub fn child(&mut self, name: impl Into<String>, module: &dyn Module) {
        self.path.push(name.into());
        self.owner.push(module.kind());
        module.declare(self);
        self.owner.pop();
        self.path.pop();
    }

    /// Declares `module`, whose parameters get `contract` where they have none of their own.
    fn held_by(&mut self, contract: Contract, module: &dyn Module) {
        let before = std::mem::replace(&mut self.contract, contract);
        module.declare(self);
        self.contract = before;
    }

    /// The module holds a parameter, `{path}.{name}`, as a checkpoint has it.
    pub fn param(&mut self, name: &str, spec: ParamSpec) {
        let full = self.full(name);
        self.own(&full);
        self.declare(full.clone(), spec, None);
        self.hold(full.clone(), Expr::source(full));
    }

    /// A parameter that the module does not hold as it is but makes something of: `{path}.{name}`, or
    /// `{parent's path}.{name}` if `name` begins with `..`. Its whole name is given back.
    pub fn part(&mut self, name: &str, spec: ParamSpec) -> String {
        let full = self.full(name);
        self.own(&full);
        self.declare(full.clone(), spec, None);
        full
    }

    /// The same, where a checkpoint has it in another form: `stored` makes it of entries by their whole names.
    pub fn part_of(&mut self, name: &str, spec: ParamSpec, stored: impl FnOnce(&Tree) -> Expr) -> String {
        let full = self.full(name);
        self.own(&full);
        let stored = self.by_entries.then(|| stored(self));
        self.declare(full.clone(), spec, stored);
        full
    }

    /// The module holds `{path}.{name}`, made of declared parameters by `expr`.
    pub fn held_as(&mut self, name: &str, expr: Expr) {
        let full = self.full(name);
        let mut of_itself = false;
        expr.for_each_source(&mut |part| of_itself |= part == full);
        if !of_itself {
            self.own(&full);
        }
        self.hold(full, expr);
    }

    /// The whole name of `name` in this module, or in its parent if it begins with `..`.
    pub fn full(&self, name: &str) -> String {
        let (path, name) = match name.strip_prefix("..") {
            Some(name) => (&self.path[..self.path.len().saturating_sub(1)], name),
            None => (&self.path[..], name),
        };
        path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(".")
    }

    fn declare(&mut self, name: String, spec: ParamSpec, stored: Option<Expr>) {
        let place =
            self.place.unwrap_or(if self.layered { PipelinePlace::After } else { PipelinePlace::Before });
        let contract = Contract {
            dtype: spec.contract.dtype.or(self.contract.dtype),
            align: spec.contract.align.or(self.contract.align),
        };
        let spec = ParamSpec { name, place, contract, ..spec };
        self.declared.push(Declared { spec, stored, owner: self.owner() });
    }

    fn hold(&mut self, name: String, expr: Expr) {
        self.held.push(RuntimeParam { name, expr, owner: self.owner() });
    }

    fn own(&mut self, name: &str) {
        let owner = self.owner();
        if let Some(other) = self.names.insert(name.to_owned(), owner.clone()) {
            self.problems.push(TwoOwners { name: name.to_owned(), owners: [other, owner] });
        }
    }

    fn owner(&self) -> String {
        let kind = self.owner.last().copied().unwrap_or_default();
        if self.path.is_empty() {
            format!("the model ({kind})")
        } else {
            format!("`{}` ({kind})", self.path.join("."))
        }
    }
}

/// A module whose code wants parameters in a certain dtype or alignment (in bytes).
#[derive(Clone, Debug)]
pub struct HeldAs<M> {
    /// The module.
    pub module: M,
    /// The contract of its parameters.
    pub contract: Contract,
}

impl<M: Module> Module for HeldAs<M> {
    fn declare(&self, tree: &mut Tree) {
        tree.held_by(self.contract, &self.module);
    }

    fn kind(&self) -> &'static str {
        self.module.kind()
    }
}

/// The layers of a model in order, which a pipeline divides among its stages. Children are called `0`, `1`, ….
#[derive(Clone, Debug)]
pub struct Layers<M>(pub Vec<M>);

impl<M: Module> Module for Layers<M> {
    fn declare(&self, tree: &mut Tree) {
        for (i, module) in (0..).zip(&self.0) {
            tree.place = Some(PipelinePlace::Layer(i));
            tree.child(i.to_string(), module);
        }
        tree.place = None;
        tree.layered = true;
    }

    fn kind(&self) -> &'static str {
        "Layers"
    }
}

/// Children called `0`, `1`, ….
impl<M: Module> Module for Vec<M> {
    fn declare(&self, tree: &mut Tree) {
        for (i, module) in self.iter().enumerate() {
            tree.child(i.to_string(), module);
        }
    }
}

/// An absent module declares nothing.
impl<M: Module> Module for Option<M> {
    fn declare(&self, tree: &mut Tree) {
        if let Some(module) = self {
            module.declare(tree);
        }
    }

    fn kind(&self) -> &'static str {
        self.as_ref().map_or("Option", Module::kind)
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn declare(&self, tree: &mut Tree) {
        (**self).declare(tree);
    }

    fn kind(&self) -> &'static str {
        (**self).kind()
    }
}

/// The meaning of a parameter's absence, as a change to its declaration.
fn with_presence(spec: ParamSpec, presence: &Presence) -> ParamSpec {
    ParamSpec { presence: presence.clone(), ..spec }
}

/// A module that owns nothing: a field of this type, with `#[module(flatten)]`, declares what the module around it
/// computes.
impl Module for Computes {
    fn declare(&self, tree: &mut Tree) {
        tree.computes(Ok(self.clone()));
    }
}

/// The same, where the engine does not run the module around it.
impl Module for NotRun {
    fn declare(&self, tree: &mut Tree) {
        tree.computes(Err(self.clone()));
    }
}

/// Either.
impl Module for Result<Computes, NotRun> {
    fn declare(&self, tree: &mut Tree) {
        tree.computes(self.clone());
    }
}

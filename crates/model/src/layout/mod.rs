//! Layouts: how a runtime wants the parameters, as expressions over canonical names.

mod modules;
mod named;
mod packed;

use std::fmt;
use std::sync::Arc;

use tensor::{Dtype, Expr, OneWay, RopeOrder, Scheme, Shape, Step, Target, ValueOrder};

use crate::dialect::{permute_rope, tiled};
use crate::{Family, Holding, Model, Role, Tree};

pub use modules::Modules;
pub use named::{Mlx, Named};
pub use packed::Packed;

/// A canonical parameter as the checkpoint can give it.
#[derive(Clone, Debug)]
pub struct Param {
    /// Canonical name.
    pub name: String,
    /// Logical shape.
    pub shape: Shape,
    /// The scheme that it has after its steps.
    pub scheme: Arc<Scheme>,
    /// The steps after movement. Empty: it can stay as stored.
    pub steps: Vec<Step>,
    /// The canonical parameter whose bytes it shares.
    pub tied_to: Option<String>,
}

/// The parameters of a runtime.
#[derive(Debug)]
pub struct RuntimeLayout {
    /// The runtime parameters.
    pub targets: Vec<Target>,
    /// The order in which rows of q and k lie.
    pub rope_order: RopeOrder,
    /// The order in which heads of values of linear attention lie.
    pub value_order: ValueOrder,
    /// Canonical parameters that the runtime has no name for.
    pub nameless: Vec<String>,
}

impl RuntimeLayout {
    /// A layout that has a name for everything.
    pub(crate) fn of_all(targets: Vec<Target>, rope_order: RopeOrder) -> RuntimeLayout {
        RuntimeLayout { targets, rope_order, value_order: ValueOrder::Grouped, nameless: vec![] }
    }

    /// The same with heads of values as `model`'s files have them: [`as_stored`] is around each target.
    pub(crate) fn values_as_stored(self, model: &Model) -> RuntimeLayout {
        RuntimeLayout { value_order: model.family.value_order(model.dialect), ..self }
    }
}

/// How a runtime wants the parameters.
pub trait Layout: fmt::Debug {
    /// The name.
    fn name(&self) -> &'static str;

    /// Returns the runtime parameters of `model`, given the parameters that its checkpoint has.
    ///
    /// # Errors
    /// If the runtime's parameters cannot be made of the canonical ones.
    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay>;

    /// The shares of ranks in a model of `family`; `None`: in modules of the caller's own.
    fn holding(&self, _family: Option<&dyn Family>) -> Holding {
        Holding::default()
    }

    /// Whether ranks can share it. Layouts that cannot be shared are for whole files.
    fn is_shared(&self) -> bool {
        true
    }

    /// Whether matrices with a scale each have one in common where they are fused, as kernels want it that know no other.
    /// Elsewhere each row keeps its own.
    fn merges(&self) -> bool {
        false
    }

    /// Whether our engine runs it.
    fn runs(&self) -> bool {
        false
    }
}

/// Canonical names, shapes and order; matrices stay encoded as stored, vectors become f32.
#[derive(Debug)]
pub struct Canonical;

impl Layout for Canonical {
    fn name(&self) -> &'static str {
        "canonical"
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let roles = Roles::of(model.tree());
        let targets = params.iter().map(|p| roles.target(p, Expr::source(&p.name))).collect();
        Ok(RuntimeLayout::of_all(targets, RopeOrder::Half))
    }

    fn runs(&self) -> bool {
        true
    }
}

/// Canonical names, but every parameter as it lies in the file, so that most can be borrowed from the map: GGUF's
/// interleaved rows of q and k stay, and the kernel is told.
#[derive(Debug)]
pub struct InPlace;

impl Layout for InPlace {
    fn name(&self) -> &'static str {
        "in-place"
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let roles = Roles::of(model.tree());
        let rope_order = model.family.rope_order(model.dialect);
        let permuted = rope_order == RopeOrder::Interleaved;
        let expr = |p: &Param| {
            let source = as_stored(p, model);
            let rotated =
                ["attention.q.weight", "attention.k.weight", "attention.q.bias", "attention.k.bias"];
            // Permuting what the dialect un-permutes cancels to the rows as stored.
            if permuted && rotated.iter().any(|end| p.name.ends_with(&format!(".{end}"))) {
                permute_rope(source, model.config(), p.shape.len())
            } else {
                source
            }
        };
        let targets = params.iter().map(|p| roles.target(p, expr(p))).collect();
        Ok(RuntimeLayout::of_all(targets, rope_order).values_as_stored(model))
    }

    fn runs(&self) -> bool {
        true
    }
}

/// A parameter with its heads of values in the order of the files: putting them in order cancels what the dialect did.
fn as_stored(param: &Param, model: &Model) -> Expr {
    let source = Expr::source(&param.name);
    match model.family.value_order(model.dialect) {
        ValueOrder::Grouped => source,
        ValueOrder::Tiled => tiled(source, model.config(), &param.name, param.shape.len()),
    }
}

/// The roles of a model's parameters, by name.
struct Roles(std::collections::HashMap<String, Role>);

impl Roles {
    fn of(tree: &Tree) -> Roles {
        Roles(tree.declared().iter().map(|d| (d.spec.name.clone(), d.spec.role)).collect())
    }

    fn of_param(&self, param: &Param) -> Role {
        self.0.get(&param.name).copied().unwrap_or(Role::Matrix)
    }

    /// As it is, but vectors as f32, which every kernel takes.
    fn target(&self, param: &Param, expr: Expr) -> Target {
        let scheme = (self.of_param(param) == Role::Vector).then(|| Scheme::plain(Dtype::F32));
        Target { name: param.name.clone(), expr, scheme }
    }
}

//! The wanted side of a plan: canonical parameters as expressions over its entries, and runtime
//! parameters as expressions over canonical ones. The plan joins the two.

use std::sync::Arc;

use crate::{Expr, Pattern, Scheme, Shape, SharedStage, Step};

/// What an absent parameter means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is a problem.
    Required,
    /// The model does without.
    Optional,
    /// It is the same as that canonical parameter.
    TiedTo(String),
}

/// A canonical parameter, as one dialect stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Canonical name.
    pub name: String,
    /// The shape that the model wants.
    pub shape: Shape,
    /// How it is made from checkpoint entries.
    pub expr: Expr,
    /// What its absence means.
    pub presence: Presence,
}

/// Entries that are known and not needed: counted in the report, never silently skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRule {
    /// Names that may be dropped.
    pub pattern: Pattern,
    /// Why nothing is lost.
    pub why: String,
}

/// A whole model, as one dialect stores it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The parameters.
    pub bindings: Vec<Binding>,
    /// What may be left in the file.
    pub drops: Vec<DropRule>,
}

/// A runtime parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Runtime name.
    pub name: String,
    /// How it is made from canonical parameters.
    pub expr: Expr,
    /// The scheme it must have, or as stored.
    pub scheme: Option<Arc<Scheme>>,
}

impl Target {
    /// Changes it by `stage` at last, before it is encoded in the scheme that it must have.
    pub fn add_stage(&mut self, stage: SharedStage) {
        let expr = std::mem::replace(&mut self.expr, Expr::Zero(Shape::from([])));
        self.expr = expr.encode(Step::By(stage));
    }
}

//! What the caller gives: what the model wants, what the runtime wants, and which codecs there are.

use std::sync::Arc;

use tensor::{Expr, Pattern, Scheme, Shape};

/// One canonical parameter, and how a dialect makes it from checkpoint entries.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Canonical name.
    pub name: String,
    /// The shape that the model wants, of the whole expression.
    pub shape: Shape,
    /// Over the names of checkpoint entries.
    pub expr: Expr,
    /// What it means if none of its entries is there.
    pub presence: Presence,
}

/// What it means that none of a parameter's entries is in the checkpoint.
///
/// If some are there and some are not, the others are missing whatever this says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A problem.
    Required,
    /// The parameter is left out.
    Optional,
    /// The parameter is the same as this other canonical one.
    TiedTo(String),
}

/// Entries that may be ignored if no binding takes them. They are listed in the plan, never lost silently.
#[derive(Clone, Debug)]
pub struct Drop {
    /// Over entry names.
    pub pattern: Pattern,
    /// Why they may be ignored, for the report.
    pub why: String,
}

/// All that a model wants of a checkpoint, in one dialect.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// The parameters, in the order in which they are resolved and reported.
    pub bindings: Vec<Binding>,
    /// What may be ignored.
    pub drops: Vec<Drop>,
}

/// One parameter that the runtime wants.
#[derive(Clone, Debug)]
pub struct Target {
    /// The runtime's name for it.
    pub name: String,
    /// Over canonical names.
    pub expr: Expr,
    /// How it is held at run time. `None`: as stored.
    pub scheme: Option<Arc<Scheme>>,
}

/// Whether a change of encoding keeps every value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// Every value stays what it is.
    Exact,
    /// Some values change, for this reason.
    Lossy(String),
}

/// Which changes of encoding there are. The plan only asks; the executor does them.
pub trait Codecs {
    /// Whether `from` can be re-encoded as `to`, and whether that keeps the values. `None`: it cannot.
    fn fidelity(&self, from: &Scheme, to: &Scheme) -> Option<Fidelity>;

    /// Whether equally named planes of both schemes hold the same cells, so that they differ only in the
    /// order of axes or in how many elements share a cell (an FP8 scale for 128 × 128 or for 64 × 128).
    /// Then movement goes from one into the other, exactly and without a codec.
    ///
    /// Equal geometry is not enough to say yes: `q4_0` and `iq4_nl` blocks have the same size.
    fn same_cells(&self, from: &Scheme, to: &Scheme) -> bool {
        from == to
    }
}

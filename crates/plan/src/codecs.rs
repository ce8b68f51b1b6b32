//! The codecs, which the caller passes beside bindings and targets.

use std::sync::Arc;

use tensor::Scheme;

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

    /// The scheme with the same cells, but a scale for each row, if rows share theirs in `scheme`. Parts that cannot be
    /// fused in `scheme`, since their scales differ, are fused in that one; [`Codecs::fidelity`] gives the fidelity of
    /// merging their scales afterwards.
    fn by_row(&self, scheme: &Scheme) -> Option<Arc<Scheme>> {
        let _ = scheme;
        None
    }
}

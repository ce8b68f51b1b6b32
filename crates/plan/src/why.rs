//! Why movement cannot be done.

/// A cell spans the whole axis: the plane does not vary along it.
pub(crate) const WHOLE: u64 = u64::MAX;

/// Why movement cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The expression does not fit together.
    Shape(String),
    /// Fewer axes than the scheme speaks about.
    Rank {
        /// Axes that the scheme needs.
        wants: usize,
        /// Axes that there are.
        found: usize,
    },
    /// A size does not fit in 64 bits.
    Overflow,
    /// The result is not a whole number of packed cells.
    Ragged {
        /// Logical axis of the result.
        axis: usize,
        /// Its extent in elements.
        extent: u64,
        /// Elements that a cell packs.
        per: u64,
    },
    /// Elements packed in one cell would be separated or reordered.
    Cut {
        /// Logical axis of the result.
        axis: usize,
        /// Elements that a cell packs.
        per: u64,
    },
    /// One shared cell would have to hold several sources' values.
    Mixed {
        /// Logical axis of the result.
        axis: usize,
        /// Elements that a cell spans; `u64::MAX` if it spans the whole axis.
        per: u64,
    },
    /// Padding would share a cell that does not keep zeros zero.
    Padding,
    /// The source's planes are not the target's.
    Planes {
        /// Name of the source's scheme.
        from: String,
    },
    /// A cell is fed by fewer elements than it has. A bug of the compiler.
    Hole {
        /// Linear index of the cell.
        cell: u64,
    },
    /// More steps or pieces than allowed.
    TooFine {
        /// How many are allowed.
        limit: u64,
    },
}

impl Why {
    /// `per` as text.
    pub(crate) fn span(per: u64) -> String {
        if per == WHOLE { "the whole".into() } else { format!("{per} elements") }
    }
}

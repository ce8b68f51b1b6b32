//! How values lie in memory, beyond what shapes and schemes say.

use std::borrow::Cow;
use std::fmt;

/// Which elements of a head a rotary embedding pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeOrder {
    /// Element `i` with `i + dim / 2` (HF; canonical).
    Half,
    /// Element `2i` with `2i + 1` (GGUF's `llama` architecture, Meta's own files).
    Interleaved,
}

impl fmt::Display for RopeOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RopeOrder::Half => "half",
            RopeOrder::Interleaved => "interleaved",
        })
    }
}

/// The order of the heads of values of linear attention, several of which share a head of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueOrder {
    /// Those of the first head of keys, then those of the second (HF; canonical).
    #[default]
    Grouped,
    /// The first of each head of keys, then the second of each (GGUF).
    Tiled,
}

impl fmt::Display for ValueOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueOrder::Grouped => "grouped",
            ValueOrder::Tiled => "tiled",
        })
    }
}

/// How a layout holds its parameters, as far as names, shapes and schemes do not say it: what a kernel must know besides.
/// Values of one arrangement are of no use in another, even where all else is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// The layout's name.
    pub layout: Cow<'static, str>,
    /// The order in which rows of q and k lie; `None` if the layout does not know: it takes entries as they are stored.
    pub rope_order: Option<RopeOrder>,
    /// The order of heads of values of linear attention.
    pub value_order: ValueOrder,
    /// Whose share of the model it is; `None` for the whole.
    pub share: Option<MeshRank>,
}

/// Whose share of a model something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshRank {
    /// The mesh, as text.
    pub mesh: String,
    /// The rank, counted from 0.
    pub rank: u64,
}

impl Arrangement {
    /// Entries as they are stored in a `format`, whatever they mean.
    pub fn stored(format: &str) -> Arrangement {
        Arrangement {
            layout: Cow::Owned(format!("source ({format})")),
            rope_order: None,
            value_order: ValueOrder::Grouped,
            share: None,
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the layout {}", self.layout)?;
        if let Some(order) = self.rope_order {
            write!(f, " with {order} rotary order")?;
        }
        if self.value_order == ValueOrder::Tiled {
            write!(f, " with tiled heads of values")?;
        }
        match &self.share {
            Some(MeshRank { mesh, rank }) => write!(f, ", rank {rank} of {mesh}"),
            None => Ok(()),
        }
    }
}

//! Canonical parameters: a name, logical axes, and what the parameter is for.

use tensor::{Presence, Shape};

/// What a logical axis ranges over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Tokens of the vocabulary.
    Vocab,
    /// The residual stream.
    Hidden,
    /// Query heads × head dimension.
    Heads,
    /// Key and value heads × head dimension.
    KvHeads,
    /// One head's dimension.
    HeadDim,
    /// The feed-forward network's inner dimension.
    Ffn,
    /// Positions with a learned embedding.
    Position,
}

/// What a parameter is for, which decides how a runtime stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rows are looked up.
    Embedding,
    /// Multiplies activations, `[out, in]`.
    Matrix,
    /// A norm's factor or bias, a linear bias, a table: always f32 at run time.
    Vector,
}

/// A canonical parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Canonical name: `layers.0.attention.q.weight`.
    pub name: String,
    /// Logical axes, slowest first, with their extents in elements.
    pub axes: Vec<(Axis, u64)>,
    /// What it is for.
    pub role: Role,
    /// What its absence means.
    pub presence: Presence,
}

impl ParamSpec {
    /// A required `[out, in]` matrix.
    pub fn matrix(name: impl Into<String>, out: (Axis, u64), input: (Axis, u64)) -> ParamSpec {
        ParamSpec {
            name: name.into(),
            axes: vec![out, input],
            role: Role::Matrix,
            presence: Presence::Required,
        }
    }

    /// A required `[rows, in]` table whose rows are looked up.
    pub fn embedding(name: impl Into<String>, rows: (Axis, u64), width: (Axis, u64)) -> ParamSpec {
        ParamSpec { role: Role::Embedding, ..ParamSpec::matrix(name, rows, width) }
    }

    /// A required vector.
    pub fn vector(name: impl Into<String>, axis: (Axis, u64)) -> ParamSpec {
        ParamSpec { name: name.into(), axes: vec![axis], role: Role::Vector, presence: Presence::Required }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> ParamSpec {
        ParamSpec { presence: Presence::Optional, ..self }
    }

    /// The same, but absent it is the parameter called `name`.
    #[must_use]
    pub fn tied_to(self, name: impl Into<String>) -> ParamSpec {
        ParamSpec { presence: Presence::TiedTo(name.into()), ..self }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.axes.iter().map(|a| a.1).collect::<Vec<_>>().into()
    }
}

//! Canonical parameters: a name, logical axes, and what the parameter is for.

use tensor::{Dtype, Presence, Shape};

/// The range of a logical axis, which decides how ranks share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Tokens of the vocabulary: padded, and divided among the ranks of a tensor-parallel group.
    Vocab,
    /// The residual stream: whole on every rank.
    Hidden,
    /// Query heads × head dimension: divided.
    Heads,
    /// Key and value heads × head dimension: divided; where there are more ranks than heads, each head is repeated.
    KvHeads,
    /// One head's dimension: whole.
    HeadDim,
    /// The feed-forward network's inner dimension: divided.
    Ffn,
    /// Experts: dealt out among the ranks of an expert-parallel group.
    Expert,
    /// The inner dimension of a low-rank projection: whole.
    Latent,
    /// Positions with a learned embedding: whole.
    Position,
    /// Any other axis that is divided.
    Divided,
    /// Any other axis that is whole on every rank.
    Whole,
}

/// One logical axis of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// Its range.
    pub axis: Axis,
    /// Its extent, in elements.
    pub extent: u64,
    /// Elements that stay together wherever it is divided: a head. Divides `extent`.
    pub unit: u64,
}

impl Axis {
    /// This axis with `extent` elements.
    pub const fn of(self, extent: u64) -> Along {
        Along { axis: self, extent, unit: 1 }
    }

    /// This axis, `count` times `unit` elements long, in units that stay together.
    ///
    /// # Panics
    /// If that overflows: configurations are checked before.
    pub const fn of_units(self, count: u64, unit: u64) -> Along {
        Along { axis: self, extent: count * unit, unit }
    }
}

/// An extent alone is of an axis that is whole on every rank.
impl From<u64> for Along {
    fn from(extent: u64) -> Along {
        Axis::Whole.of(extent)
    }
}

/// The purpose of a parameter, which decides how a runtime stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rows are looked up.
    Embedding,
    /// Multiplies activations, `[out, in]`.
    Matrix,
    /// A norm's factor or bias, a linear bias, a table: always f32 at run time.
    Vector,
}

/// Where in a pipeline a parameter is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelinePlace {
    /// Before the layers: on the first stage.
    Before,
    /// In this layer, counted from 0.
    Layer(u64),
    /// After the layers: on the last stage.
    After,
}

/// A canonical parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Canonical name: `layers.0.attention.q.weight`.
    pub name: String,
    /// Logical axes, slowest first.
    pub axes: Vec<Along>,
    /// Its purpose.
    pub role: Role,
    /// The meaning of its absence.
    pub presence: Presence,
    /// Where in a pipeline it is used.
    pub place: PipelinePlace,
    /// It is added once to what all ranks of a tensor-parallel group have summed up: the bias of a row-parallel layer.
    pub once: bool,
    /// Requirements on its dtype and alignment.
    pub contract: Contract,
}

/// Requirements of a module's code on a parameter beyond its shape. It is checked before a byte is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// The dtype that the parameter is held in. One that is stored otherwise is a problem, unless it is encoded as this.
    pub dtype: Option<Dtype>,
    /// Each plane begins in memory at a multiple of this many bytes: a power of two up to 4096.
    pub align: Option<u64>,
}

impl ParamSpec {
    /// A required parameter; its module gives it a name and a place.
    pub fn new(role: Role, axes: impl Into<Vec<Along>>) -> ParamSpec {
        let (name, presence, place) = (String::new(), Presence::Required, PipelinePlace::Before);
        ParamSpec {
            name,
            axes: axes.into(),
            role,
            presence,
            place,
            once: false,
            contract: Contract::default(),
        }
    }

    /// A required `[out, in]` matrix.
    pub fn matrix(out: Along, input: Along) -> ParamSpec {
        ParamSpec::new(Role::Matrix, [out, input])
    }

    /// A required vector.
    pub fn vector(axis: Along) -> ParamSpec {
        ParamSpec::new(Role::Vector, [axis])
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

    /// The same, held as `contract` says.
    #[must_use]
    pub fn held(self, contract: Contract) -> ParamSpec {
        ParamSpec { contract, ..self }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.axes.iter().map(|a| a.extent).collect::<Vec<_>>().into()
    }
}

//! What the engine runs: the block of a family, as data. Loader and engine read the same declaration.

use crate::activation::Activation;
use crate::config::{Config, Field};
use crate::rope::{Rope, RopeScaling};

/// Normalisation before (and, in some families, after) attention and feed-forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `x / sqrt(mean(x²) + eps) * w`.
    Rms {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean) / sqrt(var + eps) * w + b`.
    Layer {
        /// Added to the variance.
        eps: f32,
    },
}

/// How positions enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Rotary embedding of queries and keys.
    Rotary,
    /// A learned vector a position is added to the token embedding (GPT-2).
    Learned,
}

/// The attention of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// A query sees itself and the `window - 1` positions before it; `None`: all before it.
    pub window: Option<u64>,
    /// Its rotary embedding, if positions are rotary.
    pub rope: Option<Rope>,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
}

/// A decoder, as the engine runs it. Every optional part (biases, q/k norms, post norms, a gate) is
/// present if and only if its parameter is.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// Elements of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Elements inside the feed-forward network.
    pub ffn: u64,
    /// Tokens in the vocabulary.
    pub vocab: u64,
    /// Positions that the model was trained for.
    pub context: u64,
    /// Every norm of the model.
    pub norm: Norm,
    /// How positions enter.
    pub positions: Positions,
    /// Token embeddings are multiplied by this.
    pub embedding_scale: f32,
    /// The feed-forward activation.
    pub activation: Activation,
    /// `c` in `c · tanh(logits / c)`.
    pub logit_soft_cap: Option<f32>,
    /// One for each layer.
    pub layers: Vec<Attention>,
}

/// The engine does not run a model; what it has is loaded and converted all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// What is in the way: `a mixture of experts`.
    pub why: String,
}

impl NotRun {
    pub(crate) fn new(why: impl Into<String>) -> NotRun {
        NotRun { why: why.into() }
    }
}

/// A rotary embedding, if it is one that is run.
fn checked(theta: f64, scaling: &Field<RopeScaling>, c: &Config) -> Result<Rope, NotRun> {
    let rope = Rope { theta, dims: *c.rope_dims, scaling: scaling.value.clone() };
    if rope.dims != *c.head_dim {
        let why = format!(
            "{} of {} elements of a head are rotated ({})",
            rope.dims, *c.head_dim, c.rope_dims.origin
        );
        return Err(NotRun::new(why));
    }
    if rope.is_run() {
        return Ok(rope);
    }
    let (name, origin) = (rope.scaling.name(), &scaling.origin);
    Err(NotRun::new(format!("rotary frequencies are stretched by `{name}` ({origin})")))
}

impl Attention {
    /// The attention of layer `n`, with its rotary embedding.
    pub(crate) fn of(c: &Config, n: u64, rope: Option<Rope>) -> Attention {
        let by_layer = if *c.attention_scale_by_layer { n as f64 + 1.0 } else { 1.0 };
        let window = c.is_windowed(n).then_some(*c.window);
        Attention { window, rope, scale: (*c.attention_scale / by_layer) as f32 }
    }
}

impl Architecture {
    /// As Llama: RMS norms, and rotary embeddings: one for the layers with a window, one for those without.
    pub(crate) fn rotary(c: &Config) -> Result<Architecture, NotRun> {
        let global = checked(*c.rope_theta, &c.rope_scaling, c)?;
        let local = if c.has_windows() {
            checked(*c.rope_local_theta, &c.rope_local_scaling, c)?
        } else {
            global.clone()
        };
        let rope = |n| if c.is_windowed(n) { local.clone() } else { global.clone() };
        let layer = |n| Attention::of(c, n, Some(rope(n)));
        let norm = Norm::Rms { eps: *c.norm_eps as f32 };
        Ok(Architecture::new(c, norm, (0..*c.layers).map(layer).collect()))
    }

    /// What a configuration says of itself, run as Llama does: a family replaces what it does otherwise.
    pub(crate) fn new(c: &Config, norm: Norm, layers: Vec<Attention>) -> Architecture {
        Architecture {
            hidden: *c.hidden,
            heads: *c.heads,
            kv_heads: *c.kv_heads,
            head_dim: *c.head_dim,
            ffn: *c.ffn,
            vocab: *c.vocab,
            context: *c.context,
            norm,
            positions: Positions::Rotary,
            embedding_scale: 1.0,
            activation: *c.activation,
            logit_soft_cap: None,
            layers,
        }
    }
}

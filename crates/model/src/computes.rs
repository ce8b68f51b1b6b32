//! The computations of modules, as data: an engine builds its layers from it.

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

/// Attention whose query heads share key and value heads, of one layer. Its children: `qkv`, `output`, and where queries and
/// keys are normed `q_norm` and `k_norm`: as wide as a head, for each head alone, or as wide as all heads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// A query sees itself and the `window - 1` positions before it; `None`: all before it.
    pub window: Option<u64>,
    /// Its rotary embedding, if positions are rotary.
    pub rope: Option<Rope>,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`, for scores that were multiplied by `scale`.
    pub soft_cap: Option<f32>,
}

impl Attention {
    /// The attention of layer `n`, without a rotary embedding.
    pub(crate) fn of(c: &Config, n: u64) -> Attention {
        let by_layer = if *c.attention_scale_by_layer { n as f64 + 1.0 } else { 1.0 };
        Attention {
            heads: *c.heads,
            kv_heads: *c.kv_heads,
            head_dim: *c.head_dim,
            window: c.is_windowed(n).then_some(*c.window),
            rope: None,
            scale: (*c.attention_scale / by_layer) as f32,
            soft_cap: (*c.score_soft_cap > 0.0).then_some(*c.score_soft_cap as f32),
        }
    }

    /// The same with the rotary embedding of layer `n`: layers with a window may have another than those without.
    pub(crate) fn rotary(self, c: &Config, n: u64) -> Result<Attention, NotRun> {
        let global = Rope::checked(*c.rope_theta, &c.rope_scaling, c)?;
        let rope = if c.is_windowed(n) {
            Rope::checked(*c.rope_local_theta, &c.rope_local_scaling, c)?
        } else {
            global
        };
        Ok(Attention { rope: Some(rope), ..self })
    }
}

/// A feed-forward network: `down(act(up(x)))`, or with a gate `down(act(gate(x)) · up(x))`. Its children: `up` or `gate_up`, and
/// `down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedForward {
    /// Applied to the gate, or to up where there is no gate.
    pub activation: Activation,
    /// Whether there is a gate.
    pub gated: bool,
}

/// One step of the residual stream: `x += scale · post_norm(layer(norm(x)))`, by the names of children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branch {
    /// Before the layer.
    pub norm: Option<&'static str>,
    /// Attention, or a feed-forward network.
    pub layer: &'static str,
    /// After the layer.
    pub post_norm: Option<&'static str>,
    /// The result is multiplied by this before it is added.
    pub scale: f32,
    /// It sees the residual stream as the branch before it does, in the same layer: what both give is added after the last of
    /// such branches.
    pub parallel: bool,
}

/// Tokens to logits. Its children: `token_embedding`; `position_embedding` if it learns positions, whose rows are added;
/// `layers.0`, `layers.1`, …; `output_norm`, `output`, and perhaps `rope_factors`, which divide rotary frequencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// Tokens in the vocabulary.
    pub vocab: u64,
    /// Elements of the residual stream.
    pub hidden: u64,
    /// Positions that the model was trained for.
    pub context: u64,
    /// The number of layers.
    pub layers: u64,
    /// Logits are divided by this.
    pub logit_divisor: Option<f32>,
    /// `c` in `c · tanh(logits / c)`, for logits that were divided.
    pub logit_soft_cap: Option<f32>,
}

/// The computation of a module with its children and parameters, which it finds at paths below its own.
///
/// It is a module that owns nothing: a field of this type, with `#[module(flatten)]`, says it of the module around it.
#[derive(Clone, Debug, PartialEq)]
pub enum Computes {
    /// A whole model.
    Decoder(Decoder),
    /// The steps of one layer of a decoder, in order.
    Residual(Vec<Branch>),
    /// A norm.
    Norm(Norm),
    /// Rows that are looked up: `weight[i] · scale`.
    Embedding {
        /// Rows are multiplied by this.
        scale: f32,
    },
    /// Attention.
    Attention(Attention),
    /// A feed-forward network.
    FeedForward(FeedForward),
}

/// The engine does not run a model; its weights can still be loaded and converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// The obstacle: `a mixture of experts`.
    pub why: String,
}

impl NotRun {
    /// The reason, as a message has it after "not run: ".
    pub fn new(why: impl Into<String>) -> NotRun {
        NotRun { why: why.into() }
    }
}

impl Rope {
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
}

//! The computations of modules, as data: an engine builds its layers from it.

use crate::activation::Activation;
use crate::config::Config;
use crate::rope::Rope;

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
/// keys are normed `q_norm` and `k_norm`: as wide as a head, for each head alone, or as wide as all heads together; perhaps
/// `sinks`, whose `weight` is a score for each query head that goes to no position.
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
    /// A query sees every position of its sequence, those after it too. There is no window then.
    pub bidirectional: bool,
    /// Its rotary embedding, if positions are rotary: of the first elements of each head, if not of all.
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
            bidirectional: false,
            rope: None,
            scale: (*c.attention_scale / by_layer) as f32,
            soft_cap: (*c.score_soft_cap > 0.0).then_some(*c.score_soft_cap as f32),
        }
    }

    /// The same with the rotary embedding of layer `n`.
    pub(crate) fn rotary(self, c: &Config, n: u64) -> Attention {
        Attention { rope: Some(Rope::of(c, n)), ..self }
    }
}

/// Low-rank attention (MLA) of one layer: keys and values of all heads are made of one latent vector for each position, and queries
/// of one too, if they are low-rank. Its children: `qkv_a`, whose parts are `q_a` and `kv_a`, with `q_a_norm` and `q_b`; or `q` and
/// `kv_a`, if queries are made at once; `kv_a_norm`; `k_b`, `[heads, latent, nope]`, and `v_b`, `[heads, value, latent]`; `output`.
/// `kv_a` gives a latent vector and the part of a key that is rotated; a query head has the part that is not rotated first.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentAttention {
    /// Heads.
    pub heads: u64,
    /// Elements of the latent vector of keys and values.
    pub latent: u64,
    /// Elements of the latent vector of queries, if they have one.
    pub q_latent: Option<u64>,
    /// Elements of a query and a key that are not rotated.
    pub nope: u64,
    /// Elements of a value.
    pub value: u64,
    /// The rotary embedding, of pairs that lie side by side.
    pub rope: Rope,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
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

/// A mixture of experts: gated feed-forward networks, of which a token is sent to some. Its children: `router`, whose results are
/// a score for each expert; `experts`, whose parameters `gate`, `up` and `down` are stacks of matrices, one for each expert;
/// perhaps `shared`, a feed-forward network that every token is sent to.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// Experts.
    pub experts: u64,
    /// Elements inside an expert.
    pub ffn: u64,
    /// Applied to the gates of experts.
    pub activation: Activation,
    /// Which experts a token is sent to.
    pub routing: Routing,
}

/// Which experts a token is sent to, and what their results are multiplied with before they are summed. A router may have a
/// child `correction`, whose `bias` is added to the scores where experts are chosen, and not where they are weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts that a token is sent to: those of the highest scores.
    pub used: u64,
    /// What is made of the router's results.
    pub scores: Scores,
    /// The groups that experts are chosen in, if they are not chosen among all.
    pub groups: Option<Groups>,
    /// Whether the scores of the chosen are divided by their sum.
    pub normed: bool,
    /// The factor of the chosen experts' scores.
    pub scale: f32,
}

/// What the scores of experts are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Over all experts.
    Softmax,
    /// Of each expert alone.
    Sigmoid,
}

/// Groups of experts that follow each other. Only those of the best groups are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups; divides the number of experts.
    pub all: u64,
    /// Groups that a token is sent to.
    pub used: u64,
    /// How many of its best experts' scores, summed, say how good a group is.
    pub best: u64,
}

/// One step of the residual stream: `x = sum_norm(x + scale · post_norm(layer(norm(x))))`, by the names of children.
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
    /// Of the residual stream, after the result was added.
    pub sum_norm: Option<&'static str>,
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

/// Tokens to vectors: every token sees the whole sequence. Its children: `token_embedding`; `position_embedding` and
/// `token_type_embedding` (of which the first row counts), if it has them, whose rows are added; `embedding_norm`, if the sum is
/// normed; `layers.0`, `layers.1`, …. The vectors are what the last layer leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// Tokens in the vocabulary.
    pub vocab: u64,
    /// Elements of the residual stream.
    pub hidden: u64,
    /// Tokens of a sequence at most.
    pub context: u64,
    /// The number of layers.
    pub layers: u64,
}

/// The computation of a module with its children and parameters, which it finds at paths below its own.
///
/// It is a module that owns nothing: a field of this type, with `#[module(flatten)]`, says it of the module around it.
#[derive(Clone, Debug, PartialEq)]
pub enum Computes {
    /// A whole model that gives logits.
    Decoder(Decoder),
    /// A whole model that gives vectors.
    Encoder(Encoder),
    /// The steps of one layer, in order.
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
    /// Low-rank attention.
    LatentAttention(LatentAttention),
    /// A feed-forward network.
    FeedForward(FeedForward),
    /// A mixture of experts.
    Mixture(Mixture),
}

/// The engine does not run a model; its weights can still be loaded and converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// The obstacle: `its attention is low-rank`.
    pub why: String,
}

impl NotRun {
    /// The reason, as a message has it after "not run: ".
    pub fn new(why: impl Into<String>) -> NotRun {
        NotRun { why: why.into() }
    }
}

impl Rope {
    /// The rotary embedding of layer `n`: layers with a window may have another than those without.
    pub(crate) fn of(c: &Config, n: u64) -> Rope {
        let (theta, scaling) = if c.is_windowed(n) {
            (*c.rope_local_theta, &c.rope_local_scaling)
        } else {
            (*c.rope_theta, &c.rope_scaling)
        };
        Rope { theta, dims: *c.rope_dims, context: *c.context, scaling: scaling.value.clone() }
    }
}

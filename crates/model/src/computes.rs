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
    /// `(x - mean) / sqrt(var + eps) * w + b`, where it has a bias `b`.
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
    /// A query sees the positions of its sequence that are after it, too: as many as before it.
    pub bidirectional: bool,
    /// Scores have an addend by the distance of query and key, of a table of the whole model.
    pub relative: Option<Relative>,
    /// Its rotary embedding, if positions are rotary: of the first elements of each head, if not of all.
    pub rope: Option<Rope>,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`, for scores that were multiplied by `scale`.
    pub soft_cap: Option<f32>,
    /// `qkv` has a gate as its fourth part, as wide as the queries. Its sigmoid multiplies the output of the heads.
    pub gated: bool,
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
            relative: None,
            rope: None,
            scale: (*c.attention_scale / by_layer) as f32,
            soft_cap: (*c.score_soft_cap > 0.0).then_some(*c.score_soft_cap as f32),
            gated: false,
        }
    }

    /// The same with the rotary embedding of layer `n`.
    pub(crate) fn rotary(self, c: &Config, n: u64) -> Attention {
        Attention { rope: Some(Rope::of(c, n)), ..self }
    }
}

/// Addends of scores by distance, as T5 has them for both directions: near keys have one for each distance, farther ones share one
/// by the logarithm of the distance. The table is [`Relative::TABLE`], `[buckets, heads]` at least.
///
/// Source: transformers `MPNetEncoder.relative_position_bucket`, modeling_mpnet.py@v5.23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Kinds of distances: half of them for keys that are before their query, or at it.
    pub buckets: u64,
    /// Keys that are as far as this, or farther, have the addend of the farthest.
    pub farthest: u64,
}

impl Relative {
    /// The parameter that holds the addends.
    pub const TABLE: &'static str = "relative_bias.weight";

    /// The row of the table for a key that is `distance` positions after its query.
    pub fn bucket(self, distance: i64) -> u64 {
        let (half, far) = (self.buckets / 2, distance.unsigned_abs());
        let first = if distance > 0 { half } else { 0 };
        let exact = half / 2;
        if far < exact {
            return first + far;
        }
        // In f32, and in this order, as the reference has it.
        let steps = (far as f32 / exact as f32).ln() / (self.farthest as f64 / exact as f64).ln() as f32
            * (half - exact) as f32;
        first + exact.saturating_add(u64::try_from(steps as i64).unwrap_or(0)).min(half - 1)
    }
}

/// Attention to the vectors that an audio encoder gives, whose keys and values are made once. Its children: `q`, `kv`, `output`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossAttention {
    /// Heads, of queries as of keys and values.
    pub heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
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

/// Linear attention by the gated delta rule (Gated DeltaNet) of one layer. What it keeps of the positions before is no list of keys and
/// values: it is one matrix for each value head, `S`, `[key, value]`, and the last rows before the convolution.
///
/// Its children: `in`, whose parts are `q_in`, `k_in`, `v_in`, `z_in`, `b_in` and `a_in`; `q_conv`, `k_conv` and `v_conv`, whose `weight`
/// `[channels, kernel]` weighs each channel's last rows, the newest last; `decay`, whose `weight` is `[value_heads]`; `norm`, of a value;
/// `out`. With `q`, `k` and `v` convolved and activated, and `q` and `k` of length 1 in each head, a value head does for each
/// position
///
/// ```text
/// S = exp(decay · softplus(a)) · S
/// S = S + k ⊗ sigmoid(b) · (v - kᵀS)
/// out = norm(qᵀS / √key) · silu(z)
/// ```
///
/// Value heads that follow each other share a key head.
///
/// Source: transformers `Qwen3_5GatedDeltaNet` and `torch_recurrent_gated_delta_rule`, modeling_qwen3_5.py@v5.23.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedDelta {
    /// Heads of queries and of keys.
    pub key_heads: u64,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: u64,
    /// Elements of a query and of a key.
    pub key: u64,
    /// Elements of a value.
    pub value: u64,
    /// Rows that the convolution sees: a position's own, and those before it.
    pub kernel: u64,
    /// Applied to the output of the convolution.
    pub activation: Activation,
    /// Added to the squares of a query or a key before it is made of length 1.
    pub unit_eps: f32,
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

/// A log-mel spectrogram to vectors, which the [cross-attention](CrossAttention) of a decoder looks at. Its children: `conv1` and
/// `conv2`, convolutions over three frames with GELU after each, of which the second takes every other frame; `position_embedding`,
/// whose rows are added; `layers.0`, `layers.1`, …; `output_norm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioEncoder {
    /// Mel bands of a frame.
    pub mels: u64,
    /// Vectors of a window: half as many as it has frames.
    pub context: u64,
    /// The number of layers.
    pub layers: u64,
}

/// Tokens to vectors: every token sees the whole sequence. Its children: `token_embedding`; `position_embedding` and
/// `token_type_embedding` (of which the first row counts), if it has them, whose rows are added; `embedding_norm`, if the sum is
/// normed; `layers.0`, `layers.1`, …; `output_norm`, if what the last layer leaves is normed; `relative_bias`, if layers add by distance.
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
    /// This token takes no position: its row of `position_embedding` is that of its own number, and rows of other tokens count
    /// from the one after that. `None`: every token takes one, from 0 on.
    pub padding: Option<u64>,
}

/// Scores of a text, of the vectors of its tokens: `output(norm(act(dense(x))))`. Its children: `dense`; `norm`, if there is one;
/// `output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// How many scores.
    pub labels: u64,
    /// `x` is the mean of all vectors, not the first.
    pub mean: bool,
    /// Applied to what `dense` gives; `None`: tanh.
    pub activation: Option<Activation>,
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
    /// A part of a decoder that gives vectors of sound.
    AudioEncoder(AudioEncoder),
    /// A convolution over three frames: `weight` `[out, in, 3]`, `bias` `[out]`.
    Convolution,
    /// Attention to what an audio encoder gives.
    CrossAttention(CrossAttention),
    /// Low-rank attention.
    LatentAttention(LatentAttention),
    /// Linear attention by the gated delta rule.
    GatedDelta(GatedDelta),
    /// A feed-forward network.
    FeedForward(FeedForward),
    /// A mixture of experts.
    Mixture(Mixture),
    /// Scores of a text.
    Score(Score),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The first distance of each row, by `MPNetEncoder.relative_position_bucket` of transformers 5.23.
    #[test]
    fn distances_share_addends_as_in_the_reference() {
        let relative = Relative { buckets: 32, farthest: 128 };
        let firsts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91, 200];
        for (bucket, range) in (0u64..).zip(firsts.windows(2)) {
            for far in range[0]..range[1] {
                assert_eq!(relative.bucket(-far), bucket, "{far} before");
                if far > 0 {
                    assert_eq!(relative.bucket(far), 16 + bucket, "{far} after");
                }
            }
        }
    }
}

//! The modules that families are built from: a decoder or an encoder, its blocks and their parts, by canonical names. A program's own
//! family uses them as those of this crate do.

mod delta;
mod encoder;

use std::fmt;

use derive::Module;

use crate::module::{
    self, Branch, Computes, Embedding, FeedForward, FusedMoe, FusedPart, LayerNorm, Layers, Linear,
    MergedColumnParallelLinear, Mixture, Module, NotRun, ParallelLmHead, QkvParallelLinear, Relative,
    RmsNorm, RowParallelLinear, Table, Tree, VocabParallelEmbedding,
};
use crate::param::{Along, Axis};
use crate::{Activation, Config, Moe};

pub use delta::GatedDelta;
pub use encoder::{Encoder, EncoderBlock, ScoreHead};

/// A decoder: tokens to logits.
#[derive(Debug, Module)]
pub struct Decoder {
    #[module(flatten)]
    computes: Computes,
    /// `[vocab, hidden]`.
    pub token_embedding: VocabParallelEmbedding,
    /// `[context, hidden]`, if positions are learned.
    pub position_embedding: Option<Embedding>,
    /// The layers.
    pub layers: Layers<Block>,
    /// After the last layer.
    pub output_norm: Norm,
    /// `[vocab, hidden]`.
    pub output: ParallelLmHead,
    /// `[head_dim / 2]`: they divide rotary frequencies.
    pub rope_factors: Option<Table>,
}

impl Decoder {
    /// As Llama has it: `block` gives each layer, by its number from 0, and `norm` the last norm. The output matrix is tied to
    /// the token embedding as [`Config::tied`] says.
    pub fn new(c: &Config, norm: fn(&Config) -> Norm, block: impl Fn(u64) -> Block) -> Decoder {
        let hidden = Axis::Hidden.of(*c.hidden);
        let output = ParallelLmHead::new(hidden, *c.vocab);
        let computes = module::Decoder {
            vocab: *c.vocab,
            hidden: *c.hidden,
            context: *c.context,
            layers: *c.layers,
            logit_divisor: Some(*c.logit_divisor as f32).filter(|by| (by - 1.0).abs() > 0.0),
            logit_soft_cap: (*c.logit_soft_cap > 0.0).then_some(*c.logit_soft_cap as f32),
        };
        Decoder {
            computes: Computes::Decoder(computes),
            token_embedding: VocabParallelEmbedding::new(*c.vocab, hidden).scaled(*c.embedding_scale as f32),
            position_embedding: None,
            layers: Layers((0..*c.layers).map(block).collect()),
            output_norm: norm(c),
            // Tied, it is the token embedding, which a file may or may not repeat.
            output: match *c.tied {
                Some(false) => output,
                Some(true) | None => output.tied_to("token_embedding.weight"),
            },
            rope_factors: None,
        }
    }

    /// The same with token embeddings that are multiplied by `scale`.
    #[must_use]
    pub fn with_scaled_embedding(self, scale: f32) -> Decoder {
        Decoder { token_embedding: self.token_embedding.scaled(scale), ..self }
    }

    /// The same with learned positions.
    #[must_use]
    pub fn with_positions(self, c: &Config) -> Decoder {
        let table = Embedding::new(Axis::Position.of(*c.context), Axis::Hidden.of(*c.hidden));
        Decoder { position_embedding: Some(table), ..self }
    }

    /// The same with the factors of rotary frequencies that GGUF may have.
    #[must_use]
    pub fn with_rope_factors(self, c: &Config) -> Decoder {
        Decoder { rope_factors: Some(Table::new(Axis::HeadDim.of(*c.head_dim / 2)).optional()), ..self }
    }
}

/// One layer: attention, then a feed-forward network.
#[derive(Module)]
pub struct Block {
    #[module(flatten)]
    computes: Computes,
    /// Before attention.
    pub attention_norm: Option<Norm>,
    /// [`Attention`], or a module of your own.
    pub attention: Box<dyn Module>,
    /// After attention.
    pub attention_post_norm: Option<Norm>,
    /// Before the feed-forward network.
    pub ffn_norm: Option<Norm>,
    /// [`GatedFfn`], [`Ffn`], [`MoeFfn`], or a module of your own.
    pub ffn: Box<dyn Module>,
    /// After the feed-forward network.
    pub ffn_post_norm: Option<Norm>,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("attention", &self.attention.kind())
            .field("ffn", &self.ffn.kind())
            .finish_non_exhaustive()
    }
}

impl Block {
    /// With norms before attention and before the feed-forward network.
    pub fn new(
        c: &Config,
        norm: fn(&Config) -> Norm,
        attention: impl Module + 'static,
        ffn: impl Module + 'static,
    ) -> Block {
        Block {
            computes: residual(c, true, false),
            attention_norm: Some(norm(c)),
            attention: Box::new(attention),
            attention_post_norm: None,
            ffn_norm: Some(norm(c)),
            ffn: Box::new(ffn),
            ffn_post_norm: None,
        }
    }

    /// The same with norms after both, too.
    #[must_use]
    pub fn with_post_norms(self, c: &Config, norm: fn(&Config) -> Norm) -> Block {
        Block {
            computes: residual(c, true, true),
            attention_post_norm: Some(norm(c)),
            ffn_post_norm: Some(norm(c)),
            ..self
        }
    }

    /// The same without a norm before attention.
    #[must_use]
    pub fn without_attention_norm(self) -> Block {
        let computes = match self.computes {
            Computes::Residual(branches) => {
                let first = |branch: Branch| match branch.layer {
                    "attention" => Branch { norm: None, ..branch },
                    _ => branch,
                };
                Computes::Residual(branches.into_iter().map(first).collect())
            }
            other => other,
        };
        Block { computes, attention_norm: None, ..self }
    }

    /// The same with norms after both, and none before them.
    #[must_use]
    pub fn with_post_norms_alone(self, c: &Config, norm: fn(&Config) -> Norm) -> Block {
        let computes = residual(c, false, true);
        Block { computes, attention_norm: None, ffn_norm: None, ..self.with_post_norms(c, norm) }
    }

    /// The same with a feed-forward network beside attention, after the same norm.
    #[must_use]
    pub fn in_parallel(self, c: &Config) -> Block {
        let scale = *c.residual_scale as f32;
        let branch = |layer, parallel| Branch {
            norm: Some("attention_norm"),
            layer,
            post_norm: None,
            scale,
            sum_norm: None,
            parallel,
        };
        let computes = Computes::Residual(vec![branch("attention", false), branch("ffn", true)]);
        Block { computes, ffn_norm: None, ..self }
    }
}

/// Attention and a feed-forward network one after the other, each with a norm before it, after it, or both.
fn residual(c: &Config, before: bool, after: bool) -> Computes {
    let scale = *c.residual_scale as f32;
    let branch = |norm, layer, post_norm| Branch {
        norm: before.then_some(norm),
        layer,
        post_norm: after.then_some(post_norm),
        scale,
        sum_norm: None,
        parallel: false,
    };
    Computes::Residual(vec![
        branch("attention_norm", "attention", "attention_post_norm"),
        branch("ffn_norm", "ffn", "ffn_post_norm"),
    ])
}

/// A norm of the residual stream.
#[derive(Clone, Debug)]
pub enum Norm {
    /// Without a bias.
    Rms(RmsNorm),
    /// With a bias.
    Layer(LayerNorm),
}

impl Norm {
    /// [`Norm::Rms`], by the numbers of `c`.
    pub fn rms(c: &Config) -> Norm {
        Norm::Rms(RmsNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32))
    }

    /// [`Norm::Layer`], by the numbers of `c`.
    pub fn layer(c: &Config) -> Norm {
        Norm::Layer(LayerNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32))
    }
}

impl Module for Norm {
    fn declare(&self, tree: &mut Tree) {
        match self {
            Norm::Rms(norm) => norm.declare(tree),
            Norm::Layer(norm) => norm.declare(tree),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Norm::Rms(_) => "RmsNorm",
            Norm::Layer(_) => "LayerNorm",
        }
    }
}

/// Whether the linear layers of a part have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// None has.
    No,
    /// They have where a checkpoint has them.
    Optional,
    /// Each has.
    Yes,
}

/// As a configuration says it ([`Config::attention_bias`]): `None` is as the file has them.
impl From<Option<bool>> for Bias {
    fn from(said: Option<bool>) -> Bias {
        match said {
            None => Bias::Optional,
            Some(true) => Bias::Yes,
            Some(false) => Bias::No,
        }
    }
}

macro_rules! with {
    ($layer:expr, $bias:expr) => {
        match $bias {
            Bias::No => $layer,
            Bias::Optional => $layer.with_optional_bias(),
            Bias::Yes => $layer.with_bias(),
        }
    };
}

/// Attention of query heads that share key and value heads.
#[derive(Debug, Module)]
pub struct Attention {
    #[module(flatten)]
    computes: Result<Computes, NotRun>,
    qkv: QkvParallelLinear,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    sinks: Option<Table>,
    output: RowParallelLinear,
}

impl Attention {
    /// Creates the attention of layer `n`, counted from 0: `qkv` are the biases of queries, keys and values, `output`
    /// that of the output matrix. Positions are not rotated.
    pub fn new(c: &Config, n: u64, qkv: Bias, output: Bias) -> Attention {
        let hidden = Axis::Hidden.of(*c.hidden);
        let heads = Axis::Heads.of_units(*c.heads, *c.head_dim);
        Attention {
            computes: Ok(Computes::Attention(module::Attention::of(c, n))),
            qkv: with!(
                QkvParallelLinear::new(hidden, *c.heads, *c.kv_heads, *c.head_dim).named(["q", "k", "v"]),
                qkv
            ),
            q_norm: None,
            k_norm: None,
            sinks: None,
            output: with!(RowParallelLinear::new(heads, hidden), output),
        }
    }

    /// The same with the rotary embedding of layer `n`, of whole heads.
    #[must_use]
    pub fn rotary(self, c: &Config, n: u64) -> Attention {
        if *c.rope_dims == *c.head_dim {
            return self.partly_rotary(c, n);
        }
        // Rows of q and k that files have in another order would be paired otherwise.
        let (dims, head_dim, origin) = (*c.rope_dims, *c.head_dim, &c.rope_dims.origin);
        let why = format!("{dims} of {head_dim} elements of a head are rotated ({origin})");
        Attention { computes: Err(NotRun::new(why)), ..self }
    }

    /// The same with the rotary embedding of layer `n`, of the first elements of each head, which are paired in halves.
    #[must_use]
    pub fn partly_rotary(self, c: &Config, n: u64) -> Attention {
        let attention = module::Attention::of(c, n).rotary(c, n);
        Attention { computes: Ok(Computes::Attention(attention)), ..self }
    }

    /// The same where each position sees its sequence in both directions, in a window as far in each.
    #[must_use]
    pub fn bidirectional(self) -> Attention {
        let both_ways = |computes| match computes {
            Computes::Attention(a) => Computes::Attention(module::Attention { bidirectional: true, ..a }),
            other => other,
        };
        Attention { computes: self.computes.map(both_ways), ..self }
    }

    /// The same with addends of scores by distance.
    #[must_use]
    pub fn with_relative_bias(self, relative: Relative) -> Attention {
        let biased = |computes| match computes {
            Computes::Attention(a) => {
                Computes::Attention(module::Attention { relative: Some(relative), ..a })
            }
            other => other,
        };
        Attention { computes: self.computes.map(biased), ..self }
    }

    /// The same with norms of each head's query and key.
    #[must_use]
    pub fn with_head_norms(self, c: &Config) -> Attention {
        let norm = || Some(RmsNorm::new(Axis::HeadDim.of(*c.head_dim)).with_eps(*c.norm_eps as f32));
        Attention { q_norm: norm(), k_norm: norm(), ..self }
    }

    /// The same with a norm of all queries of a token together, and one of all its keys. Every rank has them whole.
    #[must_use]
    pub fn with_joint_norms(self, c: &Config) -> Attention {
        let norm = |heads: u64| Some(RmsNorm::new(heads * *c.head_dim).with_eps(*c.norm_eps as f32));
        Attention { q_norm: norm(*c.heads), k_norm: norm(*c.kv_heads), ..self }
    }

    /// The same with a gate, whose sigmoid multiplies the output of the heads.
    #[must_use]
    pub fn gated(self, c: &Config) -> Attention {
        let gated = |computes| match computes {
            Computes::Attention(a) => Computes::Attention(module::Attention { gated: true, ..a }),
            other => other,
        };
        Attention {
            computes: self.computes.map(gated),
            qkv: self.qkv.with_gate("gate", *c.heads, *c.head_dim),
            ..self
        }
    }

    /// The same with keys that have no bias.
    #[must_use]
    pub fn without_key_bias(self) -> Attention {
        Attention { qkv: self.qkv.without_key_bias(), ..self }
    }

    /// The same with a score for each head that goes to no position.
    #[must_use]
    pub fn with_sinks(self, c: &Config) -> Attention {
        Attention { sinks: Some(Table::new(Axis::Heads.of(*c.heads))), ..self }
    }
}

/// A gated feed-forward network: `down(act(gate(x)) · up(x))`.
#[derive(Debug, Module)]
pub struct GatedFfn {
    #[module(flatten)]
    computes: Computes,
    gate_up: MergedColumnParallelLinear,
    down: RowParallelLinear,
}

impl GatedFfn {
    /// `ffn` elements wide inside.
    pub fn new(c: &Config, ffn: u64, bias: Bias) -> GatedFfn {
        let (hidden, ffn) = (Axis::Hidden.of(*c.hidden), Axis::Ffn.of(ffn));
        let parts = [FusedPart::new("gate", ffn), FusedPart::new("up", ffn)];
        GatedFfn {
            computes: Computes::FeedForward(FeedForward { activation: *c.activation, gated: true }),
            gate_up: with!(MergedColumnParallelLinear::new(hidden, parts), bias),
            down: with!(RowParallelLinear::new(ffn, hidden), bias),
        }
    }
}

/// A feed-forward network without a gate: `down(act(up(x)))`.
#[derive(Debug, Module)]
pub struct Ffn {
    #[module(flatten)]
    computes: Computes,
    up: crate::module::ColumnParallelLinear,
    down: RowParallelLinear,
}

impl Ffn {
    /// As wide inside as [`Config::ffn`] says.
    pub fn new(c: &Config, bias: Bias) -> Ffn {
        let (hidden, ffn): (Along, Along) = (Axis::Hidden.of(*c.hidden), Axis::Ffn.of(*c.ffn));
        Ffn {
            computes: Computes::FeedForward(FeedForward { activation: *c.activation, gated: false }),
            up: with!(crate::module::ColumnParallelLinear::new(hidden, ffn), bias),
            down: with!(RowParallelLinear::new(ffn, hidden), bias),
        }
    }
}

/// A mixture of experts: a router, experts in a stack, and perhaps a network that every token is sent to.
#[derive(Debug, Module)]
pub struct MoeFfn {
    #[module(flatten)]
    computes: Computes,
    router: Router,
    experts: FusedMoe,
    shared: Option<GatedFfn>,
}

impl MoeFfn {
    /// Creates the experts from the numbers in `moe`.
    pub fn new(c: &Config, moe: &Moe) -> MoeFfn {
        let hidden = Axis::Hidden.of(*c.hidden);
        let experts = FusedMoe::new(*moe.experts, hidden, *moe.ffn).named(["gate", "down", "up"]);
        let router = Router { scores: Linear::new(hidden, *moe.experts), correction: None };
        let shared = (*moe.shared > 0).then(|| GatedFfn::new(c, *moe.shared * *moe.ffn, Bias::No));
        let mixture = Mixture {
            experts: *moe.experts,
            ffn: *moe.ffn,
            activation: *c.activation,
            routing: moe.routing(),
        };
        MoeFfn { computes: Computes::Mixture(mixture), router, experts, shared }
    }

    /// The same with experts that have this activation.
    #[must_use]
    pub fn activated(self, activation: Activation) -> MoeFfn {
        let computes = match self.computes {
            Computes::Mixture(mixture) => Computes::Mixture(Mixture { activation, ..mixture }),
            other => other,
        };
        MoeFfn { computes, ..self }
    }

    /// The same with biases of the router and of the experts.
    #[must_use]
    pub fn with_biases(self) -> MoeFfn {
        let router = Router { scores: self.router.scores.with_bias(), ..self.router };
        MoeFfn { router, experts: self.experts.with_bias(), ..self }
    }

    /// The same with what is added to the scores where experts are chosen, and not where they are weighed.
    #[must_use]
    pub fn with_correction(self, moe: &Moe, required: bool) -> MoeFfn {
        let bias = Table::new(*moe.experts).named("bias");
        let correction = Some(if required { bias } else { bias.optional() });
        MoeFfn { router: Router { correction, ..self.router }, ..self }
    }
}

#[derive(Debug, Module)]
struct Router {
    #[module(flatten)]
    scores: Linear,
    correction: Option<Table>,
}

//! The modules that families put together: a decoder, its blocks and their parts, by canonical names.

use derive::Module;

use crate::config::verdict::Needless;
use crate::module::{
    self, Branch, Computes, Embedding, FeedForward, FusedMoe, LayerNorm, Layers, Linear,
    MergedColumnParallelLinear, Module, NotRun, ParallelLmHead, Part, QkvParallelLinear, RmsNorm,
    RowParallelLinear, Table, Tree, VocabParallelEmbedding,
};
use crate::param::{Along, Axis};
use crate::{Config, Moe};

/// Keys of GGUF that every decoder's file may have and that say what something else says.
pub(super) static GGUF_NEEDLESS: &Needless = &[
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.attention.key_length", "the shapes say it"),
    ("*.vocab_size", "the tokens say it"),
    ("*.rope.dimension_count", "positions are learned"),
    ("*.rope.scaling.finetuned", "llama.cpp computes nothing from it"),
    ("*.attention.causal", "a decoder"),
];

/// A decoder.
#[derive(Module)]
pub(super) struct Decoder {
    #[module(flatten)]
    computes: Computes,
    pub(super) token_embedding: VocabParallelEmbedding,
    pub(super) position_embedding: Option<Embedding>,
    pub(super) layers: Layers<Block>,
    pub(super) output_norm: Norm,
    pub(super) output: ParallelLmHead,
    pub(super) rope_factors: Option<Table>,
}

impl Decoder {
    /// As Llama has it: `block` gives each layer, `norm` the last norm.
    pub(super) fn new(c: &Config, norm: fn(&Config) -> Norm, block: impl Fn(u64) -> Block) -> Decoder {
        let hidden = Axis::Hidden.of(*c.hidden);
        let output = ParallelLmHead::new(hidden, *c.vocab);
        let computes = module::Decoder {
            vocab: *c.vocab,
            hidden: *c.hidden,
            context: *c.context,
            layers: *c.layers,
            logit_soft_cap: (*c.logit_soft_cap > 0.0).then_some(*c.logit_soft_cap as f32),
        };
        Decoder {
            computes: Computes::Decoder(computes),
            token_embedding: VocabParallelEmbedding::new(*c.vocab, hidden),
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

    /// With token embeddings that are multiplied by `scale`.
    pub(super) fn with_scaled_embedding(self, scale: f32) -> Decoder {
        Decoder { token_embedding: self.token_embedding.scaled(scale), ..self }
    }

    /// With learned positions.
    pub(super) fn with_positions(self, c: &Config) -> Decoder {
        let table = Embedding::new(Axis::Position.of(*c.context), Axis::Hidden.of(*c.hidden));
        Decoder { position_embedding: Some(table), ..self }
    }

    /// With the factors of rotary frequencies that GGUF may have.
    pub(super) fn with_rope_factors(self, c: &Config) -> Decoder {
        Decoder { rope_factors: Some(Table::new(Axis::HeadDim.of(*c.head_dim / 2)).optional()), ..self }
    }
}

/// One layer.
#[derive(Module)]
pub(super) struct Block {
    #[module(flatten)]
    computes: Computes,
    pub(super) attention_norm: Norm,
    pub(super) attention: Box<dyn Module>,
    pub(super) attention_post_norm: Option<Norm>,
    pub(super) ffn_norm: Norm,
    pub(super) ffn: Box<dyn Module>,
    pub(super) ffn_post_norm: Option<Norm>,
}

impl Block {
    /// Norms before attention and before the feed-forward network.
    pub(super) fn new(
        c: &Config,
        norm: fn(&Config) -> Norm,
        attention: impl Module + 'static,
        ffn: impl Module + 'static,
    ) -> Block {
        Block {
            computes: Computes::Residual(vec![
                Branch { norm: "attention_norm", layer: "attention", post_norm: None },
                Branch { norm: "ffn_norm", layer: "ffn", post_norm: None },
            ]),
            attention_norm: norm(c),
            attention: Box::new(attention),
            attention_post_norm: None,
            ffn_norm: norm(c),
            ffn: Box::new(ffn),
            ffn_post_norm: None,
        }
    }

    /// With norms after both, too.
    pub(super) fn with_post_norms(self, c: &Config, norm: fn(&Config) -> Norm) -> Block {
        let (attention, ffn) = ("attention_post_norm", "ffn_post_norm");
        Block {
            computes: Computes::Residual(vec![
                Branch { norm: "attention_norm", layer: "attention", post_norm: Some(attention) },
                Branch { norm: "ffn_norm", layer: "ffn", post_norm: Some(ffn) },
            ]),
            attention_post_norm: Some(norm(c)),
            ffn_post_norm: Some(norm(c)),
            ..self
        }
    }
}

/// The norm of the residual stream.
pub(super) enum Norm {
    Rms(RmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    pub(super) fn rms(c: &Config) -> Norm {
        Norm::Rms(RmsNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32))
    }

    pub(super) fn layer(c: &Config) -> Norm {
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
pub(super) enum Bias {
    No,
    Optional,
    Yes,
}

/// As a configuration says it: `None`, as the file has them.
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

/// Attention with grouped queries.
#[derive(Module)]
pub(super) struct Attention {
    #[module(flatten)]
    computes: Result<Computes, NotRun>,
    qkv: QkvParallelLinear,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    sinks: Option<Table>,
    output: RowParallelLinear,
}

impl Attention {
    /// Of layer `n`, with biases of queries, keys and values, and of the output.
    pub(super) fn new(c: &Config, n: u64, qkv: Bias, output: Bias) -> Attention {
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

    /// With the rotary embedding of layer `n`.
    pub(super) fn rotary(self, c: &Config, n: u64) -> Attention {
        let computes = module::Attention::of(c, n).rotary(c, n).map(Computes::Attention);
        Attention { computes, ..self }
    }

    /// With norms of each head's query and key.
    pub(super) fn with_head_norms(self, c: &Config) -> Attention {
        let norm = || Some(RmsNorm::new(Axis::HeadDim.of(*c.head_dim)).with_eps(*c.norm_eps as f32));
        Attention { q_norm: norm(), k_norm: norm(), ..self }
    }

    /// With keys that have no bias.
    pub(super) fn without_key_bias(self) -> Attention {
        Attention { qkv: self.qkv.without_key_bias(), ..self }
    }

    /// With a score for each head that goes to no position.
    pub(super) fn with_sinks(self, c: &Config) -> Attention {
        let computes = Err(NotRun::new("its attention has sinks"));
        Attention { computes, sinks: Some(Table::new(Axis::Heads.of(*c.heads))), ..self }
    }
}

/// A gated feed-forward network: `down(act(gate(x)) · up(x))`.
#[derive(Module)]
pub(super) struct GatedFfn {
    #[module(flatten)]
    computes: Computes,
    gate_up: MergedColumnParallelLinear,
    down: RowParallelLinear,
}

impl GatedFfn {
    pub(super) fn new(c: &Config, ffn: u64, bias: Bias) -> GatedFfn {
        let (hidden, ffn) = (Axis::Hidden.of(*c.hidden), Axis::Ffn.of(ffn));
        let parts = [Part::new("gate", ffn), Part::new("up", ffn)];
        GatedFfn {
            computes: Computes::FeedForward(FeedForward { activation: *c.activation, gated: true }),
            gate_up: with!(MergedColumnParallelLinear::new(hidden, parts), bias),
            down: with!(RowParallelLinear::new(ffn, hidden), bias),
        }
    }
}

/// A feed-forward network without a gate: `down(act(up(x)))`.
#[derive(Module)]
pub(super) struct Ffn {
    #[module(flatten)]
    computes: Computes,
    up: crate::module::ColumnParallelLinear,
    down: RowParallelLinear,
}

impl Ffn {
    pub(super) fn new(c: &Config, bias: Bias) -> Ffn {
        let (hidden, ffn): (Along, Along) = (Axis::Hidden.of(*c.hidden), Axis::Ffn.of(*c.ffn));
        Ffn {
            computes: Computes::FeedForward(FeedForward { activation: *c.activation, gated: false }),
            up: with!(crate::module::ColumnParallelLinear::new(hidden, ffn), bias),
            down: with!(RowParallelLinear::new(ffn, hidden), bias),
        }
    }
}

/// A mixture of experts: a router, experts in a stack, and perhaps a network that every token is sent to.
#[derive(Module)]
pub(super) struct MoeFfn {
    #[module(flatten)]
    not_run: NotRun,
    router: Router,
    experts: FusedMoe,
    shared: Option<GatedFfn>,
}

impl MoeFfn {
    pub(super) fn new(c: &Config, moe: &Moe) -> MoeFfn {
        let hidden = Axis::Hidden.of(*c.hidden);
        let experts = FusedMoe::new(*moe.experts, hidden, *moe.ffn).named(["gate", "down", "up"]);
        let router = Router { scores: Linear::new(hidden, *moe.experts), correction: None };
        let shared = (*moe.shared > 0).then(|| GatedFfn::new(c, *moe.shared * *moe.ffn, Bias::No));
        let not_run = NotRun::new("its feed-forward networks are mixtures of experts");
        MoeFfn { not_run, router, experts, shared }
    }

    /// With biases of the router and of the experts.
    pub(super) fn with_biases(self) -> MoeFfn {
        let router = Router { scores: self.router.scores.with_bias(), ..self.router };
        MoeFfn { router, experts: self.experts.with_bias(), ..self }
    }

    /// With what is added to the scores where experts are chosen, and not where they are weighed.
    pub(super) fn with_correction(self, moe: &Moe, required: bool) -> MoeFfn {
        let bias = Table::new(*moe.experts).named("bias");
        let correction = Some(if required { bias } else { bias.optional() });
        MoeFfn { router: Router { correction, ..self.router }, ..self }
    }
}

#[derive(Module)]
struct Router {
    #[module(flatten)]
    scores: Linear,
    correction: Option<Table>,
}

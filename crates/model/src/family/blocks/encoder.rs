//! The modules that encoders are built from: tokens to vectors.

use std::fmt;

use derive::Module;

use crate::Config;
use crate::module::{
    self, Branch, Computes, LayerNorm, Layers, Linear, Module, Score, Table, VocabParallelEmbedding,
};
use crate::param::Axis;

use super::{Attention, Norm};

/// An encoder: tokens to vectors.
#[derive(Module)]
pub struct Encoder {
    #[module(flatten)]
    computes: Computes,
    /// `[vocab, hidden]`.
    pub token_embedding: VocabParallelEmbedding,
    /// `[positions, hidden]`, if positions are learned.
    pub position_embedding: Option<VocabParallelEmbedding>,
    /// `[types, hidden]`, if there are types of tokens.
    pub token_type_embedding: Option<VocabParallelEmbedding>,
    /// Of the sum of embeddings.
    pub embedding_norm: Norm,
    /// The layers: [`EncoderBlock`], or a module of your own.
    pub layers: Layers<Box<dyn Module>>,
    /// After the last layer, if there is one.
    pub output_norm: Option<Norm>,
    /// `[buckets, heads]`: addends of scores by distance, if there are any.
    pub relative_bias: Option<Table>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("layers", &self.layers.0.len()).finish_non_exhaustive()
    }
}

impl Encoder {
    /// As BERT has it, with learned positions and types of tokens: `block` gives each layer, by its number from 0.
    pub fn new<B: Module + 'static>(
        c: &Config,
        norm: fn(&Config) -> Norm,
        block: impl Fn(u64) -> B,
    ) -> Encoder {
        let hidden = Axis::Hidden.of(*c.hidden);
        // Divided as vLLM does it, vllm/model_executor/models/bert.py, `BertEmbedding`.
        let table = |rows: u64| VocabParallelEmbedding::new(rows, hidden);
        let before = c.padding.map_or(0, |padding| padding + 1);
        let computes = module::Encoder {
            vocab: *c.vocab,
            hidden: *c.hidden,
            context: c.context.saturating_sub(before),
            layers: *c.layers,
            padding: *c.padding,
        };
        Encoder {
            computes: Computes::Encoder(computes),
            token_embedding: table(*c.vocab),
            position_embedding: Some(table(*c.context)),
            token_type_embedding: (*c.token_types > 0).then(|| table(*c.token_types)),
            embedding_norm: norm(c),
            layers: Layers((0..*c.layers).map(|n| Box::new(block(n)) as Box<dyn Module>).collect()),
            output_norm: None,
            relative_bias: None,
        }
    }

    /// The same, but the model does without vectors of types.
    #[must_use]
    pub fn with_optional_types(self) -> Encoder {
        let table = self.token_type_embedding.map(VocabParallelEmbedding::optional);
        Encoder { token_type_embedding: table, ..self }
    }

    /// The same without learned positions.
    #[must_use]
    pub fn without_positions(self) -> Encoder {
        Encoder { position_embedding: None, ..self }
    }

    /// The same with a norm after the last layer.
    #[must_use]
    pub fn with_output_norm(self, norm: Norm) -> Encoder {
        Encoder { output_norm: Some(norm), ..self }
    }

    /// The same with addends of scores by distance, of which the table has `rows`.
    #[must_use]
    pub fn with_relative_bias(self, c: &Config, rows: u64) -> Encoder {
        let table = Table::of_axes([rows.into(), Axis::Heads.of(*c.heads)]);
        Encoder { relative_bias: Some(table), ..self }
    }
}

/// The head that scores texts: a layer, its activation, perhaps a norm, and a matrix.
#[derive(Debug, Module)]
pub struct ScoreHead {
    #[module(flatten)]
    computes: Computes,
    dense: Linear,
    norm: Option<Norm>,
    output: Linear,
}

impl ScoreHead {
    /// With biases and without a norm, as RoBERTa has it; `None` if the model scores no texts ([`Config::labels`]).
    pub fn new(c: &Config, score: Score) -> Option<ScoreHead> {
        let hidden = Axis::Hidden.of(*c.hidden);
        (*c.labels > 0).then(|| ScoreHead {
            computes: Computes::Score(Score { labels: *c.labels, ..score }),
            dense: Linear::new(hidden, *c.hidden).with_bias(),
            norm: None,
            output: Linear::new(hidden, *c.labels).with_bias(),
        })
    }

    /// The same of which the file decides what there is: llama.cpp's files of BERT have no layer before the matrix.
    #[must_use]
    pub fn as_stored(self) -> ScoreHead {
        ScoreHead { dense: self.dense.optional(), output: self.output.optional(), ..self }
    }

    /// The same with a norm, and with a layer that has a bias if a file has one.
    #[must_use]
    pub fn normed(self, c: &Config, norm: Norm) -> ScoreHead {
        let dense = Linear::new(Axis::Hidden.of(*c.hidden), *c.hidden).with_optional_bias();
        ScoreHead { dense, norm: Some(norm), ..self }
    }
}

/// One layer of an encoder: attention, then a feed-forward network, with a norm of the sum after each.
#[derive(Module)]
pub struct EncoderBlock {
    #[module(flatten)]
    computes: Computes,
    /// Sees the whole sequence.
    pub attention: Attention,
    /// After attention was added.
    pub attention_output_norm: LayerNorm,
    /// [`Ffn`](super::Ffn), [`GatedFfn`](super::GatedFfn), or a module of your own.
    pub ffn: Box<dyn Module>,
    /// After the feed-forward network was added.
    pub output_norm: LayerNorm,
}

impl fmt::Debug for EncoderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncoderBlock").field("ffn", &self.ffn.kind()).finish_non_exhaustive()
    }
}

impl EncoderBlock {
    /// With attention that sees the whole sequence.
    pub fn new(c: &Config, attention: Attention, ffn: impl Module + 'static) -> EncoderBlock {
        let norm = || LayerNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32);
        let branch = |layer, sum_norm| Branch {
            norm: None,
            layer,
            post_norm: None,
            scale: 1.0,
            sum_norm: Some(sum_norm),
            parallel: false,
        };
        let branches = vec![branch("attention", "attention_output_norm"), branch("ffn", "output_norm")];
        EncoderBlock {
            computes: Computes::Residual(branches),
            attention: attention.bidirectional(),
            attention_output_norm: norm(),
            ffn: Box::new(ffn),
            output_norm: norm(),
        }
    }
}

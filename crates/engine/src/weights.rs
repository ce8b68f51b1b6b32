//! The parameters of a decoder, found by canonical name among the loaded ones.

use std::sync::Arc;

use load::{Loaded, Tensor};
use model::{Architecture, Norm, Positions};
use tensor::RopeOrder;

use crate::Error;

/// A norm's factor and, for LayerNorm, its bias: f32, `[width]` each.
#[derive(Debug)]
pub struct NormWeights {
    /// Multiplied.
    pub weight: Tensor,
    /// Added.
    pub bias: Option<Tensor>,
}

/// One matrix of a projection.
#[derive(Debug)]
pub struct Linear {
    /// `[rows, in]`; `rows` may exceed `out` by padding.
    pub weight: Tensor,
    /// f32, `[out]`.
    pub bias: Option<Tensor>,
    /// Output features.
    pub out: usize,
}

/// Matrices that share an input; their outputs lie side by side.
#[derive(Debug)]
pub struct Projection {
    /// The matrices.
    pub parts: Vec<Linear>,
    /// Input features.
    pub input: usize,
    /// Output features of all parts.
    pub out: usize,
}

/// One block.
#[derive(Debug)]
pub struct Block {
    /// Before attention.
    pub attention_norm: NormWeights,
    /// q, k and v.
    pub qkv: Arc<Projection>,
    /// Norm of each query head.
    pub q_norm: Option<NormWeights>,
    /// Norm of each key head.
    pub k_norm: Option<NormWeights>,
    /// Attention's output.
    pub attention_output: Arc<Projection>,
    /// After attention.
    pub attention_post_norm: Option<NormWeights>,
    /// Before the feed-forward network.
    pub ffn_norm: NormWeights,
    /// Gate (if any) and up.
    pub gate_up: Arc<Projection>,
    /// Whether there is a gate.
    pub gated: bool,
    /// Down.
    pub down: Arc<Projection>,
    /// After the feed-forward network.
    pub ffn_post_norm: Option<NormWeights>,
}

/// A whole decoder.
#[derive(Debug)]
pub struct Weights {
    /// `[vocab, hidden]`.
    pub token_embedding: Tensor,
    /// `[context, hidden]`, if positions are learned.
    pub position_embedding: Option<Tensor>,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// Before the output matrix.
    pub output_norm: NormWeights,
    /// Hidden to logits.
    pub output: Arc<Projection>,
    /// Divides the rotary frequencies (Llama 3 in GGUF): `[head_dim / 2]`.
    pub rope_factors: Option<Tensor>,
    /// The order in which rows of q and k lie.
    pub rope_order: RopeOrder,
}

impl Weights {
    /// Finds every parameter of `architecture`. Which optional parts the model has is what was loaded.
    ///
    /// # Errors
    /// If one is not there, or the order of the rows of q and k is not known: a layout that the engine does not run. If an
    /// update has ended on the way.
    pub fn new(loaded: &Loaded, arch: &Architecture) -> Result<Weights, Error> {
        if loaded.torn().len() > 0 {
            return Err(Error::Torn);
        }
        let rope_order = loaded.arrangement().and_then(|a| a.rope_order).ok_or(Error::NoRopeOrder)?;
        let find = Finder { loaded, norm: arch.norm };
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::TooLarge);
        let hidden = size(arch.hidden)?;
        let heads = size(arch.heads * arch.head_dim)?;
        let kv = size(arch.kv_heads * arch.head_dim)?;
        let ffn = size(arch.ffn)?;
        let blocks = (0..arch.layers.len())
            .map(|n| {
                let at = |rest: &str| format!("layers.{n}.{rest}");
                let gated = find.tensor(&at("ffn.gate_up.weight")).is_some()
                    || find.tensor(&at("ffn.gate.weight")).is_some();
                let mut gate_up = vec![("ffn.up", ffn)];
                if gated {
                    gate_up.insert(0, ("ffn.gate", ffn));
                }
                Ok(Block {
                    attention_norm: find.norm(&at("attention_norm"))?,
                    qkv: find.projection(
                        &at(""),
                        "attention.qkv",
                        &[("attention.q", heads), ("attention.k", kv), ("attention.v", kv)],
                        hidden,
                    )?,
                    q_norm: find.optional_norm(&at("attention.q_norm"))?,
                    k_norm: find.optional_norm(&at("attention.k_norm"))?,
                    attention_output: find.projection(&at(""), "", &[("attention.output", hidden)], heads)?,
                    attention_post_norm: find.optional_norm(&at("attention_post_norm"))?,
                    ffn_norm: find.norm(&at("ffn_norm"))?,
                    gate_up: find.projection(&at(""), "ffn.gate_up", &gate_up, hidden)?,
                    gated,
                    down: find.projection(&at(""), "", &[("ffn.down", hidden)], ffn)?,
                    ffn_post_norm: find.optional_norm(&at("ffn_post_norm"))?,
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Weights {
            token_embedding: find.required("token_embedding.weight")?,
            position_embedding: match arch.positions {
                Positions::Learned => Some(find.required("position_embedding.weight")?),
                Positions::Rotary => None,
            },
            blocks,
            output_norm: find.norm("output_norm")?,
            output: find.projection("", "", &[("output", size(arch.vocab)?)], hidden)?,
            rope_factors: find.tensor("rope_factors.weight"),
            rope_order,
        })
    }
}

impl Weights {
    /// Every projection.
    pub fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        let blocks = self.blocks.iter().flat_map(|b| [&b.qkv, &b.attention_output, &b.gate_up, &b.down]);
        blocks.chain([&self.output])
    }
}

impl Projection {
    /// Bytes of its matrices: what a token reads.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().flat_map(|part| part.weight.slots()).map(|slot| slot.bytes().len() as u64).sum()
    }

    /// Products of a token.
    pub fn macs(&self) -> u64 {
        self.input as u64 * self.out as u64
    }
}

struct Finder<'a> {
    loaded: &'a Loaded,
    norm: Norm,
}

impl Finder<'_> {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.loaded.get(name).cloned()
    }

    fn required(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name).ok_or_else(|| Error::NotLoaded { name: name.to_owned() })
    }

    fn norm(&self, stem: &str) -> Result<NormWeights, Error> {
        let weight = self.required(&format!("{stem}.weight"))?;
        let bias = format!("{stem}.bias");
        let bias = match self.norm {
            Norm::Layer { .. } => Some(self.required(&bias)?),
            Norm::Rms { .. } => self.tensor(&bias),
        };
        Ok(NormWeights { weight, bias })
    }

    fn optional_norm(&self, stem: &str) -> Result<Option<NormWeights>, Error> {
        self.tensor(&format!("{stem}.weight")).map(|_| self.norm(stem)).transpose()
    }

    /// The fused matrix if it was loaded, else its parts.
    fn projection(
        &self,
        prefix: &str,
        fused: &str,
        parts: &[(&str, usize)],
        input: usize,
    ) -> Result<Arc<Projection>, Error> {
        let out: usize = parts.iter().map(|p| p.1).sum();
        let linear = |stem: &str, out: usize| {
            let weight = self.required(&format!("{prefix}{stem}.weight"))?;
            Ok(Linear { weight, bias: self.tensor(&format!("{prefix}{stem}.bias")), out })
        };
        let parts = if !fused.is_empty() && self.tensor(&format!("{prefix}{fused}.weight")).is_some() {
            vec![linear(fused, out)?]
        } else {
            parts.iter().map(|(stem, out)| linear(stem, *out)).collect::<Result<Vec<_>, Error>>()?
        };
        Ok(Arc::new(Projection { parts, input, out }))
    }
}

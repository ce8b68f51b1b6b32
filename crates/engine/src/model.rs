//! What all sessions of a model share: its architecture and its weights, read-only.

use std::fmt;
use std::sync::Arc;

use load::{Loaded, Tensor};
use model::{Architecture, Positions, Rope};

use crate::Error;
use crate::layer::{Attention, FeedForward, Layer};
use crate::weights::{Finder, NormWeights, Projection};

/// A model that is ready to run: read-only, without buffers or caches, so that any number of sessions share it.
pub struct Model {
    arch: Architecture,
    vocab: usize,
    hidden: usize,
    /// `[vocab, hidden]`.
    pub(crate) token_embedding: Tensor,
    /// `[context, hidden]`, if positions are learned.
    pub(crate) position_embedding: Option<Tensor>,
    layers: Vec<Layer>,
    /// Before the output matrix.
    pub(crate) output_norm: NormWeights,
    /// Hidden to logits.
    pub(crate) output: Arc<Projection>,
    /// The frequencies of each rotary embedding, in radians a position: `[head_dim / 2]` each.
    pub(crate) ropes: Vec<Vec<f64>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

impl Model {
    /// Finds every parameter of `arch` among what was loaded. Which optional parts the model has is what was loaded.
    ///
    /// # Errors
    /// If a parameter is not there, or the order of the rows of q and k is not known: a layout that the engine does not run. If an
    /// update has ended on the way.
    pub fn new(loaded: &Loaded, arch: Architecture) -> Result<Model, Error> {
        if loaded.torn().len() > 0 {
            return Err(Error::Torn);
        }
        let rope_order = loaded.arrangement().and_then(|a| a.rope_order).ok_or(Error::NoRopeOrder)?;
        let find = Finder { loaded, norm: arch.norm };
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::TooLarge);
        let (hidden, ffn, vocab) = (size(arch.hidden)?, size(arch.ffn)?, size(arch.vocab)?);
        let (heads, kv_heads, head_dim) = (size(arch.heads)?, size(arch.kv_heads)?, size(arch.head_dim)?);
        let (q, kv) = (size(arch.heads * arch.head_dim)?, size(arch.kv_heads * arch.head_dim)?);
        let mut ropes = Ropes::default();
        let mut layers = vec![];
        for (n, attention) in arch.layers.iter().enumerate() {
            let at = |rest: &str| format!("layers.{n}.{rest}");
            let qkv = [("attention.q", q), ("attention.k", kv), ("attention.v", kv)];
            layers.push(Layer {
                norm: find.norm(&at("attention_norm"))?,
                body: Box::new(Attention {
                    heads,
                    kv_heads,
                    head_dim,
                    window: attention.window.map(|w| usize::try_from(w).unwrap_or(usize::MAX)),
                    scale: attention.scale,
                    rope: attention.rope.as_ref().map(|rope| ropes.index(rope)),
                    rope_order,
                    qkv: find.projection(&at(""), "attention.qkv", &qkv, hidden)?,
                    q_norm: find.optional_norm(&at("attention.q_norm"))?,
                    k_norm: find.optional_norm(&at("attention.k_norm"))?,
                    output: find.projection(&at(""), "", &[("attention.output", hidden)], q)?,
                }),
                post_norm: find.optional_norm(&at("attention_post_norm"))?,
            });
            let gated = find.tensor(&at("ffn.gate_up.weight")).is_some()
                || find.tensor(&at("ffn.gate.weight")).is_some();
            let mut gate_up = vec![("ffn.up", ffn)];
            if gated {
                gate_up.insert(0, ("ffn.gate", ffn));
            }
            layers.push(Layer {
                norm: find.norm(&at("ffn_norm"))?,
                body: Box::new(FeedForward {
                    activation: arch.activation,
                    gated,
                    gate_up: find.projection(&at(""), "ffn.gate_up", &gate_up, hidden)?,
                    down: find.projection(&at(""), "", &[("ffn.down", hidden)], ffn)?,
                }),
                post_norm: find.optional_norm(&at("ffn_post_norm"))?,
            });
        }
        Ok(Model {
            vocab,
            hidden,
            token_embedding: find.required("token_embedding.weight")?,
            position_embedding: match arch.positions {
                Positions::Learned => Some(find.required("position_embedding.weight")?),
                Positions::Rotary => None,
            },
            layers,
            output_norm: find.norm("output_norm")?,
            output: find.projection("", "", &[("output", vocab)], hidden)?,
            ropes: ropes.frequencies(find.tensor("rope_factors.weight").as_ref()),
            arch,
        })
    }

    /// What it computes.
    pub fn architecture(&self) -> &Architecture {
        &self.arch
    }

    /// Tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Elements of the residual stream.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Every projection.
    pub fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        self.layers.iter().flat_map(|layer| layer.body.projections()).chain([&self.output])
    }

    /// The output matrix: hidden to logits.
    pub fn output(&self) -> &Arc<Projection> {
        &self.output
    }

    /// Bytes of its state (keys and values) that a token at `position` reads.
    pub fn state_reads(&self, position: usize) -> u64 {
        let reads = self.layers.iter().map(|layer| layer.body.state_reads(position as u64));
        reads.fold(0, u64::saturating_add)
    }

    /// Bytes that a session of `positions` positions takes; `None` if they cannot be counted.
    pub(crate) fn state_bytes(&self, positions: usize) -> Option<u64> {
        let mut bytes = self.layers.iter().map(|layer| layer.body.state_bytes(positions as u64));
        bytes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Positions that it has learned a vector for, if it learns them.
    pub(crate) fn learned_positions(&self) -> Option<usize> {
        self.position_embedding.as_ref().map(Tensor::rows)
    }
}

/// The distinct rotary embeddings: most models have one, Gemma 3 two.
#[derive(Default)]
struct Ropes(Vec<Rope>);

impl Ropes {
    fn index(&mut self, rope: &Rope) -> usize {
        self.0.iter().position(|known| known == rope).unwrap_or_else(|| {
            self.0.push(rope.clone());
            self.0.len() - 1
        })
    }

    /// The frequencies of each, divided by the factors that the checkpoint has (Llama 3 in GGUF): f32, `[head_dim / 2]`.
    fn frequencies(&self, factors: Option<&Tensor>) -> Vec<Vec<f64>> {
        let of = |rope: &Rope| {
            let mut frequencies = rope.frequencies();
            if let Some(factors) = factors {
                frequencies.iter_mut().zip(factors.as_f32()).for_each(|(f, by)| *f /= f64::from(*by));
            }
            frequencies
        };
        self.0.iter().map(of).collect()
    }
}

//! What the engine runs: the block of a family, as data. Loader and engine read the same declaration.

use crate::Config;

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

/// Which elements of a head a rotary embedding pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeOrder {
    /// Element `i` with `i + dim / 2` (HF; canonical).
    Half,
    /// Element `2i` with `2i + 1` (GGUF's `llama` architecture, Meta's own files).
    Interleaved,
}

/// How rotary frequencies are stretched beyond the trained context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency is divided by the factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3: low frequencies are divided, high ones kept, those between interpolated.
    /// Source: transformers `_compute_llama3_parameters`, modeling_rope_utils.py@v4.57.
    Llama3 {
        /// The factor for low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// The context that the model was first trained with, in tokens.
        original_context: f64,
    },
}

/// A rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f64,
    /// Elements of a head that are rotated; the rest pass.
    pub dims: u64,
    /// The stretch.
    pub scaling: RopeScaling,
}

impl Rope {
    /// The angular frequency of each pair, in radians a position: `[dims / 2]`.
    pub fn frequencies(&self) -> Vec<f64> {
        let pair = |i: u64| {
            let freq = self.theta.powf(-2.0 * i as f64 / self.dims as f64);
            match self.scaling {
                RopeScaling::None => freq,
                RopeScaling::Linear { factor } => freq / factor,
                RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                    let wavelength = 2.0 * std::f64::consts::PI / freq;
                    if wavelength < original_context / high_freq_factor {
                        freq
                    } else if wavelength > original_context / low_freq_factor {
                        freq / factor
                    } else {
                        let keep = (original_context / wavelength - low_freq_factor)
                            / (high_freq_factor - low_freq_factor);
                        (1.0 - keep) * freq / factor + keep * freq
                    }
                }
            }
        };
        (0..self.dims / 2).map(pair).collect()
    }
}

impl Rope {
    /// What each frequency is divided by, as GGUF has it in `rope_freqs.weight`: `[dims / 2]`.
    ///
    /// Source: conversion/llama.py@0c1e57098, `LlamaModel.generate_extra_tensors`.
    pub fn factors(&self) -> Vec<f32> {
        let plain = Rope { scaling: RopeScaling::None, ..*self };
        plain
            .frequencies()
            .into_iter()
            .zip(self.frequencies())
            .map(|(plain, scaled)| (plain / scaled) as f32)
            .collect()
    }

    /// Whether its [factors](Rope::factors) are these, but for rounding.
    pub fn has_factors(&self, factors: &[f32]) -> bool {
        let own = self.factors();
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
        own.len() == factors.len() && own.iter().zip(factors).all(near)
    }

    /// The scaling whose [factors](Rope::factors) these are, if it is one of Llama 3's: its low and high frequency
    /// factors are 1 and 4 in every released model, and the first context is a power of two.
    pub fn scaling_of(&self, factors: &[f32]) -> Option<RopeScaling> {
        let factor = factors.iter().copied().fold(0.0, f32::max);
        (6..24).map(|power| f64::from(1u32 << power)).find_map(|original_context| {
            let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
            let scaling = RopeScaling::Llama3 {
                factor: factor.into(),
                low_freq_factor,
                high_freq_factor,
                original_context,
            };
            Rope { scaling, ..*self }.has_factors(factors).then_some(scaling)
        })
    }
}

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// A query sees itself and the `window - 1` positions before it; `None`: all before it.
    pub window: Option<u64>,
    /// Its rotary embedding, if positions are rotary.
    pub rope: Option<Rope>,
}

/// The feed-forward activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of GELU, which GPT-2 and Gemma use.
    GeluTanh,
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
    /// Scores are multiplied by this before the softmax.
    pub attention_scale: f32,
    /// The feed-forward activation.
    pub activation: Activation,
    /// `c` in `c · tanh(logits / c)`.
    pub logit_soft_cap: Option<f32>,
    /// One for each layer.
    pub layers: Vec<Attention>,
}

impl Architecture {
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
            attention_scale: *c.attention_scale as f32,
            activation: Activation::Silu,
            logit_soft_cap: None,
            layers,
        }
    }
}

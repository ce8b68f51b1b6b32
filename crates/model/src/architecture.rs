//! What the engine runs: the block of a family, as data. Loader and engine read the same declaration.

use std::fmt;

use crate::{Config, Field};

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

/// How rotary frequencies are stretched beyond the trained context.
#[derive(Clone, Debug, PartialEq)]
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
    /// The base grows with the text beyond the trained context.
    Dynamic {
        /// The factor.
        factor: f64,
    },
    /// `YaRN`: low frequencies are divided, high ones kept, with a ramp between; cosines and sines are scaled.
    /// Source: transformers `_compute_yarn_parameters`, modeling_rope_utils.py@v4.57.
    Yarn(Yarn),
    /// `LongRoPE`: each frequency has two factors, for texts within the first context and for longer ones.
    /// Source: transformers `_compute_longrope_parameters`, modeling_rope_utils.py@v4.57.
    LongRope {
        /// Factors within the first context, one a pair; none where they are tensors.
        short: Vec<f64>,
        /// Factors beyond it.
        long: Vec<f64>,
        /// The context that the model was first trained with, in tokens.
        original_context: f64,
        /// What cosines and sines are multiplied by; if `None`, it follows from the contexts.
        attention_factor: Option<f64>,
    },
}

/// The numbers of [`RopeScaling::Yarn`].
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// The factor for low frequencies.
    pub factor: f64,
    /// The context that the model was first trained with, in tokens.
    pub original_context: f64,
    /// Turns within that context above which a frequency is kept.
    pub beta_fast: f64,
    /// Turns below which it is divided.
    pub beta_slow: f64,
    /// The factor of cosines and sines.
    pub attention_factor: f64,
    /// Scores are multiplied by the square of [`yarn_mscale`] of it (DeepSeek).
    pub mscale_all_dim: Option<f64>,
    /// The ends of the ramp are whole pairs.
    pub truncate: bool,
}

/// YaRN's magnitude for a stretch of `factor`.
/// Source: transformers `get_mscale`, modeling_rope_utils.py@v5.23.
pub(crate) fn yarn_mscale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

impl RopeScaling {
    /// Its name, as config.json has it.
    pub fn name(&self) -> &'static str {
        match self {
            RopeScaling::None => "none",
            RopeScaling::Linear { .. } => "linear",
            RopeScaling::Llama3 { .. } => "llama3",
            RopeScaling::Dynamic { .. } => "dynamic",
            RopeScaling::Yarn(_) => "yarn",
            RopeScaling::LongRope { .. } => "longrope",
        }
    }
}

/// Its name and its numbers.
impl fmt::Display for RopeScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor }
            | RopeScaling::Llama3 { factor, .. }
            | RopeScaling::Dynamic { factor } => write!(f, " × {factor}"),
            RopeScaling::Yarn(y) => {
                write!(
                    f,
                    " × {} of {}, beta {} and {}",
                    y.factor, y.original_context, y.beta_fast, y.beta_slow
                )?;
                // Through f32 and back it may be another number in the eighth digit.
                write!(f, ", cosines and sines × {:.5}", y.attention_factor)?;
                if let Some(all) = y.mscale_all_dim {
                    write!(f, ", mscale_all_dim {all:.5}")?;
                }
                f.write_str(if y.truncate { "" } else { ", not truncated" })
            }
            RopeScaling::LongRope { short, long, original_context, attention_factor } => {
                write!(f, " of {original_context}")?;
                if let Some(x) = attention_factor {
                    write!(f, ", factor {}", *x as f32)?;
                }
                // Too many to list: factors that differ have other sums.
                let sum = |factors: &[f64]| factors.iter().sum::<f64>() as f32;
                match short.len() {
                    0 => Ok(()),
                    n => write!(f, ", {n} factors that sum up to {} and {}", sum(short), sum(long)),
                }
            }
        }
    }
}

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f64,
    /// Elements of a head that are rotated; the rest pass.
    pub dims: u64,
    /// The stretch.
    pub scaling: RopeScaling,
}

impl Rope {
    /// The angular frequency of each pair, in radians a position: `[dims / 2]`. Of a stretch that goes by the length of
    /// the text, those of short ones; a stretch that is not [run](Rope::is_run) is left out.
    pub fn frequencies(&self) -> Vec<f64> {
        let pair = |i: u64| {
            let freq = self.theta.powf(-2.0 * i as f64 / self.dims as f64);
            match self.scaling {
                RopeScaling::None
                | RopeScaling::Dynamic { .. }
                | RopeScaling::Yarn(_)
                | RopeScaling::LongRope { .. } => freq,
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
    /// Whether its [frequencies](Rope::frequencies) are all there is to it, for a text of any length.
    pub fn is_run(&self) -> bool {
        matches!(self.scaling, RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. })
    }

    /// The same, stretched so.
    #[must_use]
    pub fn scaled(&self, scaling: RopeScaling) -> Rope {
        Rope { theta: self.theta, dims: self.dims, scaling }
    }

    /// What each frequency is divided by, as GGUF has it in `rope_freqs.weight`: `[dims / 2]`.
    ///
    /// Source: conversion/llama.py@0c1e57098, `LlamaModel.generate_extra_tensors`.
    pub fn factors(&self) -> Vec<f32> {
        let plain = self.scaled(RopeScaling::None);
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
            self.scaled(scaling.clone()).has_factors(factors).then_some(scaling)
        })
    }
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

/// The feed-forward activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of GELU, which GPT-2 and Gemma use.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    Relu2,
}

/// Every activation by the names that config.json has for it.
/// Source: transformers activations.py@v5.23, `ACT2CLS`.
static ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
];

impl Activation {
    /// The activation that config.json calls so.
    pub fn named(name: &str) -> Option<Activation> {
        ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// The first of its names.
    pub fn name(self) -> &'static str {
        ACTIVATIONS.iter().find(|(_, activation)| *activation == self).map_or("", |(name, _)| name)
    }

    /// Every name that is understood.
    pub(crate) fn names() -> String {
        ACTIVATIONS.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
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
        let global = Rope::checked(*c.rope_theta, &c.rope_scaling, c)?;
        let local = if c.has_windows() {
            Rope::checked(*c.rope_local_theta, &c.rope_local_scaling, c)?
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

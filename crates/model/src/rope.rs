//! Rotary embeddings: their frequencies, and how these are stretched.

use std::fmt;

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
        /// The factor of cosines and sines; if `None`, it follows from the contexts.
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

impl Yarn {
    /// What the frequency of pair `pair` is multiplied by, with the base `theta` and `dims` rotated elements of a head.
    /// Source: transformers `_compute_yarn_parameters`, modeling_rope_utils.py@v5.23.
    fn share(&self, pair: f64, theta: f64, dims: f64) -> f64 {
        // The pair that makes `turns` turns within the first context.
        let pair_of = |turns: f64| {
            let turn = 2.0 * std::f64::consts::PI;
            dims * (self.original_context / (turns * turn)).ln() / (2.0 * theta.ln())
        };
        let (low, high) = (pair_of(self.beta_fast), pair_of(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(dims - 1.0));
        let width = if (high - low).abs() > 0.0 { high - low } else { 0.001 };
        let ramp = ((pair - low) / width).clamp(0.0, 1.0);
        ramp / self.factor + (1.0 - ramp)
    }
}

/// The factor of cosines and sines of `longrope` where no key gives it. Source: conversion/phi.py@0c1e57098,
/// `Phi3MiniModel.generate_extra_tensors`.
pub(crate) fn long_magnitude(context: f64, original: f64) -> f64 {
    let scale = context / original;
    if scale > 1.0 { (1.0 + scale.ln() / original.ln()).sqrt() } else { 1.0 }
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
    /// Positions that the model was trained for.
    pub context: u64,
    /// The stretch.
    pub scaling: RopeScaling,
}

impl Rope {
    /// Returns the angular frequency of each pair, in radians per position, in texts of up to `positions` positions: `[dims / 2]`.
    /// Factors that are tensors are left out.
    pub fn frequencies(&self, positions: u64) -> Vec<f64> {
        let is_long = self.is_long(positions);
        let (dims, positions) = (self.dims as f64, positions as f64);
        let theta = match self.scaling {
            // Source: transformers `_compute_dynamic_ntk_parameters`, modeling_rope_utils.py@v5.23.
            RopeScaling::Dynamic { factor } => {
                let stretch = (positions / self.context as f64).max(1.0);
                self.theta * (factor * stretch - (factor - 1.0)).powf(dims / (dims - 2.0))
            }
            _ => self.theta,
        };
        let pair = |i: u64| {
            let freq = theta.powf(-2.0 * i as f64 / dims);
            match &self.scaling {
                RopeScaling::None | RopeScaling::Dynamic { .. } => freq,
                RopeScaling::Linear { factor } => freq / factor,
                RopeScaling::Yarn(yarn) => freq * yarn.share(i as f64, self.theta, dims),
                RopeScaling::LongRope { short, long, .. } => {
                    let factors = if is_long { long } else { short };
                    freq / factors.get(i as usize).unwrap_or(&1.0)
                }
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

    /// Whether texts of up to `positions` positions are beyond the first context, so that [`RopeScaling::LongRope`] has other
    /// factors.
    pub fn is_long(&self, positions: u64) -> bool {
        let first = |original: f64| positions as f64 > original;
        matches!(self.scaling, RopeScaling::LongRope { original_context, .. } if first(original_context))
    }

    /// The factor of cosines and sines.
    pub fn magnitude(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.attention_factor,
            RopeScaling::LongRope { original_context, attention_factor, .. } => {
                attention_factor.unwrap_or_else(|| long_magnitude(self.context as f64, *original_context))
            }
            _ => 1.0,
        }
    }

    /// The same, stretched so.
    #[must_use]
    pub fn scaled(&self, scaling: RopeScaling) -> Rope {
        Rope { theta: self.theta, dims: self.dims, context: self.context, scaling }
    }

    /// The divisor of each frequency, as GGUF has it in `rope_freqs.weight`: `[dims / 2]`.
    ///
    /// Source: conversion/llama.py@0c1e57098, `LlamaModel.generate_extra_tensors`.
    pub fn factors(&self) -> Vec<f32> {
        let plain = self.scaled(RopeScaling::None);
        plain
            .frequencies(0)
            .into_iter()
            .zip(self.frequencies(0))
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

//! Chooses an encoding for each matrix, so that the whole has a given size and loses as little as it can.
//!
//! A [`Compression`] measures what every encoding that a matrix may have would cost: the matrix is decoded, rows of it are encoded and
//! decoded again, and the squares of the errors are summed, each times the mean square of the input that it is multiplied with (of an
//! importance matrix). Where it is known how much the predictions depend on the matrix, that gives a divergence in nats; otherwise
//! errors are taken relative to the matrix's results, and all matrices count alike. Then it solves for the assignment with the least sum
//! under the size. The result is a list of encoding rules, for a [`Conversion`](crate::Conversion) like any other.

mod ladder;
mod measure;
mod policy;
mod scale;
mod solve;
mod tolerance;

use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Pool;
use plan::PlannedParam;
use planner::{EncodeRule, Preset, describe};
use tensor::{Bytes, Diagnostic, Dtype, Scheme, Shape};

use crate::{Conversion, ConvertOptions, Error, Imatrix, OutputFormat, requantize};

pub use measure::Outliers;
pub use policy::{Policy, PolicyRule};
use solve::Item;
pub use tolerance::{Limits, MeasuredFamily, Point, Tolerance};

/// How large the result may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Bytes of all files.
    Bytes(u64),
    /// Bits for each weight, of all tensors together.
    Bits(f64),
    /// As if each matrix had the smallest encoding of this many bits.
    Like(u32),
}

/// `300MB`: a size. `4.5`: bits for each weight, 32 at most. `4bit`, from 2 to 8: as if each matrix had that.
impl FromStr for Target {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Target, Diagnostic> {
        let lower = text.to_ascii_lowercase();
        let named =
            lower.strip_suffix("bit").or(lower.strip_prefix("int")).and_then(|n| n.parse::<u32>().ok());
        match named {
            Some(bits @ 2..=8) => return Ok(Target::Like(bits)),
            Some(_) => return Err(Diagnostic::new("wanted 2bit to 8bit")),
            None => {}
        }
        if let Some(bits) = lower.parse::<f64>().ok().filter(|bits| *bits > 0.0 && *bits <= 32.0) {
            return Ok(Target::Bits(bits));
        }
        let wanted = |_| Diagnostic::new("wanted a size such as 300MB, bits such as 4.5, or 4bit");
        text.parse().map(|Bytes(bytes)| Target::Bytes(bytes)).map_err(wanted)
    }
}

/// An encoding that a matrix may have.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The encoding.
    pub scheme: Arc<Scheme>,
    /// Bytes of the matrix.
    pub bytes: u64,
    /// The error of its results: the root of the mean square, as a share of that of the results.
    pub error: f64,
    /// Its part of the sum that is minimised: a divergence in nats a token if `Compression::is_divergence`.
    pub cost: f64,
}

/// A matrix, and what it may become.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Its name in the result.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// How it is stored.
    pub from: String,
    /// By size.
    pub candidates: Vec<Candidate>,
    /// The index of the candidate that was chosen.
    pub chosen: usize,
    /// Values that stand out.
    pub outliers: Outliers,
    /// Why it may not become some of the encodings that fit it; empty if it may become any.
    pub policy: String,
}

impl Choice {
    /// The candidate that was chosen.
    pub fn becomes(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// Values.
    pub fn elements(&self) -> u64 {
        self.shape.elements().unwrap_or_default()
    }

    /// Bits for each value, as chosen.
    pub fn bits(&self) -> f64 {
        self.becomes().bytes as f64 * 8.0 / self.elements().max(1) as f64
    }
}

/// An assignment of encodings.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Each matrix, in the order of the result.
    pub choices: Vec<Choice>,
    /// Bytes of the files that it will have, or a little more.
    pub bytes: u64,
    /// Bytes that it may have.
    pub limit: u64,
    /// Values of all tensors.
    pub elements: u64,
    /// Whether costs are divergences: the sensitivity of every matrix is known.
    pub is_divergence: bool,
    /// The sum of the costs, which is minimised.
    pub cost: f64,
    /// The family of the model, if one claims the checkpoint.
    pub family: Option<&'static str>,
    /// The format of the files.
    pub format: OutputFormat,
    /// For all tensors that are not chosen for.
    preset: &'static Preset,
}

/// How far measuring is.
#[derive(Clone, Copy, Debug)]
pub struct Measuring<'a> {
    /// The place of the matrix, counted from 0.
    pub index: usize,
    /// How many there are.
    pub total: usize,
    /// Its name.
    pub name: &'a str,
}

impl Compression {
    /// Measures every matrix of `checkpoint`, and chooses what each becomes in a file of `format`. Of `options`, rules are not
    /// used: what is chosen takes their place. A preset of `options` says which matrices are chosen for, and the encoding that has most
    /// bits; without it, that is the format's own, and for hf of int8 and 4 bits of GPTQ the one that the target allows. `each` is
    /// called before each matrix, and may end it.
    ///
    /// # Errors
    /// If the conversion cannot be done, or no assignment is small enough: then with the smallest size that there is.
    pub fn new(
        checkpoint: &Checkpoint,
        format: OutputFormat,
        target: Target,
        policy: &Policy,
        options: &ConvertOptions<'_>,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Measuring<'_>) -> ControlFlow<()>,
    ) -> Result<Compression, Error> {
        let base = Base::for_target(checkpoint, format, target, options)?;
        let preset = base.preset;
        base.check(options)?;
        policy.used(base.matrices.iter().map(|matrix| matrix.name.as_str()))?;
        let f32s =
            base.matrices.iter().map(|matrix| EncodeRule::of(&matrix.name, &Scheme::plain(Dtype::F32)));
        let decoded = options_with(options, f32s.collect(), preset);
        let decoded = Conversion::new(checkpoint, format.compressed_layout(), format, &decoded)?;
        let mut choices = vec![];
        let total = base.matrices.len();
        let mut is_divergence = total > 0;
        for (index, matrix) in base.matrices.iter().enumerate() {
            if each(&Measuring { index, total, name: &matrix.name }).is_break() {
                return Err(Error::Interrupted { kept: None, done: index, total });
            }
            let schemes = ladder::candidates(format, matrix);
            let guide = Guide::of(options.imatrix, decoded.known_as(&matrix.name));
            is_divergence &= guide.sensitivity.is_some();
            let measured = measure::measure(&decoded, &matrix.name, &schemes, &guide, options.memory, pool)?;
            choices.push(matrix.choice(measured, policy)?);
        }
        for choice in choices.iter_mut().filter(|_| !is_divergence) {
            // Without knowing better, a matrix counts by the square of the error of its results.
            for candidate in &mut choice.candidates {
                candidate.cost = candidate.error * candidate.error;
            }
        }
        let limit = base.limit(target, &choices);
        let items: Vec<Item> = choices.iter().map(Item::of).collect();
        let room = limit.checked_sub(base.beside);
        let Some(chosen) = room.and_then(|room| solve::solve(&items, room)) else {
            let least = base.beside + items.iter().map(Item::least).sum::<u64>();
            let what =
                format!("the smallest that there is has {}, and the limit is {}", Bytes(least), Bytes(limit));
            let bits = least as f64 * 8.0 / base.elements.max(1) as f64;
            let hint = format!("allow at least {least} bytes, {bits:.2} bits a weight");
            return Err(Error::Convert { what: Diagnostic::new(what).with_hint(hint).into() });
        };
        for (choice, chosen) in choices.iter_mut().zip(chosen) {
            choice.chosen = chosen;
        }
        let bytes = base.beside + choices.iter().map(|c| c.becomes().bytes).sum::<u64>();
        let cost = choices.iter().map(|c| c.becomes().cost).sum();
        let (elements, family) = (base.elements, describe(checkpoint).ok().map(|model| model.family.name()));
        Ok(Compression { choices, bytes, limit, elements, is_divergence, cost, family, format, preset })
    }

    /// Bits for each value, with files of `bytes`.
    pub fn bits(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.elements.max(1) as f64
    }

    /// Returns what models of this family were measured to lose in this format, if one was.
    pub fn measured(&self) -> Option<&'static MeasuredFamily> {
        Tolerance::shipped().of(self.family?, self.format)
    }

    /// Returns the rules that encode each matrix as it was chosen, and the preset for all other tensors. A matrix that stays as it is
    /// has a rule too: the preset would change it.
    pub fn encoding(&self) -> (Vec<EncodeRule>, Option<&'static Preset>) {
        let rules = self.choices.iter().map(|choice| EncodeRule::of(&choice.name, &choice.becomes().scheme));
        (rules.collect(), Some(self.preset))
    }

    /// Checks what can be checked before a calibration, which may take long: that the format has encodings to choose from, and that
    /// quantised weights may be quantised again if there are any.
    ///
    /// # Errors
    /// As [`Compression::new`].
    pub fn check(
        checkpoint: &Checkpoint,
        format: OutputFormat,
        options: &ConvertOptions<'_>,
    ) -> Result<(), Error> {
        Base::of(checkpoint, format, presets(format, options)?[0], options)?.check(options)
    }
}

/// The presets that say what is a matrix: one, or several of which the target chooses one.
fn presets(format: OutputFormat, options: &ConvertOptions<'_>) -> Result<Vec<&'static Preset>, Error> {
    let presets = options.preset.map_or_else(|| ladder::presets(format), |preset| vec![preset]);
    (!presets.is_empty()).then_some(presets).ok_or_else(|| Error::Convert {
        what: Diagnostic::new(format!("{} has no encodings to choose from", format.name()))
            .with_hint("gguf, mlx, hf and npy-dir have".to_owned())
            .into(),
    })
}

/// The same options, with other encodings.
fn options_with<'a>(
    options: &ConvertOptions<'a>,
    rules: Vec<EncodeRule>,
    preset: &'static Preset,
) -> ConvertOptions<'a> {
    ConvertOptions { rules, preset: Some(preset), allow_requantize: true, ..options.clone() }
}

/// A tensor of the result that is chosen for.
struct Matrix {
    name: String,
    shape: Shape,
    /// How it is stored; `None` if the format does not hold that.
    stored: Option<Arc<Scheme>>,
    from: String,
    is_quantised: bool,
    /// The scheme that the widest preset gives it.
    widest: Arc<Scheme>,
}

/// The conversion that the choice is about.
struct Base {
    matrices: Vec<Matrix>,
    /// Bytes of all else: other tensors, metadata.
    beside: u64,
    /// Values of all tensors.
    elements: u64,
    /// Bytes of other tensors.
    others: u64,
    preset: &'static Preset,
}

impl Base {
    /// That of the first preset with which the result is small enough, or else of the last.
    fn for_target(
        checkpoint: &Checkpoint,
        format: OutputFormat,
        target: Target,
        options: &ConvertOptions<'_>,
    ) -> Result<Base, Error> {
        let presets = presets(format, options)?;
        let last = presets.len() - 1;
        for (at, preset) in presets.into_iter().enumerate() {
            let base = Base::of(checkpoint, format, preset, options)?;
            if at == last || base.suits(target) {
                return Ok(base);
            }
        }
        unreachable!("the last preset is taken")
    }

    /// Returns true if matrices with the widest encoding are as small as `target` wants.
    fn suits(&self, target: Target) -> bool {
        let bytes = |matrix: &Matrix| matrix.widest.byte_len(&matrix.shape).unwrap_or(u64::MAX);
        match target {
            // Of 5 bits and more, the smallest encoding is that of 8.
            Target::Like(bits) => bits > 4,
            _ => {
                let all = self.matrices.iter().map(bytes).fold(self.beside, u64::saturating_add);
                all <= self.limit(target, &[])
            }
        }
    }

    /// The matrices are what the widest preset of the format quantises.
    fn of(
        checkpoint: &Checkpoint,
        format: OutputFormat,
        preset: &'static Preset,
        options: &ConvertOptions<'_>,
    ) -> Result<Base, Error> {
        let widest = options_with(options, vec![], preset);
        let widest = Conversion::new(checkpoint, format.compressed_layout(), format, &widest)?;
        let mut base = Base { matrices: vec![], beside: widest.bytes(), elements: 0, others: 0, preset };
        for param in widest.params() {
            let PlannedParam { name, shape, scheme, .. } = param;
            base.elements += shape.elements().unwrap_or_default();
            let bytes = scheme.byte_len(shape).unwrap_or_default();
            if scheme.dtype().is_some() {
                base.others += bytes;
                continue;
            }
            base.beside -= bytes.min(base.beside);
            let mut stored = param.stored();
            let from = stored.next().unwrap_or(&param.moved);
            // A tensor that is made of several encodings has none of its own.
            let own = stored.all(|other| other == from) && format.holds(from, shape);
            base.matrices.push(Matrix {
                name: name.clone(),
                shape: shape.clone(),
                stored: own.then(|| Arc::clone(from)),
                from: from.name.to_string(),
                is_quantised: from.dtype().is_none(),
                widest: Arc::clone(scheme),
            });
        }
        Ok(base)
    }

    /// Checks that quantised matrices may be quantised again.
    fn check(&self, options: &ConvertOptions<'_>) -> Result<(), Error> {
        if options.allow_requantize {
            return Ok(());
        }
        let quantised = self.matrices.iter().filter(|matrix| matrix.is_quantised);
        requantize::refuse(quantised.map(|matrix| (&*matrix.name, &*matrix.from, "smaller encodings")))
    }

    /// The most bytes that `target` allows.
    fn limit(&self, target: Target, choices: &[Choice]) -> u64 {
        match target {
            Target::Bytes(bytes) => bytes,
            Target::Bits(bits) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a float becomes the nearest whole number, 0 if it is negative"
                )]
                let tensors = (self.elements as f64 * bits / 8.0) as u64;
                tensors.saturating_add(self.beside.saturating_sub(self.others))
            }
            Target::Like(bits) => {
                let mut sum = self.beside;
                for choice in choices {
                    let wide = |c: &&Candidate| c.bytes * 8 >= u64::from(bits) * choice.elements();
                    let like = choice.candidates.iter().find(wide).or(choice.candidates.last());
                    sum += like.map_or(0, |candidate| candidate.bytes);
                }
                sum
            }
        }
    }
}

impl Matrix {
    /// Returns the candidates of `measured` that the policy allows.
    fn choice(&self, measured: measure::Measured, policy: &Policy) -> Result<Choice, Error> {
        let elements = self.shape.elements().unwrap_or_default();
        let bits = |c: &Candidate| c.bytes as f64 * 8.0 / elements.max(1) as f64;
        let measure::Measured { mut candidates, outliers } = measured;
        candidates.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost)));
        let allowed = policy.allowed(&self.name, outliers, &self.from);
        let kept: Vec<Candidate> = candidates
            .iter()
            .filter(|c| allowed.takes(&c.scheme.name, bits(c), *c.scheme.name == self.from))
            .cloned()
            .collect();
        if kept.is_empty() {
            let names: Vec<&str> = candidates.iter().map(|c| &*c.scheme.name).collect();
            let what = format!("`{}` may become none of {}: {}", self.name, names.join(", "), allowed.why);
            return Err(Error::Convert { what: Diagnostic::new(what).into() });
        }
        let policy = if kept.len() < candidates.len() { allowed.why } else { String::new() };
        let mut kept = kept;
        if kept.iter().any(|c| ladder::is_uniform(&c.scheme)) {
            kept.retain(|c| ladder::is_uniform(&c.scheme));
        }
        Ok(Choice {
            name: self.name.clone(),
            shape: self.shape.clone(),
            from: self.from.clone(),
            candidates: kept,
            chosen: 0,
            outliers,
            policy,
        })
    }
}

/// The importance and the sensitivity of a matrix, as far as they are known.
struct Guide<'a> {
    /// For each column; of a stack, one matrix after the other.
    importance: Option<&'a [f32]>,
    sensitivity: Option<crate::Sensitivity>,
}

impl<'a> Guide<'a> {
    fn of(imatrix: Option<&'a Imatrix>, name: &str) -> Guide<'a> {
        Guide {
            importance: imatrix.and_then(|imatrix| imatrix.get(name)),
            sensitivity: imatrix.and_then(|imatrix| imatrix.sensitivity(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_size_or_bits_or_a_name() {
        for (text, wanted) in [
            ("4bit", Some(Target::Like(4))),
            ("INT8", Some(Target::Like(8))),
            ("4.5", Some(Target::Bits(4.5))),
            ("3", Some(Target::Bits(3.0))),
            ("300MB", Some(Target::Bytes(300_000_000))),
            ("123456", Some(Target::Bytes(123_456))),
            ("9bit", None),
            ("0", None),
            ("small", None),
        ] {
            assert_eq!(text.parse().ok(), wanted, "{text}");
        }
    }
}

//! Finds the factors of columns that lose least.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Pool;
use model::{Computes, Model};
use planner::{EncodeRule, describe};
use tensor::{Diagnostic, Dtype, Scheme};

use super::measure::Taken;
use super::{Compression, Measuring};
use crate::names::Names;
use crate::{Conversion, ConvertOptions, Error, OutputFormat, ScaledNorm, Scaling};

/// The powers to try, in tenths.
const POWERS: RangeInclusive<u8> = 1..=10;

/// The largest share of the error that may be left. A smaller gain does not carry over to other text.
const GAINED: f64 = 0.97;

/// The largest factor of a column; its inverse is the smallest.
const MOST: f32 = 64.0;

impl Compression {
    /// Finds the factors of columns with which the chosen encodings lose least. `each` is told how far it is, and may end it.
    ///
    /// # Errors
    /// If there is no importance matrix, the family is not one that is run, or a matrix cannot be read.
    pub fn scaling(
        &self,
        checkpoint: &Checkpoint,
        format: OutputFormat,
        options: &ConvertOptions<'_>,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Measuring<'_>) -> ControlFlow<()>,
    ) -> Result<Scaling, Error> {
        let refuse = |what: String| Error::Convert { what: Diagnostic::new(what).into() };
        let Some(imatrix) = options.imatrix else {
            return Err(refuse(
                "columns cannot be scaled: how strong their inputs are is not known".to_owned(),
            ));
        };
        let model = describe(checkpoint)?;
        let canonical = Names::canonical(checkpoint, &model, &options.adapter)?;
        let Fed { by_norm, by_none } = Fed::of(&model).map_err(refuse)?;
        let f32s = self.choices.iter().map(|c| EncodeRule::of(&c.name, &Scheme::plain(Dtype::F32)));
        let decoded = ConvertOptions { rules: f32s.collect(), allow_requantize: true, ..options.clone() };
        let decoded = Conversion::new(checkpoint, format.compressed_layout(), format, &decoded)?;
        let choices: HashMap<&str, _> =
            self.choices.iter().map(|choice| (decoded.known_as(&choice.name), choice)).collect();
        let mut found = Scaling::without_norm(by_none);
        let total = by_norm.len();
        for (index, (norm, feeds)) in by_norm.into_iter().enumerate() {
            if each(&Measuring { index, total, name: &norm }).is_break() {
                return Err(Error::Interrupted { kept: None, done: index, total });
            }
            let mut names: Vec<&str> = feeds.iter().map(|name| canonical.of(name)).collect();
            names.sort_unstable();
            names.dedup();
            let group: Option<Vec<_>> = names.iter().map(|name| choices.get(name).copied()).collect();
            let strengths = names.first().and_then(|name| imatrix.get(name));
            let (Some(group), Some(strengths)) = (group, strengths) else {
                // One of them is not encoded: it stays as it is, and so does the norm.
                found.norm_results.push(ScaledNorm { name: norm, feeds, power: 0.0, share: 1.0 });
                continue;
            };
            let mut best = (0.0, 1.0f64, None);
            // A matrix that keeps its encoding would be quantised again.
            if group.iter().all(|choice| *choice.becomes().scheme.name != choice.from) {
                let mut taken = vec![];
                for (choice, name) in group.iter().zip(&names) {
                    let weight = imatrix.sensitivity(name).map_or(1.0, |by| by.product);
                    let rows = Taken::of(&decoded, &choice.name, options.memory, pool)?;
                    taken.push((rows, Arc::clone(&choice.becomes().scheme), weight));
                }
                let mut lost = |factors: &[f32]| -> f64 {
                    let each = taken.iter().map(|(rows, scheme, weight)| {
                        rows.share() * weight * rows.lost_scaled(scheme, factors, strengths, pool)
                    });
                    each.sum()
                };
                let alone = lost(&vec![1.0; strengths.len()]);
                for tenths in POWERS {
                    let power = f64::from(tenths) / 10.0;
                    let factors = factors(strengths, power);
                    let share = lost(&factors) / alone;
                    if share < best.1.min(GAINED) {
                        best = (power, share, Some(factors));
                    }
                }
            }
            let (power, share, factors) = best;
            if let Some(factors) = factors {
                let norms = [".weight", ".bias"].map(|end| format!("{norm}{end}"));
                let norms = norms.iter().map(|name| canonical.of(name));
                found.add(norms, names.iter().copied(), strengths, factors);
            }
            found.norm_results.push(ScaledNorm { name: norm, feeds, power, share });
        }
        Ok(found)
    }
}

/// The strengths of columns, as roots of means of squares, to a power; their mean is 1, as orders of magnitude go.
fn factors(strengths: &[f32], power: f64) -> Vec<f32> {
    let logs = strengths.iter().map(|x| f64::from(*x).max(1e-12).ln());
    let mean = logs.clone().sum::<f64>() / strengths.len().max(1) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "factors are f32")]
    let factor = |log: f64| ((0.5 * power * (log - mean)).exp() as f32).clamp(1.0 / MOST, MOST);
    logs.map(factor).collect()
}

/// The matrices that norms of the residual stream feed, and those that none feeds, by canonical name.
#[derive(Default)]
struct Fed {
    /// By norm, without `.weight`.
    by_norm: BTreeMap<String, Vec<String>>,
    by_none: Vec<String>,
}

impl Fed {
    fn of(model: &Model) -> Result<Fed, String> {
        let Ok(architecture) = model.architecture() else {
            return Err(format!(
                "columns of a `{}` model cannot be scaled: it is not run",
                model.family.name()
            ));
        };
        let mut fed = Fed::default();
        for (path, computes) in architecture.modules() {
            let Computes::Residual(branches) = computes else { continue };
            for branch in branches {
                let norm = branch.norm.map(|norm| format!("{path}.{norm}"));
                let layer = format!("{path}.{}.", branch.layer);
                let inner = architecture.matrices().filter(|(at, _)| at.starts_with(&layer));
                for (stem, _) in inner.flat_map(|(_, matrix)| &matrix.parts) {
                    let name = format!("{stem}.weight");
                    // The last matrix of a layer gets heads, or what is activated.
                    let is_last = [".output", ".down"].iter().any(|end| stem.ends_with(end));
                    let list = match &norm {
                        Some(norm) if !is_last => fed.by_norm.entry(norm.clone()).or_default(),
                        _ => &mut fed.by_none,
                    };
                    // The model lists a fused matrix, and its parts too.
                    if !list.contains(&name) {
                        list.push(name);
                    }
                }
            }
        }
        Ok(fed)
    }
}

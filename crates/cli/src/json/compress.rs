//! `compress --json`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use weighbridge::convert::compress::{Choice, Compression, Tolerance};
use weighbridge::convert::{ConvertReport, Scaling};
use weighbridge::engine::eval::Agreement;

use super::eval::Estimate;
use super::{Real, Resident, real};
use crate::style::shown;

/// The document that `weighbridge compress --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compress<'a> {
    source: String,
    destination: String,
    /// The most bytes that the files may have.
    limit: u64,
    /// Bytes of all files; with `--plan`, an estimate that is a little more.
    bytes: u64,
    /// The number of values of all tensors.
    parameters: u64,
    /// Bits for each value.
    bits: Real,
    /// Tensors of an interrupted command that were kept.
    continued: usize,
    /// With `--zstd`, the number of arrays that are compressed.
    zstd_arrays: usize,
    /// By how many bytes that makes their files smaller.
    zstd_saved: u64,
    /// Files with the source's weights that are gone, by `--delete-source`.
    deleted: Vec<String>,
    /// False with `--plan`.
    written: bool,
    /// True with `--gptq`: codes were chosen so that errors make each other good.
    gptq: bool,
    /// How often the text was run for that; null without.
    gptq_passes: Option<usize>,
    /// The columns that were multiplied, with `--awq`; null without.
    awq: Option<Awq<'a>>,
    /// The KL divergence from the source that is expected of rounding alone, in nats; null if it is not known how much predictions
    /// depend on each matrix.
    expected_kl: Real,
    /// The measurement on the part of the text that was held back; null without a text.
    measured: Option<MeasuredCost>,
    /// How few bits another model of the family was measured to tolerate in this format; null if none was measured.
    tolerated: Option<Tolerated>,
    matrices: Vec<Matrix<'a>>,
    /// The foreseen memory is that of the largest step: the models that a text runs, or the largest tensor that is written.
    resident: Resident,
    seconds: Real,
}

/// The columns that were multiplied.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Awq<'a> {
    norms: Vec<ScaledNorm<'a>>,
    /// The matrices that no norm feeds: they keep their columns.
    without_norm: &'a [String],
}

/// A norm, and the columns of the matrices that it feeds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ScaledNorm<'a> {
    name: &'a str,
    feeds: &'a [String],
    /// The power of the strength of an input by which its column was multiplied; 0 if the norm and its matrices stay as they are.
    power: Real,
    /// The share of the squared error that is left.
    error_left: Real,
}

/// How far the result is from the source.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MeasuredCost {
    /// The KL divergence from the source to the result, in nats.
    kl: Estimate,
    /// The share of tokens for which both have the same most likely one.
    top1: Estimate,
    /// The perplexity of the result divided by that of the source.
    ratio: Estimate,
}

/// The fewest bits that another model tolerated.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Tolerated {
    family: &'static str,
    /// The model that was measured.
    model: &'static str,
    /// The day of the measurement.
    date: &'static str,
    /// The fewest bits for each value with which it stayed within the limits of `eval --gate default`; null if no size did.
    fewest_bits: Real,
    /// The result has fewer.
    fewer: bool,
}

/// A matrix, and what it becomes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Matrix<'a> {
    name: &'a str,
    shape: Vec<u64>,
    from: &'a str,
    to: &'a str,
    bytes: u64,
    /// Bits for each value.
    bits: Real,
    /// The largest magnitude of a row over the mean of that row, of the row where that is most.
    row_outlier: Real,
    /// The largest magnitude over the mean of all.
    outlier: Real,
    /// Why it may not become some of the encodings; empty if it may become any.
    policy: &'a str,
    candidates: Vec<Candidate<'a>>,
}

/// An encoding that a matrix may have.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Candidate<'a> {
    scheme: &'a str,
    bytes: u64,
    /// The error of the matrix's results: the root of the mean square, as a share of that of the results.
    error: Real,
    /// Its part of what is minimised: a divergence in nats where `expected_kl` is known.
    cost: Real,
}

impl<'a> Compress<'a> {
    /// Adds the ways in which it was made, and the files that are gone.
    pub(crate) fn made_by(
        self,
        (gptq, gptq_passes): (bool, Option<usize>),
        scaling: Option<&'a Scaling>,
        deleted: &[PathBuf],
    ) -> Compress<'a> {
        let awq = scaling.map(|scaling| Awq {
            norms: scaling
                .norm_results
                .iter()
                .map(|norm| ScaledNorm {
                    name: &norm.name,
                    feeds: &norm.feeds,
                    power: real(norm.power),
                    error_left: real(norm.share),
                })
                .collect(),
            without_norm: &scaling.without_norm,
        });
        let deleted = deleted.iter().map(|file| file.display().to_string()).collect();
        Compress { deleted, gptq, gptq_passes, awq, ..self }
    }

    pub(crate) fn of(
        (source, destination): (&Path, &Path),
        found: &'a Compression,
        bytes: u64,
        report: Option<&ConvertReport>,
        cost: Option<&Agreement>,
        resident: Resident,
    ) -> Compress<'a> {
        let written = report.map(|report| report.destination.to_string());
        Compress {
            source: shown(source),
            destination: written.unwrap_or_else(|| destination.display().to_string()),
            limit: found.limit,
            bytes,
            parameters: found.elements,
            bits: real(found.bits(bytes)),
            zstd_arrays: report.map_or(0, |report| report.zstd.arrays),
            zstd_saved: report.map_or(0, |report| report.zstd.saved),
            continued: report.map_or(0, |report| report.continued),
            deleted: vec![],
            written: report.is_some(),
            gptq: false,
            gptq_passes: None,
            awq: None,
            expected_kl: found.is_divergence.then_some(found.cost).and_then(real),
            measured: cost.map(|cost| MeasuredCost {
                kl: (cost.kl.mean(), cost.kl.error()).into(),
                top1: (cost.top1.mean(), cost.top1.error()).into(),
                ratio: cost.ratio().into(),
            }),
            tolerated: found.measured().map(|measured| {
                let fewest = Tolerance::shipped().fewest(measured);
                Tolerated {
                    family: &measured.family,
                    model: &measured.model,
                    date: &measured.date,
                    fewest_bits: fewest.and_then(|fewest| real(fewest.bits)),
                    fewer: fewest.is_none_or(|fewest| fewest.exceeds(found.bits(bytes))),
                }
            }),
            matrices: found.choices.iter().map(Matrix::from).collect(),
            resident,
            seconds: report.and_then(|report| real(report.seconds)),
        }
    }
}

impl<'a> From<&'a Choice> for Matrix<'a> {
    fn from(choice: &'a Choice) -> Matrix<'a> {
        let candidate = |c: &'a weighbridge::convert::compress::Candidate| Candidate {
            scheme: &c.scheme.name,
            bytes: c.bytes,
            error: real(c.error),
            cost: real(c.cost),
        };
        Matrix {
            name: &choice.name,
            shape: choice.shape.to_vec(),
            from: &choice.from,
            to: &choice.becomes().scheme.name,
            bytes: choice.becomes().bytes,
            bits: real(choice.bits()),
            row_outlier: real(choice.outliers.row),
            outlier: real(choice.outliers.tensor),
            policy: &choice.policy,
            candidates: choice.candidates.iter().map(candidate).collect(),
        }
    }
}

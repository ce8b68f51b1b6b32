//! Measurements of compressed models, by family, as data.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::OutputFormat;

/// Measurements of compressed models, and the tolerated loss. Written in TOML.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// The loss that is tolerated.
    pub limits: Limits,
    /// One for each family and format.
    pub measured: Vec<MeasuredFamily>,
}

/// The largest tolerated loss of a model against the one that it was made from, on a text that was not used to make it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The largest mean KL divergence, in nats a token.
    pub kl: f64,
    /// The least share of tokens with the same most likely one.
    pub top1: f64,
    /// The largest ratio of the perplexities.
    pub ratio: f64,
}

/// The loss of one model at several sizes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MeasuredFamily {
    /// The family, as `weighbridge inspect` has it.
    pub family: String,
    /// The format, by the name that [`OutputFormat::name`] gives it.
    pub format: String,
    /// The model that was measured, and what it was before.
    pub model: String,
    /// The day of the measurement.
    pub date: String,
    /// The smallest first.
    pub points: Vec<Point>,
}

/// One size and its loss.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Bits for each weight: of all files, over the values of all tensors.
    pub bits: f64,
    /// As [`Limits::kl`].
    pub kl: f64,
    /// As [`Limits::top1`].
    pub top1: f64,
    /// As [`Limits::ratio`].
    pub ratio: f64,
}

impl Tolerance {
    /// The table that comes with this crate.
    pub const SHIPPED: &'static str = include_str!("tolerance.toml");

    /// Returns [`Tolerance::SHIPPED`].
    pub fn shipped() -> &'static Tolerance {
        static SHIPPED: LazyLock<Tolerance> =
            LazyLock::new(|| toml::from_str(Tolerance::SHIPPED).unwrap_or_else(|e| unreachable!("{e}")));
        &SHIPPED
    }

    /// Returns what was measured of `family` in `format`, if anything was.
    pub fn of(&self, family: &str, format: OutputFormat) -> Option<&MeasuredFamily> {
        self.measured.iter().find(|measured| measured.family == family && measured.format == format.name())
    }

    /// Returns the smallest measured size of `measured` from which on no larger one loses too much.
    pub fn fewest<'a>(&self, measured: &'a MeasuredFamily) -> Option<&'a Point> {
        measured.points.iter().rev().take_while(|point| self.limits.allow(point)).last()
    }
}

impl Point {
    /// Returns true if this size has clearly more bits than `bits`: by more than a twentieth of one.
    pub fn exceeds(&self, bits: f64) -> bool {
        bits < self.bits - 0.05
    }
}

impl Limits {
    fn allow(&self, point: &Point) -> bool {
        point.kl <= self.kl && point.top1 >= self.top1 && point.ratio <= self.ratio
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { kl, top1, ratio } = self;
        write!(
            f,
            "a KL divergence of {kl}, {} % of tokens alike, {ratio} times the perplexity",
            (100.0 * top1).round()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_is_of_known_families_and_formats_by_size_and_documented() {
        let tolerance = Tolerance::shipped();
        let docs = include_str!("../../../../docs/compression.md");
        for measured in &tolerance.measured {
            let MeasuredFamily { family, format, points, .. } = measured;
            assert!(model::families().iter().any(|known| known.name() == family), "{family}");
            let formats = [OutputFormat::Gguf, OutputFormat::Mlx, OutputFormat::Hf, OutputFormat::NpyDir];
            assert!(formats.iter().any(|known| known.name() == format), "{format}");
            assert!(points.is_sorted_by(|a, b| a.bits < b.bits), "{family} in {format}");
            assert_eq!(
                tolerance.measured.iter().filter(|m| m.family == *family && m.format == *format).count(),
                1
            );
            for Point { bits, kl, top1, ratio } in points {
                let line = format!(
                    "| {family} | {format} | {bits:.2} | {kl:.4} | {:.1} % | {ratio:.3} |",
                    100.0 * top1
                );
                assert!(docs.contains(&line), "docs/compression.md is without\n{line}");
            }
        }
    }

    #[test]
    fn the_fewest_bits_are_those_from_which_on_all_are_good() {
        let point = |bits, kl| Point { bits, kl, top1: 0.9, ratio: 1.0 };
        let limits = Limits { kl: 0.05, top1: 0.85, ratio: 1.05 };
        let of = |points: Vec<Point>| {
            let of = |s: &str| s.to_owned();
            let measured =
                MeasuredFamily { family: of("f"), format: of("gguf"), model: of(""), date: of(""), points };
            let tolerance = Tolerance { limits, measured: vec![] };
            tolerance.fewest(&measured).map(|point| point.bits)
        };
        assert_eq!(of(vec![point(3.0, 0.2), point(4.0, 0.05), point(5.0, 0.01)]), Some(4.0));
        assert_eq!(of(vec![point(3.0, 0.01), point(4.0, 0.06), point(5.0, 0.01)]), Some(5.0));
        assert_eq!(of(vec![point(3.0, 0.2)]), None);
        assert_eq!(
            of(vec![Point { top1: 0.8, ..point(4.0, 0.0) }, Point { ratio: 1.06, ..point(5.0, 0.0) }]),
            None
        );
    }
}

//! Limits that an evaluation must keep.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use weighbridge::engine::eval::Evaluation;

use crate::failure::Failure;
use crate::json::{self, real};

/// The limits of a file, as it writes them.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Gates {
    /// The largest perplexity.
    perplexity: Option<f64>,
    /// The largest ratio of the perplexity to the reference's.
    ratio: Option<f64>,
    /// The largest mean of the KL divergence, in nats.
    kl: Option<f64>,
    /// The largest divergence of 99 % of the tokens, in nats.
    kl_99: Option<f64>,
    /// The least share of tokens with the same most likely one.
    top1: Option<f64>,
    /// The least share of the five most likely tokens in common.
    top5: Option<f64>,
}

/// A limit beside what was found.
pub(super) struct Verdict {
    name: &'static str,
    is_most: bool,
    limit: f64,
    found: f64,
}

impl Gates {
    /// Reads the file at `path`; `compared` if there is a reference.
    pub(super) fn read(path: &Path, compared: bool) -> Result<Gates, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
        Gates::parse(&text, compared).map_err(|what| Failure::Other(format!("`{shown}`: {what}")))
    }

    fn parse(text: &str, compared: bool) -> Result<Gates, String> {
        let gates: Gates = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let all = gates.limits();
        let set: Vec<(&str, f64)> = all.iter().filter_map(|(name, limit)| Some((*name, (*limit)?))).collect();
        if set.is_empty() {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            return Err(format!("no limit is given: wanted one of {}", names.join(", ")));
        }
        for (name, limit) in set {
            if !(limit.is_finite() && limit >= 0.0) {
                return Err(format!("`{name}` is {limit}: wanted a number, 0 or more"));
            }
            if name != "perplexity" && !compared {
                return Err(format!(
                    "`{name}` needs another model to compare with\nhint: add `--against MODEL`"
                ));
            }
        }
        Ok(gates)
    }

    fn limits(&self) -> [(&'static str, Option<f64>); 6] {
        let Gates { perplexity, ratio, kl, kl_99, top1, top5 } = *self;
        [
            ("perplexity", perplexity),
            ("ratio", ratio),
            ("kl", kl),
            ("kl_99", kl_99),
            ("top1", top1),
            ("top5", top5),
        ]
    }

    /// Each limit beside what was found.
    pub(super) fn judge(&self, result: &Evaluation) -> Vec<Verdict> {
        let against = result.against.as_ref();
        let found = |name| match name {
            "perplexity" => Some(result.perplexity().0),
            "ratio" => against.map(|a| a.ratio().0),
            "kl" => against.map(|a| a.kl.mean()),
            "kl_99" => against.map(|a| a.quantile(990).into()),
            "top1" => against.map(|a| a.top1.mean()),
            _ => against.map(|a| a.top5.mean()),
        };
        let verdict = |(name, limit): (&'static str, Option<f64>)| {
            let is_most = !matches!(name, "top1" | "top5");
            // What was not found passes nothing.
            Some(Verdict { name, is_most, limit: limit?, found: found(name).unwrap_or(f64::NAN) })
        };
        self.limits().into_iter().filter_map(verdict).collect()
    }
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        if self.is_most { self.found <= self.limit } else { self.found >= self.limit }
    }

    pub(super) fn json(&self) -> json::Gate<'_> {
        json::Gate {
            name: self.name,
            is_most: self.is_most,
            limit: self.limit,
            found: real(self.found),
            passed: self.passed(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = if self.passed() { "passed" } else { "MISSED" };
        let bound = if self.is_most { "at most" } else { "at least" };
        write!(f, "gate {}: {passed}, {:.6} of {bound} {}", self.name, self.found, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_mean_nothing_are_refused() {
        for (text, compared, says) in [
            ("", true, "no limit is given"),
            ("perplexty = 3", true, "unknown field"),
            ("kl = 0.1", false, "needs another model"),
            ("top1 = nan", true, "wanted a number"),
            ("kl = -1", true, "wanted a number"),
            ("kl = 'x'", true, "invalid type"),
        ] {
            let error = Gates::parse(text, compared).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert_eq!(Gates::parse("perplexity = 20", false).unwrap().perplexity, Some(20.0));
    }

    #[test]
    fn limits_are_the_most_or_the_least_and_nothing_else_passes() {
        let verdict = |name, is_most, limit, found| Verdict { name, is_most, limit, found };
        for (is_most, limit, found, passed) in [
            (true, 1.0, 1.0, true),
            (true, 1.0, 1.1, false),
            (false, 0.9, 0.9, true),
            (false, 0.9, 0.8, false),
            (true, 1.0, f64::NAN, false),
            (false, 0.0, f64::NAN, false),
        ] {
            assert_eq!(verdict("kl", is_most, limit, found).passed(), passed, "{is_most} {limit} {found}");
        }
    }
}

//! Limits on the encodings of each tensor, as data.

use std::path::Path;

use serde::Deserialize;
use tensor::Diagnostic;

use super::Outliers;
use crate::Error;

/// Limits on the encodings of each tensor. Written in TOML; see [`Policy::DEFAULT`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The bits of tensors with values that stand out.
    #[serde(default)]
    pub outliers: OutlierPolicy,
    /// Rules by name; the first that matches decides.
    #[serde(default, rename = "rule")]
    pub rules: Vec<PolicyRule>,
}

/// When values stand out, and the fewest bits of a tensor that has some.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct OutlierPolicy {
    /// A row has an outlier if its largest magnitude is more than this many times the mean.
    pub row: f64,
    /// The fewest bits of a tensor with such rows.
    pub row_bits: f64,
    /// A tensor has super-weights if its largest magnitude is more than this many times the mean of all.
    pub tensor: f64,
    /// The fewest bits of such a tensor.
    pub tensor_bits: f64,
}

/// Limits on tensors of some names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRule {
    /// The names: `*` matches any characters.
    #[serde(rename = "match")]
    pub pattern: String,
    /// They stay as they are stored.
    pub keep: bool,
    /// The fewest bits for a value.
    pub least_bits: Option<f64>,
    /// The most.
    pub most_bits: Option<f64>,
    /// Encodings by name; any if there are none.
    pub schemes: Vec<String>,
}

impl Default for OutlierPolicy {
    fn default() -> OutlierPolicy {
        OutlierPolicy { row: f64::INFINITY, row_bits: 0.0, tensor: f64::INFINITY, tensor_bits: 0.0 }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::parse(Policy::DEFAULT).unwrap_or_else(|what| unreachable!("{what}"))
    }
}

/// The limits on one tensor.
pub(super) struct Allowed<'a> {
    rule: Option<&'a PolicyRule>,
    least: f64,
    pub(super) why: String,
}

impl Policy {
    /// The policy that is used without another.
    pub const DEFAULT: &'static str = include_str!("policy.toml");

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no policy.
    pub fn read(path: impl AsRef<Path>) -> Result<Policy, Error> {
        let path = path.as_ref();
        let wrong = |what: String| Error::Policy { path: path.display().to_string(), what };
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        Policy::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Policy, String> {
        let policy: Policy = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        for rule in &policy.rules {
            let named = |what: String| format!("the rule for `{}`: {what}", rule.pattern);
            if rule.pattern.is_empty() {
                return Err("a rule has no `match`: the names that it is for".to_owned());
            }
            if let Some(name) = rule.schemes.iter().find(|name| quant::scheme(name).is_none()) {
                return Err(named(format!("there is no encoding `{name}`")));
            }
            let limits = [rule.least_bits, rule.most_bits];
            if limits.iter().flatten().any(|bits| !bits.is_finite() || *bits < 0.0) {
                return Err(named("wanted bits from 0 on".to_owned()));
            }
            if rule.keep && (limits.iter().any(Option::is_some) || !rule.schemes.is_empty()) {
                return Err(named("`keep` leaves nothing to choose".to_owned()));
            }
            if !rule.keep && limits.iter().all(Option::is_none) && rule.schemes.is_empty() {
                return Err(named("wanted `keep`, `least_bits`, `most_bits` or `schemes`".to_owned()));
            }
        }
        Ok(policy)
    }

    /// Returns the limits on the tensor called `name`, stored in `from`.
    pub(super) fn allowed(&self, name: &str, outliers: Outliers, from: &str) -> Allowed<'_> {
        let rule = self.rules.iter().find(|rule| matches(&rule.pattern, name));
        let (mut least, mut why) = (0.0f64, vec![]);
        if let Some(rule) = rule {
            least = rule.least_bits.unwrap_or(0.0);
            why.push(rule.text(from));
        }
        let OutlierPolicy { row, row_bits, tensor, tensor_bits } = self.outliers;
        if outliers.tensor > tensor && tensor_bits > least {
            least = tensor_bits;
            let times = outliers.tensor;
            why.push(format!("a super-weight of {times:.0} times the mean: at least {tensor_bits} bits"));
        }
        if outliers.row > row && row_bits > least {
            least = row_bits;
            why.push(format!(
                "a row's largest is {:.0} times its mean: at least {row_bits} bits",
                outliers.row
            ));
        }
        Allowed { rule, least, why: why.join("; ") }
    }

    /// Checks that every rule matches one of `names`.
    pub(super) fn used<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Result<(), Error> {
        let unused = self.rules.iter().filter(|rule| !names.clone().any(|name| matches(&rule.pattern, name)));
        let unused: Vec<String> = unused.map(|rule| format!("`{}`", rule.pattern)).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let what = format!("the policy's rule for {} matches no matrix of the result", unused.join(", "));
        Err(Error::Convert { what: Diagnostic::new(what).into() })
    }
}

impl PolicyRule {
    fn text(&self, from: &str) -> String {
        let mut parts = vec![];
        if self.keep {
            parts.push(format!("stays {from}"));
        }
        parts.extend(self.least_bits.map(|bits| format!("at least {bits} bits")));
        parts.extend(self.most_bits.map(|bits| format!("at most {bits} bits")));
        if !self.schemes.is_empty() {
            parts.push(format!("one of {}", self.schemes.join(", ")));
        }
        format!("`{}`: {}", self.pattern, parts.join(", "))
    }
}

impl Allowed<'_> {
    /// Whether a tensor may become `scheme`, which has `bits` for a value and is what it `is` already, or is not.
    pub(super) fn takes(&self, scheme: &str, bits: f64, is: bool) -> bool {
        let by_rule = self.rule.is_none_or(|rule| {
            (!rule.keep || is)
                && rule.most_bits.is_none_or(|most| bits <= most)
                && (rule.schemes.is_empty() || rule.schemes.iter().any(|name| name == scheme))
        });
        // What it is loses nothing, however few bits it has.
        by_rule && (bits >= self.least || is)
    }
}

/// Whether all of `name` fits `pattern`.
fn matches(pattern: &str, name: &str) -> bool {
    planner::encoding::glob(pattern, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides_and_outliers_ask_for_bits() {
        let policy = Policy::parse(
            "[outliers]\nrow = 20\nrow_bits = 5\ntensor = 100\ntensor_bits = 8\n\
             [[rule]]\nmatch = 'a.*'\nleast_bits = 6\n[[rule]]\nmatch = '*'\nschemes = ['q4_0', 'q8_0']\nmost_bits = 9",
        )
        .unwrap();
        let says = |name: &str, row: f64, tensor: f64, scheme: &str, bits: f64| {
            policy.allowed(name, Outliers { row, tensor }, "bf16").takes(scheme, bits, false)
        };
        assert!(says("a.b", 1.0, 1.0, "q6_k", 6.5) && !says("a.b", 1.0, 1.0, "q4_0", 4.5));
        assert!(says("b", 1.0, 1.0, "q4_0", 4.5) && !says("b", 1.0, 1.0, "q6_k", 6.5));
        assert!(!says("b", 21.0, 1.0, "q4_0", 4.5) && says("b", 21.0, 1.0, "q8_0", 8.5));
        assert!(!says("a.b", 1.0, 101.0, "q6_k", 6.5) && says("a.b", 1.0, 101.0, "q8_0", 8.5));
        let why = policy.allowed("a.b", Outliers { row: 21.0, tensor: 101.0 }, "bf16").why;
        assert_eq!(why, "`a.*`: at least 6 bits; a super-weight of 101 times the mean: at least 8 bits");
        let unused = policy.used(["b"].into_iter()).unwrap_err().to_string();
        assert_eq!(unused, "the policy's rule for `a.*` matches no matrix of the result");
        assert!(policy.used(["a.b", "b"].into_iter()).is_ok());
    }

    #[test]
    fn a_policy_says_what_is_wrong_with_it() {
        for (text, part) in [
            ("rules = 1", "unknown field `rules`"),
            ("[[rule]]\nkeep = true", "a rule has no `match`"),
            ("[[rule]]\nmatch = 'x'", "wanted `keep`"),
            ("[[rule]]\nmatch = 'x'\nkeep = true\nleast_bits = 3", "nothing to choose"),
            ("[[rule]]\nmatch = 'x'\nschemes = ['q9']", "there is no encoding `q9`"),
            ("[[rule]]\nmatch = 'x'\nleast_bits = -1", "wanted bits from 0 on"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(Policy::default().rules, []);
    }
}

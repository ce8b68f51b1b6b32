//! Limits that an evaluation must keep.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use weighbridge::convert::compress::{Limits, Tolerance};
use weighbridge::engine::eval::{Evaluation, Task};

use super::eval::tasks::{self, Answered};
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
    /// Limits of tasks, by name.
    #[serde(default)]
    task: BTreeMap<String, TaskGates>,
}

/// The limits of a task.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct TaskGates {
    /// The least accuracy.
    acc: Option<f64>,
    /// The least accuracy by normalised log-likelihoods.
    acc_norm: Option<f64>,
    /// The least share of questions that the reference answers alike.
    same: Option<f64>,
}

/// What an evaluation will find.
pub(super) struct Scope<'a> {
    /// Whether there is a text.
    pub(super) text: bool,
    /// Whether there is a reference.
    pub(super) compared: bool,
    pub(super) tasks: &'a [Task],
}

/// A limit beside what was found.
pub(super) struct Verdict {
    name: String,
    is_most: bool,
    limit: f64,
    found: f64,
}

impl Gates {
    /// Reads the file at `path`. `default` is no file, but what the measurements that come with `compress` were held against.
    pub(super) fn read(path: &Path, scope: &Scope<'_>) -> Result<Gates, Failure> {
        if path == Path::new("default") {
            let Limits { kl, top1, ratio } = Tolerance::shipped().limits;
            let gates = Gates { kl: Some(kl), top1: Some(top1), ratio: Some(ratio), ..Gates::default() };
            return gates.checked(scope).map_err(|what| Failure::Other(format!("the default gate: {what}")));
        }
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
        Gates::parse(&text, scope).map_err(|what| Failure::Other(format!("`{shown}`: {what}")))
    }

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Gates, String> {
        let gates: Gates = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        gates.checked(scope)
    }

    /// These, if each means something and will be found.
    fn checked(self, scope: &Scope<'_>) -> Result<Gates, String> {
        let gates = self;
        let of_tasks =
            gates.task.iter().flat_map(|(task, limits)| set(limits.limits()).map(move |l| (task, l)));
        let of_tasks: Vec<(&String, (&str, f64))> = of_tasks.collect();
        if set(gates.limits()).next().is_none() && of_tasks.is_empty() {
            let names = gates.limits().map(|(name, _)| name).join(", ");
            return Err(format!("no limit is given: wanted one of {names}, or a table [task.NAME]"));
        }
        for (name, limit) in set(gates.limits()) {
            checked(name, limit)?;
            if !scope.text {
                return Err(format!("`{name}` needs a text\nhint: add `--file TEXT`"));
            }
            if name != "perplexity" && !scope.compared {
                return Err(uncompared(name));
            }
        }
        for (task, (name, limit)) in of_tasks {
            let name_here = qualified(task, name);
            checked(&name_here, limit)?;
            let mut names = scope.tasks.iter().map(tasks::name);
            if !names.any(|name| name == task) {
                return Err(format!("`{name_here}` needs the task\nhint: add `--task {task}.jsonl`"));
            }
            if name == "same" && !scope.compared {
                return Err(uncompared(&name_here));
            }
        }
        Ok(gates)
    }

    fn limits(&self) -> [(&'static str, Option<f64>); 6] {
        let Gates { perplexity, ratio, kl, kl_99, top1, top5, task: _ } = *self;
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
    pub(super) fn judge(&self, text: Option<&Evaluation>, tasks: &[Answered<'_>]) -> Vec<Verdict> {
        let against = text.and_then(|text| text.against.as_ref());
        let found = |name| match name {
            "perplexity" => text.map(|text| text.perplexity().0),
            "ratio" => against.map(|a| a.ratio().0),
            "kl" => against.map(|a| a.kl.mean()),
            "kl_99" => against.map(|a| a.quantile(990).into()),
            "top1" => against.map(|a| a.top1.mean()),
            _ => against.map(|a| a.top5.mean()),
        };
        let of_text = set(self.limits()).map(|(name, limit)| {
            let is_most = !matches!(name, "top1" | "top5");
            // What was not found passes nothing.
            Verdict { name: name.to_owned(), is_most, limit, found: found(name).unwrap_or(f64::NAN) }
        });
        let mut verdicts: Vec<Verdict> = of_text.collect();
        for task in tasks {
            let limits = self.task.get(task.name()).map(TaskGates::limits);
            verdicts.extend(limits.into_iter().flat_map(set).map(|(name, limit)| Verdict {
                name: qualified(task.name(), name),
                is_most: false,
                limit,
                found: task.figure(name),
            }));
        }
        verdicts
    }
}

impl TaskGates {
    fn limits(&self) -> [(&'static str, Option<f64>); 3] {
        [("acc", self.acc), ("acc_norm", self.acc_norm), ("same", self.same)]
    }
}

/// The limits that are given.
fn set<const N: usize>(
    limits: [(&'static str, Option<f64>); N],
) -> impl Iterator<Item = (&'static str, f64)> {
    limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
}

/// A limit of a task, as a path into the file.
fn qualified(task: &str, name: &str) -> String {
    format!("task.{task}.{name}")
}

fn checked(name: &str, limit: f64) -> Result<(), String> {
    if limit.is_finite() && limit >= 0.0 {
        return Ok(());
    }
    Err(format!("`{name}` is {limit}: wanted a number, 0 or more"))
}

fn uncompared(name: &str) -> String {
    format!("`{name}` needs another model to compare with\nhint: add `--against MODEL`")
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        if self.is_most { self.found <= self.limit } else { self.found >= self.limit }
    }

    pub(super) fn json(&self) -> json::Gate {
        json::Gate {
            name: self.name.clone(),
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
    use weighbridge::engine::eval::parse;

    #[test]
    fn gates_that_mean_nothing_are_refused() {
        let row = r#"{"question":"","subject":"","choices":["","","",""],"answer":0}"#;
        let tasks = parse(&[("a/t.jsonl".to_owned(), row.to_owned())]).unwrap();
        for (text, compared, says) in [
            ("", true, "no limit is given"),
            ("[task.arc]", true, "no limit is given"),
            ("[task.arc]\nacc = 0.5", true, "`task.arc.acc` needs the task"),
            ("[task.t]\nsame = 0.5", false, "needs another model"),
            ("[task.t]\nacc = -1", true, "`task.t.acc` is -1"),
            ("[task.t]\nkl = 1", true, "unknown field"),
            ("perplexty = 3", true, "unknown field"),
            ("kl = 0.1", false, "needs another model"),
            ("top1 = nan", true, "wanted a number"),
            ("kl = -1", true, "wanted a number"),
            ("kl = 'x'", true, "invalid type"),
        ] {
            let scope = Scope { text: true, compared, tasks: &tasks };
            let error = Gates::parse(text, &scope).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let scope = Scope { text: true, compared: false, tasks: &tasks };
        assert_eq!(Gates::parse("perplexity = 20", &scope).unwrap().perplexity, Some(20.0));
        let acc = Gates::parse("[task.t]\nacc = 0.5", &scope).unwrap().task["t"].acc;
        assert_eq!(acc, Some(0.5));
        let scope = Scope { text: false, ..scope };
        assert!(Gates::parse("perplexity = 20", &scope).unwrap_err().contains("needs a text"));
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
            assert_eq!(
                verdict("kl".to_owned(), is_most, limit, found).passed(),
                passed,
                "{is_most} {limit} {found}"
            );
        }
    }
}

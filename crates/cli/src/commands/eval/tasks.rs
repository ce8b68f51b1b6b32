//! The multiple-choice tasks of an evaluation.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use weighbridge::engine::eval::{EncodedTask, Mean, Score, Task, encode, parse, score};
use weighbridge::engine::text;
use weighbridge::tensor::counted;
use weighbridge::{Checkpoint, describe};

use super::{Side, pair};
use crate::estimate::interval;
use crate::failure::Failure;
use crate::json;
use crate::progress::Line;
use crate::style;

/// Reads the tasks, and notes on stderr which fields have no effect.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Task>, Failure> {
    let file = |path: &PathBuf| Ok((path.display().to_string(), super::text(path)?));
    let tasks = parse(&paths.iter().map(file).collect::<Result<Vec<_>, Failure>>()?)?;
    for task in &tasks {
        for (field, line) in &task.unknown {
            let note = format!("`{}:{line}`: the field `{field}` is unknown, and has no effect", task.path);
            // If nobody reads it, nothing else can be done.
            let _ = writeln!(std::io::stderr().lock(), "{}", style::note(&note));
        }
    }
    Ok(tasks)
}

/// The tasks in the tokens of a model, whose context is `most` positions unless it says how many.
pub(super) fn encoded(
    tasks: &[Task],
    checkpoint: &Checkpoint,
    most: Option<usize>,
) -> Result<Vec<EncodedTask>, Failure> {
    let positions = match most {
        Some(most) => most,
        // A model that cannot be run is refused when it is started.
        None => describe(checkpoint)?
            .architecture()
            .map_or(usize::MAX, |architecture| usize::try_from(architecture.context()).unwrap_or(usize::MAX)),
    };
    Ok(encode(tasks, &text::tokenizer(checkpoint)?, positions)?)
}

/// How a model answers a task, and how another does.
pub(in crate::commands) struct Answered<'a> {
    task: &'a Task,
    side: Half,
    against: Option<Half>,
}

/// The answers of one model.
struct Half {
    score: Score,
    /// Questions that did not fit into the context.
    truncated: usize,
}

/// Scores all tasks by `model`, and by `reference` if there is one.
pub(super) fn answered<'a>(
    tasks: &'a [Task],
    model: &mut Side,
    mut reference: Option<&mut Side>,
) -> Result<Vec<Answered<'a>>, Failure> {
    let mut all = vec![];
    for (n, task) in tasks.iter().enumerate() {
        let side = half(model, n, task)?;
        let against = reference.as_mut().map(|reference| half(reference, n, task)).transpose()?;
        all.push(Answered { task, side, against });
    }
    Ok(all)
}

/// Scores task `n`.
fn half(side: &mut Side, n: usize, task: &Task) -> Result<Half, Failure> {
    let (line, encoded) = (Line::new(), &side.tasks[n]);
    let result = score(&mut side.runtime.predictor(), encoded, &mut |so_far| {
        let (done, all) = (so_far.acc.count(), task.questions.len());
        line.show(|| format!("[{done}/{all}] {} acc {:.2} %", task.path, so_far.acc.mean() * 100.0));
    });
    line.clear();
    Ok(Half { score: result?, truncated: encoded.truncated })
}

/// The name of a task: that of its file.
pub(in crate::commands) fn name(task: &Task) -> &str {
    Path::new(&task.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(&task.path)
}

impl Answered<'_> {
    /// The name of the task.
    pub(in crate::commands) fn name(&self) -> &str {
        name(self.task)
    }

    /// A figure by its name in a gate; NaN if it was not found.
    pub(in crate::commands) fn figure(&self, name: &str) -> f64 {
        let mean = match name {
            "acc" => Some(self.side.score.acc),
            "acc_norm" => self.side.score.acc_norm,
            _ => self.same().map(|(same, _)| same),
        };
        mean.map_or(f64::NAN, |mean| mean.mean())
    }

    fn same(&self) -> Option<(Mean, Option<Mean>)> {
        self.against.as_ref().map(|other| self.side.score.same(&other.score))
    }

    pub(super) fn json(&self) -> json::EvalTask {
        let estimate = |mean: &Mean| pair(mean).into();
        let Half { score, truncated } = &self.side;
        let against =
            self.against.as_ref().zip(self.same()).map(|(other, (same, same_norm))| json::EvalTaskAgainst {
                acc: estimate(&other.score.acc),
                acc_norm: other.score.acc_norm.as_ref().map(estimate),
                truncated: other.truncated,
                same: estimate(&same),
                same_norm: same_norm.as_ref().map(estimate),
            });
        json::EvalTask {
            path: self.task.path.clone(),
            name: self.name().to_owned(),
            kind: self.task.kind.into(),
            questions: self.task.questions.len(),
            truncated: *truncated,
            acc: estimate(&score.acc),
            acc_norm: score.acc_norm.as_ref().map(estimate),
            unknown_fields: self.task.unknown.iter().map(|(field, _)| field.clone()).collect(),
            against,
        }
    }

    pub(super) fn shown(&self) -> String {
        let Answered { task, side, .. } = self;
        let questions = counted(task.questions.len(), "question");
        format!("  {} ({}, {questions}): {}", task.path, task.kind.name(), side.figures())
    }

    pub(super) fn shown_against(&self) -> Option<String> {
        let (other, (same, same_norm)) = (self.against.as_ref()?, self.same()?);
        let percent = |mean: &Mean| interval(pair(mean), 2, 100.0);
        let normed = same_norm.map_or_else(String::new, |mean| format!(", by acc_norm {} %", percent(&mean)));
        Some(format!("  {}: {}; same choice {} %{normed}", self.task.path, other.figures(), percent(&same)))
    }
}

impl Half {
    fn figures(&self) -> String {
        let percent = |name: &str, mean: &Mean| format!("{name} {} %", interval(pair(mean), 2, 100.0));
        let mut out = percent("acc", &self.score.acc);
        if let Some(mean) = &self.score.acc_norm {
            out = format!("{out}, {}", percent("acc_norm", mean));
        }
        match self.truncated {
            0 => out,
            n => format!("{out}, {} cut to the context", counted(n, "question")),
        }
    }
}

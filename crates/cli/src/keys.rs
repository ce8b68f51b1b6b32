//! What becomes of the keys of a checkpoint, for people.

use serde_json::{Value, json};
use weighbridge::{Checkpoint, Covered, Model, Verdict, coverage};

use crate::Failure;

/// Keys that nobody here knows, or whose values nothing here follows.
pub(crate) struct Doubts {
    all: Vec<Covered>,
}

impl Doubts {
    /// Looks at every key.
    pub(crate) fn of(checkpoint: &Checkpoint, model: &Model) -> Result<Doubts, Failure> {
        Ok(Doubts { all: coverage(checkpoint, model)? })
    }

    /// Refuses them, if that was asked for.
    pub(crate) fn unless(self, strict: bool) -> Result<Doubts, Failure> {
        let lines = self.lines();
        if !strict || lines.is_empty() {
            return Ok(self);
        }
        Err(Failure::Other(format!(
            "not every key of the checkpoint is known and followed:\n{}\nhint: without --strict they are listed only",
            lines.join("\n")
        )))
    }

    /// A line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.all.iter().filter_map(line).collect()
    }

    /// All keys, with what becomes of them.
    pub(crate) fn json(&self) -> Value {
        self.all.iter().map(typed).collect()
    }
}

fn line(key: &Covered) -> Option<String> {
    let Covered { file, key, value, verdict } = key;
    match verdict {
        Verdict::Unknown => Some(format!("unknown key in {file}: `{key}` = {value}")),
        Verdict::NotFollowed { wanted } => {
            Some(format!("not followed, in {file}: `{key}` is {value}, wanted {wanted}"))
        }
        Verdict::Used | Verdict::Checked | Verdict::WithoutEffect(_) => None,
    }
}

fn typed(key: &Covered) -> Value {
    let (verdict, why) = match &key.verdict {
        Verdict::Used => ("used", Value::Null),
        Verdict::Checked => ("checked", Value::Null),
        Verdict::NotFollowed { wanted } => ("not_followed", json!(format!("wanted {wanted}"))),
        Verdict::WithoutEffect(why) => ("without_effect", json!(why)),
        Verdict::Unknown => ("unknown", Value::Null),
    };
    json!({"file": key.file, "key": key.key, "value": key.value, "verdict": verdict, "why": why})
}

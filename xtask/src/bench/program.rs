//! The programs that are measured, and what they print.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A prompt to read or a text to decode, of a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Prefill(u32),
    Decode(u32),
}

impl Task {
    pub(super) fn tokens(self) -> u32 {
        match self {
            Self::Prefill(tokens) | Self::Decode(tokens) => tokens,
        }
    }
}

/// The result of one run.
#[derive(Debug, PartialEq)]
pub(super) struct Run {
    pub(super) tokens_per_second: f64,
    /// The limits that the program measured. `llama-bench` measures none.
    pub(super) ceiling: Option<Ceiling>,
}

/// The limits of the machine, and the shares of them that the run reached.
#[derive(Debug, PartialEq)]
pub(super) struct Ceiling {
    pub(super) read_bytes_per_second: f64,
    pub(super) share_of_read: f64,
    pub(super) products_share: f64,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Ours,
    Before,
    /// `llama-bench`.
    Peer,
}

pub(super) struct Program {
    name: String,
    path: PathBuf,
    kind: Kind,
}

impl Program {
    pub(super) fn ours(name: &str, path: &Path) -> Self {
        Self { name: name.into(), path: path.into(), kind: Kind::Ours }
    }

    pub(super) fn before(path: &Path) -> Self {
        Self { name: "before".into(), path: path.into(), kind: Kind::Before }
    }

    pub(super) fn peer(name: &str, path: &Path) -> Self {
        Self { name: name.into(), path: path.into(), kind: Kind::Peer }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_peer(&self) -> bool {
        self.kind == Kind::Peer
    }

    pub(super) fn is_before(&self) -> bool {
        self.kind == Kind::Before
    }

    /// An error where there is no such program, before anything is measured.
    pub(super) fn check(&self) -> Result<()> {
        if !self.path.is_file() {
            bail!("there is no program {}", self.path.display());
        }
        Ok(())
    }

    /// Runs a task once, after a first time that does not count.
    pub(super) fn run(&self, model: &Path, task: Task, threads: usize) -> Result<Run> {
        let mut command = Command::new(&self.path);
        if self.is_peer() {
            let [prompt, generate] = match task {
                Task::Prefill(tokens) => [tokens, 0],
                Task::Decode(tokens) => [0, tokens],
            };
            command.arg("-m").arg(model).args(["-r", "1", "-o", "json"]);
            command.args(["-p", &prompt.to_string(), "-n", &generate.to_string()]);
            command.args(["-t", &threads.to_string()]);
            return peer_run(&json(&mut command)?);
        }
        let [prompt, generate] = match task {
            Task::Prefill(tokens) => [tokens, 1],
            Task::Decode(tokens) => [1, tokens],
        };
        command.arg("bench").arg(model).args(["--repeat", "1", "--no-tune", "--json"]);
        command.args(["--prefill", &prompt.to_string(), "--decode", &generate.to_string()]);
        command.args(["--threads", &threads.to_string()]);
        our_run(&json(&mut command)?, task)
    }
}

/// Reads what `weighbridge bench --json` prints.
fn our_run(output: &Value, task: Task) -> Result<Run> {
    let field = |of: &Value, name: &str| {
        of[name].as_f64().with_context(|| format!("`weighbridge bench` gave no `{name}`"))
    };
    let speed = match task {
        Task::Prefill(_) => "prefill_tokens_per_second",
        Task::Decode(_) => "decode_tokens_per_second",
    };
    let ceiling = &output["ceiling"];
    let ceiling = if ceiling.is_null() {
        None
    } else {
        Some(Ceiling {
            read_bytes_per_second: field(ceiling, "read_bytes_per_second")?,
            share_of_read: field(ceiling, "decode_share_of_read")?,
            products_share: field(ceiling, "products_share_of_prefill")?,
        })
    };
    Ok(Run { tokens_per_second: field(output, speed)?, ceiling })
}

/// Reads what `llama-bench -o json` prints: a row a test.
fn peer_run(rows: &Value) -> Result<Run> {
    let tokens_per_second = rows[0]["avg_ts"].as_f64().context("`llama-bench` gave no `avg_ts`")?;
    Ok(Run { tokens_per_second, ceiling: None })
}

fn json(command: &mut Command) -> Result<Value> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = said.trim_end().lines().rev().take(3).collect();
        bail!(
            "`{name}` ended with {}\n{}",
            output.status,
            last.into_iter().rev().collect::<Vec<_>>().join("\n")
        );
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("`{name}` printed no JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_programs_print_is_read() {
        let rows = serde_json::json!([{"n_prompt": 0, "n_gen": 64, "avg_ts": 100.25}]);
        assert_eq!(peer_run(&rows).unwrap(), Run { tokens_per_second: 100.25, ceiling: None });
        assert!(peer_run(&serde_json::json!([])).is_err());

        let mut ours = serde_json::json!({
            "prefill_tokens_per_second": 200.0,
            "decode_tokens_per_second": 50.0,
            "ceiling": {"read_bytes_per_second": 4e10, "decode_share_of_read": 0.9, "products_share_of_prefill": 0.8}
        });
        let run = our_run(&ours, Task::Decode(8)).unwrap();
        assert_eq!((run.tokens_per_second, run.ceiling.unwrap().share_of_read), (50.0, 0.9));
        ours["ceiling"] = Value::Null;
        assert_eq!(
            our_run(&ours, Task::Prefill(8)).unwrap(),
            Run { tokens_per_second: 200.0, ceiling: None }
        );
        assert!(our_run(&serde_json::json!({}), Task::Decode(8)).is_err());
    }
}

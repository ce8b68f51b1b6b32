//! `weighbridge`: opens any checkpoint, proves that it fits the model, and runs it.

mod args;
mod commands;
mod isolate;
mod keys;
mod progress;
mod style;
mod tuned;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// The model or a file is wrong.
const FAILURE: u8 = 1;
/// The command line is wrong. clap uses the same.
const USAGE: u8 = 2;
/// `diff` could not tell: 1 is that there are differences, as for diff(1) and cmp(1).
const TROUBLE: u8 = 2;

/// Lists the commands that work on a model that no family claims.
const UNKNOWN: &str = "its tensors can be had all the same: `inspect`, `check` and `diff` look at them, `plan` and `load` take \
                       them with `--layout source`, `convert` writes them under their own names as npz, safetensors or npy-dir";

/// Why a command failed.
enum Failure {
    /// The model or a file is wrong.
    Model(weighbridge::Error),
    /// The command line asks for what cannot be.
    Usage(String),
    /// The same, as a message.
    Other(String),
    /// What was asked about is wrong, and the output says so.
    Found,
    /// Standard output or input failed.
    Io(std::io::Error),
}

impl From<weighbridge::Error> for Failure {
    fn from(error: weighbridge::Error) -> Self {
        Failure::Model(error)
    }
}

impl From<weighbridge::LoadError> for Failure {
    fn from(error: weighbridge::LoadError) -> Self {
        Failure::Model(error.into())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Io(error)
    }
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == isolate::COMMAND) {
        return isolate::process();
    }
    let args = Args::parse();
    // Without it, the system's own word on a file that shrinks has to do.
    let _ = weighbridge::Io::guard_maps(FAILURE, "hint: `--io pread` reads a file without mapping it");
    let result = match &args.command {
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Load(args) => commands::load::run(args),
        Command::Run(args) => commands::run::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Convert(args) => commands::convert::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Diff(args) => commands::diff::run(args),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Tune(args) => commands::tune::run(args),
        Command::Quants(args) => commands::quants::run(args),
        Command::Completions { shell } => commands::manual::completions(*shell),
        Command::Man => commands::manual::man(),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Found) => return ExitCode::from(FAILURE),
        // The reader went away (`| head`): nothing is wrong.
        Err(Failure::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(Failure::Io(e)) => (e.to_string(), FAILURE),
        Err(Failure::Model(e @ weighbridge::Error::Plan { .. })) => {
            let hint = match &e {
                weighbridge::Error::Plan { problems, .. } if problems.rule().is_some() => {
                    "put the rule in a file, and give that with `--rules FILE`"
                }
                weighbridge::Error::Plan { backbone: true, .. } => {
                    "`--allow-missing output.weight` does that"
                }
                _ => "`weighbridge inspect --tensors` lists what the checkpoint holds",
            };
            (format!("{e}\nhint: {hint}"), FAILURE)
        }
        Err(Failure::Model(e @ weighbridge::Error::Ambiguous { .. })) => {
            (format!("{e}\nhint: put the rule in a file, and give that with `--rules FILE`"), FAILURE)
        }
        Err(Failure::Model(e)) if e.is_unknown_model() => (format!("{e}\nhint: {UNKNOWN}"), FAILURE),
        Err(Failure::Model(e @ weighbridge::Error::Requantize { .. })) => {
            (format!("{e} with `--allow-requantize`"), USAGE)
        }
        Err(Failure::Model(e @ weighbridge::Error::Lost { .. })) => (with_allowance(&e), FAILURE),
        Err(Failure::Model(e)) => (e.to_string(), if e.is_misuse() { USAGE } else { FAILURE }),
        Err(Failure::Other(e)) => (e, FAILURE),
        Err(Failure::Usage(e)) => (e, USAGE),
    };
    let code = if matches!(args.command, Command::Diff(_)) { TROUBLE } else { code };
    let mut stderr = std::io::stderr().lock();
    // If stderr is gone too, the exit code has to do.
    let _ = writeln!(stderr, "{}", style::error(&message));
    ExitCode::from(code)
}

/// The error, with the option that allows the losses.
fn with_allowance(error: &weighbridge::Error) -> String {
    let weighbridge::Error::Lost { losses, .. } = error else { return error.to_string() };
    let keys: Vec<&str> = losses.iter().map(|loss| loss.key.as_str()).collect();
    if keys.is_empty() {
        return format!("{error}\nhint: leave it out of --allow-loss");
    }
    format!("{error}\nhint: --allow-loss {} converts all the same", keys.join(","))
}

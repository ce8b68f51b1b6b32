//! `weighbridge`: opens any checkpoint, proves that it fits the model, and runs it.

mod args;
mod commands;
mod failure;
mod isolate;
mod keys;
mod progress;
mod style;
mod tuned;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::{Failure, UNKNOWN};

/// The model or a file is wrong.
const FAILURE: u8 = 1;
/// The command line is wrong. clap uses the same.
const USAGE: u8 = 2;
/// `diff` could not tell: 1 is that there are differences, as for diff(1) and cmp(1).
const TROUBLE: u8 = 2;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == isolate::COMMAND) {
        return isolate::process();
    }
    let args = Args::parse();
    // Without it, the system's own word on a file that shrinks has to do.
    let _ = weighbridge::checkpoint::Io::guard_maps(
        FAILURE,
        "hint: `--io pread` reads a file without mapping it",
    );
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
        Err(Failure::Model(e)) => {
            let code = if e.is_misuse() { USAGE } else { FAILURE };
            (in_words_of_the_command(&e), code)
        }
        Err(Failure::Other(e)) => (e, FAILURE),
        Err(Failure::Usage(e)) => (e, USAGE),
    };
    let code = if matches!(args.command, Command::Diff(_)) { TROUBLE } else { code };
    let mut stderr = std::io::stderr().lock();
    // If stderr is gone too, the exit code has to do.
    let _ = writeln!(stderr, "{}", style::error(&message));
    ExitCode::from(code)
}

/// The error with its hints, and what the command line has against it.
fn in_words_of_the_command(error: &weighbridge::Error) -> String {
    use weighbridge::check::Error as Check;
    use weighbridge::checkpoint::{Fault, Problem};
    use weighbridge::convert::Error as Convert;
    use weighbridge::planner::Error as Plan;

    const RULE: &str = "put the rule in a file, and give that with `--rules FILE`";
    let is_there =
        |problem: &Problem| matches!(problem.fault, Fault::Exists { what: "something is there already" });
    let said = error.diagnostics();
    let hint = match error {
        weighbridge::Error::Plan(e) => match e {
            Plan::Misfit { problems, .. } if problems.rule().is_some() => RULE,
            Plan::Misfit { backbone: true, .. } => "`--allow-missing output.weight` does that",
            Plan::Misfit { .. } => "`weighbridge inspect --tensors` lists what the checkpoint holds",
            Plan::Ambiguous { .. } => RULE,
            e if e.is_unknown_model() => UNKNOWN,
            _ => return said.to_string(),
        },
        weighbridge::Error::Checkpoint(e) if e.problems().iter().any(is_there) => {
            return format!("{said}; `--force` overwrites it");
        }
        weighbridge::Error::Check(Check::Manifest { .. }) => {
            "`weighbridge check --write-manifest` makes them"
        }
        weighbridge::Error::Check(Check::ManifestThere { .. }) => {
            "`--verify` shows what has changed; `--force` replaces it"
        }
        weighbridge::Error::NotRun { .. } => {
            "`weighbridge convert` writes it for programs that do, `weighbridge plan` shows how it is loaded"
        }
        weighbridge::Error::Convert(Convert::Requantize { .. }) => {
            return format!("{said} with `--allow-requantize`");
        }
        weighbridge::Error::Convert(Convert::Lost { losses, .. }) if losses.is_empty() => {
            "leave it out of --allow-loss"
        }
        weighbridge::Error::Convert(Convert::Lost { losses, .. }) => {
            let keys: Vec<&str> = losses.iter().map(|loss| loss.key.as_str()).collect();
            return format!("{said}\nhint: --allow-loss {} converts all the same", keys.join(","));
        }
        weighbridge::Error::Engine(e) => return format!("{said}{}", option(e)),
        _ => return said.to_string(),
    };
    said.with_hint(hint.to_owned()).to_string()
}

/// The option that does what the engine's hint says.
fn option(error: &weighbridge::engine::Error) -> &'static str {
    use weighbridge::engine::{Error, sampler};

    match error {
        Error::CacheTooLarge { .. } | Error::ContextFull { .. } | Error::Positions { .. } => " (`--ctx`)",
        Error::NoKernel { .. } | Error::Sampler(sampler::Error::NotNumbers { .. }) => {
            " (`--backend reference`)"
        }
        _ => "",
    }
}

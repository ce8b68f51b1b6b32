//! `weighbridge`: opens any checkpoint, proves that it fits the model, and runs it.

mod args;
mod cache;
mod commands;
mod estimate;
mod failure;
mod isolate;
mod json;
mod keys;
mod memory;
mod pages;
mod progress;
#[cfg(feature = "hub")]
mod pulling;
mod style;
mod tuned;
mod whole_file;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::{Failure, INTERRUPTED};

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
    let args = match Args::try_parse().map_err(args::advised) {
        Ok(args) => args,
        Err(error) if error.use_stderr() && wants_json() => {
            failure::of_command_line(&error).print(true);
            return ExitCode::from(USAGE);
        }
        Err(error) => return said_by_clap(&error),
    };
    // Without it, the system's own word on a file that shrinks has to do.
    let _ = weighbridge::checkpoint::Io::guard_maps(
        FAILURE,
        "hint: `--io pread` reads a file without mapping it",
    );
    let _ = weighbridge::checkpoint::Io::guard_writes();
    let result = match &args.command {
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Load(args) => commands::load::run(args),
        Command::Run(args) => commands::run::run(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve::run(args),
        Command::Embed(args) => commands::embed::run(args),
        #[cfg(all(unix, feature = "serve"))]
        Command::Reload(args) => commands::reload::run(args),
        Command::Rerank(args) => commands::rerank::run(args),
        #[cfg(feature = "speech")]
        Command::Transcribe(args) => commands::transcribe::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Calibrate(args) => commands::calibrate::run(args),
        Command::Compress(args) => commands::compress::run(args),
        Command::Convert(args) => commands::convert::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Diff(args) => commands::diff::run(args),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Tune(args) => commands::tune::run(args),
        Command::Cache(args) => commands::cache::run(args),
        Command::Quants(args) => commands::quants::run(args),
        #[cfg(feature = "hub")]
        Command::Pull(args) => commands::pull::run(args),
        #[cfg(feature = "hub")]
        Command::List(args) => commands::list::run(args),
        Command::Completions { shell } => commands::manual::completions(*shell),
        Command::Man { command, all } => commands::manual::man(command.as_deref(), all.as_deref()),
    };
    let failure = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Interrupted) => return ExitCode::from(INTERRUPTED),
        Err(Failure::Found) => return ExitCode::from(FAILURE),
        // The reader went away (`| head`): nothing is wrong.
        Err(Failure::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    let code = match &failure {
        failure if failure.is_interrupted() => INTERRUPTED,
        _ if matches!(args.command, Command::Diff(_)) => TROUBLE,
        failure if failure.is_usage() => USAGE,
        _ => FAILURE,
    };
    failure.said().print(args.command.json());
    ExitCode::from(code)
}

/// Prints help, the version, or what is wrong with the command line. clap's own printing has rules of its own about
/// colour (it paints where the variable `CI` is set, whatever the terminal is).
fn said_by_clap(error: &clap::Error) -> ExitCode {
    let text = error.render();
    let text = |coloured: bool| if coloured { text.ansi().to_string() } else { text.to_string() };
    // A reader that went away wants no more.
    let _ = if error.use_stderr() {
        std::io::stderr().write_all(text(style::on_stderr()).as_bytes())
    } else {
        std::io::stdout().write_all(text(style::on_stdout()).as_bytes())
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// Whether a command line that does not parse asks for JSON.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

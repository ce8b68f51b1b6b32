//! `weighbridge serve --engine vllm`: becomes vLLM's server, with this package as its loader.

use std::process::Command;

use super::keys;
use crate::args::ServeArgs;
use crate::failure::Failure;

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let access = &args.access;
    let others = [
        ("--allow-host", !access.allow_host.is_empty()),
        ("--cors", !access.cors.is_empty()),
        ("--quiet", access.quiet),
        #[cfg(unix)]
        ("--socket", access.socket.is_some()),
    ];
    if let Some((option, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::Usage(format!("{option} is not for vLLM, whose own options follow `--`")));
    }
    let python = &args.python;
    let shown = python.display();
    let cannot = |error| {
        Failure::Other(format!(
            "cannot start `{shown}`: {error}\nhint: `--python` names the Python that has vllm and weighbridge"
        ))
    };
    let has_package = "import importlib.util, sys; sys.exit(importlib.util.find_spec('weighbridge') is None)";
    let found = Command::new(python).args(["-c", has_package]).status().map_err(cannot)?;
    if !found.success() {
        return Err(Failure::Other(format!(
            "`{shown}` does not have the package weighbridge\nhint: `{shown} -m pip install weighbridge`, or `--python` names another"
        )));
    }
    let mut command = Command::new(python);
    command.args(["-m", "weighbridge.serve_vllm"]).arg(args.model.path());
    command.arg("--host").arg(&access.host).arg("--port").arg(access.port.to_string());
    if !args.alias.is_empty() {
        command.arg("--served-model-name").args(&args.alias);
    }
    if let Some(positions) = args.model.ctx {
        command.arg("--max-model-len").arg(positions.to_string());
    }
    match &keys(access)?[..] {
        [] => {}
        // Other users of the machine see command lines.
        [key] => drop(command.env("VLLM_API_KEY", key)),
        keys => return Err(Failure::Usage(format!("vLLM takes one API key, and there are {}", keys.len()))),
    }
    become_it(command.args(&args.engine_options)).map_err(cannot)
}

/// Runs a program that replaces this one, so that signals and the exit code are its own.
#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

/// Runs a program, and ends as it does.
#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1))
}

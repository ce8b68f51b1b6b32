//! The workspace as cargo and git see it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// `cargo metadata` without dependencies' own packages.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folder where cargo builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    Ok(metadata()?["target_directory"].as_str().context("cargo names no target directory")?.into())
}

/// Runs `command`, showing it first, and fails when it does.
pub(crate) fn step(command: &mut Command) -> Result<()> {
    show(command);
    let status = command.status().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Prints the command as one would type it.
pub(crate) fn show(command: &Command) {
    eprintln!("\n$ {}", shown(command));
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| {
        let argument = argument.to_string_lossy();
        if argument.contains(char::is_whitespace) { format!("\"{argument}\"") } else { argument.into_owned() }
    });
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// How the program is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// As it is installed.
    Release,
    /// As it is given away: without symbols.
    Dist,
    /// As fast where a model is read and run, built in half the time, and without optional features.
    Demo,
}

/// Builds the program and gives its path.
pub(crate) fn build_weighbridge(build: Build) -> Result<PathBuf> {
    let (profile, more): (_, &[&str]) = match build {
        Build::Release => ("release", &[]),
        Build::Dist => ("dist", &["--locked"]),
        Build::Demo => ("demo", &["--no-default-features"]),
    };
    step(cargo().args(["build", "--profile", profile, "--package", "weighbridge-cli"]).args(more))?;
    let program = target_dir()?.join(profile).join(format!("weighbridge{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        bail!("`{}` was not built", program.display());
    }
    Ok(program)
}

/// All files of the work tree that git does not ignore, relative to the root, sorted.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])
        .output()
        .context("cannot run git, which lists the files to check")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listed = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<PathBuf> = listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/weighbridge");
        command.args(["run", "-p", "a b"]);
        assert_eq!(shown(&command), "weighbridge run -p \"a b\"");
    }
}

//! `cargo xtask test`: every test, and the kernels' tests on every instruction set that this machine has.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Packages whose code depends on the instruction set, and the variable that forces one.
const KERNEL_PACKAGES: &[&str] = &["weighbridge-quant", "weighbridge-engine"];
const ISA_VARIABLE: &str = "WEIGHBRIDGE_CPU";

/// Compiles once, runs the kernels' tests per instruction set, then everything.
pub(crate) fn run() -> Result<()> {
    let kernels = kernel_tests()?;
    let mut failed = Vec::new();
    for isa in isas_below_the_best() {
        for test in &kernels {
            let mut command = Command::new(&test.program);
            command.arg("--quiet").current_dir(&test.folder).env(ISA_VARIABLE, isa);
            if let Err(error) = workspace::step(&mut command) {
                failed.push(format!("{ISA_VARIABLE}={isa}: {error:#}"));
            }
        }
    }
    if let Err(error) = everything() {
        failed.push(format!("{error:#}"));
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

/// `cargo test`, its output passed on as it comes, and the sum of all its results as the last line.
fn everything() -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--release", "--no-fail-fast"]);
    if std::io::stdout().is_terminal() {
        command.args(["--", "--color", "always"]);
    }
    command.env_remove(ISA_VARIABLE);
    let (passed, failed) = run_tests(&mut command)?;
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 {
        bail!("tests failed");
    }
    Ok(())
}

/// Runs `cargo test` or a test program, passes its output on, and gives how many tests passed and failed.
///
/// # Errors
/// It failed for another reason than a failed test.
pub(crate) fn run_tests(command: &mut Command) -> Result<(u64, u64)> {
    workspace::show(command);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(child.stdout.take().context("cargo has no output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some((more_passed, more_failed)) = counts(&line) {
            passed += more_passed;
            failed += more_failed;
        }
    }
    let status = child.wait()?;
    if !status.success() && failed == 0 {
        bail!("the tests ended with {status}");
    }
    Ok((passed, failed))
}

/// How many tests passed and failed, from a line `test result: ok. 9 passed; 0 failed; …`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let words: Vec<_> = line.strip_prefix("test result: ")?.split(' ').collect();
    let before = |word: &str| {
        let at = words.iter().position(|found| *found == word)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    Some((before("passed;")?, before("failed;")?))
}

/// Returns the instruction sets to force besides the one chosen by default.
fn isas_below_the_best() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // Where there is no better one, everything runs on it later.
        let is_best = !std::arch::is_x86_feature_detected!("avxvnni")
            && !std::arch::is_x86_feature_detected!("avx512vnni");
        return if is_best { vec!["scalar"] } else { vec!["scalar", "avx2"] };
    }
    vec!["scalar"]
}

/// A compiled test, its package, and the folder that cargo would run it in.
pub(crate) struct TestProgram {
    pub(crate) package: String,
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Compiles all tests of the workspace and gives the programs of [`KERNEL_PACKAGES`].
fn kernel_tests() -> Result<Vec<TestProgram>> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--release"]);
    let mut found = programs(&mut command)?;
    found.retain(|test| KERNEL_PACKAGES.contains(&test.package.as_str()));
    for package in KERNEL_PACKAGES {
        if !found.iter().any(|test| test.package == *package) {
            bail!("package `{package}` has no test program");
        }
    }
    Ok(found)
}

/// Compiles the tests that `command`, a `cargo test`, would run.
pub(crate) fn programs(command: &mut Command) -> Result<Vec<TestProgram>> {
    command.arg("--no-run");
    workspace::show(command);
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the tests do not compile");
    }
    let names = package_names()?;
    let mut found = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let Some(program) = message["executable"].as_str() else { continue };
        let id = message["package_id"].as_str().unwrap_or_default();
        let known = names.iter().find(|(known, _, _)| known == id);
        let Some((_, name, folder)) = known else { continue };
        if message["profile"]["test"] == true {
            found.push(TestProgram {
                package: name.clone(),
                program: program.into(),
                folder: folder.clone(),
            });
        }
    }
    Ok(found)
}

/// Id, name and folder of each package of the workspace.
fn package_names() -> Result<Vec<(String, String, PathBuf)>> {
    let metadata = workspace::metadata()?;
    let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok(packages
        .iter()
        .map(|package| {
            let mut folder = PathBuf::from(text(&package["manifest_path"]));
            folder.pop();
            (text(&package["id"]), text(&package["name"]), folder)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_plain_and_coloured() {
        let rest = "9 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        assert_eq!(counts(&format!("test result: ok. {rest}")), Some((9, 1)));
        assert_eq!(counts(&format!("test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. {rest}")), Some((9, 1)));
        assert_eq!(counts("test a::b ... ok"), None);
    }
}

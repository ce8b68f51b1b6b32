//! `cargo xtask platforms`: builds, tests and type-checks for other platforms on one x86-64 Linux machine.
//!
//! Linux on ARM is built and its tests run by an emulator; macOS and Windows are type-checked. docs/platforms.md says what
//! it needs and what came out.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::test::{programs, run_tests};
use crate::workspace;

const ARM: &str = "aarch64-unknown-linux-gnu";
const MACOS: &str = "aarch64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-msvc";

/// The packages whose tests run by emulation.
const EMULATED: [&str; 6] = [
    "weighbridge-tensor",
    "weighbridge-quant",
    "weighbridge-storage",
    "weighbridge-checkpoint",
    "weighbridge-plan",
    LOGITS,
];
/// Of this package only the logits of small models, as transformers computed them: larger ones take hours there.
const LOGITS: &str = "weighbridge";

/// The platforms to check, and their compilers.
#[derive(Default)]
pub(crate) struct Options {
    /// A compiler that has the targets, if the usual one has not. Its library is built from its source for macOS and
    /// Windows.
    pub(crate) rustc: Option<PathBuf>,
    /// `arm`, `macos`, `windows`; all if empty.
    pub(crate) only: Vec<String>,
}

/// Runs what is asked for, and prints the number of tests of each package.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(other) =
        options.only.iter().find(|name| !["arm", "macos", "windows"].contains(&name.as_str()))
    {
        bail!("there is no platform `{other}`\nhint: there are `arm`, `macos` and `windows`");
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    for (name, target) in [("macos", MACOS), ("windows", WINDOWS)] {
        if wanted(name) {
            check(options, target)?;
        }
    }
    if wanted("arm") { emulate(options) } else { Ok(()) }
}

/// Type-checks the program for `target`.
fn check(options: &Options, target: &str) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["check", "--release", "--locked", "--package", "weighbridge-cli", "--target", target]);
    // The features `hub` and `http` are left out: `ring` compiles C for the target, even to be type-checked.
    command.args(["--no-default-features", "--features", "grammar,serve,tokenizers"]);
    // Its build script would want a C compiler for the target; type-checking needs no object files.
    command.env("CARGO_FEATURE_PURE", "1");
    if let Some(rustc) = &options.rustc {
        command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_unwind");
    }
    workspace::step(&mut command)
}

/// Runs the tests of [`EMULATED`].
fn emulate(options: &Options) -> Result<()> {
    let setting = |key: &str, usual: &str| std::env::var(key).unwrap_or_else(|_| usual.to_owned());
    let emulator = setting("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64");
    let linker = setting("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let mut build = workspace::cargo();
    build.args(["test", "--release", "--locked", "--target", ARM, "--lib", "--test", "it"]);
    for package in EMULATED {
        build.args(["--package", package]);
    }
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker);
    if let Some(rustc) = &options.rustc {
        build.env("RUSTC", rustc);
    }
    let programs = programs(&mut build)?;
    let mut table = vec![];
    for package in EMULATED {
        let (mut passed, mut failed) = (0, 0);
        for test in programs.iter().filter(|test| test.package == package) {
            let mut words = emulator.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words).arg(&test.program).current_dir(&test.folder);
            if package == LOGITS {
                command.arg("golden");
            }
            let (more_passed, more_failed) = run_tests(&mut command)?;
            (passed, failed) = (passed + more_passed, failed + more_failed);
        }
        table.push((package, passed, failed));
    }
    println!("\n| {ARM} | passed | failed |\n|---|--:|--:|");
    for (package, passed, failed) in &table {
        println!("| `{package}` | {passed} | {failed} |");
    }
    // A package without tests must not pass.
    if table.iter().any(|(_, passed, failed)| *passed == 0 || *failed > 0) {
        bail!("tests failed");
    }
    Ok(())
}

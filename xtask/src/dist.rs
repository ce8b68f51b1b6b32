//! `cargo xtask dist`: the program, its manual pages and completions as one archive, and an installation from it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{self, Build};

/// Shells, the folders where they look for completions, and the names that files have there.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/weighbridge"),
    ("zsh", "share/zsh/site-functions/_weighbridge"),
    ("fish", "share/fish/vendor_completions.d/weighbridge.fish"),
    ("elvish", "share/elvish/lib/weighbridge.elv"),
    ("powershell", "share/powershell/weighbridge.ps1"),
];

/// Texts that go along.
const TEXTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Makes `target/dist/weighbridge-VERSION-TARGET.tar.gz`. Unpacked into a prefix such as `/usr/local`, it is installed. With
/// `prefix`, unpacks it there.
pub(crate) fn run(prefix: Option<&Path>) -> Result<()> {
    let program = workspace::build_weighbridge(Build::Dist)?;
    let name = format!("weighbridge-{}-{}", env!("CARGO_PKG_VERSION"), host()?);
    let dist = workspace::target_dir()?.join("dist");
    let tree = dist.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let folder =
        |path: &Path| fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()));
    folder(&tree.join("bin"))?;
    fs::copy(&program, tree.join("bin").join(program.file_name().unwrap_or_default()))?;
    let man = tree.join("share/man/man1");
    folder(&man)?;
    workspace::step(Command::new(&program).args(["man", "--all"]).arg(&man))?;
    for (shell, file) in COMPLETIONS {
        let output = Command::new(&program).args(["completions", shell]).output()?;
        ensure!(output.status.success(), "`weighbridge completions {shell}` failed");
        let file = tree.join(file);
        folder(file.parent().unwrap_or(&tree))?;
        fs::write(file, output.stdout)?;
    }
    let texts = tree.join("share/doc/weighbridge");
    folder(&texts)?;
    for text in TEXTS {
        fs::copy(workspace::root().join(text), texts.join(text))?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    workspace::step(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&dist).arg(&name))?;
    fs::remove_dir_all(&tree)?;
    println!("{}: {}", archive.display(), testkit::megabytes(fs::metadata(&archive)?.len()));
    match prefix {
        Some(prefix) => install(&archive, prefix),
        None => {
            println!("Install it:\n  tar -xzf {} --strip-components=1 -C PREFIX", archive.display());
            Ok(())
        }
    }
}

/// Unpacks the archive into `prefix`, and runs what is there then.
fn install(archive: &Path, prefix: &Path) -> Result<()> {
    fs::create_dir_all(prefix)?;
    workspace::step(
        Command::new("tar").arg("-xzf").arg(archive).arg("--strip-components=1").arg("-C").arg(prefix),
    )?;
    let program = prefix.join("bin/weighbridge");
    workspace::step(Command::new(&program).arg("--version"))?;
    println!("installed {}", program.display());
    Ok(())
}

/// The target that the program is built for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

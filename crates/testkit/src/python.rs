//! The Python that fetches models: it has pip, and its library reads archives and computes SHA-256.
//!
//! Whoever fetches needs it anyway. So this crate compiles no inflater, no reader of archives and no hash function,
//! which are most of the time from a fresh clone to the first run.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// `$PYTHON`, or `python3`.
pub(crate) fn program() -> OsString {
    std::env::var_os("PYTHON").filter(|name| !name.is_empty()).unwrap_or_else(|| "python3".into())
}

/// A member of an archive, and where its bytes go.
pub(crate) struct Member<'a> {
    pub(crate) archive: &'a Path,
    pub(crate) name: String,
    /// The member is appended to this file.
    pub(crate) target: PathBuf,
    /// At most as many bytes are copied.
    pub(crate) most: u64,
}

/// Copies members of archives to files.
///
/// # Errors
/// A member is not there, or an archive cannot be read.
pub(crate) fn unpack(members: &[Member<'_>]) -> Result<()> {
    let line = |member: &Member<'_>| {
        let (archive, target) = (member.archive.display(), member.target.display());
        [archive.to_string(), member.name.clone(), target.to_string(), member.most.to_string()].join("\t")
            + "\n"
    };
    let lines = members.iter().map(line).collect::<String>();
    run(include_str!("unpack.py"), &[], &lines).map(drop)
}

/// The SHA-256 of each file, in lower-case hexadecimal.
pub(crate) fn digests(files: &[PathBuf]) -> Result<Vec<String>> {
    let said = run(include_str!("digest.py"), files, "")?;
    let digests: Vec<_> = said.lines().map(str::to_owned).collect();
    if digests.len() != files.len() {
        bail!("python3 printed {} digests of {} files", digests.len(), files.len());
    }
    Ok(digests)
}

fn run(script: &str, arguments: &[PathBuf], input: &str) -> Result<String> {
    let program = program();
    let mut child = Command::new(&program)
        .args(["-I", "-c", script])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{}`\nhint: apt-get install python3", program.display()))?;
    let mut stdin = child.stdin.take().context("python3 has no input")?;
    // A script that ended early says why on its standard error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().last().unwrap_or("python3 failed without a word"));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_out_of_wheels_and_sources() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let make = "
import io, sys, tarfile, zipfile
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as wheel:
    wheel.writestr('p/a', 'a' * 9)
    wheel.writestr('p/b', 'bb')
with tarfile.open(sys.argv[2], 'w:gz') as sources:
    for name in ['c', 'b', 'a']:
        info = tarfile.TarInfo('s/' + name)
        info.size = 3
        sources.addfile(info, io.BytesIO(3 * name.encode()))
";
        let (wheel, sources) = (at("x.whl"), at("x.tar.gz"));
        run(make, &[wheel.clone(), sources.clone()], "").unwrap();
        let member = |archive, name: &str, target: &str, most| Member {
            archive,
            name: name.into(),
            target: at(target),
            most,
        };
        unpack(&[
            member(&wheel, "p/a", "joined", 9),
            member(&sources, "s/a", "a", 2),
            member(&sources, "s/c", "c", 100),
            member(&wheel, "p/b", "joined", 100),
        ])
        .unwrap();
        let read = |name| std::fs::read_to_string(at(name)).unwrap();
        assert_eq!([read("joined"), read("a"), read("c")], ["aaaaaaaaabb", "aa", "ccc"]);

        for (archive, name) in [(&wheel, "p/none"), (&sources, "s/none")] {
            let error = unpack(&[member(archive, name, "none", 9)]).unwrap_err().to_string();
            assert_eq!(error, format!("`{name}` is not in `{}`", archive.display()));
        }
    }
}

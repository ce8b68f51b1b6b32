//! `pip download`, watched from outside.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::progress::Progress;
use crate::python;
use crate::table::{Archive, PackageForm};

/// Downloads `archives` into the folder `into`; `scratch` takes what pip writes meanwhile.
///
/// # Errors
/// There is no python3 with pip, or pip fails: its own words are in the message.
pub(crate) fn download(label: &str, archives: &[Archive], into: &Path, scratch: &Path) -> Result<()> {
    let python = python::program();
    require_pip(&python)?;
    let working = scratch.join("pip");
    fs::create_dir_all(&working)?;
    fs::create_dir_all(into)?;
    let log = scratch.join("pip.log");
    let out = File::create(&log)?;

    let mut command = Command::new(&python);
    command
        .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps"])
        .args(["--no-cache-dir", "--progress-bar", "off", "--dest"])
        .arg(into)
        .env("TMPDIR", &working)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    for archive in archives {
        if let PackageForm::Source { build_system } = archive.kind {
            let stand_in = scratch.join("stand-in");
            write_stand_in(&stand_in, build_system, archive)?;
            command.args(["--no-build-isolation", "--no-binary", archive.name]).env("PYTHONPATH", &stand_in);
        }
        command.arg(format!("{}=={}", archive.name, archive.version));
    }

    let total = archives.iter().map(|archive| archive.bytes).sum();
    let progress = Progress::start(&format!("downloading {label}"), total);
    let mut child = command.spawn().context("cannot start python3")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        progress.draw(bytes_under(&working) + bytes_under(into));
        std::thread::sleep(Duration::from_millis(100));
    };
    progress.finish();
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(12)..].join("\n  ");
        bail!("pip could not download {label}; it said\n  {last}");
    }
    Ok(())
}

fn require_pip(python: &std::ffi::OsStr) -> Result<()> {
    let found = Command::new(python).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => bail!(
            "`{}` has no pip, which downloads the models\nhint: apt-get install python3-pip",
            python.display()
        ),
        Err(error) => bail!(
            "cannot run `{}`, whose pip downloads the models: {error}\nhint: apt-get install python3 python3-pip",
            python.display()
        ),
    }
}

/// Writes a build system that builds nothing.
///
/// pip asks the build system of a source archive for its metadata even when it only downloads. This one
/// answers with name and version, so that no compiler is fetched and nothing of the archive is executed.
fn write_stand_in(folder: &Path, build_system: &str, archive: &Archive) -> Result<()> {
    let module = folder.join(build_system.replace('.', "/")).with_extension("py");
    let mut package = folder.to_path_buf();
    let parents: Vec<_> = build_system.split('.').collect();
    for part in &parents[..parents.len() - 1] {
        package.push(part);
        fs::create_dir_all(&package)?;
        fs::write(package.join("__init__.py"), "")?;
    }
    fs::create_dir_all(module.parent().unwrap_or(folder))?;
    let (name, version) = (archive.name.replace('-', "_"), archive.version);
    let source = format!(
        "import os\n\n\n\
         def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):\n    \
             name = '{name}-{version}.dist-info'\n    \
             os.makedirs(os.path.join(metadata_directory, name), exist_ok=True)\n    \
             with open(os.path.join(metadata_directory, name, 'METADATA'), 'w') as file:\n        \
                 file.write('Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n')\n    \
             return name\n"
    );
    fs::write(module, source)?;
    Ok(())
}

fn bytes_under(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_under(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |meta| meta.len()),
            _ => 0,
        })
        .sum()
}

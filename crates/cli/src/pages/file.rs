//! Where a page is written to: whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::whole_file::WholeFile;

/// A comment near the start of each page, by which a page of ours is known.
pub(crate) const MARK: &str = "<!-- made by weighbridge -->";
/// Bytes within which it is.
const HEAD: u64 = 1024;

/// Extensions of pictures and pages of other kinds.
const OTHERS: [&str; 6] = ["png", "jpg", "jpeg", "webp", "gif", "pdf"];

/// Where a page goes.
pub(crate) enum Output {
    Stdout,
    File(PathBuf),
}

impl Output {
    /// Checks that a page may be written to `path`, `-` for standard output, before the work for it is done.
    ///
    /// Nothing is written over without `force`; with it, only a page of ours is.
    pub(crate) fn new(path: &Path, extension: &str, force: bool) -> Result<Output, Failure> {
        if path == Path::new("-") {
            return Ok(Output::Stdout);
        }
        let shown = path.display();
        let found = path.extension().map(|found| found.to_string_lossy().to_ascii_lowercase());
        if found.is_some_and(|found| OTHERS.contains(&&*found)) {
            let right = path.with_extension(extension);
            return Err(Failure::Usage(format!(
                "`{shown}`: only {extension} is written\nhint: name it `{}`",
                right.display()
            )));
        }
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(Failure::Usage(format!(
                "`{}`: there is no such directory\nhint: create it first",
                parent.display()
            )));
        }
        let Ok(there) = fs::symlink_metadata(path) else {
            return Ok(Output::File(path.to_owned()));
        };
        if there.is_dir() {
            return Err(Failure::Usage(format!("`{shown}` is a directory, wanted the name of a file")));
        }
        if !force {
            return Err(Failure::Usage(format!(
                "`{shown}`: already exists\nhint: `--force` replaces the file if weighbridge wrote it"
            )));
        }
        if !there.is_file() || !is_ours(path)? {
            return Err(Failure::Usage(format!(
                "`{shown}` was not written by weighbridge, so it is not replaced\nhint: name another file"
            )));
        }
        Ok(Output::File(path.to_owned()))
    }

    /// Whether the page takes standard output, so that nothing else can be printed there.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Output::Stdout)
    }

    /// Writes `page`: to a temporary file that is made durable and then renamed, so that no half of it is ever there.
    pub(crate) fn write(&self, page: &str) -> Result<(), Failure> {
        let path = match self {
            Output::Stdout => return Ok(io::stdout().lock().write_all(page.as_bytes())?),
            Output::File(path) => path,
        };
        let failed = |error: io::Error| Failure::Other(format!("cannot write `{}`: {error}", path.display()));
        let written = WholeFile::create(path).and_then(|mut file| {
            file.write_all(page.as_bytes())?;
            file.finish()
        });
        written.map_err(failed)
    }
}

/// Whether the file at `path` is a page of ours.
fn is_ours(path: &Path) -> io::Result<bool> {
    let mut head = vec![];
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(head.windows(MARK.len()).any(|window| window == MARK.as_bytes()))
}

//! Which downloaded file is which package, and what is taken out of it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::python::{Member, unpack};
use crate::table::{Archive, Wanted};

/// The downloaded archive of `archive` in `folder`: file names write `-` and `.` of a package's name as `_`.
pub(crate) fn find(folder: &Path, archive: &Archive) -> Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|file| is_of(&file.to_string_lossy(), archive)) {
            return Ok(path);
        }
    }
    bail!("pip downloaded no file of `{}` {}", archive.name, archive.version)
}

fn is_of(file: &str, archive: &Archive) -> bool {
    let plain = |name: &str| name.to_lowercase().replace(['-', '.'], "_");
    let Some((name, rest)) = file.split_at_checked(archive.name.len()) else { return false };
    let rest = rest.strip_prefix('-').and_then(|rest| rest.strip_prefix(archive.version));
    plain(name) == plain(archive.name) && rest.is_some_and(|rest| rest.starts_with('-') || rest == ".tar.gz")
}

/// Writes `file` into `drafts`: the given members of the archives, one after the other.
pub(crate) fn join(archives: &[PathBuf], members: &[&str], file: &Wanted, drafts: &Path) -> Result<()> {
    let member = |(archive, name): (_, &&str)| Member {
        archive,
        name: (*name).to_owned(),
        target: drafts.join(file.name),
        // One byte more than wanted is enough to know that there is too much.
        most: file.bytes + 1,
    };
    unpack(&archives.iter().map(PathBuf::as_path).zip(members).map(member).collect::<Vec<_>>())
}

/// Writes every wanted file of `folder` inside the archive into `drafts`.
pub(crate) fn take_folder(archive: &Path, folder: &str, files: &[Wanted], drafts: &Path) -> Result<()> {
    let member = |file: &Wanted| Member {
        archive,
        name: format!("{folder}/{}", file.name),
        target: drafts.join(file.name),
        most: file.bytes + 1,
    };
    for file in files {
        drafts.join(file.name).parent().map_or(Ok(()), std::fs::create_dir_all)?;
    }
    unpack(&files.iter().map(member).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::PackageForm;

    #[test]
    fn the_archive_is_found_by_name_and_version() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["a_b_part1-1.0.0-py3-none-any.whl", "a_b_part10-1.0.0-py3-none-any.whl", "c_d-0.3.36.tar.gz"]
        {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let archive = |name, version| Archive { name, version, bytes: 0, kind: PackageForm::Wheel };
        let found = |name, version| {
            find(folder.path(), &archive(name, version)).map(|path| path.file_name().unwrap().to_owned())
        };
        assert_eq!(found("a-b-part1", "1.0.0").unwrap(), "a_b_part1-1.0.0-py3-none-any.whl");
        assert_eq!(found("c.d", "0.3.36").unwrap(), "c_d-0.3.36.tar.gz");
        assert!(found("a-b-part1", "1.0").is_err());
        assert!(found("a-b", "1.0.0").is_err());
    }
}

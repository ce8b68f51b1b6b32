//! Reading members of downloaded archives, without unpacking anything else.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::store::Store;
use super::table::Archive;

/// The downloaded archive of `archive` in `folder`: file names write `-` and `.` of a package's name as `_`.
pub(super) fn find(folder: &Path, archive: &Archive) -> Result<PathBuf> {
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

/// Puts into `store` its only file: the given members of zip archives, one after the other.
pub(super) fn join_members(
    archives: &[PathBuf],
    members: &[&str],
    store: &Store,
    scratch: &Path,
) -> Result<()> {
    let mut zips = archives.iter().map(|path| open_zip(path)).collect::<Result<Vec<_>>>()?;
    let mut content: Box<dyn Read + '_> = Box::new(std::io::empty());
    for ((zip, member), path) in zips.iter_mut().zip(members).zip(archives) {
        let part = zip.by_name(member).with_context(|| format!("`{member}` in `{}`", path.display()))?;
        content = Box::new(content.chain(part));
    }
    store.wanted().iter().try_for_each(|file| store.put(file, &mut content, scratch))
}

fn open_zip(path: &Path) -> Result<zip::ZipArchive<BufReader<File>>> {
    let file = File::open(path)?;
    zip::ZipArchive::new(BufReader::new(file)).with_context(|| format!("`{}` is not a zip", path.display()))
}

/// Puts into `store` every wanted file of `folder` inside a wheel or a `.tar.gz`.
pub(super) fn take_folder(archive: &Path, folder: &str, store: &Store, scratch: &Path) -> Result<()> {
    if archive.extension().is_some_and(|extension| extension == "whl") {
        let mut zip = open_zip(archive)?;
        return store.wanted().iter().try_for_each(|file| {
            let name = format!("{folder}/{}", file.name);
            let member = zip.by_name(&name);
            let mut member = member.with_context(|| format!("`{name}` in `{}`", archive.display()))?;
            store.put(file, &mut member, scratch)
        });
    }
    let mut missing: Vec<_> = store.wanted().iter().collect();
    let inflated = flate2::read::GzDecoder::new(BufReader::new(File::open(archive)?));
    for entry in tar::Archive::new(inflated).entries()? {
        let mut entry = entry.with_context(|| format!("`{}` is not a tar.gz", archive.display()))?;
        let path = entry.path()?.into_owned();
        let found = missing.iter().position(|file| path == Path::new(folder).join(file.name));
        if let Some(at) = found {
            store.put(missing.swap_remove(at), &mut entry, scratch)?;
        }
    }
    match missing.first() {
        Some(file) => bail!("`{folder}/{}` is not in `{}`", file.name, archive.display()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Kind;
    use super::*;

    #[test]
    fn the_archive_is_found_by_name_and_version() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["a_b_part1-1.0.0-py3-none-any.whl", "a_b_part10-1.0.0-py3-none-any.whl", "c_d-0.3.36.tar.gz"]
        {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let archive = |name, version| Archive { name, version, bytes: 0, kind: Kind::Wheel };
        let found = |name, version| {
            find(folder.path(), &archive(name, version)).map(|path| path.file_name().unwrap().to_owned())
        };
        assert_eq!(found("a-b-part1", "1.0.0").unwrap(), "a_b_part1-1.0.0-py3-none-any.whl");
        assert_eq!(found("c.d", "0.3.36").unwrap(), "c_d-0.3.36.tar.gz");
        assert!(found("a-b-part1", "1.0").is_err());
        assert!(found("a-b", "1.0.0").is_err());
    }
}

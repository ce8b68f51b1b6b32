//! One copy of a cache, and where it stands.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{ByteSource, Draft, Io, Outgoing, Storage};
use load::{Loaded, Plan};
use storage::LocalFiles;
use tensor::{Dtype, Scheme, Shape};

use crate::builder::Image;
use crate::key::Parts;
use crate::manifest::Manifest;
use crate::record::{Record, Verified};
use crate::{Builder, Cache, Error, Key, Listed, Start, State};

/// The copy of what one plan loads: there, or to be built.
#[derive(Debug)]
pub struct Entry<'a> {
    cache: &'a Cache,
    plan: &'a Plan,
    key: Key,
    parts: Parts,
}

/// Why a copy of a model is not the one that a start looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// The model's files have changed since it was built.
    FilesChanged,
    /// It is for another instruction set.
    OtherIsa,
    /// It has another layout.
    OtherLayout,
    /// It was planned otherwise: by another version, for other encodings, or for another rank.
    OtherPlan,
}

/// A plane of a parameter, as a tensor of the file.
pub(crate) struct Part {
    /// The parameter's place in the plan.
    pub(crate) param: usize,
    /// The plane's place in its scheme.
    pub(crate) plane: usize,
    outgoing: Outgoing,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(cache: &'a Cache, plan: &'a Plan, (key, parts): (Key, Parts)) -> Entry<'a> {
        Entry { cache, plan, key, parts }
    }

    /// What it is a copy of.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> PathBuf {
        self.cache.file(self.key)
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.cache.state(self.key)
    }

    /// Length of the file in bytes, which is known before it is there.
    ///
    /// # Errors
    /// If a file cannot hold the plan's parameters.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.draft()?.1.bytes())
    }

    /// Bytes on the disk, of what is unfinished too.
    pub fn stored_bytes(&self) -> u64 {
        self.cache.stored_bytes(self.key)
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(crate) fn cache(&self) -> &Cache {
        self.cache
    }

    /// The other copies of this model, with why a start with this plan does not use them; the last used first.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn others(&self) -> Result<Vec<(Listed, Stale)>, Error> {
        let location = self.plan.checkpoint().location().to_string();
        let layout = self.plan.arrangement().layout.to_string();
        let mut others = vec![];
        for listed in self.cache.list()? {
            if listed.key == self.key || listed.source.as_ref() != Some(&location) {
                continue;
            }
            let of_set = || Manifest::read(&self.cache.manifest(listed.key), listed.key).map(|set| set.parts);
            let record = Record::read(&self.cache.record(listed.key))?;
            let parts = record.and_then(|record| record.parts).or_else(of_set);
            let why = match parts {
                Some(parts) if parts.files != self.parts.files => Stale::FilesChanged,
                Some(parts) if parts.isa != self.parts.isa => Stale::OtherIsa,
                _ if listed.layout.as_ref() != Some(&layout) => Stale::OtherLayout,
                _ => Stale::OtherPlan,
            };
            others.push((listed, why));
        }
        Ok(others)
    }

    /// The parameters, mapped; `None` if there is no copy. One that may be another file than was verified is verified whole first;
    /// one that is not what was verified is removed.
    ///
    /// # Errors
    /// If the copy is there and cannot be read.
    pub fn load(&self) -> Result<Option<Loaded>, Error> {
        if self.state().start() == Start::Loads {
            return Ok(None);
        }
        let Some(source) = self.cache.verified(self.key)? else { return Ok(None) };
        let (parts, draft) = self.draft()?;
        let begins = source.mapped().is_some_and(|bytes| bytes.starts_with(draft.head()));
        if !begins || source.len() != draft.bytes() {
            // It is what was verified, and was not made by this version.
            self.cache.remove(self.key)?;
            return Ok(None);
        }
        let mut at = vec![vec![]; self.plan.params().len()];
        for (index, part) in parts.iter().enumerate() {
            if let (Some(planes), Some(offset)) = (at.get_mut(part.param), draft.offsets(index).first()) {
                planes.push(*offset);
            }
        }
        let loaded = self.plan.lent(&source, |param, plane| at.get(param)?.get(plane).copied());
        if loaded.is_some() {
            self.cache.touch(self.key);
        }
        Ok(loaded)
    }

    /// What builds the copy of `loaded`, which this entry's plan has loaded. It keeps the parameters in memory until it is done.
    ///
    /// # Errors
    /// If a file cannot hold the plan's parameters.
    pub fn builder(&self, loaded: &Loaded) -> Result<Builder, Error> {
        let (parts, draft) = self.draft()?;
        let mut planes: Vec<_> = parts
            .iter()
            .enumerate()
            .filter_map(|(index, part)| {
                let name = &self.plan.params().get(part.param)?.name;
                Some((loaded.get(name)?.clone(), part.plane, draft.offsets(index).first().copied()?))
            })
            .collect();
        planes.sort_by_key(|(_, _, at)| *at);
        let image = Image { head: draft.head().to_vec(), planes, bytes: draft.bytes() };
        Ok(Builder::new(self.cache.clone(), (self.key, self.parts.clone()), self.plan, image))
    }

    /// The tensors of the file, and the file before its tensors.
    fn draft(&self) -> Result<(Vec<Part>, Draft), Error> {
        let parts = parts(self.plan, &self.plan.borrowed(load::Options::default())?);
        let pairs = [
            ("format".to_owned(), "weighbridge runtime-ready 1".to_owned()),
            ("key".to_owned(), self.key.to_string()),
            ("layout".to_owned(), self.plan.arrangement().layout.to_string()),
        ];
        let outgoing = parts.iter().map(|part| part.outgoing.clone()).collect();
        Ok((parts, Draft::safetensors_in_pages(outgoing, &pairs)?))
    }
}

/// The planes of all parameters that have memory of their own: neither that of another nor a file's. Plain floats keep their type and
/// shape, so that others read them as what they are; everything else is bytes.
fn parts(plan: &Plan, borrowed: &[bool]) -> Vec<Part> {
    let mut parts = Vec::with_capacity(plan.params().len());
    for (index, (param, borrowed)) in plan.params().iter().zip(borrowed).enumerate() {
        if *borrowed || param.tied_to.is_some() {
            continue;
        }
        let dtype = param.scheme.dtype().filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
        for (plane, spec) in param.scheme.planes.iter().enumerate() {
            let outgoing = match dtype {
                Some(_) => Outgoing {
                    name: param.name.clone(),
                    shape: param.shape.clone(),
                    scheme: Arc::clone(&param.scheme),
                },
                None => Outgoing {
                    name: format!("{}.{}", param.name, spec.role),
                    shape: Shape::from(vec![param.scheme.plane_bytes(spec, &param.shape).unwrap_or(0)]),
                    scheme: Scheme::plain(Dtype::U8),
                },
            };
            parts.push(Part { param: index, plane, outgoing });
        }
    }
    parts
}

/// Opens a file of the cache to be mapped; `None` if it is not there.
pub(crate) fn open(path: &Path) -> Result<Option<Arc<dyn ByteSource>>, Error> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => {}
        _ => return Ok(None),
    }
    let (files, name) = LocalFiles::at(path).map_err(checkpoint::Error::from)?;
    let source = files.with_io(Io::Mmap).in_huge_pages().open(&name).map_err(checkpoint::Error::from)?;
    Ok(source.mapped().is_some().then_some(source))
}

/// Whether `source` is the file of `record`.
pub(crate) fn is_verified(record: &Record, source: &dyn ByteSource) -> bool {
    source.identity().and_then(|identity| Verified::of(&identity)) == Some(record.file)
}

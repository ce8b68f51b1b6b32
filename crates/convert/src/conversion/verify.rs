//! What was written is read back and compared with what should have been.

use std::ops::ControlFlow;
use std::path::Path;

use checkpoint::{Io, OpenOptions};
use load::{Pool, Slot};
use planner::plan_as_stored;
use tensor::Diagnostic;

use super::guides::{Guides, feedback};
use super::{Conversion, Progress};
use crate::Error;
use crate::carry::Made;

impl Conversion<'_> {
    /// Compares every tensor of the checkpoint at `path`, which a conversion like this one has written, with what this one makes of its
    /// source, byte by byte. The files are read past the page cache where the system allows that. `each` is called before each
    /// tensor, and may end it.
    ///
    /// # Errors
    /// If a tensor is missing or another, or either side cannot be read.
    pub fn verify(
        &self,
        path: &Path,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let written = checkpoint::open_with(path, &OpenOptions::with_io(Io::Direct))?;
        let stored = plan_as_stored(&written)?;
        let found = |name: &str, pool: &mut Pool| {
            let (at, _) = stored.pieces().find(name)?;
            Some(stored.one(at).load(pool).map_err(Error::from))
        };
        let other = |name: &str| {
            let what = format!("`{name}` in `{}` is not what was written", path.display());
            Error::Convert { what: Diagnostic::new(what).into() }
        };
        let guides = Guides::new(self.options, &self.names);
        let order: Vec<&str> = self.params().map(|param| param.name.as_str()).collect();
        let total = order.len();
        for (index, param) in self.params().enumerate() {
            let name = &param.name;
            let progress = Progress { index, total, name, from: &param.moved.name, to: &param.scheme.name };
            if each(&progress).is_break() {
                return Err(Error::Interrupted { kept: None, done: index, total });
            }
            let feedback = feedback(self.options, &self.names, &order[index..])?;
            let guide = |name: &str| guides.of(name, feedback.as_deref());
            let options = load::Options {
                guide: Some(&guide),
                allow_overflow: self.options.allow_overflow,
                ..load::Options::default()
            };
            let wanted = self.one(name).ok_or_else(|| other(name))?.load_with(pool, options)?;
            let found = found(name, pool).ok_or_else(|| other(name))??;
            let slots = |loaded: &load::Loaded| loaded.get(name).map(|tensor| tensor.slots().to_vec());
            let (wanted, found) = (slots(&wanted), slots(&found));
            let same = |a: &Vec<Slot>, b: &Vec<Slot>| {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes())
            };
            if !wanted.zip(found).is_some_and(|(wanted, found)| same(&wanted, &found)) {
                return Err(other(name));
            }
        }
        for made in &self.made {
            let Made { outgoing, .. } = made;
            if made.is_fact() {
                // It repeats the scheme that its weight was read back in.
                continue;
            }
            let loaded = found(&outgoing.name, pool).ok_or_else(|| other(&outgoing.name))??;
            let tensor = loaded.get(&outgoing.name).ok_or_else(|| other(&outgoing.name))?;
            if tensor.bytes() != &*made.bytes() {
                return Err(other(&outgoing.name));
            }
        }
        Ok(())
    }
}

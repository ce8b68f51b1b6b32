//! Several checkpoints as one: more tensors for the same model, from elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, Inner};
use crate::contents::Contents;
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::format::gathered;

/// Another checkpoint of the file system, whose tensors join the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct More {
    /// Prefix of its tensor names: `vision_tower.` turns `blocks.0.weight` into `vision_tower.blocks.0.weight`. It may
    /// be empty.
    pub prefix: String,
    /// Where it is.
    pub path: PathBuf,
}

impl More {
    /// The checkpoint at `path`, with `prefix` in front of its names.
    pub fn new(prefix: impl Into<String>, path: impl Into<PathBuf>) -> More {
        More { prefix: prefix.into(), path: path.into() }
    }
}

impl Checkpoint {
    /// This checkpoint and the tensors of `more`, with `prefix` in front of their names.
    ///
    /// This checkpoint is the model: its configuration, tokenizer and format are kept. The `config.json` of `more`
    /// describes only how its own weights are stored; without one, this checkpoint's configuration does.
    ///
    /// Source of the meaning: `Source` and `secondary_weights` of vLLM 0.33,
    /// model_executor/model_loader/default_loader.py.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with every name that both have, and the files that hold them; and as opening, if weights of
    /// several tensors do not fit this checkpoint's configuration.
    pub fn with_more(&self, prefix: &str, more: &Checkpoint) -> Result<Checkpoint, Error> {
        let (first, second) = (self.contents(), more.contents().prefixed(prefix));
        let own = more.metadata().hf().and_then(|hf| hf.config());
        let second = match self.metadata().hf().and_then(|hf| hf.config()).filter(|_| own.is_none()) {
            Some(config) => gathered(more.location(), config, second)?,
            None => second,
        };
        let mut problems = Problems::default();
        for (id, entry) in (0..).zip(&second.entries) {
            let Some(same) = first.find(&entry.name) else { continue };
            let fault = Fault::InTwo { first: first.location(same), second: second.location(id) };
            problems.push(Problem { at: None, subject: Subject::Tensor(entry.name.clone()), fault });
        }
        problems
            .check(self.location())
            .map_err(|error| error.with_hint("give the names of the second checkpoint a prefix"))?;
        let contents = Contents::join(vec![first.clone(), second], &mut Problems::default());
        let Inner { location, format, metadata, .. } = self.inner();
        let (location, metadata) = (location.clone(), Arc::clone(metadata));
        Ok(Checkpoint::of(Inner { location, format: *format, contents, metadata }))
    }
}

impl Contents {
    /// Where the file is that holds the entry at a position.
    fn location(&self, id: u32) -> String {
        let entry = self.entries.get(id as usize);
        let file = entry.and_then(|e| e.planes.first()).and_then(|p| self.files.get(p.file.0 as usize));
        file.map(|file| file.location.to_string()).unwrap_or_default()
    }
}

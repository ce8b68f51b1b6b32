//! What a model is for.

use std::path::Path;

use checkpoint::OpenOptions;
use planner::describe;

use crate::Error;
use crate::embedder::has_modules;
use crate::start::architecture;

/// The task of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// It continues texts: [`Runtime`](crate::Runtime).
    Text,
    /// It makes vectors of texts: [`Embedder`](crate::Embedder).
    Vectors,
    /// It scores texts for a query: [`Reranker`](crate::Reranker).
    Scores,
    /// It transcribes speech: `Transcriber`.
    Speech,
}

impl Task {
    /// Every task.
    pub const ALL: [Task; 4] = [Task::Text, Task::Vectors, Task::Scores, Task::Speech];

    /// Its name: `text`, `vectors`, `scores` or `speech`.
    pub fn name(self) -> &'static str {
        match self {
            Task::Text => "text",
            Task::Vectors => "vectors",
            Task::Scores => "scores",
            Task::Speech => "speech",
        }
    }

    /// Finds out what the model at `path` is for. It reads headers only.
    ///
    /// A decoder makes vectors only if it has the settings of sentence-transformers, since its weights do not say.
    ///
    /// # Errors
    /// If the checkpoint cannot be opened, or its family does not run.
    pub fn of(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Task, Error> {
        let path = path.as_ref();
        if has_modules(path) {
            return Ok(Task::Vectors);
        }
        let checkpoint = checkpoint::open_with(path, options)?;
        let model = describe(&checkpoint)?;
        let arch = architecture(&checkpoint, &model)?;
        Ok(match arch.decoder() {
            _ if arch.audio_encoder().is_some() => Task::Speech,
            _ if *model.config().labels > 0 => Task::Scores,
            Some(_) => Task::Text,
            None => Task::Vectors,
        })
    }
}

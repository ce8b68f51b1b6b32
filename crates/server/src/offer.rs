//! The models that a server has.

use std::fmt;

#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::engine::text::Conversation;
use weighbridge::load::LoadReport;
use weighbridge::tensor::{Diagnostic, Diagnostics};
use weighbridge::{Embedder, Reranker, Runtime, Task};

/// Loads a model, on the thread that will run it. The argument is how many bytes it may take, if there is a limit. It is called again
/// after the model was unloaded, or when its files are to be read anew.
pub type Load = dyn Fn(Option<u64>) -> Result<Loaded, NotLoaded> + Send + Sync;

/// Why a model was not loaded.
#[derive(Clone, Debug)]
pub struct NotLoaded {
    /// The problems, with hints.
    pub problems: Diagnostics,
    /// True if there is too little memory, so that it may fit when others have left.
    pub is_for_memory: bool,
    /// True if its options ask for what cannot be.
    pub is_misuse: bool,
}

impl NotLoaded {
    /// Its loader panicked, and has said why.
    pub(crate) fn panicked() -> NotLoaded {
        let problems = Diagnostic::new("the loader panicked").into();
        NotLoaded { problems, is_for_memory: false, is_misuse: false }
    }
}

/// A model that can be loaded.
pub struct Offer {
    /// The names of the model; the first is what answers say. With `*` among them a request may have any name.
    pub names: Vec<String>,
    /// The task, which decides the paths.
    pub task: Task,
    /// Requests that run together. A runtime must be started with as many
    /// [`more_sessions`](weighbridge::RuntimeOptions::more_sessions): its own session is never used, and its memory goes to the
    /// beginnings of prompts that are kept.
    pub parallel: usize,
    /// Bytes that the model takes, as far as they are known before it was loaded.
    pub bytes: u64,
    /// Loads it.
    pub load: Box<Load>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("names", &self.names).field("task", &self.task).finish_non_exhaustive()
    }
}

/// A model that is loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub served: Served,
    /// Without it, there is no chat.
    pub chat: Option<Chat>,
    /// The page about the model, at `/model`.
    pub page: Option<ModelPage>,
}

/// A model by its task.
#[derive(Debug)]
pub enum Served {
    /// One that continues texts.
    Text(Box<Runtime>),
    /// One that makes vectors of texts.
    Vectors(Box<Embedder>),
    /// One that scores texts for a query.
    Scores(Box<Reranker>),
    /// One that transcribes speech.
    #[cfg(feature = "speech")]
    Speech(Box<Transcriber>),
}

impl Served {
    /// True if its weights have no room together, and some are read again for each token.
    pub fn is_streaming(&self) -> bool {
        matches!(self, Served::Text(runtime) if runtime.streaming().is_some())
    }

    /// Bytes that it takes, those that stay in mapped files among them.
    pub fn bytes(&self) -> u64 {
        let of = |report: &LoadReport| report.owned_bytes.saturating_add(report.bytes_borrowed);
        match self {
            Served::Text(runtime) => {
                let foreseen = runtime.foreseen();
                foreseen.private.saturating_add(foreseen.mapped)
            }
            Served::Vectors(embedder) => of(embedder.report()),
            Served::Scores(reranker) => of(reranker.report()),
            #[cfg(feature = "speech")]
            Served::Speech(transcriber) => of(transcriber.report()),
        }
    }
}

/// The memory of a model.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Bytes in memory.
    pub(crate) bytes: u64,
    /// True if it would be faster with more.
    pub(crate) is_streaming: bool,
}

impl Size {
    pub(crate) fn of(served: &Served) -> Size {
        Size { bytes: served.bytes(), is_streaming: served.is_streaming() }
    }
}

/// Writes a conversation as the model's prompt. The error says why the template refuses it.
pub type Render = dyn Fn(&Conversation) -> Result<String, String> + Send + Sync;

/// The chat template of the model.
pub struct Chat {
    /// Writes conversations as prompts.
    pub render: Box<Render>,
    /// The [variables](weighbridge::engine::text::ChatTemplate::variables) that the template reads.
    pub variables: Vec<String>,
    /// What encloses the thoughts of the model ([`ReplySyntax::thoughts`](weighbridge::engine::text::ReplySyntax::thoughts)).
    pub thoughts: Option<[&'static str; 2]>,
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("variables", &self.variables).finish_non_exhaustive()
    }
}

/// The page about the model.
#[derive(Clone, Debug, Default)]
pub struct ModelPage {
    /// All of it. It may load `page/model.css` and `page/model.js`; nothing inline is applied or run.
    pub html: String,
    /// The style sheet `page/model.css`, which needs no key.
    pub style: String,
    /// The script `page/model.js`, which needs no key.
    pub script: String,
}

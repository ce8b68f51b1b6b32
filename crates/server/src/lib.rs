//! Serves a model over HTTP: text with the APIs of OpenAI, Anthropic and Ollama, vectors, scores, and transcripts.
//!
//! One thread, that of the caller, owns the model and runs its requests together. Another one
//! talks HTTP, and neither waits for the other: jobs and tokens go through channels. So tokio never runs inside the engine's pool, and
//! a slow client holds nobody up.
//!
//! A browser finds a chat page at `/`, and one about the model at `/model`.
//!
//! [`serve`] runs until the process is told to end (SIGTERM, Ctrl-C); then it takes no more requests, and finishes those it has.

mod answer;
mod asked;
mod batch;
mod chat;
mod chunks;
mod completions;
mod embeddings;
mod error;
mod fields;
#[cfg(feature = "speech")]
mod form;
mod guard;
mod host;
mod listen;
mod messages;
mod metrics;
mod models;
mod ollama;
mod openapi;
mod options;
mod pace;
mod pages;
mod prepare;
mod refusal;
mod reply;
mod rerank;
mod responses;
mod routes;
mod sampling;
mod service;
mod shapes;
#[cfg(feature = "speech")]
mod speech;
mod stream;
mod table;
mod template;
mod tokens;
mod tools;
#[cfg(feature = "speech")]
mod transcriptions;
mod work;

use std::net::TcpListener;
use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;
#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::engine::schedule::{Bounds, Scheduler};
use weighbridge::{Embedder, Reranker, Runtime, Task};

use batch::Inbox;
use embeddings::Vectors;
use host::{About, Files, Host};
use rerank::Scores;
use routes::Serves;
use service::Service;
use template::Template;

pub use error::Error;
pub use options::{Chat, Log, ModelPage, Options, Render};

/// A model that is served.
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

/// Serves a model to those who connect to `listener`, until the process is told to end.
///
/// # Errors
/// If the model has no tokenizer, or the system has no thread or socket for it.
pub fn serve(model: Served, listener: TcpListener, options: Options) -> Result<(), Error> {
    match model {
        Served::Text(runtime) => text(*runtime, listener, options),
        Served::Vectors(embedder) => vectors(*embedder, listener, options),
        Served::Scores(reranker) => scores(*reranker, listener, options),
        #[cfg(feature = "speech")]
        Served::Speech(transcriber) => speech(*transcriber, listener, options),
    }
}

fn text(runtime: Runtime, listener: TcpListener, mut options: Options) -> Result<(), Error> {
    let tokenizer = Arc::clone(runtime.tokenizer().map_err(|e| Error::Tokenizer(e.diagnostics()))?);
    let session = runtime.session();
    // The session that the runtime has is never used: the texts that are kept may take what it would.
    let sessions = options.parallel.saturating_add(1) as u64;
    let bounds = Bounds {
        sequences: options.parallel,
        waiting: options.queue,
        bytes: (session.bytes() as u64).saturating_mul(sessions),
    };
    let scheduler = Scheduler::new(session.kind(), bounds);
    let (inbox, jobs) = unbounded_channel();
    let shared = runtime.shared();
    let template = options.chat.take().map(Template::new);
    let about = About {
        task: Task::Text,
        family: runtime.model().family.name(),
        vocab: shared.vocab(),
        positions: session.capacity(),
        trained: shared.architecture().context(),
        width: None,
        has_tools: template.as_ref().is_some_and(|template| template.no_tools().is_none()),
        files: Files::of(runtime.checkpoint()),
    };
    let host = Arc::new(Host::new(options, about));
    let service = Arc::new(Service::new(&runtime, &tokenizer, template, Arc::clone(&host), inbox));
    let ends = service.ends();
    let http = listen(listener, service)?;
    // Ends when nobody is left who could send a job.
    work::Engine::new(runtime, scheduler, &tokenizer, ends, Arc::clone(&host.pace), host.metrics.clone())
        .run(jobs);
    joined(http)
}

fn vectors(embedder: Embedder, listener: TcpListener, options: Options) -> Result<(), Error> {
    let wrong = |e: weighbridge::Error| Error::Tokenizer(e.diagnostics());
    let vocab = embedder.encoder().map_err(wrong)?.tokenizer().vocab_size();
    let about = About {
        task: Task::Vectors,
        family: embedder.model().family.name(),
        vocab,
        positions: embedder.longest(),
        trained: embedder.context(),
        width: Some(embedder.width()),
        has_tools: false,
        files: Files::of(embedder.checkpoint()),
    };
    let host = Arc::new(Host::new(options, about));
    let (inbox, jobs) = Inbox::new();
    let vectors = Vectors::new(&embedder, Arc::clone(&host), inbox).map_err(wrong)?;
    let http = listen(listener, Arc::new(vectors))?;
    batch::run(embedder, &host, jobs);
    joined(http)
}

fn scores(reranker: Reranker, listener: TcpListener, options: Options) -> Result<(), Error> {
    let about = About {
        task: Task::Scores,
        family: reranker.model().family.name(),
        vocab: reranker.tokenizer().vocab_size(),
        positions: reranker.longest(),
        trained: reranker.context(),
        width: None,
        has_tools: false,
        files: Files::of(reranker.checkpoint()),
    };
    let host = Arc::new(Host::new(options, about));
    let (inbox, jobs) = Inbox::new();
    let http = listen(listener, Arc::new(Scores::new(&reranker, Arc::clone(&host), inbox)))?;
    batch::run(reranker, &host, jobs);
    joined(http)
}

#[cfg(feature = "speech")]
fn speech(transcriber: Transcriber, listener: TcpListener, options: Options) -> Result<(), Error> {
    let about = About {
        task: Task::Speech,
        family: transcriber.model().family.name(),
        vocab: transcriber.tokenizer().vocab_size(),
        positions: 0,
        trained: 0,
        width: None,
        has_tools: false,
        files: Files::of(transcriber.checkpoint()),
    };
    let host = Arc::new(Host::new(options, about));
    let (inbox, jobs) = unbounded_channel();
    let sounds = speech::Sounds::new(&transcriber, Arc::clone(&host), inbox);
    let http = listen(listener, Arc::new(sounds))?;
    speech::run(transcriber, &host, jobs);
    joined(http)
}

/// The thread of HTTP.
type Http = std::thread::JoinHandle<Result<(), Error>>;

fn listen<S: Serves>(listener: TcpListener, service: Arc<S>) -> Result<Http, Error> {
    let http = std::thread::Builder::new().name("http".to_owned());
    http.spawn(move || listen::run(listener, &service)).map_err(Error::Io)
}

fn joined(http: Http) -> Result<(), Error> {
    http.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

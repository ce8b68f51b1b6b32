//! A model in memory: its routes, and the thread that has loaded it and runs it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::Router;
use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::engine::schedule::{Bounds, Scheduler};
use weighbridge::{Embedder, Reranker, Runtime, Task};

use crate::batch::{self, Inbox};
use crate::embeddings::Vectors;
use crate::error::Error;
use crate::host::{About, Files, Host, Shared};
use crate::offer::{Chat, Loaded, ModelPage, NotLoaded, Offer, Served};
use crate::rerank::Scores;
use crate::routes::Serves;
use crate::service::Service;
#[cfg(feature = "speech")]
use crate::speech::{self, Sounds};
use crate::template::Template;
use crate::{openapi, table, work};

/// A model in memory. Its thread ends when its routes are gone, which hold the only way to it, and frees what it had.
pub(crate) struct Live {
    pub(crate) router: Router,
    pub(crate) host: Arc<Host>,
    /// The description of its routes.
    pub(crate) api: Value,
    /// What it takes.
    pub(crate) size: Size,
    /// Requests that are on their way.
    requests: watch::Sender<usize>,
    /// When the last one began or ended.
    used: Mutex<Instant>,
    thread: JoinHandle<()>,
}

impl Live {
    /// Loads a model, and waits until its thread is ready.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        offer: &Arc<Offer>,
        memory: Option<u64>,
    ) -> Result<Live, Error> {
        let (ready, told) = channel();
        let (of_thread, own) = (Arc::clone(shared), Arc::clone(offer));
        let thread = std::thread::Builder::new().name("model".to_owned());
        let thread = thread.spawn(move || run(&of_thread, &own, memory, &ready)).map_err(Error::Io)?;
        let Ok(told) = told.recv() else {
            // It has said why.
            let _ = thread.join();
            return Err(Error::Io(std::io::Error::other("the thread that loads the model has ended")));
        };
        let Ready { router, host, api, size } = told?;
        host.metrics.loaded();
        let (requests, _) = watch::channel(0);
        Ok(Live { router, host, api, size, requests, used: Mutex::new(Instant::now()), thread })
    }

    /// Whether its thread has ended by itself, as by a fault of ours.
    pub(crate) fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }

    /// Whether requests are on their way.
    pub(crate) fn is_busy(&self) -> bool {
        *self.requests.borrow() > 0
    }

    /// When it was used last.
    pub(crate) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request is on its way.
    pub(crate) async fn drained(&self) {
        let mut requests = self.requests.subscribe();
        // The sender is there as long as this is.
        let _ = requests.wait_for(|requests| *requests == 0).await;
    }

    /// Waits until its memory is free.
    pub(crate) fn end(self: Arc<Self>) {
        let mut live = self;
        // Who has counted as the last request may hold it for a moment.
        let own = loop {
            match Arc::try_unwrap(live) {
                Ok(own) => break own,
                Err(shared) => live = shared,
            }
            std::thread::yield_now();
        };
        let Live { router, thread, .. } = own;
        drop(router);
        // A panic has said what it is.
        let _ = thread.join();
    }

    fn touch(&self, count: impl FnOnce(&mut usize)) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.requests.send_modify(count);
    }
}

/// What a model takes of memory.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Bytes in memory.
    pub(crate) bytes: u64,
    /// True if it would be faster with more.
    pub(crate) is_streaming: bool,
}

/// A request to a model, which keeps it in memory.
pub(crate) struct Held(pub(crate) Arc<Live>);

impl Held {
    pub(crate) fn new(live: &Arc<Live>) -> Held {
        live.touch(|requests| *requests += 1);
        Held(Arc::clone(live))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.touch(|requests| *requests -= 1);
    }
}

/// What the thread tells of a model that it has loaded.
struct Ready {
    router: Router,
    host: Arc<Host>,
    api: Value,
    size: Size,
}

impl Ready {
    fn new<S: Serves>(service: &Arc<S>, size: Size) -> Ready {
        Ready {
            router: table::router(service),
            host: Arc::clone(service.host()),
            api: openapi::document(&**service),
            size,
        }
    }
}

/// Says that a model is ready, or why it is not.
type Tell = Sender<Result<Ready, Error>>;

/// The thread: loads a model, says that it is ready, and runs it until nobody can ask any more.
fn run(shared: &Arc<Shared>, offer: &Offer, memory: Option<u64>, tell: &Tell) {
    let loaded = (offer.load)(memory).map_err(|why| match why {
        NotLoaded { problems, is_for_memory: true } => Error::Memory(problems),
        NotLoaded { problems, .. } => Error::Model(problems),
    });
    let ran = loaded.and_then(|loaded| {
        let Loaded { served, chat, page } = loaded;
        let size = Size { bytes: served.bytes(), is_streaming: served.is_streaming() };
        let host = |page: Option<ModelPage>, about| {
            Arc::new(Host::new(shared, &offer.names, offer.parallel, page, about))
        };
        match served {
            Served::Text(runtime) => text(*runtime, chat, |about| host(page, about), size, tell),
            Served::Vectors(embedder) => vectors(*embedder, |about| host(page, about), size, tell),
            Served::Scores(reranker) => {
                scores(*reranker, |about| host(page, about), size, tell);
                Ok(())
            }
            #[cfg(feature = "speech")]
            Served::Speech(transcriber) => {
                hear(*transcriber, |about| host(page, about), size, tell);
                Ok(())
            }
        }
    });
    if let Err(error) = ran {
        // Whoever waits for it has left.
        let _ = tell.send(Err(error));
    }
}

fn text(
    runtime: Runtime,
    chat: Option<Chat>,
    host: impl FnOnce(About) -> Arc<Host>,
    size: Size,
    tell: &Tell,
) -> Result<(), Error> {
    let tokenizer = Arc::clone(runtime.tokenizer().map_err(|e| Error::Tokenizer(e.diagnostics()))?);
    let session = runtime.session();
    let shared = runtime.shared();
    let template = chat.map(Template::new);
    let host = host(About {
        task: Task::Text,
        family: runtime.model().family.name(),
        vocab: shared.vocab(),
        positions: session.capacity(),
        trained: shared.architecture().context(),
        width: None,
        has_tools: template.as_ref().is_some_and(|template| template.no_tools().is_none()),
        files: Files::of(runtime.checkpoint()),
    });
    // The session that the runtime has is never used: the texts that are kept may take what it would.
    let sessions = host.parallel.saturating_add(1) as u64;
    let bounds = Bounds {
        sequences: host.parallel,
        waiting: host.options.queue,
        bytes: (session.bytes() as u64).saturating_mul(sessions),
    };
    let scheduler = Scheduler::new(session.kind(), bounds);
    let (inbox, jobs) = unbounded_channel();
    let service = Arc::new(Service::new(&runtime, &tokenizer, template, Arc::clone(&host), inbox));
    let ends = service.ends();
    let _ = tell.send(Ok(Ready::new(&service, size)));
    drop(service);
    // Ends when nobody is left who could send a job.
    work::Engine::new(runtime, scheduler, &tokenizer, ends, host).run(jobs);
    Ok(())
}

fn vectors(
    embedder: Embedder,
    host: impl FnOnce(About) -> Arc<Host>,
    size: Size,
    tell: &Tell,
) -> Result<(), Error> {
    let wrong = |e: weighbridge::Error| Error::Tokenizer(e.diagnostics());
    let vocab = embedder.encoder().map_err(wrong)?.tokenizer().vocab_size();
    let host = host(About {
        task: Task::Vectors,
        family: embedder.model().family.name(),
        vocab,
        positions: embedder.longest(),
        trained: embedder.context(),
        width: Some(embedder.width()),
        has_tools: false,
        files: Files::of(embedder.checkpoint()),
    });
    let (inbox, jobs) = Inbox::new();
    let vectors = Vectors::new(&embedder, Arc::clone(&host), inbox).map_err(wrong)?;
    let _ = tell.send(Ok(Ready::new(&Arc::new(vectors), size)));
    batch::run(embedder, &host, jobs);
    Ok(())
}

fn scores(reranker: Reranker, host: impl FnOnce(About) -> Arc<Host>, size: Size, tell: &Tell) {
    let host = host(About {
        task: Task::Scores,
        family: reranker.model().family.name(),
        vocab: reranker.tokenizer().vocab_size(),
        positions: reranker.longest(),
        trained: reranker.context(),
        width: None,
        has_tools: false,
        files: Files::of(reranker.checkpoint()),
    });
    let (inbox, jobs) = Inbox::new();
    let scores = Scores::new(&reranker, Arc::clone(&host), inbox);
    let _ = tell.send(Ok(Ready::new(&Arc::new(scores), size)));
    batch::run(reranker, &host, jobs);
}

#[cfg(feature = "speech")]
fn hear(transcriber: Transcriber, host: impl FnOnce(About) -> Arc<Host>, size: Size, tell: &Tell) {
    let host = host(About {
        task: Task::Speech,
        family: transcriber.model().family.name(),
        vocab: transcriber.tokenizer().vocab_size(),
        positions: 0,
        trained: 0,
        width: None,
        has_tools: false,
        files: Files::of(transcriber.checkpoint()),
    });
    let (inbox, jobs) = unbounded_channel();
    let sounds = Sounds::new(&transcriber, Arc::clone(&host), inbox);
    let _ = tell.send(Ok(Ready::new(&Arc::new(sounds), size)));
    speech::run(transcriber, &host, jobs);
}

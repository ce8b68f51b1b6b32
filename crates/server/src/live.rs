//! A model in memory: its routes, and the thread that has loaded it and runs it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::Router;
use serde_json::Value;
use tokio::sync::watch;
#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::engine::schedule::{Bounds, Scheduler};
use weighbridge::{Embedder, Reranker, Runtime, Task};

use crate::batch;
use crate::embeddings::Vectors;
use crate::error::Error;
use crate::host::{About, Files, Host, Shared};
use crate::inbox::Inbox;
use crate::offer::{Chat, Loaded, ModelPage, Offer, Served, Size};
use crate::openapi;
use crate::rerank::Scores;
use crate::routes::{self, Serves, with_short};
use crate::service::Service;
#[cfg(feature = "speech")]
use crate::speech::{self, Sounds};
use crate::template::Template;
use crate::work::{self, Order, Renew};

/// Bytes of a thread's stack: as many as a process begins with.
const STACK: usize = 8 << 20;

/// A model in memory.
pub(crate) struct Live {
    pub(crate) router: Router,
    pub(crate) host: Arc<Host>,
    /// The description of its routes.
    pub(crate) api: Value,
    /// The memory that it takes.
    size: Mutex<Size>,
    /// Has its thread end, once it has done what was asked.
    close: Box<dyn Fn() + Send + Sync>,
    /// Has it go on with other weights; `None` if what it runs is not worth that.
    renew: Option<Box<dyn Fn(Renew) -> bool + Send + Sync>>,
    /// Requests that are read.
    requests: watch::Sender<usize>,
    /// When it was seen to be used.
    used: Mutex<Instant>,
    thread: JoinHandle<()>,
}

impl Live {
    /// Loads a model, and waits until its thread is ready.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        offer: &Arc<Offer>,
        memory: Option<u64>,
        weights: u64,
    ) -> Result<Live, Error> {
        let (ready, told) = channel();
        let (of_thread, own) = (Arc::clone(shared), Arc::clone(offer));
        let thread = std::thread::Builder::new().name("model".to_owned()).stack_size(STACK);
        let thread =
            thread.spawn(move || run(&of_thread, &own, (memory, weights), &ready)).map_err(Error::Io)?;
        let Ok(told) = told.recv() else {
            // It has said why.
            let _ = thread.join();
            return Err(Error::Io(std::io::Error::other("the thread that loads the model has ended")));
        };
        let Ready { router, host, api, size, close, renew } = told?;
        host.metrics.loaded();
        let (requests, _) = watch::channel(0);
        let size = Mutex::new(size);
        Ok(Live { router, host, api, size, close, renew, requests, used: Mutex::new(Instant::now()), thread })
    }

    /// True if its thread has ended by itself, which a panic does.
    pub(crate) fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }

    /// True if it reads a request, or runs one.
    pub(crate) fn is_busy(&self) -> bool {
        *self.requests.borrow() > 0 || self.host.is_busy()
    }

    /// It is used now.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When it was used last.
    pub(crate) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has done what was asked; its clients may still read their answers. None may come any more.
    pub(crate) async fn drained(&self) {
        let mut requests = self.requests.subscribe();
        // The sender is there as long as this is.
        let _ = requests.wait_for(|requests| *requests == 0).await;
        self.host.is_free().await;
    }

    /// The memory that it takes.
    pub(crate) fn size(&self) -> Size {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It takes this much from now on.
    pub(crate) fn resize(&self, size: Size) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = size;
    }

    /// Has it go on with other weights, whatever it runs. Returns whether it can.
    pub(crate) fn renew(&self, renew: Renew) -> bool {
        self.renew.as_ref().is_some_and(|own| own(renew))
    }

    /// True if it can go on with other weights in the middle of an answer.
    pub(crate) fn is_renewable(&self) -> bool {
        self.renew.is_some()
    }

    /// Waits until its memory is free.
    pub(crate) fn end(self: Arc<Self>) {
        (self.close)();
        let mut live = self;
        // Who looks at it may hold it for a moment.
        let own = loop {
            match Arc::try_unwrap(live) {
                Ok(own) => break own,
                Err(shared) => live = shared,
            }
            std::thread::yield_now();
        };
        // A panic has said what it is.
        let _ = own.thread.join();
    }
}

/// A request to a model that is read, which keeps it in memory.
pub(crate) struct Held(pub(crate) Arc<Live>);

impl Held {
    pub(crate) fn new(live: &Arc<Live>) -> Held {
        live.touch();
        live.requests.send_modify(|requests| *requests += 1);
        Held(Arc::clone(live))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.touch();
        self.0.requests.send_modify(|requests| *requests -= 1);
    }
}

/// A model that the thread has loaded, ready to be asked.
struct Ready {
    router: Router,
    host: Arc<Host>,
    api: Value,
    size: Size,
    close: Box<dyn Fn() + Send + Sync>,
    renew: Option<Box<dyn Fn(Renew) -> bool + Send + Sync>>,
}

impl Ready {
    fn new<S: Serves>(service: &Arc<S>, size: Size) -> Ready {
        let own = Arc::clone(service);
        Ready {
            close: Box::new(move || own.close()),
            renew: None,
            router: routes::router(service),
            host: Arc::clone(service.host()),
            api: openapi::described(&with_short(S::routes()), &**service),
            size,
        }
    }
}

/// Says that a model is ready, or why it is not.
type Tell = Sender<Result<Ready, Error>>;

/// The thread: loads a model, says that it is ready, and runs it until nobody can ask any more.
fn run(shared: &Arc<Shared>, offer: &Offer, (memory, weights): (Option<u64>, u64), tell: &Tell) {
    let loaded = (offer.load)(memory).map_err(Error::Model);
    let ran = loaded.and_then(|loaded| {
        let Loaded { served, chat, page } = loaded;
        let size = Size::of(&served);
        let host = |page: Option<ModelPage>, about| Arc::new(Host::new(shared, offer, page, about, weights));
        match served {
            Served::Text(runtime) => text(runtime, chat, |about| host(page, about), size, tell),
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
    runtime: Box<Runtime>,
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
        kv_budget: session.kv_budget(),
    };
    let scheduler = Scheduler::new(session.kind(), bounds);
    let (inbox, orders) = Inbox::new();
    let service = Arc::new(Service::new(&runtime, &tokenizer, template, Arc::clone(&host), inbox));
    let ends = service.ends();
    let own = Arc::clone(&service);
    let renew = move |renew| own.inbox.send(Order::Renew(renew));
    let ready = Ready::new(&service, size);
    let _ = tell.send(Ok(Ready { renew: Some(Box::new(renew)), ..ready }));
    drop(service);
    let positions = runtime.session().capacity();
    // Ends when nobody is left who could send an order.
    work::Engine::new(positions, &tokenizer, ends, host).run(runtime, scheduler, orders);
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
    let (inbox, jobs) = Inbox::new();
    let sounds = Sounds::new(&transcriber, Arc::clone(&host), inbox);
    let _ = tell.send(Ok(Ready::new(&Arc::new(sounds), size)));
    speech::run(transcriber, &host, jobs);
}

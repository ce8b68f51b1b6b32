//! The state of a server: what it has whatever its models are, and what it has for each of them.

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use weighbridge::{Checkpoint, Task, TensorEntry};

use crate::metrics::{Metrics, ModelMetrics};
use crate::offer::{ModelPage, Offer};
use crate::options::Options;
use crate::pace::Pace;
use crate::refusal::Refusal;

/// The state that all models of a server share: options, keys, figures.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// When the server started, in seconds since 1970.
    pub(crate) started: u64,
    /// Hashes of the keys.
    pub(crate) keys: Vec<blake3::Hash>,
    /// The process was told to end.
    pub(crate) is_stopping: AtomicBool,
    /// The counters.
    pub(crate) metrics: Metrics,
    /// Held by the model that computes: two at once would wait for each other's threads. Models have it in the order in which they ask.
    pub(crate) turn: Mutex<()>,
    random: RandomState,
    count: AtomicU64,
}

/// The state that all requests to a model share, whatever it is for.
pub(crate) struct Host {
    shared: Arc<Shared>,
    /// The names of the model, of which `*` is any.
    names: Vec<String>,
    pub(crate) about: About,
    /// Requests that run together.
    pub(crate) parallel: usize,
    /// The page about the model.
    pub(crate) page: Option<ModelPage>,
    /// Its counters.
    pub(crate) metrics: ModelMetrics,
    /// How fast the engine gets on.
    pub(crate) pace: Arc<Pace>,
    /// One for each sequence that runs or waits.
    places: Arc<Semaphore>,
    /// The number of the weights that are run: how often the model was loaded or renewed since the server started.
    weights: AtomicU64,
}

impl Deref for Host {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Facts about the model.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) task: Task,
    pub(crate) family: &'static str,
    pub(crate) vocab: usize,
    /// Positions of a request.
    pub(crate) positions: usize,
    /// Positions that the model was trained for.
    pub(crate) trained: u64,
    /// Elements of a vector, if the model makes them.
    pub(crate) width: Option<usize>,
    /// Whether its template knows tools.
    pub(crate) has_tools: bool,
    pub(crate) files: Files,
}

/// Facts about the files of the model.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) format: String,
    /// The number of parameters.
    pub(crate) parameters: u64,
    /// The bytes that they take.
    pub(crate) bytes: u64,
}

impl Files {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Files {
        let entries = || checkpoint.entries().iter();
        Files {
            format: checkpoint.format().to_string(),
            parameters: entries().filter_map(|entry| entry.shape.elements()).sum(),
            bytes: entries().map(TensorEntry::byte_len).sum(),
        }
    }
}

impl Shared {
    pub(crate) fn new(options: Options) -> Shared {
        Shared {
            started: now(),
            keys: options.keys.iter().map(|key| blake3::hash(key.as_bytes())).collect(),
            is_stopping: AtomicBool::new(false),
            metrics: Metrics::new(),
            turn: Mutex::new(()),
            random: RandomState::new(),
            count: AtomicU64::new(0),
            options,
        }
    }

    /// A number that nobody can guess.
    pub(crate) fn random(&self) -> u64 {
        self.random.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// A new id that begins with `kind`.
    pub(crate) fn id(&self, kind: &str) -> String {
        format!("{kind}{:016x}", self.random())
    }

    /// When a request must have ended that comes now, or that this task has had since [`within`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = || self.options.deadline.and_then(|time| Instant::now().checked_add(time));
        DEADLINE.try_with(|deadline| *deadline).unwrap_or_else(|_| own())
    }
}

tokio::task_local! {
    static DEADLINE: Option<Instant>;
}

/// Answers a request that must have ended at `deadline`: a model that has to be loaded for it takes its time from that.
pub(crate) async fn within<F: Future>(deadline: Option<Instant>, answer: F) -> F::Output {
    DEADLINE.scope(deadline, answer).await
}

impl Host {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        offer: &Offer,
        page: Option<ModelPage>,
        about: About,
        weights: u64,
    ) -> Host {
        let (names, parallel) = (&offer.names, offer.parallel);
        let places = places(parallel, shared.options.queue);
        Host {
            metrics: shared.metrics.of(own_names(names).next().map_or("model", String::as_str)),
            shared: Arc::clone(shared),
            names: names.clone(),
            about,
            parallel,
            page,
            pace: Arc::new(Pace::new(parallel)),
            places: Arc::new(Semaphore::new(places)),
            weights: AtomicU64::new(weights),
        }
    }

    /// The number of the weights that are run.
    pub(crate) fn weights(&self) -> u64 {
        self.weights.load(Ordering::Relaxed)
    }

    /// Others are run from now on.
    pub(crate) fn renewed(&self, weights: u64) {
        self.weights.store(weights, Ordering::Relaxed);
    }

    /// The name of the model.
    pub(crate) fn name(&self) -> &str {
        own_names(&self.names).next().map_or("model", String::as_str)
    }

    /// Takes the right to have `count` sequences, before anything is made for them.
    pub(crate) fn places(&self, count: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let most = places(self.parallel, self.options.queue);
        let Some(wanted) = u32::try_from(count).ok().filter(|_| count <= most) else {
            return Err(Refusal::wrong(format!(
                "the request asks for {count} answers, and {most} may run and wait together here"
            )));
        };
        let permit = Arc::clone(&self.places).try_acquire_many_owned(wanted);
        permit.map_err(|_| self.busy())
    }

    /// True if sequences run or wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.places.available_permits() < places(self.parallel, self.options.queue)
    }

    /// Waits until none runs or waits.
    pub(crate) async fn is_free(&self) {
        let all = u32::try_from(places(self.parallel, self.options.queue)).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.places.acquire_many(all).await;
    }

    /// Too many others wait.
    pub(crate) fn busy(&self) -> Refusal {
        Refusal::busy(self.pace.wait(self.options.queue))
    }

    /// A name without the tag that Ollama's clients put after it.
    pub(crate) fn untagged(&self, name: String) -> String {
        untagged(&self.names, name)
    }

    /// Refuses other models than this one.
    pub(crate) fn is_served(&self, name: &str) -> Result<(), Refusal> {
        if has_name(&self.names, name) { Ok(()) } else { Err(not_served(name, &[self.name()])) }
    }
}

/// Takes any name.
const ANY: &str = "*";

/// The names without the one that takes any.
pub(crate) fn own_names(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| *name != ANY)
}

/// True if a request may call a model with these names `name`.
pub(crate) fn has_name(names: &[String], name: &str) -> bool {
    names.iter().any(|own| own == name || own == ANY)
}

/// `name` without the tag that Ollama's clients put after it, unless the model has a name with it.
pub(crate) fn untagged(names: &[String], name: String) -> String {
    match name.strip_suffix(":latest") {
        Some(short) if !has_name(names, &name) => short.to_owned(),
        _ => name,
    }
}

/// Another model than those that are served.
pub(crate) fn not_served(name: &str, served: &[&str]) -> Refusal {
    let shown: String = name.chars().take(60).collect();
    let served: Vec<String> = served.iter().map(|name| format!("`{name}`")).collect();
    let are = if served.len() == 1 { "is" } else { "are" };
    Refusal::no_model(format!("the model `{shown}` is not served here: {} {are}", served.join(", ")))
}

/// Sequences that run and wait at most.
pub(crate) fn places(parallel: usize, queue: usize) -> usize {
    parallel.saturating_add(queue).min(Semaphore::MAX_PERMITS)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! What a server has whatever its model is for: names, limits, keys, figures.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weighbridge::{Checkpoint, Task, TensorEntry};

use crate::metrics::Metrics;
use crate::options::Options;
use crate::pace::Pace;
use crate::refusal::Refusal;

/// The parts of a server that every task has.
pub(crate) struct Host {
    pub(crate) options: Options,
    pub(crate) about: About,
    /// When the server started, in seconds since 1970.
    pub(crate) started: u64,
    /// Hashes of the keys.
    pub(crate) keys: Vec<blake3::Hash>,
    /// The process was told to end.
    pub(crate) is_stopping: AtomicBool,
    /// The counters.
    pub(crate) metrics: Metrics,
    /// How fast the engine gets on.
    pub(crate) pace: Arc<Pace>,
    /// The description of the API.
    pub(crate) api: std::sync::OnceLock<String>,
    /// One for each sequence that runs or waits.
    places: Arc<Semaphore>,
    random: RandomState,
    count: AtomicU64,
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

impl Host {
    pub(crate) fn new(options: Options, about: About) -> Host {
        Host {
            about,
            started: now(),
            keys: options.keys.iter().map(|key| blake3::hash(key.as_bytes())).collect(),
            is_stopping: AtomicBool::new(false),
            metrics: Metrics::new(),
            pace: Arc::new(Pace::new(options.parallel)),
            api: std::sync::OnceLock::new(),
            places: Arc::new(Semaphore::new(places(&options))),
            random: RandomState::new(),
            count: AtomicU64::new(0),
            options,
        }
    }

    /// The name of the model.
    pub(crate) fn name(&self) -> &str {
        self.names().next().map_or("model", String::as_str)
    }

    /// The names of the model.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.options.names.iter().filter(|name| *name != ANY)
    }

    /// A number that nobody can guess.
    pub(crate) fn random(&self) -> u64 {
        self.random.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// A new id that begins with `kind`.
    pub(crate) fn id(&self, kind: &str) -> String {
        format!("{kind}{:016x}", self.random())
    }

    /// When a request that comes now must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.options.deadline.and_then(|time| Instant::now().checked_add(time))
    }

    /// Takes the right to have `count` sequences, before anything is made for them.
    pub(crate) fn places(&self, count: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let most = places(&self.options);
        let Some(wanted) = u32::try_from(count).ok().filter(|_| count <= most) else {
            return Err(Refusal::wrong(format!(
                "the request asks for {count} answers, and {most} may run and wait together here"
            )));
        };
        let permit = Arc::clone(&self.places).try_acquire_many_owned(wanted);
        permit.map_err(|_| self.busy())
    }

    /// Too many others wait.
    pub(crate) fn busy(&self) -> Refusal {
        Refusal::busy(self.pace.wait(self.options.queue))
    }

    /// A name without the tag that Ollama's clients put after it.
    pub(crate) fn untagged(&self, name: String) -> String {
        match name.strip_suffix(":latest") {
            Some(short) if self.is_served(&name).is_err() => short.to_owned(),
            _ => name,
        }
    }

    /// Refuses other models than the one that is here.
    pub(crate) fn is_served(&self, name: &str) -> Result<(), Refusal> {
        if self.options.names.iter().any(|own| own == name || own == ANY) {
            return Ok(());
        }
        let shown: String = name.chars().take(60).collect();
        Err(Refusal::no_model(format!("the model `{shown}` is not served here: `{}` is", self.name())))
    }
}

/// Takes any name.
const ANY: &str = "*";

/// Sequences that run and wait at most.
fn places(options: &Options) -> usize {
    options.parallel.saturating_add(options.queue).min(Semaphore::MAX_PERMITS)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! The models of a server: which of them are in memory.
//!
//! A model is loaded when the server starts, as far as all of them have room together, or else when a request asks for it. Those that have
//! been used least lately make room. None is taken from a request: a model leaves memory when its last request has ended, and requests
//! that come for it meanwhile wait until it is loaded again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Semaphore, oneshot, watch};
use weighbridge::Task;
use weighbridge::load::available_memory;
use weighbridge::tensor::Diagnostic;

use crate::error::Error;
use crate::host::{Host, Shared, has_name, not_served, own_names, places, untagged};
use crate::live::{Held, Live};
use crate::offer::{NotLoaded, Offer, Served, Size};
use crate::refusal::Refusal;
use crate::work::{NotRenewed, Renew, Renewed};

/// How long a model that could not be loaded is not tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// The models of a server.
pub(crate) struct Fleet {
    pub(crate) shared: Arc<Shared>,
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Bytes of all that are in memory.
    budget: u64,
    /// Held while a model is loaded or leaves: one at a time, in the order in which they ask.
    moving: tokio::sync::Mutex<()>,
    /// The description of its own routes.
    pub(crate) api: OnceLock<Value>,
}

/// A model, in memory or not.
pub(crate) struct Entry {
    pub(crate) offer: Arc<Offer>,
    slot: Mutex<Slot>,
    /// One for each request that waits until it is loaded.
    waiting: Semaphore,
    /// The number of the weights that were loaded last.
    weights: AtomicU64,
}

/// Where a model stands.
#[derive(Default)]
struct Slot {
    live: Option<Arc<Live>>,
    /// The result of a load that goes on.
    coming: Option<Coming>,
    /// The facts that its last load told.
    known: Option<Known>,
    /// Room in which it did not fit.
    too_few: u64,
    /// When it could not be loaded.
    failed: Option<Instant>,
}

/// The result of a load. It holds the model until the last request that waited has it.
type Coming = watch::Receiver<Option<Result<Arc<Held>, Refusal>>>;

/// The facts that a load tells of a model.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) host: Arc<Host>,
    pub(crate) api: Value,
    /// Bytes that it takes.
    pub(crate) bytes: u64,
}

/// The place of a model: in memory, on its way there, or not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Unloaded,
    Loading,
    Loaded,
}

impl Standing {
    /// As llama.cpp's server says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Standing::Unloaded => "unloaded",
            Standing::Loading => "loading",
            Standing::Loaded => "loaded",
        }
    }
}

impl Entry {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        own_names(&self.offer.names).next().map_or("model", String::as_str)
    }

    /// True if a request may call it `name`.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        has_name(&self.offer.names, &untagged(&self.offer.names, name.to_owned()))
    }

    /// The time that it stays in memory if nobody uses it, where models are taken out after `idle`.
    pub(crate) fn stays(&self, idle: Option<Duration>) -> Option<Duration> {
        let live = self.slot().live.clone()?;
        Some(idle?.saturating_sub(if live.is_busy() { Duration::ZERO } else { live.used().elapsed() }))
    }

    /// Its place.
    pub(crate) fn standing(&self) -> Standing {
        let slot = self.slot();
        match (&slot.live, &slot.coming) {
            (Some(_), _) => Standing::Loaded,
            (None, Some(_)) => Standing::Loading,
            (None, None) => Standing::Unloaded,
        }
    }

    /// The facts that its last load told.
    pub(crate) fn known(&self) -> Option<Known> {
        self.slot().known.clone()
    }

    /// Bytes that it takes, as far as they are known.
    fn bytes(&self) -> u64 {
        let slot = self.slot();
        match &slot.known {
            Some(known) => known.bytes,
            None => self.offer.bytes.max(slot.too_few.saturating_add(1)),
        }
    }

    fn live(&self) -> Option<Arc<Live>> {
        self.slot().live.clone()
    }

    /// It, for a request, if it is in memory. No other can take it out of memory from then on.
    pub(crate) fn held(&self) -> Option<Held> {
        let mut slot = self.slot();
        if let Some(live) = slot.live.take_if(|live| live.is_dead()) {
            // It has said why; the next load is a new beginning.
            live.host.metrics.unloaded();
        }
        slot.live.as_ref().map(Held::new)
    }

    /// True if it could not be loaded a moment ago. Other models do not leave memory for it again so soon.
    fn has_failed(&self) -> bool {
        self.slot().failed.is_some_and(|when| when.elapsed() < AGAIN)
    }

    /// It may be loaded again at once.
    pub(crate) fn forgive(&self) {
        self.slot().failed = None;
    }

    /// The number of the weights that were loaded last.
    pub(crate) fn weights(&self) -> u64 {
        self.weights.load(Ordering::Relaxed)
    }

    /// The number of the weights that are loaded next.
    fn next_weights(&self) -> u64 {
        self.weights() + 1
    }

    fn set(&self, live: Live) -> Option<Arc<Live>> {
        self.weights.store(live.host.weights(), Ordering::Relaxed);
        let mut slot = self.slot();
        slot.failed = None;
        slot.known =
            Some(Known { host: Arc::clone(&live.host), api: live.api.clone(), bytes: live.size().bytes });
        slot.live.replace(Arc::new(live))
    }
}

/// Takes a model out of memory, once its last request has ended.
async fn unloaded(live: Arc<Live>) {
    live.host.metrics.unloaded();
    retired(live).await;
}

/// The same for one whose place another has taken.
async fn retired(live: Arc<Live>) {
    live.drained().await;
    // Its thread may be in the middle of something.
    let _ = tokio::task::spawn_blocking(move || live.end()).await;
}

impl Fleet {
    /// Loads the models, in their order, as far as there is room.
    pub(crate) fn start(offers: Vec<Offer>, shared: Arc<Shared>) -> Result<Fleet, Error> {
        let entry = |offer: Offer| {
            let waiting = places(offer.parallel, shared.options.queue);
            Arc::new(Entry {
                offer: Arc::new(offer),
                slot: Mutex::default(),
                waiting: Semaphore::new(waiting),
                weights: AtomicU64::new(0),
            })
        };
        let entries = offers.into_iter().map(entry).collect();
        let budget = shared.options.memory.or_else(available_memory).unwrap_or(u64::MAX);
        let fleet =
            Fleet { shared, entries, budget, moving: tokio::sync::Mutex::new(()), api: OnceLock::new() };
        // Of several that cannot be loaded, each is named.
        let mut failed = vec![];
        for entry in &fleet.entries {
            let others = fleet.resident_bytes();
            if others > 0 && others.saturating_add(entry.bytes()) > budget {
                continue;
            }
            let started = Live::start(&fleet.shared, &entry.offer, fleet.limit(others), entry.next_weights());
            if others == 0 || !fleet.is_tight(&started, others) {
                match started {
                    Ok(live) => drop(entry.set(live)),
                    Err(error) => failed.push(error),
                }
                continue;
            }
            if let Ok(live) = started {
                live.host.metrics.unloaded();
                Arc::new(live).end();
            }
            entry.slot().too_few = budget.saturating_sub(others);
        }
        match Error::all(failed) {
            Some(error) => Err(error),
            None => Ok(fleet),
        }
    }

    /// The models that are not in memory, with their bytes.
    pub(crate) fn unloaded(&self) -> Vec<(String, u64)> {
        let out = self.entries.iter().filter(|entry| entry.standing() == Standing::Unloaded);
        out.map(|entry| (entry.name().to_owned(), entry.bytes())).collect()
    }

    /// Bytes of what is in memory.
    fn resident_bytes(&self) -> u64 {
        self.entries.iter().filter_map(|entry| entry.live()).map(|live| live.size().bytes).sum()
    }

    /// The bytes that a model may take beside `others`. A single model has what the system has available, unless there is a limit.
    fn limit(&self, others: u64) -> Option<u64> {
        let is_one = self.entries.len() == 1;
        if is_one { self.shared.options.memory } else { Some(self.budget.saturating_sub(others)) }
    }

    /// True if a model does not fit beside `others` bytes: it would read weights for each token, or exceed the budget.
    fn is_tight(&self, started: &Result<Live, Error>, others: u64) -> bool {
        match started {
            Ok(live) => {
                let size = live.size();
                size.is_streaming || others.saturating_add(size.bytes) > self.budget
            }
            Err(error) => error.is_for_memory(),
        }
    }

    /// The tasks of the models, as a list in words.
    pub(crate) fn tasks(&self) -> String {
        let mut tasks: Vec<&str> = vec![];
        for name in self.entries.iter().map(|entry| entry.offer.task.name()) {
            if !tasks.contains(&name) {
                tasks.push(name);
            }
        }
        tasks.join(", ")
    }

    /// The models for a task.
    pub(crate) fn of(&self, task: Task) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.offer.task == task)
    }

    /// The model that a request names, among those for its task, if it has one.
    pub(crate) fn find(&self, task: Option<Task>, name: &str) -> Result<&Arc<Entry>, Refusal> {
        let entries = || self.entries.iter().filter(|entry| task.is_none_or(|task| entry.offer.task == task));
        let exact = entries().find(|entry| has_name(&entry.offer.names, name));
        let found = exact.or_else(|| entries().find(|entry| entry.has_name(name)));
        found.ok_or_else(|| not_served(name, &entries().map(|entry| entry.name()).collect::<Vec<_>>()))
    }

    /// A model for a request, loaded if it has to be.
    pub(crate) async fn held(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Held, Refusal> {
        let deadline = self.shared.deadline();
        if let Some(held) = entry.held() {
            return Ok(held);
        }
        if entry.has_failed() {
            return Err(Refusal::not_loaded(entry.name()));
        }
        let _waits = entry.waiting.try_acquire().map_err(|_| Refusal::busy(10))?;
        let mut coming = self.load(entry);
        let told = coming.wait_for(Option::is_some);
        let told = match deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline.into(), told).await.map_err(|_| Refusal::late())?
            }
            None => told.await,
        };
        match told.as_deref() {
            Ok(Some(Ok(held))) => Ok(Held::new(&held.0)),
            Ok(Some(Err(refusal))) => Err(refusal.clone()),
            Ok(None) | Err(_) => Err(Refusal::stopping()),
        }
    }

    /// Begins to load a model, unless somebody has.
    fn load(self: &Arc<Self>, entry: &Arc<Entry>) -> Coming {
        let mut slot = entry.slot();
        if let Some(coming) = &slot.coming {
            return coming.clone();
        }
        let (tell, coming) = watch::channel(None);
        slot.coming = Some(coming.clone());
        drop(slot);
        let (fleet, entry) = (Arc::clone(self), Arc::clone(entry));
        // It goes on when who has asked for it leaves: others may wait for it too.
        tokio::spawn(async move {
            let moving = fleet.moving.lock().await;
            let mut held = entry.held();
            let mut refused = Refusal::not_loaded(entry.name());
            // It may have been read anew meanwhile.
            if held.is_none() {
                fleet.make_room(&entry).await;
                match fleet.loaded(&entry).await {
                    Ok(_) => held = entry.held(),
                    Err(refusal) => {
                        entry.slot().failed = Some(Instant::now());
                        refused = refusal;
                    }
                }
            }
            entry.slot().coming = None;
            let _ = tell.send(Some(held.map(Arc::new).ok_or(refused)));
            // Not before it is held: the next to be loaded may want its place.
            drop(moving);
        });
        coming
    }

    /// Loads a model now. Returns what was in its place.
    ///
    /// If it turns out to have too little room, others leave, and it is loaded again.
    async fn loaded(&self, entry: &Arc<Entry>) -> Result<Option<Arc<Live>>, Refusal> {
        loop {
            let (shared, offer) = (Arc::clone(&self.shared), Arc::clone(&entry.offer));
            let others = self.resident_bytes();
            let limit = self.limit(others);
            let weights = entry.next_weights();
            let start = move || Live::start(&shared, &offer, limit, weights);
            let started = tokio::task::spawn_blocking(start).await;
            let started = started.map_err(|_| Refusal::not_loaded(entry.name()))?;
            let other = if self.is_tight(&started, others) {
                self.least_used(entry).or_else(|| entry.slot().live.take())
            } else {
                None
            };
            if let Some(other) = other {
                if let Ok(live) = started {
                    unloaded(Arc::new(live)).await;
                }
                unloaded(other).await;
                continue;
            }
            return match started {
                Ok(live) => Ok(entry.set(live)),
                Err(error) => {
                    if let Some(log) = &self.shared.options.log {
                        log(&format!("`{}` cannot be loaded: {}", entry.name(), error.diagnostics()));
                    }
                    Err(Refusal::not_loaded(entry.name()))
                }
            };
        }
    }

    /// Takes others out of memory until there is room for `entry`, or nothing else is in memory.
    async fn make_room(&self, entry: &Arc<Entry>) {
        while self.resident_bytes().saturating_add(entry.bytes()) > self.budget {
            let Some(other) = self.least_used(entry) else { break };
            unloaded(other).await;
        }
    }

    /// Takes a model from its place, so that it may make room for `entry`: one that nobody uses, and of those the one that was used least
    /// lately.
    fn least_used(&self, entry: &Arc<Entry>) -> Option<Arc<Live>> {
        let others = self.entries.iter().filter(|other| !Arc::ptr_eq(other, entry));
        let (other, _) = others
            .filter_map(|other| other.live().map(|live| (other, (live.is_busy(), live.used()))))
            .min_by_key(|(_, order)| *order)?;
        other.slot().live.take()
    }

    /// Takes a model out of memory, once its requests have ended. Returns whether it was there.
    pub(crate) async fn unload(&self, entry: &Entry) -> bool {
        let _moving = self.moving.lock().await;
        let live = entry.slot().live.take();
        match live {
            Some(live) => {
                unloaded(live).await;
                true
            }
            None => false,
        }
    }

    /// Reads a model anew, and tells when that is done. With room for both, requests that run go on with the old one, and the next have
    /// the new one; without, the next wait until those that run have ended. If it cannot be read, the old one stays where there was room
    /// for both.
    pub(crate) async fn reload(&self, entry: &Arc<Entry>, tell: oneshot::Sender<Result<(), Refusal>>) {
        let _moving = self.moving.lock().await;
        if self.resident_bytes().saturating_add(entry.bytes()) > self.budget {
            let old = entry.slot().live.take();
            if let Some(old) = old {
                unloaded(old).await;
            }
            self.make_room(entry).await;
        }
        let loaded = self.loaded(entry).await;
        let (done, old) = match loaded {
            Ok(old) => (Ok(()), old),
            Err(refusal) => (Err(refusal), None),
        };
        let _ = tell.send(done);
        if let Some(old) = old {
            // Until it has left, it takes room.
            retired(old).await;
        }
    }

    /// Reads a model anew, and has the texts that run go on with the new weights from their next token on. It is told when they do.
    /// Without room for both, the old ones leave first, and if the new ones cannot be read, these texts end with an error.
    pub(crate) async fn renew(&self, entry: &Arc<Entry>, tell: oneshot::Sender<Result<(), Refusal>>) {
        let moving = self.moving.lock().await;
        let live = entry.live().filter(|live| live.is_renewable() && !live.is_dead());
        let Some(live) = live else {
            // Nothing runs that could go on.
            drop(moving);
            return self.reload(entry, tell).await;
        };
        let resident = self.resident_bytes();
        let left = self.budget.saturating_sub(resident);
        let offer = Arc::clone(&entry.offer);
        let load = move |limit| {
            let served = (offer.load)(limit)?.served;
            let size = Size::of(&served);
            match served {
                Served::Text(runtime) => Ok(Renewed { runtime, size }),
                _ => {
                    let problems = Diagnostic::new("the new files continue no texts").into();
                    Err(NotLoaded { problems, is_for_memory: false, is_misuse: false })
                }
            }
        };
        let (done, result) = oneshot::channel();
        let weights = entry.next_weights();
        let renew = Renew {
            load: Box::new(load),
            beside: (entry.bytes() <= left).then_some(left),
            alone: self.limit(resident.saturating_sub(live.size().bytes)),
            weights,
            tell: done,
        };
        // Nobody takes it out of memory meanwhile, and whoever ends the server does not wait for it.
        let held = Held::new(&live);
        let is_sent = live.renew(renew);
        let result = if is_sent { result.await.ok() } else { None };
        let gone = || NotRenewed { refusal: Refusal::not_loaded(entry.name()), is_gone: true };
        let result = result.unwrap_or_else(|| Err(gone()));
        drop(held);
        let told = match result {
            Ok(size) => {
                live.resize(size);
                entry.weights.store(weights, Ordering::Relaxed);
                if let Some(known) = &mut entry.slot().known {
                    known.bytes = size.bytes;
                }
                Ok(())
            }
            Err(NotRenewed { refusal, is_gone }) => {
                let dead = if is_gone { entry.slot().live.take() } else { None };
                drop(live);
                if let Some(dead) = dead {
                    unloaded(dead).await;
                }
                Err(refusal)
            }
        };
        let _ = tell.send(told);
        drop(moving);
    }

    /// Takes models out of memory that nobody has used for `idle`, for as long as the server runs.
    pub(crate) async fn rest(&self, idle: Duration) {
        let mut ticks =
            tokio::time::interval((idle / 8).clamp(Duration::from_millis(50), Duration::from_secs(5)));
        loop {
            ticks.tick().await;
            let _moving = self.moving.lock().await;
            for entry in &self.entries {
                let live = {
                    let mut slot = entry.slot();
                    slot.live.take_if(|live| {
                        if live.is_busy() {
                            live.touch();
                        }
                        live.used().elapsed() >= idle
                    })
                };
                if let Some(live) = live {
                    unloaded(live).await;
                    if let Some(log) = &self.shared.options.log {
                        log(&format!(
                            "`{}` left memory: nobody used it for {} s",
                            entry.name(),
                            idle.as_secs()
                        ));
                    }
                }
            }
        }
    }

    /// Ends all threads that nobody waits for any more.
    pub(crate) fn end(&self) {
        for entry in &self.entries {
            let live = entry.slot().live.take();
            if let Some(live) = live.filter(|live| !live.is_busy()) {
                live.end();
            }
        }
    }
}

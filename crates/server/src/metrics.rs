//! `/metrics`: figures for Prometheus.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use weighbridge::engine::Stats;

/// The label of a model.
type Model = [(&'static str, String); 1];
/// Makes histograms.
type Buckets = fn() -> Histogram;

/// The counters of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<[(&'static str, String); 3], Counter>,
    prompt_tokens: Family<Model, Counter>,
    cached_tokens: Family<Model, Counter>,
    generated_tokens: Family<Model, Counter>,
    first_token: Family<Model, Histogram, Buckets>,
    next_token: Family<Model, Histogram, Buckets>,
    running: Family<Model, Gauge>,
    waiting: Family<Model, Gauge>,
    sound: Family<Model, Counter<f64, AtomicU64>>,
    loaded: Family<Model, Gauge>,
    loads: Family<Model, Counter>,
}

/// The counters of a model. Clones count together.
#[derive(Clone)]
pub(crate) struct ModelMetrics {
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    first_token: Histogram,
    next_token: Histogram,
    running: Gauge,
    waiting: Gauge,
    #[cfg(feature = "speech")]
    sound: Counter<f64, AtomicU64>,
    loaded: Gauge,
    loads: Counter,
}

impl fmt::Debug for ModelMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelMetrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("weighbridge");
        // From 5 ms to 82 s, and from 1 ms to 8 s.
        let first: Buckets = || Histogram::new(exponential_buckets(0.005, 2.0, 15));
        let next: Buckets = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let all = Metrics {
            registry: Registry::default(),
            requests: Family::default(),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
            generated_tokens: Family::default(),
            first_token: Family::new_with_constructor(first),
            next_token: Family::new_with_constructor(next),
            running: Family::default(),
            waiting: Family::default(),
            sound: Family::default(),
            loaded: Family::default(),
            loads: Family::default(),
        };
        registry.register("requests", "Requests, by the status of their answers", all.requests.clone());
        registry.register("prompt_tokens", "Tokens of prompts", all.prompt_tokens.clone());
        registry.register(
            "cached_prompt_tokens",
            "Tokens of prompts that an earlier request had run",
            all.cached_tokens.clone(),
        );
        registry.register("generated_tokens", "Tokens of answers", all.generated_tokens.clone());
        registry.register_with_unit(
            "time_to_first_token",
            "From the request, queue included",
            Unit::Seconds,
            all.first_token.clone(),
        );
        registry.register_with_unit(
            "time_between_tokens",
            "Of one answer",
            Unit::Seconds,
            all.next_token.clone(),
        );
        registry.register("running_answers", "Answers that the engine works on", all.running.clone());
        registry.register("waiting_answers", "Answers in the queue", all.waiting.clone());
        registry.register_with_unit("sound", "Of sounds that were heard", Unit::Seconds, all.sound.clone());
        registry.register("model_loaded", "Whether the model is in memory", all.loaded.clone());
        registry.register("model_loads", "How often the model was loaded", all.loads.clone());
        Metrics { registry, ..all }
    }

    /// All figures as text.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// The counters of a model.
    pub(crate) fn of(&self, model: &str) -> ModelMetrics {
        let label = [("model", model.to_owned())];
        ModelMetrics {
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&label),
            cached_tokens: self.cached_tokens.get_or_create_owned(&label),
            generated_tokens: self.generated_tokens.get_or_create_owned(&label),
            first_token: self.first_token.get_or_create_owned(&label),
            next_token: self.next_token.get_or_create_owned(&label),
            running: self.running.get_or_create_owned(&label),
            waiting: self.waiting.get_or_create_owned(&label),
            #[cfg(feature = "speech")]
            sound: self.sound.get_or_create_owned(&label),
            loaded: self.loaded.get_or_create_owned(&label),
            loads: self.loads.get_or_create_owned(&label),
        }
    }

    /// Counts a request that is answered, or whose stream has begun.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16) {
        // Clients make up methods, and each would be kept.
        let method = if ["GET", "HEAD", "OPTIONS", "POST"].contains(&method) { method } else { "other" };
        let labels =
            [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }
}

impl ModelMetrics {
    /// Counts that the model was loaded.
    pub(crate) fn loaded(&self) {
        self.loaded.set(1);
        self.loads.inc();
    }

    /// Says that the model is not in memory.
    pub(crate) fn unloaded(&self) {
        self.loaded.set(0);
        self.answers(0, 0);
    }

    /// Counts a token of an answer: the first one since `since`, or the next one since then.
    pub(crate) fn token(&self, is_first: bool, since: Instant) {
        let time = if is_first { &self.first_token } else { &self.next_token };
        time.observe(since.elapsed().as_secs_f64());
        self.generated_tokens.inc();
    }

    /// Counts the prompt of an answer that has ended.
    pub(crate) fn ended(&self, stats: &Stats) {
        self.prompt_tokens.inc_by(stats.prompt_tokens as u64);
        self.cached_tokens.inc_by(stats.known_tokens as u64);
    }

    /// Counts the tokens of texts that became vectors or scores.
    pub(crate) fn texts(&self, tokens: usize) {
        self.prompt_tokens.inc_by(tokens as u64);
    }

    /// Counts a sound.
    #[cfg(feature = "speech")]
    pub(crate) fn sound(&self, seconds: f64) {
        self.sound.inc_by(seconds);
    }

    /// Sets how many answers there are.
    pub(crate) fn answers(&self, running: usize, waiting: usize) {
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

/// The content type of the figures.
pub(crate) const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

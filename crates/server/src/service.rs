//! What every request sees: the model's names and tokenizer, the limits, and the way to the engine.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weighbridge::Runtime;
#[cfg(feature = "grammar")]
use weighbridge::engine::grammar::Compiler;
use weighbridge::engine::sampling::Sampling;
use weighbridge::engine::text::{EncodeOptions, SpecialText, Tokenizer};

use crate::metrics::Metrics;
use crate::options::Options;
use crate::refusal::Refusal;
use crate::template::Template;
use crate::work::{Job, News, Pace, Sequence};

/// Templates that run at once: fewer than there are threads for all that takes a while.
const TEMPLATES: usize = 4;
/// Bytes of a text that are never too many to look at.
const LEAST_TEXT: usize = 1 << 16;

/// What every request sees.
pub(crate) struct Service {
    pub(crate) options: Options,
    /// How conversations are written. None: there is no chat.
    pub(crate) template: Option<Template>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) sampling: Sampling,
    pub(crate) vocab: usize,
    /// Positions of a request.
    pub(crate) positions: usize,
    /// Positions that the model was trained for.
    pub(crate) trained: u64,
    pub(crate) family: &'static str,
    /// When the server started, in seconds since 1970.
    pub(crate) started: u64,
    #[cfg(feature = "grammar")]
    grammars: std::sync::OnceLock<Result<Compiler, weighbridge::engine::grammar::Error>>,
    /// Bytes of the longest token.
    longest: std::sync::OnceLock<usize>,
    /// Held while a template runs: others need some of the threads.
    pub(crate) templates: Semaphore,
    /// Hashes of the keys.
    pub(crate) keys: Vec<blake3::Hash>,
    /// The process was told to end.
    pub(crate) is_stopping: AtomicBool,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// How fast the engine gets on.
    pub(crate) pace: Arc<Pace>,
    /// One for each sequence that runs or waits.
    places: Arc<Semaphore>,
    inbox: UnboundedSender<Job>,
    random: RandomState,
    count: AtomicU64,
}

impl Service {
    pub(crate) fn new(
        runtime: &Runtime,
        tokenizer: &Arc<Tokenizer>,
        mut options: Options,
        inbox: UnboundedSender<Job>,
    ) -> Service {
        let shared = runtime.shared();
        Service {
            template: options.chat.take().map(Template::new),
            tokenizer: Arc::clone(tokenizer),
            sampling: runtime.sampling().clone(),
            vocab: shared.vocab(),
            positions: runtime.session().capacity(),
            trained: shared.architecture().decoder().map_or(0, |decoder| decoder.context),
            family: runtime.model().family.name(),
            started: now(),
            #[cfg(feature = "grammar")]
            grammars: std::sync::OnceLock::new(),
            longest: std::sync::OnceLock::new(),
            templates: Semaphore::new(TEMPLATES),
            keys: options.keys.iter().map(|key| blake3::hash(key.as_bytes())).collect(),
            is_stopping: AtomicBool::new(false),
            metrics: Metrics::new(),
            pace: Arc::new(Pace::new(options.parallel)),
            places: Arc::new(Semaphore::new(places(&options))),
            inbox,
            random: RandomState::new(),
            count: AtomicU64::new(0),
            options,
        }
    }

    /// The name of the model.
    pub(crate) fn name(&self) -> &str {
        self.options.names.first().map_or("model", String::as_str)
    }

    /// Whether a token ends a text.
    pub(crate) fn ends(&self) -> Arc<dyn Fn(u32) -> bool + Send + Sync> {
        let (ends, tokenizer) = (self.sampling.ends.clone(), Arc::clone(&self.tokenizer));
        Arc::new(move |token| ends.contains(&token) || tokenizer.is_end_of_generation(token))
    }

    /// A number that nobody can guess.
    pub(crate) fn random(&self) -> u64 {
        self.random.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// A new id of a call: nine letters and digits, which is all that templates of Mistral take.
    pub(crate) fn call_id(&self) -> String {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let mut left = self.random();
        let mut digit = || {
            let digit = DIGITS[usize::try_from(left % 36).unwrap_or(0)];
            left /= 36;
            char::from(digit)
        };
        (0..9).map(|_| digit()).collect()
    }

    /// A new id that begins with `kind`.
    pub(crate) fn id(&self, kind: &str) -> String {
        format!("{kind}-{:016x}", self.random())
    }

    /// The tokens of a text that has room in the context, as far as its bytes tell.
    pub(crate) fn encode(
        &self,
        param: &str,
        text: &str,
        options: EncodeOptions,
    ) -> Result<Vec<u32>, Refusal> {
        let longest = *self.longest.get_or_init(|| {
            let vocab = u32::try_from(self.vocab).unwrap_or(u32::MAX);
            (0..vocab).map(|id| self.tokenizer.token_bytes(id, SpecialText::Shown).len()).max().unwrap_or(1)
        });
        // Twice that, since some tokenizers drop a part of a text before they cut it.
        let most = self.positions.saturating_mul(longest).saturating_mul(2).max(LEAST_TEXT);
        if text.len() > most {
            let (found, positions) = (text.len(), self.positions);
            let message =
                format!("`{param}`: the prompt has {found} bytes, and there is room for {positions} tokens");
            return Err(Refusal::too_long(param, message));
        }
        self.tokenizer.encode(text, options).map_err(|error| Refusal::wrong(error.to_string()))
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
        permit.map_err(|_| Refusal::busy(self.pace.wait(self.options.queue)))
    }

    /// Compiles grammars for this model's tokens, which the first request with one prepares.
    #[cfg(feature = "grammar")]
    pub(crate) fn grammars(&self) -> Result<&Compiler, Refusal> {
        let compiler = self.grammars.get_or_init(|| {
            let ends = [&self.sampling.ends[..], self.tokenizer.end_of_generation()].concat();
            Compiler::new(&self.tokenizer, &ends, self.vocab)
        });
        compiler.as_ref().map_err(|error| Refusal::wrong(error.to_string()))
    }

    /// Gives sequences to the engine, and waits until it has taken them.
    pub(crate) async fn submit(
        &self,
        sequences: Vec<Sequence>,
        permit: OwnedSemaphorePermit,
        stops: Vec<String>,
        logprobs: Option<usize>,
        special: SpecialText,
    ) -> Result<UnboundedReceiver<News>, Refusal> {
        let (news, mut receiver) = unbounded_channel();
        let deadline = self.options.deadline.and_then(|time| Instant::now().checked_add(time));
        let job = Job {
            sequences,
            permit: Arc::new(permit),
            stops,
            logprobs,
            special,
            since: Instant::now(),
            deadline,
            news,
        };
        self.inbox.send(job).map_err(|_| Refusal::stopping())?;
        match receiver.recv().await {
            Some(News::Accepted) => Ok(receiver),
            Some(other) => Err(refusal(other)),
            None => Err(Refusal::failed("the engine has ended")),
        }
    }
}

/// Sequences that run and wait at most.
fn places(options: &Options) -> usize {
    options.parallel.saturating_add(options.queue).min(Semaphore::MAX_PERMITS)
}

/// What ends a job before it has an answer.
pub(crate) fn refusal(news: News) -> Refusal {
    match news {
        News::Busy { retry_after } => Refusal::busy(retry_after),
        News::Late => Refusal::late(),
        News::Failed(failed) if failed.is_misuse => Refusal::wrong(failed.message),
        News::Failed(failed) => Refusal::failed(failed.message),
        News::Accepted | News::Said { .. } | News::Ended { .. } => {
            Refusal::failed("the engine lost its place")
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

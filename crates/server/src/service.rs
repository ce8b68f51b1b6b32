//! What requests to a model of text see: its tokenizer and template, and the way to the engine.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weighbridge::Runtime;
#[cfg(feature = "grammar")]
use weighbridge::engine::grammar::Compiler;
use weighbridge::engine::sampling::Sampling;
use weighbridge::engine::text::{EncodeOptions, SpecialText, Tokenizer};

use crate::host::Host;
use crate::inbox::Inbox;
use crate::refusal::Refusal;
use crate::template::Template;
use crate::work::{Job, Logprobs, News, Order, Sequence};

/// Templates that run at once: fewer than there are threads for all that takes a while.
const TEMPLATES: usize = 4;
/// Bytes of a text that are never too many to look at.
const LEAST_TEXT: usize = 1 << 16;

/// The state that requests to a model of text share.
pub(crate) struct Service {
    pub(crate) host: Arc<Host>,
    /// How conversations are written. None: there is no chat.
    pub(crate) template: Option<Template>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) sampling: Sampling,
    pub(crate) vocab: usize,
    /// Positions of a request.
    pub(crate) positions: usize,
    #[cfg(feature = "grammar")]
    grammars: std::sync::OnceLock<Result<Compiler, weighbridge::engine::grammar::Error>>,
    /// Bytes of the longest token.
    longest: std::sync::OnceLock<usize>,
    /// Held while a template runs: others need some of the threads.
    pub(crate) templates: Semaphore,
    pub(crate) inbox: Inbox<Order>,
}

/// The host is what most of them ask for.
impl Deref for Service {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Service {
    pub(crate) fn new(
        runtime: &Runtime,
        tokenizer: &Arc<Tokenizer>,
        template: Option<Template>,
        host: Arc<Host>,
        inbox: Inbox<Order>,
    ) -> Service {
        Service {
            template,
            tokenizer: Arc::clone(tokenizer),
            sampling: runtime.sampling().clone(),
            vocab: host.about.vocab,
            positions: host.about.positions,
            host,
            #[cfg(feature = "grammar")]
            grammars: std::sync::OnceLock::new(),
            longest: std::sync::OnceLock::new(),
            templates: Semaphore::new(TEMPLATES),
            inbox,
        }
    }

    /// Whether a token ends a text.
    pub(crate) fn ends(&self) -> Arc<dyn Fn(u32) -> bool + Send + Sync> {
        let (ends, tokenizer) = (self.sampling.ends.clone(), Arc::clone(&self.tokenizer));
        Arc::new(move |token| ends.contains(&token) || tokenizer.is_end_of_generation(token))
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
        logprobs: Option<Logprobs>,
        special: SpecialText,
    ) -> Result<UnboundedReceiver<News>, Refusal> {
        let (news, mut receiver) = unbounded_channel();
        let deadline = self.deadline();
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
        if !self.inbox.send(Order::Job(job)) {
            return Err(Refusal::stopping());
        }
        match receiver.recv().await {
            Some(News::Accepted) => Ok(receiver),
            Some(other) => Err(refusal(other)),
            None => Err(Refusal::failed("the engine has ended")),
        }
    }
}

/// What ends a job before it has an answer.
pub(crate) fn refusal(news: News) -> Refusal {
    match news {
        News::Busy { retry_after } => Refusal::busy(retry_after),
        News::Late => Refusal::late(),
        News::Failed(failed) => Refusal::of_failed(failed),
        News::Accepted | News::Said { .. } | News::Ended { .. } => {
            Refusal::failed("the engine lost its place")
        }
    }
}

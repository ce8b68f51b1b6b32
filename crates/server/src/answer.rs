//! An answer on its way to the client: whole, or as a stream of server-sent events.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::response::Response;
use tokio::sync::mpsc::UnboundedReceiver;
use weighbridge::engine::text::SpecialText;

use crate::host::now;
use crate::prepare::{Common, Prepared};
use crate::refusal::Refusal;
use crate::service::{Service, refusal};
use crate::shapes::{Fingerprint, Head, Logprob, Usage};
use crate::stream::{Events, Flow, Kind, streamed};
use crate::work::{Ending, Likely, Logprobs, News, Said};

/// A job of the engine, and what its answer begins with.
pub(crate) struct Answer {
    pub(crate) service: Arc<Service>,
    news: UnboundedReceiver<News>,
    pub(crate) id: String,
    pub(crate) created: u64,
    /// Its sequences.
    pub(crate) count: usize,
    /// Sequences of each prompt.
    n: usize,
}

/// A text that is complete.
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Likely>,
    pub(crate) ending: Ending,
    /// The numbers of the weights that made it, the first and the last.
    weights: Option<(u64, u64)>,
}

impl Whole {
    /// An empty one.
    pub(crate) fn new() -> Whole {
        Whole { text: String::new(), tokens: vec![], ending: Ending::default(), weights: None }
    }

    fn add(&mut self, said: Said) {
        self.text.push_str(&said.text);
        self.tokens.extend(said.tokens);
        if let Some((first, last)) = said.weights {
            self.weights = Some((self.weights.map_or(first, |(first, _)| first), last));
        }
    }
}

impl Answer {
    /// Gives a job to the engine. `kind` begins the id of the answer.
    pub(crate) async fn begin(
        service: &Arc<Service>,
        prepared: Prepared,
        common: Common,
        logprobs: Option<Logprobs>,
        kind: &str,
    ) -> Result<Answer, Refusal> {
        let Prepared { sequences, permit } = prepared;
        let count = sequences.len();
        let news = service.submit(sequences, permit, common.stops, logprobs, common.special).await?;
        Ok(Answer {
            id: service.id(kind),
            service: Arc::clone(service),
            news,
            created: now(),
            count,
            n: common.n,
        })
    }

    /// What the answer begins with.
    pub(crate) fn head(&self, object: &'static str, texts: &[Whole]) -> Head<'_> {
        let made = texts.iter().filter_map(|text| text.weights);
        let made = made.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (id, model) = (&self.id, self.service.name());
        Head {
            id,
            object,
            created: self.created,
            model,
            system_fingerprint: Fingerprint::of(made, self.service.weights()),
        }
    }

    /// Waits for all texts.
    pub(crate) async fn whole(&mut self) -> Result<(Vec<Whole>, Usage), Refusal> {
        let mut texts: Vec<Whole> = (0..self.count).map(|_| Whole::new()).collect();
        let (mut usage, mut left) = (Usage::default(), self.count);
        while left > 0 {
            let (index, said, ended) = match self.news.recv().await {
                Some(News::Said { index, said }) => (index, said, None),
                Some(News::Ended { index, said, ending, stats }) => (index, said, Some((ending, stats))),
                Some(other) => return Err(refusal(other)),
                None => return Err(Refusal::failed("the engine has ended")),
            };
            let Some(text) = texts.get_mut(index) else { continue };
            text.add(said);
            if let Some((ending, stats)) = ended {
                usage.add(&stats, index % self.n == 0);
                text.ending = ending;
                left -= 1;
            }
        }
        Ok((texts, usage))
    }

    /// Sends pieces as they come, as server-sent events.
    pub(crate) fn stream(self, shape: impl Pieces) -> Response {
        self.streamed(shape, Kind::Events)
    }

    /// Sends pieces as they come, as lines of JSON.
    pub(crate) fn stream_lines(self, shape: impl Pieces) -> Response {
        self.streamed(shape, Kind::Lines)
    }

    fn streamed(self, shape: impl Pieces, kind: Kind) -> Response {
        let stream = Stream { shape, usage: Usage::default(), left: self.count, n: self.n };
        streamed(self.news, stream, kind)
    }
}

/// How the pieces of a stream look.
pub(crate) trait Pieces: Send + Unpin + 'static {
    /// The first chunk.
    fn begin(&mut self, events: &mut Events);

    /// A piece of sequence `index`; `end` says why it is the last.
    fn piece(&mut self, index: usize, said: Said, end: Option<&Ending>, events: &mut Events);

    /// What comes after all pieces.
    fn end(&mut self, usage: Usage, events: &mut Events);

    /// The answer broke off.
    fn failed(&mut self, why: &Refusal, events: &mut Events);
}

/// A stream of an answer.
struct Stream<S> {
    shape: S,
    usage: Usage,
    /// Sequences that go on.
    left: usize,
    /// Sequences of each prompt.
    n: usize,
}

impl<S: Pieces> Flow for Stream<S> {
    type News = News;

    fn begin(&mut self, events: &mut Events) {
        self.shape.begin(events);
    }

    fn take(&mut self, news: Option<News>, events: &mut Events) -> ControlFlow<()> {
        match news {
            Some(News::Said { index, said }) => self.shape.piece(index, said, None, events),
            Some(News::Ended { index, said, ending, stats }) => {
                let last = Said { weights: said.weights, ..Said::default() };
                if !said.text.is_empty() || !said.tokens.is_empty() {
                    self.shape.piece(index, said, None, events);
                }
                self.shape.piece(index, last, Some(&ending), events);
                self.usage.add(&stats, index % self.n == 0);
                self.left -= 1;
                if self.left == 0 {
                    self.shape.end(self.usage, events);
                }
            }
            other => {
                let why = other.map_or_else(|| Refusal::failed("the engine has ended"), refusal);
                self.shape.failed(&why, events);
                self.left = 0;
            }
        }
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A token with its probability, as clients read it.
pub(crate) fn logprob(service: &Service, token: u32, logprob: f32) -> Logprob {
    let bytes = service.tokenizer.token_bytes(token, SpecialText::Shown).into_owned();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // JSON has no number for the logarithm of 0.
    Logprob { token: text, value: logprob.max(-9999.0), bytes }
}

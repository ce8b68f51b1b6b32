//! An answer on its way to the client: whole, or as a stream of server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Interval;
use weighbridge::engine::text::SpecialText;

use crate::prepare::{Common, Prepared};
use crate::refusal::Refusal;
use crate::service::{Service, now, refusal};
use crate::shapes::{Head, Logprob, Usage};
use crate::work::{Ending, Likely, News, Said};

/// A stream that has nothing to say says so, lest somebody between takes it for dead.
const SILENCE: Duration = Duration::from_secs(15);

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
}

impl Whole {
    /// An empty one.
    pub(crate) fn new() -> Whole {
        Whole { text: String::new(), tokens: vec![], ending: Ending::default() }
    }
}

impl Answer {
    /// Gives a job to the engine. `kind` begins the id of the answer.
    pub(crate) async fn begin(
        service: &Arc<Service>,
        prepared: Prepared,
        common: Common,
        logprobs: Option<usize>,
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
    pub(crate) fn head(&self, object: &'static str) -> Head<'_> {
        Head { id: &self.id, object, created: self.created, model: self.service.name() }
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
            text.text.push_str(&said.text);
            text.tokens.extend(said.tokens);
            if let Some((ending, stats)) = ended {
                usage.add(&stats, index % self.n == 0);
                text.ending = ending;
                left -= 1;
            }
        }
        Ok((texts, usage))
    }

    /// Sends pieces as they come.
    pub(crate) fn stream(self, shape: impl Pieces) -> Response {
        let mut silence = tokio::time::interval(SILENCE);
        silence.reset();
        let mut events = Stream {
            usage: Usage::default(),
            left: self.count,
            ready: Events(String::new()),
            silence,
            answer: self,
            shape,
        };
        events.shape.begin(&mut events.ready);
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            // Proxies that collect pieces before they send them would undo the stream.
            (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, Body::new(events)).into_response()
    }
}

/// How the pieces of a stream look.
pub(crate) trait Pieces: Send + Unpin + 'static {
    /// What comes before all else.
    fn begin(&mut self, events: &mut Events);

    /// A piece of sequence `index`; `end` says why it is the last.
    fn piece(&mut self, index: usize, said: Said, end: Option<&Ending>, events: &mut Events);

    /// What comes after all pieces.
    fn end(&mut self, usage: Usage, events: &mut Events);

    /// The answer broke off.
    fn failed(&mut self, why: &Refusal, events: &mut Events);
}

/// Events that are not sent yet.
pub(crate) struct Events(String);

impl Events {
    /// Adds an event.
    pub(crate) fn add(&mut self, data: &impl Serialize) {
        if let Ok(json) = serde_json::to_string(data) {
            self.text(&json);
        }
    }

    /// Adds an event that has a name.
    pub(crate) fn named(&mut self, name: &str, data: &impl Serialize) {
        self.0.push_str("event: ");
        self.0.push_str(name);
        self.0.push('\n');
        self.add(data);
    }

    /// Adds an event that is a text on one line.
    pub(crate) fn text(&mut self, data: &str) {
        self.0.push_str("data: ");
        self.0.push_str(data);
        self.0.push_str("\n\n");
    }
}

/// The body of a stream.
struct Stream<S> {
    answer: Answer,
    shape: S,
    usage: Usage,
    /// Sequences that go on.
    left: usize,
    ready: Events,
    silence: Interval,
}

impl<S: Pieces> Stream<S> {
    fn take(&mut self, news: Option<News>) {
        match news {
            Some(News::Said { index, said }) => self.shape.piece(index, said, None, &mut self.ready),
            Some(News::Ended { index, said, ending, stats }) => {
                if !said.text.is_empty() || !said.tokens.is_empty() {
                    self.shape.piece(index, said, None, &mut self.ready);
                }
                self.shape.piece(index, Said::default(), Some(&ending), &mut self.ready);
                self.usage.add(&stats, index % self.answer.n == 0);
                self.left -= 1;
                if self.left == 0 {
                    self.shape.end(self.usage, &mut self.ready);
                }
            }
            other => {
                let why = other.map_or_else(|| Refusal::failed("the engine has ended"), refusal);
                self.shape.failed(&why, &mut self.ready);
                self.left = 0;
            }
        }
    }
}

impl<S: Pieces> hyper::body::Body for Stream<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        while this.ready.0.is_empty() {
            if this.left == 0 {
                return Poll::Ready(None);
            }
            match this.answer.news.poll_recv(context) {
                Poll::Ready(news) => this.take(news),
                Poll::Pending if this.silence.poll_tick(context).is_ready() => {
                    this.ready.0.push_str(": \n\n");
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        this.silence.reset();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut this.ready.0))))))
    }
}

/// A token with its probability, as clients read it.
pub(crate) fn logprob(service: &Service, token: u32, logprob: f32) -> Logprob {
    let bytes = service.tokenizer.token_bytes(token, SpecialText::Shown).into_owned();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // JSON has no number for the logarithm of 0.
    Logprob { token: text, value: logprob.max(-9999.0), bytes }
}

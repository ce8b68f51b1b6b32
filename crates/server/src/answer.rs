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
use weighbridge::engine::Stop;
use weighbridge::engine::text::SpecialText;

use crate::prepare::{Common, Prepared};
use crate::refusal::Refusal;
use crate::service::{Service, now, refusal};
use crate::shapes::{Chunk, Head, Logprob, Usage, finish_reason};
use crate::work::{Likely, News, Said};

/// A stream that has nothing to say says so, lest somebody between takes it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// A job of the engine, and what its answer begins with.
pub(crate) struct Answer {
    pub(crate) service: Arc<Service>,
    news: UnboundedReceiver<News>,
    id: String,
    created: u64,
    /// Its sequences.
    count: usize,
    /// Sequences of each prompt.
    n: usize,
    include_usage: bool,
}

/// A text that is complete.
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Likely>,
    pub(crate) stop: Stop,
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
            include_usage: common.include_usage,
        })
    }

    /// What the answer begins with.
    pub(crate) fn head(&self, object: &'static str) -> Head<'_> {
        Head { id: &self.id, object, created: self.created, model: self.service.name() }
    }

    /// Waits for all texts.
    pub(crate) async fn whole(&mut self) -> Result<(Vec<Whole>, Usage), Refusal> {
        let open = || Whole { text: String::new(), tokens: vec![], stop: Stop::Interrupted };
        let mut texts: Vec<Whole> = (0..self.count).map(|_| open()).collect();
        let (mut usage, mut left) = (Usage::default(), self.count);
        while left > 0 {
            let (index, said, ended) = match self.news.recv().await {
                Some(News::Said { index, said }) => (index, said, None),
                Some(News::Ended { index, said, stop, stats }) => (index, said, Some((stop, stats))),
                Some(other) => return Err(refusal(other)),
                None => return Err(Refusal::failed("the engine has ended")),
            };
            let Some(text) = texts.get_mut(index) else { continue };
            text.text.push_str(&said.text);
            text.tokens.extend(said.tokens);
            if let Some((stop, stats)) = ended {
                usage.add(&stats, index % self.n == 0);
                text.stop = stop;
                left -= 1;
            }
        }
        Ok((texts, usage))
    }

    /// Sends pieces as they come.
    pub(crate) fn stream<S: Shape>(self, shape: S) -> Response {
        let mut silence = tokio::time::interval(SILENCE);
        silence.reset();
        let mut events = Events {
            usage: Usage::default(),
            left: self.count,
            ready: String::new(),
            silence,
            answer: self,
            shape,
        };
        events.begin();
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
pub(crate) trait Shape: Send + Unpin + 'static {
    /// What a chunk has of one sequence.
    type Choice: Serialize;
    /// The field `object` of a chunk.
    const OBJECT: &'static str;

    /// What comes before all pieces of sequence `index`.
    fn begin(&mut self, index: usize) -> Option<Self::Choice>;

    /// A piece of sequence `index`; `finish` says why it is the last.
    /// None: nothing of it is certain yet. More than one: what clients expect apart.
    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> Vec<Self::Choice>;
}

/// The body of a stream.
struct Events<S> {
    answer: Answer,
    shape: S,
    usage: Usage,
    /// Sequences that go on.
    left: usize,
    /// Events that are not sent yet.
    ready: String,
    silence: Interval,
}

impl<S: Shape> Events<S> {
    fn begin(&mut self) {
        for index in 0..self.answer.count {
            if let Some(choice) = self.shape.begin(index) {
                self.chunk(vec![choice], None);
            }
        }
    }

    /// Adds an event.
    fn event(&mut self, data: &impl Serialize) {
        if let Ok(json) = serde_json::to_string(data) {
            self.ready.push_str("data: ");
            self.ready.push_str(&json);
            self.ready.push_str("\n\n");
        }
    }

    fn chunk(&mut self, choices: Vec<S::Choice>, usage: Option<Usage>) {
        let usage = self.answer.include_usage.then_some(usage);
        let Answer { id, created, service, .. } = &self.answer;
        let (id, service) = (id.clone(), Arc::clone(service));
        let head = Head { id: &id, object: S::OBJECT, created: *created, model: service.name() };
        self.event(&Chunk { head, choices, usage });
    }

    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) {
        for choice in self.shape.piece(index, said, finish) {
            self.chunk(vec![choice], None);
        }
    }

    fn take(&mut self, news: Option<News>) {
        match news {
            Some(News::Said { index, said }) => {
                self.piece(index, said, None);
            }
            Some(News::Ended { index, said, stop, stats }) => {
                if !said.text.is_empty() || !said.tokens.is_empty() {
                    self.piece(index, said, None);
                }
                self.piece(index, Said::default(), Some(finish_reason(stop)));
                self.usage.add(&stats, index % self.answer.n == 0);
                self.left -= 1;
                if self.left == 0 {
                    if self.answer.include_usage {
                        self.chunk(vec![], Some(self.usage));
                    }
                    self.ready.push_str("data: [DONE]\n\n");
                }
            }
            other => {
                let why = other.map_or_else(|| Refusal::failed("the engine has ended"), refusal);
                self.event(&why.json());
                self.left = 0;
            }
        }
    }
}

impl<S: Shape> hyper::body::Body for Events<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        while this.ready.is_empty() {
            if this.left == 0 {
                return Poll::Ready(None);
            }
            match this.answer.news.poll_recv(context) {
                Poll::Ready(news) => this.take(news),
                Poll::Pending if this.silence.poll_tick(context).is_ready() => this.ready.push_str(": \n\n"),
                Poll::Pending => return Poll::Pending,
            }
        }
        this.silence.reset();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut this.ready))))))
    }
}

/// A token with its probability, as clients read it.
pub(crate) fn logprob(service: &Service, token: u32, logprob: f32) -> Logprob {
    let bytes = service.tokenizer.token_bytes(token, SpecialText::Shown).into_owned();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // JSON has no number for the logarithm of 0.
    Logprob { token: text, value: logprob.max(-9999.0), bytes }
}

//! Bodies that are sent piece by piece: server-sent events, or lines of JSON.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Interval;

use crate::routes::{EVENTS, LINES};

/// A stream that has nothing to say says so, lest somebody between takes it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// Turns news into chunks of an answer.
pub(crate) trait Flow: Send + Unpin + 'static {
    /// News from the engine.
    type News: Send;

    /// Writes the first events, before any news.
    fn begin(&mut self, _: &mut Events) {}

    /// Writes what is new; `None`: nothing more comes. Breaks at the end.
    fn take(&mut self, news: Option<Self::News>, events: &mut Events) -> ControlFlow<()>;
}

/// How a stream looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Server-sent events; comments are sent while there is nothing to say.
    Events,
    /// Lines of JSON.
    Lines,
}

/// Events that are not sent yet.
pub(crate) struct Events(String);

impl Events {
    /// None.
    pub(crate) fn new() -> Events {
        Events(String::new())
    }

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

    /// Adds a line of JSON, in a stream of these.
    pub(crate) fn line(&mut self, data: &impl Serialize) {
        if let Ok(json) = serde_json::to_string(data) {
            self.0.push_str(&json);
            self.0.push('\n');
        }
    }
}

/// Sends what `flow` makes of `news`, as it comes.
pub(crate) fn streamed<F: Flow>(news: UnboundedReceiver<F::News>, flow: F, kind: Kind) -> Response {
    let mut silence = tokio::time::interval(SILENCE);
    silence.reset();
    let content = if kind == Kind::Events { EVENTS } else { LINES };
    let mut stream = Stream { news, flow, kind, is_over: false, ready: Events::new(), silence };
    stream.flow.begin(&mut stream.ready);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies that collect pieces before they send them would undo the stream.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::new(stream)).into_response()
}

/// The body of a stream.
struct Stream<F: Flow> {
    news: UnboundedReceiver<F::News>,
    flow: F,
    kind: Kind,
    is_over: bool,
    ready: Events,
    silence: Interval,
}

impl<F: Flow> hyper::body::Body for Stream<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        while this.ready.0.is_empty() {
            if this.is_over {
                return Poll::Ready(None);
            }
            match this.news.poll_recv(context) {
                Poll::Ready(news) => this.is_over = this.flow.take(news, &mut this.ready).is_break(),
                Poll::Pending if this.kind == Kind::Events && this.silence.poll_tick(context).is_ready() => {
                    this.ready.0.push_str(": \n\n");
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        this.silence.reset();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut this.ready.0))))))
    }
}

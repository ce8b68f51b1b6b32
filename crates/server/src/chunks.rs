//! Streams in OpenAI's shape.

use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;

use crate::answer::{Answer, Pieces};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::shapes::{Chunk, Fingerprint, Head, Usage, finish_reason};
use crate::stream::Events;
use crate::work::{Ending, Said};

/// What the chunks of a stream have of one sequence.
pub(crate) trait Shape: Send + Unpin + 'static {
    /// A piece of it.
    type Choice: Serialize;
    /// The field `object` of a chunk.
    const OBJECT: &'static str;

    /// What comes before all pieces of sequence `index`.
    fn begin(&mut self, index: usize) -> Option<Self::Choice>;

    /// A piece of sequence `index`; `finish` says why it is the last.
    ///
    /// None: nothing of it is certain yet. More than one: what clients expect apart.
    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> Vec<Self::Choice>;
}

/// Sends an answer in chunks.
pub(crate) fn stream(answer: Answer, include_usage: bool, shape: impl Shape) -> Response {
    let service = Arc::clone(&answer.service);
    let (id, created, count) = (answer.id.clone(), answer.created, answer.count);
    answer.stream(Chunks { service, id, created, count, include_usage, shape })
}

struct Chunks<S> {
    service: Arc<Service>,
    id: String,
    created: u64,
    /// Sequences of the answer.
    count: usize,
    include_usage: bool,
    shape: S,
}

impl<S: Shape> Chunks<S> {
    fn chunk(
        &self,
        choices: Vec<S::Choice>,
        usage: Option<Usage>,
        made: Option<(u64, u64)>,
        events: &mut Events,
    ) {
        let usage = self.include_usage.then_some(usage);
        let model = self.service.name();
        let (id, system_fingerprint) = (&self.id, Fingerprint::of(made, self.service.weights()));
        let head = Head { id, object: S::OBJECT, created: self.created, model, system_fingerprint };
        events.add(&Chunk { head, choices, usage });
    }
}

impl<S: Shape> Pieces for Chunks<S> {
    fn begin(&mut self, events: &mut Events) {
        for index in 0..self.count {
            if let Some(choice) = self.shape.begin(index) {
                self.chunk(vec![choice], None, None, events);
            }
        }
    }

    fn piece(&mut self, index: usize, said: Said, end: Option<&Ending>, events: &mut Events) {
        let finish = end.map(|end| finish_reason(end.stop));
        let made = said.weights;
        for choice in self.shape.piece(index, said, finish) {
            self.chunk(vec![choice], None, made, events);
        }
    }

    fn end(&mut self, usage: Usage, events: &mut Events) {
        if self.include_usage {
            self.chunk(vec![], Some(usage), None, events);
        }
        events.text("[DONE]");
    }

    fn failed(&mut self, why: &Refusal, events: &mut Events) {
        events.add(&why.body());
    }
}

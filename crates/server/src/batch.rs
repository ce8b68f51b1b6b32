//! The thread of a model that makes vectors or scores: it takes texts from a channel, and runs those of all requests that wait together.
//!
//! It runs a slice at a time, which takes about [`SLICE`], with a text of each request in turn: a request of many texts holds nobody up
//! for longer than that. A request whose client has left is dropped between slices.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weighbridge::Error;

use crate::host::Host;
use crate::inbox::Inbox;
use crate::refusal::{Refusal, failed};

/// How long a slice may take, about. One text may take longer, and cannot be cut.
const SLICE: Duration = Duration::from_millis(250);
/// Tokens of a slice, from the first to the most.
const TOKENS: (usize, usize) = (128, 1 << 16);

/// A model that runs texts, each on its own.
pub(crate) trait Runs {
    /// The tokens of a text.
    type Text: Send + 'static;
    /// The result of a text: its vector or its score.
    type Found: Send + 'static;

    /// The number of tokens.
    fn tokens(text: &Self::Text) -> usize;

    /// Runs texts together.
    fn run(&mut self, texts: &[&Self::Text]) -> Result<Vec<Self::Found>, Error>;
}

/// The texts of a request.
pub(crate) struct Job<R: Runs> {
    texts: Vec<R::Text>,
    deadline: Option<Instant>,
    since: Instant,
    /// Given back when the engine is done, whether or not somebody waits for it.
    permit: OwnedSemaphorePermit,
    done: oneshot::Sender<Result<Vec<R::Found>, Refusal>>,
}

impl<R: Runs> Inbox<Job<R>> {
    /// Runs texts, and waits for what becomes of them, in their order.
    pub(crate) async fn run(
        &self,
        host: &Host,
        texts: Vec<R::Text>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Vec<R::Found>, Refusal> {
        let (done, found) = oneshot::channel();
        let job = Job { texts, deadline: host.deadline(), since: Instant::now(), permit, done };
        if !self.send(job) {
            return Err(Refusal::stopping());
        }
        found.await.unwrap_or_else(|_| Err(Refusal::failed("the engine has ended")))
    }
}

/// A request of which some texts have run.
struct Active<R: Runs> {
    job: Job<R>,
    found: Vec<R::Found>,
}

/// Runs jobs until no more can come.
pub(crate) fn run<R: Runs>(mut model: R, host: &Arc<Host>, mut jobs: UnboundedReceiver<Job<R>>) {
    let mut active: VecDeque<Active<R>> = VecDeque::new();
    let mut budget = TOKENS.0;
    loop {
        if active.is_empty() {
            host.metrics.answers(0, 0);
            match jobs.blocking_recv() {
                Some(job) => active.push_back(Active { job, found: vec![] }),
                None => return,
            }
        }
        while let Ok(job) = jobs.try_recv() {
            active.push_back(Active { job, found: vec![] });
        }
        active = alive(active);
        let (taken, tokens) = take(&active, budget);
        let running = taken.iter().filter(|count| **count > 0).count();
        host.metrics.answers(running, active.len() - running);
        let counted = active.iter().zip(&taken);
        let texts: Vec<&R::Text> =
            counted.flat_map(|(one, count)| &one.job.texts[one.found.len()..][..*count]).collect();
        if texts.is_empty() {
            active = answered(active, host);
            continue;
        }
        // One model computes at a time.
        let turn = host.turn.blocking_lock();
        let since = Instant::now();
        let ran = model.run(&texts);
        let took = since.elapsed();
        drop(turn);
        match ran {
            Ok(found) => {
                let mut found = found.into_iter();
                for (one, count) in active.iter_mut().zip(&taken) {
                    one.found.extend(found.by_ref().take(*count));
                }
                host.metrics.texts(tokens);
                budget = next(budget, tokens, took);
            }
            Err(error) => {
                // Nobody knows whose text it was.
                let why = failed(&error);
                for (one, _) in active.drain(..).zip(&taken).filter(|(_, count)| **count > 0) {
                    let _ = one.job.done.send(Err(Refusal::of_failed(why.clone())));
                }
            }
        }
        active = answered(active, host);
        // Who came first does not go first each time.
        active.rotate_left(usize::from(!active.is_empty()));
    }
}

/// Drops requests that nobody waits for, and ends those that took too long.
fn alive<R: Runs>(active: VecDeque<Active<R>>) -> VecDeque<Active<R>> {
    let now = Instant::now();
    let mut left = VecDeque::with_capacity(active.len());
    for one in active {
        if one.job.deadline.is_some_and(|deadline| now >= deadline) {
            let _ = one.job.done.send(Err(Refusal::late()));
        } else if !one.job.done.is_closed() {
            left.push_back(one);
        }
    }
    left
}

/// How many texts of each request are next, one of each in turn while `budget` tokens last, and their tokens. It is one text at least.
fn take<R: Runs>(active: &VecDeque<Active<R>>, budget: usize) -> (Vec<usize>, usize) {
    let (mut taken, mut tokens) = (vec![0; active.len()], 0);
    loop {
        let mut took = false;
        for (one, count) in active.iter().zip(&mut taken) {
            let Some(text) = one.job.texts.get(one.found.len() + *count) else { continue };
            let more = R::tokens(text);
            if tokens > 0 && tokens + more > budget {
                return (taken, tokens);
            }
            tokens += more;
            *count += 1;
            took = true;
        }
        if !took {
            return (taken, tokens);
        }
    }
}

/// Answers requests whose texts have all run.
fn answered<R: Runs>(active: VecDeque<Active<R>>, host: &Host) -> VecDeque<Active<R>> {
    let mut left = VecDeque::with_capacity(active.len());
    for one in active {
        if one.found.len() < one.job.texts.len() {
            left.push_back(one);
            continue;
        }
        host.pace.took(one.job.since.elapsed());
        let Job { done, permit, .. } = one.job;
        drop(permit);
        let _ = done.send(Ok(one.found));
    }
    left
}

/// The tokens of the next slice, after one of `tokens` that took `time`.
fn next(budget: usize, tokens: usize, time: Duration) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let fits = (tokens as f64 * SLICE.as_secs_f64() / time.as_secs_f64().max(1e-6)) as usize;
    // A slice that is nearly empty says little of how many fit.
    let fits = if tokens * 2 < budget { fits.min(budget) } else { fits.min(budget * 4) };
    fits.clamp(TOKENS.0, TOKENS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_and_shrink_with_the_pace() {
        let ms = Duration::from_millis;
        assert_eq!(next(128, 128, ms(1)), 512);
        assert_eq!(next(4096, 4096, ms(1000)), 1024);
        assert_eq!(next(4096, 10, ms(1)), 2500);
        assert_eq!(next(128, 128, ms(60_000)), TOKENS.0);
        assert_eq!(next(1 << 16, 1 << 16, ms(1)), TOKENS.1);
    }
}

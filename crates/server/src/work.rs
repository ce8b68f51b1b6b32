//! The engine's thread: it owns the runtime and the scheduler, takes jobs from a channel, and sends what is said back.
//!
//! It never waits for a client: what is sent lies in the channel of its job until somebody takes it, and is bounded by the
//! tokens that the job may have. A job whose channel is closed has nobody who listens, and is cancelled.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weighbridge::engine::logprobs::LogProbs;
use weighbridge::engine::schedule::{Event, Request, RequestId, Scheduler};
use weighbridge::engine::text::{SpecialText, StopStrings, TokenStream, Tokenizer};
use weighbridge::engine::{Sampled, Stats, Stop};
use weighbridge::tensor::Diagnostics;
use weighbridge::{Error, Runtime, Sampler};

use crate::host::Host;
use crate::metrics::ModelMetrics;
use crate::offer::{NotLoaded, Size};
use crate::refusal::{Failed, Refusal, failed};

/// An order to the engine.
pub(crate) enum Order {
    /// To continue texts.
    Job(Job),
    /// To go on with other weights.
    Renew(Renew),
}

/// Other weights of the same model, with which the texts that run go on.
pub(crate) struct Renew {
    /// Loads them, within a limit of bytes.
    pub(crate) load: Box<dyn Fn(Option<u64>) -> Result<Renewed, NotLoaded> + Send>,
    /// Bytes that are left beside the old ones; `None` if the old ones leave first.
    pub(crate) beside: Option<u64>,
    /// Bytes that they may take once the old ones have left, if there is a limit.
    pub(crate) alone: Option<u64>,
    /// Their number.
    pub(crate) weights: u64,
    pub(crate) tell: oneshot::Sender<Result<Size, NotRenewed>>,
}

/// A model with other weights.
pub(crate) struct Renewed {
    pub(crate) runtime: Box<Runtime>,
    pub(crate) size: Size,
}

/// Why a model has the weights that it had, or none.
pub(crate) struct NotRenewed {
    pub(crate) refusal: Refusal,
    /// True if the old weights have left: the model is not in memory any more.
    pub(crate) is_gone: bool,
}

/// Texts to be continued for one request.
pub(crate) struct Job {
    pub(crate) sequences: Vec<Sequence>,
    /// The right to have them.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
    /// Strings that end a text.
    pub(crate) stops: Vec<String>,
    pub(crate) logprobs: Option<Logprobs>,
    /// Whether the text has the special tokens.
    pub(crate) special: SpecialText,
    /// When it was given to the engine.
    pub(crate) since: Instant,
    /// When the job ends, whatever it has by then.
    pub(crate) deadline: Option<Instant>,
    pub(crate) news: UnboundedSender<News>,
}

/// Which probabilities are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logprobs {
    /// How many likely tokens are told beside each.
    pub(crate) top: usize,
    /// Those of the prompt too.
    pub(crate) of_prompt: bool,
    /// That of the token that ends the text too.
    pub(crate) of_end: bool,
}

/// A text to be continued.
pub(crate) struct Sequence {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampler: Sampler,
    /// Tokens to generate at most.
    pub(crate) tokens: usize,
}

/// What happened to a job.
#[derive(Debug)]
pub(crate) enum News {
    /// It runs, or waits for a place.
    Accepted,
    /// A sequence goes on.
    Said { index: usize, said: Said },
    /// A sequence has ended; `said` is its rest.
    Ended { index: usize, said: Said, ending: Ending, stats: Stats },
    /// Too many others wait.
    Busy { retry_after: u64 },
    /// Its time is over.
    Late,
    /// It could never run, or cannot go on.
    Failed(Failed),
}

/// Why a text ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) stop: Stop,
    /// The string that ended it.
    pub(crate) string: Option<String>,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending { stop: Stop::Interrupted, string: None }
    }
}

/// A piece of a text.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Its tokens, if probabilities are wanted.
    pub(crate) tokens: Vec<Likely>,
    /// The numbers of the weights that made it, the first and the last.
    pub(crate) weights: Option<(u64, u64)>,
}

/// A token, and the likely ones instead of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Likely {
    pub(crate) token: u32,
    /// The natural logarithm of its probability; `None` of the first of a prompt, before which there is nothing.
    pub(crate) logprob: Option<f32>,
    pub(crate) top: Vec<(u32, f32)>,
}

/// A sequence that the scheduler has.
struct Active<'t> {
    index: usize,
    stream: TokenStream<'t>,
    stops: StopStrings,
    logprobs: Option<LogProbs>,
    /// True if the token that ends the text has a probability too.
    tells_end: bool,
    /// Tokens whose text is not certain yet.
    held: Vec<Likely>,
    deadline: Option<Instant>,
    is_late: bool,
    since: Instant,
    /// When its last token came.
    last: Option<Instant>,
    metrics: ModelMetrics,
    /// Given back with the last sequence of the job, whether or not the client has read what it was sent.
    _permit: Arc<OwnedSemaphorePermit>,
    news: UnboundedSender<News>,
    /// The numbers of the weights that made what is held, the first and the last.
    made: Option<(u64, u64)>,
}

impl Active<'_> {
    /// Notes which weights made a token.
    fn made_by(&mut self, weights: u64) {
        let (first, _) = self.made.unwrap_or((weights, weights));
        self.made = Some((first, weights));
    }

    /// Keeps the probability of a token.
    fn likely(&mut self, sampled: &Sampled<'_>) {
        if let Some(of) = &mut self.logprobs {
            let (token, top) = of.of(sampled.logits, sampled.token);
            let top = top.iter().map(|likely| (likely.token, likely.logprob)).collect();
            self.held.push(Likely { token: token.token, logprob: Some(token.logprob), top });
        }
    }

    fn token(&mut self, sampled: Sampled<'_>, weights: u64) -> ControlFlow<Stop> {
        self.metrics.token(self.last.is_none(), self.last.unwrap_or(self.since));
        self.last = Some(Instant::now());
        self.made_by(weights);
        self.likely(&sampled);
        let text = self.stops.push(self.stream.push(sampled.token));
        if !text.is_empty() {
            let tokens = std::mem::take(&mut self.held);
            let said = Said { text: text.to_owned(), tokens, weights: self.made.take() };
            // Who has left is found before the next step.
            let _ = self.news.send(News::Said { index: self.index, said });
        }
        match self.stops.found() {
            Some(_) => ControlFlow::Break(Stop::StopString),
            None => ControlFlow::Continue(()),
        }
    }

    fn ended(mut self, stats: Stats) {
        self.metrics.ended(&stats);
        let mut text = self.stops.push(self.stream.finish()).to_owned();
        // A string may be complete with the last characters only.
        let string = self.stops.found().map(str::to_owned);
        let stop = if string.is_some() { Stop::StopString } else { stats.stop };
        text.push_str(self.stops.finish());
        let said = Said { text, tokens: self.held, weights: self.made };
        let _ = self.news.send(match stop {
            Stop::Interrupted if self.is_late => News::Late,
            stop => News::Ended { index: self.index, said, ending: Ending { stop, string }, stats },
        });
    }
}

/// Why texts end whose model has left.
fn left() -> Failed {
    let message = "the model left memory, and its new weights could not be loaded".to_owned();
    Failed { message, is_misuse: false }
}

/// Ends what was ordered meanwhile.
fn leave(mut orders: UnboundedReceiver<Order>) {
    orders.close();
    while let Ok(order) = orders.try_recv() {
        if let Order::Job(job) = order {
            let _ = job.news.send(News::Failed(left()));
        }
    }
}

/// The loop, and what it knows of the jobs.
pub(crate) struct Engine<'t> {
    tokenizer: &'t Tokenizer,
    /// Tokens that end a text.
    ends: Arc<dyn Fn(u32) -> bool + Send + Sync>,
    active: HashMap<RequestId, Active<'t>>,
    host: Arc<Host>,
    /// Positions of each.
    positions: usize,
}

impl<'t> Engine<'t> {
    pub(crate) fn new(
        positions: usize,
        tokenizer: &'t Tokenizer,
        ends: Arc<dyn Fn(u32) -> bool + Send + Sync>,
        host: Arc<Host>,
    ) -> Engine<'t> {
        Engine { tokenizer, ends, active: HashMap::new(), host, positions }
    }

    /// Runs what is ordered until no more can come.
    pub(crate) fn run(
        mut self,
        mut runtime: Box<Runtime>,
        mut scheduler: Scheduler,
        mut orders: UnboundedReceiver<Order>,
    ) {
        loop {
            let first = if scheduler.is_idle() {
                match orders.blocking_recv() {
                    Some(order) => Some(order),
                    None => return,
                }
            } else {
                None
            };
            for order in first.into_iter().chain(std::iter::from_fn(|| orders.try_recv().ok())) {
                match order {
                    Order::Job(job) => self.submit(&runtime, &mut scheduler, job),
                    Order::Renew(renew) => match self.renew(runtime, &mut scheduler, renew) {
                        Some(renewed) => runtime = renewed,
                        None => return leave(orders),
                    },
                }
            }
            self.cancel(&mut scheduler);
            self.step(&mut runtime, &mut scheduler);
            self.host.metrics.answers(scheduler.running(), scheduler.waiting());
        }
    }

    /// Goes on with other weights, or with the old ones if the others cannot be used. `None` if the old ones had to leave before that was
    /// known: nothing can be run.
    fn renew(
        &mut self,
        runtime: Box<Runtime>,
        scheduler: &mut Scheduler,
        renew: Renew,
    ) -> Option<Box<Runtime>> {
        let Renew { load, beside, alone, weights, tell } = renew;
        let (interface, capacity) = (runtime.interface(), runtime.session().capacity());
        let loaded = |limit| {
            // A loader that panics takes nothing away that is there.
            let loaded = catch_unwind(AssertUnwindSafe(|| load(limit)));
            loaded.unwrap_or_else(|_| Err(NotLoaded::panicked()))
        };
        let checked = |new: Renewed| {
            let mut unlike = interface.unlike(&new.runtime.interface());
            let found = new.runtime.session().capacity();
            if found < capacity {
                unlike.push(format!("there is room for {found} positions, not for {capacity}"));
            }
            if unlike.is_empty() { Ok(new) } else { Err(Refusal::other_model(&unlike)) }
        };
        let mut first = None;
        if let Some(room) = beside {
            match loaded(Some(room)) {
                // It may fit alone.
                Ok(new) if new.size.is_streaming || new.size.bytes > room => {}
                Err(why) if why.is_for_memory => {}
                other => match other.map_err(|why| self.not_renewed(&why.problems)).and_then(checked) {
                    Ok(new) => first = Some(new),
                    Err(refusal) => {
                        let _ = tell.send(Err(NotRenewed { refusal, is_gone: false }));
                        return Some(runtime);
                    }
                },
            }
        }
        // What sessions hold of the old weights goes with them.
        let suspended = scheduler.suspend();
        drop(runtime);
        let new = match first {
            Some(new) => Ok(new),
            None => loaded(alone).map_err(|why| self.not_renewed(&why.problems)).and_then(checked),
        };
        let renewed = new.and_then(|new| match new.runtime.resume(suspended) {
            Ok(resumed) => Ok((new, resumed)),
            Err(error) => Err(self.not_renewed(&error.diagnostics())),
        });
        match renewed {
            Ok((new, resumed)) => {
                *scheduler = resumed;
                self.host.renewed(weights);
                let _ = tell.send(Ok(new.size));
                Some(new.runtime)
            }
            Err(refusal) => {
                for (_, active) in self.active.drain() {
                    let _ = active.news.send(News::Failed(left()));
                }
                let _ = tell.send(Err(NotRenewed { refusal, is_gone: true }));
                None
            }
        }
    }

    /// Says in the log why weights cannot be loaded.
    fn not_renewed(&self, problems: &Diagnostics) -> Refusal {
        if let Some(log) = &self.host.options.log {
            log(&format!("`{}` cannot be loaded: {problems}", self.host.name()));
        }
        Refusal::not_loaded(self.host.name())
    }

    /// Gives all sequences of a job to the scheduler, or none.
    fn submit(&mut self, runtime: &Runtime, scheduler: &mut Scheduler, job: Job) {
        if job.news.is_closed() {
            return;
        }
        let mut ids = vec![];
        for (index, sequence) in job.sequences.into_iter().enumerate() {
            let Sequence { prompt, sampler, tokens } = sequence;
            let ends = Arc::clone(&self.ends);
            let end = Box::new(move |token| ends(token));
            let positions = Some(self.positions);
            let tells_prompt = job.logprobs.is_some_and(|wanted| wanted.of_prompt);
            let first = prompt.first().copied().filter(|_| tells_prompt);
            let request = Request { prompt, sampler, tokens, end, positions, tells_prompt };
            match runtime.submit(scheduler, request) {
                Ok(id) => ids.push((id, index, first)),
                Err(error) => {
                    for (id, ..) in ids {
                        scheduler.cancel(id);
                    }
                    let _ = job.news.send(match error {
                        Error::Engine(weighbridge::engine::Error::TooManyRequests { waiting }) => {
                            News::Busy { retry_after: self.host.pace.wait(waiting) }
                        }
                        error => News::Failed(failed(&error)),
                    });
                    return;
                }
            }
        }
        let _ = job.news.send(News::Accepted);
        for (id, index, first) in ids {
            let active = Active {
                index,
                stream: self.tokenizer.stream(job.special),
                stops: StopStrings::new(job.stops.clone()),
                logprobs: job.logprobs.map(|wanted| LogProbs::new(wanted.top)),
                tells_end: job.logprobs.is_some_and(|wanted| wanted.of_end),
                held: first.map(|token| Likely { token, logprob: None, top: vec![] }).into_iter().collect(),
                deadline: job.deadline,
                is_late: false,
                since: job.since,
                last: None,
                metrics: self.host.metrics.clone(),
                _permit: Arc::clone(&job.permit),
                news: job.news.clone(),
                made: None,
            };
            self.active.insert(id, active);
        }
    }

    /// Ends what nobody waits for any more, and what took too long.
    fn cancel(&mut self, scheduler: &mut Scheduler) {
        let now = Instant::now();
        for (id, active) in &mut self.active {
            active.is_late = active.deadline.is_some_and(|deadline| now >= deadline);
            if active.is_late || active.news.is_closed() {
                scheduler.cancel(*id);
            }
        }
    }

    fn step(&mut self, runtime: &mut Runtime, scheduler: &mut Scheduler) {
        let Engine { active, host, .. } = self;
        let weights = host.weights();
        // One model computes at a time.
        let turn = host.turn.blocking_lock();
        let stepped = runtime.step(scheduler, &mut |id, event| match event {
            Event::Prompt(sampled) => {
                if let Some(active) = active.get_mut(&id) {
                    active.made_by(weights);
                    active.likely(&sampled);
                }
                ControlFlow::Continue(())
            }
            Event::Token(sampled) => match active.get_mut(&id) {
                Some(active) => active.token(sampled, weights),
                None => ControlFlow::Break(Stop::Interrupted),
            },
            Event::End(sampled) => {
                if let Some(active) = active.get_mut(&id) {
                    active.made_by(weights);
                    if active.tells_end {
                        active.likely(&sampled);
                    }
                }
                ControlFlow::Continue(())
            }
            Event::Done(stats) => {
                if let Some(active) = active.remove(&id) {
                    host.pace.took(active.since.elapsed());
                    active.ended(stats);
                }
                ControlFlow::Continue(())
            }
            Event::Failed(error) => {
                if let Some(active) = active.remove(&id) {
                    let _ = active.news.send(News::Failed(failed(&error.into())));
                }
                ControlFlow::Continue(())
            }
        });
        drop(turn);
        if let Err(error) = stepped {
            // Memory ran out. Nobody would get further by another try.
            for (id, active) in self.active.drain() {
                scheduler.cancel(id);
                let _ = active.news.send(News::Failed(failed(&error)));
            }
        }
    }
}

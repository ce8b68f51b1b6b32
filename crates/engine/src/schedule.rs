//! Many sequences that come and go (continuous batching).
//!
//! Each step runs one pass: a token of every sequence that is being continued, and of the prompts that wait as much as there is
//! room for beside these, in equal shares. So no sequence waits for the prompt of another, and a long prompt not for the end of
//! many. Each sequence has the tokens that it has alone, whatever is beside it.

mod prefixes;
mod suspended;

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::batch::{BatchItem, recycled};
use crate::sampler::Sampler;
use crate::{BATCH, Error, KvKind, Logits, Runner, Sampled, Session, Stats, Stop};

use prefixes::Prefixes;
pub use suspended::Suspended;

/// The limits of a [`Scheduler`].
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Sequences that run together, at most [`BATCH`].
    pub sequences: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Bytes of the sessions that run, and of the prompts that are kept for those that begin as they do.
    pub bytes: u64,
    /// Positions that are kept of a prompt once it has run, as by [`Session::set_kv_budget`]; `None`: all of them.
    pub kv_budget: Option<usize>,
}

/// A text to be continued.
pub struct Request {
    /// Its tokens.
    pub prompt: Vec<u32>,
    /// Chooses the tokens that follow; it knows nothing of the prompt yet.
    pub sampler: Sampler,
    /// Tokens to generate at most.
    pub tokens: usize,
    /// Tokens that end the text.
    pub end: Box<dyn Fn(u32) -> bool + Send>,
    /// Positions of its session; `None`: as many as the prompt and the tokens need.
    pub positions: Option<usize>,
    /// Whether the tokens of the prompt are told, with the logits before them. All of it is run then, also what others began with.
    pub tells_prompt: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("prompt", &self.prompt.len()).finish_non_exhaustive()
    }
}

/// The number of a request: they are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// News of a request.
#[derive(Debug)]
pub enum Event<'a> {
    /// A token of the prompt, from the second on, with the logits before it: see [`Request::tells_prompt`].
    Prompt(Sampled<'a>),
    /// A token was sampled.
    Token(Sampled<'a>),
    /// A token was sampled that ends the text, and is no part of it.
    End(Sampled<'a>),
    /// It has ended.
    Done(Stats),
    /// It cannot go on: its logits are not numbers, or a constraint allows nothing.
    Failed(Error),
}

/// Runs requests together. The caller steps it, with the runner of the model.
pub struct Scheduler {
    bounds: Bounds,
    kind: KvKind,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    /// One for each that runs.
    turns: Vec<Turn>,
    prefixes: Prefixes,
    requests: u64,
    /// The parts of a step, empty between two.
    parts: Vec<BatchItem<'static>>,
    /// For each of them, which sequence it is of.
    places: Vec<usize>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("waiting", &self.waiting.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

/// A request without a place.
struct Waiting {
    id: RequestId,
    request: Request,
    positions: usize,
    bytes: u64,
    since: Instant,
    cancelled: bool,
}

/// The text of a request that has a place.
struct Running {
    session: Session,
    /// The prompt, and what was sampled: tokens from the session's position on have not been run.
    text: Vec<u32>,
    /// Tokens of the prompt, while some positions of it may have to be left out at its end.
    evicts_at: Option<usize>,
    /// Tokens that it takes in this step.
    rows: usize,
    bytes: u64,
}

/// The tokens that are sampled for it.
struct Turn {
    id: RequestId,
    sampler: Sampler,
    end: Box<dyn Fn(u32) -> bool + Send>,
    /// Most tokens.
    tokens: usize,
    /// The tokens of the prompt that are to be told, from the next on.
    untold: std::vec::IntoIter<u32>,
    stats: Stats,
    since: Instant,
    /// When the first was sampled.
    first: Option<Instant>,
    /// The last, until it is part of the text.
    sampled: Option<u32>,
    ended: Option<Ended>,
}

enum Ended {
    Stopped(Stop),
    Failed(Error),
}

impl Turn {
    /// Positions whose logits were told, while some of the prompt are still to be.
    fn told(&self) -> Option<usize> {
        let untold = self.untold.len();
        (untold > 0).then(|| self.stats.prompt_tokens - 1 - untold)
    }

    /// Tells the next token of the prompt, or samples the next after it.
    fn take(&mut self, logits: &[f32], each: &mut dyn FnMut(RequestId, Event<'_>) -> ControlFlow<Stop>) {
        if let Some(token) = self.untold.next() {
            if let ControlFlow::Break(stop) = each(self.id, Event::Prompt(Sampled { token, logits })) {
                self.ended.get_or_insert(Ended::Stopped(stop));
            }
            return;
        }
        if self.tokens == 0 {
            self.ended.get_or_insert(Ended::Stopped(Stop::Length));
            return;
        }
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        if self.stats.tokens == 0 {
            self.stats.prefill_seconds = (now - self.since).as_secs_f64();
        }
        let token = match self.sampler.sample(logits) {
            Ok(token) => token,
            Err(error) => {
                self.ended = Some(Ended::Failed(error.into()));
                return;
            }
        };
        self.sampler.accept(token);
        self.sampled = Some(token);
        self.stats.tokens += 1;
        self.stats.decode_seconds = (now - first).as_secs_f64();
        let stop = if (self.end)(token) {
            // It has ended, whatever the caller says.
            let _ = each(self.id, Event::End(Sampled { token, logits }));
            Some(Stop::EndOfText)
        } else {
            let goes_on = each(self.id, Event::Token(Sampled { token, logits }));
            goes_on.break_value().or((self.stats.tokens >= self.tokens).then_some(Stop::Length))
        };
        self.ended = self.ended.take().or(stop.map(Ended::Stopped));
    }
}

impl Scheduler {
    /// One that has nothing to do. Its sessions keep keys and values as `kind` says.
    pub fn new(kind: KvKind, bounds: Bounds) -> Scheduler {
        let bounds = Bounds { sequences: bounds.sequences.clamp(1, BATCH), ..bounds };
        Scheduler {
            bounds,
            kind,
            waiting: VecDeque::new(),
            running: Vec::with_capacity(bounds.sequences),
            turns: Vec::with_capacity(bounds.sequences),
            prefixes: Prefixes::default(),
            requests: 0,
            parts: Vec::with_capacity(bounds.sequences),
            places: Vec::with_capacity(bounds.sequences),
        }
    }

    /// Requests that run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait for a place.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request is left.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Adds a request, which has a place as soon as there is one.
    ///
    /// # Errors
    /// If too many wait, or the request could never run: without tokens, with a token outside the vocabulary, or with more
    /// positions than the model or the bounds allow.
    pub fn submit(&mut self, runner: &Runner, request: Request) -> Result<RequestId, Error> {
        let model = runner.model();
        let places = self.bounds.sequences - self.running.len();
        if self.waiting.len() >= self.bounds.waiting.saturating_add(places) {
            return Err(Error::TooManyRequests { waiting: self.waiting.len() });
        }
        if request.prompt.is_empty() {
            return Err(Error::NoTokens);
        }
        let vocab = model.vocab();
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        let wanted = request.prompt.len().saturating_add(request.tokens);
        let positions = request.positions.unwrap_or(wanted);
        if request.prompt.len() > positions {
            return Err(Error::ContextFull { wanted: request.prompt.len(), capacity: positions });
        }
        if let Some(learned) = model.learned_positions().filter(|learned| positions > *learned) {
            return Err(Error::Positions { wanted: positions, learned });
        }
        let too_large = || Error::CacheTooLarge { capacity: positions };
        let queries = self.bounds.kv_budget.map_or(0, |_| model.observed_bytes());
        let bytes = model.state_bytes(self.kind, positions).and_then(|bytes| bytes.checked_add(queries));
        let bytes = bytes.ok_or_else(too_large)?;
        if bytes > self.bounds.bytes {
            return Err(too_large());
        }
        let id = RequestId(self.requests);
        self.requests += 1;
        let since = Instant::now();
        self.waiting.push_back(Waiting { id, request, positions, bytes, since, cancelled: false });
        Ok(id)
    }

    /// Ends a request: `step` tells of its end, as of any other. Returns whether there was one.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == id) {
            turn.ended.get_or_insert(Ended::Stopped(Stop::Interrupted));
            return true;
        }
        let found = self.waiting.iter_mut().find(|waiting| waiting.id == id);
        found.map(|waiting| waiting.cancelled = true).is_some()
    }

    /// Runs one pass, and calls `each` with what happened to whom; it may break with the reason why a request ends.
    ///
    /// # Errors
    /// If memory runs out; requests are as they were then.
    pub fn step(
        &mut self,
        runner: &mut Runner,
        each: &mut dyn FnMut(RequestId, Event<'_>) -> ControlFlow<Stop>,
    ) -> Result<(), Error> {
        self.clear(each);
        self.admit(runner)?;
        self.share();
        let mut parts = recycled(std::mem::take(&mut self.parts));
        self.places.clear();
        for (place, running) in self.running.iter_mut().enumerate().filter(|(_, running)| running.rows > 0) {
            let Running { session, text, evicts_at, rows, .. } = running;
            let (from, mut to) = (session.position(), session.position() + *rows);
            // Its end is where a pass ends, also where the text goes on behind it.
            to = to.min(evicts_at.unwrap_or(to));
            let logits = match self.turns[place].told() {
                None if to == text.len() => Logits::Last,
                None => Logits::None,
                // They were told before the weights changed.
                Some(told) if from < told => {
                    to = to.min(told);
                    Logits::None
                }
                Some(_) => Logits::All,
            };
            parts.push(BatchItem { session, tokens: &text[from..to], logits });
            self.places.push(place);
        }
        let ran = if parts.is_empty() {
            Ok(())
        } else {
            let (places, turns) = (&self.places, &mut self.turns);
            runner.run_parts(&mut parts, |part, _, logits| turns[places[part]].take(logits, each))
        };
        self.parts = recycled(parts);
        for (running, turn) in self.running.iter_mut().zip(&mut self.turns) {
            let at_end = running.evicts_at.is_some_and(|end| running.session.position() == end);
            if turn.stats.tokens == 1 && turn.sampled.is_some() || at_end {
                self.prefixes.keep(&running.text[..running.session.position()], running.session.snapshot());
            }
            if at_end {
                running.evicts_at = None;
                if let Err(error) = runner.evict(&mut running.session) {
                    turn.ended.get_or_insert(Ended::Failed(error));
                }
            }
            let Some(token) = turn.sampled.take() else { continue };
            running.text.push(token);
            if running.session.position() == running.session.capacity() {
                turn.ended.get_or_insert(Ended::Stopped(Stop::ContextFull));
            }
        }
        self.clear(each);
        let held: u64 = self.running.iter().map(|running| running.bytes).sum();
        self.prefixes.shrink(self.bounds.bytes.saturating_sub(held));
        ran
    }

    /// Takes away what has ended.
    fn clear(&mut self, each: &mut dyn FnMut(RequestId, Event<'_>) -> ControlFlow<Stop>) {
        self.waiting.retain(|waiting| {
            if waiting.cancelled {
                let _ = each(waiting.id, Event::Done(Stats { stop: Stop::Interrupted, ..Stats::default() }));
            }
            !waiting.cancelled
        });
        let mut place = 0;
        while let Some(turn) = self.turns.get_mut(place) {
            let Some(ended) = turn.ended.take() else {
                place += 1;
                continue;
            };
            let turn = self.turns.remove(place);
            let running = self.running.remove(place);
            let position = running.session.position();
            if position > 0 && !running.session.has_left_out() {
                self.prefixes.keep(&running.text[..position], running.session.snapshot());
            }
            // It has ended, whatever the caller says.
            let _ = each(
                turn.id,
                match ended {
                    Ended::Stopped(stop) => Event::Done(Stats { stop, ..turn.stats }),
                    Ended::Failed(error) => Event::Failed(error),
                },
            );
        }
    }

    /// Gives places to those that wait, in their order, as far as bytes allow.
    fn admit(&mut self, runner: &mut Runner) -> Result<(), Error> {
        while let Some(first) = self.waiting.front() {
            let held: u64 = self.running.iter().map(|running| running.bytes).sum();
            let room = self.bounds.bytes.saturating_sub(held);
            if self.running.len() == self.bounds.sequences || first.bytes > room {
                break;
            }
            self.prefixes.shrink(room - first.bytes);
            let mut session = Session::new(runner.model(), self.kind, first.positions)?;
            session.set_kv_budget(self.bounds.kv_budget)?;
            let Some(Waiting { id, request, bytes, since, .. }) = self.waiting.pop_front() else { break };
            let Request { prompt: mut text, mut sampler, tokens, end, tells_prompt, .. } = request;
            let known = if tells_prompt { 0 } else { self.prefixes.restore(&text, &mut session) };
            let untold = if tells_prompt { text[1..].to_vec() } else { vec![] };
            sampler.reserve(text.len() + tokens + 1);
            sampler.read(&text);
            text.reserve_exact(tokens);
            let stats = Stats { prompt_tokens: text.len(), known_tokens: known, ..Stats::default() };
            let evicts_at = session.kv_budget().map(|_| text.len());
            self.running.push(Running { session, text, evicts_at, rows: 0, bytes });
            self.turns.push(Turn {
                id,
                sampler,
                end,
                tokens,
                untold: untold.into_iter(),
                stats,
                since,
                first: None,
                sampled: None,
                ended: (tokens == 0 && !tells_prompt).then_some(Ended::Stopped(Stop::Length)),
            });
        }
        Ok(())
    }

    /// Says how many tokens each sequence takes: those that are continued one, and prompts equal shares of the others.
    fn share(&mut self) {
        let left = |running: &Running| running.text.len() - running.session.position();
        let (mut room, mut prompts) = (BATCH, 0);
        for running in &mut self.running {
            running.rows = usize::from(left(running) == 1);
            room -= running.rows;
            prompts += 1 - running.rows;
        }
        // The shortest take less than their share, and leave it to the others.
        while prompts > 0 && room >= prompts {
            let each = room / prompts;
            prompts = 0;
            for running in &mut self.running {
                let wanted = left(running) - running.rows;
                let more = wanted.min(each);
                running.rows += more;
                room -= more;
                prompts += usize::from(wanted > more);
            }
        }
    }
}

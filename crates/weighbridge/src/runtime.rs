//! A model that runs, and what it is started with.

mod drafted;
mod interface;
mod passage;
mod status;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use checkpoint::Checkpoint;
use engine::backend::{Ceiling, Tuned};
use engine::draft::Draft;
use engine::eval::Predictor;
use engine::sampler::Sampler;
use engine::sampling::{Sampling, sampling};
use engine::schedule::{Event, Request, RequestId, Scheduler, Suspended};
use engine::text::{self, ChatTemplate, Tokenizer};
use engine::{Batch, Limits, OBSERVED, Runner, Sampled, Session, Stats, Stop, Streaming, session_bytes};
use load::{LoadReport, Pool};
use model::Model;
use planner::{Encoding, LayoutKind, PlanBuilder, describe};
use store::Built;

use crate::Error;
use crate::start::{Keeping, Kept, Started, Starting, architecture, isa};

pub use crate::start::{BackendKind, CacheMode, RuntimeOptions};
pub use interface::Interface;
pub use passage::Passage;
pub use status::{CopyStatus, copy_status};

/// Limit on the number of positions that are reserved when the caller gives none.
pub const DEFAULT_CONTEXT: u64 = 4096;

/// A model that runs: weights in their slots, one session, a tokenizer if the checkpoint has one.
///
/// Most methods are of that session. [`Runtime::run`] runs others of the same model beside it.
pub struct Runtime {
    checkpoint: Checkpoint,
    model: Model,
    report: LoadReport,
    layout: LayoutKind,
    encoding: Encoding,
    runner: Runner,
    session: Session,
    /// Sessions that memory is planned for.
    sessions: u64,
    tokenizer: Result<Arc<Tokenizer>, engine::Error>,
    template: Option<ChatTemplate>,
    sampling: Sampling,
    kept: Kept,
    /// What the start of a draft leaves for its next.
    draft_kept: Option<Keeping>,
    /// Memory that the draft takes.
    draft_memory: Foreseen,
}

/// Memory that a start takes, as it was foreseen, in bytes: without the program itself, the tokenizer and what layers compute with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// Parameters in memory of their own, buffers while they are loaded, and the state of full sessions.
    pub private: u64,
    /// Parameters that stay in mapped files. They may be resident, and the system takes them back if it needs memory.
    pub mapped: u64,
}

impl Foreseen {
    /// Memory that is no file's.
    pub fn of_private(bytes: u64) -> Foreseen {
        Foreseen { private: bytes, mapped: 0 }
    }

    /// All of it.
    pub fn total(self) -> u64 {
        self.private.saturating_add(self.mapped)
    }

    /// The larger of two steps, of which one comes after the other.
    #[must_use]
    pub fn max(self, other: Foreseen) -> Foreseen {
        if other.total() > self.total() { other } else { self }
    }
}

/// The memory of parts that are there at the same time.
impl Add for Foreseen {
    type Output = Foreseen;

    fn add(self, other: Foreseen) -> Foreseen {
        Foreseen {
            private: self.private.saturating_add(other.private),
            mapped: self.mapped.saturating_add(other.mapped),
        }
    }
}

impl Sum for Foreseen {
    fn sum<I: Iterator<Item = Foreseen>>(parts: I) -> Foreseen {
        parts.fold(Foreseen::default(), Add::add)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("checkpoint", self.checkpoint.location())
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Opens, plans, loads, and makes ready to run.
    ///
    /// # Errors
    /// Whatever is wrong with the checkpoint, and what the machine cannot give.
    pub fn start(path: impl AsRef<Path>, options: &RuntimeOptions) -> Result<Runtime, Error> {
        Runtime::start_from(checkpoint::open_with(path, &options.open)?, options)
    }

    /// Plans a checkpoint that is open, loads it, and makes ready to run; how it would be opened does not matter.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_from(checkpoint: Checkpoint, options: &RuntimeOptions) -> Result<Runtime, Error> {
        let model = describe(&checkpoint)?;
        let arch = architecture(&checkpoint, &model)?;
        if arch.decoder().is_none() {
            return Err(Error::Encoder { path: checkpoint.location().to_string() });
        }
        if arch.audio_encoder().is_some() {
            return Err(Error::Hears { path: checkpoint.location().to_string() });
        }
        // Before anything is loaded; whether a budget does anything, the session knows.
        if let Some(wanted) = options.kv_budget.filter(|budget| *budget <= OBSERVED) {
            return Err(engine::Error::KvBudget { wanted }.into());
        }
        let context = options
            .context
            .unwrap_or_else(|| usize::try_from(arch.context().min(DEFAULT_CONTEXT)).unwrap_or(1));
        let kind = options.kv_kind();
        let sessions = options.more_sessions.saturating_add(1) as u64;
        let starting = Starting::new(&checkpoint, &model, &arch, options);
        let started = starting.with_sessions(kind, context, sessions).start()?;
        let Started { loaded, layout, isa, pool, tokenizer, kept } = started;
        let shared = Arc::new(engine::Model::new(&loaded, arch)?);
        let mut session = Session::new(&shared, kind, context)?;
        session.set_kv_budget(options.kv_budget)?;
        let mut runner = Runner::new(&shared, options.backend_of(pool, isa, &shared)?)?;
        if let Some(available) = options.memory.or_else(load::available_memory) {
            let state = session_bytes(shared.architecture(), kind, context as u64, 1).unwrap_or(u64::MAX);
            let held = loaded.report().owned_bytes.saturating_add(state.saturating_mul(sessions));
            runner.stream(available.saturating_sub(held))?;
        }
        let template = text::chat_template(&checkpoint)?;
        let report = loaded.report().clone();
        let sampling = sampling(&checkpoint)?;
        Ok(Runtime {
            checkpoint,
            model,
            report,
            layout,
            encoding: options.encoding.clone(),
            runner,
            session,
            sessions,
            tokenizer,
            template,
            sampling,
            kept,
            draft_kept: None,
            draft_memory: Foreseen::default(),
        })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The costs of loading.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The memory that the plan of this start foresaw, and that of its draft.
    pub fn foreseen(&self) -> Foreseen {
        let LoadReport { owned_bytes, scratch_predicted, bytes_borrowed, .. } = self.report;
        Foreseen {
            private: owned_bytes
                + scratch_predicted
                + (self.session.bytes() as u64).saturating_mul(self.sessions)
                + self.draft_memory.private,
            mapped: bytes_borrowed + self.draft_memory.mapped,
        }
    }

    /// Whether the parameters lie in a copy that an earlier start has left.
    pub fn is_from_cache(&self) -> bool {
        self.kept.is_used()
    }

    /// Builds the copy for the next start now, if it was to be built beside what follows.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn build_copy(&mut self) -> Result<Option<Built>, Error> {
        Ok(self.kept.build()?)
    }

    /// Bytes of the copy that will be built beside what follows; `None` if an earlier process began it.
    pub fn first_copy(&self) -> Option<u64> {
        self.kept.first_bytes()
    }

    /// What stays in memory and what each pass reads, if not all weights may be in memory at once.
    pub fn streaming(&self) -> Option<Streaming> {
        self.runner.streaming()
    }

    /// The layout that the slots have.
    pub fn layout(&self) -> LayoutKind {
        self.layout
    }

    /// The backend's name.
    pub fn backend(&self) -> String {
        self.runner.backend()
    }

    /// The parts that all sessions share: weights and architecture.
    pub fn shared(&self) -> &Arc<engine::Model> {
        self.runner.model()
    }

    /// The session of this runtime.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same, to restore a snapshot.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns the tokenizer, shared so that it can be used while the model runs.
    ///
    /// # Errors
    /// If the checkpoint has no tokenizer, or a broken one.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>, &engine::Error> {
        self.tokenizer.as_ref()
    }

    /// The chat template, if the checkpoint has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Uses another chat template than the checkpoint's.
    pub fn set_template(&mut self, template: ChatTemplate) {
        self.template = Some(template);
    }

    /// How the checkpoint wants tokens chosen.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The adapter for sessions of [`Runtime::shared`]: kept beside the weights, so that other sessions have others, or none.
    ///
    /// # Errors
    /// If it does not fit the model, or changes more than products: a token embedding, or a matrix as a whole.
    pub fn adapter(&self, adapter: &Arc<lora::Adapter>) -> Result<Arc<engine::Adapter>, Error> {
        let planned = PlanBuilder::new(&self.checkpoint).model(&self.model).layout(self.layout);
        let request = planned.encoding(self.encoding.clone()).request()?;
        let changes = request.low_ranks(&self.model, adapter)?;
        Ok(Arc::new(engine::Adapter::new(self.shared(), changes, isa()?)?))
    }

    /// Forgets every position from `len` on, and returns the position that it is at then: see [`Session::truncate`].
    pub fn truncate(&mut self, len: usize) -> usize {
        self.session.truncate(len)
    }

    /// Runs `tokens` at the next positions; the logits after the last, `[vocab]`.
    ///
    /// # Errors
    /// If a token is outside the vocabulary, or the context is full.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        if self.session.position() > 0 {
            self.kept.leave();
        }
        Ok(self.runner.forward(&mut self.session, tokens)?)
    }

    /// Runs `tokens` at the next positions and calls `each` with the logits after every one.
    ///
    /// # Errors
    /// As [`Runtime::forward`].
    pub fn forward_each(&mut self, tokens: &[u32], each: impl FnMut(&[f32])) -> Result<(), Error> {
        Ok(self.runner.forward_each(&mut self.session, tokens, each)?)
    }

    /// The model with its session, to be [evaluated](engine::eval::evaluate).
    pub fn predictor(&mut self) -> Predictor<'_> {
        Predictor { runner: &mut self.runner, session: &mut self.session }
    }

    /// Runs sessions of [`Runtime::shared`] together; see [`Runner::run`].
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run(&mut self, batch: Batch<'_>, each: impl FnMut(usize, usize, &[f32])) -> Result<(), Error> {
        Ok(self.runner.run(batch, each)?)
    }

    /// Leaves out of a prompt what is beyond the budget of its session; see [`Runner::evict`].
    ///
    /// # Errors
    /// As [`Runner::evict`].
    pub fn evict(&mut self, session: &mut Session) -> Result<(), Error> {
        Ok(self.runner.evict(session)?)
    }

    /// Measures how fast the machine could be at most at reading all weights and the keys and values of `sessions`, up to 2 GiB in all, and
    /// at multiplying; `None` for a backend that is its own bound.
    pub fn ceiling(&mut self, sessions: &[Session]) -> Option<Ceiling> {
        self.runner.ceiling(sessions)
    }

    /// Bytes of weights that a decoded token reads; see [`Session::reads`] for what it reads of a session.
    pub fn reads(&self) -> u64 {
        self.shared().projections().map(|p| p.share_of(p.bytes())).sum()
    }

    /// Products (pairs of numbers multiplied and added) of all matrices with a prompt of `tokens` tokens.
    pub fn macs(&self, tokens: u64) -> u64 {
        let all: u64 = self.shared().projections().map(|p| p.share_of(p.macs())).sum();
        let output = self.shared().output().map_or(0, |output| output.macs());
        // Logits are wanted after the last token alone.
        (all - output) * tokens + output
    }

    /// Runs only the products of a prompt of `tokens` tokens.
    pub fn products(&mut self, tokens: usize) {
        self.runner.products(tokens);
    }

    /// Adds a request to `scheduler`, to be run with this model; see [`Scheduler::submit`].
    ///
    /// # Errors
    /// As [`Scheduler::submit`].
    pub fn submit(&self, scheduler: &mut Scheduler, request: Request) -> Result<RequestId, Error> {
        Ok(scheduler.submit(&self.runner, request)?)
    }

    /// Has requests that other weights began go on with these; see [`Suspended::resume`].
    ///
    /// # Errors
    /// As [`Suspended::resume`].
    pub fn resume(&self, suspended: Suspended) -> Result<Scheduler, Error> {
        Ok(suspended.resume(&self.runner)?)
    }

    /// Runs one pass of the requests of `scheduler`; see [`Scheduler::step`].
    ///
    /// # Errors
    /// As [`Scheduler::step`].
    pub fn step(
        &mut self,
        scheduler: &mut Scheduler,
        each: &mut dyn FnMut(RequestId, Event<'_>) -> ControlFlow<Stop>,
    ) -> Result<(), Error> {
        scheduler.step(&mut self.runner, each)?;
        if scheduler.running() > 0 {
            self.kept.leave();
        }
        Ok(())
    }

    /// Runs `prompt`, then samples until a limit; see [`engine::generate`].
    ///
    /// # Errors
    /// If the prompt does not fit, or the logits are not numbers.
    pub fn generate(
        &mut self,
        sampler: &mut Sampler,
        draft: Option<&mut dyn Draft>,
        prompt: &[u32],
        limits: &Limits<'_>,
        each: &mut dyn FnMut(Sampled<'_>) -> ControlFlow<Stop>,
    ) -> Result<Stats, Error> {
        let (kept, draft_kept) = (&mut self.kept, &mut self.draft_kept);
        let mut each = |sampled: Sampled<'_>| {
            let flow = each(sampled);
            kept.leave();
            draft_kept.take().into_iter().for_each(Keeping::leave);
            flow
        };
        let (runner, session) = (&mut self.runner, &mut self.session);
        let stats = engine::generate(runner, session, sampler, draft, prompt, limits, &mut each);
        Ok(stats?)
    }
}

/// Tries all ways of reading weights on `threads` threads (all if `None`), in half a second: see
/// [`RuntimeOptions::access`]. `None` where there is nothing to choose.
///
/// # Errors
/// If the instruction set that was asked for is not there.
pub fn tune(threads: Option<usize>) -> Result<Option<Tuned>, Error> {
    let mut pool = Pool::new(threads.unwrap_or_else(Pool::available));
    Ok(engine::backend::tune(&mut pool, isa()?))
}

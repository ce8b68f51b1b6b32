//! A model that runs, and what it is started with.

mod drafted;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, OpenOptions};
use engine::backend::{Backend, Ceiling, Cpu, Reference, Tuned};
use engine::draft::Draft;
use engine::eval::Predictor;
use engine::sampler::Sampler;
use engine::sampling::{Sampling, sampling};
use engine::schedule::{Event, Request, RequestId, Scheduler};
use engine::text::{self, ChatTemplate, Tokenizer};
use engine::{Batch, KvKind, Limits, Runner, Sampled, Session, Stats, Stop, Streaming, session_bytes};
use load::{LoadReport, Loaded, Needs, Plan, Pool};
use model::{Architecture, Model, NotRun};
use planner::{Encoding, LayoutKind, PlanBuilder, describe};
use quant::{Access, Isa};
use store::{Builder, Built, Cache, Companion, State};

use crate::Error;

pub use status::{CopyStatus, copy_status};

/// Which backend runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// Naive f32 on one thread: the oracle.
    Reference,
    /// SIMD on all threads.
    #[default]
    Cpu,
}

/// Whether a start uses copies of what an earlier one has loaded, and leaves one.
#[derive(Clone, Debug, Default)]
pub enum CacheMode {
    /// Neither.
    #[default]
    Off,
    /// It maps a copy that is there.
    Read(Cache),
    /// The same; if there is none, one is built beside what follows the first tokens. The end of the process does not wait for it,
    /// and the next start continues it.
    Write(Cache),
}

impl CacheMode {
    fn cache(&self) -> Option<&Cache> {
        match self {
            CacheMode::Off => None,
            CacheMode::Read(cache) | CacheMode::Write(cache) => Some(cache),
        }
    }
}

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct RuntimeOptions {
    /// The backend.
    pub backend: BackendKind,
    /// The layout; the backend's best if `None`.
    pub layout: Option<LayoutKind>,
    /// Number of threads; if `None`, the number that the machine offers.
    pub threads: Option<usize>,
    /// Number of positions; if `None`, the number that the model was trained for, up to 4096.
    pub context: Option<usize>,
    /// Sessions of as many positions that will run beside the runtime's own: memory is planned for them too.
    pub more_sessions: usize,
    /// How keys and values are kept; by default in f32 for the reference backend, and in f16 for others.
    pub kv: Option<KvKind>,
    /// Encodings applied during the load.
    pub encoding: Encoding,
    /// `LoRA` adapters that are merged into the parameters.
    pub loras: Vec<Arc<lora::Adapter>>,
    /// How to read the files.
    pub open: OpenOptions,
    /// Limits parameters, buffers and the session's state together, in bytes. `None` for what the system has available; a
    /// model that needs more is refused before it is loaded.
    pub memory: Option<u64>,
    /// How products read weights, as [`tune`] found it; if `None`, as measured on such processors.
    pub access: Option<Access>,
    /// Copies of loaded parameters, ready to be mapped.
    pub cache: CacheMode,
}

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
    copy: ReadyCopy,
    /// Where the tokenizer's built form is to be written.
    form: Option<(Companion, Arc<Tokenizer>)>,
    /// What the start of a draft leaves for its next.
    draft_copy: Option<Keeping>,
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

/// Where the parameters' copy in the cache stands.
enum ReadyCopy {
    /// There is none, and none will be.
    None,
    /// The parameters are in it.
    Used,
    /// It is built once there are tokens; `first` if no earlier process began.
    Planned { builder: Box<Builder>, first: bool },
    /// It is being built.
    Begun,
}

impl ReadyCopy {
    /// What builds it, if it is time that somebody does.
    fn begin(&mut self) -> Option<Builder> {
        match std::mem::replace(self, ReadyCopy::Begun) {
            ReadyCopy::Planned { builder, .. } => Some(*builder),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What a start leaves for the next.
struct Keeping {
    builder: Option<Builder>,
    form: Option<(Companion, Arc<Tokenizer>)>,
}

impl Keeping {
    /// `None` if nothing is left to do.
    fn begin(copy: &mut ReadyCopy, form: &mut Option<(Companion, Arc<Tokenizer>)>) -> Option<Keeping> {
        let (builder, form) = (copy.begin(), form.take());
        (builder.is_some() || form.is_some()).then_some(Keeping { builder, form })
    }

    fn run(self) -> Result<Option<Built>, store::Error> {
        let built = self.builder.map(Builder::run).transpose()?;
        if let Some((companion, tokenizer)) = self.form
            && let Some(bytes) = tokenizer.built()
        {
            companion.write(&bytes)?;
        }
        Ok(built)
    }

    /// Does it beside what follows. If it fails, the next start does as this one did.
    fn leave(self) {
        drop(store::background(|| self.run()));
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
        let (layout, isa) = layout(options)?;
        let context = options
            .context
            .unwrap_or_else(|| usize::try_from(arch.context().min(DEFAULT_CONTEXT)).unwrap_or(1));
        let mut pool = Pool::new(options.threads.unwrap_or_else(Pool::available));
        let planned = plan(&checkpoint, &model, layout, options)?;
        let entry = options.cache.cache().and_then(|cache| cache.entry(&planned, isa.name()));
        let form = entry.as_ref().and_then(|entry| form(&checkpoint, entry));
        let kind = options.kv.unwrap_or(match options.backend {
            BackendKind::Reference => KvKind::F32,
            BackendKind::Cpu => KvKind::F16,
        });
        let sessions = options.more_sessions.saturating_add(1) as u64;
        let fits =
            Fits { checkpoint: &checkpoint, arch: &arch, kind, context, sessions, limit: options.memory };
        // The tokenizer needs no weights, and the weights no tokenizer.
        let (loaded, (tokenizer, form)) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| tokenizer(&checkpoint, form));
            let loaded = load(&planned, entry, &model, &fits, layout, &mut pool, options);
            (loaded, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (loaded, copy, layout) = loaded?;
        let form = match (&options.cache, &tokenizer) {
            (CacheMode::Write(_), Ok(tokenizer)) => form.map(|form| (form, Arc::clone(tokenizer))),
            _ => None,
        };
        let shared = Arc::new(engine::Model::new(&loaded, arch)?);
        let session = Session::new(&shared, kind, context)?;
        let backend: Box<dyn Backend> = match options.backend {
            BackendKind::Reference => Box::new(Reference::new()),
            BackendKind::Cpu => {
                let access = options.access.unwrap_or_else(Access::detect);
                Box::new(Cpu::new(pool, isa, access, &shared)?)
            }
        };
        let mut runner = Runner::new(&shared, backend)?;
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
            copy,
            form,
            draft_copy: None,
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
        matches!(self.copy, ReadyCopy::Used)
    }

    /// Builds the copy for the next start now, if it was to be built beside what follows.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn build_copy(&mut self) -> Result<Option<Built>, Error> {
        Ok(Keeping::begin(&mut self.copy, &mut self.form).map_or(Ok(None), Keeping::run)?)
    }

    /// Bytes of the copy that will be built beside what follows; `None` if an earlier process began it.
    pub fn first_copy(&self) -> Option<u64> {
        match &self.copy {
            ReadyCopy::Planned { builder, first: true } => Some(builder.bytes()),
            _ => None,
        }
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
            Keeping::begin(&mut self.copy, &mut self.form).into_iter().for_each(Keeping::leave);
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

    /// Measures how fast the machine could be at most; `None` for a backend that is its own bound.
    pub fn ceiling(&mut self) -> Option<Ceiling> {
        self.runner.ceiling()
    }

    /// Bytes of weights, and of keys and values, that a token decoded at `position` reads.
    pub fn reads(&self, position: usize) -> (u64, u64) {
        let weights = self.shared().projections().map(|p| p.share_of(p.bytes())).sum();
        (weights, self.shared().state_reads(self.session.kind(), position))
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
            Keeping::begin(&mut self.copy, &mut self.form).into_iter().for_each(Keeping::leave);
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
        let (copy, form, draft_copy) = (&mut self.copy, &mut self.form, &mut self.draft_copy);
        let mut each = |sampled: Sampled<'_>| {
            let flow = each(sampled);
            // There is a token: who waits for the first does not wait for the copy.
            let own = Keeping::begin(copy, form);
            own.into_iter().chain(draft_copy.take()).for_each(Keeping::leave);
            flow
        };
        let (runner, session) = (&mut self.runner, &mut self.session);
        let stats = engine::generate(runner, session, sampler, draft, prompt, limits, &mut each);
        Ok(stats?)
    }
}

/// The layout of a start, and the instruction set that it is for.
pub(crate) fn layout(options: &RuntimeOptions) -> Result<(LayoutKind, Isa), Error> {
    let isa = isa()?;
    let layout = options.layout.unwrap_or(match options.backend {
        BackendKind::Reference => LayoutKind::Canonical,
        BackendKind::Cpu => best_layout(isa),
    });
    if layout.runs() { Ok((layout, isa)) } else { Err(Error::NotRunnable { layout: layout.name() }) }
}

pub(crate) fn plan(
    checkpoint: &Checkpoint,
    model: &Model,
    layout: LayoutKind,
    options: &RuntimeOptions,
) -> Result<Plan, Error> {
    let planned = PlanBuilder::new(checkpoint).model(model).layout(layout);
    Ok(planned.encoding(options.encoding.clone()).loras(options.loras.iter().cloned()).build()?)
}

/// Where the built form of the checkpoint's tokenizer lies, beside a copy.
fn form(checkpoint: &Checkpoint, entry: &store::Entry<'_>) -> Option<Companion> {
    Companion::of(entry, text::BUILT, &text::tokenizer_files(checkpoint)?)
}

/// Reads the built `form` of the tokenizer, or builds the tokenizer. Returns where its form is to be written, if there is none.
fn tokenizer(
    checkpoint: &Checkpoint,
    form: Option<Companion>,
) -> (Result<Arc<Tokenizer>, engine::Error>, Option<Companion>) {
    // A form that cannot be read is as good as none.
    let kept = form.as_ref().and_then(|form| form.read().ok().flatten()).and_then(Tokenizer::from_built);
    match kept {
        Some(tokenizer) => (Ok(Arc::new(tokenizer)), None),
        None => (text::tokenizer(checkpoint).map(Arc::new), form),
    }
}

/// Maps the parameters of a copy, or loads them.
fn load(
    planned: &Plan,
    entry: Option<store::Entry<'_>>,
    model: &Model,
    fits: &Fits<'_>,
    layout: LayoutKind,
    pool: &mut Pool,
    options: &RuntimeOptions,
) -> Result<(Loaded, ReadyCopy, LayoutKind), Error> {
    // A copy that cannot be read is as good as none.
    if let Some(ready) = entry.as_ref().and_then(|entry| entry.load().ok().flatten()) {
        fits.check(Needs::default())?;
        return Ok((ready, ReadyCopy::Used, layout));
    }
    let memory = match fits.check(planned.needs(load::Options::default(), pool.threads())?) {
        Err(_) if options.layout.is_none() && layout != LayoutKind::InPlace => {
            // As the file has them, most weights stay in the map, and no more than a layer need be in memory at once.
            let planned = plan(fits.checkpoint, model, LayoutKind::InPlace, options)?;
            let mut needs = planned.needs(load::Options::default(), pool.threads())?;
            needs.owned = needs.owned.saturating_add(largest_layer(&planned)?);
            let memory = fits.check(needs)?;
            let loaded = planned.load_with(pool, load::Options { memory, ..load::Options::default() })?;
            return Ok((loaded, ReadyCopy::None, LayoutKind::InPlace));
        }
        fitted => fitted?,
    };
    let loaded = planned.load_with(pool, load::Options { memory, ..load::Options::default() })?;
    let cache = options.cache.cache();
    let writes = matches!(options.cache, CacheMode::Write(_));
    let builder = entry.filter(|_| writes).and_then(|entry| {
        let first = entry.state() == State::Absent;
        let builder = entry.builder(&loaded).ok()?;
        let is_taken = cache.is_some_and(|cache| cache.takes(builder.bytes()));
        is_taken.then(|| ReadyCopy::Planned { builder: Box::new(builder), first })
    });
    Ok((loaded, builder.unwrap_or(ReadyCopy::None), layout))
}

/// The computation of `model`.
pub(crate) fn architecture(checkpoint: &Checkpoint, model: &Model) -> Result<Architecture, Error> {
    model.architecture().map_err(|NotRun { why }| Error::NotRun {
        path: checkpoint.location().to_string(),
        family: model.family.name(),
        why,
    })
}

/// Loads `planned` within the memory of `options`, for passes that keep no state. Returns the layout that it has then.
pub(crate) fn load_within(
    planned: &Plan,
    checkpoint: &Checkpoint,
    model: &Model,
    layout: LayoutKind,
    pool: &mut Pool,
    options: &RuntimeOptions,
) -> Result<(Loaded, LayoutKind), Error> {
    let arch = architecture(checkpoint, model)?;
    let fits =
        Fits { checkpoint, arch: &arch, kind: KvKind::F32, context: 0, sessions: 0, limit: options.memory };
    let options = RuntimeOptions { cache: CacheMode::Off, ..options.clone() };
    let (loaded, _, layout) = load(planned, None, model, &fits, layout, pool, &options)?;
    Ok((loaded, layout))
}

/// Bytes of the largest layer that stays in the map.
fn largest_layer(planned: &Plan) -> Result<u64, Error> {
    let mut layers: BTreeMap<&str, u64> = BTreeMap::new();
    for (param, borrowed) in planned.params().iter().zip(planned.borrowed(load::Options::default())?) {
        let layer = param.name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        if let (Some((layer, _)), true) = (layer, borrowed) {
            *layers.entry(layer).or_default() += param.scheme.byte_len(&param.shape).unwrap_or(u64::MAX);
        }
    }
    Ok(layers.into_values().max().unwrap_or(0))
}

/// Whether parameters, buffers and the state of `sessions` sessions of `context` positions fit into `limit`, or into what the
/// system has available.
struct Fits<'a> {
    checkpoint: &'a Checkpoint,
    arch: &'a Architecture,
    kind: KvKind,
    context: usize,
    sessions: u64,
    limit: Option<u64>,
}

impl Fits<'_> {
    /// Returns the limit on the buffers, if they have to be smaller than usual.
    fn check(&self, needs: Needs) -> Result<Option<u64>, Error> {
        let Some(available) = self.limit.or_else(load::available_memory) else { return Ok(None) };
        let cache = |positions: u64| {
            let one = session_bytes(self.arch, self.kind, positions, 1).unwrap_or(u64::MAX);
            one.saturating_mul(self.sessions)
        };
        let context = self.context as u64;
        let state = cache(context);
        let stays = needs.owned.saturating_add(state);
        match available.checked_sub(stays) {
            Some(room) if room >= needs.scratch => Ok(None),
            Some(room) if room >= needs.least_scratch => Ok(Some(room)),
            _ => {
                let room = available.saturating_sub(needs.owned.saturating_add(needs.least_scratch));
                let (mut fewer, mut more) = (0, context);
                while fewer < more {
                    let middle = more - (more - fewer) / 2;
                    (fewer, more) = if cache(middle) <= room { (middle, more) } else { (fewer, middle - 1) };
                }
                Err(Error::Memory {
                    path: self.checkpoint.location().to_string(),
                    parameters: needs.owned,
                    buffers: needs.least_scratch,
                    cache: state,
                    positions: context,
                    sessions: self.sessions,
                    fewer,
                    available,
                    is_limit: self.limit.is_some(),
                })
            }
        }
    }
}

/// Tries all ways of reading weights on `threads` threads (all if `None`), in a sixth of a second: see
/// [`RuntimeOptions::access`]. `None` where there is nothing to choose.
///
/// # Errors
/// If the instruction set that was asked for is not there.
pub fn tune(threads: Option<usize>) -> Result<Option<Tuned>, Error> {
    let mut pool = Pool::new(threads.unwrap_or_else(Pool::available));
    Ok(engine::backend::tune(&mut pool, isa()?))
}

/// Measured: interleaved rows start some 50 ms later than rows in place and run twice as fast, where there
/// are kernels for them (docs/performance.md).
fn best_layout(isa: Isa) -> LayoutKind {
    match isa.interleave() {
        Some(rows) => LayoutKind::Packed { rows: rows as u64 },
        None => LayoutKind::InPlace,
    }
}

/// The instruction set that kernels use.
fn isa() -> Result<Isa, Error> {
    Ok(Isa::detect().map_err(planner::Error::from)?)
}

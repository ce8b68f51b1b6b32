//! A start: a checkpoint is planned, and its parameters are mapped from a copy that an earlier start has left, or loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use checkpoint::{Checkpoint, OpenOptions};
use engine::backend::{Backend, Cpu, Reference};
use engine::text::{self, Tokenizer};
use engine::{KvKind, Sequencer, session_bytes};
use load::{LoadReport, Loaded, Needs, Plan, Pool};
use model::{Architecture, Model, NotRun};
use planner::{Encoding, LayoutKind, PlanBuilder};
use quant::{Access, Isa};
use store::{Builder, Built, Cache, Companion, State};

use crate::Error;

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
    /// Positions that are kept of a prompt, as [`Session::set_kv_budget`](engine::Session::set_kv_budget) says; `None`: all of them.
    pub kv_budget: Option<usize>,
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

/// What is left to do for the next start.
pub(crate) struct Keeping {
    builder: Option<Builder>,
    form: Option<(Companion, Arc<Tokenizer>)>,
}

impl Keeping {
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
    pub(crate) fn leave(self) {
        drop(store::background(|| self.run()));
    }
}

/// What a start leaves for the next: a copy of its parameters, and the built form of its tokenizer.
pub(crate) struct Kept {
    copy: ReadyCopy,
    /// Where the tokenizer's built form is to be written.
    form: Option<(Companion, Arc<Tokenizer>)>,
}

impl Kept {
    /// Whether the parameters lie in a copy that an earlier start has left.
    pub(crate) fn is_used(&self) -> bool {
        matches!(self.copy, ReadyCopy::Used)
    }

    /// Bytes of the copy that will be built; `None` if an earlier process began it, or there will be none.
    pub(crate) fn first_bytes(&self) -> Option<u64> {
        match &self.copy {
            ReadyCopy::Planned { builder, first: true } => Some(builder.bytes()),
            _ => None,
        }
    }

    /// What is to be done now; `None` if nothing is left to do.
    pub(crate) fn begin(&mut self) -> Option<Keeping> {
        let (builder, form) = (self.copy.begin(), self.form.take());
        (builder.is_some() || form.is_some()).then_some(Keeping { builder, form })
    }

    /// Does it beside what follows, once: who waits for the first result does not wait for the copy.
    pub(crate) fn leave(&mut self) {
        self.begin().into_iter().for_each(Keeping::leave);
    }

    /// Does it now.
    pub(crate) fn build(&mut self) -> Result<Option<Built>, store::Error> {
        self.begin().map_or(Ok(None), Keeping::run)
    }
}

impl RuntimeOptions {
    /// How keys and values are kept.
    pub(crate) fn kv_kind(&self) -> KvKind {
        self.kv.unwrap_or(match self.backend {
            BackendKind::Reference => KvKind::F32,
            BackendKind::Cpu => KvKind::F16,
        })
    }

    /// The backend that runs sessions of `model`.
    pub(crate) fn backend_of(
        &self,
        pool: Pool,
        isa: Isa,
        model: &engine::Model,
    ) -> Result<Box<dyn Backend>, Error> {
        Ok(match self.backend {
            BackendKind::Reference => Box::new(Reference::new()),
            BackendKind::Cpu => {
                let access = self.access.unwrap_or_else(Access::detect);
                Box::new(Cpu::new(pool, isa, access, model)?)
            }
        })
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

/// A model that is to be started.
pub(crate) struct Starting<'a> {
    checkpoint: &'a Checkpoint,
    model: &'a Model,
    options: &'a RuntimeOptions,
    fits: Fits<'a>,
    lower_case: bool,
}

/// A model that was started.
pub(crate) struct Started {
    pub(crate) loaded: Loaded,
    pub(crate) layout: LayoutKind,
    pub(crate) isa: Isa,
    pub(crate) pool: Pool,
    pub(crate) tokenizer: Result<Arc<Tokenizer>, engine::Error>,
    pub(crate) kept: Kept,
}

impl<'a> Starting<'a> {
    /// For passes that keep no state.
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        model: &'a Model,
        arch: &'a Architecture,
        options: &'a RuntimeOptions,
    ) -> Starting<'a> {
        let limit = options.memory;
        let fits = Fits { checkpoint, arch, kind: KvKind::F32, context: 0, sessions: 0, limit };
        Starting { checkpoint, model, options, fits, lower_case: false }
    }

    /// For `sessions` sessions of `context` positions.
    pub(crate) fn with_sessions(self, kind: KvKind, context: usize, sessions: u64) -> Starting<'a> {
        Starting { fits: Fits { kind, context, sessions, ..self.fits }, ..self }
    }

    /// With a tokenizer that makes texts lower case first.
    pub(crate) fn in_lower_case(self, lower_case: bool) -> Starting<'a> {
        Starting { lower_case, ..self }
    }

    /// Plans it, and maps or loads its parameters within the memory of its options.
    pub(crate) fn start(&self) -> Result<Started, Error> {
        let (checkpoint, options) = (self.checkpoint, self.options);
        let (wanted, isa) = layout(options)?;
        let mut pool = Pool::new(options.threads.unwrap_or_else(Pool::available));
        let planned = plan(checkpoint, self.model, wanted, options)?;
        let entry = options.cache.cache().and_then(|cache| cache.entry(&planned, isa.name()));
        let form = entry.as_ref().filter(|_| !self.lower_case).and_then(|entry| form(checkpoint, entry));
        // The tokenizer needs no weights, and the weights no tokenizer.
        let (loaded, (tokenizer, form)) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| self.tokenizer(form));
            let loaded = self.load(&planned, entry, wanted, &mut pool);
            (loaded, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (loaded, copy, layout) = loaded?;
        let form = match (&options.cache, &tokenizer) {
            (CacheMode::Write(_), Ok(tokenizer)) => form.map(|form| (form, Arc::clone(tokenizer))),
            _ => None,
        };
        Ok(Started { loaded, layout, isa, pool, tokenizer, kept: Kept { copy, form } })
    }

    /// Reads the built `form` of the tokenizer, or builds the tokenizer. Returns where its form is to be written, if there is none.
    fn tokenizer(
        &self,
        form: Option<Companion>,
    ) -> (Result<Arc<Tokenizer>, engine::Error>, Option<Companion>) {
        // A form that cannot be read is as good as none.
        let kept = form.as_ref().and_then(|form| form.read().ok().flatten()).and_then(Tokenizer::from_built);
        if let Some(tokenizer) = kept {
            return (Ok(Arc::new(tokenizer)), None);
        }
        let read = if self.lower_case { text::tokenizer_in_lower_case } else { text::tokenizer };
        (read(self.checkpoint).map(Arc::new), form)
    }

    /// Maps the parameters of a copy, or loads them.
    fn load(
        &self,
        planned: &Plan,
        entry: Option<store::Entry<'_>>,
        layout: LayoutKind,
        pool: &mut Pool,
    ) -> Result<(Loaded, ReadyCopy, LayoutKind), Error> {
        let (fits, options) = (&self.fits, self.options);
        // A copy that cannot be read is as good as none.
        if let Some(ready) = entry.as_ref().and_then(|entry| entry.load().ok().flatten()) {
            fits.check(Needs::default())?;
            return Ok((ready, ReadyCopy::Used, layout));
        }
        let memory = match fits.check(planned.needs(load::Options::default(), pool.threads())?) {
            Err(_) if options.layout.is_none() && layout != LayoutKind::InPlace => {
                // As the file has them, most weights stay in the map, and no more than a layer need be in memory at once.
                let planned = plan(self.checkpoint, self.model, LayoutKind::InPlace, options)?;
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
}

/// A model that was started, ready to run sequences.
pub(crate) struct Ready {
    pub(crate) sequencer: Sequencer,
    pub(crate) report: LoadReport,
    pub(crate) layout: LayoutKind,
    pub(crate) tokenizer: Result<Arc<Tokenizer>, engine::Error>,
    pub(crate) kept: Kept,
}

impl Ready {
    /// Makes `started` ready for sequences of up to `longest` tokens.
    pub(crate) fn of(
        started: Started,
        arch: Architecture,
        longest: usize,
        options: &RuntimeOptions,
    ) -> Result<Ready, Error> {
        let Started { loaded, layout, isa, pool, tokenizer, kept } = started;
        let shared = Arc::new(engine::Model::new(&loaded, arch)?);
        let backend: Box<dyn Backend> = match options.backend {
            BackendKind::Reference => Box::new(Reference::new()),
            BackendKind::Cpu => {
                let access = options.access.unwrap_or_else(Access::detect);
                Box::new(Cpu::for_vectors(pool, isa, access, &shared, Sequencer::rows(longest))?)
            }
        };
        let sequencer = Sequencer::new(&shared, backend, longest)?;
        Ok(Ready { sequencer, report: loaded.report().clone(), layout, tokenizer, kept })
    }
}

/// Where the built form of the checkpoint's tokenizer lies, beside a copy.
fn form(checkpoint: &Checkpoint, entry: &store::Entry<'_>) -> Option<Companion> {
    Companion::of(entry, text::BUILT, &text::tokenizer_files(checkpoint)?)
}

/// The computation of `model`.
pub(crate) fn architecture(checkpoint: &Checkpoint, model: &Model) -> Result<Architecture, Error> {
    model.architecture().map_err(|NotRun { why }| Error::NotRun {
        path: checkpoint.location().to_string(),
        family: model.family.name(),
        why,
    })
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

/// Measured: interleaved rows start some 50 ms later than rows in place and run twice as fast, where there
/// are kernels for them (docs/performance.md).
fn best_layout(isa: Isa) -> LayoutKind {
    match isa.interleave() {
        Some(rows) => LayoutKind::Packed { rows: rows as u64 },
        None => LayoutKind::InPlace,
    }
}

/// The instruction set that kernels use.
pub(crate) fn isa() -> Result<Isa, Error> {
    Ok(Isa::detect().map_err(planner::Error::from)?)
}

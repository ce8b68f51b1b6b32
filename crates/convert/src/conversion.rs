//! Converts a checkpoint to a file of another format or of other encodings.
//!
//! A [`Conversion`] is checked as a whole before a byte is read: every rule must decide something, every scheme must
//! fit its tensor, and the format must hold all of it. Then it runs parameter by parameter, so that memory is bounded
//! by the largest one.

mod choice;
mod guides;
mod verify;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use checkpoint::{
    Checkpoint, Ctranslate2Files, Draft, Flavour, Held, HfFiles, Metadata, OpenaiMetadata, Outgoing, Output,
    WriteOptions,
};
use load::{Plan, Pool, Slot};
use model::{DialectName, Loss, Mesh};
use plan::{Codecs as _, PlannedParam};
use planner::{LayoutKind, PlanBuilder, Request, describe};
use tensor::{Scheme, SharedStage, Step, Target};

use vllm::Rejoined;

use crate::agreement::Agreement;
use crate::carry::{self, Beside, Carried, Made};
use crate::format::own_layout;
use crate::names::Names;
use crate::report::{ConvertReport, Converted};
use crate::{ConvertOptions, Error, Left, OutputFormat, Scaling, gguf, requantize, resume};
use choice::{choose, decode};
use guides::Guides;

/// Checks that everything that is lost was allowed, and that something is lost under every key that was.
pub(crate) fn allowed(lost: &[Loss], keys: &[String], format: OutputFormat) -> Result<(), Error> {
    let unknown: Vec<String> =
        keys.iter().filter(|key| lost.iter().all(|loss| loss.key != **key)).cloned().collect();
    let losses: Vec<Loss> = lost.iter().filter(|loss| !keys.contains(&loss.key)).cloned().collect();
    if losses.is_empty() && unknown.is_empty() {
        return Ok(());
    }
    Err(Error::Lost { format: format.name(), losses, unknown })
}

/// A parameter that is being converted.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Its place, counted from 0.
    pub index: usize,
    /// How many there are.
    pub total: usize,
    /// Its name.
    pub name: &'a str,
    /// The scheme that it has.
    pub from: &'a str,
    /// The scheme that it gets.
    pub to: &'a str,
}

/// A conversion that can be done: checked, and not begun.
pub struct Conversion<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a ConvertOptions<'a>,
    /// The plan of each rank.
    plans: Vec<Plan>,
    /// The rule that decided, for each parameter of all plans.
    rules: Vec<String>,
    /// The names by which importance is known.
    names: Names,
    /// Tensors that no entry of the source holds.
    made: Vec<Made>,
    /// Metadata of the source that the result will not have.
    left: Vec<Left>,
    /// Values of the source that the result cannot express.
    lost: Vec<Loss>,
    draft: Draft,
    /// Identity of everything that the values depend on.
    identity: Vec<u8>,
    /// Checks that rank files must pass.
    agreement: Option<Agreement>,
}

impl fmt::Debug for Conversion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<'a> Conversion<'a> {
    /// Checks that `checkpoint` in `layout` can be written as `format`, and plans it. Reads no tensor.
    ///
    /// # Errors
    /// If rules match nothing or do not fit, all of them at once; if the format cannot hold the result; if a preset or
    /// the canonical layout is asked for and no family claims the checkpoint.
    pub fn new(
        checkpoint: &'a Checkpoint,
        layout: LayoutKind,
        format: OutputFormat,
        options: &'a ConvertOptions<'a>,
    ) -> Result<Conversion<'a>, Error> {
        let of_ranks = checkpoint.metadata().hf().is_some_and(|hf| hf.ranks().is_some());
        if of_ranks && layout != LayoutKind::Source && layout.ecosystem().is_none() {
            let what = format!(
                "the files of ranks are joined into a checkpoint, not into the layout `{}`",
                layout.name()
            );
            return Err(Error::Convert { what: what.into() });
        }
        let refused = format.refuses(checkpoint, layout);
        if let Some(what) = refused.or_else(|| options.refuses(format, layout).filter(|_| !of_ranks)) {
            return Err(Error::Convert { what: what.into() });
        }
        // Files of ranks have names of their own.
        let own = own_layout(checkpoint, format).filter(|_| !of_ranks);
        // From one ecosystem to another, everything gets the names that it has there.
        let layout = match (layout, format.layout()) {
            (LayoutKind::Source, Some(home)) if own != Some(home) => home,
            (LayoutKind::Source, None) if of_ranks => LayoutKind::Named(DialectName::Hf),
            (home, _) if own == Some(home) => LayoutKind::Source,
            (layout, _) => layout,
        };
        let model = (layout != LayoutKind::Source).then(|| describe(checkpoint)).transpose()?;
        let rejoined = match &model {
            Some(model) if of_ranks => Some(Rejoined::of(checkpoint, model, &options.mesh)?),
            _ => None,
        };
        // The mesh of files of ranks is the source's: the result is whole.
        let mesh = if of_ranks { Mesh::default() } else { options.mesh };
        if let Some(what) = model.as_ref().and_then(|model| vllm::rank_files::refuses(&mesh, model)) {
            return Err(Error::Convert { what: what.into() });
        }
        let adapter = rejoined
            .as_ref()
            .map_or_else(|| options.adapter.clone(), |rejoined| rejoined.adapter(&options.adapter));
        let builder = PlanBuilder::new(checkpoint).layout(layout).mesh(mesh).adapter(adapter);
        let builder = builder.loras(options.loras.iter().cloned());
        let shared = match &model {
            Some(model) => builder.model(model).ranks()?,
            None => builder.ranks()?,
        };
        let requests = (0..shared.count()).map(|rank| shared.request(rank));
        let mut requests = requests.collect::<Result<Vec<Request>, _>>()?;
        let for_vllm = layout == vllm::LAYOUT;
        let home = layout.ecosystem().or(for_vllm.then_some(DialectName::Hf));
        let carried = match (&model, home, &requests[..]) {
            (Some(model), Some(home), [first, others @ ..]) => {
                let nameless = nameless(first, others);
                Some(Carried::of(checkpoint, model, first, nameless, home)?)
            }
            _ => None,
        };
        allowed(carried.as_ref().map(|c| &c.lost[..]).unwrap_or_default(), &options.allow_loss, format)?;
        for request in &mut requests {
            decode(request, format, layout);
            if let (true, Some(model)) = (for_vllm, &model) {
                vllm::rank_files::rename(request, model);
            }
        }
        let before = requests.iter().map(Request::compile_unmerged).collect::<Result<Vec<Plan>, _>>()?;
        let guided = options.imatrix.is_some() || options.compensation.is_some() || options.scaling.is_some();
        let names = match (guided, &requests[..]) {
            (true, [request, ..]) => names(checkpoint, layout, model.as_ref(), request, options)?,
            _ => Names::default(),
        };
        let mut choices = choose(&shared, format, layout, &requests, &before, &names, options)?.into_iter();
        let (mut rules, mut counts) = (vec![], vec![]);
        let mut plans: Vec<Plan> = vec![];
        for (request, before) in requests.iter_mut().zip(before) {
            let first = rules.len();
            let mut is_changed = !options.loras.is_empty();
            for (target, choice) in request.targets.iter_mut().zip(&mut choices) {
                if choice.scheme.is_some() {
                    target.scheme = choice.scheme;
                    is_changed = true;
                }
                rules.push(choice.rule);
                if let Some(scaling) = options.scaling {
                    is_changed |= scale(target, scaling, &names, &before);
                }
            }
            if let (true, Some(model)) = (for_vllm, &model) {
                vllm::rank_files::complete(request, &before, model, checkpoint)?;
                is_changed |= rules.len() < first + request.targets.len();
                rules.resize(first + request.targets.len(), "sharded_state".to_owned());
            }
            let plan = if is_changed { request.compile()? } else { before };
            let merged = |param: &PlannedParam| {
                param
                    .steps
                    .iter()
                    .any(|step| matches!(step, Step::By(stage) if stage.name() == lora::Merge::NAME))
            };
            for (rule, _) in rules[first..].iter_mut().zip(plan.params()).filter(|(_, param)| merged(param)) {
                rule.push_str(", after lora");
            }
            counts.push(plan.params().iter().filter(|p| p.tied_to.is_none()).count());
            plans.push(plan);
        }
        let params: Vec<&PlannedParam> = plans.iter().flat_map(Plan::params).collect();
        if !options.allow_requantize {
            requantize::check(&params)?;
        }
        let tensors = params.iter().filter(|p| p.tied_to.is_none()).map(|p| Outgoing {
            name: p.name.clone(),
            shape: p.shape.clone(),
            scheme: Arc::clone(&p.scheme),
        });
        let mut tensors: Vec<Outgoing> = tensors.collect();
        let Carried { beside, mut made, mut left, lost } = carried.unwrap_or_default();
        let mut identity = resume::identity(checkpoint, layout, format, options);
        for file in &made {
            identity.extend(&*file.bytes());
        }
        if format == OutputFormat::Hf && !for_vllm {
            made.extend(tensors.iter().flat_map(Made::beside));
        }
        tensors.extend(made.iter().map(|m| m.outgoing.clone()));
        let draft = match (format, checkpoint.metadata()) {
            (OutputFormat::Gguf, metadata) => {
                let changes =
                    gguf::Changes::of(&params, options, own != Some(LayoutKind::Named(DialectName::Gguf)));
                let gguf = |tensors, pairs: &[(&str, checkpoint::Value<'_>)]| match options.split {
                    Some(split) => Draft::gguf_split(tensors, pairs, split),
                    None => Draft::gguf(tensors, pairs),
                };
                match (&beside, metadata) {
                    (Beside::Gguf(pairs), _) => {
                        let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.borrow()));
                        gguf(tensors, &changes.pairs(pairs))?
                    }
                    (_, Metadata::Gguf(metadata)) => gguf(tensors, &changes.pairs(metadata.iter()))?,
                    _ => gguf(tensors, &[])?,
                }
            }
            (OutputFormat::Hf | OutputFormat::Mlx, metadata) => {
                let files = match (beside, metadata) {
                    (Beside::Hf(files), _) => carry::with_dtype(*files, &params),
                    (_, Metadata::Hf(hf)) => hf.files()?,
                    _ => HfFiles::default(),
                };
                let flavour = if format == OutputFormat::Hf { Flavour::Hf } else { Flavour::Mlx };
                if layout == vllm::LAYOUT {
                    // A tensor with several scales merged into one means the same to a reader of the configuration.
                    let merged = |p: &PlannedParam| load::Codecs.by_row(&p.scheme).as_ref() == Some(&p.moved);
                    let added = |p: &PlannedParam| p.steps.iter().all(|step| matches!(step, Step::Add(_)));
                    let moved = |p: &PlannedParam| p.expr.is_constant() || added(p) || merged(p);
                    let as_source = own.and_then(LayoutKind::ecosystem) == Some(DialectName::Hf)
                        && params.iter().copied().all(moved);
                    let stages = in_stages(&counts, &mesh);
                    Draft::ranks(tensors, &stages, files, as_source, options.max_shard)?
                } else {
                    Draft::directory(tensors, files, flavour, options.max_shard)?
                }
            }
            (OutputFormat::Ctranslate2, _) => {
                let files = if let Beside::Ctranslate2(files) = beside {
                    *files
                } else {
                    Ctranslate2Files::default()
                };
                Draft::ctranslate2(tensors, files)?
            }
            (OutputFormat::Ggml, _) => {
                let said = if let Beside::Ggml(said) = beside { *said } else { OpenaiMetadata::default() };
                Draft::ggml(tensors, &said)?
            }
            (OutputFormat::Npz, _) => Draft::npz(tensors)?,
            (OutputFormat::NpyDir, metadata) => {
                // Under its own names it is a model still.
                let own = metadata.hf().filter(|hf| layout == LayoutKind::Source && hf.config().is_some());
                let files = match beside {
                    Beside::Hf(files) => Some(carry::with_dtype(*files, &params)),
                    _ => own.map(checkpoint::HfMetadata::files).transpose()?,
                };
                let draft = Draft::npy_dir(tensors, files)?;
                if options.zstd { draft.with_zstd() } else { draft }
            }
            (OutputFormat::Onnx, metadata) => {
                let (metadata_props, more) = carry::to_onnx(&beside, metadata);
                left.extend(more);
                Draft::onnx(tensors, metadata_props)?
            }
            (OutputFormat::Safetensors, _) => Draft::safetensors(tensors)?,
        };
        let agreement = rejoined.map(|rejoined| Agreement::of(checkpoint, &rejoined)).transpose()?;
        Ok(Conversion {
            checkpoint,
            options,
            plans,
            rules,
            names,
            made,
            left,
            lost,
            draft,
            identity,
            agreement,
        })
    }

    /// Length of what will be written, in bytes, or nearly.
    pub fn bytes(&self) -> u64 {
        self.draft.bytes()
    }

    /// The tensors that will be written, each with its scheme.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Scheme)> {
        let made = self.made.iter().map(|m| (m.outgoing.name.as_str(), &*m.outgoing.scheme));
        self.params().map(|p| (p.name.as_str(), &*p.scheme)).chain(made)
    }

    /// The parameters that will be written, tied ones left out.
    pub(crate) fn params(&self) -> impl Iterator<Item = &PlannedParam> {
        self.plans.iter().flat_map(Plan::params).filter(|p| p.tied_to.is_none())
    }

    /// The plan of the parameter called `name` alone.
    pub(crate) fn one(&self, name: &str) -> Option<Plan> {
        self.plans.iter().find_map(|plan| Some(plan.one(plan.pieces().find(name)?.0)))
    }

    /// The name by which importance knows the parameter called `name`.
    pub(crate) fn known_as<'n>(&'n self, name: &'n str) -> &'n str {
        self.names.of(name)
    }

    /// Reads, encodes and writes one parameter after the other to `output`, where nothing is before all of it is.
    /// `each` is called before each of them, and may end it. If a process that did the same was ended before, this
    /// one continues, and gives the same bytes.
    ///
    /// # Errors
    /// If something is at `output`, the disk is too small, a file cannot be read or written, or values cannot be
    /// encoded.
    pub fn run(
        self,
        output: impl Into<Output>,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<ConvertReport, Error> {
        let (report, held) = self.run_and_hold(output, pool, each)?;
        held.release()?;
        Ok(report)
    }

    /// As [`Conversion::run`], but keeps what a process needs to continue here, until the result is released: nothing is written
    /// again then.
    ///
    /// # Errors
    /// As [`Conversion::run`].
    pub fn run_and_hold(
        self,
        output: impl Into<Output>,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(ConvertReport, Held), Error> {
        self.write(&output.into(), pool, each)
    }

    fn write(
        self,
        output: &Output,
        pool: &mut Pool,
        each: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(ConvertReport, Held), Error> {
        let started = Instant::now();
        let Conversion {
            checkpoint,
            options,
            plans,
            rules,
            names,
            made,
            left,
            lost,
            draft,
            identity,
            agreement,
        } = self;
        if let Some(agreement) = agreement {
            agreement.check(pool)?;
        }
        let places = checkpoint.files().iter().map(|file| &file.location).chain([checkpoint.location()]);
        let sources = places.cloned().collect();
        let mut write =
            WriteOptions { overwrite: options.overwrite, sources, identity, ..WriteOptions::default() };
        write.sync_every = options.sync_every.unwrap_or(write.sync_every);
        // Parts on their way to a bucket take their share.
        let (limit, buffers) = (options.memory, draft.buffers(output));
        let (asked, guides) = (options, Guides::new(options, &names));
        let foreseen = |name: &str| guides.of(name, None);
        let options = load::Options {
            guide: Some(&foreseen),
            allow_overflow: options.allow_overflow,
            ..load::Options::default()
        };
        let foreseen_memory = foreseen_bytes(&plans, options, limit, buffers, pool.threads())?;
        let mut writer = draft.create_with(output.clone(), &write)?;
        let destination = writer.destination();
        let mut report =
            ConvertReport { destination, left, lost, foreseen_memory, ..ConvertReport::default() };
        // The last rank reports entries that all ranks leave out.
        if let Some(last) = plans.last() {
            report.dropped.clone_from(&last.pieces().dropped);
            report.absent.clone_from(&last.pieces().absent);
        }
        let all = || plans.iter().flat_map(|plan| plan.params().iter().enumerate().map(move |p| (plan, p)));
        let order: Vec<&str> =
            all().filter(|(_, (_, p))| p.tied_to.is_none()).map(|(_, (_, p))| p.name.as_str()).collect();
        let total = order.len();
        for ((plan, (at, param)), rule) in all().zip(rules) {
            if let Some(root) = param.tied_to {
                report.tied.push((param.name.clone(), plan.params()[root].name.clone()));
                continue;
            }
            let (name, index) = (param.name.clone(), report.tensors.len());
            let (from, to) = (Arc::clone(&param.moved), Arc::clone(&param.scheme));
            let progress = Progress { index, total, name: &name, from: &from.name, to: &to.name };
            if each(&progress).is_break() {
                let kept = writer.kept();
                return Err(Error::Interrupted { kept, done: index, total });
            }
            let mut converted = Converted::new(param, rule);
            if let Some(note) = writer.again()? {
                converted.difference = resume::difference(&note);
                report.continued += 1;
                report.tensors.push(converted);
                continue;
            }
            let feedback = match guides::feedback(asked, &names, &order[index..]) {
                Err(Error::Interrupted { .. }) => {
                    let kept = writer.kept();
                    return Err(Error::Interrupted { kept, done: index, total });
                }
                other => other?,
            };
            let guided = |name: &str| guides.of(name, feedback.as_deref());
            let options = load::Options { guide: Some(&guided), ..options };
            let one = plan.one(at);
            let scratch = match limit {
                Some(limit) => {
                    let owned = one.needs(options, pool.threads())?.owned;
                    Some(limit.saturating_sub(buffers).saturating_sub(owned))
                }
                None => None,
            };
            let loaded = one.load_with(pool, load::Options { memory: scratch, ..options });
            // Tensors that are recorded as written are those of the source as it was opened, whatever happens to it later.
            if let Err(error) = checkpoint.read_unchanged() {
                writer.abandon();
                return Err(error.into());
            }
            let loaded = loaded?;
            let slots = loaded.get(&name).map(load::Tensor::slots).unwrap_or_default();
            let cost = loaded.report();
            converted.difference = cost.differences.get(&name).copied();
            let planes: Vec<&[u8]> = slots.iter().map(Slot::bytes).collect();
            writer.tensor_with(&planes, resume::note(converted.difference))?;
            report.peak_memory = report.peak_memory.max(cost.owned_bytes + cost.scratch_peak + buffers);
            report.bytes_read += cost.bytes_read + cost.bytes_borrowed;
            report.tensors.push(converted);
        }
        for made in &made {
            if writer.again()?.is_none() {
                writer.tensor(&[&made.bytes()])?;
            }
        }
        // Tensors copied before a file changed and after it are not of one model.
        if let Err(error) = checkpoint.unchanged() {
            writer.abandon();
            return Err(error.into());
        }
        let held = writer.finish_and_hold()?;
        (report.file_bytes, report.zstd) = (held.bytes(), held.zstd());
        report.seconds = started.elapsed().as_secs_f64();
        Ok((report, held))
    }
}

/// Adds the stage that scales `target`, if one does; a norm keeps the scheme that it has in `before`.
fn scale(target: &mut Target, scaling: &Scaling, names: &Names, before: &Plan) -> bool {
    let gguf = names.of(&target.name);
    let Some(stage) = scaling.stage(gguf, names.added(target)) else { return false };
    if scaling.is_norm(gguf) {
        let own = before.find(&target.name).map(|param| Arc::clone(&param.scheme));
        target.scheme = target.scheme.take().or(own);
    }
    target.add_stage(SharedStage::new(stage));
    true
}

/// What GGUF calls the tensors that are written.
fn names(
    checkpoint: &Checkpoint,
    layout: LayoutKind,
    model: Option<&model::Model>,
    request: &Request,
    options: &ConvertOptions<'_>,
) -> Result<Names, Error> {
    let stored = layout == LayoutKind::Source;
    if layout == LayoutKind::Named(DialectName::Gguf) || (stored && checkpoint.metadata().gguf().is_some()) {
        return Ok(Names::default());
    }
    let described;
    let model = match model {
        Some(model) => model,
        None => {
            described = describe(checkpoint)?;
            &described
        }
    };
    let canonical = Names::canonical(checkpoint, model, &options.adapter)?;
    if stored {
        canonical.of_entries(checkpoint, model, &options.adapter)
    } else {
        Ok(canonical.of_targets(request))
    }
}

/// Returns the most bytes that converting a parameter takes beside `buffers`, and these: within `limit`, or with as many as are
/// of use.
fn foreseen_bytes(
    plans: &[Plan],
    options: load::Options<'_>,
    limit: Option<u64>,
    buffers: u64,
    threads: usize,
) -> Result<u64, Error> {
    let (mut least, mut most): (Option<(u64, &str)>, u64) = (None, 0);
    for plan in plans {
        for (at, param) in plan.params().iter().enumerate().filter(|(_, p)| p.tied_to.is_none()) {
            let needs = plan.one(at).needs(options, threads)?;
            let wanted = needs.owned.saturating_add(needs.least_scratch).saturating_add(buffers);
            if least.is_none_or(|(least, _)| wanted > least) {
                least = Some((wanted, &param.name));
            }
            most = most.max(needs.owned.saturating_add(needs.scratch).saturating_add(buffers));
        }
    }
    match (least, limit) {
        (Some((wanted, tensor)), Some(limit)) if wanted > limit => {
            Err(Error::Memory { tensor: tensor.to_owned(), wanted, memory: limit })
        }
        _ => Ok(most.min(limit.unwrap_or(u64::MAX))),
    }
}

/// Canonical parameters of some rank that the layout has no name for.
fn nameless(first: &Request, others: &[Request]) -> Vec<String> {
    let mut all = first.nameless.clone();
    for name in others.iter().flat_map(|request| &request.nameless) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// `counts` of ranks, stage by stage.
fn in_stages(counts: &[usize], mesh: &Mesh) -> Vec<Vec<usize>> {
    let ranks = usize::try_from(mesh.tp).unwrap_or(usize::MAX).max(1);
    counts.chunks(ranks).map(<[usize]>::to_vec).collect()
}

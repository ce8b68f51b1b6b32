//! `weighbridge plan`: how a checkpoint would be loaded, from headers alone.

mod fits;
mod ranks;

use std::io::{self, Write};

use weighbridge::engine::session_bytes;
use weighbridge::load;
use weighbridge::plan::Problems;
use weighbridge::planner;
use weighbridge::runtime::DEFAULT_CONTEXT;
use weighbridge::tensor::counted;
use weighbridge::{LayoutKind, Mesh, PlanBuilder, Pool};

use self::fits::{Cache, Fits, MOST_RANKS};
use super::inspect::{kv_cache, not_run};
use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::json;
use crate::keys::Doubts;
use crate::pages::{self, PlanPage};
use crate::style;
use crate::style::shown;

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let layout: LayoutKind = args.layout.kind().map_err(Failure::Usage)?;
    let picture = args.page.output(args.json)?;
    let checkpoint = weighbridge::open_with(&args.path, &args.open.looking())?;
    // As stored, the tensors of any architecture can be planned.
    let model = (layout != LayoutKind::Source).then(|| weighbridge::describe(&checkpoint)).transpose()?;
    let adapter = args.adapter.adapter()?;
    let loras = args.lora.read()?;
    let doubts = |model| Doubts::of(&checkpoint, model)?.and(&loras).unless(args.strict.strict);
    let doubts = model.as_ref().map(doubts).transpose()?;
    let builder = |mesh: Mesh, rank: u64| {
        let builder = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).rank(rank);
        let builder =
            builder.adapter(adapter.clone()).encoding(args.encoding.encoding()).loras(loras.clone());
        match &model {
            Some(model) => builder.model(model),
            None => builder,
        }
    };
    let mesh = args.share.mesh();
    let with_tp = |failure| with_tp(failure, &mesh, |mesh| builder(mesh, 0).build().is_ok());
    let threads = args.threads.map_or_else(Pool::available, usize::from);
    if args.all_ranks || args.verify {
        let ranks = builder(mesh, 0).ranks()?;
        return ranks::run(args, &checkpoint, (layout, &ranks), threads, picture.as_ref()).map_err(with_tp);
    }
    let planned = builder(mesh, args.share.rank).build().map_err(|error| with_tp(error.into()))?;
    let entries = checkpoint.entries();
    if let Some(name) = &args.explain {
        let text = planned
            .explain(name)
            .map_err(|e| Failure::Usage(Problems::from(*e).diagnostics().to_string()))?;
        return Ok(writeln!(io::stdout().lock(), "{}", text.trim_end())?);
    }
    let summary = planned.summary();
    let options = load::Options { owned: args.owned, ..load::Options::default() };
    let needs = planned.needs(options, threads)?;
    let share = |mesh: Mesh| builder(mesh, 0).build();
    let run = model.as_ref().filter(|_| matches!(layout, LayoutKind::Packed { .. } | LayoutKind::InPlace));
    let architecture = run.and_then(|model| model.architecture().ok().filter(|a| a.decoder().is_some()));
    let positions = args.ctx.map(u64::from);
    let cache = architecture.as_ref().map(|architecture| {
        let positions = positions.unwrap_or(architecture.context().min(DEFAULT_CONTEXT));
        (positions, move |ranks| {
            session_bytes(architecture, args.kv.kind(), positions, ranks).unwrap_or(u64::MAX)
        })
    });
    let cache = cache.as_ref().map(|(positions, bytes)| Cache { positions: *positions, bytes });
    let look = |memory| Fits::look(memory, &planned, (args.owned, threads), &mesh, cache.as_ref(), share);
    let memory = args.memory.map(look).transpose()?;
    let found = if memory.as_ref().is_none_or(Fits::any) { Ok(()) } else { Err(Failure::Found) };
    if let Some(picture) = picture {
        picture.write(&pages::plan_svg(&PlanPage {
            name: &checkpoint.location().file_name(),
            what: format!("{} layout{}", layout.name(), place(args)),
            plan: &planned,
            summary: &summary,
            needs: &needs,
            borrowed: &planned.borrowed(options)?,
        }))?;
        if picture.is_stdout() {
            return found;
        }
    }
    if args.json {
        json::print(&json::Plan {
            path: shown(&args.path),
            family: model.as_ref().map(|m| m.family.name()),
            dialect: model.as_ref().map(|m| m.dialect.to_string()),
            layout: layout.name(),
            mesh: json::Mesh::of(&mesh, args.share.rank),
            digest: planned.digest().to_string(),
            bytes_needed: summary.needed_bytes,
            bytes_read: needs.read,
            bytes_from_map: needs.lent,
            bytes_borrowable: summary.borrowable_bytes,
            bytes_borrowed: needs.borrowed,
            bytes_copied: needs.copied,
            bytes_decoded: needs.decoded,
            bytes_encoded: needs.encoded,
            bytes_owned: needs.owned,
            bytes_in_slots: summary.slot_bytes,
            reads: needs.reads.count,
            read_bytes: json::Sizes::of(&needs),
            threads: needs.threads,
            scratch_bytes: needs.scratch,
            scratch_bytes_least: needs.least_scratch,
            memory: memory.as_ref().map(Fits::json),
            dropped: planned.pieces().dropped.iter().map(json::Dropped::from).collect(),
            absent: planned.pieces().absent.iter().map(json::Absent::from).collect(),
            keys: doubts.as_ref().map(Doubts::keys),
            params: json::Param::all(&planned),
        })?;
        return found;
    }
    let mut out = io::stdout().lock();
    let matches =
        model.as_ref().map_or_else(|| "as stored".to_owned(), |m| format!("matches {}", m.family.name()));
    writeln!(out, "{}", style::heading(&format!("{} {matches}", shown(&args.path))))?;
    writeln!(
        out,
        "  {} → {}, {} layout{}",
        counted(entries.len(), "tensor"),
        counted(planned.params().len(), "parameter"),
        layout.name(),
        place(args)
    )?;
    let costs = summary.to_string() + "\n" + &needs.to_string();
    let fits = memory.map_or_else(Vec::new, |fits| fits.lines());
    let cache = run.and_then(kv_cache);
    for line in costs.lines().chain(cache.as_deref()).chain(fits.iter().map(String::as_str)) {
        writeln!(out, "  {line}")?;
    }
    for group in weighbridge::plan::dropped(&planned.pieces().dropped) {
        writeln!(out, "  dropped: {group}")?;
    }
    for absent in &planned.pieces().absent {
        let (param, entries) = (&absent.param, absent.entries.join(", "));
        writeln!(out, "  missing, allowed by `{}`: {param}, made from {entries}", absent.pattern)?;
    }
    for line in doubts.iter().flat_map(Doubts::lines) {
        writeln!(out, "  {line}")?;
    }
    if let Some(line) = model.as_ref().filter(|_| layout.runs()).and_then(not_run) {
        writeln!(out, "  {line}")?;
    }
    if !planned.nameless().is_empty() {
        writeln!(out, "  without a name in {}: {}", layout.name(), planned.nameless().join(", "))?;
    }
    found
}

/// Adds the largest smaller `--tp` that works to a refusal to split the model.
fn with_tp(failure: Failure, mesh: &Mesh, splits: impl Fn(Mesh) -> bool) -> Failure {
    let Failure::Model(weighbridge::Error::Plan(error @ planner::Error::Undivided { .. })) = &failure else {
        return failure;
    };
    match (2..mesh.tp.min(MOST_RANKS)).rev().find(|tp| splits(Mesh { tp: *tp, ..*mesh })) {
        Some(tp) => Failure::Usage(format!("{error}\nhint: `--tp {tp}` works")),
        None => failure,
    }
}

/// `, rank 3 of tp 8`, if there are several.
fn place(args: &PlanArgs) -> String {
    let mesh = args.share.mesh();
    if mesh.is_many() { format!(", rank {} of {}", args.share.rank, shape(args)) } else { String::new() }
}

/// `tp 8 × pp 2`: the dimensions that there are.
fn shape(args: &PlanArgs) -> String {
    let mesh = args.share.mesh();
    let many = [("tp", mesh.tp), ("pp", mesh.pp), ("ep", mesh.ep)].into_iter().filter(|(_, n)| *n != 1);
    let text: Vec<String> = many.map(|(name, n)| format!("{name} {n}")).collect();
    if text.is_empty() { "one rank".to_owned() } else { text.join(" × ") }
}

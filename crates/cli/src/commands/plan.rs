//! `weighbridge plan`: how a checkpoint would be loaded, from headers alone.

use std::io::{self, Write};

use serde_json::json;
use weighbridge::engine::session_bytes;
use weighbridge::load::{self, Bytes, Needs};
use weighbridge::plan::{Summary, Whole};
use weighbridge::planner::Ranks;
use weighbridge::runtime::DEFAULT_CONTEXT;
use weighbridge::{Checkpoint, LayoutKind, Mesh, Model, Plan, PlanBuilder, Pool};

use super::fits::{Cache, Fits};
use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::keys::Doubts;
use crate::style;

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let layout: LayoutKind = args.layout.kind().map_err(Failure::Usage)?;
    let checkpoint = weighbridge::open_with(&args.path, &args.open.options())?;
    // As stored, the tensors of any architecture can be planned.
    let model = (layout != LayoutKind::Source).then(|| weighbridge::describe(&checkpoint)).transpose()?;
    let doubts =
        model.as_ref().map(|model| Doubts::of(&checkpoint, model)?.unless(args.strict.strict)).transpose()?;
    let adapter = args.adapter.adapter()?;
    let builder = |mesh: Mesh, rank: u64| {
        let builder = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).rank(rank);
        let builder = builder.adapter(adapter.clone()).encoding(args.encoding.encoding());
        match &model {
            Some(model) => builder.model(model),
            None => builder,
        }
    };
    let mesh = args.share.mesh();
    let threads = args.threads.map_or_else(Pool::available, usize::from);
    let mut out = io::stdout().lock();
    if args.all_ranks || args.verify {
        return all_ranks(args, &checkpoint, &builder(mesh, 0).ranks()?, threads, &mut out);
    }
    let planned = builder(mesh, args.share.rank).build()?;
    let entries = checkpoint.entries();
    if let Some(name) = &args.explain {
        let text = planned.explain(name).map_err(|e| Failure::Usage(e.to_string()))?;
        writeln!(out, "{}", text.trim_end())?;
        return Ok(());
    }
    let summary = planned.summary();
    let options = load::Options { owned: args.owned, ..load::Options::default() };
    let needs = planned.needs(options, threads)?;
    let share = |mesh: Mesh| builder(mesh, 0).build();
    let run = model.as_ref().filter(|_| matches!(layout, LayoutKind::Packed { .. } | LayoutKind::InPlace));
    let architecture = run.and_then(|model| model.architecture().ok());
    let positions = args.ctx.map(u64::from);
    let cache = architecture.as_ref().map(|architecture| {
        let positions = positions.unwrap_or(architecture.decoder.context.min(DEFAULT_CONTEXT));
        (positions, move |ranks| session_bytes(architecture, positions, ranks).unwrap_or(u64::MAX))
    });
    let cache = cache.as_ref().map(|(positions, bytes)| Cache { positions: *positions, bytes });
    let look = |memory| Fits::look(memory, &planned, (args.owned, threads), &mesh, cache.as_ref(), share);
    let memory = args.memory.map(look).transpose()?;
    let found = if memory.as_ref().is_none_or(Fits::any) { Ok(()) } else { Err(Failure::Found) };
    if args.json {
        let mut facts = facts(args, layout, &planned, model.as_ref(), &summary, &needs);
        facts["keys"] = doubts.as_ref().map_or(serde_json::Value::Null, Doubts::json);
        if let Some(fits) = memory {
            facts["memory"] = fits.json();
        }
        writeln!(out, "{facts:#}")?;
        return found;
    }
    let fits = model.as_ref().map_or_else(|| "as stored".to_owned(), |m| format!("fits {}", m.family.name()));
    writeln!(out, "{}", style::heading(&format!("{} {fits}", args.path.display())))?;
    writeln!(
        out,
        "  {} tensors → {} parameters, {} layout{}",
        entries.len(),
        planned.params().len(),
        layout.name(),
        place(args)
    )?;
    let costs = summary.to_string() + "\n" + &needs.to_string();
    let fits = memory.map_or_else(Vec::new, |fits| fits.lines());
    for line in costs.lines().chain(fits.iter().map(String::as_str)) {
        writeln!(out, "  {line}")?;
    }
    for group in weighbridge::plan::dropped(&planned.pieces().dropped) {
        writeln!(out, "  dropped: {group}")?;
    }
    for absent in &planned.pieces().absent {
        let (param, entries) = (&absent.param, absent.entries.join(", "));
        writeln!(out, "  absent, as `{}` lets it be: {param}, made of {entries}", absent.pattern)?;
    }
    for line in doubts.iter().flat_map(Doubts::lines) {
        writeln!(out, "  {line}")?;
    }
    if !planned.nameless().is_empty() {
        writeln!(out, "  no place in {}: {}", layout.name(), planned.nameless().join(", "))?;
    }
    found
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

fn facts(
    args: &PlanArgs,
    layout: LayoutKind,
    planned: &Plan,
    model: Option<&Model>,
    summary: &Summary,
    needs: &Needs,
) -> serde_json::Value {
    let params: Vec<_> = planned
        .params()
        .iter()
        .map(|p| {
            json!({
                "name": p.name,
                "shape": p.shape.to_vec(),
                "scheme": p.scheme.name,
                "moved_as": p.moved.name,
                "pieces": p.planes.iter().map(|plane| plane.copy.len()).sum::<usize>(),
                "borrowable": p.borrowable(),
                "tied_to": p.tied_to.map(|i| planned.params()[i].name.clone()),
            })
        })
        .collect();
    let mut facts = json!({
        "path": args.path.display().to_string(),
        "family": model.map(|m| m.family.name()),
        "dialect": model.map(|m| m.dialect.to_string()),
        "layout": layout.name(),
        "digest": planned.digest().to_string(),
        "bytes_needed": summary.needed_bytes,
        "bytes_read": needs.read,
        "bytes_from_map": needs.lent,
        "bytes_borrowable": summary.borrowable_bytes,
        "bytes_borrowed": needs.borrowed,
        "bytes_copied": needs.copied,
        "bytes_decoded": needs.decoded,
        "bytes_encoded": needs.encoded,
        "bytes_owned": needs.owned,
        "bytes_in_slots": summary.slot_bytes,
        "reads": needs.reads.count,
        "read_bytes": {"smallest": needs.reads.smallest, "median": needs.reads.median, "largest": needs.reads.largest},
        "threads": needs.threads,
        "scratch_bytes": needs.scratch,
        "scratch_bytes_least": needs.least_scratch,
        "dropped": planned.pieces().dropped.iter().map(|(e, w)| json!({"entry": e, "why": w})).collect::<Vec<_>>(),
        "absent": planned.pieces().absent.iter().map(|a| json!({"param": a.param, "entries": a.entries, "pattern": a.pattern})).collect::<Vec<_>>(),
        "params": params,
    });
    let mesh = args.share.mesh();
    if mesh.is_many() {
        facts["mesh"] = json!({"tp": mesh.tp, "pp": mesh.pp, "ep": mesh.ep, "rank": args.share.rank});
    }
    facts
}

/// What one rank reads and holds.
struct Line {
    rank: u64,
    params: usize,
    slots: u64,
    needs: Needs,
    needed: u64,
    padding: u64,
}

impl Line {
    /// Bytes that the rank takes of the files: what it borrows is taken when it is used first.
    fn taken(&self) -> u64 {
        self.needs.read + self.needs.borrowed
    }
}

/// Every rank, one line each, and what they have in common.
fn all_ranks(
    args: &PlanArgs,
    checkpoint: &Checkpoint,
    ranks: &Ranks,
    threads: usize,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (mut whole, mut lines) = (Whole::default(), vec![]);
    let options = load::Options { owned: args.owned, ..load::Options::default() };
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank)?;
        whole.add(plan.pieces());
        let summary = plan.summary();
        lines.push(Line {
            rank,
            params: summary.params,
            slots: summary.slot_bytes,
            needs: plan.needs(options, threads)?,
            needed: summary.needed_bytes,
            padding: summary.zero_bytes,
        });
    }
    let entries = checkpoint.entries();
    let stored: u64 = entries.iter().map(weighbridge::TensorEntry::byte_len).sum();
    let replicated = whole.replicated(entries);
    let untaken = if args.verify { whole.untaken(entries) } else { vec![] };
    let read: u64 = lines.iter().map(Line::taken).sum();
    let needed: u64 = lines.iter().map(|l| l.needed).sum();
    let more: u64 = replicated.iter().map(|r| r.bytes).sum();
    if args.json {
        let line = |l: &Line| {
            let at = ranks.mesh().rank(l.rank);
            json!({"rank": l.rank, "tp": at.tp, "pp": at.pp, "ep": at.ep, "params": l.params, "bytes_in_slots": l.slots,
                "bytes_needed": l.needed, "bytes_read": l.needs.read, "bytes_from_map": l.needs.lent,
                "bytes_borrowed": l.needs.borrowed, "bytes_owned": l.needs.owned, "reads": l.needs.reads.count,
                "scratch_bytes": l.needs.scratch, "bytes_padding": l.padding})
        };
        let group = |r: &weighbridge::plan::Replicated| json!({"pattern": r.pattern, "entries": r.entries, "bytes": r.bytes});
        let mut facts = json!({
            "ranks": lines.iter().map(line).collect::<Vec<_>>(),
            "bytes_stored": stored,
            "bytes_needed": needed,
            "bytes_taken": read,
            "replicated": replicated.iter().map(group).collect::<Vec<_>>(),
        });
        if args.verify {
            facts["untaken"] =
                untaken.iter().map(|u| json!({"entry": u.entry, "plane": u.plane, "byte": u.byte})).collect();
        }
        writeln!(out, "{facts:#}")?;
    } else {
        writeln!(out, "{}", style::heading(&format!("{} on {}", args.path.display(), shape(args))))?;
        if args.all_ranks {
            write!(out, "{}", table(&lines, ranks))?;
        }
        let over = |n: u64| 100.0 * (n as f64 / stored.max(1) as f64 - 1.0);
        writeln!(
            out,
            "  all need {} of {} stored ({:+.1} %), {} of it more than once; {} are taken ({:+.1} %)",
            Bytes(needed),
            Bytes(stored),
            over(needed),
            Bytes(more),
            Bytes(read),
            over(read)
        )?;
        for group in replicated.iter().take(REPLICATED) {
            writeln!(out, "    {} {} ({} entries)", Bytes(group.bytes), group.pattern, group.entries)?;
        }
        if replicated.len() > REPLICATED {
            writeln!(out, "    … and {} more patterns", replicated.len() - REPLICATED)?;
        }
    }
    if !untaken.is_empty() {
        let one = |u: &weighbridge::plan::Untaken| match u.byte {
            Some(byte) => format!("\n  `{}`: byte {byte} of the {} of its {}", u.entry, u.bytes, u.plane),
            None => format!("\n  `{}`: shares of its {} overlap too finely to tell", u.entry, u.plane),
        };
        let list: String = untaken.iter().take(40).map(one).collect();
        return Err(Failure::Other(format!(
            "{} planes are not used whole by the ranks:{list}",
            untaken.len()
        )));
    }
    if args.verify && !args.json {
        let (n, ranks) = (entries.len(), ranks.count());
        writeln!(
            out,
            "  proved: {ranks} ranks use every byte of {n} tensors, and every byte of their slots is written once"
        )?;
    }
    Ok(())
}

/// Patterns that are listed.
const REPLICATED: usize = 8;

fn table(lines: &[Line], ranks: &Ranks) -> String {
    let heading =
        ["rank", "tp", "pp", "ep", "parameters", "slots", "needs", "takes", "reads", "buffers", "padding"];
    let row = |l: &Line| {
        let at = ranks.mesh().rank(l.rank);
        let numbers = [l.rank, at.tp, at.pp, at.ep, l.params as u64].map(|n| n.to_string());
        let sizes = [l.slots, l.needed, l.taken()].map(|n| Bytes(n).to_string());
        let rest = [
            l.needs.reads.count.to_string(),
            Bytes(l.needs.scratch).to_string(),
            Bytes(l.padding).to_string(),
        ];
        numbers.into_iter().chain(sizes).chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    style::table(&heading, &rows, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
}

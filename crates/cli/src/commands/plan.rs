//! `weighbridge plan`: how a checkpoint would be loaded, from headers alone.

use std::io::Write;

use serde_json::json;
use weighbridge::LayoutKind;

use crate::Failure;
use crate::args::PlanArgs;
use crate::style;

/// Ranges of a file at most this many bytes apart are counted as one read.
const READ_GAP: u64 = 4096;

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let layout: LayoutKind = args.layout.kind().map_err(Failure::Usage)?;
    let checkpoint = weighbridge::open_with(&args.path, &args.io.open())?;
    // As stored, the tensors of any architecture can be planned.
    let model = (layout != LayoutKind::Source).then(|| weighbridge::describe(&checkpoint)).transpose()?;
    let planned = match &model {
        Some(model) => weighbridge::plan(&checkpoint, model, layout)?,
        None => weighbridge::plan_as_stored(&checkpoint)?,
    };
    let entries = checkpoint.entries();
    let mut out = std::io::stdout().lock();
    if let Some(name) = &args.explain {
        let text =
            weighbridge::explain(&planned.plan, entries, name).map_err(|e| Failure::Usage(e.to_string()))?;
        writeln!(out, "{}", text.trim_end())?;
        return Ok(());
    }
    let summary = weighbridge::summary(&planned.plan, entries, READ_GAP);
    if args.json {
        let params: Vec<_> = planned
            .plan
            .params
            .iter()
            .map(|p| {
                json!({
                    "name": p.name,
                    "shape": p.shape.to_vec(),
                    "scheme": p.scheme.name,
                    "moved_as": p.moved.name,
                    "pieces": p.planes.iter().map(|plane| plane.copy.len()).sum::<usize>(),
                    "borrowable": p.borrowable(),
                    "tied_to": p.tied_to.map(|i| planned.plan.params[i].name.clone()),
                })
            })
            .collect();
        let facts = json!({
            "path": args.path.display().to_string(),
            "family": model.as_ref().map(|m| m.family.name()),
            "dialect": model.as_ref().map(|m| m.dialect.to_string()),
            "layout": layout.name(),
            "bytes_read": summary.read_bytes,
            "bytes_borrowable": summary.borrowable_bytes,
            "bytes_copied": summary.copied_bytes,
            "bytes_in_slots": summary.slot_bytes,
            "reads": summary.reads,
            "dropped": planned.plan.dropped.iter().map(|(e, w)| json!({"entry": e, "why": w})).collect::<Vec<_>>(),
            "params": params,
        });
        writeln!(out, "{facts:#}")?;
        return Ok(());
    }
    let fits = model.map_or_else(|| "as stored".to_owned(), |m| format!("fits {}", m.family.name()));
    writeln!(out, "{}", style::heading(&format!("{} {fits}", args.path.display())))?;
    writeln!(
        out,
        "  {} tensors → {} parameters, {} layout",
        entries.len(),
        planned.plan.params.len(),
        layout.name()
    )?;
    for line in summary.to_string().lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

//! `weighbridge inspect`: what a checkpoint holds, from headers alone.

use std::collections::BTreeMap;
use std::io::Write;

use weighbridge::checkpoint::Ignored;
use weighbridge::engine::{KvKind, session_bytes};
use weighbridge::model::Architecture;
use weighbridge::plan::Resolved;
use weighbridge::tensor::Pattern;
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Checkpoint, Model, TensorEntry, planner};

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::json;
use crate::keys::Doubts;
use crate::pages::{self, InspectPage};
use crate::style;

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let page = args.page.output(args.json)?;
    let checkpoint = weighbridge::open_with(&args.path, &args.open.looking())?;
    // A file of an unknown family can still be looked at.
    let model = weighbridge::describe(&checkpoint);
    let doubts = match &model {
        Ok(model) => Some(Doubts::of(&checkpoint, model)?.unless(args.strict.strict)?),
        // Keys of a configuration that is wrong are not followed, of a model that nobody knows not known.
        Err(_) if args.strict.strict => return Err(model.err().map_or(Failure::Found, Failure::from)),
        Err(_) => None,
    };
    if let Some(page) = page {
        page.write(&pages::inspect_html(&shown(&checkpoint, &model, doubts.as_ref())))?;
        if page.is_stdout() {
            return Ok(());
        }
    }
    if args.json {
        let model = model.as_ref().map(|model| (model, fit(&checkpoint, model)));
        let document = json::Inspect::of(&checkpoint, totals(&checkpoint), model, doubts.as_ref());
        return Ok(json::print(&document)?);
    }
    let text = text(&checkpoint, &model, doubts.as_ref(), args.tensors);
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// What a page shows of a checkpoint.
pub(super) fn shown<'a>(
    checkpoint: &'a Checkpoint,
    model: &'a Result<Model, planner::Error>,
    doubts: Option<&Doubts>,
) -> InspectPage<'a> {
    InspectPage {
        checkpoint,
        facts: facts(checkpoint, model),
        model: model.as_ref().ok(),
        groups: groups(checkpoint.entries()),
        doubts: doubts.map(Doubts::lines).unwrap_or_default(),
        ties: checkpoint.ties().iter().map(tied).collect(),
        ignored: checkpoint.ignored().iter().map(ignored).collect(),
    }
}

/// Elements and bytes of all tensors.
fn totals(checkpoint: &Checkpoint) -> (u64, u64) {
    let elements = checkpoint.entries().iter().filter_map(|e| e.shape.elements());
    (elements.sum(), checkpoint.entries().iter().map(TensorEntry::byte_len).sum())
}

/// Checks the entries against the model. Returns the canonical parameters and the entries that are left.
fn fit(checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, planner::Error> {
    weighbridge::planner::resolve(checkpoint, model)
}

/// The size of the KV cache, if the model runs.
pub(super) fn kv_cache(model: &Model) -> Option<String> {
    let architecture = model.architecture().ok()?;
    let context = architecture.decoder()?.context;
    let all = |kind| kv_bytes(&architecture, kind, context).map(Bytes);
    let always = match kv_bytes(&architecture, KvKind::F16, 0)? {
        0 => String::new(),
        constant => format!(", {} of it however many they are", Bytes(constant)),
    };
    Some(format!(
        "KV cache: {} for 1,000 positions{always}; for all {} {}, in int8 {}, in int4 {}",
        Bytes(kv_bytes(&architecture, KvKind::F16, 1000)?),
        context,
        all(KvKind::F16)?,
        all(KvKind::Int8)?,
        all(KvKind::Int4)?
    ))
}

/// Bytes of the keys and values of some positions.
pub(crate) fn kv_bytes(architecture: &Architecture, kind: KvKind, positions: u64) -> Option<u64> {
    session_bytes(architecture, kind, positions, 1)
}

/// That `run` refuses the model, and why, if it does.
pub(super) fn not_run(model: &Model) -> Option<String> {
    let why = model.architecture().err()?.why;
    Some(format!("`run` does not support it: {why}"))
}

/// Lines on the whole: format, sizes, and whether it matches its model.
fn facts(checkpoint: &Checkpoint, model: &Result<Model, planner::Error>) -> Vec<String> {
    let (elements, bytes) = totals(checkpoint);
    let bits = bytes as f64 * 8.0 / elements.max(1) as f64;
    let format = match checkpoint.metadata().gguf() {
        Some(gguf) => {
            let order = if gguf.big_endian() { " big-endian" } else { "" };
            format!("{} v{}{order}", checkpoint.format(), gguf.version())
        }
        None => checkpoint.format().to_string(),
    };
    let files = match checkpoint.files().len() {
        0 | 1 => String::new(),
        n => format!(" in {n} files"),
    };
    let mut lines = vec![format!(
        "{format}, {}{files}, {} parameters, {} ({bits:.2} bits a weight)",
        counted(checkpoint.entries().len(), "tensor"),
        count(elements),
        Bytes(bytes),
    )];
    match model {
        Ok(model) => {
            let family = model.family.name();
            match fit(checkpoint, model) {
                Ok(Resolved { params, dropped, .. }) => {
                    let used = checkpoint.entries().len().saturating_sub(dropped.len());
                    let all = if used == 1 { "" } else { "all " };
                    let tied = match params.iter().filter(|param| param.tied_to.is_some()).count() {
                        0 => String::new(),
                        n => format!(", {} tied", counted(n, "parameter")),
                    };
                    lines.push(format!("matches `{family}`: {all}{} found{tied}", counted(used, "tensor")));
                    let groups = weighbridge::plan::dropped(&dropped);
                    lines.extend(groups.iter().map(|group| format!("not needed: {group}")));
                }
                Err(planner::Error::NoTensors { .. }) => lines.push("holds no tensors".to_owned()),
                Err(_) => lines.push(format!("does not match `{family}`: `weighbridge plan` says why")),
            }
            lines.extend(not_run(model));
            lines.extend(kv_cache(model));
        }
        Err(error) => {
            let message = format!("cannot be run: {}", error.diagnostics());
            lines.extend(message.lines().map(str::to_owned));
            if error.is_unknown_model() {
                lines.push(format!("hint: {}", crate::failure::UNKNOWN));
            }
        }
    }
    lines
}

fn text(
    checkpoint: &Checkpoint,
    model: &Result<Model, planner::Error>,
    doubts: Option<&Doubts>,
    every: bool,
) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "{}", style::heading(&checkpoint.location().to_string()));
    for line in facts(checkpoint, model) {
        let _ = writeln!(out, "  {line}");
    }
    if let Ok(model) = model {
        let _ = writeln!(out, "\n{}", style::heading("configuration"));
        let rows: Vec<Vec<String>> = model
            .fields()
            .into_iter()
            .map(|(name, value, origin)| vec![name.to_owned(), value, style::faint(&origin.to_string())])
            .collect();
        out.push_str(&style::table(&[], &rows, &[]));
    }
    let _ = writeln!(out, "\n{}", style::heading("tensors"));
    let row = |n: usize, name: &str, e: &TensorEntry| {
        vec![
            if n == 1 { String::new() } else { format!("{n} ×") },
            name.to_owned(),
            e.shape.to_string(),
            e.scheme.name.to_string(),
            Bytes(e.byte_len() * n as u64).to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = if every {
        checkpoint.entries().iter().map(|e| row(1, &e.name, e)).collect()
    } else {
        groups(checkpoint.entries()).into_iter().map(|(name, n, e)| row(n, &name, e)).collect()
    };
    out.push_str(&style::table(&[], &rows, &[0, 4]));
    let lines = doubts.map(Doubts::lines).unwrap_or_default();
    list(&mut out, "keys that are unknown or not followed", &lines, Clone::clone);
    list(&mut out, "one tensor under several names", &checkpoint.ties(), tied);
    list(&mut out, "ignored", checkpoint.ignored(), ignored);
    out
}

fn tied(tie: &Vec<&TensorEntry>) -> String {
    tie.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(" = ")
}

fn ignored(object: &Ignored) -> String {
    let name = if object.name.is_empty() { "the whole" } else { &object.name };
    let inside =
        if object.tensors > 0 { format!(", {}", counted(object.tensors, "tensor")) } else { String::new() };
    format!("{name}: {}{inside}", object.class)
}

/// A heading and a line for each, a few of them; nothing for none.
fn list<T>(out: &mut String, heading: &str, items: &[T], line: impl Fn(&T) -> String) {
    use std::fmt::Write;
    const SHOWN: usize = 20;
    if items.is_empty() {
        return;
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "\n{}", style::heading(heading));
    for item in items.iter().take(SHOWN) {
        let _ = writeln!(out, "  {}", line(item));
    }
    if items.len() > SHOWN {
        let _ = writeln!(out, "  and {} more", items.len() - SHOWN);
    }
}

/// Tensors alike but for numbers in their names: pattern, how many, one of them. In file order.
fn groups(entries: &[TensorEntry]) -> Vec<(String, usize, &TensorEntry)> {
    let mut seen: BTreeMap<(String, String, &str), usize> = BTreeMap::new();
    let mut groups: Vec<(String, usize, &TensorEntry)> = Vec::new();
    for e in entries {
        let pattern = Pattern::of(&e.name).to_string();
        let key = (pattern.clone(), e.shape.to_string(), e.scheme.name.as_ref());
        match seen.get(&key) {
            Some(i) => groups[*i].1 += 1,
            None => {
                seen.insert(key, groups.len());
                groups.push((pattern, 1, e));
            }
        }
    }
    for group in &mut groups {
        if group.1 == 1 {
            group.0.clone_from(&group.2.name);
        }
    }
    groups
}

/// A count for people: `134.5M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.2}B", n as f64 / 1e9),
    }
}

//! `weighbridge inspect`: what a checkpoint holds, from headers alone.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use weighbridge::load::Bytes;
use weighbridge::plan::Resolved;
use weighbridge::tensor::Pattern;
use weighbridge::{Checkpoint, Model, TensorEntry, planner};

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::keys::Doubts;
use crate::style;

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let checkpoint = weighbridge::open_with(&args.path, &args.open.options())?;
    // A file of an unknown family can still be looked at.
    let model = weighbridge::describe(&checkpoint);
    let doubts = match &model {
        Ok(model) => Some(Doubts::of(&checkpoint, model)?.unless(args.strict.strict)?),
        Err(_) => None,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(
            &mut out,
            &Facts { checkpoint: &checkpoint, facts: facts(&checkpoint, &model, doubts.as_ref()) },
        )
        .map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&checkpoint, &model, doubts.as_ref(), args.tensors).as_bytes())?;
    }
    Ok(out.flush()?)
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

fn text(
    checkpoint: &Checkpoint,
    model: &Result<Model, planner::Error>,
    doubts: Option<&Doubts>,
    every: bool,
) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let (elements, bytes) = totals(checkpoint);
    let bits = bytes as f64 * 8.0 / elements.max(1) as f64;
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "{}", style::heading(&checkpoint.location().to_string()));
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
    let _ = writeln!(
        out,
        "  {format}, {} tensors{files}, {} parameters, {} ({bits:.2} bits a weight)",
        checkpoint.entries().len(),
        count(elements),
        Bytes(bytes),
    );
    match model {
        Ok(model) => {
            let family = model.family.name();
            match fit(checkpoint, model) {
                Ok(Resolved { params, dropped, .. }) => {
                    let _ = writeln!(out, "  fits `{family}`: all {} parameters are there", params.len());
                    for group in weighbridge::plan::dropped(&dropped) {
                        let _ = writeln!(out, "  not needed: {group}");
                    }
                }
                Err(_) => {
                    let _ = writeln!(out, "  does not fit `{family}`: `weighbridge plan` says why");
                }
            }
            let _ = writeln!(out, "\n{}", style::heading("configuration"));
            let rows: Vec<Vec<String>> = model
                .fields()
                .into_iter()
                .map(|(name, value, origin)| vec![name.to_owned(), value, style::faint(&origin.to_string())])
                .collect();
            out.push_str(&style::table(&[], &rows, &[]));
        }
        Err(error) => {
            let message = error.diagnostics().to_string();
            let _ = writeln!(out, "  cannot be run: {}", message.lines().collect::<Vec<_>>().join("\n  "));
            if error.is_unknown_model() {
                let _ = writeln!(out, "  hint: {}", crate::failure::UNKNOWN);
            }
        }
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
    list(&mut out, "keys that are not known or not followed", &lines, Clone::clone);
    list(&mut out, "one tensor under several names", &checkpoint.ties(), |tie| {
        tie.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(" = ")
    });
    list(&mut out, "ignored", checkpoint.ignored(), |object| {
        let name = if object.name.is_empty() { "the whole" } else { &object.name };
        let inside = if object.tensors > 0 { format!(", {} tensors", object.tensors) } else { String::new() };
        format!("{name}: {}{inside}", object.class)
    });
    out
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

/// What `--json` prints: facts, then tensors, each made when it is written, since there may be very many.
struct Facts<'a> {
    checkpoint: &'a Checkpoint,
    facts: Map<String, Value>,
}

impl Serialize for Facts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.facts {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry("tensors", &Tensors(self.checkpoint))?;
        map.end()
    }
}

struct Tensors<'a>(&'a Checkpoint);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.entries().iter().map(|entry| tensor(self.0, entry)))
    }
}

fn tensor(checkpoint: &Checkpoint, e: &TensorEntry) -> Value {
    let planes = e.planes.iter().zip(e.scheme.planes.iter()).map(|(data, spec)| {
        json!({
            "role": spec.role,
            "file": checkpoint.file(data.file).location.to_string(),
            "offset": data.bytes.start,
            "bytes": data.bytes.end - data.bytes.start,
        })
    });
    json!({
        "name": e.name,
        "shape": e.shape.to_vec(),
        "encoding": e.scheme.name,
        "bytes": e.byte_len(),
        "planes": planes.collect::<Vec<_>>(),
        "strides": e.strides,
    })
}

fn facts(
    checkpoint: &Checkpoint,
    model: &Result<Model, planner::Error>,
    doubts: Option<&Doubts>,
) -> Map<String, Value> {
    let (elements, bytes) = totals(checkpoint);
    let metadata: Map<String, Value> = checkpoint
        .metadata()
        .gguf()
        .into_iter()
        .flat_map(|g| g.iter().map(|(k, v)| (k.to_owned(), json!(v.to_string()))))
        .collect();
    let Value::Object(mut facts) = json!({
        "path": checkpoint.location().to_string(),
        "format": checkpoint.format().name(),
        "parameters": elements,
        "bytes": bytes,
    }) else {
        return Map::new();
    };
    let mut put = |key: &str, value: Value| {
        facts.insert(key.to_owned(), value);
    };
    match model {
        Ok(model) => {
            let config: Map<String, Value> = model
                .fields()
                .into_iter()
                .map(|(name, value, origin)| {
                    (
                        name.to_owned(),
                        json!({"value": typed(value), "from": origin.to_string().replace('`', "")}),
                    )
                })
                .collect();
            put("family", json!(model.family.name()));
            let fit = fit(checkpoint, model);
            put("fits", json!(fit.is_ok()));
            let left = fit.map_or_else(|_| vec![], |resolved| weighbridge::plan::dropped(&resolved.dropped));
            let left = left.iter().map(|d| json!({"pattern": d.pattern, "count": d.count, "why": d.why}));
            put("not_needed", json!(left.collect::<Vec<_>>()));
            put("config", json!(config));
            put("keys", doubts.map_or(Value::Null, Doubts::json));
        }
        Err(error) => put("problem", json!(error.diagnostics().to_string())),
    }
    let ties = checkpoint.ties();
    let name = |tie: &Vec<&TensorEntry>| tie.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    put("ties", json!(ties.iter().map(name).collect::<Vec<_>>()));
    let object = |o: &weighbridge::checkpoint::Ignored| json!({"name": o.name, "class": o.class, "tensors": o.tensors});
    put("ignored", json!(checkpoint.ignored().iter().map(object).collect::<Vec<_>>()));
    put("metadata", json!(metadata));
    facts
}

/// A value of the configuration: a number or a truth value where it is one.
fn typed(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text),
    }
}

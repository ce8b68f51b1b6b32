//! llama.cpp was asked about the GGUF that we write, and we read what its converter writes as llama.cpp does
//! (golden/config/judge.py).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::{Checkpoint, Error, LayoutKind, Metadata, Pool, open};

use crate::golden;
use crate::perturbed::{Family, distance, narrow, shown};

/// Largest difference allowed; llama.cpp looks gelu up in a table of f16.
const NEAR: f64 = 1e-3;
const NEAR_WITH_GELU: f64 = 5e-3;

/// One case of a family's file.
struct Judged<'a> {
    family: &'a str,
    case: &'a Value,
}

impl Judged<'_> {
    fn bound(&self) -> f64 {
        let set = self.case["set"].as_object().into_iter().flatten();
        let gelu =
            set.filter(|(key, _)| key.contains("act")).any(|(_, word)| word.to_string().contains("gelu"));
        let by_itself = [
            "gpt2",
            "gemma2",
            "gemma3",
            "bert",
            "starcoder2",
            "falcon",
            "falcon_grouped",
            "distilbert",
            "modernbert_plain",
        ];
        let by_itself = by_itself.contains(&self.family);
        if gelu || by_itself { NEAR_WITH_GELU } else { NEAR }
    }

    /// Whether a way came out near enough, or was refused.
    fn is_right(&self, way: &str) -> bool {
        let what = &self.case[way];
        what.is_null()
            || what.get("refused").is_some()
            || what["error"].as_f64().is_some_and(|e| e <= self.bound())
    }
}

/// The file of a family without its ending.
fn stem(family: &str) -> PathBuf {
    golden().join("../config/judged").join(family)
}

/// The keys that identify a case.
fn key(case: &Value) -> String {
    json!([case["set"], case["remove"], case["drop"]]).to_string()
}

/// Keys below the architecture, and tensors that are computed, as JSON has them.
fn pairs(checkpoint: &Checkpoint) -> Map<String, Value> {
    let Metadata::Gguf(gguf) = checkpoint.metadata() else { panic!("gguf") };
    let mut found: Map<String, Value> = gguf
        .iter()
        .filter(|(key, _)| {
            !["general.", "tokenizer.", "quantize.", "split."].iter().any(|p| key.starts_with(p))
        })
        .map(|(key, value)| (key.to_owned(), plain(value)))
        .collect();
    for (name, bytes) in tensors(checkpoint).into_iter().filter(|(name, _)| name.starts_with("rope_f")) {
        let values = bytes.1.as_chunks::<4>().0.iter().map(|b| json!(f64::from(f32::from_le_bytes(*b))));
        found.insert(name, values.collect());
    }
    found
}

fn plain(value: checkpoint::Value<'_>) -> Value {
    match value {
        checkpoint::Value::Bool(b) => json!(b),
        checkpoint::Value::Str(s) => json!(String::from_utf8_lossy(s)),
        checkpoint::Value::Array(array) => array.values().map(plain).collect(),
        checkpoint::Value::F32(x) => json!(f64::from(x)),
        other => other.as_u64().map_or_else(|| json!(other.as_f64()), |n| json!(n)),
    }
}

/// Shape and bytes of every tensor, all F32.
fn tensors(checkpoint: &Checkpoint) -> BTreeMap<String, (Vec<u64>, Vec<u8>)> {
    let entries = checkpoint.entries().iter().map(|e| {
        let plane = &e.planes[0];
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap()];
        checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).unwrap();
        (e.name.clone(), (e.shape.to_vec(), bytes))
    });
    entries.collect()
}

/// With the numbers that GGUF has, in f32: JSON's decimals do not come back to the last bit of an f64.
fn in_f32(pairs: &Value) -> Value {
    match pairs {
        Value::Object(pairs) => pairs.iter().map(|(key, value)| (key.clone(), in_f32(value))).collect(),
        Value::Array(list) => list.iter().map(in_f32).collect(),
        Value::Number(n) if n.is_f64() => json!(narrow(pairs)),
        other => other.clone(),
    }
}

/// Returns the keys of `found` that differ from `base`; null for a key that it lacks.
fn delta(found: &Map<String, Value>, base: &Map<String, Value>) -> Map<String, Value> {
    let keys = found.keys().chain(base.keys().filter(|k| !found.contains_key(*k)));
    let value = |k: &String| found.get(k).cloned().unwrap_or_default();
    keys.filter(|k| found.get(*k) != base.get(*k)).map(|k| (k.clone(), value(k))).collect()
}

fn with(base: &Map<String, Value>, delta: &Value) -> Map<String, Value> {
    let mut out = base.clone();
    for (key, value) in delta.as_object().unwrap() {
        if value.is_null() {
            out.remove(key)
        } else {
            out.insert(key.clone(), value.clone())
        };
    }
    out
}

fn to_gguf(source: &Path, to: &Path) -> Result<Checkpoint, Error> {
    let options = ConvertOptions { overwrite: true, ..ConvertOptions::default() };
    let source = open(source)?;
    let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options)?;
    conversion.run(to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(()))?;
    Ok(open(to)?)
}

fn check_written(name: &str, judged: &Value) -> Vec<String> {
    let (family, dir) = (Family::read(name), tempfile::tempdir().unwrap());
    let rows = judged["cases"].as_array().unwrap();
    let known: BTreeMap<String, &Value> = rows.iter().map(|row| (key(row), row)).collect();
    let to = dir.path().join("ours.gguf");
    let hf = dir.path().join("model");
    std::fs::create_dir(&hf).unwrap();
    family.write(&hf, &Value::Null);
    let mut wrong = vec![];
    let base = match to_gguf(&hf, &to) {
        Ok(base) => pairs(&base),
        // No other case of such a family is written, either: an error would show below.
        Err(_) if rows[0]["ours"].get("refused").is_some() => Map::new(),
        Err(why) => return vec![format!("{name} as it is: {why}")],
    };
    if !base.is_empty() && in_f32(&Value::Object(base.clone())) != in_f32(&rows[0]["ours"]["kv"]) {
        wrong
            .push(format!("{name} as it is: {:?}", delta(&base, rows[0]["ours"]["kv"].as_object().unwrap())));
    }
    let as_it_is = json!({"ours": {"kv": {}, "error": rows[0]["ours"]["error"]}});
    let ran = |case: &&Value| matches!(case["outcome"].as_str(), Some("same" | "moved"));
    for case in family.cases().iter().filter(ran) {
        family.write(&hf, case);
        let row = known.get(&key(case)).copied().unwrap_or(&as_it_is);
        let refused = row["ours"].get("refused").is_some();
        let found = match to_gguf(&hf, &to) {
            Err(_) if refused => continue,
            Ok(_) if refused => {
                wrong.push(format!("{name} | {} | was refused, and is written", shown(case)));
                continue;
            }
            Err(why) => {
                wrong.push(format!("{name} | {} | was written, and is refused: {why}", shown(case)));
                continue;
            }
            Ok(found) => found,
        };
        let found = Value::Object(delta(&pairs(&found), &base));
        if in_f32(&row["ours"]["kv"]) != in_f32(&found) {
            wrong.push(format!("{name} | {} | writes {found}, judged was {}", shown(case), row["ours"]));
        }
    }
    wrong
}

/// A GGUF of F32 tensors.
fn write_gguf(path: &Path, pairs: &Map<String, Value>, tensors: &BTreeMap<String, (Vec<u64>, Vec<u8>)>) {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    // The ids of types: `enum gguf_type`, ggml/include/gguf.h@0c1e57098.
    let id = |value: &Value| match value {
        Value::Bool(_) => 7u32,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        n if n.is_u64() => 4,
        _ => 6,
    };
    let scalar = |out: &mut Vec<u8>, value: &Value| match value {
        Value::Bool(b) => out.push(u8::from(*b)),
        Value::String(s) => text(out, s),
        n if n.is_u64() => out.extend(u32::try_from(n.as_u64().unwrap()).unwrap().to_le_bytes()),
        n => out.extend(narrow(n).to_le_bytes()),
    };
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        text(&mut out, key);
        out.extend(id(value).to_le_bytes());
        if let Some(list) = value.as_array() {
            out.extend(id(&list[0]).to_le_bytes());
            out.extend((list.len() as u64).to_le_bytes());
            for value in list {
                scalar(&mut out, value);
            }
        } else {
            scalar(&mut out, value);
        }
    }
    let mut data: Vec<u8> = vec![];
    for (name, (shape, bytes)) in tensors {
        text(&mut out, name);
        out.extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
        shape.iter().rev().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    std::fs::write(path, [out, data].concat()).unwrap();
}

fn check_read(name: &str, judged: &Value) -> Vec<String> {
    let (family, dir) = (Family::read(name), tempfile::tempdir().unwrap());
    let hf = dir.path().join("model");
    std::fs::create_dir(&hf).unwrap();
    family.write(&hf, &Value::Null);
    let base = &judged["cases"][0]["theirs"];
    let Some(base) = base.get("kv").and_then(Value::as_object) else { return vec![] };
    let stored = match to_gguf(&hf, &dir.path().join("ours.gguf")) {
        Ok(stored) => stored,
        Err(why) => return vec![format!("{name} as it is: {why}")],
    };
    let Metadata::Gguf(gguf) = stored.metadata() else { panic!("gguf") };
    let general = ["general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.token_type_count"];
    let general = gguf.iter().filter(|(k, _)| general.contains(k)).map(|(k, v)| (k.to_owned(), plain(v)));
    let general: Map<String, Value> = general.collect();
    let lost = std::fs::read(stem(name).with_extension("bin")).unwrap();
    let lost: Vec<f32> = lost.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let path = dir.path().join("theirs.gguf");
    let mut wrong = vec![];
    for (i, case) in judged["cases"].as_array().unwrap().iter().enumerate() {
        let Some(kv) = case["theirs"].get("kv") else { continue };
        let mut pairs = if i == 0 { base.clone() } else { with(base, kv) };
        pairs.extend(general.clone());
        let mut tensors = tensors(&stored);
        tensors.retain(|name, _| !name.starts_with("rope_f"));
        let made: Vec<String> = pairs.keys().filter(|k| k.starts_with("rope_f")).cloned().collect();
        for name in made {
            let values = pairs.remove(&name).unwrap();
            let values: Vec<f32> = values.as_array().unwrap().iter().map(narrow).collect();
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            tensors.insert(name, (vec![values.len() as u64], bytes));
        }
        write_gguf(&path, &pairs, &tensors);
        let Ok(found) = family.logits(&path) else { continue };
        let index = |key: &Value| usize::try_from(key.as_u64().unwrap()).unwrap();
        let size = family.row(0).len();
        let wanted = match case["theirs"].get("at") {
            Some(at) => &lost[index(at) * size..][..size],
            None => family.row(index(&case["row"])),
        };
        // Where llama.cpp does not heed a key of the file, what transformers made of it is as right.
        let original = family.row(index(&case["row"]));
        let off = f64::from(distance(&found, wanted).min(distance(&found, original)));
        if off > (Judged { family: name, case }).bound() {
            wrong.push(format!("{name} | {} | {kv} is read off by {off:.1e}", shown(case)));
        }
    }
    wrong
}

/// Every family that was judged, with `check`.
fn of_every_family(check: impl Fn(&str, &Value) -> Vec<String>) {
    let files = std::fs::read_dir(stem("")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    let wrong = files.iter().flat_map(|path| {
        let judged = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        check(path.file_stem().unwrap().to_str().unwrap(), &judged)
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_was_judged_is_right() {
    of_every_family(|family, judged| {
        let cases = judged["cases"].as_array().unwrap();
        let wrong = cases.iter().flat_map(|case| {
            let ways = ["ours", "back", "theirs", "theirs_back"];
            ways.into_iter()
                .filter(|way| !Judged { family, case }.is_right(way))
                .map(move |way| format!("{family} | {way} | {} | {}", shown(case), case[way]))
        });
        wrong.collect()
    });
}

#[test]
fn what_is_written_is_what_llama_cpp_judged() {
    of_every_family(check_written);
}

#[test]
fn what_llama_cpp_writes_is_read_as_it_reads_it() {
    of_every_family(check_read);
}

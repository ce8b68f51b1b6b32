//! Keys that a checkpoint has beside its tensors: GGUF's metadata, and the files beside the weights of a directory.

use std::collections::BTreeMap;

use checkpoint::{Checkpoint, Error, HfMetadata, Metadata, Value};
use model::DialectName;
use serde_json::Value as Json;

/// The file name under which GGUF's own keys are listed.
pub const GGUF: &str = "metadata";
/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// A value of a checkpoint's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// BLAKE3 of the value, of any type, in hexadecimal digits. Numbers and the order of an object's keys are hashed as
    /// JSON defines them, not as they are spelt.
    pub blake3: String,
    /// The value, cut.
    pub shown: String,
}

/// All metadata of a checkpoint.
#[derive(Clone, Debug)]
pub struct Said {
    /// The ecosystem of the keys; `None` if the format has none.
    pub dialect: Option<DialectName>,
    /// Values by file, or `metadata`, and key; a file that is not JSON has the key ``.
    pub keys: BTreeMap<(String, String), Saying>,
}

impl Said {
    /// Everything that `checkpoint` says.
    ///
    /// # Errors
    /// If a file beside the weights cannot be read.
    pub fn of(checkpoint: &Checkpoint) -> Result<Said, Error> {
        let mut keys = BTreeMap::new();
        let dialect = match checkpoint.metadata() {
            Metadata::Gguf(gguf) => {
                for (key, value) in gguf.iter() {
                    let mut hasher = blake3::Hasher::new();
                    feed(&mut hasher, &value);
                    let blake3 = hasher.finalize().to_hex().to_string();
                    keys.insert((GGUF.to_owned(), key.to_owned()), Saying { blake3, shown: shown(&value) });
                }
                Some(DialectName::Gguf)
            }
            Metadata::Hf(hf) if hf.config().is_some() => {
                files(hf, &mut keys)?;
                Some(DialectName::Hf)
            }
            _ => None,
        };
        Ok(Said { dialect, keys })
    }
}

/// How deep the objects of a JSON file are taken apart: a vocabulary is one value, a configuration is many.
fn depth(file: &str) -> usize {
    match file {
        "config.json" | "generation_config.json" => 8,
        "tokenizer.json" => 2,
        "vocab.json" => 0,
        _ => 1,
    }
}

fn files(hf: &HfMetadata, keys: &mut BTreeMap<(String, String), Saying>) -> Result<(), Error> {
    for (name, member) in hf.beside() {
        let bytes = member.read()?;
        let json = name.ends_with(".json").then(|| serde_json::from_slice::<Json>(&bytes).ok()).flatten();
        match json {
            Some(json) => apart(name, String::new(), &json, depth(name), keys),
            None => {
                let (blake3, shown) = (blake3::hash(&bytes).to_hex().to_string(), text(&bytes));
                keys.insert((name.to_owned(), String::new()), Saying { blake3, shown });
            }
        }
    }
    Ok(())
}

/// Takes `json` apart into what its keys say.
fn apart(file: &str, key: String, json: &Json, depth: usize, keys: &mut BTreeMap<(String, String), Saying>) {
    match json {
        Json::Object(object) if depth > 0 && !object.is_empty() => {
            for (name, value) in object {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                apart(file, key, value, depth - 1, keys);
            }
        }
        _ => {
            let mut hasher = blake3::Hasher::new();
            feed_json(&mut hasher, json);
            let blake3 = hasher.finalize().to_hex().to_string();
            keys.insert((file.to_owned(), key), Saying { blake3, shown: shown_json(json) });
        }
    }
}

/// Puts a value into a digest, so that no two values give the same bytes.
fn feed(hasher: &mut blake3::Hasher, value: &Value<'_>) {
    let kind = match value {
        Value::U8(_) => "u8",
        Value::I8(_) => "i8",
        Value::U16(_) => "u16",
        Value::I16(_) => "i16",
        Value::U32(_) => "u32",
        Value::I32(_) => "i32",
        Value::F32(_) => "f32",
        Value::Bool(_) => "bool",
        Value::Str(_) => "str",
        Value::Array(_) => "arr",
        Value::U64(_) => "u64",
        Value::I64(_) => "i64",
        Value::F64(_) => "f64",
    };
    hasher.update(kind.as_bytes());
    match value {
        Value::Str(s) => feed_bytes(hasher, s),
        Value::Array(array) => {
            hasher.update(&array.len().to_le_bytes());
            array.values().for_each(|v| feed(hasher, &v));
        }
        Value::F32(x) => {
            hasher.update(&x.to_bits().to_le_bytes());
        }
        Value::F64(x) => {
            hasher.update(&x.to_bits().to_le_bytes());
        }
        // Whole numbers and flags have one spelling each.
        other => feed_bytes(hasher, other.to_string().as_bytes()),
    }
}

fn feed_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn feed_json(hasher: &mut blake3::Hasher, json: &Json) {
    match json {
        Json::Null => hasher.update(b"n"),
        Json::Bool(b) => hasher.update(if *b { b"t" } else { b"f" }),
        Json::Number(n) => {
            // 1e-05 and 0.00001 are one number.
            let text = match (n.as_u64(), n.as_i64(), n.as_f64()) {
                (Some(n), ..) => n.to_string(),
                (None, Some(n), _) => n.to_string(),
                (None, None, Some(x)) => format!("{x:?}"),
                _ => n.to_string(),
            };
            hasher.update(b"#");
            feed_bytes(hasher, text.as_bytes());
            hasher
        }
        Json::String(s) => {
            hasher.update(b"s");
            feed_bytes(hasher, s.as_bytes());
            hasher
        }
        Json::Array(array) => {
            hasher.update(b"a").update(&(array.len() as u64).to_le_bytes());
            for value in array {
                feed_json(hasher, value);
            }
            hasher
        }
        Json::Object(object) => {
            hasher.update(b"o").update(&(object.len() as u64).to_le_bytes());
            let mut names: Vec<&String> = object.keys().collect();
            names.sort_unstable();
            for name in names {
                feed_bytes(hasher, name.as_bytes());
                feed_json(hasher, &object[name.as_str()]);
            }
            hasher
        }
    };
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Str(s) => text(s),
        Value::Array(array) => format!("{} × {}", array.len(), array.element()),
        Value::F32(x) => x.to_string(),
        other => other.to_string(),
    }
}

fn shown_json(json: &Json) -> String {
    match json {
        Json::String(s) => text(s.as_bytes()),
        Json::Array(array) if array.len() > 8 => format!("a list of {}", array.len()),
        Json::Object(object) if object.len() > 4 => format!("an object of {} keys", object.len()),
        other => shortened(&other.to_string()),
    }
}

/// A string, quoted and cut. A name from a file must not speak to the terminal.
fn text(bytes: &[u8]) -> String {
    if bytes.len() > 4 * SHOWN {
        let start = String::from_utf8_lossy(&bytes[..4 * SHOWN]).into_owned();
        return format!("{} ({} bytes)", shortened(&format!("{start:?}")), bytes.len());
    }
    shortened(&format!("{:?}", String::from_utf8_lossy(bytes)))
}

/// `text`, cut to a length that can be shown.
pub fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}

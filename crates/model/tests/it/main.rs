//! The meaning of configurations, and the names of every parameter in each dialect.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

mod config;
mod experts;
mod names;
mod register;
mod verdicts;

use std::collections::HashMap;
use std::path::PathBuf;

use weighbridge_model::{DialectName, Fact, Facts};

/// The metadata of a GGUF file, as far as a test needs it.
#[derive(Clone)]
struct Gguf(HashMap<String, Fact>);

impl Gguf {
    fn new(facts: &[(&str, Fact)]) -> Gguf {
        Gguf(facts.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
    }

    fn with(mut self, key: &str, fact: Fact) -> Gguf {
        self.0.insert(key.to_owned(), fact);
        self
    }

    fn without(mut self, key: &str) -> Gguf {
        self.0.remove(key);
        self
    }
}

impl Facts for Gguf {
    fn dialect(&self) -> DialectName {
        DialectName::Gguf
    }
    fn lookup(&self, key: &str) -> Option<Fact> {
        self.0.get(key).cloned()
    }
    fn pairs(&self) -> Vec<(String, Fact)> {
        self.0.iter().map(|(key, fact)| (key.clone(), fact.clone())).collect()
    }
    fn vocabulary(&self) -> Option<(String, u64)> {
        Some(("tokenizer.ggml.tokens".to_owned(), 320))
    }
}

/// Reads golden/families: config.json for every family, and the metadata of a GGUF file where there is one.
fn families() -> Vec<(String, serde_json::Value, Option<Gguf>)> {
    let dir = testkit::golden("families");
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let gguf = json["gguf"]["kv"].as_object();
        let gguf = gguf.map(|kv| Gguf(kv.iter().map(|(key, value)| (key.clone(), fact(value))).collect()));
        (name, json["config"].take(), gguf)
    };
    files.iter().map(read).collect()
}

fn fact(value: &serde_json::Value) -> Fact {
    match value {
        serde_json::Value::Bool(b) => Fact::Bool(*b),
        serde_json::Value::String(s) => Fact::Str(s.clone()),
        serde_json::Value::Array(values) => Fact::List(values.iter().map(fact).collect()),
        n => n.as_u64().map_or_else(|| Fact::Number(n.as_f64().unwrap()), Fact::Count),
    }
}

/// A small llama.
fn llama() -> Gguf {
    Gguf::new(&[
        ("general.architecture", Fact::Str("llama".to_owned())),
        ("llama.block_count", Fact::Count(2)),
        ("llama.context_length", Fact::Count(128)),
        ("llama.embedding_length", Fact::Count(64)),
        ("llama.feed_forward_length", Fact::Count(96)),
        ("llama.attention.head_count", Fact::Count(4)),
        ("llama.attention.head_count_kv", Fact::Count(2)),
        ("llama.attention.layer_norm_rms_epsilon", Fact::Number(1e-5)),
    ])
}

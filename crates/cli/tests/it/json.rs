//! Every `--json` of every command, success and failure, is one document that its schema in `docs/json` takes.

use std::collections::HashMap;
use std::path::Path;

use boon::{Compiler, SchemaIndex};
use serde_json::Value;
use testkit::model;

use crate::files::hf_directory;
use crate::{golden, weighbridge};

/// The schemas, by the names of their files.
pub(crate) struct Schemas {
    compiled: boon::Schemas,
    indices: HashMap<String, SchemaIndex>,
}

impl Schemas {
    pub(crate) fn read() -> Schemas {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let schemas = files.filter(|file| file.extension().is_some_and(|e| e == "json"));
        let mut compiled = boon::Schemas::new();
        let read = |file: std::path::PathBuf| {
            let schema: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let (mut compiler, url) = (Compiler::new(), format!("schema:{name}"));
            compiler.add_resource(&url, schema).unwrap();
            (name, compiler.compile(&url, &mut compiled).unwrap())
        };
        let indices = schemas.map(read).collect();
        Schemas { compiled, indices }
    }

    /// What is wrong with `document` as the schema `name` has it.
    fn errors(&self, name: &str, document: &Value) -> Option<String> {
        let result = self.compiled.validate(document, self.indices[name]);
        result.err().map(|error| format!("{error:#}"))
    }

    /// Runs a command with `--json`. What it prints is one document of the schema `name`.
    pub(crate) fn take(&self, name: &str, code: i32, args: &[&str]) -> Value {
        let output = weighbridge(args.iter().chain(&["--json"]));
        let printed = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}{said}");
        let document: Value =
            serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{args:?}: {e}: {printed}"));
        if let Some(error) = self.errors(name, &document) {
            panic!("{args:?} is not as docs/json/{name}.json: {error}");
        }
        document
    }
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn tiny() -> String {
    path(&golden().join("llama-tiny")).to_owned()
}

/// What a document lacks or has too much is found.
#[test]
fn the_schemas_are_strict() {
    let schemas = Schemas::read();
    assert_eq!(schemas.indices.len(), 24);
    let document = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let is_valid = |document: &Value| schemas.errors("error", document).is_none();
    assert!(is_valid(&document(r#"{"error": "e", "problems": [], "hint": null}"#)));
    assert!(!is_valid(&document(r#"{"error": "e", "problems": []}"#)));
    assert!(!is_valid(&document(r#"{"error": "e", "problems": [], "hint": null, "more": 1}"#)));
    assert!(!is_valid(&document(
        r#"{"error": "e", "problems": [{"problem": 1, "hints": []}], "hint": null}"#
    )));
}

#[test]
fn inspect_of_every_format() {
    let schemas = Schemas::read();
    let mut seen = 0;
    for folder in std::fs::read_dir(golden()).unwrap().map(|folder| folder.unwrap().path()) {
        if folder.join("config.json").exists() {
            seen += 1;
            schemas.take("inspect", 0, &["inspect", path(&folder)]);
        }
    }
    assert!(seen >= 8, "{seen} folders");
    let gguf = schemas.take("inspect", 0, &["inspect", path(&model("gemma3"))]);
    let metadata = &gguf["metadata"];
    assert_eq!(
        (&metadata["general.architecture"], &metadata["gemma3.block_count"]),
        (&"gemma3".into(), &18.into())
    );
    assert_eq!(metadata["gemma3.attention.layer_norm_rms_epsilon"], 1e-6);
    assert_eq!(metadata["tokenizer.ggml.tokens"]["elements"], "str");
    let dir = tempfile::tempdir().unwrap();
    let bare = dir.path().join("bare.safetensors");
    std::fs::copy(golden().join("llama-tiny/model.safetensors"), &bare).unwrap();
    let unknown = schemas.take("inspect", 0, &["inspect", path(&bare)]);
    assert!(unknown["family"].is_null() && unknown["problem"].is_string(), "{}", unknown["problem"]);
}

#[test]
fn plans_of_every_kind() {
    let (schemas, tiny) = (Schemas::read(), tiny());
    schemas.take("plan", 0, &["plan", &tiny]);
    schemas.take("plan", 0, &["plan", &tiny, "--layout", "source"]);
    schemas.take("plan", 0, &["plan", &tiny, "--layout", "vllm", "--tp", "2", "--rank", "1"]);
    schemas.take("plan", 0, &["plan", &tiny, "--preset", "q8_0", "--memory", "1GiB"]);
    let none = schemas.take(
        "plan",
        1,
        &["plan", path(&model("smollm2")), "--layout", "vllm", "--memory", "40MiB", "--owned"],
    );
    assert_eq!((&none["memory"]["fits"], &none["memory"]["shared"]["owned"]), (&false.into(), &true.into()));
    schemas.take("plan-all-ranks", 0, &["plan", &tiny, "--layout", "vllm", "--tp", "2", "--all-ranks"]);
    let proved =
        schemas.take("plan-all-ranks", 0, &["plan", &tiny, "--layout", "vllm", "--tp", "2", "--verify"]);
    assert_eq!(proved["untaken"], Value::Array(vec![]));
}

#[test]
fn loads_checks_and_conversions() {
    let (schemas, tiny) = (Schemas::read(), tiny());
    let dir = tempfile::tempdir().unwrap();
    let manifest = path(&dir.path().join("m.json")).to_owned();
    schemas.take("check", 0, &["check", &tiny, "--deep", &format!("--write-manifest={manifest}")]);
    schemas.take("check", 0, &["check", &tiny, &format!("--verify={manifest}")]);
    schemas.take("load", 0, &["load", &tiny]);
    schemas.take(
        "load",
        0,
        &["load", &tiny, "--owned", "--memory", "64MiB", &format!("--verify={manifest}")],
    );
    let wrong = dir.path().join("wrong");
    std::fs::create_dir(&wrong).unwrap();
    hf_directory(&wrong, |tensors| tensors[0].2[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    let found = schemas.take("check", 1, &["check", path(&wrong), "--deep"]);
    assert_eq!(found["findings"][0]["not_finite"]["nan"], 1);
    let differs = schemas.take("check", 1, &["check", path(&wrong), &format!("--verify={manifest}")]);
    assert!(!differs["findings"].as_array().unwrap().is_empty(), "{differs}");

    let small = dir.path().join("small.gguf");
    let converted = schemas.take("convert", 0, &["convert", &tiny, path(&small), "--encode", "*.weight=f16"]);
    assert!(converted["difference"]["rmse"].is_number(), "{}", converted["difference"]);
    schemas.take("convert", 0, &["convert", &tiny, path(&dir.path().join("same.npz"))]);
    let other = schemas.take("diff", 1, &["diff", &tiny, path(&small)]);
    assert_eq!(other["same"], false);
    assert!(other["parameters"].as_array().unwrap().iter().any(|p| p["difference"]["unequal"].is_number()));
    schemas.take("diff", 0, &["diff", &tiny, &tiny]);
    let nothing = schemas.take("diff", 1, &["diff", &tiny, path(&golden().join("gpt2-tiny"))]);
    assert!(nothing["why_stored"].is_string() || nothing["family"].is_null(), "{nothing}");
    // NaN is null.
    schemas.take("diff", 1, &["diff", path(&wrong), path(&small), "--layout", "source"]);
}

#[test]
fn runs_and_what_measures_them() {
    let schemas = Schemas::read();
    let (smollm2, tiny) = (model("smollm2"), tiny());
    let smollm2 = path(&smollm2);
    let once = |more: &[&'static str]| {
        [&["run", smollm2, "--temperature", "0", "--backend", "reference"], more].concat()
    };
    let answer = schemas.take("run", 0, &once(&["-p", "Say hello.", "-n", "8"]));
    let text = answer["text"].as_str().unwrap();
    let plain = weighbridge(once(&["-p", "Say hello.", "-n", "8"]));
    assert_eq!(text, String::from_utf8(plain.stdout).unwrap());
    assert_eq!(answer["ids"].as_array().unwrap().len(), 8);
    schemas.take("run", 0, &once(&["-p", "Once", "--raw", "-n", "0"]));
    let told =
        schemas.take("run", 0, &once(&["-p", "Say hello.", "-n", "8", "--logprobs", "2", "--stop", "e, w"]));
    assert_eq!(
        (&told["text"], &told["stop"], &told["stop_string"]),
        (&"Hello ther".into(), &"stop_string".into(), &"e, w".into())
    );
    let tokens = told["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), told["ids"].as_array().unwrap().len());
    for (token, id) in tokens.iter().zip(told["ids"].as_array().unwrap()) {
        // At temperature 0 each token is the most likely one.
        assert_eq!(
            (&token["id"], &token["top"][0]["id"], token["top"].as_array().unwrap().len()),
            (id, id, 2)
        );
        assert!(token["logprob"].as_f64().unwrap() >= token["top"][1]["logprob"].as_f64().unwrap());
        assert_eq!(token["logprob"], token["top"][0]["logprob"]);
    }
    let ids = schemas.take("run", 0, &["run", &tiny, "--ids", "1,2,3", "-n", "4", "--temperature", "0"]);
    assert_eq!(ids["tokens"], 4);
    schemas.take("bench", 0, &["bench", &tiny, "--prefill", "4", "--decode", "2", "--repeat", "1"]);
    schemas.take(
        "bench",
        0,
        &["bench", &tiny, "--prefill", "4", "--decode", "2", "--repeat", "1", "--backend", "reference"],
    );
    let text = testkit::golden("eval").join("holmes.txt");
    let eval = ["eval", smollm2, "-f", path(&text), "--chunks", "1", "--ctx", "32"];
    schemas.take("eval", 0, &eval);
    schemas.take("eval", 0, &[&eval[..], &["--against", smollm2]].concat());
    let task = testkit::golden("tasks").join("arc.jsonl");
    schemas.take("eval", 0, &["eval", smollm2, "--task", path(&task), "--against", smollm2]);
    let dir = tempfile::TempDir::new().unwrap();
    let made = dir.path().join("imatrix.gguf");
    let calibrate =
        ["calibrate", smollm2, "-f", path(&text), "-o", path(&made), "--chunks", "1", "--ctx", "32"];
    schemas.take("calibrate", 0, &[&calibrate[..], &["--no-sensitivity"]].concat());
    let compress = ["compress", smollm2, "small.gguf", "--target", "4.8", "--allow-requantize", "--plan"];
    schemas.take("compress", 0, &[&compress[..], &["--imatrix", path(&made)]].concat());
    schemas.take("tune", 0, &["tune", "--dry-run"]);
    schemas.take("cache-status", 0, &["cache", "status", smollm2]);
    schemas.take("cache", 0, &["cache", "list"]);
    schemas.take("cache", 0, &["cache", "verify"]);
    schemas.take("cache", 0, &["cache", "prune", "--max-size", "1GB"]);
    schemas.take("cache", 0, &["cache", "clear"]);
    let texts = testkit::golden("embed/tiny");
    let embedded = schemas.take("embed", 0, &["embed", path(&texts), "a cat", "dogs"]);
    assert_eq!(embedded["vectors"].as_array().unwrap().len(), 2);
    let (model, file) = (testkit::golden("embed/rerank/bert"), dir.path().join("texts.txt"));
    std::fs::write(&file, "a cat\nJane wrote Emma.\n").unwrap();
    let ranked = schemas.take("rerank", 0, &["rerank", path(&model), "who wrote emma?", path(&file)]);
    assert_eq!(ranked["results"].as_array().unwrap().len(), 2);
    #[cfg(feature = "speech")]
    {
        let (model, sound) = (testkit::model("whisper-base"), testkit::golden("whisper/said-en.flac"));
        let said = ["transcribe", path(&model), path(&sound), "--words", "--language", "en", "--beams", "1"];
        let said = schemas.take("transcribe", 0, &said);
        assert_eq!(said["transcripts"][0]["segments"].as_array().unwrap().len(), 2);
    }
    schemas.take("quants", 0, &["quants"]);
    #[cfg(feature = "hub")]
    schemas.take("list", 0, &["list"]);
    let encoded = schemas.take("tokenize", 0, &["tokenize", smollm2, "Hello, world"]);
    let ids: Vec<String> =
        encoded["tokens"].as_array().unwrap().iter().map(|t| t["id"].to_string()).collect();
    let decoded = schemas.take("tokenize", 0, &["tokenize", smollm2, &ids.join(","), "--decode"]);
    assert_eq!((&decoded["text"], &decoded["tokens"]), (&"Hello, world".into(), &encoded["tokens"]));
}

#[test]
fn failures_of_every_command() {
    let (schemas, tiny) = (Schemas::read(), tiny());
    let nowhere = "/nowhere/x.gguf";
    for (code, args) in [
        (1, &["inspect", nowhere][..]),
        (2, &["inspect", &tiny, "--layuot", "vllm"]),
        (1, &["plan", nowhere]),
        (2, &["plan"]),
        (2, &["plan", &tiny, "--ep", "2"]),
        (2, &["plan", &tiny, "--explain", "output.weight"]),
        (1, &["load", nowhere]),
        (2, &["load", &tiny, "--memory", "1", "--owned", "--encode", "*=q8_0"]),
        (1, &["run", nowhere, "-p", "x"]),
        (2, &["run", &tiny]),
        (2, &["run", &tiny, "--ids", "1", "-n", "-2"]),
        (1, &["bench", nowhere]),
        (2, &["bench", &tiny, "--ctx", "1"]),
        (1, &["eval", nowhere, "-f", "/nowhere/text"]),
        (2, &["eval", &tiny]),
        (1, &["calibrate", nowhere, "-f", "/nowhere/text", "-o", "imatrix.gguf"]),
        (2, &["compress", &tiny, "/nowhere/small.gguf", "--target", "small"]),
        (1, &["compress", nowhere, "small.gguf", "--target", "4bit"]),
        (2, &["tune", "--threads", "0"]),
        (2, &["cache", "prune", "--max-size", "x"]),
        (1, &["cache", "verify", "0"]),
        (1, &["cache", "status", nowhere]),
        (2, &["convert", &tiny, "/nowhere/o.gguf"]),
        (2, &["convert", &tiny, "o.unknown"]),
        (1, &["check", nowhere]),
        (1, &["check", &tiny, "--verify", "/nowhere/m.json"]),
        (2, &["diff", &tiny, nowhere]),
        (1, &["tokenize", &tiny, "text"]),
        (2, &["quants", "--sort"]),
    ] {
        let said = schemas.take("error", code, args);
        let error = said["error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains("hint:"), "{args:?}: {said}");
        assert!(!said["problems"].as_array().unwrap().is_empty(), "{args:?}: {said}");
    }
}

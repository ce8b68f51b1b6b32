//! Metadata beside tensors: manifests cover it, and `diff` lists its differences.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use checkpoint::{Draft, Outgoing, Value};
use weighbridge::check::{CheckOptions, CheckReport, Manifest, check, load_verified};
use weighbridge::convert::{Conversion, ConvertOptions, DiffReport, OutputFormat, diff};
use weighbridge::{LayoutKind, Pool, open, plan};

use crate::{golden, model};

fn differ(a: &Path, b: &Path) -> DiffReport {
    diff(&open(a).unwrap(), &open(b).unwrap(), None, &mut Pool::new(2), &mut |_, _, _| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

fn manifest(path: &Path) -> Manifest {
    let options = CheckOptions { digests: true, ..CheckOptions::default() };
    check(&open(path).unwrap(), &options, &mut Pool::new(2), &|_, _| ControlFlow::Continue(()))
        .unwrap()
        .manifest
        .unwrap()
}

fn held(path: &Path, wanted: &Manifest) -> CheckReport {
    let options = CheckOptions { verify: Some(wanted), ..CheckOptions::default() };
    check(&open(path).unwrap(), &options, &mut Pool::new(2), &|_, _| ControlFlow::Continue(())).unwrap()
}

/// Writes the GGUF of a tiny llama with `more` pairs, which replace its own of the same key.
fn gguf(to: &Path, more: &[(&str, Value<'_>)]) {
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let outgoing = |e: &tensor::TensorEntry| Outgoing {
        name: e.name.clone(),
        shape: e.shape.clone(),
        scheme: e.scheme.clone(),
    };
    let weighbridge::Metadata::Gguf(metadata) = source.metadata() else { panic!() };
    let own = metadata.iter().filter(|(key, _)| !more.iter().any(|(k, _)| k == key));
    let pairs: Vec<(&str, Value<'_>)> = own.chain(more.iter().copied()).collect();
    let draft = Draft::gguf(source.entries().iter().map(outgoing).collect(), &pairs).unwrap();
    let mut writer = draft.create(to, false).unwrap();
    for entry in source.entries() {
        let plane = &entry.planes[0];
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap()];
        source.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).unwrap();
        writer.tensor(&[&bytes]).unwrap();
    }
    writer.finish().unwrap();
}

/// The case that both called the same: the tensors are, the template is not.
#[test]
fn an_edited_template_is_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, none) = (dir.path().join("a.gguf"), dir.path().join("b.gguf"), dir.path().join("none.gguf"));
    let template = |text: &'static str| ("tokenizer.chat_template", Value::Str(text.as_bytes()));
    gguf(&a, &[template("{{ messages }}")]);
    gguf(&b, &[template("{{ messages }}!"), ("general.file_type", Value::U32(7))]);
    gguf(&none, &[("llama.rope.freq_base", Value::F32(5000.0))]);

    let report = differ(&a, &b);
    assert!(report.has_same_parameters() && !report.is_same());
    let keys: Vec<&str> = report.differing_keys().map(|k| k.key.as_str()).collect();
    assert_eq!(keys, ["tokenizer.chat_template"]);
    let key = report.differing_keys().next().unwrap();
    let sides = [&key.a, &key.b].map(|side| side.clone().unwrap());
    assert_eq!(sides, ["\"{{ messages }}\"", "\"{{ messages }}!\""]);
    // It follows from the tensors, and is listed all the same.
    assert!(report.keys.iter().any(|k| k.key == "general.file_type" && k.bookkeeping.is_some()));
    assert!(differ(&a, &a).is_same());

    let wanted = manifest(&a);
    assert!(held(&a, &wanted).is_good());
    let found = held(&b, &wanted);
    assert!(!found.is_good() && found.findings.is_empty());
    let told: Vec<String> = found.keys.iter().map(ToString::to_string).collect();
    assert!(
        told.contains(
            &"`tokenizer.chat_template` of metadata: the value differs from the manifest".to_owned()
        ),
        "{told:?}"
    );
    let told: Vec<String> = held(&none, &wanted).keys.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|t| t.starts_with("`tokenizer.chat_template` of metadata: missing")), "{told:?}");
    assert!(
        told.iter().any(|t| t.starts_with("`llama.rope.freq_base` of metadata: the value differs")),
        "{told:?}"
    );
    let told: Vec<String> = held(&a, &manifest(&none)).keys.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|t| t.starts_with("`tokenizer.chat_template` of metadata: extra")), "{told:?}");

    // Loading holds it against the manifest too.
    let opened = open(&b).unwrap();
    let planned = plan(&opened, &weighbridge::describe(&opened).unwrap(), LayoutKind::Canonical).unwrap();
    let options = weighbridge::load::Options::default();
    let Err(error) = load_verified(&planned, &mut Pool::new(1), options, &wanted) else { panic!() };
    assert!(error.to_string().contains("`tokenizer.chat_template` of metadata"), "{error}");
}

fn copied(name: &str, to: &Path) -> PathBuf {
    std::fs::create_dir(to).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden().join(name).join(file), to.join(file)).unwrap();
    }
    to.to_owned()
}

/// Each key of each file; how JSON is spelt means nothing.
#[test]
fn files_beside_the_weights_are_compared_by_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (copied("llama-tiny", &dir.path().join("a")), copied("llama-tiny", &dir.path().join("b")));
    let config = std::fs::read_to_string(a.join("config.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&config).unwrap();
    // The same in other words.
    std::fs::write(b.join("config.json"), json.to_string()).unwrap();
    let wanted = manifest(&a);
    assert!(held(&b, &wanted).is_good() && differ(&a, &b).is_same());
    json["rms_norm_eps"] = 1e-3.into();
    json["transformers_version"] = "6".into();
    json["new"] = serde_json::json!({"deep": [1, 2]});
    std::fs::write(b.join("config.json"), json.to_string()).unwrap();
    std::fs::write(b.join("tokenizer.json"), r#"{"model": {"vocab": {"a": 0}}, "version": "1.0"}"#).unwrap();
    std::fs::write(b.join("merges.txt"), "a b").unwrap();
    std::fs::write(b.join("chat_template.jinja"), "{{ x }}").unwrap();
    let told: Vec<String> = held(&b, &wanted).keys.iter().map(ToString::to_string).collect();
    let (extra, other) =
        ("extra: in the checkpoint, not in the manifest", "the value differs from the manifest");
    assert_eq!(
        told,
        [
            format!("`rms_norm_eps` of config.json: {other}"),
            format!("`transformers_version` of config.json: {other}"),
            format!("`chat_template.jinja`: {extra}"),
            format!("`new.deep` of config.json: {extra}"),
            format!("`merges.txt`: {extra}"),
            format!("`model.vocab` of tokenizer.json: {extra}"),
            format!("`version` of tokenizer.json: {extra}"),
        ]
    );
    let report = differ(&a, &b);
    assert!(report.has_same_parameters() && !report.is_same());
    let keys: Vec<&str> = report.differing_keys().map(|k| k.key.as_str()).collect();
    assert_eq!(keys, ["", "new.deep", "rms_norm_eps", "", "model.vocab", "version"]);
    assert_eq!(report.configuration[0].0, "norm_eps");
}

/// A manifest that was written before they covered it, and one of another ecosystem, say what they do not cover.
#[test]
fn what_is_not_compared_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let source = golden().join("llama-tiny");
    let wanted = manifest(&source);
    let file = dir.path().join("m.json");
    wanted.write(&file, false).unwrap();
    assert_eq!(Manifest::read(&file).unwrap(), wanted);
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("keys");
    std::fs::write(&file, json.to_string()).unwrap();
    let old = Manifest::read(&file).unwrap();
    let report = held(&source, &old);
    assert!(report.is_good());
    assert_eq!(report.keys_not_compared, Some("the manifest was written before manifests covered them"));
    let npz = dir.path().join("x.npz");
    let options = ConvertOptions::default();
    let opened = open(&source).unwrap();
    let conversion = Conversion::new(&opened, LayoutKind::Source, OutputFormat::Npz, &options).unwrap();
    conversion.run(&npz, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
    let report = held(&npz, &wanted);
    assert!(report.is_good() && report.keys_not_compared.is_some());
    let report = differ(&source, &npz);
    assert!(report.not_compared[0].starts_with("metadata, tokenizer and template: B is npz"), "{report:?}");
}

/// Between ecosystems the words differ, and what they mean is compared: tokens, merges, template.
#[test]
fn ecosystems_are_compared_by_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let (gguf, hf) = (model("smollm2"), dir.path().join("hf"));
    let opened = open(&gguf).unwrap();
    let options = ConvertOptions { rules: vec!["*=bf16".parse().unwrap()], ..ConvertOptions::default() };
    let conversion = Conversion::new(&opened, LayoutKind::Source, OutputFormat::Hf, &options).unwrap();
    conversion.run(&hf, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
    let report = differ(&gguf, &hf);
    assert_eq!((&report.keys[..], &report.not_compared[..]), (&[][..], &[][..]));
    assert_eq!(report.configuration, []);
    // One merge gone, one token another, and another template.
    let file = hf.join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["model"]["merges"].as_array_mut().unwrap().pop();
    std::fs::write(&file, json.to_string()).unwrap();
    let template = hf.join("chat_template.jinja");
    if template.is_file() {
        std::fs::write(&template, "{{ other }}").unwrap();
    } else {
        let file = hf.join("tokenizer_config.json");
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        json["chat_template"] = "{{ other }}".into();
        std::fs::write(&file, json.to_string()).unwrap();
    }
    let report = differ(&gguf, &hf);
    let keys: Vec<&str> = report.differing_keys().map(|k| k.key.as_str()).collect();
    assert_eq!(keys, ["chat_template", "merges"]);
    assert!(!report.is_same());
}

//! Whisper in all forms: one canonical model. `golden/whisper_forms.py` made them, each with the program that people make it
//! with.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat, coverage};
use weighbridge::model::Verdict;
use weighbridge::planner::Preset;
use weighbridge::{LayoutKind, PlanBuilder, Pool, describe, open};

fn form(name: &str) -> PathBuf {
    testkit::golden("whisper").join(name)
}

/// The canonical parameters that are held, with their shape and bytes.
fn params(path: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let checkpoint = open(path).unwrap();
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build().unwrap();
    let loaded = plan.load(&mut Pool::new(1)).unwrap();
    let held = plan.params().iter().filter(|param| param.tied_to.is_none());
    let of = |name: &str| loaded.get(name).unwrap().slots()[0].bytes().to_vec();
    held.map(|p| (p.name.clone(), (format!("{} {}", p.shape, p.scheme), of(&p.name)))).collect()
}

#[test]
fn every_form_is_one_model() {
    let wanted = params(&form("hf"));
    assert_eq!(wanted.len(), 65);
    for name in ["ctranslate2-float32", "openai.pt", "ggml.bin"] {
        let found = params(&form(name));
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{name}");
        for (param, value) in &wanted {
            assert!(found[param] == *value, "{param} of {name}: {} and {}", found[param].0, value.0);
        }
        let (model, hf) = (describe(&open(form(name)).unwrap()).unwrap(), open(form("hf")).unwrap());
        assert_eq!(model.unlike(&describe(&hf).unwrap()), [], "{name}");
    }
}

/// Every key, of whatever form, is used, checked, or known to be without effect.
#[test]
fn every_key_has_a_verdict() {
    for name in ["ctranslate2-float32", "ctranslate2-float16", "ctranslate2-int8", "openai.pt", "ggml.bin"] {
        let checkpoint = open(form(name)).unwrap();
        let keys = coverage(&checkpoint, &describe(&checkpoint).unwrap()).unwrap();
        assert!(keys.len() >= 10, "{name}");
        let sound = |v: &Verdict| matches!(v, Verdict::Used | Verdict::Checked | Verdict::WithoutEffect(_));
        let odd: Vec<_> = keys.iter().filter(|key| !sound(&key.verdict)).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
}

fn to_hf(from: &Path, to: &Path) -> Value {
    let lost: &[&str] = match from.file_name().and_then(|name| name.to_str()) {
        Some("ggml.bin") => &["tokenizer", "filters"],
        Some("openai.pt") => &["tokenizer"],
        _ => &[],
    };
    to_hf_losing(lost, from, to)
}

/// A directory of transformers at `to`, which may lose `lost`.
pub(crate) fn to_hf_losing(lost: &[&str], from: &Path, to: &Path) -> Value {
    let source = open(from).unwrap();
    let allow_loss = lost.iter().map(|lost| (*lost).to_owned()).collect();
    let options = ConvertOptions { allow_loss, ..ConvertOptions::default() };
    let mut each = |_: &weighbridge::convert::Progress<'_>| ControlFlow::Continue(());
    let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Hf, &options).unwrap();
    conversion.run(to, &mut Pool::new(1), &mut each).unwrap();
    serde_json::from_slice(&fs::read(to.join("generation_config.json")).unwrap()).unwrap()
}

#[test]
fn a_directory_of_transformers_is_made_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = params(&form("hf"));
    let config: Value = serde_json::from_slice(&fs::read(form("hf/config.json")).unwrap()).unwrap();
    for name in ["ctranslate2-float32", "openai.pt", "ggml.bin"] {
        let to = folder.path().join(name);
        let generation = to_hf(&form(name), &to);
        assert!(params(&to) == wanted, "{name}");
        let made: Value = serde_json::from_slice(&fs::read(to.join("config.json")).unwrap()).unwrap();
        for key in
            ["d_model", "encoder_ffn_dim", "decoder_attention_heads", "max_source_positions", "num_mel_bins"]
        {
            assert_eq!(made[key], config[key], "{key} of {name}");
        }
        assert_eq!(generation["max_length"], 12);
        let sound: Value =
            serde_json::from_slice(&fs::read(to.join("preprocessor_config.json")).unwrap()).unwrap();
        assert_eq!((&sound["feature_size"], &sound["n_samples"]), (&json!(8), &json!(6400)));
        if name == "ctranslate2-float32" {
            for key in ["eos_token_id", "decoder_start_token_id"] {
                assert_eq!((&made[key], &generation[key]), (&config[key], &config[key]), "{key}");
            }
            assert_eq!(generation["alignment_heads"], json!([[0, 1]]));
            assert_eq!(generation["suppress_tokens"], json!([1, 2]));
            assert_eq!(generation["begin_suppress_tokens"], json!([3, 40]));
            assert_eq!(generation["no_timestamps_token_id"], 49);
        }
    }
}

/// The source is read, and `to` is written as `format`; losing a tokenizer is allowed where there is none.
pub(crate) fn convert(from: &Path, to: &Path, format: OutputFormat, encoded: (&str, &[&str])) {
    let source = open(from).unwrap();
    let (preset, rules) = encoded;
    let mut each = |_: &weighbridge::convert::Progress<'_>| ControlFlow::Continue(());
    let mut options = ConvertOptions {
        preset: Preset::named(preset),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        ..ConvertOptions::default()
    };
    if let Err(weighbridge::convert::Error::Lost { losses, .. }) =
        Conversion::new(&source, LayoutKind::Source, format, &options)
    {
        options.allow_loss = losses.into_iter().map(|loss| loss.key).collect();
        // The filters of `ggml.bin` are random.
        assert!(
            options
                .allow_loss
                .iter()
                .all(|key| key == "tokenizer" || key == "filters" && from.ends_with("ggml.bin"))
        );
    }
    let conversion = Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
    conversion.run(to, &mut Pool::new(1), &mut each).unwrap();
}

#[test]
fn every_form_is_made_of_every_other() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = params(&form("hf"));
    for from in ["hf", "ctranslate2-float32", "openai.pt", "ggml.bin"] {
        for (format, name) in
            [(OutputFormat::Hf, "hf"), (OutputFormat::Ctranslate2, "ct2"), (OutputFormat::Ggml, "ggml.bin")]
        {
            let to = folder.path().join(format!("{from}-{name}"));
            convert(&form(from), &to, format, ("", &[]));
            let found = params(&to);
            assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{from} {name}");
            for (param, value) in &wanted {
                assert!(found[param] == *value, "{from} {name}: {param}");
            }
            let (model, hf) = (describe(&open(&to).unwrap()).unwrap(), open(form("hf")).unwrap());
            assert_eq!(model.unlike(&describe(&hf).unwrap()), [], "{from} {name}");
            let keys = coverage(&open(&to).unwrap(), &model).unwrap();
            let sound =
                |v: &Verdict| matches!(v, Verdict::Used | Verdict::Checked | Verdict::WithoutEffect(_));
            let odd: Vec<_> = keys.iter().filter(|key| !sound(&key.verdict)).collect();
            assert!(odd.is_empty(), "{from} {name}: {odd:?}");
        }
    }
}

/// Reads the numbers and texts of a file, one after the other.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, len: usize) -> &'b [u8] {
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }

    fn number<const N: usize>(&mut self) -> u32 {
        self.take(N).iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte))
    }
}

/// What the fields of a file are, each by name: axes and type, and bytes.
type Fields = BTreeMap<String, (Vec<u32>, Vec<u8>)>;

fn ctranslate2(path: &Path) -> Fields {
    let file = fs::read(path.join("model.bin")).unwrap();
    let mut at = Bytes(&file);
    let text = |at: &mut Bytes<'_>| {
        let len = at.number::<2>();
        String::from_utf8(at.take(len as usize).to_vec()).unwrap()
    };
    let mut fields = Fields::new();
    let (version, spec, revision) = (at.number::<4>(), text(&mut at), at.number::<4>());
    fields.insert(format!("file {spec}"), (vec![version, revision], vec![]));
    for _ in 0..at.number::<4>() {
        let name = text(&mut at);
        let mut said: Vec<u32> = (0..at.number::<1>()).map(|_| at.number::<4>()).collect();
        said.push(at.number::<1>());
        let len = at.number::<4>();
        assert!(fields.insert(name, (said, at.take(len as usize).to_vec())).is_none());
    }
    for _ in 0..at.number::<4>() {
        let alias = format!("alias {}", text(&mut at));
        fields.insert(alias, (vec![], text(&mut at).into_bytes()));
    }
    assert!(at.0.is_empty());
    fields
}

/// Bytes of a block, and its elements, by the number of its type.
fn block(kind: u32) -> (u32, u32) {
    match kind {
        0 => (4, 1),
        1 => (2, 1),
        8 => (34, 32),
        other => panic!("type {other}"),
    }
}

fn ggml(path: &Path) -> Fields {
    let file = fs::read(path).unwrap();
    let mut at = Bytes(&file);
    let mut fields = Fields::new();
    fields.insert("sizes".to_owned(), (vec![], at.take(48).to_vec()));
    let (bands, frequencies) = (at.number::<4>(), at.number::<4>());
    fields.insert(
        "filters".to_owned(),
        (vec![bands, frequencies], at.take(4 * bands as usize * frequencies as usize).to_vec()),
    );
    for id in 0..at.number::<4>() {
        let len = at.number::<4>();
        fields.insert(format!("token {id}"), (vec![], at.take(len as usize).to_vec()));
    }
    while !at.0.is_empty() {
        let (rank, len, kind) = (at.number::<4>(), at.number::<4>(), at.number::<4>());
        let mut said: Vec<u32> = (0..rank).map(|_| at.number::<4>()).collect();
        let name = String::from_utf8(at.take(len as usize).to_vec()).unwrap();
        let (bytes, elements) = block(kind);
        let len = said.iter().product::<u32>() / elements * bytes;
        said.push(kind);
        assert!(fields.insert(name, (said, at.take(len as usize).to_vec())).is_none());
    }
    fields
}

fn assert_same(name: &str, found: &Fields, wanted: &Fields) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{name}");
    for (field, (said, bytes)) in wanted {
        assert_eq!(found[field].0, *said, "{name}: {field}");
        assert!(found[field].1 == *bytes, "{name}: {field}, {said:?}");
    }
}

/// What CTranslate2's converter makes of the same model, byte for byte, though in another order.
#[test]
fn ctranslate2_is_written_as_its_own_converter_does() {
    let folder = tempfile::tempdir().unwrap();
    for (wanted, encoded) in [
        ("ctranslate2-float32", ("", &[][..])),
        ("ctranslate2-float16", ("", &["*=f16"][..])),
        ("ctranslate2-int8", ("ct2-int8", &[][..])),
    ] {
        let to = folder.path().join(wanted);
        convert(&form("hf"), &to, OutputFormat::Ctranslate2, encoded);
        assert_same(wanted, &ctranslate2(&to), &ctranslate2(&form(wanted)));
        let config: Value = serde_json::from_slice(&fs::read(to.join("config.json")).unwrap()).unwrap();
        // The later half of one layer.
        assert_eq!(config["alignment_heads"], json!([[0, 0], [0, 1]]));
    }
    // What it says beside the weights goes along.
    for from in ["ctranslate2-float32", "ctranslate2-int8"] {
        let to = folder.path().join(format!("{from}-again"));
        convert(&form(from), &to, OutputFormat::Ctranslate2, ("", &[]));
        assert_same(from, &ctranslate2(&to), &ctranslate2(&form(from)));
        for name in ["config.json", "vocabulary.json"] {
            let read = |path: &Path| -> Value {
                serde_json::from_slice(&fs::read(path.join(name)).unwrap()).unwrap()
            };
            assert_eq!(read(&to), read(&form(from)), "{name}");
        }
    }
}

/// What whisper.cpp's script makes of the same model, but for tokens, which the directory does not have.
#[test]
fn ggml_is_written_as_its_own_converter_does() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = ggml(&form("ggml.bin"));
    let without_tokens = |fields: &Fields| -> Fields {
        fields
            .iter()
            .filter(|(name, _)| !name.starts_with("token "))
            .map(|(n, f)| (n.clone(), f.clone()))
            .collect()
    };
    let to = folder.path().join("again.bin");
    convert(&form("ggml.bin"), &to, OutputFormat::Ggml, ("", &[]));
    let wanted = without_tokens(&wanted);
    assert_same("from itself", &without_tokens(&ggml(&to)), &wanted);
    let to = folder.path().join("hf.bin");
    convert(&form("hf"), &to, OutputFormat::Ggml, ("", &[]));
    let mut found = without_tokens(&ggml(&to));
    // Those of the golden file are random.
    let filters = found.insert("filters".to_owned(), wanted["filters"].clone()).unwrap();
    assert_eq!(filters.0, wanted["filters"].0);
    assert_same("from transformers", &found, &wanted);
}

#[test]
fn whisper_cpp_reads_one_type_of_matrices() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("f16.bin");
    convert(&form("hf"), &to, OutputFormat::Ggml, ("f16", &[]));
    let found = ggml(&to);
    assert_eq!(found["sizes"].1[44..], 1u32.to_le_bytes());
    for (name, kind) in [
        ("encoder.conv1.weight", 1),
        ("encoder.conv1.bias", 0),
        ("encoder.positional_embedding", 0),
        ("decoder.token_embedding.weight", 1),
        ("decoder.blocks.0.attn.query.weight", 1),
        ("decoder.ln.weight", 0),
    ] {
        assert_eq!(found[name].0.last(), Some(&kind), "{name}");
    }
    let source = open(form("hf")).unwrap();
    let rules = ["*query.weight=f16", "*conv2.weight=f32", "decoder.ln.bias=f16"];
    let rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
    let options =
        ConvertOptions { rules, allow_loss: vec!["tokenizer".to_owned()], ..ConvertOptions::default() };
    let error = Conversion::new(&source, LayoutKind::Source, OutputFormat::Ggml, &options).unwrap_err();
    let text = error.to_string();
    for part in [
        "decoder.blocks.0.attn.query.weight",
        "the type of most matrices, since whisper.cpp reads one, found f16",
        "decoder.ln.bias",
        "f32, as whisper.cpp reads vectors and positions, found f16",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Half a step of int8 is the most that a value differs, as CTranslate2 rounds.
#[test]
fn codes_are_divided_by_their_scales() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("hf");
    to_hf(&form("ctranslate2-int8"), &to);
    let (wanted, found) = (params(&form("hf")), params(&to));
    let floats =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect() };
    let mut rounded = 0;
    for (name, (shape, bytes)) in &wanted {
        let (exact, near) = (floats(bytes), floats(&found[name].1));
        assert_eq!(*shape, found[name].0, "{name}");
        let axes: Vec<usize> =
            shape.trim_start_matches('[').split([',', ']']).map_while(|n| n.trim().parse().ok()).collect();
        let row = if axes.len() > 1 { exact.len() / axes[0] } else { 1 };
        for (exact, near) in exact.chunks(row).zip(near.chunks(row)) {
            let most = exact.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (x, y) in exact.iter().zip(near) {
                let half = if axes.len() > 1 { most / 127.0 * 0.501 } else { 0.0 };
                assert!((x - y).abs() <= half, "{name}: {x} {y}, {most}");
                rounded += usize::from(x.to_bits() != y.to_bits());
            }
        }
    }
    assert!(rounded > 10_000, "{rounded}");
}

/// A value where CTranslate2 has zeros, since keys have no bias, is an error by the tensor's name.
#[test]
fn keys_with_a_bias_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let sound = fs::read(form("ctranslate2-float32/model.bin")).unwrap();
    let checkpoint = open(form("ctranslate2-float32/model.bin")).unwrap();
    for (name, part) in [
        ("encoder/layer_1/self_attention/linear_0/bias", 1),
        ("decoder/layer_0/self_attention/linear_0/bias", 1),
        ("decoder/layer_0/attention/linear_1/bias", 0),
    ] {
        let start = usize::try_from(checkpoint.entry(name).unwrap().planes[0].bytes.start).unwrap();
        let last = start + part * 64 + 60;
        // A zero with a sign is zero.
        for (value, is_zero) in [(-0.0f32, true), (1e-40, false), (1.0, false)] {
            let mut file = sound.clone();
            assert_eq!(file[last..last + 4], [0; 4]);
            file[last..last + 4].copy_from_slice(&value.to_le_bytes());
            fs::write(&path, file).unwrap();
            let built = PlanBuilder::new(&open(&path).unwrap()).layout(LayoutKind::Canonical).build();
            let text = built.map_err(|e| e.to_string()).err().unwrap_or_default();
            assert_eq!(text.is_empty(), is_zero, "{name} {value}: {text}");
            let (part, of) = (part + 1, if name.contains("self") { 3 } else { 2 });
            let what = format!("part {part} of {of} must be zero, as the model has no parameter for it");
            assert!(is_zero || text.contains(name) && text.contains(&what), "{text}");
        }
    }
}

//! From one ecosystem to another and back: tensors, numbers, tokenizer. Whatever is not carried is listed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weighbridge::checkpoint::Io;
use weighbridge::convert::{Conversion, ConvertOptions, ConvertReport, OutputFormat, diff};
use weighbridge::engine::text::{EncodeOptions, tokenizer};
use weighbridge::{Checkpoint, LayoutKind, Metadata, OpenOptions, Pool, describe, open, open_with};

use crate::{golden, model};

const TINY: [&str; 4] = ["llama-tiny", "llama3-rope-tiny", "gpt2-tiny", "gemma3-tiny"];

fn convert(source: &Path, to: &Path, format: OutputFormat, rules: &[&str]) -> ConvertReport {
    let rules = rules.iter().map(|r| r.parse().unwrap()).collect();
    // Its scores are scaled by a number that llama.cpp does not read.
    let lossy = format == OutputFormat::Gguf && source.ends_with("gemma3-tiny");
    let allow_loss = if lossy { vec!["query_pre_attn_scalar".to_owned()] } else { vec![] };
    let options = ConvertOptions { rules, allow_loss, ..ConvertOptions::default() };
    let source = open_with(source, &OpenOptions::with_io(Io::Pread)).unwrap();
    let conversion = Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
    conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Every tensor: scheme, shape and bytes.
fn stored(path: &Path) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let checkpoint = open(path).unwrap();
    let entries = checkpoint.entries().iter().map(|e| {
        let mut bytes = vec![];
        for plane in &e.planes {
            let at = bytes.len();
            bytes.resize(at + usize::try_from(plane.bytes.end - plane.bytes.start).unwrap(), 0);
            checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes[at..]).unwrap();
        }
        (e.name.clone(), (e.scheme.name.to_string(), e.shape.to_vec(), bytes))
    });
    entries.collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn pairs(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let Metadata::Gguf(gguf) = checkpoint.metadata() else { panic!("gguf") };
    gguf.iter().map(|(key, value)| (key.to_owned(), format!("{value:?}"))).collect()
}

/// Compares with the GGUF files that llama.cpp's own converter made from the same directories (golden/models/make.py).
#[test]
fn gguf_from_a_directory_is_what_llama_cpp_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for name in TINY {
        let to = dir.path().join(format!("{name}.gguf"));
        convert(&golden().join(name), &to, OutputFormat::Gguf, &[]);
        let theirs = golden().join(name).join("model.gguf");
        let (ours, wanted) = (stored(&to), stored(&theirs));
        assert!(ours.keys().eq(wanted.keys()), "{name}");
        for (tensor, (scheme, shape, bytes)) in &wanted {
            let (s, n, b) = &ours[tensor];
            assert_eq!((s, n), (scheme, shape), "{name} {tensor}");
            if tensor == "rope_freqs.weight" {
                // They divide in f32, we in f64.
                let near =
                    floats(b).iter().zip(floats(bytes)).all(|(a, b)| (a - b).abs() <= b * f32::EPSILON);
                assert!(near, "{name} {tensor}");
            } else {
                assert!(b == bytes, "{name} {tensor}");
            }
        }
        let (ours, wanted) = (pairs(&open(&to).unwrap()), pairs(&open(&theirs).unwrap()));
        for (key, value) in &wanted {
            match key.as_str() {
                // Made up of the directory's name in other words, and of the number of parameters.
                "general.name" | "general.size_label" => {}
                _ => assert_eq!(ours.get(key), Some(value), "{name} {key}"),
            }
        }
        // Keys of gemma3 that llama.cpp's converter loses.
        let more: Vec<&str> = ours.keys().filter(|k| !wanted.contains_key(*k)).map(String::as_str).collect();
        let known: &[&str] = match name {
            "gemma3-tiny" => &["gemma3.attention.scale", "gemma3.attention.sliding_window_pattern"],
            _ => &[],
        };
        assert_eq!(more, known, "{name}");
    }
}

/// There and back: every byte, but for norms that GGUF has with one added, whose rounding is bounded.
#[test]
fn a_directory_comes_back_from_gguf() {
    let dir = tempfile::tempdir().unwrap();
    for name in TINY {
        let (gguf, again) = (dir.path().join(format!("{name}.gguf")), dir.path().join(name));
        let there = convert(&golden().join(name), &gguf, OutputFormat::Gguf, &[]);
        let back = convert(&gguf, &again, OutputFormat::Hf, &[]);
        let (ours, wanted) = (stored(&again), stored(&golden().join(name)));
        assert!(ours.keys().eq(wanted.keys()), "{name}");
        let mut rounded = 0;
        for (tensor, one) in &wanted {
            if ours[tensor] == *one {
                continue;
            }
            assert!(name == "gemma3-tiny" && tensor.ends_with("norm.weight"), "{name} {tensor}");
            rounded += 1;
            for (a, b) in floats(&ours[tensor].2).iter().zip(floats(&one.2)) {
                // Half a step of 1 + w, which subtracting one keeps.
                assert!(
                    (a - b).abs() <= (1.0 + b).abs() * f32::EPSILON / 2.0,
                    "{tensor}: {b} came back as {a}"
                );
            }
        }
        let said = |report: &ConvertReport| report.tensors.iter().filter(|t| t.rounded.is_some()).count();
        assert_eq!((said(&there) > 0, said(&back) > 0), (rounded > 0, rounded > 0), "{name}");
        let model = |path: &Path| describe(&open(path).unwrap()).unwrap();
        assert_eq!(model(&golden().join(name)).unlike(&model(&again)), [], "{name}");
        // Whatever else the configuration had is in the list.
        let config = |path: PathBuf| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
        };
        let (had, has) = (config(golden().join(name)), config(again));
        for (key, value) in had.as_object().unwrap() {
            let listed = there.left.iter().any(|l| l.key.split('.').next() == Some(key));
            let number = |v: &serde_json::Value| v.as_f64();
            let same = &has[key] == value || (number(value).is_some() && number(&has[key]) == number(value));
            let renamed = ["rope_parameters", "sliding_window_pattern", "n_inner"].contains(&key.as_str());
            let role = key.ends_with("_token_id");
            // Only this value is followed, so that every reader has it.
            let checked = ["add_cross_attention", "attention_bias", "use_bidirectional_attention"]
                .contains(&key.as_str());
            assert!(value.is_null() || listed || same || renamed || role || checked, "{name}: {key} is lost");
        }
    }
}

/// A real model, whose tensors only move: GGUF to a directory and back.
#[test]
fn a_real_gguf_comes_back_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (first, hf, again) =
        (dir.path().join("first.gguf"), dir.path().join("hf"), dir.path().join("again.gguf"));
    // Matrices as f16: tensors in the file are moved, not decoded.
    convert(&model("smollm2"), &first, OutputFormat::Gguf, &["*norm.weight=f32", "*=f16"]);
    let there = convert(&first, &hf, OutputFormat::Hf, &[]);
    assert!(there.tensors.iter().all(|t| t.from == t.to && t.difference.is_none() && t.rounded.is_none()));
    let back = convert(&hf, &again, OutputFormat::Gguf, &[]);
    assert!(back.difference().is_none());
    assert!(stored(&first) == stored(&again));
    // Through mlx too, whose directories are HF's with another `format`.
    let (mlx, third) = (dir.path().join("mlx"), dir.path().join("third"));
    convert(&hf, &mlx, OutputFormat::Mlx, &[]);
    convert(&mlx, &third, OutputFormat::Hf, &[]);
    assert!(stored(&hf) == stored(&third));
    let (a, b) = (open(&first).unwrap(), open(&again).unwrap());
    assert_eq!(describe(&a).unwrap().unlike(&describe(&b).unwrap()), []);
    let (was, is) = (pairs(&a), pairs(&b));
    for (key, value) in &was {
        let listed = there.left.iter().any(|l| l.key == *key);
        assert!(listed || is.get(key) == Some(value), "{key} is {:?}, was {value}", is.get(key));
    }
}

/// Weights decoded to fit a directory have the values of the file.
#[test]
fn a_quantised_gguf_as_a_directory_has_the_same_values_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["smollm2", "gemma3"] {
        let hf = dir.path().join(name);
        let report = convert(&model(name), &hf, OutputFormat::Hf, &[]);
        assert!(report.tensors.iter().any(|t| t.rule.starts_with("decoded: hf has no q")), "{name}");
        let (gguf, hf) = (open(model(name)).unwrap(), open(&hf).unwrap());
        let found =
            diff(&gguf, &hf, None, &mut Pool::new(2), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        assert!(found.only_a.is_empty() && found.only_b.is_empty(), "{name}");
        for param in &found.params {
            let norm = name == "gemma3" && param.name.contains("norm");
            assert!(norm || param.outcome.is_same(), "{name} {}: {:?}", param.name, param.outcome);
        }
        assert_eq!(describe(&gguf).unwrap().unlike(&describe(&hf).unwrap()), []);
        let (a, b) = (tokenizer(&gguf).unwrap(), tokenizer(&hf).unwrap());
        let options = EncodeOptions { add_special: true, parse_special: true };
        for text in ["Once upon a time", "  def f(x):\n\treturn 12345", "Ünïcödé 🦙 ok", "<bos>a</s>", ""]
        {
            assert_eq!(a.encode(text, options).unwrap(), b.encode(text, options).unwrap(), "{name} {text:?}");
        }
        assert_eq!((a.bos(), a.eos(), a.end_of_generation()), (b.bos(), b.eos(), b.end_of_generation()));
    }
}

#[test]
fn plain_formats_take_the_names_of_any_ecosystem() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let options = ConvertOptions::default();
    let to = dir.path().join("hf.safetensors");
    let layout = LayoutKind::Named(weighbridge::model::DialectName::Hf);
    let conversion = Conversion::new(&source, layout, OutputFormat::Safetensors, &options).unwrap();
    conversion.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(stored(&to) == stored(&golden().join("llama-tiny")));
    // Nothing is carried that a plain file could not say, and its own names are the default.
    let plain = Conversion::new(&source, LayoutKind::Source, OutputFormat::Npz, &options).unwrap();
    let to = dir.path().join("own.npz");
    let report = plain.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.left.is_empty() && open(&to).unwrap().entry("token_embd.weight").is_some());
    // A directory of arrays has room for the other metadata, and is a model then.
    let arrays = Conversion::new(&source, layout, OutputFormat::NpyDir, &options).unwrap();
    let to = dir.path().join("arrays");
    arrays.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
    let (model, wanted) = (describe(&open(&to).unwrap()).unwrap(), describe(&source).unwrap());
    assert_eq!(wanted.unlike(&model), []);
}

//! Text models inside wrappers, against golden/wrappers: opened as they are, they are the text model alone, bit for bit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weighbridge::planner::{self, Adapter, parse_rules, resolve};
use weighbridge::{LayoutKind, Pool, describe, open, plan};

/// Values of a tensor, each another, by the place of the tensor.
fn values(place: usize, shape: &[u64]) -> Vec<f32> {
    let count: u64 = shape.iter().product();
    (0..count).map(|i| (place * 100_000) as f32 + i as f32).collect()
}

fn shape(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// A directory with a safetensors file of `tensors`.
pub(crate) fn write(dir: &Path, config: &Value, tensors: &[(String, Vec<u64>, Vec<f32>)]) {
    std::fs::create_dir(dir).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let (mut header, mut data) = (serde_json::Map::new(), vec![]);
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        let span = [start, data.len()];
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": span}));
    }
    let file = testkit::fixture::safetensors_bytes(&Value::Object(header).to_string(), &data);
    std::fs::write(dir.join("model.safetensors"), file).unwrap();
}

/// One case: both directories, and its file.
struct Case {
    name: String,
    json: Value,
    wrapped: PathBuf,
    plain: PathBuf,
    _dir: tempfile::TempDir,
}

fn cases() -> Vec<Case> {
    let golden = testkit::golden("wrappers");
    let mut files: Vec<PathBuf> = std::fs::read_dir(golden).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    files.iter().map(|file| case(file)).collect()
}

fn case(file: &Path) -> Case {
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (wrapped, plain) = (dir.path().join("wrapped"), dir.path().join("plain"));
    let mut places = BTreeMap::new();
    let mut tensors = vec![];
    for (place, tensor) in json["plain"].as_array().unwrap().iter().enumerate() {
        let (name, shape) = (tensor[0].as_str().unwrap(), shape(&tensor[1]));
        places.insert(name.to_owned(), place);
        tensors.push((name.to_owned(), shape.clone(), values(place, &shape)));
    }
    write(&plain, &json["plain_config"], &tensors);
    let mut tensors = vec![];
    for (i, tensor) in json["tensors"].as_array().unwrap().iter().enumerate() {
        let (name, shape) = (tensor[0].as_str().unwrap(), shape(&tensor[2]));
        let place = tensor[1].as_str().map_or(1000 + i, |plain| places[plain]);
        tensors.push((name.to_owned(), shape.clone(), values(place, &shape)));
    }
    write(&wrapped, &json["config"], &tensors);
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    Case { name, json, wrapped, plain, _dir: dir }
}

/// Every canonical parameter with its values.
fn parameters(path: &Path, layout: LayoutKind) -> Result<BTreeMap<String, Vec<u8>>, weighbridge::Error> {
    let checkpoint = open(path)?;
    let model = describe(&checkpoint)?;
    let planned = plan(&checkpoint, &model, layout)?;
    let names: Vec<String> = planned.params().iter().map(|p| p.name.clone()).collect();
    let loaded = planned.load(&mut Pool::new(1))?;
    Ok(names.into_iter().map(|name| (name.clone(), loaded.get(&name).unwrap().bytes().to_vec())).collect())
}

#[test]
fn what_is_wrapped_is_what_is_plain() {
    let cases = cases();
    assert!(cases.len() >= 30, "{}", cases.len());
    for case in &cases {
        let name = &case.name;
        if !case.json["without"].as_array().unwrap().is_empty() {
            continue;
        }
        assert!(case.json.get("logits").is_none_or(|distance| *distance == json!(0.0)), "{name}");
        for layout in [LayoutKind::Canonical, LayoutKind::InPlace] {
            let wrapped = parameters(&case.wrapped, layout).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(wrapped == parameters(&case.plain, layout).unwrap(), "{name}");
        }
        let checkpoint = open(&case.wrapped).unwrap();
        let model = describe(&checkpoint).unwrap();
        let plain = describe(&open(&case.plain).unwrap()).unwrap();
        assert_eq!(model.unlike(&plain), [], "{name}");
        // Each part beside the text is left by its name, and nothing else is.
        let dropped = resolve(&checkpoint, &model).unwrap().dropped;
        let mut dropped: Vec<&str> = dropped.iter().map(|(entry, _)| entry.as_str()).collect();
        let tensors = case.json["tensors"].as_array().unwrap().iter();
        let mut beside: Vec<&str> =
            tensors.filter(|t| t[1].is_null()).map(|t| t[0].as_str().unwrap()).collect();
        dropped.sort_unstable();
        beside.sort_unstable();
        assert_eq!(dropped, beside, "{name}");
    }
}

/// A backbone whose configuration does not tie the output matrix lacks it, which is said; all else is there.
#[test]
fn a_backbone_without_its_output_matrix_says_so() {
    let cases = cases();
    let lacking = cases.iter().filter(|c| !c.json["without"].as_array().unwrap().is_empty());
    let mut count = 0;
    for case in lacking {
        count += 1;
        let checkpoint = open(&case.wrapped).unwrap();
        let model = describe(&checkpoint).unwrap();
        let Err(error) = resolve(&checkpoint, &model) else { panic!("{}", case.name) };
        let text = error.to_string();
        assert!(text.contains("lm_head.weight` is missing"), "{}: {text}", case.name);
        let hints = error.hints();
        let backbone = "a backbone that was saved alone has no output matrix";
        assert!(hints.iter().any(|hint| hint.starts_with(backbone)), "{}: {hints:?}", case.name);
        let adapter = Adapter {
            allow_missing: vec![weighbridge::tensor::Pattern::new("output.weight")],
            ..Adapter::default()
        };
        let resolved = adapter.resolve(&checkpoint, &model).unwrap();
        assert_eq!(resolved.absent[0].param, "output.weight");
    }
    assert!(count >= 3);
}

/// A small llama, its tensors under `rename`d names; several names make copies.
fn llama(dir: &Path, rename: impl Fn(&str) -> Vec<String>) -> PathBuf {
    let golden = testkit::golden("wrappers/compile.json");
    let json: Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    let mut tensors = vec![];
    for (place, tensor) in json["plain"].as_array().unwrap().iter().enumerate() {
        let shape = shape(&tensor[1]);
        for name in rename(tensor[0].as_str().unwrap()) {
            tensors.push((name, shape.clone(), values(place, &shape)));
        }
    }
    let path = dir.join("model");
    write(&path, &json["plain_config"], &tensors);
    path
}

#[test]
fn wrappers_within_wrappers_open() {
    let dir = tempfile::tempdir().unwrap();
    let plain = llama(dir.path(), |name| vec![name.to_owned()]);
    let wanted = parameters(&plain, LayoutKind::Canonical).unwrap();
    for (before, after) in [
        ("module._orig_mod.", ""),
        ("_orig_mod.module.", ""),
        ("base_model.model.", ""),
        ("module.base_model.model._orig_mod.", ""),
        ("base_model.model.language_model.", ""),
        ("_orig_mod.language_model.", ""),
        ("module.", "language_model."),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = llama(dir.path(), |name| match name.strip_prefix("model.") {
            // As multimodal models have it in memory: `model.language_model.` and `lm_head.`
            Some(rest) if !after.is_empty() => vec![format!("{before}model.{after}{rest}")],
            _ => vec![format!("{before}{name}")],
        });
        let found = parameters(&path, LayoutKind::Canonical).unwrap_or_else(|e| panic!("{before}: {e}"));
        assert!(found == wanted, "{before}");
    }
}

#[test]
fn two_text_models_in_one_file_are_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    let path = llama(dir.path(), |name| vec![name.to_owned(), format!("language_model.{name}")]);
    let checkpoint = open(&path).unwrap();
    let Err(error) = resolve(&checkpoint, &describe(&checkpoint).unwrap()) else { panic!() };
    let error = error.diagnostics().to_string().replace(&path.display().to_string(), "PATH");
    insta::assert_snapshot!(error, @r#"
    `PATH` (llama): two models are in it: 11 kinds of the model's names under `model.`, 11 under `language_model.model.`
    hint: a rule leaves one of them: rule = [{ from = "language_model.{rest..}", drop = "another model" }]
    "#);
    // The hint works.
    let (_, rule) = error.split_once("leaves one of them: ").unwrap();
    let adapter = Adapter { mapping: Some(parse_rules("hint", rule).unwrap()), ..Adapter::default() };
    let resolved = adapter.resolve(&checkpoint, &describe(&checkpoint).unwrap()).unwrap();
    assert_eq!(resolved.dropped.len(), 21);
    // The same tensors twice, in one wrapper and outside.
    let dir = tempfile::tempdir().unwrap();
    let path = llama(dir.path(), |name| vec![name.to_owned(), format!("module.{name}")]);
    let checkpoint = open(&path).unwrap();
    let Err(error) = resolve(&checkpoint, &describe(&checkpoint).unwrap()) else { panic!() };
    let error = error.diagnostics().to_string().replace(&path.display().to_string(), "PATH");
    insta::assert_snapshot!(error, @"
    `PATH` (llama): `lm_head.weight` and `module.lm_head.weight` are the same tensor of the model, each in another wrapper
    hint: a rule with `drop` leaves one of them
    ");
}

/// Names that all differ alike are one line, and what its hint says works.
#[test]
fn the_rule_of_the_hint_mends_the_names() {
    type Rename = fn(&str) -> String;
    let renames: [(&str, Rename); 5] = [
        ("a prefix", |name| format!("student.net.{name}")),
        ("a suffix", |name| format!("{name}.data")),
        ("no suffix", |name| name.replace(".weight", "")),
        ("another prefix of some", |name| name.replace("model.", "decoder.")),
        ("another prefix of the layers", |name| name.replace("model.layers.", "h.")),
    ];
    for (what, rename) in renames {
        let dir = tempfile::tempdir().unwrap();
        let path = llama(dir.path(), |name| vec![rename(name)]);
        let checkpoint = open(&path).unwrap();
        let model = describe(&checkpoint).unwrap();
        let Err(planner::Error::Misfit { problems, .. }) = resolve(&checkpoint, &model) else {
            panic!("{what}")
        };
        assert_eq!(problems.diagnostics().iter().len(), 1, "{what}: {problems}");
        let rule = problems.rule().unwrap_or_else(|| panic!("{what}: {problems}"));
        assert!(problems.hints().iter().any(|hint| hint.contains(rule)), "{what}");
        let adapter = Adapter { mapping: Some(parse_rules("hint", rule).unwrap()), ..Adapter::default() };
        let resolved = adapter.resolve(&checkpoint, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(resolved.params.len(), 21, "{what}");
    }
}

//! Presets that are named as llama.cpp's file types choose what llama-quantize chooses: `golden/presets`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weighbridge::checkpoint::Value;
use weighbridge::convert::{Conversion, ConvertOptions, Imatrix, OutputFormat};
use weighbridge::planner::{PRESETS, Preset, PresetGroup};
use weighbridge::{Checkpoint, LayoutKind, Pool, open};

use crate::convert::imatrix;

/// llama-quantize's result for a model and one file type: keys of the metadata, and types by pattern of names.
#[derive(Default)]
struct Made {
    keys: BTreeMap<String, u32>,
    types: BTreeMap<String, Vec<String>>,
}

/// By file type, and whether there was an importance matrix.
type Table = BTreeMap<(String, bool), Made>;

/// The model called `name`, whose data is a hole, and what was made of it.
fn model(name: &str, dir: &Path) -> (PathBuf, Table) {
    let golden = testkit::golden("presets");
    let (path, mut table) = (dir.join("model.gguf"), Table::new());
    fs::copy(golden.join(format!("{name}.gguf")), &path).unwrap();
    let text = fs::read_to_string(golden.join(format!("{name}.tsv"))).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [file_type, guide, what, value] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{name}: {line}")
        };
        if what == "bytes" {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_len(value.parse().unwrap()).unwrap();
            continue;
        }
        let made = table.entry((file_type.to_owned(), guide == "imatrix")).or_default();
        if what.starts_with("general.") {
            made.keys.insert(what.to_owned(), value.parse().unwrap());
            continue;
        }
        let types = value.split(' ').flat_map(|run| {
            let (of, count) = run.split_once('*').unwrap_or((run, "1"));
            std::iter::repeat_n(of.to_owned(), count.parse().unwrap())
        });
        made.types.insert(what.to_owned(), types.collect());
    }
    assert!(table.len() > 20, "{name}");
    (path, table)
}

fn names() -> Vec<String> {
    let files = fs::read_dir(testkit::golden("presets")).unwrap();
    let name = |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".tsv")?.to_owned());
    let mut names: Vec<String> = files.filter_map(|file| name(file.unwrap())).collect();
    names.sort();
    names
}

/// The pattern of a name in the table, and the layer.
fn pattern(name: &str) -> (String, usize) {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    layer.map_or((name.to_owned(), 0), |(n, rest)| (format!("blk.{{n}}.{rest}"), n.parse().unwrap()))
}

/// Returns the schemes that a conversion with these options would write, by pattern and in the order of layers.
/// Patterns without a change are left out, as in the table.
fn chosen(source: &Checkpoint, options: &ConvertOptions<'_>) -> BTreeMap<String, Vec<String>> {
    let conversion = Conversion::new(source, LayoutKind::Source, OutputFormat::Gguf, options).unwrap();
    let mut all: BTreeMap<String, BTreeMap<usize, (String, bool)>> = BTreeMap::new();
    for (name, scheme) in conversion.tensors() {
        let ((pattern, layer), is) = (pattern(name), scheme.name.to_string());
        let is_changed = source.entries().iter().find(|e| e.name == name).unwrap().scheme.name != scheme.name;
        assert!(all.entry(pattern).or_default().insert(layer, (is, is_changed)).is_none(), "{name}");
    }
    let changed = all.into_iter().filter(|(_, layers)| layers.values().any(|(_, changed)| *changed));
    changed.map(|(what, layers)| (what, layers.into_values().map(|(is, _)| is).collect())).collect()
}

/// An importance matrix that says something about one tensor, and that there is one is all that counts here.
fn guide(source: &Checkpoint, dir: &Path) -> Imatrix {
    let entry = source.entries().iter().find(|e| e.name == "blk.0.attn_output.weight").unwrap();
    let columns = usize::try_from(*entry.shape.last().unwrap()).unwrap();
    let path = dir.join("imatrix.gguf");
    imatrix(&path, &entry.name, &vec![1.0; columns], &[1.0]);
    Imatrix::open(&path).unwrap()
}

#[test]
fn every_tensor_gets_the_type_that_llama_quantize_gives_it() {
    let names = names();
    assert!(names.len() >= 15, "{names:?}");
    let mut wrong = vec![];
    for name in &names {
        let dir = tempfile::tempdir().unwrap();
        let (path, table) = model(name, dir.path());
        let source = open(&path).unwrap();
        let guide = guide(&source, dir.path());
        for ((file_type, guided), made) in &table {
            let preset = Preset::named(file_type);
            assert!(preset.is_some(), "there is no preset `{file_type}`");
            assert_eq!(
                preset.and_then(Preset::file_type),
                Some(made.keys["general.file_type"]),
                "{file_type}"
            );
            let imatrix = guided.then_some(&guide);
            let options = ConvertOptions { preset, imatrix, allow_requantize: true, ..Default::default() };
            let found = chosen(&source, &options);
            for what in made.types.keys().chain(found.keys()) {
                let (wanted, found) = (made.types.get(what), found.get(what));
                if wanted != found {
                    wrong.push(format!(
                        "{name}, {file_type}, imatrix {guided}: {what}\n  {wanted:?}\n  {found:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Each is there, under llama.cpp's name.
#[test]
fn every_preset_of_gguf_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let (_, table) = model("llama", dir.path());
    for preset in PRESETS.iter().filter(|p| matches!(p.group(), PresetGroup::Gguf | PresetGroup::Any)) {
        for name in preset.alias().into_iter().chain([preset.name()]) {
            assert!(table.keys().any(|(file_type, _)| file_type.eq_ignore_ascii_case(name)), "{name}");
        }
    }
}

/// The file, too, says what it is.
#[test]
fn the_keys_of_the_metadata_are_those_of_llama_quantize() {
    let dir = tempfile::tempdir().unwrap();
    let (path, table) = model("narrow", dir.path());
    let source = open(&path).unwrap();
    let guide = guide(&source, dir.path());
    for ((file_type, guided), made) in &table {
        let out = dir.path().join(format!("{file_type}-{guided}.gguf"));
        let imatrix = guided.then_some(&guide);
        let options = ConvertOptions { preset: Preset::named(file_type), imatrix, ..Default::default() };
        let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options).unwrap();
        conversion.run(&out, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
        let written = open(&out).unwrap();
        for (key, wanted) in &made.keys {
            let found = written.metadata().gguf().unwrap().get(key);
            assert_eq!(found, Some(Value::U32(*wanted)), "{file_type}: {key}");
        }
    }
}

/// llama-quantize refuses it too: `tensor_requires_imatrix`.
#[test]
fn what_is_garbage_without_an_importance_matrix_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = model("llama", dir.path());
    let source = open(&path).unwrap();
    let options = ConvertOptions { preset: Preset::named("q2_k_s"), ..Default::default() };
    let error = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the preset `q2_k_s` needs an importance matrix to make `q2_k` (110 tensors)"
    );
    assert_eq!(error.hints(), ["the preset `q2_k` needs none"]);
}

/// Bits by pattern of names, in the order of layers: one number if they are alike, as in the table.
fn bits_of(tensors: &[(String, String)]) -> BTreeMap<String, serde_json::Value> {
    let mut all: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for (name, scheme) in tensors {
        let Some(params) = scheme.strip_prefix("mlx-affine:b") else { continue };
        let (bits, rest) = params.split_once(',').unwrap();
        assert!(rest.starts_with("g64,"), "{scheme}");
        let (layer, pattern) = layer_and_pattern(name);
        let bits = bits.parse().unwrap();
        assert!(all.entry(pattern).or_default().insert(layer.unwrap_or(0), bits).is_none(), "{name}");
    }
    let row = |(pattern, layers): (String, BTreeMap<u64, u64>)| {
        let bits: Vec<u64> = layers.into_values().collect();
        let alike = bits.iter().all(|b| *b == bits[0]);
        (pattern, if alike { bits[0].into() } else { bits.into() })
    };
    all.into_iter().map(row).collect()
}

/// The layer that a name is of, if any, and the name with `{n}` for it.
fn layer_and_pattern(name: &str) -> (Option<u64>, String) {
    let number = || name.split_once("layers.")?.1.split('.').next()?.parse::<u64>().ok();
    match number() {
        Some(n) => (Some(n), name.replace(&format!("layers.{n}."), "layers.{n}.")),
        None => (None, name.to_owned()),
    }
}

/// `golden/presets/mlx`: mlx-lm's name of every tensor, and the bits that it gives it.
#[test]
fn every_module_gets_the_bits_that_mlx_lm_gives_it() {
    let (mut judged, mut wrong) = (0, vec![]);
    for file in fs::read_dir(testkit::golden("presets/mlx")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), golden["config"].to_string()).unwrap();
        let tensors = golden["tensors"].as_array().unwrap();
        let (mut header, mut end) = (serde_json::Map::new(), 0);
        for tensor in tensors {
            let shape: Vec<u64> = serde_json::from_value(tensor[1].clone()).unwrap();
            let start = end;
            end += 2 * shape.iter().product::<u64>();
            let info = serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
            header.insert(tensor[0].as_str().unwrap().to_owned(), info);
        }
        let header = testkit::fixture::safetensors_bytes(&serde_json::Value::Object(header).to_string(), &[]);
        let path = dir.path().join("model.safetensors");
        fs::write(&path, &header).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(header.len() as u64 + end).unwrap();
        let source = open(dir.path()).unwrap();
        let options = ConvertOptions::default();
        let plain = Conversion::new(&source, LayoutKind::Source, OutputFormat::Mlx, &options).unwrap();
        let names: BTreeSet<String> = plain.tensors().map(|(name, _)| layer_and_pattern(name).1).collect();
        let wanted: BTreeSet<String> = serde_json::from_value(golden["mlx"].clone()).unwrap();
        assert_eq!(names, wanted, "{}", source.location());
        for (name, wanted) in golden["presets"].as_object().unwrap() {
            let options = ConvertOptions { preset: Preset::named(name), ..Default::default() };
            assert!(options.preset.is_some(), "{name}");
            let conversion =
                Conversion::new(&source, LayoutKind::Source, OutputFormat::Mlx, &options).unwrap();
            let tensors: Vec<(String, String)> =
                conversion.tensors().map(|(n, s)| (n.to_owned(), s.name.to_string())).collect();
            let found = bits_of(&tensors);
            let wanted: BTreeMap<String, serde_json::Value> = serde_json::from_value(wanted.clone()).unwrap();
            for what in wanted.keys().chain(found.keys()) {
                let (wanted, found) = (wanted.get(what), found.get(what));
                if wanted != found {
                    wrong.push(format!("{}, {name}: {what}\n  {wanted:?}\n  {found:?}", source.location()));
                }
            }
            judged += 1;
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    let presets = PRESETS.iter().filter(|p| p.group() == PresetGroup::Mlx).count();
    assert_eq!(judged, 8 * presets);
}

/// docs/encoding.md has a row for each, in their order.
#[test]
fn the_docs_list_every_preset() {
    let path = testkit::golden("../docs/encoding.md");
    let text = fs::read_to_string(path).unwrap();
    let row = |preset: &Preset| {
        let names: Vec<String> =
            [preset.name()].into_iter().chain(preset.alias()).map(|name| format!("`{name}`")).collect();
        let whom = preset.group().format().unwrap_or("any format");
        format!("| {} | {:.1} | {whom} | {}", names.join(", "), preset.bits(), preset.about())
    };
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let wanted: Vec<String> = PRESETS.iter().map(row).collect();
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!(found.starts_with(wanted.as_str()), "wanted {wanted}\nfound  {found}");
    }
}

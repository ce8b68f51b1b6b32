//! A family that is registered from outside: the one of the example, against transformers and llama.cpp's converter.

#[path = "../../examples/own_family/arcee.rs"]
mod arcee;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Once;

use serde_json::Value;
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::model::{self, Verdict};
use weighbridge::plan::{PlannedParam, Whole};
use weighbridge::planner::plan_as_stored;
use weighbridge::{Checkpoint, LayoutKind, Mesh, PlanBuilder, Pool, describe, open};

use crate::families::{self, gives_the_same_parameters, goes_to_gguf_and_back};
use crate::perturbed::{self, distance};

const NAME: &str = "arcee";

/// Once for all tests of the process.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| model::register(&arcee::Arcee).unwrap());
}

fn names_and_shapes() -> families::Family {
    families::Family::read(&testkit::golden("families/own/arcee.json"))
}

/// The model with logits, as transformers saves it.
fn hf(dir: &Path) -> (perturbed::Family, Checkpoint) {
    let family = perturbed::Family::read(NAME);
    std::fs::create_dir(dir).unwrap();
    family.write(dir, &Value::Null);
    (family, open(dir).unwrap())
}

fn convert(
    source: &Checkpoint,
    to: &Path,
    format: OutputFormat,
    options: &ConvertOptions,
) -> Result<(), String> {
    let conversion =
        Conversion::new(source, LayoutKind::Source, format, options).map_err(|e| e.to_string())?;
    conversion.run(to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).map_err(|e| e.to_string())?;
    Ok(())
}

/// Shape, scheme and bytes of every tensor.
fn tensors(checkpoint: &Checkpoint) -> BTreeMap<String, (Vec<u64>, String, Vec<u8>)> {
    let plan = plan_as_stored(checkpoint).unwrap();
    let loaded = plan.load(&mut Pool::new(1)).unwrap();
    let one = |p: &PlannedParam| {
        let bytes = loaded.get(&p.name).unwrap().bytes().to_vec();
        (p.name.clone(), (p.shape.to_vec(), p.scheme.name.to_string(), bytes))
    };
    plan.params().iter().map(one).collect()
}

/// Every field of the reference's configuration, and every one of other families, removed and set to other values.
#[test]
fn each_key_does_what_it_does_in_transformers() {
    register();
    perturbed::check(NAME);
}

#[test]
fn each_key_of_transformers_and_of_llama_cpp_has_a_verdict() {
    register();
    let dir = tempfile::tempdir().unwrap();
    let (_, hf) = hf(&dir.path().join("hf"));
    let to = dir.path().join("x.gguf");
    convert(&hf, &to, OutputFormat::Gguf, &ConvertOptions::default()).unwrap();
    for checkpoint in [hf, open(&to).unwrap()] {
        let verdicts = describe(&checkpoint).unwrap().verdicts(checkpoint.metadata());
        let unknown: Vec<_> = verdicts.iter().filter(|v| v.verdict == Verdict::Unknown).collect();
        assert!(verdicts.len() > 10 && unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
fn names_shapes_and_keys_are_those_of_both_ecosystems() {
    register();
    let family = names_and_shapes();
    gives_the_same_parameters(&family, NAME);
    goes_to_gguf_and_back(&family);
}

#[test]
fn logits_are_those_of_transformers_from_hf_from_gguf_and_back() {
    register();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (family, source) = hf(&path("hf"));
    let options = ConvertOptions::default();
    convert(&source, &path("model.gguf"), OutputFormat::Gguf, &options).unwrap();
    convert(&open(path("model.gguf")).unwrap(), &path("back"), OutputFormat::Hf, &options).unwrap();
    for name in ["hf", "model.gguf", "back"] {
        let found = family.logits(&path(name)).unwrap();
        let off = distance(&found, family.row(0));
        assert!(off <= 1e-5, "{name}: {off:e}");
    }
    let back = open(path("back")).unwrap();
    assert!(tensors(&source) == tensors(&back));
    assert_eq!(describe(&source).unwrap().unlike(&describe(&back).unwrap()), []);
}

/// A feature that llama.cpp does not have is rejected by the key's name, and written if its loss is allowed.
#[test]
fn what_gguf_cannot_say_is_a_loss_by_name() {
    register();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hf");
    let (_, source) = hf(&path);
    let config = path.join("config.json");
    let original: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    drop(source);
    for (key, value) in [("hidden_act", Value::from("relu")), ("hidden_act", Value::from("silu"))] {
        let mut changed = original.clone();
        changed[key] = value;
        std::fs::write(&config, changed.to_string()).unwrap();
        let source = open(&path).unwrap();
        let to = dir.path().join("x.gguf");
        let refused = convert(&source, &to, OutputFormat::Gguf, &ConvertOptions::default()).unwrap_err();
        assert!(refused.contains(&format!("`{key}`")), "{refused}");
        let allowed =
            ConvertOptions { allow_loss: vec![key.to_owned()], overwrite: true, ..ConvertOptions::default() };
        convert(&source, &to, OutputFormat::Gguf, &allowed).unwrap();
    }
}

/// Two ranks hold all of it between them: rows of what is shared by rows, columns of what is shared by columns.
#[test]
fn two_ranks_share_it() {
    register();
    let dir = tempfile::tempdir().unwrap();
    let (_, source) = hf(&dir.path().join("hf"));
    let ranks = PlanBuilder::new(&source)
        .layout(LayoutKind::Modules)
        .mesh(Mesh { tp: 2, ..Mesh::default() })
        .ranks()
        .unwrap();
    let mut whole = Whole::default();
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank).unwrap();
        whole.add(plan.pieces());
        let shape = |name: &str| plan.params().iter().find(|p| p.name == name).unwrap().shape.to_vec();
        assert_eq!(shape("layers.0.attention.qkv.weight"), [32 + 2 * 16, 32], "rank {rank}");
        assert_eq!(shape("layers.1.attention.output.weight"), [32, 32]);
        assert_eq!(shape("layers.1.ffn.up.weight"), [24, 32]);
        assert_eq!(shape("layers.1.ffn.down.weight"), [32, 24]);
        assert_eq!(shape("layers.2.attention_norm.weight"), [32]);
    }
    assert_eq!(whole.untaken(source.entries()).len(), 0);
    let vllm = PlanBuilder::new(&source).layout(weighbridge::vllm::LAYOUT).build().unwrap_err().to_string();
    assert!(vllm.contains("arcee"), "{vllm}");
}

/// One file and one call: the page shows the file as it is compiled here.
#[test]
fn the_page_on_adding_a_family_shows_the_example() {
    let page = include_str!("../../../../docs/adding-a-family.md");
    let file = include_str!("../../examples/own_family/arcee.rs");
    assert!(
        page.contains(&format!("```rust\n{file}```")),
        "docs/adding-a-family.md has another text than the example"
    );
}

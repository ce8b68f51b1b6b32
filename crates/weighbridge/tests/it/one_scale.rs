//! Matrices that are stored with a scale each, fused: each row keeps its own, or all get one.

use std::fs;
use std::path::Path;

use load::Error;
use serde_json::{Map, Value, json};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::load::export;
use weighbridge::planner::plan_as_stored;
use weighbridge::{
    Checkpoint, LayoutKind, Loaded, Mesh, Plan, PlanBuilder, Pool, TensorEntry, describe, open,
};

use crate::vllm;

/// A file of golden/vllm.
fn golden(name: &str) -> Value {
    let path = testkit::golden("vllm").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The llama there in FP8, a scale for each matrix.
fn fp8(folder: &Path) -> Checkpoint {
    vllm::checkpoint(&golden("llama-fp8t.json"), folder)
}

/// The same in NVFP4, with factors of the matrices that are made by `rule`.
fn nvfp4(folder: &Path, rule: &str) -> Checkpoint {
    let mut golden = golden("llama-bf16.json");
    let stored = golden["entries"].as_array().unwrap().iter().flat_map(|entry| {
        let name = entry[0].as_str().unwrap();
        let Some(module) = name.strip_suffix("_proj.weight") else { return vec![entry.clone()] };
        let [out, inputs] = [0, 1].map(|i| entry[1][i].as_u64().unwrap());
        vec![
            json!([name, [out, inputs / 2], "U8"]),
            json!([format!("{module}_proj.weight_scale"), [out, inputs / 16], "F8_E4M3"]),
            json!([format!("{module}_proj.weight_scale_2"), [], "F32"]),
        ]
    });
    let entries: Vec<Value> = stored.collect();
    golden["entries"] = entries.into();
    golden["exceptions"] = json!([[".weight_scale_2", rule], [".weight_scale", "u8: 127 and 255 are 0"]]);
    let config: &mut Map<String, Value> = golden["config"].as_object_mut().unwrap();
    config.insert("quantization_config".into(), json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}));
    vllm::checkpoint(&golden, folder)
}

fn filled(checkpoint: &Checkpoint, layout: LayoutKind) -> (Plan, Loaded) {
    let plan = PlanBuilder::new(checkpoint).layout(layout).build().unwrap();
    let loaded = plan.load(&mut Pool::new(2)).unwrap();
    (plan, loaded)
}

fn values(loaded: &Loaded, name: &str) -> Vec<u32> {
    let tensor = loaded.get(name).unwrap();
    let [rows, k] = tensor.shape()[..] else { panic!("{name}") };
    let (rows, k) = (usize::try_from(rows).unwrap(), usize::try_from(k).unwrap());
    let mut out = vec![0f32; rows * k];
    let codec = quant::codec(&tensor.scheme().name).unwrap();
    codec.decode(quant::Matrix { planes: &tensor.planes(), rows, k }, 0..rows, &mut out);
    out.into_iter().map(f32::to_bits).collect()
}

/// Fused, of parts under these names, one below the other.
const FUSED: [(&str, &[&str]); 2] = [
    ("layers.0.attention.qkv.weight", &["attention.q", "attention.k", "attention.v"]),
    ("layers.0.ffn.gate_up.weight", &["ffn.gate", "ffn.up"]),
];

#[test]
fn each_row_keeps_its_scale_where_the_runtime_takes_that() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = fp8(folder.path());
    let (plan, fused) = filled(&checkpoint, LayoutKind::Modules);
    let (_, apart) = filled(&checkpoint, LayoutKind::Canonical);
    for (name, parts) in FUSED {
        let planned = plan.find(name).unwrap();
        assert_eq!((&*planned.scheme.name, planned.steps.len()), ("fp8:e4m3,row,f32", 0), "{name}");
        let parts = parts.iter().map(|part| values(&apart, &format!("layers.0.{part}.weight")));
        assert!(values(&fused, name) == parts.collect::<Vec<_>>().concat(), "{name}");
    }
    // Alone, a matrix stays as it is.
    assert_eq!(&*plan.find("layers.0.ffn.down.weight").unwrap().scheme.name, "fp8:e4m3,tensor,f32");
}

/// Both ways of fusing, on ranks, and the checkpoint again: bit for bit where rows kept their scales, within half a step of
/// the largest code's where they were merged.
#[test]
fn what_was_fused_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = fp8(folder.path());
    let stored = plan_as_stored(&checkpoint).unwrap().load(&mut Pool::new(2)).unwrap();
    for layout in [LayoutKind::Modules, weighbridge::vllm::LAYOUT] {
        let mesh = Mesh { tp: 4, ..Mesh::default() };
        let ranks = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).ranks().unwrap();
        let plans: Vec<Plan> = (0..4).map(|rank| ranks.plan(rank).unwrap()).collect();
        let held: Vec<_> = plans.iter().map(|p| p.load(&mut Pool::new(2)).unwrap()).collect();
        let both: Vec<_> = plans.iter().zip(&held).collect();
        let mut differ = vec![];
        let rounded = export(&both, |entry: &TensorEntry, planes| {
            let theirs = stored.get(&entry.name).unwrap().planes();
            if planes.iter().zip(theirs.iter()).any(|(a, b)| a[..] != b[..]) {
                let scale = |planes: &[u8]| f32::from_le_bytes(planes.try_into().unwrap());
                let (is, was) = (scale(&planes[1]), scale(theirs[1]));
                let e4m3 = |code: u8| {
                    let mut value = [0.0];
                    quant::codec("f8_e4m3").unwrap().decode_blocks(&[code], &mut value);
                    value[0]
                };
                assert!(is > was, "{}", entry.name);
                for (a, b) in planes[0].iter().zip(theirs[0]) {
                    let (found, wanted) = (e4m3(*a) * is, e4m3(*b) * was);
                    // Half of a step: of 3 bits of mantissa, or of the smallest number.
                    let half = (wanted.abs() / 16.0).max(is * 2f32.powi(-10)) * 1.0001;
                    assert!((found - wanted).abs() <= half, "{}: {wanted} is {found}", entry.name);
                }
                differ.push(entry.name.rsplit('.').nth(1).unwrap().to_owned());
            }
            Ok::<(), Error>(())
        })
        .unwrap();
        if layout == LayoutKind::Modules {
            assert_eq!((&differ[..], &rounded[..]), (&[][..], &[][..]));
        } else {
            // The part with the largest scale is as it was.
            assert_eq!(differ.len(), 3, "{differ:?}");
            assert!(
                rounded.iter().all(|n| n.contains("qkv_proj") || n.contains("gate_up_proj")),
                "{rounded:?}"
            );
            assert_eq!(rounded.len(), 2 * 4);
        }
    }
}

#[test]
fn a_plan_says_that_scales_are_merged_and_bounds_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = fp8(folder.path());
    let (plan, loaded) = filled(&checkpoint, weighbridge::vllm::LAYOUT);
    let name = "model.layers.0.self_attn.qkv_proj.weight";
    let explained = plan.explain(name).unwrap();
    let step = "then fp8:e4m3,row,f32 -> fp8:e4m3,tensor,f32 (lossy: rows whose scale is not the largest are rounded to that)";
    assert!(explained.contains(step), "{explained}");
    let lost = &loaded.report().differences;
    assert!(lost[name].squares > 0.0 && lost[name].relative() < 0.03, "{:?}", lost[name]);
    assert!(!lost.contains_key("model.layers.0.mlp.down_proj.weight"));

    // The whole of what is fused is there at once, in eight bits, and nothing else.
    let whole = 2048 * 2 * 256 + 2048 * 2 * 4;
    let options = |memory| load::Options { memory: Some(memory), ..load::Options::default() };
    let bounded = plan.load_with(&mut Pool::new(2), options(whole + (64 << 10)));
    let bounded = bounded.unwrap();
    assert!(bounded.report().scratch_peak <= whole + (64 << 10));
    for name in loaded.names() {
        assert!(
            bounded.get(name).unwrap().planes().iter().eq(loaded.get(name).unwrap().planes().iter()),
            "{name}"
        );
    }
    let little = plan.load_with(&mut Pool::new(2), options(whole / 2)).err().unwrap();
    assert!(matches!(little, Error::LittleMemory { .. }), "{little}");
}

/// Scales that are no numbers are refused by name, wherever they come from.
#[test]
fn a_scale_that_is_no_number_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(fp8(folder.path()));
    let path = folder.path().join("model.safetensors");
    let mut file = fs::read(&path).unwrap();
    let checkpoint = open(folder.path()).unwrap();
    let entry = checkpoint.entries().iter().find(|e| e.name.ends_with("k_proj.weight")).unwrap();
    let at = usize::try_from(entry.planes[1].bytes.start).unwrap();
    file[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, file).unwrap();
    let checkpoint = open(folder.path()).unwrap();
    let plan = PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).build().unwrap();
    let error = plan.load(&mut Pool::new(2)).err().unwrap().to_string();
    assert!(error.contains("qkv_proj") && error.contains("plane `scales`: a scale at cell 2048"), "{error}");
}

#[test]
fn factors_of_nvfp4_must_agree() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = nvfp4(folder.path(), "f32: 1");
    assert_eq!(describe(&checkpoint).unwrap().family.name(), "llama");
    let (_, apart) = filled(&checkpoint, LayoutKind::Canonical);
    for layout in [LayoutKind::Modules, weighbridge::vllm::LAYOUT] {
        let (_, fused) = filled(&checkpoint, layout);
        let names = ["model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.mlp.gate_up_proj.weight"];
        for ((name, parts), vllm) in FUSED.into_iter().zip(names) {
            let name = if layout == weighbridge::vllm::LAYOUT { vllm } else { name };
            let parts = parts.iter().map(|part| values(&apart, &format!("layers.0.{part}.weight")));
            assert!(values(&fused, name) == parts.collect::<Vec<_>>().concat(), "{name}");
        }
    }
    let checkpoint = nvfp4(folder.path(), "f32: 0.5 + (word % 2^20) / 2^20");
    let plan = PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).build().unwrap();
    let error = plan.load(&mut Pool::new(2)).err().unwrap().to_string();
    let named = |fused: &str, parts: [&str; 2]| {
        let [a, b] = parts.map(|part| format!("`model.layers.0.{part}_proj.weight`"));
        let says = format!(
            "`model.layers.0.{fused}_proj.weight` has one `weight_scale_2` for all its parts, and those of {a}, {b}"
        );
        error.starts_with(&says)
    };
    let either = named("self_attn.qkv", ["self_attn.q", "self_attn.k"])
        || named("mlp.gate_up", ["mlp.gate", "mlp.up"]);
    assert!(either, "{error}");
}

/// Files that vLLM would not load, or would misread, are rejected before anything is written.
#[test]
fn what_the_loader_of_shards_cannot_have_is_refused() {
    let refused = |golden: &Value, rules: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = vllm::checkpoint(golden, folder.path());
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let options = ConvertOptions { rules, ..ConvertOptions::default() };
        Conversion::new(&checkpoint, weighbridge::vllm::LAYOUT, OutputFormat::Hf, &options)
            .err()
            .map(|e| e.to_string())
    };
    let experts = refused(&golden("mixtral-fp8t.json"), &[]).unwrap();
    assert!(
        experts.contains("experts.routed_experts.w13_weight` is fp8:e4m3,tensor,f32: vLLM wants two"),
        "{experts}"
    );
    assert_eq!(refused(&golden("mixtral-fp8t.json"), &["*=bf16"]), None);
    let mut both = golden("mixtral-fp8t.json");
    let expert = "model.layers.0.block_sparse_moe.experts.0.w1.input_scale";
    both["entries"].as_array_mut().unwrap().push(json!([expert, [], "F32"]));
    let both = refused(&both, &[]).unwrap();
    assert!(both.contains(expert) && both.contains("w13_weight` is fp8:e4m3,tensor,f32"), "{both}");
    let mut known = golden("llama-fp8t.json");
    assert_eq!(refused(&known, &[]), None);
    let scale = "model.layers.0.self_attn.o_proj.input_scale";
    known["entries"].as_array_mut().unwrap().push(json!([scale, [], "F32"]));
    let activations = refused(&known, &[]).unwrap();
    assert!(activations.contains(scale), "{activations}");
    assert_eq!(refused(&known, &["*_proj.weight=bf16"]), None);
}

//! There and back: a checkpoint in a layout, on some ranks, and the checkpoint again.

use std::path::Path;

use load::Error;
use weighbridge::load::export;
use weighbridge::planner::{EncodeRule, packed_layout};
use weighbridge::{LayoutKind, Mesh, Plan, PlanBuilder, Pool, TensorEntry, describe, open};

use crate::{golden, model};

/// Loads a checkpoint in a layout on every rank of a mesh, and rebuilds its entries. Returns the entries that differ in
/// any bit, and the parameters that steps have rounded.
fn there_and_back(path: &Path, layout: LayoutKind, mesh: Mesh) -> (Vec<String>, Vec<String>) {
    let checkpoint = open(path).unwrap();
    let ranks = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).ranks().unwrap();
    let mut pool = Pool::new(2);
    let plans: Vec<Plan> = (0..ranks.count()).map(|rank| ranks.plan(rank).unwrap()).collect();
    let held: Vec<_> = plans.iter().map(|plan| plan.load(&mut pool).unwrap()).collect();
    let both: Vec<_> = plans.iter().zip(&held).collect();
    let stored = weighbridge::planner::plan_as_stored(&checkpoint).unwrap();
    let stored = stored.load(&mut pool).unwrap();
    let (mut differ, mut seen) = (vec![], 0);
    let rounded = export(&both, |entry: &TensorEntry, planes| {
        let theirs = stored.get(&entry.name).unwrap().planes();
        seen += 1;
        if planes.iter().zip(theirs.iter()).any(|(a, b)| a[..] != b[..]) {
            differ.push(entry.name.clone());
        }
        Ok::<(), Error>(())
    })
    .unwrap();
    let dropped = &plans[0].pieces().dropped;
    assert_eq!(seen + dropped.len(), checkpoint.entries().len(), "{} {}", path.display(), layout.name());
    (differ, rounded)
}

fn every_layout() -> Vec<LayoutKind> {
    vec![
        LayoutKind::Canonical,
        LayoutKind::InPlace,
        LayoutKind::Modules,
        weighbridge::vllm::LAYOUT,
        packed_layout().unwrap(),
        LayoutKind::Packed { rows: 8 },
    ]
}

/// GGUF and HF, whole and on several ranks: every step keeps every value, and every byte comes back.
#[test]
fn what_is_only_moved_comes_back_bit_for_bit() {
    let mesh = |tp, pp| Mesh { tp, pp, ..Mesh::default() };
    let cases = [
        (model("smollm2"), vec![mesh(1, 1), mesh(3, 1), mesh(3, 2)]),
        (golden().join("llama-tiny"), vec![mesh(1, 1), mesh(2, 1), mesh(4, 2)]),
        (golden().join("llama-tiny/model.gguf"), vec![mesh(1, 1), mesh(4, 1)]),
        (golden().join("gpt2-tiny"), vec![mesh(1, 1), mesh(2, 1)]),
        (golden().join("gpt2-tiny/model.gguf"), vec![mesh(1, 1), mesh(2, 2)]),
        (golden().join("gemma3-tiny/model.gguf"), vec![mesh(1, 1)]),
    ];
    for (path, meshes) in cases {
        for layout in every_layout() {
            for mesh in &meshes {
                if layout == weighbridge::vllm::LAYOUT && path.ends_with("gemma3-tiny/model.gguf") {
                    continue;
                }
                let (differ, rounded) = there_and_back(&path, layout, *mesh);
                let what = format!("{} {} {mesh:?}", path.display(), layout.name());
                assert!(differ.is_empty() && rounded.is_empty(), "{what}: {differ:?} {rounded:?}");
            }
        }
    }
}

/// Gemma's norms get one added, in f32, and are named.
#[test]
fn what_is_rounded_is_named() {
    let path = golden().join("gemma3-tiny");
    let config = describe(&open(&path).unwrap()).unwrap().config().clone();
    let (differ, rounded) = there_and_back(&path, LayoutKind::Canonical, Mesh::default());
    assert!(rounded.iter().all(|name| name.ends_with("norm.weight")), "{rounded:?}");
    assert_eq!(rounded.len() as u64, 6 * *config.layers + 1);
    assert!(differ.iter().all(|name| name.ends_with("norm.weight")), "{differ:?}");
    // vLLM adds it itself, so that nothing is rounded there.
    assert_eq!(there_and_back(&path, weighbridge::vllm::LAYOUT, Mesh::default()), (vec![], vec![]));
}

/// Values rounded on the way come back within half a step of the rounding: f32 at `1 + w` for Gemma's norms, and Q8_0
/// for encoded ones, whose scale (the largest of 32 values by 127) is itself rounded to f16.
#[test]
fn what_is_rounded_comes_back_within_half_a_step() {
    let plan = |path: &str, rules: &[&str]| {
        let checkpoint = open(golden().join(path)).unwrap();
        let rules: Vec<EncodeRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).encode(rules).build().unwrap();
        (checkpoint, plan)
    };
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    };
    for (path, rules) in [("gemma3-tiny", &[][..]), ("llama-tiny", &["layers.*.q.weight=q8_0"][..])] {
        let (checkpoint, plan) = plan(path, rules);
        let mut pool = Pool::new(2);
        let held = plan.load(&mut pool).unwrap();
        let stored = weighbridge::planner::plan_as_stored(&checkpoint).unwrap().load(&mut pool).unwrap();
        let (mut most, mut changed) = (0f32, 0);
        let rounded = export(&[(&plan, &held)], |entry: &TensorEntry, planes| {
            assert_eq!(&*entry.scheme.name, "f32", "{}", entry.name);
            let (back, was) = (floats(&planes[0]), floats(stored.get(&entry.name).unwrap().planes()[0]));
            for (back, was) in back.chunks(32).zip(was.chunks(32)) {
                let largest = was.iter().fold(0f32, |most, x| most.max(x.abs()));
                for (back, was) in back.iter().zip(was) {
                    let half = match rules {
                        [] => (1.0 + was).abs() * 2f32.powi(-24),
                        _ => largest / 127.0 * (0.5 + 127.0 * 2f32.powi(-11)),
                    };
                    let far = (back - was).abs();
                    most = most.max(far / half.max(f32::MIN_POSITIVE));
                    changed += u32::from(far > 0.0);
                }
            }
            Ok::<(), Error>(())
        });
        assert!(!rounded.unwrap().is_empty() && changed > 0, "{path}");
        assert!(most > 0.5 && most <= 1.0, "{path}: {most} of the bound");
    }
}

/// A rank that is not there is missed by name.
#[test]
fn what_nobody_holds_is_missed() {
    let checkpoint = open(golden().join("llama-tiny")).unwrap();
    let mesh = Mesh { tp: 2, ..Mesh::default() };
    let plan =
        PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).rank(1).build().unwrap();
    let held = plan.load(&mut Pool::new(1)).unwrap();
    let error = export(&[(&plan, &held)], |_, _| Ok::<(), Error>(())).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("`model.layers.0.self_attn.q_proj.weight` (data)") && !text.contains("norm"),
        "{text}"
    );
}

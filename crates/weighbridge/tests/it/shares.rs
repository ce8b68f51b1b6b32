//! All ranks of a mesh together: each byte of each source plane is taken by someone, alike where by several, and what
//! they hold rebuilds the whole.

use std::sync::Arc;

use model::{Along, Axis, ExpertPlacement, Holding, Mesh, ParamSpec, Role};
use plan::{Codecs, Fidelity, Whole, compile, resolve};
use proptest::prelude::*;
use tensor::{Binding, Bindings, Expr, FileId, PlaneData, Presence, Scheme, Shape, Target, TensorEntry};

struct NoCodecs;
impl Codecs for NoCodecs {
    fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
        None
    }
}

fn axis(kind: u8, units: u64, unit: u64) -> Along {
    match kind % 7 {
        0 => Axis::Heads.of_units(units, unit),
        1 => Axis::KvHeads.of_units(units, unit),
        2 => Axis::Ffn.of(units * unit),
        3 => Axis::Vocab.of(units * unit),
        4 => Axis::Expert.of(units),
        5 => Axis::Divided.of(units * unit),
        _ => Axis::Hidden.of(units * unit),
    }
}

/// A tensor of one entry in one scheme, or of a stack of entries.
fn entries(scheme: &Arc<Scheme>, shape: &Shape, stacked: bool) -> Option<(Vec<TensorEntry>, Expr)> {
    let of = |name: String, shape: Shape| {
        let mut at = 0;
        let planes = scheme.planes.iter().map(|plane| {
            let bytes = scheme.plane_bytes(plane, &shape).ok()?;
            at += bytes;
            Some(PlaneData { file: FileId(0), bytes: at - bytes..at })
        });
        let planes = planes.collect::<Option<Vec<_>>>()?;
        Some(TensorEntry { name, shape, scheme: Arc::clone(scheme), planes, strides: None })
    };
    if !stacked {
        return Some((vec![of("w".into(), shape.clone())?], Expr::source("w")));
    }
    let (count, each) = shape.split_first()?;
    let entries =
        (0..*count).map(|e| of(format!("w.{e}"), each.to_vec().into())).collect::<Option<Vec<_>>>()?;
    let parts = entries.iter().map(|e| Expr::source(&e.name)).collect();
    Some((entries, Expr::Stack(parts)))
}

/// A case that says nothing: it does not count.
fn reject() -> Result<(), TestCaseError> {
    Err(TestCaseError::reject("such a tensor is not shared so"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_global_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn ranks_together_rebuild_the_whole(
        kinds in prop::collection::vec(any::<u8>(), 2..4),
        units in prop::collection::vec(1u64..13, 3),
        unit in prop::sample::select(vec![1u64, 2, 4, 32, 64]),
        tp in prop::sample::select(vec![1u64, 2, 3, 4, 6, 8]),
        ep in 1u64..5,
        scheme in 0usize..6,
        round_robin in any::<bool>(),
        whole_experts in any::<bool>(),
        pad in any::<bool>(),
        stacked in any::<bool>(),
    ) {
        let names = ["f32", "bf16", "q8_0", "q4_k", "mlx-affine:b4,g32,f16", "fp8:e4m3,b32x32,f32"];
        let scheme = quant::scheme(names[scheme]).unwrap();
        let axes: Vec<Along> = kinds.iter().zip(&units).map(|(k, n)| axis(*k, *n, unit)).collect();
        let spec = ParamSpec { name: "w".into(), ..ParamSpec::new(Role::Matrix, axes) };
        let shape = spec.shape();
        // Two axes divided by the same ranks do not occur in any model, and no rank would hold the corners.
        let divided = spec.axes.iter().filter(|a| !matches!(a.axis, Axis::Hidden | Axis::Expert)).count();
        let dealt = spec.axes.iter().filter(|a| a.axis == Axis::Expert).count();
        prop_assume!(divided <= 1 && dealt <= 1);
        prop_assume!(shape.elements().is_some_and(|n| n <= 1 << 16));
        let stacked = stacked && shape.len() == 3;
        let Some((entries, expr)) = entries(&scheme, &shape, stacked) else { return reject() };
        let experts = if round_robin { ExpertPlacement::RoundRobin } else { ExpertPlacement::Linear };
        let mesh = Mesh { tp, ep, experts, whole_experts, ..Mesh::default() };
        let holding = Holding { vocab: pad.then_some(64), ..Holding::default() };
        let binding = Binding { name: "w".into(), shape: shape.clone(), expr, presence: Presence::Required };
        let resolved = resolve(&entries, &Bindings { bindings: vec![binding], drops: vec![] }).unwrap();

        let source = |i: usize, plane: usize| -> Vec<u8> {
            let bytes = &entries[i].planes[plane].bytes;
            let byte = |b: u64| u8::try_from((b * 31 + b / 251 + 7 * i as u64 + 3) % 255 + 1).unwrap();
            (0..bytes.end - bytes.start).map(byte).collect()
        };
        let mut rebuilt: Vec<Vec<Vec<u8>>> = entries
            .iter()
            .enumerate()
            .map(|(i, e)| (0..e.planes.len()).map(|p| vec![0; source(i, p).len()]).collect())
            .collect();
        let mut whole = Whole::default();
        for rank in 0..mesh.ranks().unwrap() {
            let Ok(share) = mesh.share(&spec, 1, mesh.rank(rank), holding) else { return reject() };
            let share = share.unwrap();
            let target = Target { name: "w".into(), expr: share.expr, scheme: Some(Arc::clone(&scheme)) };
            // A cut inside a packed cell is refused, and then on every rank or on none that matters here.
            let Ok(plan) = compile(&entries, &resolved, &[target], &NoCodecs) else { return reject() };
            prop_assert_eq!(&plan.params[0].shape, &share.shape);
            for plane in &plan.params[0].planes {
                let mut slot = vec![0u8; usize::try_from(plane.bytes).unwrap()];
                let cut = |at: u64, run: u64| usize::try_from(at).unwrap()..usize::try_from(at + run).unwrap();
                for piece in plane.copy.iter().filter(|p| p.source.is_some()) {
                    let from = piece.source.unwrap();
                    let bytes = source(from.entry, from.plane);
                    piece.runs(|s, t| slot[cut(t, piece.run)].copy_from_slice(&bytes[cut(s, piece.run)]));
                }
                // And back: ranks that hold the same bytes must agree.
                for piece in &plane.copy {
                    let (Some(from), Some(back)) = (piece.source, piece.reversed()) else { continue };
                    let to = &mut rebuilt[from.entry][from.plane];
                    back.runs(|s, t| to[cut(t, back.run)].copy_from_slice(&slot[cut(s, back.run)]));
                }
            }
            whole.add(&plan);
        }
        for (i, planes) in rebuilt.iter().enumerate() {
            for (p, plane) in planes.iter().enumerate() {
                prop_assert!(*plane == source(i, p), "{:?} {} on {:?}", spec, scheme, mesh);
            }
        }
        prop_assert_eq!(whole.untaken(&entries), vec![]);
    }
}

/// The proof can fail: bytes that one rank leaves out are found.
#[test]
fn a_rank_that_is_left_out_is_missed() {
    let scheme = quant::scheme("q8_0").unwrap();
    let axes = [Axis::Hidden.of(64), Axis::Ffn.of(256)];
    let spec = ParamSpec { name: "w".into(), ..ParamSpec::new(Role::Matrix, axes) };
    let (entries, expr) = entries(&scheme, &spec.shape(), false).unwrap();
    let binding = Binding { name: "w".into(), shape: spec.shape(), expr, presence: Presence::Required };
    let resolved = resolve(&entries, &Bindings { bindings: vec![binding], drops: vec![] }).unwrap();
    let mesh = Mesh { tp: 4, ..Mesh::default() };
    let mut whole = Whole::default();
    for rank in [0, 1, 3] {
        let holding = Holding::default();
        let expr = mesh.share(&spec, 1, mesh.rank(rank), holding).unwrap().unwrap().expr;
        let target = Target { name: "w".into(), expr, scheme: None };
        whole.add(&compile(&entries, &resolved, &[target], &NoCodecs).unwrap());
    }
    // 256 elements are 8 blocks of 34 bytes; the third rank has the fifth and the sixth of each row.
    let untaken = whole.untaken(&entries);
    assert_eq!((untaken.len(), untaken[0].byte), (1, Some(4 * 34)));
    assert_eq!(whole.replicated(&entries), []);
}

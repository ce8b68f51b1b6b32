//! Refusals as a user sees them: the operation, the cell, and a choice that was tried.

use std::sync::Arc;

use plan::{Binding, Bindings, Codecs, Fidelity, LoadPlan, Presence, Problems, Target, compile, resolve};
use tensor::{Expr, Scheme, Shape, TensorEntry};

use crate::moves::{rope, s};
use crate::oracle::tensors;
use crate::schemes::{self, fp8_block, gguf, int8_rows, int8_tensor};

/// No codec at all; cells that mean the same are told by the name before the dash.
pub(crate) struct NoCodecs;
impl Codecs for NoCodecs {
    fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
        None
    }
    fn same_cells(&self, from: &Scheme, to: &Scheme) -> bool {
        from.name.split('-').next() == to.name.split('-').next()
    }
}

/// Compiles one target, `w`, that is made from entries `t0`, `t1`, … as they are.
pub(crate) fn plan_of(
    e: &Expr,
    src: &[TensorEntry],
    scheme: Option<&Arc<Scheme>>,
    codecs: &dyn Codecs,
) -> Result<LoadPlan, Problems> {
    let binding = |t: &TensorEntry| Binding {
        name: t.name.clone(),
        shape: t.shape.clone(),
        expr: Expr::source(t.name.clone()),
        presence: Presence::Required,
    };
    let bindings = Bindings { bindings: src.iter().map(binding).collect(), drops: vec![] };
    let resolved = resolve(src, &bindings)?;
    let target = Target { name: "w".into(), expr: e.clone(), scheme: scheme.cloned() };
    compile(src, &resolved, &[target], codecs)
}

fn refusal(e: &Expr, src: &[TensorEntry]) -> String {
    format!("{:?}", plan_of(e, src, None, &NoCodecs).unwrap_err())
}

#[test]
fn a_slice_that_cuts_a_block_is_told_the_nearest_one() {
    let q4k = gguf("q4_k", 256, 144);
    let src = tensors(&q4k, &[&[16, 1024]]);
    insta::assert_snapshot!(refusal(&s(0).slice(1, 0..100), &src), @"
    `w`: slice 0..100 of axis 1 leaves 100 elements along axis 1, not a multiple of the 256 that a `blocks` cell of `q4_k` packs
    hint: the nearest slice is 0..256 (multiples of 256)
    ");
    insta::assert_snapshot!(refusal(&s(0).slice(1, 100..356), &src), @"
    `w`: slice 100..356 of axis 1 cuts a `blocks` cell of `q4_k`, which packs 256 elements along axis 1
    hint: the nearest slice is 0..256 (multiples of 256)
    ");
    let gptq = schemes::gptq(4, 128);
    insta::assert_snapshot!(refusal(&s(0).slice(1, 192..384), &tensors(&gptq, &[&[16, 512]])), @"
    `w`: slice 192..384 of axis 1 needs several values in a `qzeros` cell of `gptq-4bit-g128`, which spans 128 elements of axis 1
    hint: the nearest slice is 128..384 (multiples of 128)
    ");
    let awq = schemes::awq(64);
    insta::assert_snapshot!(refusal(&s(0).slice(0, 4..12), &tensors(&awq, &[&[16, 64]])), @"
    `w`: slice 4..12 of axis 0 cuts a `qweight` cell of `awq-g64`, which packs 8 elements along axis 0
    hint: the nearest slice is 0..8 (multiples of 8)
    ");
}

#[test]
fn a_concat_off_the_block_is_told_what_does_work() {
    let fp8 = fp8_block(128, 128);
    let src = tensors(&fp8, &[&[256, 128], &[192, 128], &[192, 128]]);
    insta::assert_snapshot!(refusal(&Expr::concat(0, vec![s(0), s(1), s(2)]), &src), @"
    `w`: concat of 3 parts along axis 0 needs several values in a `weight_scale_inv` cell of `fp8-block-128x128`, which spans 128 elements of axis 0
    hint: a target with one such cell for every 64 elements of axis 0 is exact: cells are repeated
    hint: keep the parts apart
    ");
    // DeepSeek's fused q_a | kv_a: 576 rows are 4.5 blocks, which is fine at the end and only there.
    let src = tensors(&fp8, &[&[576, 128], &[256, 128]]);
    insta::assert_snapshot!(refusal(&Expr::concat(0, vec![s(0), s(1)]), &src), @"
    `w`: concat of 2 parts along axis 0 needs several values in a `weight_scale_inv` cell of `fp8-block-128x128`, which spans 128 elements of axis 0
    hint: part 0 can stand last
    hint: a target with one such cell for every 64 elements of axis 0 is exact: cells are repeated
    hint: keep the parts apart
    ");
    assert!(plan_of(&Expr::concat(0, vec![s(1), s(0)]), &src, None, &NoCodecs).is_ok());
    let order = schemes::gptq_act_order(4);
    let src = tensors(&order, &[&[16, 256], &[16, 256]]);
    insta::assert_snapshot!(refusal(&Expr::concat(1, vec![s(0), s(1)]), &src), @"
    `w`: concat of 2 parts along axis 1 needs several values in a `qzeros` cell of `gptq-4bit-act-order-4`, which spans the whole of axis 1
    hint: the parts can be stacked
    hint: keep the parts apart
    ");
}

#[test]
fn a_permutation_inside_a_cell_is_refused_where_it_happens() {
    let q4k = gguf("q4_k", 256, 144);
    let square = tensors(&q4k, &[&[256, 256]]);
    insta::assert_snapshot!(refusal(&s(0).transpose(), &square), @"`w`: the transposition cuts a `blocks` cell of `q4_k`, which packs 256 elements along axis 1");
    let awq = tensors(&schemes::awq(64), &[&[64, 512]]);
    insta::assert_snapshot!(refusal(&rope(s(0), 16), &awq), @"`w`: permute [0, 2, 1, 3] cuts a `qweight` cell of `awq-g64`, which packs 8 elements along axis 2");
    // The innermost guilty operation, not what is around it.
    let inner = s(0).slice(1, 0..100).slice(0, 0..8).split(0, 2);
    insta::assert_snapshot!(refusal(&inner, &tensors(&q4k, &[&[16, 1024]])), @"
    `w`: slice 0..100 of axis 1 leaves 100 elements along axis 1, not a multiple of the 256 that a `blocks` cell of `q4_k` packs
    hint: the nearest slice is 0..256 (multiples of 256)
    ");
}

#[test]
fn padding_that_would_not_stay_zero_is_refused() {
    let mlx = schemes::mlx(4, 64);
    let padded = Expr::concat(1, vec![s(0), Expr::Zero(Shape::from([8, 32]))]);
    insta::assert_snapshot!(refusal(&padded, &tensors(&mlx, &[&[8, 96]])), @"
    `w`: concat of 2 parts along axis 1 lets padding share a `scales` cell of `mlx-4bit-g64`, where it would not stay 0
    hint: a target with one such cell for every 32 elements of axis 1 is exact: cells are repeated
    hint: keep the parts apart
    ");
}

#[test]
fn parts_in_different_encodings_are_not_fused() {
    let mut src = tensors(&gguf("q4_k", 256, 144), &[&[8, 256]]);
    crate::oracle::add(&mut src, &gguf("q6_k", 256, 210), &[8, 256]);
    insta::assert_snapshot!(refusal(&Expr::concat(0, vec![s(0), s(1)]), &src), @"
    `w`: wanted parts in one encoding, found `t0` in q4_k, `t1` in q6_k
    hint: keep the parts apart, or store them alike
    ");
}

#[test]
fn equal_geometry_is_not_equal_meaning() {
    let (q4_0, iq4_nl) = (gguf("q4_0", 32, 18), gguf("iq4_nl", 32, 18));
    let src = tensors(&q4_0, &[&[8, 64]]);
    let problems = plan_of(&s(0), &src, Some(&iq4_nl), &NoCodecs).unwrap_err();
    insta::assert_snapshot!(problems, @"`w`: wanted `iq4_nl`, found `q4_0`: there is no codec for it");
}

#[test]
fn coarse_scales_become_finer_ones_without_a_codec() {
    let src = tensors(&int8_tensor(), &[&[16, 8], &[8, 8]]);
    let fused = Expr::concat(0, vec![s(0), s(1)]);
    insta::assert_snapshot!(refusal(&fused, &src), @"
    `w`: concat of 2 parts along axis 0 needs several values in a `scale` cell of `int8-tensor`, which spans the whole of axis 0
    hint: keep the parts apart
    ");
    let plan = plan_of(&fused, &src, Some(&int8_rows()), &NoCodecs).unwrap();
    let w = &plan.params[0];
    assert_eq!((&*w.moved.name, w.steps.len(), &w.fidelity), ("int8-rows", 0, &Fidelity::Exact));
    assert_eq!(w.planes[1].bytes, 24 * 4);
}

//! Whole plans: ties, steps, reads, and the text of `explain`.

use std::ops::Range;
use std::sync::Arc;

use plan::{
    Binding, Bindings, Codecs, DropRule, Fidelity, LoadPlan, Presence, Problem, Resolved, Target, compile,
    explain, reads, resolve, summary,
};
use tensor::{Dtype, Expr, FileId, Hold, IN, OUT, Pattern, PlaneAxis, Scheme, Shape, Step, TensorEntry};

use crate::oracle::entry;
use crate::problems::binding;
use crate::schemes::{gguf, new, packed, plane};

fn plain(dtype: Dtype) -> Arc<Scheme> {
    Scheme::plain(dtype)
}

/// `q4_1` with 16 rows interleaved, as a runtime keeps it: blocks of 32 inputs of 16 rows.
fn interleaved() -> Arc<Scheme> {
    let out = PlaneAxis::Cells { axis: OUT, per: 16, hold: Hold::Packed };
    new("q4_1.r16", 2, vec![plane("blocks", 16 * 20, &[out, packed(IN, 32)])])
}

/// Casts to f32, from f32 to less, and the repack.
struct Some4;
impl Codecs for Some4 {
    fn fidelity(&self, from: &Scheme, to: &Scheme) -> Option<Fidelity> {
        match (&*from.name, &*to.name) {
            ("bf16" | "f16" | "q4_1", "f32") | ("q4_1", "q4_1.r16") => Some(Fidelity::Exact),
            ("f32", "bf16" | "f16") => Some(Fidelity::Lossy(format!("rounds to {to}"))),
            _ => None,
        }
    }
}

fn target(name: &str, expr: Expr, scheme: Option<Arc<Scheme>>) -> Target {
    Target { name: name.into(), expr, scheme }
}

fn src(name: &str) -> Expr {
    Expr::source(name)
}

/// `(name, scheme, shape)` one after another in one file, each a canonical parameter of the same name.
fn checkpoint(of: &[(&str, Arc<Scheme>, &[u64])]) -> (Vec<TensorEntry>, Resolved) {
    let mut entries: Vec<TensorEntry> = vec![];
    for (name, scheme, shape) in of {
        entries.push(entry(name, scheme, shape, entries.last()));
    }
    let bindings = entries.iter().map(|e| binding(&e.name, &e.shape, src(&e.name))).collect();
    let resolved = resolve(&entries, &Bindings { bindings, drops: vec![] }).unwrap();
    (entries, resolved)
}

fn plan_one(
    of: &[(&str, Arc<Scheme>, &[u64])],
    expr: Expr,
    scheme: Option<Arc<Scheme>>,
) -> (Vec<TensorEntry>, LoadPlan) {
    let (entries, resolved) = checkpoint(of);
    let plan = compile(&entries, &resolved, &[target("w", expr, scheme)], &Some4).unwrap();
    (entries, plan)
}

fn steps(plan: &LoadPlan) -> Vec<String> {
    let text = |s: &Step| match s {
        Step::To(to) => to.name.to_string(),
        Step::Add(_) | Step::Apply(_) | Step::By(_) => s.to_string(),
    };
    plan.params[0].steps.iter().map(text).collect()
}

#[test]
fn qkv_fusion_at_tp2() {
    let bf16 = || plain(Dtype::BF16);
    let (entries, plan) = plan_one(
        &[("q_proj", bf16(), &[32, 16]), ("k_proj", bf16(), &[8, 16]), ("v_proj", bf16(), &[8, 16])],
        Expr::concat(
            0,
            vec![src("q_proj").slice(0, 16..32), src("k_proj").slice(0, 4..8), src("v_proj").slice(0, 4..8)],
        ),
        None,
    );
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [24, 16] bf16
       rows 0..16 <- q_proj[16..32]
      rows 16..20 <- k_proj[4..8]
      rows 20..24 <- v_proj[4..8]
      data: 768 B, 3 pieces
        0 <- q_proj at 512: 512 bytes
        512 <- k_proj at 128: 128 bytes
        640 <- v_proj at 128: 128 bytes
    ");
    insta::assert_snapshot!(summary(&plan, &entries), @"
    1 parameter, all 3 tensors used
    uses 768 B of the files
    768 B in memory: 0 B can be mapped, 768 B copied
    ");
    // 256-byte gaps are cheaper than another read.
    assert_eq!(reads(&plan, &entries, 0, 0).len(), 3);
    assert_eq!(reads(&plan, &entries, 128, 0).len(), 1);
}

/// A single number may have one axis or none; no other shape is accepted for it.
#[test]
fn a_number_with_and_without_an_axis_are_one() {
    let bf16 = || plain(Dtype::BF16);
    for (stored, wanted) in [(&[][..], &[1][..]), (&[1], &[]), (&[1], &[1]), (&[], &[])] {
        let mut entries: Vec<TensorEntry> = vec![];
        for name in ["a", "b"] {
            entries.push(entry(name, &bf16(), stored, entries.last()));
        }
        let bindings = ["a", "b"].map(|name| binding(name, wanted, src(name)));
        let resolved = resolve(&entries, &Bindings { bindings: bindings.into(), drops: vec![] }).unwrap();
        assert!(resolved.params.iter().all(|p| *p.shape == *wanted));
        let float = Some(plain(Dtype::F32));
        let targets = [
            target("alone", src("a"), None),
            target("cast", src("b"), float),
            target("both", Expr::Stack(vec![src("a"), src("b")]), None),
        ];
        let plan = compile(&entries, &resolved, &targets, &Some4).unwrap();
        let both = [&[2][..], wanted].concat();
        for (param, shape, bytes) in [(0, wanted, 2), (1, wanted, 4), (2, &both, 4)] {
            let param = &plan.params[param];
            assert_eq!(
                (&*param.shape, param.slot_bytes()),
                (shape, bytes),
                "{stored:?} {wanted:?} {}",
                param.name
            );
            let copied: u64 = param.planes[0]
                .copy
                .iter()
                .map(|p| p.run * p.dims.iter().map(|d| d.extent).product::<u64>())
                .sum();
            assert_eq!(copied, if param.name == "both" { 4 } else { 2 });
        }
        assert!(plan.params[0].borrowable());
    }
    for (stored, wanted) in [(&[1][..], &[1, 1][..]), (&[2], &[]), (&[1, 1], &[]), (&[], &[2])] {
        let entries = [entry("a", &bf16(), stored, None)];
        let bindings = vec![binding("a", wanted, src("a"))];
        let refused = resolve(&entries, &Bindings { bindings, drops: vec![] }).unwrap_err();
        assert!(
            refused.iter().all(|p| matches!(p, Problem::Shape { .. })),
            "{stored:?} {wanted:?}: {refused}"
        );
    }
}

#[test]
fn rope_blocks_and_padding_explain_themselves() {
    let q4k = gguf("q4_k", 256, 144);
    let (entries, plan) = plan_one(
        &[("blk.0.attn_q.weight", q4k.clone(), &[64, 512])],
        crate::moves::rope(src("blk.0.attn_q.weight"), 16),
        None,
    );
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [64, 512] q4_k
      = merge(0; merge(0; permute([0, 2, 1, 3]; split(1, 2; split(0, 16; blk.0.attn_q.weight)))))
      all <- blk.0.attn_q.weight, reordered
      blocks: 18.0 KiB, 1 piece
        0 <- blk.0.attn_q.weight at 0: 4 × 2 × 8 × 288 bytes
    ");
    let padded = Expr::concat(0, vec![src("token_embd.weight"), Expr::Zero(Shape::from([6, 512]))]);
    let (entries, plan) = plan_one(&[("token_embd.weight", q4k, &[90, 512])], padded, None);
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [96, 512] q4_k
       rows 0..90 <- token_embd.weight
      rows 90..96 <- zeros
      blocks: 27.0 KiB, 2 pieces
        0 <- token_embd.weight at 0: 25920 bytes
        25920 <- zeros: 1728 bytes
    ");
    insta::assert_snapshot!(summary(&plan, &entries), @"
    1 parameter, 1 of 1 tensor used
    uses 25.3 KiB of the files
    27.0 KiB in memory: 0 B can be mapped, 25.3 KiB copied, 1.7 KiB padding
    ");
}

#[test]
fn many_experts_are_counted_not_listed() {
    let names: Vec<String> = (0..64).map(|i| format!("experts.{i}.w")).collect();
    let all: Vec<(&str, Arc<Scheme>, &[u64])> =
        names.iter().map(|n| (n.as_str(), plain(Dtype::BF16), &[4u64, 6][..])).collect();
    let stacked = Expr::Stack(names.iter().map(|n| src(n).transpose()).collect());
    let (entries, plan) = plan_one(&all, stacked, Some(plain(Dtype::F32)));
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [64, 6, 4] f32
      = stack(transpose(experts.0.w), transpose(experts.1.w), … 64 parts … transpose(experts.63.w))
      [0..1] <- experts.0.w, reordered
      [1..2] <- experts.1.w, reordered
      [2..3] <- experts.2.w, reordered
      [3..4] <- experts.3.w, reordered
      [4..5] <- experts.4.w, reordered
      [5..6] <- experts.5.w, reordered
      [6..7] <- experts.6.w, reordered
      [7..8] <- experts.7.w, reordered
      … 64 parts in all
      then bf16 -> f32 (exact)
      data: 3.0 KiB, 64 pieces
        0 <- experts.0.w at 0: 6 × 4 × 2 bytes
        48 <- experts.1.w at 0: 6 × 4 × 2 bytes
        96 <- experts.2.w at 0: 6 × 4 × 2 bytes
        144 <- experts.3.w at 0: 6 × 4 × 2 bytes
        192 <- experts.4.w at 0: 6 × 4 × 2 bytes
        240 <- experts.5.w at 0: 6 × 4 × 2 bytes
        288 <- experts.6.w at 0: 6 × 4 × 2 bytes
        336 <- experts.7.w at 0: 6 × 4 × 2 bytes
        … and 56 more
    ");
    insta::assert_snapshot!(explain(&plan, &entries, "ww").unwrap_err(), @"there is no parameter `ww`");
}

#[test]
fn gemma_norms_are_decoded_then_one_is_added_then_encoded() {
    let bf16 = || plain(Dtype::BF16);
    let (mut entries, _) = checkpoint(&[("norm.weight", bf16(), &[64])]);
    let norm = binding("norm", &[64], src("norm.weight").encode(Step::Add(1)));
    let bindings = Bindings { bindings: vec![norm], drops: vec![] };
    let plan_as = |entries: &[TensorEntry], scheme| {
        let resolved = resolve(entries, &bindings).unwrap();
        compile(entries, &resolved, &[target("w", src("norm"), scheme)], &Some4).unwrap()
    };
    let resolved = resolve(&entries, &bindings).unwrap();
    let norm = &resolved.params[0];
    assert_eq!((&*norm.scheme.name, &norm.expr, norm.steps.len()), ("bf16", &src("norm.weight"), 2));
    let plan = plan_as(&entries, None);
    assert_eq!((steps(&plan), &*plan.params[0].scheme.name), (vec!["f32".into(), "+ 1".into()], "f32"));
    let plan = plan_as(&entries, Some(bf16()));
    assert_eq!(steps(&plan), ["f32", "+ 1", "bf16"]);
    assert_eq!((&*plan.params[0].moved.name, plan.params[0].planes[0].bytes), ("bf16", 128));
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [64] bf16
      all <- norm.weight
      then bf16 -> f32 (exact)
      then f32 + 1 (lossy: 1 + w is rounded to f32)
      then f32 -> bf16 (lossy: rounds to bf16)
      data: 128 B, one run of norm.weight at byte 0
    ");
    insta::assert_snapshot!(summary(&plan, &entries), @"
    1 parameter, 1 of 1 tensor used
    uses 128 B of the files
    128 B in memory: 0 B can be mapped, 0 B copied, the rest re-encoded
    bf16 -> f32 in 1 parameter: 128 B to 256 B, exact
    f32 + 1 in 1 parameter: 256 B to 256 B, lossy: 1 + w is rounded to f32
    f32 -> bf16 in 1 parameter: 256 B to 128 B, lossy: rounds to bf16
    ");
    // Stored in f32, there is nothing to decode.
    entries[0] = entry("norm.weight", &plain(Dtype::F32), &[64], None);
    assert_eq!(steps(&plan_as(&entries, None)), ["+ 1"]);
}

#[test]
fn rows_are_interleaved_by_a_codec_after_movement() {
    let q4_1 = gguf("q4_1", 32, 20);
    let of: &[(&str, Arc<Scheme>, &[u64])] = &[("q", q4_1.clone(), &[24, 64]), ("k", q4_1.clone(), &[8, 64])];
    let fused = Expr::concat(0, vec![src("q"), src("k")]);
    let (_, plan) = plan_one(of, fused, Some(interleaved()));
    let w = &plan.params[0];
    assert_eq!((&*w.moved.name, &*w.scheme.name, &w.fidelity), ("q4_1", "q4_1.r16", &Fidelity::Exact));
    assert_eq!(
        (w.planes[0].bytes, w.slot_bytes(), steps(&plan)),
        (32 * 40, 32 * 40, vec!["q4_1.r16".into()])
    );
    // 24 rows do not fill a block of 16; padded, they do.
    let (entries, resolved) = checkpoint(of);
    let ragged = [target("w", src("q"), Some(interleaved()))];
    insta::assert_snapshot!(compile(&entries, &resolved, &ragged, &Some4).unwrap_err(), @"`w`: wanted `q4_1.r16`, found `q4_1`: [24, 64]: axis 0 has 24 elements, not a multiple of the 16 that a block packs");
    let padded = Expr::concat(0, vec![src("q"), Expr::Zero(Shape::from([8, 64]))]);
    let (_, plan) = plan_one(of, padded, Some(interleaved()));
    assert_eq!(plan.params[0].slot_bytes(), 32 * 40);
}

#[test]
fn slices_of_a_fused_tensor_join_back_and_are_borrowed() {
    let f16 = plain(Dtype::F16);
    let entries = [entry("h.0.attn.c_attn.weight", &f16, &[96, 64], None)];
    let part = |r: Range<u64>| src("h.0.attn.c_attn.weight").slice(0, r);
    let bindings = vec![
        binding("q", &[64, 64], part(0..64)),
        binding("k", &[16, 64], part(64..80)),
        binding("v", &[16, 64], part(80..96)),
    ];
    let resolved = resolve(&entries, &Bindings { bindings, drops: vec![] }).unwrap();
    let fused = Expr::concat(0, vec![src("q"), src("k"), src("v")]);
    let targets = [target("qkv", fused, None), target("k", src("k"), None)];
    let plan = compile(&entries, &resolved, &targets, &Some4).unwrap();
    assert_eq!(plan.params[0].planes[0].borrowable(), Some((0, 0, 0)));
    assert_eq!(plan.params[1].planes[0].borrowable(), Some((0, 0, 64 * 128)));
    assert!(plan.params.iter().all(plan::PlannedParam::borrowable));
    insta::assert_snapshot!(explain(&plan, &entries, "k").unwrap(), @"
    k [16, 64] f16
      all <- h.0.attn.c_attn.weight[64..80]
      data: 2.0 KiB, one run of h.0.attn.c_attn.weight at byte 8192: can be mapped
    ");
    // Read once, though two slots show it.
    insta::assert_snapshot!(summary(&plan, &entries), @"
    2 parameters, 1 of 1 tensor used
    uses 14.0 KiB of the files
    14.0 KiB in memory: 14.0 KiB can be mapped, 0 B copied
    ");
}

#[test]
fn conv1d_weights_are_turned() {
    let (entries, plan) =
        plan_one(&[("c_fc.weight", plain(Dtype::F32), &[768, 3072])], src("c_fc.weight").transpose(), None);
    assert_eq!(plan.params[0].shape, Shape::from([3072, 768]));
    insta::assert_snapshot!(explain(&plan, &entries, "w").unwrap(), @"
    w [3072, 768] f32
      = transpose(c_fc.weight)
      all <- c_fc.weight, reordered
      data: 9.0 MiB, 1 piece
        0 <- c_fc.weight at 0: 3072 × 768 × 4 bytes
    ");
}

fn tied(entries: &[TensorEntry]) -> Resolved {
    let output = Binding {
        presence: Presence::TiedTo("token_embedding.weight".into()),
        ..binding("output.weight", &[96, 64], src("output.weight"))
    };
    let embedding = binding("token_embedding.weight", &[96, 64], src("token_embd.weight"));
    resolve(entries, &Bindings { bindings: vec![output, embedding], drops: vec![] }).unwrap()
}

#[test]
fn a_tied_output_shares_the_slot_if_both_are_held_alike() {
    let q4_1 = gguf("q4_1", 32, 20);
    let entries = [entry("token_embd.weight", &q4_1, &[96, 64], None)];
    let resolved = tied(&entries);
    let output = resolved.find("output.weight").unwrap();
    assert_eq!(
        (output.tied_to.as_deref(), &output.expr),
        (Some("token_embedding.weight"), &src("token_embd.weight"))
    );

    let both = |a, b| {
        let targets =
            [target("embed", src("token_embedding.weight"), a), target("head", src("output.weight"), b)];
        compile(&entries, &resolved, &targets, &Some4).unwrap()
    };
    let plan = both(None, None);
    assert_eq!((plan.params[0].tied_to, plan.params[1].tied_to), (None, Some(0)));
    assert!(plan.params[1].planes.is_empty() && !plan.params[1].borrowable());
    insta::assert_snapshot!(explain(&plan, &entries, "head").unwrap(), @"
    head [96, 64] q4_1
      shares the slot of embed
    ");
    insta::assert_snapshot!(summary(&plan, &entries), @"
    2 parameters (1 tied), 1 of 1 tensor used
    uses 3.8 KiB of the files
    3.8 KiB in memory: 3.8 KiB can be mapped, 0 B copied
    ");
    assert_eq!(both(Some(interleaved()), Some(interleaved())).params[1].tied_to, Some(0));

    // The head interleaved, the embedding as stored: two slots from one source, which is counted once.
    let plan = both(None, Some(interleaved()));
    assert_eq!(plan.params[1].tied_to, None);
    let sum = summary(&plan, &entries);
    assert_eq!((sum.ties, sum.entries_used, sum.needed_bytes), (0, 1, entries[0].byte_len()));
    assert_eq!(sum.slot_bytes, 2 * entries[0].byte_len());
    // Either may come first, and the same expression over both is the same thing.
    let half = |n: &str| src(n).slice(0, 0..48);
    let targets = [
        target("head", half("output.weight"), None),
        target("embed", half("token_embedding.weight"), None),
        target("rest", src("output.weight").slice(0, 48..96), None),
    ];
    let plan = compile(&entries, &resolved, &targets, &Some4).unwrap();
    assert_eq!(plan.params.iter().map(|p| p.tied_to).collect::<Vec<_>>(), [None, Some(0), None]);
}

#[test]
fn an_output_of_its_own_is_not_tied() {
    let q4_1 = gguf("q4_1", 32, 20);
    let first = entry("token_embd.weight", &q4_1, &[96, 64], None);
    let entries = [first.clone(), entry("output.weight", &q4_1, &[96, 64], Some(&first))];
    let resolved = tied(&entries);
    assert!(resolved.params.iter().all(|p| p.tied_to.is_none()));
    let targets = [target("a", src("token_embedding.weight"), None), target("b", src("output.weight"), None)];
    let plan = compile(&entries, &resolved, &targets, &Some4).unwrap();
    assert_eq!(plan.params[1].tied_to, None);
    assert_eq!(plan.params[1].planes[0].borrowable(), Some((1, 0, 0)));
}

#[test]
fn optional_parameters_are_left_out_and_what_is_not_placed_is_listed() {
    let f32 = plain(Dtype::F32);
    let entries = [entry("w", &f32, &[4], None), entry("unused.0.x", &f32, &[4], None)];
    let bias = Binding { presence: Presence::Optional, ..binding("bias", &[4], src("b")) };
    let drops = vec![DropRule { pattern: Pattern::new("unused.{n}.x"), why: "not a weight".into() }];
    let resolved =
        resolve(&entries, &Bindings { bindings: vec![binding("weight", &[4], src("w")), bias], drops })
            .unwrap();
    assert_eq!(resolved.params.len(), 1);
    let problems = compile(&entries, &resolved, &[target("b", src("bias"), None)], &Some4).unwrap_err();
    assert!(matches!(problems.iter().next(), Some(Problem::Unknown { .. })));
    let plan = compile(&entries, &resolved, &[], &Some4).unwrap();
    assert_eq!((plan.unplaced, plan.dropped.len()), (vec!["weight".to_string()], 1));
}

#[test]
fn reads_are_sorted_joined_and_cut() {
    let bf16 = || plain(Dtype::BF16);
    // Row-parallel: the last half of each of 8 rows of 64 bytes.
    let of: &[(&str, Arc<Scheme>, &[u64])] = &[("a", bf16(), &[8, 32]), ("b", bf16(), &[8, 32])];
    let (entries, plan) =
        plan_one(of, Expr::Stack(vec![src("b").slice(1, 16..32), src("a").slice(1, 16..32)]), None);
    let ranges =
        |gap, max| reads(&plan, &entries, gap, max).iter().map(|r| r.range.clone()).collect::<Vec<_>>();
    let each: Vec<Range<u64>> = (0..16).map(|i| 64 * i + 32..64 * i + 64).collect();
    assert_eq!(ranges(0, 0), each);
    assert_eq!(ranges(31, 0), each);
    assert_eq!(ranges(32, 0), vec![32..1024]);
    assert_eq!(ranges(32, 400), [32..432, 432..832, 832..1024]);
    assert_eq!(summary(&plan, &entries).needed_bytes, 512);
    // Transposed, the runs are tiny, and what is read is not.
    let (entries, plan) = plan_one(of, src("a").transpose(), None);
    assert_eq!(reads(&plan, &entries, 0, 0), [plan::Read { file: FileId(0), range: 0..512 }]);
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let make = || {
        let bf16 = plain(Dtype::BF16);
        let names: Vec<String> = (0..40).map(|i| format!("layers.{i}.w")).collect();
        let all: Vec<(&str, Arc<Scheme>, &[u64])> =
            names.iter().map(|n| (n.as_str(), bf16.clone(), &[8u64, 8][..])).collect();
        plan_one(&all, Expr::Stack(names.iter().map(|n| src(n)).collect()), Some(plain(Dtype::F32))).1
    };
    assert_eq!(make(), make());
}

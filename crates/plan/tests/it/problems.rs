//! Messages for a checkpoint that does not fit.

use plan::{Binding, Bindings, Blame, Clash, DropRule, Presence, Problem, Target, compile, resolve};
use tensor::{Dtype, Expr, Pattern, Scheme, Shape, Step, TensorEntry};

use crate::blame::NoCodecs;
use crate::oracle::entry;

pub(crate) fn binding(name: &str, shape: &[u64], expr: Expr) -> Binding {
    Binding { name: name.into(), shape: Shape::from(shape.to_vec()), expr, presence: Presence::Required }
}

/// A llama of `layers` layers with three tensors each, and its embedding.
fn llama(layers: u64) -> (Vec<TensorEntry>, Bindings) {
    let bf16 = Scheme::plain(Dtype::BF16);
    let mut bindings = Bindings::default();
    let mut add = |canonical: String, name: String, shape: &[u64]| {
        bindings.bindings.push(binding(&canonical, shape, Expr::source(name)));
    };
    add("token_embedding.weight".into(), "token_embd.weight".into(), &[1000, 64]);
    for n in 0..layers {
        add(format!("layers.{n}.attention.q.weight"), format!("blk.{n}.attn_q.weight"), &[64, 64]);
        add(format!("layers.{n}.attention.k.weight"), format!("blk.{n}.attn_k.weight"), &[16, 64]);
        add(format!("layers.{n}.attention_norm.weight"), format!("blk.{n}.attn_norm.weight"), &[64]);
    }
    let mut entries = vec![];
    for b in &bindings.bindings {
        b.expr.for_each_source(&mut |name| {
            let next = entry(name, &bf16, &b.shape, entries.last());
            entries.push(next);
        });
    }
    (entries, bindings)
}

fn rename(entries: &mut [TensorEntry], from: &str, to: &str) {
    for e in entries {
        e.name = e.name.replace(from, to);
    }
}

fn told(entries: &[TensorEntry], bindings: &Bindings) -> String {
    let problems = resolve(entries, bindings).unwrap_err();
    assert!(!problems.to_string().contains("hint:"), "{problems}");
    format!("{problems:?}")
}

#[test]
fn a_checkpoint_that_fits_is_resolved() {
    let (entries, bindings) = llama(3);
    let resolved = resolve(&entries, &bindings).unwrap();
    assert_eq!(resolved.params.len(), 10);
    let q = resolved.find("layers.2.attention.q.weight").unwrap();
    assert_eq!((&*q.scheme.name, &q.expr), ("bf16", &Expr::source("blk.2.attn_q.weight")));
}

#[test]
fn missing_layers_are_said_once() {
    let (mut entries, bindings) = llama(30);
    entries.retain(|e| !e.name.ends_with("attn_norm.weight"));
    insta::assert_snapshot!(told(&entries, &bindings), @"`blk.{n}.attn_norm.weight` is missing in 30 layers (0–29): wanted [64] for `layers.{n}.attention_norm.weight`");
    entries.retain(|e| {
        !["blk.3.attn_q.weight", "blk.7.attn_q.weight", "blk.8.attn_q.weight"].contains(&&*e.name)
    });
    entries.retain(|e| e.name != "token_embd.weight");
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `token_embd.weight` is missing: wanted [1000, 64] for `token_embedding.weight`
    `blk.{n}.attn_norm.weight` is missing in 30 layers (0–29): wanted [64] for `layers.{n}.attention_norm.weight`
    `blk.{n}.attn_q.weight` is missing in 3 layers (3, 7–8): wanted [64, 64] for `layers.{n}.attention.q.weight`
    ");
}

#[test]
fn a_renamed_tensor_is_one_thing() {
    let (mut entries, bindings) = llama(30);
    rename(&mut entries, "attn_k", "attn_kk");
    insta::assert_snapshot!(told(&entries, &bindings), @"
    wanted `blk.{n}.attn_k.weight` [16, 64] for `layers.{n}.attention.k.weight` in 30 layers (0–29), found unused `blk.{n}.attn_kk.weight` of the same shape
    hint: was it renamed?
    ");
    let (mut entries, bindings) = llama(2);
    rename(&mut entries, "blk.1.attn_q.weight", "blk.1.attn_query.weight");
    insta::assert_snapshot!(told(&entries, &bindings), @"
    wanted `blk.1.attn_q.weight` [64, 64] for `layers.1.attention.q.weight`, found unused `blk.1.attn_query.weight` of the same shape
    hint: was it renamed?
    ");
}

#[test]
fn a_near_name_of_the_same_shape_goes_before_a_nearer_one_of_another() {
    let (mut entries, bindings) = llama(1);
    rename(&mut entries, "blk.0.attn_q.weight", "blk.0.attn_query.weight");
    entries.push(entry("blk.0.attn_q.weighs", &Scheme::plain(Dtype::F32), &[7], entries.last()));
    insta::assert_snapshot!(told(&entries, &bindings), @"
    wanted `blk.0.attn_q.weight` [64, 64] for `layers.0.attention.q.weight`, found unused `blk.0.attn_query.weight` of the same shape
    hint: was it renamed?
    `blk.0.attn_q.weighs` [7] is in the checkpoint, but no parameter uses it
    hint: the nearest that the model wants is `blk.0.attn_q.weight`
    ");
}

#[test]
fn a_renamed_tensor_of_another_shape_is_said_with_both() {
    let (mut entries, bindings) = llama(4);
    rename(&mut entries, "attn_norm", "attn_norm_1");
    for e in entries.iter_mut().filter(|e| e.name.contains("norm_1")) {
        e.shape = Shape::from([8, 8]);
    }
    insta::assert_snapshot!(told(&entries, &bindings), @"
    wanted `blk.{n}.attn_norm.weight` [64] for `layers.{n}.attention_norm.weight` in 4 layers (0–3), found unused `blk.{n}.attn_norm_1.weight` [8, 8]
    hint: was it renamed, or is it another tensor?
    ");
}

/// Equal shapes and similar letters are not enough: a name missing in one layer is not the misspelt name of another,
/// nor one that is nearer to another name.
#[test]
fn what_is_gone_is_not_what_is_misspelt_elsewhere() {
    let (mut entries, mut bindings) = llama(4);
    let bf16 = Scheme::plain(Dtype::BF16);
    for n in 0..4 {
        let (canonical, name) =
            (format!("layers.{n}.attention.output.weight"), format!("blk.{n}.attn_o.weight"));
        bindings.bindings.push(binding(&canonical, &[64, 64], Expr::source(name.clone())));
        entries.push(entry(&name, &bf16, &[64, 64], entries.last()));
    }
    // One layer's q is gone, another layer's o is misspelt.
    let gone = |entries: &mut Vec<TensorEntry>| entries.retain(|e| e.name != "blk.1.attn_q.weight");
    gone(&mut entries);
    rename(&mut entries, "blk.3.attn_o.weight", "blk.3.attn_oo.weight");
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `blk.1.attn_q.weight` is missing: wanted [64, 64] for `layers.1.attention.q.weight`
    wanted `blk.3.attn_o.weight` [64, 64] for `layers.3.attention.output.weight`, found unused `blk.3.attn_oo.weight` of the same shape
    hint: was it renamed?
    ");
    // In one layer.
    rename(&mut entries, "blk.3.attn_oo.weight", "blk.3.attn_o.weight");
    rename(&mut entries, "blk.1.attn_o.weight", "blk.1.attn_oo.weight");
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `blk.1.attn_q.weight` is missing: wanted [64, 64] for `layers.1.attention.q.weight`
    wanted `blk.1.attn_o.weight` [64, 64] for `layers.1.attention.output.weight`, found unused `blk.1.attn_oo.weight` of the same shape
    hint: was it renamed?
    ");
    // Only gone, and something else is too many.
    rename(&mut entries, "blk.1.attn_oo.weight", "blk.1.attn_o.weight");
    entries.push(entry("blk.1.attn_oo.weight", &bf16, &[64, 64], entries.last()));
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `blk.1.attn_q.weight` is missing: wanted [64, 64] for `layers.1.attention.q.weight`
    `blk.1.attn_oo.weight` [64, 64] is in the checkpoint, but no parameter uses it
    hint: the nearest that the model wants is `blk.1.attn_o.weight`
    ");
}

#[test]
fn names_that_all_differ_by_one_prefix_are_one_line() {
    let (mut entries, bindings) = llama(30);
    for e in &mut entries {
        e.name = format!("student.net.{}", e.name);
    }
    entries.push(entry("student.net.extra", &Scheme::plain(Dtype::F32), &[8], entries.last()));
    insta::assert_snapshot!(told(&entries, &bindings), @r#"
    91 tensors begin with an extra `student.net.`: wanted `blk.0.attn_k.weight`, found `student.net.blk.0.attn_k.weight`, and so on
    hint: this rule renames them: rule = [{ from = "student.net.{rest..}", to = "{rest..}" }]
    `student.net.extra` [8] is in the checkpoint, but no parameter uses it
    "#);
    // Another prefix than the wanted one, of some: the rule leaves others alone.
    let (mut entries, bindings) = llama(3);
    rename(&mut entries, "blk.", "decoder.block.");
    insta::assert_snapshot!(told(&entries, &bindings), @r#"
    9 tensors begin with `decoder.block.` instead of `blk.`: wanted `blk.0.attn_k.weight`, found `decoder.block.0.attn_k.weight`, and so on
    hint: this rule renames them: rule = [{ from = "decoder.block.{rest..}", to = "blk.{rest..}" }]
    "#);
    // A prefix that is wanted and not there.
    rename(&mut entries, "decoder.block.", "");
    insta::assert_snapshot!(told(&entries, &bindings), @r#"
    9 tensors do not begin with `blk.`: wanted `blk.0.attn_k.weight`, found `0.attn_k.weight`, and so on
    hint: this rule renames them: rule = [{ from = "{n}.{rest..}", to = "blk.{n}.{rest..}" }]
    "#);
}

#[test]
fn names_that_all_differ_by_one_suffix_are_one_line() {
    let (mut entries, bindings) = llama(30);
    for e in &mut entries {
        e.name = format!("{}.data", e.name);
    }
    insta::assert_snapshot!(told(&entries, &bindings), @r#"
    91 tensors end in an extra `.data`: wanted `blk.0.attn_k.weight`, found `blk.0.attn_k.weight.data`, and so on
    hint: this rule renames them: rule = [{ from = "{rest..}.data", to = "{rest..}" }]
    "#);
    let (mut entries, bindings) = llama(3);
    for e in &mut entries {
        e.name = e.name.replace(".weight", "");
    }
    insta::assert_snapshot!(told(&entries, &bindings), @r#"
    10 tensors do not end in `.weight`: wanted `blk.0.attn_k.weight`, found `blk.0.attn_k`, and so on
    hint: this rule renames them: rule = [{ from = "{rest..}", to = "{rest..}.weight" }]
    "#);
}

#[test]
fn extra_tensors_are_named_with_the_nearest_wanted() {
    let (mut entries, bindings) = llama(2);
    let bf16 = Scheme::plain(Dtype::BF16);
    for (name, shape) in [
        ("blk.0.attn_q.bias", &[64][..]),
        ("blk.1.attn_q.bias", &[64]),
        ("blk.2.attn_q.weight", &[64, 64]),
        ("some.thing.else", &[3]),
    ] {
        entries.push(entry(name, &bf16, shape, entries.last()));
    }
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `blk.{n}.attn_q.bias` [64] is in the checkpoint in 2 layers (0–1), but no parameter uses it
    hint: the nearest that the model wants is `blk.{n}.attn_q.weight`
    `blk.2.attn_q.weight` [64, 64] is in the checkpoint, but no parameter uses it
    hint: the model wants such a tensor, but not with this number: is the layer count right?
    `some.thing.else` [3] is in the checkpoint, but no parameter uses it
    ");
}

#[test]
fn what_may_be_dropped_is_listed_and_not_a_problem() {
    let (mut entries, mut bindings) = llama(2);
    entries.push(entry("rope_freqs.weight", &Scheme::plain(Dtype::F32), &[8], entries.last()));
    entries.push(entry("blk.1.rope_freqs.weight", &Scheme::plain(Dtype::F32), &[8], entries.last()));
    let drop = |p: &str| DropRule { pattern: Pattern::new(p), why: "computed from the configuration".into() };
    bindings.drops.push(drop("rope_freqs.weight"));
    assert!(told(&entries, &bindings).contains("`blk.1.rope_freqs.weight` [8] is in the checkpoint"));
    bindings.drops.push(drop("blk.{n}.rope_freqs.weight"));
    // An entry that a binding takes is not dropped, even if a drop pattern matches it.
    bindings.drops.push(drop("token_embd.weight"));
    let dropped = resolve(&entries, &bindings).unwrap().dropped;
    let names: Vec<_> = dropped.iter().map(|d| d.0.as_str()).collect();
    assert_eq!(names, ["rope_freqs.weight", "blk.1.rope_freqs.weight"]);
    assert_eq!(dropped[0].1, "computed from the configuration");
}

#[test]
fn wrong_shapes_say_wanted_then_found() {
    let (mut entries, bindings) = llama(30);
    for e in &mut entries {
        let shape = if e.name.contains("attn_k") {
            vec![64, 16]
        } else if e.name.contains("norm") {
            vec![1, 64]
        } else if e.name.contains("token") {
            vec![1001, 64]
        } else if e.name.contains("blk.5.attn_q") {
            vec![32, 32]
        } else {
            continue;
        };
        e.shape = Shape::from(shape);
    }
    insta::assert_snapshot!(told(&entries, &bindings), @"
    `token_embd.weight`: wanted [1000, 64] for `token_embedding.weight`, found [1001, 64]
    hint: only axis 0 differs: 1000 wanted, 1001 found
    `blk.{n}.attn_k.weight` in 30 layers (0–29): wanted [16, 64] for `layers.{n}.attention.k.weight`, found [64, 16]
    hint: the axes are reversed: was it saved transposed?
    `blk.{n}.attn_norm.weight` in 30 layers (0–29): wanted [64] for `layers.{n}.attention_norm.weight`, found [1, 64]
    hint: the number of elements is right, but not the axes
    `blk.5.attn_q.weight`: wanted [64, 64] for `layers.5.attention.q.weight`, found [32, 32]
    ");
}

#[test]
fn a_fused_tensor_that_is_too_short_is_an_expression_that_does_not_fit() {
    let bf16 = Scheme::plain(Dtype::BF16);
    let entries: Vec<_> =
        (0..2).map(|n| entry(&format!("h.{n}.qkv.weight"), &bf16, &[80, 64], None)).collect();
    let mut bindings = Bindings::default();
    for n in 0..2 {
        for (part, range) in [("q", 0..64), ("k", 64..80), ("v", 80..96)] {
            let shape = [range.end - range.start, 64];
            let expr = Expr::source(format!("h.{n}.qkv.weight")).slice(0, range);
            bindings.bindings.push(binding(&format!("layers.{n}.attention.{part}.weight"), &shape, expr));
        }
    }
    insta::assert_snapshot!(told(&entries, &bindings), @"`layers.{n}.attention.v.weight` in 2 layers (0–1): slice 80..96 of axis 0 of [80, 64] does not fit, found `h.{n}.qkv.weight` [80, 64]");
    // Absent, it is missing once, for three parameters, and its shape is not known.
    insta::assert_snapshot!(told(&[], &bindings), @"`h.{n}.qkv.weight` is missing in 2 layers (0–1): needed for `layers.{n}.attention.q.weight` and 2 more");
}

#[test]
fn some_parts_there_and_some_not_is_missing_even_if_optional() {
    let bf16 = Scheme::plain(Dtype::BF16);
    let parts = Expr::Stack((0..3).map(|i| Expr::source(format!("experts.{i}.weight"))).collect());
    let optional = |entries: &[TensorEntry]| {
        let b =
            Binding { presence: Presence::Optional, ..binding("experts.weight", &[3, 4, 4], parts.clone()) };
        resolve(entries, &Bindings { bindings: vec![b], drops: vec![] })
    };
    assert_eq!(optional(&[]).unwrap().params, []);
    let entries = [entry("experts.1.weight", &bf16, &[4, 4], None)];
    insta::assert_snapshot!(optional(&entries).unwrap_err(), @"`experts.{n}.weight` is missing in 2 experts (0, 2): wanted [4, 4] for `experts.weight`");
}

#[test]
fn everything_is_said_at_once() {
    let (mut entries, bindings) = llama(30);
    rename(&mut entries, "attn_k", "attn_kk");
    entries.retain(|e| e.name != "blk.4.attn_norm.weight");
    entries[0].shape = Shape::from([1000, 63]);
    entries.push(entry("extra", &Scheme::plain(Dtype::F32), &[8], entries.last()));
    let twice = entries[1].clone();
    entries.push(twice);
    let problems = resolve(&entries, &bindings).unwrap_err();
    assert_eq!(problems.iter().count(), 30 + 30 + 1 + 1 + 1 + 1);
    insta::assert_snapshot!(problems.diagnostics(), @"
    wanted `blk.{n}.attn_k.weight` [16, 64] for `layers.{n}.attention.k.weight` in 30 layers (0–29), found unused `blk.{n}.attn_kk.weight` of the same shape
    hint: was it renamed?
    `blk.4.attn_norm.weight` is missing: wanted [64] for `layers.4.attention_norm.weight`
    the entry `blk.0.attn_q.weight` is given twice
    `token_embd.weight`: wanted [1000, 64] for `token_embedding.weight`, found [1000, 63]
    hint: only axis 1 differs: 64 wanted, 63 found
    `extra` [8] is in the checkpoint, but no parameter uses it
    ");
}

#[test]
fn names_without_end_are_only_counted() {
    let (mut entries, bindings) = llama(1);
    let word = |i: u32| format!("x{}", char::from_u32(0x4e00 + i).unwrap());
    for i in 0..1000 {
        entries.push(entry(&word(i), &Scheme::plain(Dtype::F32), &[1], None));
    }
    let text = told(&entries, &bindings);
    assert_eq!(text.lines().count(), 41);
    assert!(text.ends_with("\n… and 960 more problems"), "{text}");
}

#[test]
fn parts_that_need_different_codecs_are_not_joined() {
    let bf16 = Scheme::plain(Dtype::BF16);
    let entries = [entry("a", &bf16, &[4], None), entry("b", &bf16, &[4], None)];
    let told = |parts: Vec<Expr>| {
        let b = binding("norms", &[8], Expr::concat(0, parts));
        resolve(&entries, &Bindings { bindings: vec![b], drops: vec![] }).unwrap_err()
    };
    let one = |n: &str| Expr::source(n).encode(Step::Add(1));
    insta::assert_snapshot!(told(vec![one("a"), Expr::source("b")]), @"`norms`: wanted the same codec steps for all parts, found `-> f32 + 1` and none");
    let zero = Expr::concat(0, vec![Expr::Zero(Shape::from([4]))]);
    let b = vec![one("a"), zero];
    let problems = told(b);
    assert!(problems.iter().any(|p| matches!(p, Problem::Steps { clash: Clash::ZeroPlus, .. })));
    insta::assert_snapshot!(problems.diagnostics(), @"
    `norms`: adds to a part that is joined with padding, which would not stay 0
    `b` [4] is in the checkpoint, but no parameter uses it
    ");
}

#[test]
fn ties_must_lead_somewhere() {
    let tied = |name: &str, to: &str| Binding {
        presence: Presence::TiedTo(to.into()),
        ..binding(name, &[4], Expr::source(format!("{name}.weight")))
    };
    let told = |b: Vec<Binding>| resolve(&[], &Bindings { bindings: b, drops: vec![] }).unwrap_err();
    insta::assert_snapshot!(told(vec![tied("output", "token_embedding"), ]), @"`output`: there is no parameter `token_embedding`");
    insta::assert_snapshot!(told(vec![tied("a", "b"), tied("b", "a")]), @"
    `a` is tied to itself
    `b` is tied to itself
    ");
    let optional =
        Binding { presence: Presence::Optional, ..binding("root", &[4], Expr::source("root.weight")) };
    insta::assert_snapshot!(told(vec![optional, tied("output", "root")]), @"`output.weight` is missing: wanted [4] for `output`");
    // A missing root is said once.
    let root = binding("root", &[4], Expr::source("root.weight"));
    insta::assert_snapshot!(told(vec![root, tied("output", "root")]), @"`root.weight` is missing: wanted [4] for `root`");
}

#[test]
fn a_tied_parameter_must_have_the_shape_of_what_it_is_tied_to() {
    let entries = [entry("embd", &Scheme::plain(Dtype::BF16), &[100, 8], None)];
    let output = Binding {
        presence: Presence::TiedTo("token_embedding".into()),
        ..binding("output", &[101, 8], Expr::source("output"))
    };
    let b = vec![binding("token_embedding", &[100, 8], Expr::source("embd")), output];
    insta::assert_snapshot!(told(&entries, &Bindings { bindings: b, drops: vec![] }), @"
    `embd`: wanted [101, 8] for `output`, found [100, 8]
    hint: only axis 0 differs: 101 wanted, 100 found
    ");
}

#[test]
fn the_callers_mistakes_are_named_too() {
    let (entries, mut bindings) = llama(2);
    let resolved = resolve(&entries, &bindings).unwrap();
    let target = |name: &str, expr: Expr| Target { name: name.into(), expr, scheme: None };
    let q = || Expr::source("layers.0.attention.q.weight");
    let targets = [
        target("a", Expr::source("layers.0.attention.qq.weight")),
        target("b", q()),
        target("b", q()),
        target("c", q().slice(0, 0..65)),
        Target { scheme: Some(Scheme::plain(Dtype::F32)), ..target("d", q()) },
        Target { scheme: Some(crate::schemes::gguf("q8_0", 48, 51)), ..target("e", q()) },
    ];
    let problems = compile(&entries, &resolved, &targets, &NoCodecs).unwrap_err();
    insta::assert_snapshot!(problems.diagnostics(), @"
    `a`: there is no parameter `layers.0.attention.qq.weight`
    hint: the nearest is `layers.0.attention.q.weight`
    the target `b` is given twice
    `c`: slice 0..65 of axis 0 of [64, 64] does not fit, found `layers.0.attention.q.weight` [64, 64]
    `d`: wanted `f32`, found `bf16`: there is no codec for it
    `e`: wanted `q8_0`, found `bf16`: [64, 64]: axis 1 has 64 elements, not a multiple of the 48 that a block packs
    ");
    let blames: Vec<_> = problems.iter().map(Problem::blame).collect();
    let (misuse, ours) = (Blame::Misuse, Blame::Unsupported);
    assert_eq!(blames, [misuse, misuse, misuse, ours, ours]);
    bindings.bindings.push(bindings.bindings[1].clone());
    insta::assert_snapshot!(told(&entries, &bindings), @"the parameter `layers.0.attention.q.weight` is given twice");
}

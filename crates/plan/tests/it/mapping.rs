//! User rules: their results equal an element-by-element evaluation in any order of rules, and the inverse gives every
//! entry.

use std::collections::HashMap;

use insta::assert_snapshot;
use plan::{Codecs, Fidelity, Mapped, ResolveOptions, compile, resolve_with};
use tensor::{
    Binding, Bindings, DropRule, Dtype, Expr, MapOutcome, MapRule, MapStep, Mapping, Pattern, Presence,
    Scheme, Target, Template, TensorEntry,
};

use crate::oracle::{Rng, entry};

fn entries(named: &[(&str, &[u64])]) -> Vec<TensorEntry> {
    let mut out: Vec<TensorEntry> = vec![];
    for (name, shape) in named {
        let next = entry(name, &Scheme::plain(Dtype::F32), shape, out.last());
        out.push(next);
    }
    out
}

fn names(texts: &[&str]) -> Vec<Template> {
    texts.iter().map(|t| Template::parse(t).unwrap()).collect()
}

/// A rule that is right by itself.
fn rule(line: usize, from: &[&str], steps: Vec<MapStep>, to: &[&str]) -> MapRule {
    let rule = MapRule { from: names(from), outcome: MapOutcome::Make { steps, to: names(to) }, line };
    assert_eq!(rule.check(), [], "{rule:?}");
    rule
}

fn drop_of(line: usize, from: &str) -> MapRule {
    MapRule { from: names(&[from]), outcome: MapOutcome::Drop { why: "not needed".into() }, line }
}

fn mapping(rules: Vec<MapRule>) -> Mapping {
    Mapping { origin: "rules.toml".into(), rules }
}

/// Values of a tensor, in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Values(Vec<u64>, Vec<u64>);

fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![vec![]], |out, &n| {
        out.into_iter().flat_map(|p: Vec<u64>| (0..n).map(move |i| [&p[..], &[i]].concat())).collect()
    })
}

impl Values {
    fn at(&self, index: &[u64]) -> u64 {
        self.1[index.iter().zip(&self.0).fold(0, |at, (i, n)| at * n + i) as usize]
    }
    fn of(shape: Vec<u64>, value: impl Fn(&[u64]) -> u64) -> Values {
        let values = indices(&shape).iter().map(|i| value(i)).collect();
        Values(shape, values)
    }
}

/// Evaluates `expr` element by element.
fn values(expr: &Expr, source: &dyn Fn(&str) -> Values) -> Values {
    let of = |e: &Expr| values(e, source);
    match expr {
        Expr::Source(name) => source(name),
        Expr::Zero(shape) => Values::of(shape.to_vec(), |_| 0),
        Expr::Concat { axis, parts } => {
            let parts: Vec<Values> = parts.iter().map(of).collect();
            let mut shape = parts[0].0.clone();
            shape[*axis] = parts.iter().map(|p| p.0[*axis]).sum();
            Values::of(shape, |i| {
                let mut i = i.to_vec();
                for p in &parts {
                    if i[*axis] < p.0[*axis] {
                        return p.at(&i);
                    }
                    i[*axis] -= p.0[*axis];
                }
                unreachable!()
            })
        }
        Expr::Stack(parts) => {
            let parts: Vec<Values> = parts.iter().map(of).collect();
            let shape = [&[parts.len() as u64], &parts[0].0[..]].concat();
            Values::of(shape, |i| parts[i[0] as usize].at(&i[1..]))
        }
        Expr::Slice { axis, range, of: inner } => {
            let v = of(inner);
            let mut shape = v.0.clone();
            shape[*axis] = range.end - range.start;
            Values::of(shape, |i| {
                let mut i = i.to_vec();
                i[*axis] += range.start;
                v.at(&i)
            })
        }
        Expr::Split { axis, inner, of: whole } => {
            let Values(mut shape, all) = of(whole);
            shape[*axis] /= inner;
            shape.insert(axis + 1, *inner);
            Values(shape, all)
        }
        Expr::Merge { axis, of: whole } => {
            let Values(mut shape, all) = of(whole);
            shape[*axis] *= shape.remove(axis + 1);
            Values(shape, all)
        }
        Expr::Permute { axes, of: inner } => {
            let v = of(inner);
            let shape = axes.iter().map(|a| v.0[*a]).collect();
            Values::of(shape, |i| {
                let mut j = vec![0; i.len()];
                for (to, from) in axes.iter().enumerate() {
                    j[*from] = i[to];
                }
                v.at(&j)
            })
        }
        Expr::Encode { .. } => unreachable!("rules move, and change no value"),
    }
}

/// A value for each element of each entry, no two alike.
fn stored(entries: &[TensorEntry], name: &str) -> Values {
    let at = entries.iter().position(|e| e.name == name).unwrap();
    let shape = entries[at].shape.to_vec();
    let n: u64 = shape.iter().product();
    Values(shape, (0..n).map(|i| 1 + at as u64 * 1_000_000 + i).collect())
}

/// Every entry comes back, with all of its values.
fn goes_back(entries: &[TensorEntry], mapped: &Mapped) {
    let made: HashMap<&str, Values> =
        mapped.tensors().iter().map(|t| (&*t.name, values(&t.expr, &|n| stored(entries, n)))).collect();
    for t in mapped.tensors() {
        assert_eq!(made[&*t.name].0, t.shape.to_vec(), "{}", t.name);
    }
    let back = mapped.inverse().unwrap();
    let mut there: Vec<&str> = back.iter().map(|m| &*m.name).collect();
    let mut wanted: Vec<&str> = entries.iter().map(|e| &*e.name).collect();
    there.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(there, wanted);
    for entry in back {
        let found = values(&entry.expr, &|name| made[name].clone());
        assert_eq!(found, stored(entries, &entry.name), "{}: {:?}", entry.name, entry.expr);
    }
}

/// A rule of one kind, and the entries that it takes, under a prefix of its own.
fn random_rule(r: &mut Rng, i: usize) -> (MapRule, Vec<(String, Vec<u64>)>) {
    let mut size = || 1 + r.below(4);
    let (a, b, c, n, layers) = (size(), size(), size(), 1 + size(), 1 + size());
    let kind = r.below(9);
    let axis = r.below(2) as usize;
    let from = |rest: &str| format!("a{i}.{rest}");
    let to = |rest: &str| format!("b{i}.{rest}");
    let each = |shape: Vec<u64>| (0..layers).map(move |l| (format!("a{i}.{l}.w"), shape.clone())).collect();
    let one = |steps| rule(i, &[&from("{n}.w")], steps, &[&to("x.{n}.w")]);
    match kind {
        0 => (rule(i, &[&from("{rest..}")], vec![], &[&to("{rest..}.more")]), each(vec![a])),
        1 => (one(vec![MapStep::Transpose]), each(vec![a, b])),
        2 => (one(vec![MapStep::Permute(vec![2, 0, 1])]), each(vec![a, b, c])),
        3 => {
            let wide = vec![MapStep::Unflatten { axis: 0, sizes: vec![None, Some(b), Some(c)] }];
            let swapped =
                [wide, vec![MapStep::Permute(vec![0, 2, 1, 3]), MapStep::Flatten { axis: 0, count: 3 }]];
            (one(swapped.concat()), each(vec![a * b * c, n]))
        }
        4 => {
            let mut shape = vec![a, b];
            shape[axis] = 3 * c;
            let outs = [to("{n}.q"), to("{n}.k"), to("{n}.v")];
            let outs: Vec<&str> = outs.iter().map(String::as_str).collect();
            let sizes = (r.below(2) == 0).then(|| vec![c, 0, 2 * c]);
            let mut steps = vec![MapStep::Split { axis, sizes }];
            if r.below(2) == 0 {
                steps.push(MapStep::Transpose);
            }
            (rule(i, &[&from("{n}.w")], steps, &outs), each(shape))
        }
        5 => {
            let steps = vec![MapStep::Transpose, MapStep::Merge { axis }];
            let rule = rule(i, &[&from("{n}.q"), &from("{n}.k")], steps, &[&to("{n}.qk")]);
            let shape = |more: u64| if axis == 0 { vec![a, b + more] } else { vec![a + more, b] };
            let parts = (0..layers)
                .flat_map(|l| [(format!("a{i}.{l}.q"), shape(0)), (format!("a{i}.{l}.k"), shape(c))]);
            (rule, parts.collect())
        }
        6 => {
            let steps =
                vec![MapStep::Merge { axis: 0 }, MapStep::Stack { number: "e".into() }, MapStep::Transpose];
            let from = [from("{n}.{e}.up"), from("{n}.{e}.gate")];
            let from: Vec<&str> = from.iter().map(String::as_str).collect();
            let rule = rule(i, &from, steps, &[&to("{n}.both")]);
            // Experts in no order.
            let parts = (0..layers).flat_map(|l| {
                (0..n).rev().flat_map(move |e| {
                    [(format!("a{i}.{l}.{e}.up"), vec![a, b]), (format!("a{i}.{l}.{e}.gate"), vec![c, b])]
                })
            });
            (rule, parts.collect())
        }
        7 => {
            let steps = vec![
                MapStep::Unstack { number: "e".into() },
                MapStep::Split { axis: 0, sizes: Some(vec![a, b]) },
            ];
            let outs = [to("{n}.{e}.up"), to("{n}.{e}.gate")];
            let outs: Vec<&str> = outs.iter().map(String::as_str).collect();
            (rule(i, &[&from("{n}.w")], steps, &outs), each(vec![n, a + b, c]))
        }
        _ => {
            let outs = [to("{n}.w"), to("{n}.also")];
            let outs: Vec<&str> = outs.iter().map(String::as_str).collect();
            (rule(i, &[&from("{n}.w")], vec![MapStep::Transpose, MapStep::Tie], &outs), each(vec![a, b]))
        }
    }
}

fn shuffle<T>(r: &mut Rng, of: &mut [T]) {
    for i in (1..of.len()).rev() {
        of.swap(i, r.below(i as u64 + 1) as usize);
    }
}

#[test]
fn rules_in_any_order_make_the_same_and_go_back() {
    let mut r = Rng(0x51AB_17E5_0DD5_EED5);
    for _ in 0..400 {
        let (mut rules, mut all) = (vec![], vec![("untouched".to_owned(), vec![2u64, 2])]);
        for i in 1..=1 + r.below(4) as usize {
            let (rule, parts) = random_rule(&mut r, i);
            rules.push(rule);
            all.extend(parts);
        }
        shuffle(&mut r, &mut all);
        let named: Vec<(&str, &[u64])> = all.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect();
        let entries = entries(&named);
        let mapped = Mapped::of(&entries, &mapping(rules.clone())).unwrap_or_else(|e| panic!("{e}"));
        goes_back(&entries, &mapped);
        shuffle(&mut r, &mut rules);
        assert_eq!(Mapped::of(&entries, &mapping(rules)).unwrap(), mapped);
    }
}

#[test]
fn what_is_lost_has_no_way_back_and_says_so() {
    let entries = entries(&[("d.0", &[2]), ("s", &[4, 2]), ("p", &[3]), ("kept", &[1])]);
    let rules = vec![
        drop_of(1, "d.{n}"),
        rule(2, &["s"], vec![MapStep::Slice { axis: 0, range: 0..3 }], &["s.cut"]),
        rule(3, &["p"], vec![MapStep::Pad { axis: 0, to: 8 }], &["p.long"]),
    ];
    let mapped = Mapped::of(&entries, &mapping(rules)).unwrap();
    assert_eq!(mapped.dropped(), [("d.0".to_owned(), "not needed".to_owned())]);
    let (_, long) = mapped.find("p.long").unwrap();
    let found = values(&long.expr, &|n| stored(&entries, n));
    assert_eq!(found, Values(vec![8], vec![2_000_001, 2_000_002, 2_000_003, 0, 0, 0, 0, 0]));
    let mut lost: Vec<String> =
        mapped.inverse().unwrap_err().iter().map(|one| format!("{} {}", one.name, one.why)).collect();
    lost.sort_unstable();
    assert_eq!(lost, ["d.0 is dropped", "p.long is padding", "s is cut"]);
}

fn wrong(entries: &[TensorEntry], rules: Vec<MapRule>) -> String {
    let one = Mapped::of(entries, &mapping(rules.clone())).unwrap_err();
    let mut backwards = rules;
    backwards.reverse();
    // The order of rules does not matter here either, but for which of two the message stands with.
    assert_eq!(Mapped::of(entries, &mapping(backwards)).unwrap_err().iter().count(), one.iter().count());
    one.diagnostics().to_string()
}

#[test]
fn every_problem_is_said_at_once_with_its_line() {
    let e = entries(&[
        ("layers.0.wq", &[4, 2]),
        ("layers.0.wk", &[3, 2]),
        ("layers.1.wq", &[4, 2]),
        ("experts.0.w", &[2, 2]),
        ("experts.2.w", &[2, 2]),
        ("taken", &[1]),
        ("other", &[1]),
    ]);
    let rules = vec![
        rule(1, &["layers.{n}.wq", "layers.{n}.wk"], vec![MapStep::Merge { axis: 0 }], &["layers.{n}.qk"]),
        rule(5, &["experts.{e}.w"], vec![MapStep::Stack { number: "e".into() }], &["experts"]),
        rule(9, &["other"], vec![], &["taken"]),
        rule(12, &["layers.{n}.wv"], vec![], &["layers.{n}.v"]),
        drop_of(20, "{any}"),
    ];
    assert_snapshot!(wrong(&e, rules), @"
    `rules.toml` line 1: `layers.1.wk` is missing: wanted together with `layers.1.wq`
    `rules.toml` line 5: `experts.1.w` is missing: wanted together with `experts.0.w`
    `rules.toml` line 9: `other` is taken twice: here by `other`, in line 20 by `{any}`
    hint: at most one rule takes a tensor; only names with `{name..}` leave alone what others take
    `rules.toml` line 12: no tensor of the checkpoint is called `layers.{n}.wv`
    hint: the nearest is `layers.{n}.wk`
    ");
}

#[test]
fn two_tensors_of_one_name_are_refused() {
    let e = entries(&[("a", &[1]), ("b", &[1]), ("c.0", &[1]), ("d.0", &[1]), ("c.1", &[1]), ("d.1", &[1])]);
    let rules = vec![
        rule(1, &["a"], vec![], &["b"]),
        rule(2, &["c.{n}"], vec![], &["x.{n}"]),
        rule(3, &["d.{n}"], vec![], &["x.{n}"]),
    ];
    assert_snapshot!(wrong(&e, rules), @"
    `rules.toml` line 1: `b` would be two tensors: here it is made of `a`, `b` has that name already, and no rule takes it
    `rules.toml` line 3: `x.0` would be two tensors: here it is made of `d.0`, of `c.0` in line 2, and 1 more alike
    ");
    // Renaming an entry frees its name.
    let rules = vec![rule(1, &["a"], vec![], &["b"]), rule(2, &["b"], vec![], &["a"])];
    goes_back(&e, &Mapped::of(&e, &mapping(rules)).unwrap());
}

#[test]
fn steps_that_do_not_fit_are_refused_with_the_shape() {
    let shapes: Vec<(String, Vec<u64>)> = (0..9).map(|i| (format!("t{i}.0"), vec![6, 4])).collect();
    let named: Vec<(&str, &[u64])> = shapes.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect();
    let e = entries(&named);
    let steps = [
        MapStep::Permute(vec![0, 1, 2]),
        MapStep::Unflatten { axis: 0, sizes: vec![None, Some(4)] },
        MapStep::Flatten { axis: 1, count: 2 },
        MapStep::Slice { axis: 0, range: 2..7 },
        MapStep::Pad { axis: 1, to: 3 },
        MapStep::Split { axis: 0, sizes: Some(vec![4, 4]) },
        MapStep::Split { axis: 1, sizes: None },
        MapStep::Unstack { number: "e".into() },
        MapStep::Merge { axis: 2 },
    ];
    let rules = steps.into_iter().enumerate().map(|(i, step)| {
        let from = format!("t{i}.{{x}}");
        let (from, to): (Vec<&str>, Vec<&str>) = match &step {
            MapStep::Split { sizes: None, .. } => (vec![&from], vec!["a.{x}", "b.{x}", "c.{x}"]),
            MapStep::Split { .. } => (vec![&from], vec!["q.{x}", "k.{x}"]),
            MapStep::Unstack { .. } => (vec![&from], vec!["u.{x}.{e}"]),
            _ => (vec![&from], vec!["x.{x}"]),
        };
        MapRule {
            from: names(&from),
            outcome: MapOutcome::Make { steps: vec![step], to: names(&to) },
            line: i + 1,
        }
    });
    // `unstack` fits.
    assert_snapshot!(wrong(&e, rules.collect()), @"
    `rules.toml` line 1: permute of [6, 4] by [0, 1, 2] does not fit, found `t0.0` [6, 4]
    `rules.toml` line 2: unflatten of axis 0 of [6, 4] to [-1, 4] does not fit, found `t1.0` [6, 4]
    `rules.toml` line 3: merge of axis 1 of [6, 4] with the next does not fit, found `t2.0` [6, 4]
    `rules.toml` line 4: slice 2..7 of axis 0 of [6, 4] does not fit, found `t3.0` [6, 4]
    `rules.toml` line 5: padding to 3 of axis 1 of [6, 4] does not fit, found `t4.0` [6, 4]
    `rules.toml` line 6: split of axis 0 of [6, 4] to [4, 4] does not fit, found `t5.0` [6, 4]
    `rules.toml` line 7: split of axis 1 of [6, 4] to 3 equal parts does not fit, found `t6.0` [6, 4]
    `rules.toml` line 9: concat of [6, 4] along axis 2 does not fit, found `t8.0` [6, 4]
    ");
}

struct NoCodecs;
impl Codecs for NoCodecs {
    fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
        None
    }
}

fn bound(name: &str, entry: &str, shape: &[u64]) -> Binding {
    Binding {
        name: name.into(),
        shape: shape.to_vec().into(),
        expr: Expr::source(entry),
        presence: Presence::Required,
    }
}

#[test]
fn a_dialect_finds_what_rules_make_and_not_what_they_took() {
    let e = entries(&[("wq", &[4, 2]), ("emb", &[8, 2]), ("junk", &[1]), ("swapped", &[1])]);
    let rules = vec![
        rule(1, &["wq"], vec![MapStep::Transpose], &["q"]),
        rule(2, &["emb"], vec![MapStep::Tie], &["embed", "head"]),
        drop_of(3, "junk"),
    ];
    let mapped = Mapped::of(&e, &mapping(rules)).unwrap();
    let reading = ResolveOptions { mapped: Some(&mapped), allow_missing: &[] };
    let mut bindings = Bindings {
        bindings: vec![
            bound("Q", "q", &[2, 4]),
            bound("E", "embed", &[8, 2]),
            bound("H", "head", &[8, 2]),
            bound("S", "swapped", &[1]),
        ],
        drops: vec![],
    };
    let resolved = resolve_with(&e, &bindings, &reading).unwrap();
    assert_eq!(resolved.find("Q").unwrap().expr, Expr::source("wq").transpose());
    assert_eq!(resolved.find("H").unwrap().tied_to.as_deref(), Some("E"));
    assert_eq!(resolved.dropped, [("junk".to_owned(), "not needed".to_owned())]);
    let target = |n: &str| Target { name: n.into(), expr: Expr::source(n), scheme: None };
    let targets: Vec<Target> = ["H", "E", "Q"].map(target).into();
    let plan = compile(&e, &resolved, &targets, &NoCodecs).unwrap();
    assert_eq!(plan.find("E").unwrap().1.tied_to, Some(0));

    // The name that was taken away is not found any more.
    bindings.bindings[0] = bound("Q", "wq", &[4, 2]);
    bindings.bindings[3] = bound("S", "swapped", &[2]);
    assert_snapshot!(resolve_with(&e, &bindings, &reading).unwrap_err().diagnostics(), @"
    `wq` is missing: wanted [4, 2] for `Q`
    `swapped`: wanted [2] for `S`, found [1]
    hint: only axis 0 differs: 2 wanted, 1 found
    `q` [2, 4] is made of `wq`, but no parameter uses it
    ");
}

#[test]
fn absence_is_excused_by_name_only_and_listed() {
    let e = entries(&[("a", &[1]), ("q", &[2, 2])]);
    let qkv = Binding {
        expr: Expr::concat(0, vec![Expr::source("q"), Expr::source("k")]),
        ..bound("QK", "", &[4, 2])
    };
    let bindings = Bindings {
        bindings: vec![
            bound("A", "a", &[1]),
            bound("layers.0.B", "b.0", &[1]),
            bound("layers.1.B", "b.1", &[1]),
        ],
        drops: vec![DropRule { pattern: Pattern::new("q"), why: "not here".into() }],
    };
    let resolve = |bindings: &Bindings, allow: &[&str]| {
        let allow: Vec<Pattern> = allow.iter().copied().map(Pattern::new).collect();
        resolve_with(&e, bindings, &ResolveOptions { mapped: None, allow_missing: &allow })
    };
    for pattern in ["layers.{n}.B", "b.{n}"] {
        let resolved = resolve(&bindings, &[pattern]).unwrap();
        let absent: Vec<(&str, &str)> = resolved.absent.iter().map(|a| (&*a.param, &*a.entries[0])).collect();
        assert_eq!(absent, [("layers.0.B", "b.0"), ("layers.1.B", "b.1")]);
    }
    // A target that needs it is rejected.
    let target = Target {
        name: "AB".into(),
        expr: Expr::concat(0, vec![Expr::source("A"), Expr::source("layers.0.B")]),
        scheme: None,
    };
    let resolved = resolve(&bindings, &["b.{n}"]).unwrap();
    assert_snapshot!(compile(&e, &resolved, &[target], &NoCodecs).unwrap_err().diagnostics(), @"
    `AB`: wanted `layers.0.B` for it too, which is absent, as it may be
    hint: use a layout without fused parameters: canonical, in-place, gguf or hf
    ");
    let mut torn = bindings.clone();
    torn.bindings.push(qkv);
    assert_snapshot!(resolve(&torn, &["b.0", "QK", "c.{n}"]).unwrap_err().diagnostics(), @"
    `b.1` is missing: wanted [1] for `layers.1.B`
    `k` is missing: needed for `QK`
    no parameter is called `c.{n}`, so it cannot be missing
    hint: the nearest is `b.{n}`
    ");
}

/// A stranger's names against a user's rules: no time is lost, and nothing is made without end.
#[test]
fn many_entries_and_many_rules_take_no_time() {
    let scheme = Scheme::plain(Dtype::F32);
    let mut e: Vec<TensorEntry> = vec![];
    for i in 0..500_000u32 {
        e.push(entry(&format!("model.layers.{}.mlp.p{}.weight", i / 100, i % 100), &scheme, &[1], e.last()));
    }
    let one = |i: usize| {
        rule(i + 1, &[&format!("model.layers.{{n}}.mlp.p{i}.weight")], vec![], &[&format!("l.{{n}}.q{i}")])
    };
    let started = std::time::Instant::now();
    let mapped = Mapped::of(&e, &mapping((0..100).map(one).collect())).unwrap();
    assert_eq!(mapped.tensors().len(), e.len());
    let took = started.elapsed().as_secs_f64();
    // Other processors may be emulated: docs/platforms.md.
    let most = if cfg!(not(target_arch = "x86_64")) {
        300.0
    } else if cfg!(debug_assertions) {
        60.0
    } else {
        10.0
    };
    assert!(took < most, "{took} s");

    let huge = entries(&[("w", &[1 << 40, 1])]);
    let unstack = rule(1, &["w"], vec![MapStep::Unstack { number: "e".into() }], &["w.{e}"]);
    assert_snapshot!(wrong(&huge, vec![unstack]), @"`rules.toml` line 1: unstack makes more than 1048576 tensors, found `w` [1099511627776, 1]");
}

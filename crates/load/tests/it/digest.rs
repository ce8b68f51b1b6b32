//! The digest of a plan: equal for equal work, wherever the files are; other for anything that moves another byte.

use std::collections::BTreeSet;

use checkpoint::{Checkpoint, Io};
use load::{Digest, Plan};
use tensor::{Arrangement, Dtype, Expr, MeshRank, RopeOrder, Scheme, Step, Target, ValueOrder};

use crate::{Matrix, file, folder, open};

fn matrices() -> [Matrix; 3] {
    [Matrix::new("a", &[64, 256], 1), Matrix::new("b", &[64, 256], 2), Matrix::new("c", &[256], 3)]
}

fn arrangement() -> Arrangement {
    Arrangement {
        layout: "packed".into(),
        rope_order: Some(RopeOrder::Half),
        value_order: ValueOrder::Grouped,
        share: None,
    }
}

/// One of each kind: as stored, transposed, fused, encoded, interleaved.
fn targets() -> Vec<Target> {
    let of = |name: &str, expr, scheme| Target { name: name.into(), expr, scheme };
    let both = Expr::concat(0, vec![Expr::source("a"), Expr::source("b")]);
    vec![
        of("a", Expr::source("a"), None),
        of("t", Expr::source("a").transpose(), None),
        of("ab", both.clone(), None),
        of("q", both.clone(), quant::scheme("q4_0")),
        of("p", both.encode(Step::To(quant::scheme("q8_0").unwrap())), quant::scheme("q8_0.r16")),
        of("c", Expr::source("c"), Some(Scheme::plain(Dtype::F32))),
    ]
}

fn digest(of: &Checkpoint, targets: &[Target], arrangement: Arrangement) -> Digest {
    let (bindings, _) = plan::as_stored(of.entries());
    let resolved = plan::resolve(of.entries(), &bindings).unwrap();
    Plan::compile(of, &resolved, targets, arrangement).unwrap().digest()
}

#[test]
fn equal_work_has_an_equal_digest() {
    let (here, there) = (folder(), folder());
    let first = open(&file(here.path(), "model.safetensors", &matrices()), Io::Mmap);
    // Another file, other values, another way to read.
    let [a, mut b, c] = matrices();
    b.seed = 99;
    let second = open(&file(there.path(), "another.safetensors", &[a, b, c]), Io::Direct);
    let one = digest(&first, &targets(), arrangement());
    assert_eq!(digest(&second, &targets(), arrangement()), one);
    // On every machine, and in every version that does the same.
    assert_eq!(one.to_string(), "8472242fe935f2047084628cd2b6075da63f926f58e04206e076ce5dbab06e39");
}

#[test]
fn other_work_has_another_digest() {
    let dir = folder();
    let plain = open(&file(dir.path(), "model.safetensors", &matrices()), Io::Mmap);
    let mut seen = BTreeSet::from([digest(&plain, &targets(), arrangement())]);
    let mut other = |what: &str, digest: Digest| assert!(seen.insert(digest), "{what}");

    let share = |rank| Some(MeshRank { mesh: "tp 2".into(), rank });
    for (what, changed) in [
        ("layout", Arrangement { layout: "canonical".into(), ..arrangement() }),
        ("rows of q and k", Arrangement { rope_order: Some(RopeOrder::Interleaved), ..arrangement() }),
        ("no order", Arrangement { rope_order: None, ..arrangement() }),
        ("heads of values", Arrangement { value_order: ValueOrder::Tiled, ..arrangement() }),
        ("share", Arrangement { share: share(0), ..arrangement() }),
        ("another's share", Arrangement { share: share(1), ..arrangement() }),
    ] {
        other(what, digest(&plain, &targets(), changed));
    }
    for i in 0..targets().len() {
        let changed = |change: &dyn Fn(&mut Target)| {
            let mut targets = targets();
            change(&mut targets[i]);
            digest(&plain, &targets, arrangement())
        };
        other("name", changed(&|t| t.name.push('x')));
        if i < 5 {
            let to = if i == 4 { "q8_0" } else { "q5_1" };
            other("encoding", changed(&|t| t.scheme = quant::scheme(to)));
        }
        let mut fewer = targets();
        fewer.remove(i);
        other("fewer", digest(&plain, &fewer, arrangement()));
    }
    let mut swapped = targets();
    swapped.swap(0, 1);
    other("order", digest(&plain, &swapped, arrangement()));
    let mut expr = targets();
    expr[2].expr = Expr::concat(0, vec![Expr::source("b"), Expr::source("a")]);
    other("movement", digest(&plain, &expr, arrangement()));

    // The whole header, even of entries that are not taken.
    for (what, extra) in [
        ("one more", Matrix::new("d", &[7], 4)),
        ("its name", Matrix::new("e", &[7], 4)),
        ("its shape", Matrix::new("e", &[7, 1], 4)),
    ] {
        let mut more: Vec<Matrix> = matrices().into();
        more.push(extra);
        let more = open(&file(dir.path(), "more.safetensors", &more), Io::Mmap);
        other(what, digest(&more, &targets(), arrangement()));
    }
}

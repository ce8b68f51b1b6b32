//! Shapes and expressions made to hurt: refused in bounded time, never a panic, never a hang.

use std::time::{Duration, Instant};

use plan::{Fidelity, Piece, PieceSource, PlannedPlane, Problem, Unproven, Why, prove};
use tensor::{Dtype, Expr, FileId, PlaneData, Scheme, Shape, TensorEntry};

use crate::blame::{NoCodecs, plan_of};
use crate::moves::s;
use crate::oracle::{Rng, lowered, tensors};
use crate::schemes::{gguf, plain, real};

/// Generous: a dev build on a busy machine. Without a bound these take years.
const LIMIT: Duration = Duration::from_mins(2);

/// An entry that claims to have `shape`, without bytes.
fn claims(scheme: &std::sync::Arc<Scheme>, shape: &[u64]) -> TensorEntry {
    TensorEntry {
        name: "t0".into(),
        shape: Shape::from(shape.to_vec()),
        scheme: scheme.clone(),
        planes: scheme.planes.iter().map(|_| PlaneData { file: FileId(0), bytes: 0..0 }).collect(),
        strides: None,
    }
}

fn why(e: &Expr, src: &[TensorEntry], scheme: &Scheme) -> Why {
    lowered(e, src, scheme).unwrap_err().why
}

#[test]
fn sizes_that_wrap_are_refused() {
    let max = u64::MAX;
    let two = plain(2);
    assert_eq!(why(&s(0), &[claims(&two, &[max])], &two), Why::Overflow);
    assert_eq!(why(&s(0), &[claims(&two, &[max, max])], &two), Why::Overflow);
    assert_eq!(why(&s(0), &[claims(&two, &[0, max, max])], &two), Why::Overflow);
    assert_eq!(why(&s(0), &[claims(&two, &[1 << 40, 1 << 30])], &two), Why::Overflow);
    let q4k = gguf("q4_k", 256, 144);
    assert!(matches!(why(&s(0), &[claims(&q4k, &[max])], &q4k), Why::Ragged { .. }));
    // 2^63 elements are 2^55 blocks of 144 bytes, which fits.
    assert!(lowered(&s(0), &[claims(&q4k, &[1 << 63])], &q4k).is_ok());
    let wide = gguf("wide", 1, 144);
    assert_eq!(why(&s(0), &[claims(&wide, &[1 << 60])], &wide), Why::Overflow);
    let half = claims(&two, &[max / 2 + 1]);
    assert_eq!(why(&Expr::concat(0, vec![s(0), s(0)]), std::slice::from_ref(&half), &two), Why::Overflow);
    assert_eq!(why(&Expr::Stack(vec![s(0), s(0), s(0)]), &[half], &two), Why::Overflow);
}

#[test]
fn empty_tensors_move_like_others() {
    for scheme in &real() {
        for shape in [[0, 512], [64, 0], [0, 0]] {
            let src = [claims(scheme, &shape)];
            for e in [s(0), Expr::Stack(vec![s(0), s(0)]), Expr::concat(0, vec![s(0), s(0)]), s(0).merge(0)] {
                if let Ok(planes) = lowered(&e, &src, scheme) {
                    for p in &planes {
                        prove(p).unwrap();
                    }
                }
            }
        }
    }
    let src = [claims(&plain(2), &[0, 8])];
    let planes = lowered(&s(0).split(0, u64::MAX / 16).merge(1), &src, &plain(2)).unwrap();
    assert_eq!((planes[0].bytes, planes[0].copy.len(), planes[0].borrowable()), (0, 0, None));
    let scalar = [claims(&plain(2), &[])];
    assert_eq!(lowered(&s(0), &scalar, &plain(2)).unwrap()[0].borrowable(), Some((0, 0, 0)));
    assert!(matches!(why(&s(0), &[claims(&gguf("b", 4, 2), &[])], &gguf("b", 4, 2)), Why::Rank { .. }));
}

#[test]
fn deep_expressions_are_refused_and_not_walked() {
    let src = tensors(&plain(2), &[&[8, 8]]);
    let deep = (0..1_000).fold(s(0), |e, _| e.transpose());
    assert!(matches!(why(&deep, &src, &plain(2)), Why::Shape(text) if text.contains("deeper")));
    let problems = plan_of(&deep, &src, None, &NoCodecs).unwrap_err();
    assert!(matches!(problems.iter().next(), Some(Problem::Expression { .. })));
}

#[test]
fn movement_that_is_too_fine_is_refused_in_bounded_time() {
    let started = Instant::now();
    let plain = plain(1);
    // 2^40 elements regrouped by a prime and turned: pieces without end.
    let n = 1u64 << 20;
    let src = [claims(&plain, &[n + 3, n])];
    let regroup = s(0).merge(0).slice(0, 0..(n + 7) * (n - 8)).split(0, n + 7).transpose();
    assert!(matches!(why(&regroup, &src, &plain), Why::TooFine { .. }));
    let problems = plan_of(&regroup, &src, None, &NoCodecs).unwrap_err();
    insta::assert_snapshot!(problems.diagnostics(), @"
    `w`: its movement takes more than 1048576 steps
    hint: the axes are cut so that almost each element moves alone; is the shape right?
    ");
    // Shared cells of which each has a little of two sources.
    let fp8 = crate::schemes::fp8_block(1 << 20, 1 << 20);
    let src = [claims(&fp8, &[1 << 29, 1 << 29])];
    let cut = Expr::concat(1, vec![s(0).slice(1, 0..1), s(0).slice(1, 1..1 << 29)]);
    assert!(lowered(&cut, &src, &fp8).is_ok());
    let rows = crate::schemes::int8_rows();
    let src = [claims(&rows, &[1 << 40, 4])];
    let cut = Expr::concat(1, vec![s(0).slice(1, 0..1), s(0).slice(1, 1..4)]);
    assert!(matches!(why(&cut, &src, &rows), Why::TooFine { .. }));
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn a_proof_that_is_too_fine_gives_up() {
    let dim = |extent, stride| plan::Dim { extent, source_stride: stride, target_stride: stride };
    let piece = |at, dims| Piece {
        source: Some(PieceSource { entry: 0, plane: 0 }),
        source_offset: 0,
        target_offset: at,
        run: 1,
        dims,
    };
    // Strides that never nest have to be spelled out.
    let copy = vec![piece(0, vec![dim(1 << 40, 3), dim(1 << 40, 2)]), piece(1, vec![dim(1 << 41, 5)])];
    let started = Instant::now();
    let plane = PlannedPlane { role: "data", bytes: 1 << 50, copy, equal: vec![] };
    assert_eq!(prove(&plane), Err(Unproven::TooFine));
    assert!(started.elapsed() < LIMIT);
}

/// Any expression over any shape: an answer or a refusal, and what is answered is proved.
#[test]
fn random_nonsense_never_panics() {
    let mut r = Rng(42);
    let schemes = real();
    let number = |r: &mut Rng| match r.below(8) {
        0 => 0,
        1 => u64::MAX - r.below(3),
        2 => 1 << r.below(64),
        3 => r.below(5000),
        _ => r.below(20),
    };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..if cfg!(debug_assertions) { 4_000 } else { 40_000 } {
        let scheme = &schemes[r.below(schemes.len() as u64) as usize];
        let shape: Vec<u64> = (0..r.below(4)).map(|_| number(&mut r)).collect();
        let src = [claims(scheme, &shape)];
        let mut e = s(0);
        for _ in 0..r.below(5) {
            let axis = r.below(4) as usize;
            e = match r.below(7) {
                0 => e.slice(axis, number(&mut r)..number(&mut r)),
                1 => e.split(axis, number(&mut r)),
                2 => e.merge(axis),
                3 => {
                    e.permute(&[[0, 1, 2], [1, 0, 2], [2, 0, 1]][r.below(3) as usize][..r.below(4) as usize])
                }
                4 => Expr::concat(axis, vec![e.clone(), e]),
                5 => Expr::concat(axis, vec![e, Expr::Zero(Shape::from(vec![number(&mut r); 2]))]),
                _ => Expr::Stack(vec![s(0), e]),
            };
        }
        match lowered(&e, &src, scheme) {
            Err(refusal) => {
                assert!(!matches!(refusal.why, Why::Hole { .. }), "{e:?}");
                refused += 1;
            }
            Ok(planes) => {
                for p in &planes {
                    assert!(matches!(prove(p), Ok(()) | Err(Unproven::TooFine)), "{e:?}");
                }
                accepted += 1;
            }
        }
        // The whole way, with its messages.
        match plan_of(&e, &src, Some(&Scheme::plain(Dtype::F32)), &NoCodecs) {
            Ok(plan) => assert_eq!(plan.params[0].fidelity, Fidelity::Exact),
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    }
    println!("accepted {accepted}, refused {refused}");
    assert!(accepted > 100 && refused > 100);
}

//! Random movements: accepted ones do what the oracle says, and only illegal ones are rejected.

use std::sync::Arc;

use plan::{PlannedPlane, Why, prove};
use tensor::{Expr, Scheme, Shape, TensorEntry};

use crate::oracle::{Planes, Rng, add, agrees, export, lowered, oracle, random_bytes, verify};
use crate::schemes::toys;

struct Maker<'a> {
    rng: &'a mut Rng,
    scheme: &'a Arc<Scheme>,
    src: Vec<TensorEntry>,
}

impl Maker<'_> {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u64) as usize]
    }

    fn leaf(&mut self, shape: Vec<u64>) -> (Expr, Vec<u64>) {
        // A source must itself be a whole number of packed cells.
        let stored = self.scheme.byte_len(&Shape::from(shape.clone())).is_ok();
        if self.rng.below(12) == 0 || !stored {
            return (Expr::Zero(Shape::from(shape.clone())), shape);
        }
        add(&mut self.src, self.scheme, &shape);
        (Expr::source(format!("t{}", self.src.len() - 1)), shape)
    }

    fn make(&mut self, depth: u64) -> (Expr, Vec<u64>) {
        if depth == 0 {
            let shape = vec![self.pick(&[2, 4, 6, 8, 12]), self.pick(&[4, 8, 12, 16])];
            return self.leaf(shape);
        }
        let (e, mut t) = self.make(depth - 1);
        let axis = self.rng.below(t.len() as u64) as usize;
        match self.rng.below(7) {
            0 => {
                let mut w = t.clone();
                w[axis] = self.pick(&[1, 2, 4]) * (1 + self.rng.below(4));
                t[axis] += w[axis];
                let (f, _) = self.leaf(w);
                let parts = if self.rng.below(2) == 0 { vec![e, f] } else { vec![f, e] };
                (Expr::concat(axis, parts), t)
            }
            1 => {
                let (f, _) = self.leaf(t.clone());
                t.insert(0, 2);
                (Expr::Stack(vec![e, f]), t)
            }
            2 => {
                let mut axes: Vec<usize> = (0..t.len()).collect();
                for i in (1..axes.len()).rev() {
                    axes.swap(i, self.rng.below(i as u64 + 1) as usize);
                }
                // Mostly leave `in` alone.
                if self.rng.below(3) > 0 {
                    let last = axes.iter().position(|a| *a == t.len() - 1).unwrap();
                    let a = axes.remove(last);
                    axes.push(a);
                }
                (e.permute(&axes), axes.iter().map(|&a| t[a]).collect())
            }
            3 => {
                let divisors: Vec<u64> = (1..=t[axis]).filter(|k| t[axis] % k == 0).collect();
                let inner = self.pick(&divisors);
                t[axis] /= inner;
                t.insert(axis + 1, inner);
                (e.split(axis, inner), t)
            }
            4 if t.len() > 1 => {
                let axis = self.rng.below(t.len() as u64 - 1) as usize;
                let inner = t.remove(axis + 1);
                t[axis] *= inner;
                (e.merge(axis), t)
            }
            5 => {
                let at = self.rng.below(t[axis] + 1);
                let parts = vec![e.clone().slice(axis, 0..at), e.slice(axis, at..t[axis])];
                (Expr::concat(axis, parts), t)
            }
            _ => {
                let unit = self.pick(&[1, 2, 4, 4]);
                let unit = if t[axis].is_multiple_of(unit) { unit } else { 1 };
                let start = self.rng.below(t[axis] / unit) * unit;
                let end = start + unit * (1 + self.rng.below((t[axis] - start) / unit));
                t[axis] = end - start;
                (e.slice(axis, start..end), t)
            }
        }
    }
}

/// Loses, doubles or shifts a piece: the proof must see it.
fn spoil(r: &mut Rng, p: &PlannedPlane) {
    let i = r.below(p.copy.len() as u64) as usize;
    let with = |f: &dyn Fn(&mut PlannedPlane)| {
        let mut bad = p.clone();
        f(&mut bad);
        assert!(prove(&bad).is_err());
    };
    with(&|bad| drop(bad.copy.remove(i)));
    with(&|bad| bad.copy.push(p.copy[i].clone()));
    with(&|bad| bad.copy[i].target_offset += 1);
}

/// Cut into chunks of any size, a plane's pieces write the same bytes.
fn chunked(r: &mut Rng, p: &PlannedPlane, data: &[Planes], got: &[u8]) {
    let chunk = 1 + r.below(p.bytes.max(1));
    let mut out = vec![0xEE; p.bytes as usize];
    for start in (0..p.bytes).step_by(chunk as usize) {
        let target = start..(start + chunk).min(p.bytes);
        let mut clipped = vec![];
        p.copy.iter().for_each(|c| c.clip(target.clone(), &mut clipped));
        for c in &clipped {
            c.runs(|s, t| {
                assert!(target.contains(&t) && t + c.run <= target.end);
                let (s, t, n) = (s as usize, t as usize, c.run as usize);
                match c.source {
                    None => out[t..t + n].fill(0),
                    Some(f) => out[t..t + n].copy_from_slice(&data[f.entry][f.plane][s..s + n]),
                }
            });
        }
        let bytes: u64 = clipped.iter().map(plan::Piece::bytes).sum();
        assert_eq!(bytes, target.end - target.start);
    }
    assert!(out == got, "chunks of {chunk} differ");
}

fn one(r: &mut Rng, from: &Arc<Scheme>, to: &Scheme, tally: &mut [u32; 3]) {
    let depth = 1 + r.below(6);
    let mut maker = Maker { rng: r, scheme: from, src: vec![] };
    let (e, shape) = maker.make(depth);
    let src = maker.src;
    if shape.len() < to.trailing || shape.iter().product::<u64>() > 1500 {
        return;
    }
    if let Err(refusal) = lowered(&e, &src, to) {
        assert!(oracle(&e, &src, to).is_none(), "refused ({refusal}) though legal: {e:?} {}", to.name);
        assert!(!matches!(refusal.why, Why::Hole { .. } | Why::Shape(_) | Why::TooFine { .. }), "{refusal}");
        tally[1] += 1;
        return;
    }
    tally[0] += 1;
    let data: Vec<Planes> = src.iter().map(|t| random_bytes(r, t)).collect();
    let (low, got) = verify(&e, &src, &data, to);
    if agrees(&low, &got, &data) {
        let mut back: Vec<Planes> =
            data.iter().map(|d| d.iter().map(|p| vec![0xAA; p.len()]).collect()).collect();
        export(&low, &got, &mut back);
        if !format!("{e:?}").contains("Slice") {
            assert!(back == data, "{e:?}");
            tally[2] += 1;
        }
        let restored = back.iter().flatten().flatten().zip(data.iter().flatten().flatten());
        assert!(restored.into_iter().all(|(b, d)| b == d || *b == 0xAA));
    }
    for (p, got) in low.iter().zip(&got).filter(|(p, _)| !p.copy.is_empty()) {
        spoil(r, p);
        chunked(r, p, &data, got);
    }
}

#[test]
fn random_moves_do_what_the_oracle_says_and_only_illegal_ones_are_refused() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let mut r = Rng(number("SEED").unwrap_or(0x9E37_79B9_7F4A_7C15));
    let rounds = number("ROUNDS").unwrap_or(if cfg!(debug_assertions) { 4_000 } else { 15_000 });
    let toys = toys();
    let mut tally = vec![[0; 3]; toys.len()];
    for _ in 0..rounds {
        let which = r.below(toys.len() as u64) as usize;
        one(&mut r, &toys[which].0, &toys[which].1, &mut tally[which]);
    }
    for ((from, to), [moved, refused, whole]) in toys.iter().zip(&tally) {
        let name = format!("{from} -> {to}");
        println!("{name:>26} moved {moved:>5} refused {refused:>5} exported whole {whole:>5}");
        // A scheme that no move meets, or that refuses nothing, tests nothing.
        assert!(*moved > 0 && *whole > 0 && (*refused > 0 || from.trailing == 0));
    }
}

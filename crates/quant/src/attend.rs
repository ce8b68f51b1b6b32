//! Attention of the query heads that share one key and value head.

use crate::isa::per_isa;
use crate::vector::{LANES, fma, softmax_body, sum_of};

/// Positions taken at once.
const ROWS: usize = 4;

/// What [`attend`] needs to know beside its vectors.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Query heads that share the key and value head. Not 0.
    pub heads: usize,
    /// The factor of the scores, `1 / sqrt(d)` for most families.
    pub scale: f32,
    /// `c`, if the scores are `c * tanh(scale * q · k / c)`.
    pub soft_cap: Option<f32>,
}

per_isa! {
    /// `out[h] = softmax(scale * q[h] · kᵀ) · v` for each query head `h` that shares the keys `k` and values `v`.
    ///
    /// `q` and `out` are `[heads, d]`, `k` and `v` `[n, d]`, `scores` is room for `[heads, n]` and holds the
    /// weights afterwards. Each row of `k` and `v` is read from memory once for all heads.
    ///
    /// # Panics
    /// If the lengths do not fit each other, or any is 0.
    pub fn attend(how: Attention, q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) = attend_body
}

#[inline(always)]
fn attend_body<const FMA: bool>(
    how: Attention,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let g = how.heads;
    assert!(g > 0 && q.len().is_multiple_of(g) && !q.is_empty(), "{g} heads of {} values", q.len());
    let d = q.len() / g;
    let n = k.len() / d;
    assert!(
        n > 0 && k.len() == n * d && v.len() == k.len(),
        "keys {} and values {} of {d}",
        k.len(),
        v.len()
    );
    assert!(scores.len() == g * n && out.len() == q.len(), "scores {} for [{g}, {n}]", scores.len());

    for (rows, at) in k.chunks(ROWS * d).zip((0..n).step_by(ROWS)) {
        for (q, scores) in q.chunks_exact(d).zip(scores.chunks_exact_mut(n)) {
            if rows.len() == ROWS * d {
                scores[at..at + ROWS].copy_from_slice(&dots::<FMA, ROWS>(q, rows));
            } else {
                for (score, row) in scores[at..].iter_mut().zip(rows.chunks_exact(d)) {
                    [*score] = dots::<FMA, 1>(q, row);
                }
            }
        }
    }
    for scores in scores.chunks_exact_mut(n) {
        softmax_body::<FMA>(scores, how.scale, how.soft_cap);
    }
    out.fill(0.0);
    for (rows, at) in v.chunks(ROWS * d).zip((0..n).step_by(ROWS)) {
        for (out, scores) in out.chunks_exact_mut(d).zip(scores.chunks_exact(n)) {
            if rows.len() == ROWS * d {
                mix::<FMA, ROWS>(&scores[at..], rows, out);
            } else {
                for (i, row) in rows.chunks_exact(d).enumerate() {
                    mix::<FMA, 1>(&scores[at + i..], row, out);
                }
            }
        }
    }
}

/// The products of `q` with `R` rows of its length.
#[inline(always)]
fn dots<const FMA: bool, const R: usize>(q: &[f32], rows: &[f32]) -> [f32; R] {
    let d = q.len();
    let whole = d / LANES * LANES;
    let row: [&[f32]; R] = std::array::from_fn(|r| &rows[r * d..][..d]);
    let mut sums = [[0.0; LANES]; R];
    let mut i = 0;
    while i < whole {
        let q: &[f32; LANES] = q[i..].first_chunk().unwrap_or(&[0.0; LANES]);
        for (sums, row) in sums.iter_mut().zip(row) {
            let row: &[f32; LANES] = row[i..].first_chunk().unwrap_or(&[0.0; LANES]);
            for lane in 0..LANES {
                sums[lane] = fma::<FMA>(q[lane], row[lane], sums[lane]);
            }
        }
        i += LANES;
    }
    for (sums, row) in sums.iter_mut().zip(row) {
        for i in whole..d {
            sums[i - whole] = fma::<FMA>(q[i], row[i], sums[i - whole]);
        }
    }
    sums.map(sum_of)
}

/// Adds `R` rows, each times its weight, to `out`.
#[inline(always)]
fn mix<const FMA: bool, const R: usize>(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    let d = out.len();
    let row: [&[f32]; R] = std::array::from_fn(|r| &rows[r * d..][..d]);
    let weight: [f32; R] = std::array::from_fn(|r| weights[r]);
    for (i, out) in out.iter_mut().enumerate() {
        for r in 0..R {
            *out = fma::<FMA>(weight[r], row[r][i], *out);
        }
    }
}

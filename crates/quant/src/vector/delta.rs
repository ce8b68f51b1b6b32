//! The gated delta rule: a matrix that is decayed, corrected and read for each token.

use super::exp::exp;
use super::fma;
use crate::isa::per_isa;

/// Elements of a value that are taken at once: their columns of the matrix stay in the nearest cache.
const WIDE: usize = 32;

per_isa! {
    /// One token of one head: `memory = keep · memory`, then `memory += k ⊗ write · (v - kᵀ memory)`, and `out = qᵀ memory`. `memory` is
    /// `[key, value]`, `q` and `k` are `[key]`, `v` and `out` `[value]`; `rates` are `keep` and `write`.
    ///
    /// # Panics
    /// If they have other lengths.
    pub fn delta_step(
        memory: &mut [f32],
        q: &[f32],
        k: &[f32],
        v: &[f32],
        rates: [f32; 2],
        out: &mut [f32],
    ) = delta_step_body
}
#[inline(always)]
fn delta_step_body<const FMA: bool>(
    memory: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    rates: [f32; 2],
    out: &mut [f32],
) {
    assert!(memory.len() == k.len() * v.len() && q.len() == k.len() && out.len() == v.len());
    let mut at = 0;
    while at + WIDE <= v.len() {
        columns::<FMA, WIDE>(memory, q, k, &v[at..], at, v.len(), rates, &mut out[at..]);
        at += WIDE;
    }
    while at < v.len() {
        columns::<FMA, 1>(memory, q, k, &v[at..], at, v.len(), rates, &mut out[at..]);
        at += 1;
    }
}

/// The same for `N` columns from `first` on, of a matrix of `width`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is a loop of the function above")]
fn columns<const FMA: bool, const N: usize>(
    memory: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    first: usize,
    width: usize,
    [keep, write]: [f32; 2],
    out: &mut [f32],
) {
    let mut known = [0.0; N];
    for (row, k) in memory.chunks_exact(width).zip(k) {
        let row = &row[first..first + N];
        for i in 0..N {
            known[i] = fma::<FMA>(row[i], *k, known[i]);
        }
    }
    let mut change = [0.0; N];
    for i in 0..N {
        change[i] = write * (v[i] - keep * known[i]);
    }
    let mut read = [0.0; N];
    for ((row, k), q) in memory.chunks_exact_mut(width).zip(k).zip(q) {
        let row = &mut row[first..first + N];
        for i in 0..N {
            row[i] = fma::<FMA>(*k, change[i], keep * row[i]);
            read[i] = fma::<FMA>(row[i], *q, read[i]);
        }
    }
    out[..N].copy_from_slice(&read);
}

per_isa! {
    /// A convolution of each channel alone over its last rows: `out = Σ weights[j] · rows[j]`. `weights` is `[kernel, channels]`; `before`
    /// are the rows before, `[kernel - 1, channels]`, and `now` is the last, `[channels]`.
    ///
    /// # Panics
    /// If they have other lengths.
    pub fn convolve(weights: &[f32], before: &[f32], now: &[f32], out: &mut [f32]) = convolve_body
}
#[inline(always)]
fn convolve_body<const FMA: bool>(weights: &[f32], before: &[f32], now: &[f32], out: &mut [f32]) {
    let channels = out.len();
    assert!(now.len() == channels && weights.len() == before.len() + channels);
    out.fill(0.0);
    let rows = before.chunks_exact(channels).chain([now]);
    for (weights, row) in weights.chunks_exact(channels).zip(rows) {
        for ((out, weight), x) in out.iter_mut().zip(weights).zip(row) {
            *out = fma::<FMA>(*weight, *x, *out);
        }
    }
}

per_isa! {
    /// `x = silu(x)`.
    pub fn silu(x: &mut [f32]) = silu_body
}
#[inline(always)]
fn silu_body<const FMA: bool>(x: &mut [f32]) {
    for x in x {
        *x /= 1.0 + exp::<FMA>(-*x);
    }
}

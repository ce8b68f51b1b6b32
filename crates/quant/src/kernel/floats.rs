//! Products of plain matrices: f32, f16 and bf16, with the activations as floats.
//!
//! Each product of two rows is summed in 16 lanes, lane `i` taking every 16th column from `i` on, each step in
//! one rounding; a short last step is filled up with zeros. The lanes are then added pairwise. Every
//! instruction set and every tile shape keeps this order, so all give the same bits.

use crate::lanes::{Lanes, for_16_lanes};

use super::blocks::Job;

/// Lanes that a product is summed in.
const LANES: usize = 16;

/// A plain dtype.
pub(super) trait Float {
    /// Bytes of one element.
    const BYTES: usize;

    /// `V::N` elements.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load<V: Lanes>(p: *const u8) -> V::F;
}

macro_rules! float {
    ($name:ident, $bytes:literal, $p:ident => $load:expr) => {
        pub(super) struct $name;

        impl Float for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load<V: Lanes>($p: *const u8) -> V::F {
                // SAFETY: as this function.
                unsafe { $load }
            }
        }
    };
}

float!(F32, 4, p => V::load_f(p.cast()));
float!(F16, 2, p => V::load_half(p));
float!(BF16, 2, p => V::load_bf16(p));

/// Bytes of activations that a core's second cache holds beside the weight.
const CACHED: usize = 256 << 10;

for_16_lanes! {
    /// Products with a plain matrix.
    pub(super) fn floats_of<D: Float>(job: &mut Job<'_>) = floats
}

/// # Safety
/// As [`Lanes`], with 16 lanes; `job.w` holds `total` rows of `k` columns.
#[inline(always)]
unsafe fn floats<V: Lanes, D: Float>(job: &mut Job<'_>) {
    // As many rows of the weight and of the activations at once as the registers hold sums for.
    // SAFETY: as this function.
    unsafe { if V::REGISTERS >= 32 { tiles::<V, D, 4, 4>(job) } else { tiles::<V, D, 2, 2>(job) } }
}

/// # Safety
/// As [`floats`].
#[inline(always)]
unsafe fn tiles<V: Lanes, D: Float, const R: usize, const T: usize>(job: &mut Job<'_>) {
    let x_rows = job.x.rows();
    // Rows of the activations that stay in the cache while all rows of the weight meet them.
    let block = (CACHED / (4 * job.k).max(1)).max(1).next_multiple_of(T);
    let mut first = 0;
    while first < x_rows {
        let end = (first + block).min(x_rows);
        let mut row = job.rows.start;
        while row < job.rows.end {
            let rows = if row + R <= job.rows.end { R } else { 1 };
            let mut t = first;
            while t < end {
                let tokens = if t + T <= end { T } else { 1 };
                // SAFETY: as this function.
                unsafe {
                    match (rows == R, tokens == T) {
                        (true, true) => tile::<V, D, R, T>(job, row, t),
                        (true, false) => tile::<V, D, R, 1>(job, row, t),
                        (false, true) => tile::<V, D, 1, T>(job, row, t),
                        (false, false) => tile::<V, D, 1, 1>(job, row, t),
                    }
                }
                t += tokens;
            }
            row += rows;
        }
        first = end;
    }
}

/// Rows `row..row + R` against rows `t..t + T` of the activations.
///
/// # Safety
/// As [`floats`].
#[inline(always)]
unsafe fn tile<V: Lanes, D: Float, const R: usize, const T: usize>(job: &mut Job<'_>, row: usize, t: usize) {
    assert_eq!(V::N, LANES);
    let k = job.k;
    let w: [&[u8]; R] = std::array::from_fn(|r| &job.w[0][(row + r) * k * D::BYTES..][..k * D::BYTES]);
    let x: [&[f32]; T] = std::array::from_fn(|i| &job.x.floats()[(t + i) * k..][..k]);
    let whole = k / LANES * LANES;
    // Several rows are read at once.
    let ahead = job.way.ahead / 2;
    // SAFETY: as this function; the last step reads arrays of the full size.
    unsafe {
        let mut acc = [[V::splat_f(0.0); T]; R];
        let mut i = 0;
        while i < whole {
            if T == 1 && ahead > 0 {
                for w in w {
                    V::prefetch(w.as_ptr().wrapping_add(i * D::BYTES + ahead));
                }
            }
            let mut xs = [V::splat_f(0.0); T];
            for t in 0..T {
                xs[t] = V::load_f(x[t].as_ptr().add(i));
            }
            for r in 0..R {
                let w = D::load::<V>(w[r].as_ptr().add(i * D::BYTES));
                for t in 0..T {
                    acc[r][t] = V::fma(w, xs[t], acc[r][t]);
                }
            }
            i += LANES;
        }
        if whole < k {
            for (w, acc) in w.iter().zip(&mut acc) {
                let mut last = [0u8; 4 * LANES];
                last[..(k - whole) * D::BYTES].copy_from_slice(&w[whole * D::BYTES..]);
                let w = D::load::<V>(last.as_ptr());
                for (acc, x) in acc.iter_mut().zip(x) {
                    let mut last = [0.0; LANES];
                    last[..k - whole].copy_from_slice(&x[whole..]);
                    *acc = V::fma(w, V::load_f(last.as_ptr()), *acc);
                }
            }
        }
        for i in 0..T {
            let y = &mut job.y.row_mut(t + i)[row - job.rows.start..][..R];
            if R == 4 {
                y.copy_from_slice(&V::sum_4(std::array::from_fn(|r| acc[r % R][i])));
            } else {
                y.iter_mut().zip(&acc).for_each(|(y, acc)| *y = V::sum(acc[i]));
            }
        }
    }
}

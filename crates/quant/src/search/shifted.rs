//! Groups of any number of values that are a scale times a code less a zero point: `x ≈ s (q - z)`, with whole numbers `q` and `z`.

use super::{LEAST_WEIGHT, SHIFT, TRIES, Tries, add, inverse, within};
use crate::isa::{Isa, per_isa};
use crate::scheme::Real;

/// The codes, the zero points and the scales that a scheme has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// The largest code.
    pub(crate) top: u8,
    /// The least zero point and the largest one.
    pub(crate) zeros: (u8, u8),
    /// The dtype of scales.
    pub(crate) scales: Real,
}

/// A group that is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// The scale, rounded as it is stored.
    pub(crate) scale: f32,
    /// The zero point.
    pub(crate) zero: u8,
}

/// Memory for the search, kept from group to group.
#[derive(Debug, Default)]
pub(crate) struct Room {
    values: Vec<f32>,
    weights: Vec<f32>,
}

/// Finds the scale and the zero point with the least weighted squared error for the group `values`, and writes its codes.
///
/// # Panics
/// If there is not a code, and an importance where there is any, for each value.
pub(crate) fn shifted(
    isa: Isa,
    grid: Grid,
    values: &[f32],
    importance: Option<&[f32]>,
    room: &mut Room,
    codes: &mut [u8],
) -> Found {
    assert_eq!(values.len(), codes.len(), "a code for each value");
    assert!(importance.is_none_or(|w| w.len() == values.len()), "an importance for each value");
    search(isa, grid, values, importance, room, codes)
}

per_isa! {
    fn search(
        grid: Grid,
        values: &[f32],
        importance: Option<&[f32]>,
        room: &mut Room,
        codes: &mut [u8],
    ) -> Found = search_group
}

/// The best scale so far, of values divided by the unit.
struct Fit {
    scale: f32,
    zero: f32,
    /// By how much the error is less than with the scale 0.
    gain: f32,
}

#[inline(always)]
fn search_group<const FMA: bool>(
    grid: Grid,
    values: &[f32],
    importance: Option<&[f32]>,
    room: &mut Room,
    codes: &mut [u8],
) -> Found {
    let (mut peak, mut low, mut high) = (0.0f32, 0.0f32, 0.0f32);
    for x in values {
        low = if *x < low { *x } else { low };
        high = if *x > high { *x } else { high };
        peak = if x.abs() > peak.abs() { *x } else { peak };
    }
    if peak.abs() < f32::MIN_POSITIVE {
        // Any scale says zeros.
        let zero = (grid.top / 2 + 1).clamp(grid.zeros.0, grid.zeros.1);
        codes.fill(zero);
        return Found { scale: 1.0, zero };
    }
    // A power of two that brings the peak to between 1 and 2, so that no square is lost or too large.
    let unit = f32::from_bits(peak.to_bits() & 0x7f80_0000);
    room.values.clear();
    room.values.extend(values.iter().map(|x| x / unit));
    weigh(values.len(), importance, &mut room.weights);
    let (x, w) = (&room.values[..], &room.weights[..]);

    let top = f32::from(grid.top);
    let (first, last) = (f32::from(grid.zeros.0), f32::from(grid.zeros.1));
    // How far apart tries are, as codes at the end of the grid.
    let spread = if grid.top > 100 { 1.0 } else { 0.25 };
    let middle = |c: usize| c as f32 - 7.5;
    let mut best = Fit { scale: 0.0, zero: first, gain: 0.0 };
    if first >= last {
        // The peak comes to stand at one end of the codes or the other, or a little outside or inside.
        for end in [-first, top - first] {
            let tries = std::array::from_fn(|c| (end + middle(c) * spread) / (peak / unit));
            best.improve(x, w, top, &tries, &[first; TRIES]);
        }
    } else {
        let (low, high) = (low / unit, high / unit);
        let step = (high - low) / top;
        let tries: Tries = std::array::from_fn(|c| (1.0 + middle(c) * spread / top) / step);
        // Values are cut off at both ends.
        let zeros = std::array::from_fn(|c| {
            whole(-low * tries[c] - 0.5 * ((high - low) * tries[c] - top), first, last)
        });
        best.improve(x, w, top, &tries, &zeros);
        for _ in 0..2 {
            let (scale, zero) = (best.scale, best.zero);
            let tries = std::array::from_fn(|c| (1.0 + ((c % 4) as f32 - 1.5) * spread / top) / scale);
            let zeros = std::array::from_fn(|c| whole(zero + (c / 4) as f32 - 1.5, first, last));
            best.improve(x, w, top, &tries, &zeros);
        }
    }
    let (scale, zero) = (best.scale, best.zero);
    let tries = std::array::from_fn(|c| (1.0 + middle(c) * 0.1 * spread / top) / scale);
    best.improve(x, w, top, &tries, &[zero; TRIES]);

    let scale = grid.scales.round_factor(best.scale * unit);
    let by = inverse(scale / unit);
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (whole(x * by, -best.zero, top - best.zero) + best.zero) as u8;
    }
    Found { scale, zero: best.zero as u8 }
}

/// The whole number nearest to `t` within bounds that are whole numbers.
#[inline(always)]
fn whole(t: f32, low: f32, high: f32) -> f32 {
    within(t, low, high) + SHIFT - SHIFT
}

/// The weights of `n` values: their importance as a share of its mean.
#[inline(always)]
fn weigh(n: usize, importance: Option<&[f32]>, weights: &mut Vec<f32>) {
    weights.clear();
    let mean = importance.map_or(0.0, |w| w.iter().map(|w| f64::from(*w)).sum::<f64>() / n as f64) as f32;
    match importance.filter(|_| mean > f32::MIN_POSITIVE && mean.is_finite()) {
        Some(importance) => {
            weights.extend(importance.iter().map(|w| within(w / mean, LEAST_WEIGHT, f32::MAX)));
        }
        None => weights.resize(n, 1.0),
    }
}

impl Fit {
    /// Tries 16 pairs of a scale, given as `1 / s`, and a zero point. Values are rounded to codes, and the scale is fitted to them.
    #[inline(always)]
    fn improve(&mut self, x: &[f32], w: &[f32], top: f32, inverse: &Tries, zero: &Tries) {
        let (mut qq, mut xq) = ([0.0; TRIES], [0.0; TRIES]);
        let (low, high) = (zero.map(|z| -z), zero.map(|z| top - z));
        for (x, w) in x.iter().zip(w) {
            // Loops of one array each: compilers make one vector operation of each.
            let q: Tries = std::array::from_fn(|c| whole(x * inverse[c], low[c], high[c]));
            let weighted = q.map(|q| w * q);
            add(&mut qq, &std::array::from_fn(|c| weighted[c] * q[c]));
            add(&mut xq, &weighted.map(|q| q * x));
        }
        for c in 0..TRIES {
            let gain = xq[c] * xq[c] / qq[c];
            if gain > self.gain {
                *self = Fit { scale: xq[c] / qq[c], zero: zero[c], gain };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tensor::Dtype;

    use super::*;

    fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    fn grids() -> Vec<Grid> {
        let scales = [Dtype::F16, Dtype::BF16, Dtype::F32].map(Real);
        let tops = [3u8, 7, 15, 255];
        let one = |top: u8, scales| {
            let middle = top / 2 + 1;
            [(middle, middle), (0, top)].map(|zeros| Grid { top, zeros, scales })
        };
        scales.iter().flat_map(|scales| tops.into_iter().flat_map(|top| one(top, *scales))).collect()
    }

    fn error(values: &[f32], weights: Option<&[f32]>, found: Found, codes: &[u8]) -> f64 {
        let decoded = codes.iter().map(|q| f64::from(found.scale) * (f64::from(*q) - f64::from(found.zero)));
        let weight = |i: usize| weights.map_or(1.0, |w| f64::from(w[i]));
        values
            .iter()
            .zip(decoded)
            .enumerate()
            .map(|(i, (x, y))| weight(i) * (f64::from(*x) - y).powi(2))
            .sum()
    }

    #[test]
    fn every_instruction_set_gives_the_same_codes() {
        for grid in grids() {
            for size in [1e30, 1e3, 1.0, 1e-3, 1e-9, 1e-38, 1e-42, 0.0] {
                let values: Vec<f32> = noise(128, 7).iter().map(|x| x.powi(3) * size).collect();
                let weights: Vec<f32> = noise(128, 9).iter().map(|x| x.powi(4)).collect();
                for importance in [None, Some(&weights[..])] {
                    let encode = |isa| {
                        let mut codes = vec![0xA5; values.len()];
                        let found = shifted(isa, grid, &values, importance, &mut Room::default(), &mut codes);
                        (found.scale.to_bits(), found.zero, codes)
                    };
                    let wanted = encode(Isa::Scalar);
                    assert!((grid.zeros.0..=grid.zeros.1).contains(&wanted.1));
                    assert!(wanted.2.iter().all(|code| *code <= grid.top));
                    for isa in Isa::available() {
                        assert_eq!(encode(isa), wanted, "{grid:?} of {size} with {}", isa.name());
                    }
                }
            }
        }
    }

    /// Values that are on the grid come back, whichever zero point it has.
    #[test]
    fn values_on_the_grid_are_found_again() {
        for grid in grids() {
            for zero in [grid.zeros.0, grid.zeros.0.midpoint(grid.zeros.1), grid.zeros.1] {
                let codes: Vec<u8> =
                    (0..128u32).map(|i| (i * 37 % (u32::from(grid.top) + 1)) as u8).collect();
                let values: Vec<f32> =
                    codes.iter().map(|q| 0.25 * (f32::from(*q) - f32::from(zero))).collect();
                let mut again = vec![0; 128];
                let found = shifted(Isa::Scalar, grid, &values, None, &mut Room::default(), &mut again);
                let lost = error(&values, None, found, &again);
                let all: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
                assert!(
                    lost <= 1e-5 * all,
                    "{grid:?} with the zero point {zero}: {lost} of {all}, {found:?}"
                );
            }
        }
    }

    /// The error is no more than that of the scale that fits the ends, and heeds what matters.
    #[test]
    fn the_search_loses_less_than_fitting_the_ends() {
        for grid in grids() {
            let values: Vec<f32> = noise(128, 3).iter().map(|x| x.powi(3) + 0.1).collect();
            let weights: Vec<f32> = noise(128, 5).iter().map(|x| x.powi(4)).collect();
            let top = f32::from(grid.top);
            let (low, high) = values.iter().fold((0.0f32, 0.0f32), |(l, h), x| (l.min(*x), h.max(*x)));
            let (scale, zero) = if grid.zeros.0 == grid.zeros.1 {
                (high.max(-low) / (top - f32::from(grid.zeros.0)), f32::from(grid.zeros.0))
            } else {
                ((high - low) / top, (-low * top / (high - low)).round())
            };
            let plain: Vec<u8> =
                values.iter().map(|x| (x / scale + zero).round().clamp(0.0, top) as u8).collect();
            let fitted = Found { scale, zero: zero as u8 };
            let mut codes = vec![0; values.len()];
            let found = shifted(Isa::Scalar, grid, &values, None, &mut Room::default(), &mut codes);
            let (ours, theirs) = (error(&values, None, found, &codes), error(&values, None, fitted, &plain));
            // Scales of few bits are rounded, which matters where there are many codes.
            let slack = if grid.scales == Real(Dtype::BF16) { 1.5 } else { 1.01 };
            assert!(ours <= slack * theirs, "{grid:?}: {ours} and {theirs}");
            let heeding =
                shifted(Isa::Scalar, grid, &values, Some(&weights), &mut Room::default(), &mut codes);
            let heeded = error(&values, Some(&weights), heeding, &codes);
            let mut unheeded = vec![0; values.len()];
            let found = shifted(Isa::Scalar, grid, &values, None, &mut Room::default(), &mut unheeded);
            assert!(heeded <= error(&values, Some(&weights), found, &unheeded), "{grid:?}");
        }
    }
}

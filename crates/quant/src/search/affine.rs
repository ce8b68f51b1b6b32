//! Schemes whose values are a scale times a code and a minimum: `x ≈ s q + m`.

use crate::float16::Half;

use super::{Book, Group, Parts, Sums, TRIES, Tries, inverse, least};

/// A scale, a minimum and what they lose.
#[derive(Clone, Copy)]
struct Fit {
    scale: f32,
    min: f32,
    error: f32,
}

/// The scale and the minimum that fit a group best if the scale may be any number, and the minimum too, or
/// any that is not above 0.
#[inline(always)]
fn free<B: Book, const N: usize, const ANY: bool>(group: &Group<N>) -> Fit {
    let (low, high) = group.range();
    let low = if ANY { low } else { low.min(0.0) };
    let mut best = Fit { scale: 0.0, min: low, error: f32::INFINITY };
    if high <= low {
        return best;
    }
    let step = (high - low) / B::HIGH;
    let inverse = std::array::from_fn(|c| (1.0 + (c as f32 - 7.5) * 0.125 / B::HIGH) / step);
    best.improve::<B, N, ANY>(group, &inverse, &[low; TRIES]);

    let Fit { scale, min, .. } = best;
    let inverse = std::array::from_fn(|c| (1.0 + ((c % 4) as f32 - 1.5) * 0.25 / B::HIGH) / scale);
    let min = std::array::from_fn(|c| min + ((c / 4) as f32 - 1.5) * 0.25 * scale);
    best.improve::<B, N, ANY>(group, &inverse, &min);
    best
}

impl Fit {
    #[inline(always)]
    fn improve<B: Book, const N: usize, const ANY: bool>(
        &mut self,
        group: &Group<N>,
        inverse: &Tries,
        min: &Tries,
    ) {
        let sums = group.tries::<B>(inverse, min);
        let (mut scale, mut min) = ([0.0; TRIES], [0.0; TRIES]);
        for c in 0..TRIES {
            let Sums { q, qq, xq } = sums.of(c);
            let det = group.sw * qq - q * q;
            let m = (group.sx * qq - q * xq) / det;
            let m = if !ANY && m > 0.0 { 0.0 } else { m };
            (scale[c], min[c]) = ((xq - m * q) / qq, m);
        }
        let errors = group.errors(&sums, &scale, &min);
        let c = least(&errors);
        if errors[c] < self.error {
            *self = Fit { scale: scale[c], min: min[c], error: errors[c] };
        }
    }
}

/// A block as `d * scale * q - dmin * min`.
pub(crate) struct Affine<const N: usize, const J: usize> {
    pub(crate) d: Half,
    pub(crate) dmin: Half,
    /// From 0 to `TOP`.
    pub(crate) scales: [u8; J],
    /// From 0 to `TOP`.
    pub(crate) mins: [u8; J],
    pub(crate) codes: [[u8; N]; J],
}

/// Times that scales and minima, and their factors, are fitted to each other.
const ROUNDS: usize = 3;

/// Fits a block of groups whose scales and minima are whole numbers, up to `TOP`, times a common factor each.
#[inline(always)]
pub(crate) fn affine<B: Book, const N: usize, const J: usize, const TOP: i32>(
    parts: &Parts<N, J>,
) -> Affine<N, J> {
    let mut fits = [Fit { scale: 0.0, min: 0.0, error: 0.0 }; J];
    let (mut d, mut dmin) = (0.0f32, 0.0f32);
    for (fit, group) in fits.iter_mut().zip(&parts.groups) {
        *fit = free::<B, N, false>(group);
        d = d.max(fit.scale / TOP as f32);
        dmin = dmin.max(-fit.min / TOP as f32);
    }

    let mut best = ((Half::ZERO, Half::ZERO), [(0, 0); J]);
    let mut least_error = f32::INFINITY;
    for _ in 0..ROUNDS {
        let halves = (parts.half_factor(d), parts.half_factor(dmin));
        let ((half, d_now), (half_min, dmin_now)) = halves;
        let mut chosen = [(0, 0); J];
        let mut error = 0.0;
        // The normal equations of `d` and `-dmin`, given the whole numbers and the codes.
        let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for j in 0..J {
            let group = &parts.groups[j];
            let (scale, min, sums, lost) = around::<B, N, TOP>(group, d_now, dmin_now, fits[j]);
            chosen[j] = (scale, min);
            error += lost;
            let (a, b) = (scale as f32, min as f32);
            aa += a * a * sums.qq;
            ab += a * b * sums.q;
            bb += b * b * group.sw;
            ax += a * sums.xq;
            bx += b * group.sx;
        }
        if error >= least_error {
            break;
        }
        (best, least_error) = (((half, half_min), chosen), error);
        let det = aa * bb - ab * ab;
        if det > 0.0 {
            (d, dmin) = ((ax * bb - bx * ab) / det, (ax * ab - bx * aa) / det);
        } else {
            d = ax * inverse(aa);
        }
    }

    let ((d, dmin), chosen) = best;
    let (factor, factor_min) = (parts.factor(d), parts.factor(dmin));
    let mut codes = [[0; N]; J];
    for j in 0..J {
        let (scale, min) = chosen[j];
        codes[j] = parts.groups[j].codes::<B>(factor * scale as f32, -factor_min * min as f32);
    }
    Affine { d, dmin, scales: chosen.map(|c| c.0 as u8), mins: chosen.map(|c| c.1 as u8), codes }
}

/// The best of the pairs of whole numbers around `fit.scale / d` and `-fit.min / dmin`, its sums and its error.
#[inline(always)]
fn around<B: Book, const N: usize, const TOP: i32>(
    group: &Group<N>,
    d: f32,
    dmin: f32,
    fit: Fit,
) -> (i32, i32, Sums<f32>, f32) {
    let first = |wanted: f32, factor: f32| {
        let below = (wanted * inverse(factor)).floor() as i32;
        below.saturating_sub(1).clamp(0, TOP - 3)
    };
    let (first_scale, first_min) = (first(fit.scale, d), first(-fit.min, dmin));
    let scales: Tries = std::array::from_fn(|c| d * (first_scale + c as i32 % 4) as f32);
    let mins: Tries = std::array::from_fn(|c| -dmin * (first_min + c as i32 / 4) as f32);
    let sums = group.tries::<B>(&scales.map(inverse), &mins);
    let errors = group.errors(&sums, &scales, &mins);
    let c = least(&errors);
    (first_scale + c as i32 % 4, first_min + c as i32 / 4, sums.of(c), errors[c])
}

/// Fits a block of one group: scale, minimum and codes.
#[inline(always)]
pub(crate) fn one_affine<B: Book, const N: usize>(parts: &Parts<N, 1>) -> (Half, Half, [u8; N]) {
    let [group] = &parts.groups;
    let fit = free::<B, N, true>(group);
    let ((d, factor), (m, min)) = (parts.half_factor(fit.scale), parts.half(fit.min));
    (d, m, group.codes::<B>(factor, min))
}

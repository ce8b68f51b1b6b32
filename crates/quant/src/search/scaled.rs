//! Schemes whose values are a scale times a code: `x ≈ s q`.

use crate::float16::Half;

use super::{Book, Group, Parts, Sums, TRIES, Tries, inverse, least};

/// The scale that fits a group best if it may be any number.
#[inline(always)]
fn free<B: Book, const N: usize>(group: &Group<N>) -> f32 {
    let peak = group.peak();
    if peak == 0.0 {
        return 0.0;
    }
    // The peak comes to stand at one end of the codes or the other, or a little outside or inside.
    let mut best = Fit { scale: 0.0, gain: 0.0 };
    for end in [B::LOW, B::HIGH] {
        let inverse = std::array::from_fn(|c| (end + (c as f32 - 7.5) * spread::<B>()) / peak);
        best.improve::<B, N>(group, &inverse);
    }
    let again =
        std::array::from_fn(|c| (1.0 + (c as f32 - 7.5) * 0.1 * spread::<B>() / B::HIGH) / best.scale);
    best.improve::<B, N>(group, &again);
    best.scale
}

/// How far apart tries are, as codes at the end of the book.
const fn spread<B: Book>() -> f32 {
    if B::HIGH > 64.0 { 1.0 } else { 0.125 }
}

/// A scale, and by how much the error is less than with the scale 0.
struct Fit {
    scale: f32,
    gain: f32,
}

impl Fit {
    #[inline(always)]
    fn improve<B: Book, const N: usize>(&mut self, group: &Group<N>, inverse: &Tries) {
        let sums = group.tries::<B>(inverse, &[0.0; TRIES]);
        for c in 0..TRIES {
            let gain = sums.xq[c] * sums.xq[c] / sums.qq[c];
            if gain > self.gain {
                *self = Fit { scale: sums.xq[c] / sums.qq[c], gain };
            }
        }
    }
}

/// A block as `d * scale * q`.
pub(crate) struct Scaled<const N: usize, const J: usize> {
    pub(crate) d: Half,
    /// From `-TOP` to `TOP - 1`.
    pub(crate) scales: [i32; J],
    pub(crate) codes: [[u8; N]; J],
}

/// Times that scales and their factor are fitted to each other.
const ROUNDS: usize = 3;

/// Fits a block of groups whose scales are whole numbers times a common factor.
#[inline(always)]
pub(crate) fn scaled<B: Book, const N: usize, const J: usize, const TOP: i32>(
    parts: &Parts<N, J>,
) -> Scaled<N, J> {
    let mut fits = [0.0f32; J];
    let mut largest = 0.0f32;
    for (fit, group) in fits.iter_mut().zip(&parts.groups) {
        *fit = free::<B, N>(group);
        if fit.abs() > largest.abs() {
            largest = *fit;
        }
    }

    let mut best = (Half::ZERO, [0; J]);
    let mut least_error = f32::INFINITY;
    let mut d = largest / -TOP as f32;
    for _ in 0..ROUNDS {
        let (half, factor) = parts.half_factor(d);
        let mut scales = [0; J];
        let (mut error, mut ax, mut aa) = (0.0, 0.0, 0.0);
        for j in 0..J {
            let (scale, sums, lost) = around::<B, N, TOP>(&parts.groups[j], factor, fits[j]);
            scales[j] = scale;
            error += lost;
            ax += scale as f32 * sums.xq;
            aa += (scale * scale) as f32 * sums.qq;
        }
        if error >= least_error {
            break;
        }
        (best, least_error) = ((half, scales), error);
        d = ax * inverse(aa);
    }

    let (d, scales) = best;
    let factor = parts.factor(d);
    let mut codes = [[0; N]; J];
    for j in 0..J {
        codes[j] = parts.groups[j].codes::<B>(factor * scales[j] as f32, 0.0);
    }
    Scaled { d, scales, codes }
}

/// The best of the whole numbers around `wanted / factor`, its sums and its error.
#[inline(always)]
fn around<B: Book, const N: usize, const TOP: i32>(
    group: &Group<N>,
    factor: f32,
    wanted: f32,
) -> (i32, Sums<f32>, f32) {
    let middle = (wanted * inverse(factor)).round() as i32;
    let first = middle.saturating_sub(8).clamp(-TOP, TOP - TRIES as i32);
    let scales: Tries = std::array::from_fn(|c| factor * (first + c as i32) as f32);
    let sums = group.tries::<B>(&scales.map(inverse), &[0.0; TRIES]);
    let errors = group.errors(&sums, &scales, &[0.0; TRIES]);
    let c = least(&errors);
    (first + c as i32, sums.of(c), errors[c])
}

/// Fits a block of one group: the scale and the codes.
#[inline(always)]
pub(crate) fn one_scale<B: Book, const N: usize>(parts: &Parts<N, 1>) -> (Half, [u8; N]) {
    let (middle, _) = parts.half_factor(free::<B, N>(&parts.groups[0]));
    let halves: [Half; TRIES] = std::array::from_fn(|c| near(middle, c as i32 - 8));
    let d = halves[least_of::<B, N, 1>(parts, 0, &halves.map(Half::to_f32))];
    (d, parts.codes::<B>(0, d.to_f32()))
}

/// The binary16 that is `steps` farther from 0, or nearer, without crossing 0 or becoming infinite.
fn near(half: Half, steps: i32) -> Half {
    let bits = i32::from(half.to_bits() & 0x7fff);
    if bits == 0 || !half.is_finite() {
        return half;
    }
    Half::from_bits(half.to_bits() & 0x8000 | (bits + steps).clamp(0, 0x7bff) as u16)
}

/// Which of the scales, for the values themselves, makes group `j` lose least.
#[inline(always)]
pub(crate) fn least_of<B: Book, const N: usize, const J: usize>(
    parts: &Parts<N, J>,
    j: usize,
    scales: &Tries,
) -> usize {
    let group = &parts.groups[j];
    let scales = scales.map(|s| s / parts.unit);
    let sums = group.tries::<B>(&scales.map(inverse), &[0.0; TRIES]);
    least(&group.errors(&sums, &scales, &[0.0; TRIES]))
}

/// The weighted mean of how far the values are from 0.
#[inline(always)]
pub(crate) fn mean<const N: usize>(parts: &Parts<N, 1>) -> Half {
    let [group] = &parts.groups;
    let sum: f32 = (0..N).map(|i| group.w[i] * group.x[i].abs()).sum();
    parts.half(sum / group.sw).0
}

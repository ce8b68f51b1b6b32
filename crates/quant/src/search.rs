//! The search for the scales and codes with the least loss, for schemes that leave a choice.
//!
//! A block is seen as groups of values that share a scale `s` and a minimum `m`: `x ≈ s q + m`, `q` from a
//! [`Book`] of codes. Once it is decided to which codes the values are rounded, the best `s` and `m` follow from
//! three sums over the group, and so does the error ([`Group::error`]). So a search tries scales and minima,
//! [`TRIES`] at a time: the tries are the lanes of the vectors, and nothing is summed across lanes. Every
//! instruction set gives the same bytes.
//!
//! The search minimises the weighted squared error, `Σ w (x - decoded)²`, where `w` is the importance of the column, or
//! 1 for all.

mod affine;
mod scaled;
mod shifted;
mod ternary;

pub(crate) use affine::{affine, one_affine};
pub(crate) use scaled::{least_of, mean, one_scale, scaled};
pub(crate) use shifted::{Grid, Room, shifted};
pub(crate) use ternary::ternary;

use crate::float16::Half;

/// Scales and minima tried at once.
pub(crate) const TRIES: usize = 16;

/// One number for each try.
pub(crate) type Tries = [f32; TRIES];

/// The values that codes can have.
pub(crate) trait Book {
    /// The lowest value.
    const LOW: f32;
    /// The highest value.
    const HIGH: f32;

    /// The values nearest to `t`.
    fn nearest(t: &Tries) -> Tries;

    /// The codes of the values nearest to `t`.
    fn codes(t: &Tries) -> [u8; TRIES];
}

/// The whole numbers from `LOW` to `HIGH`, coded from 0 up.
pub(crate) struct Whole<const LOW: i32, const HIGH: i32>;

/// A float between 2^23 and 2^24, where floats are whole numbers: adding it rounds, a tie to even, and leaves the
/// number in the low bits.
const SHIFT: f32 = 12_582_912.0;

impl<const LOW: i32, const HIGH: i32> Book for Whole<LOW, HIGH> {
    const LOW: f32 = LOW as f32;
    const HIGH: f32 = HIGH as f32;

    #[inline(always)]
    fn nearest(t: &Tries) -> Tries {
        t.map(|t| within(t, Self::LOW, Self::HIGH) + SHIFT - SHIFT)
    }

    #[inline(always)]
    fn codes(t: &Tries) -> [u8; TRIES] {
        Self::nearest(t).map(|q| (q - Self::LOW + SHIFT).to_bits() as u8)
    }
}

/// The values nearest to `t` of `values`, which rise.
#[inline(always)]
pub(crate) fn nearest_of<const K: usize>(values: &[f32; K], t: &Tries) -> Tries {
    let mut nearest = [values[0]; TRIES];
    for k in 1..K {
        let middle = 0.5 * (values[k - 1] + values[k]);
        for c in 0..TRIES {
            nearest[c] += if t[c] > middle { values[k] - values[k - 1] } else { 0.0 };
        }
    }
    nearest
}

/// The places of the values nearest to `t` in `values`, which rise.
#[inline(always)]
pub(crate) fn places_of<const K: usize>(values: &[f32; K], t: &Tries) -> [u8; TRIES] {
    let mut places = [0; TRIES];
    for k in 1..K {
        let middle = 0.5 * (values[k - 1] + values[k]);
        for c in 0..TRIES {
            places[c] += u32::from(t[c] > middle);
        }
    }
    places.map(|place| place as u8)
}

/// `t` or the bound that it is past; `low` if it is no number.
#[inline(always)]
pub(crate) fn within(t: f32, low: f32, high: f32) -> f32 {
    let t = if t > low { t } else { low };
    if t < high { t } else { high }
}

/// `1 / s`, and 0 where that is no use.
#[inline(always)]
pub(crate) fn inverse(s: f32) -> f32 {
    if s == 0.0 { 0.0 } else { 1.0 / s }
}

#[inline(always)]
fn add(sums: &mut Tries, terms: &Tries) {
    for c in 0..TRIES {
        sums[c] += terms[c];
    }
}

/// A try with the least error; the first of all if no error is a number.
#[inline(always)]
pub(crate) fn least(errors: &Tries) -> usize {
    let mut error = errors.map(|e| if e < f32::INFINITY { e } else { f32::INFINITY });
    let mut at: [u32; TRIES] = std::array::from_fn(|c| c as u32);
    let mut half = TRIES / 2;
    while half > 0 {
        for c in 0..half {
            let other = error[c + half] < error[c];
            at[c] = if other { at[c + half] } else { at[c] };
            error[c] = if other { error[c + half] } else { error[c] };
        }
        half /= 2;
    }
    at[0] as usize
}

/// Values that share a scale, with their weights.
pub(crate) struct Group<const N: usize> {
    x: [f32; N],
    w: [f32; N],
    /// `Σ w`.
    sw: f32,
    /// `Σ w x`.
    sx: f32,
    /// `Σ w x²`.
    sxx: f32,
}

/// Sums over the values `q` to which a group was rounded.
#[derive(Clone, Copy)]
pub(crate) struct Sums<T> {
    /// `Σ w q`.
    q: T,
    /// `Σ w q²`.
    qq: T,
    /// `Σ w x q`.
    xq: T,
}

impl Sums<Tries> {
    fn of(&self, c: usize) -> Sums<f32> {
        Sums { q: self.q[c], qq: self.qq[c], xq: self.xq[c] }
    }
}

impl<const N: usize> Group<N> {
    const EMPTY: Self = Group { x: [0.0; N], w: [1.0; N], sw: 0.0, sx: 0.0, sxx: 0.0 };

    #[inline(always)]
    fn new(x: &[f32; N], w: &[f32; N]) -> Self {
        let (mut sw, mut sx, mut sxx) = (0.0, 0.0, 0.0);
        for i in 0..N {
            sw += w[i];
            sx += w[i] * x[i];
            sxx += w[i] * x[i] * x[i];
        }
        Group { x: *x, w: *w, sw, sx, sxx }
    }

    /// The sums over the group when its values are rounded to the nearest of `s q + m`, for each try of
    /// `inverse` (that is `1 / s`) and `min` (that is `m`).
    #[inline(always)]
    fn tries<B: Book>(&self, inverse: &Tries, min: &Tries) -> Sums<Tries> {
        let (mut q, mut qq, mut xq) = ([0.0; TRIES], [0.0; TRIES], [0.0; TRIES]);
        for (x, w) in self.x.iter().zip(&self.w) {
            // Loops of one array each: compilers make one vector operation of each.
            let value = B::nearest(&std::array::from_fn(|c| (x - min[c]) * inverse[c]));
            let weighted = value.map(|q| w * q);
            add(&mut q, &weighted);
            add(&mut qq, &std::array::from_fn(|c| weighted[c] * value[c]));
            add(&mut xq, &weighted.map(|q| q * x));
        }
        Sums { q, qq, xq }
    }

    /// `Σ w (x - (s q + m))²`.
    #[inline(always)]
    fn error(&self, of: Sums<f32>, s: f32, m: f32) -> f32 {
        self.sxx - 2.0 * (s * of.xq + m * self.sx) + s * s * of.qq + m * (2.0 * s * of.q + m * self.sw)
    }

    /// [`Group::error`] of each try of a scale and a minimum.
    #[inline(always)]
    fn errors(&self, of: &Sums<Tries>, s: &Tries, m: &Tries) -> Tries {
        let mut errors = [0.0; TRIES];
        for c in 0..TRIES {
            errors[c] = self.error(of.of(c), s[c], m[c]);
        }
        errors
    }

    /// The codes of the values, given scale and minimum.
    #[inline(always)]
    fn codes<B: Book>(&self, s: f32, m: f32) -> [u8; N] {
        let inverse = inverse(s);
        let mut codes = [0; N];
        for (codes, x) in codes.as_chunks_mut().0.iter_mut().zip(self.x.as_chunks().0) {
            *codes = B::codes(&x.map(|x| (x - m) * inverse));
        }
        codes
    }

    /// The first of the values farthest from 0.
    #[inline(always)]
    fn peak(&self) -> f32 {
        crate::encode::peak(&self.x)
    }

    /// The least and the largest value.
    #[inline(always)]
    fn range(&self) -> (f32, f32) {
        crate::encode::range(&self.x)
    }
}

/// A block of `J` groups, divided by a power of two that brings the largest value to between 1 and 2, so that
/// no square is lost or too large. If it is denormal, all are taken for 0.
pub(crate) struct Parts<const N: usize, const J: usize> {
    groups: [Group<N>; J],
    /// The divisor of the values.
    unit: f32,
}

/// Lower bound of the weights as a fraction of their mean, so that a column without importance is still approximated.
const LEAST_WEIGHT: f32 = 1e-2;

impl<const N: usize, const J: usize> Parts<N, J> {
    /// The block `x` of `N * J` values, each as important as `importance` says.
    #[inline(always)]
    pub(crate) fn new<const PER: usize>(x: &[f32; PER], importance: Option<&[f32; PER]>) -> Self {
        const { assert!(PER == N * J) };
        let peak = crate::encode::peak(x).abs();
        let (unit, keep) = if peak >= f32::MIN_POSITIVE {
            (f32::from_bits(peak.to_bits() & 0x7f80_0000), 1.0)
        } else {
            (1.0, 0.0)
        };
        let mean =
            importance.map_or(0.0, |w| w.iter().map(|w| f64::from(*w)).sum::<f64>() / PER as f64) as f32;
        let importance = importance.filter(|_| mean > f32::MIN_POSITIVE && mean.is_finite());
        let mut weights = [1.0; PER];
        if let Some(importance) = importance {
            for i in 0..PER {
                weights[i] = within(importance[i] / mean, LEAST_WEIGHT, f32::MAX);
            }
        }
        let values = x.map(|x| x / unit * keep);
        let mut groups = [const { Group::EMPTY }; J];
        for (group, (x, w)) in groups.iter_mut().zip(values.as_chunks().0.iter().zip(weights.as_chunks().0)) {
            *group = Group::new(x, w);
        }
        Parts { groups, unit }
    }

    /// Returns the binary16 nearest to `m` after scaling it back to the original values, and that number in terms of
    /// the divided values.
    #[inline(always)]
    fn half(&self, m: f32) -> (Half, f32) {
        let half = Half::from_f32(m * self.unit);
        (half, self.factor(half))
    }

    /// As [`Parts::half`] for a factor of codes, which does not become 0: the codes still can.
    #[inline(always)]
    fn half_factor(&self, d: f32) -> (Half, f32) {
        match self.half(d) {
            (half, factor) if half.to_bits() << 1 != 0 || d == 0.0 => (half, factor),
            (half, _) => {
                let least = Half::from_bits(half.to_bits() | 1);
                (least, self.factor(least))
            }
        }
    }

    #[inline(always)]
    fn factor(&self, half: Half) -> f32 {
        half.to_f32() / self.unit
    }

    /// The power of two of the largest value, as an E8M0 byte would say it: 127 is 1.
    #[inline(always)]
    pub(crate) fn exponent(&self) -> i32 {
        (self.unit.to_bits() >> 23) as i32
    }

    /// The codes of group `j`, given the scale of the values themselves.
    #[inline(always)]
    pub(crate) fn codes<B: Book>(&self, j: usize, scale: f32) -> [u8; N] {
        self.groups[j].codes::<B>(scale / self.unit, 0.0)
    }
}

//! The real numbers of schemes: scales, biases, results.

use tensor::Dtype;

use super::small_float::{E4M3, from_e8m0, to_e8m0};
use crate::codec::BadData;
use crate::float16::{Half, bfloat_from_le_bytes, bfloat_to_le_bytes, round_to_bfloat, round_to_half};

/// The dtypes that a weight has before it is quantised, which its scales often keep.
pub const REALS: &[Dtype] = &[Dtype::F16, Dtype::BF16, Dtype::F32];

/// The bits of the smallest binary16 above 0, 2^-24, as an f32.
const LEAST_HALF: u32 = (127 - 24) << 23;
/// The bits of the smallest bfloat16 above 0, as an f32.
const LEAST_BFLOAT: u32 = 1 << 16;

/// How real numbers are stored, little-endian: as F16, BF16, F32, E8M0 or E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Real(pub(crate) Dtype);

impl Real {
    pub(super) const F32: Real = Real(Dtype::F32);

    /// The dtype called `name`, if it is one of `allowed`.
    pub(super) fn parse(name: &str, allowed: &[Dtype]) -> Option<Real> {
        allowed.iter().find(|d| d.name() == name).map(|d| Real(*d))
    }

    /// Number `i` of `plane`.
    #[inline(always)]
    pub(crate) fn get(self, plane: &[u8], i: usize) -> f32 {
        match self.0 {
            Dtype::F16 => Half::from_le_bytes(two(plane, i)).to_f32(),
            Dtype::BF16 => bfloat_from_le_bytes(two(plane, i)),
            Dtype::F32 => f32::from_le_bytes(std::array::from_fn(|b| plane[4 * i + b])),
            Dtype::F8E8M0 => from_e8m0(plane[i]),
            Dtype::F8E4M3 => E4M3.decode(plane[i]),
            other => unreachable!("no real numbers are `{other}`"),
        }
    }

    /// The number of this type nearest to `x`, ties to even, as torch casts. The compiler makes vectors of it.
    #[inline(always)]
    pub(super) fn round(self, x: f32) -> f32 {
        match self.0 {
            Dtype::F16 => round_to_half(x),
            Dtype::BF16 => round_to_bfloat(x),
            Dtype::F32 => x,
            other => unreachable!("nothing is rounded to `{other}`"),
        }
    }

    /// The number of this type nearest to `x`, but not 0: the smallest there is where that would be it. For factors, whose codes
    /// are still to be rounded.
    #[inline(always)]
    pub(crate) fn round_factor(self, x: f32) -> f32 {
        let rounded = self.round(x);
        let least = if self.0 == Dtype::F16 { LEAST_HALF } else { LEAST_BFLOAT };
        if rounded == 0.0 && x != 0.0 { f32::from_bits(least).copysign(x) } else { rounded }
    }

    /// Bytes of one.
    pub(super) fn bytes(self) -> u64 {
        self.0.bytes()
    }

    /// Stores `x`, rounded, as number `i` of `plane`.
    pub(crate) fn put(self, plane: &mut [u8], i: usize, x: f32) {
        match self.0 {
            Dtype::F16 => plane[2 * i..][..2].copy_from_slice(&Half::from_f32(x).to_le_bytes()),
            Dtype::BF16 => plane[2 * i..][..2].copy_from_slice(&bfloat_to_le_bytes(x)),
            Dtype::F32 => plane[4 * i..][..4].copy_from_slice(&x.to_le_bytes()),
            Dtype::F8E8M0 => plane[i] = to_e8m0(x),
            Dtype::F8E4M3 => plane[i] = E4M3.encode(x),
            other => unreachable!("no real numbers are `{other}`"),
        }
    }

    /// Refuses numbers that are infinite or no number. `what` is "a scale".
    ///
    /// # Errors
    /// The first of them.
    pub(super) fn check(self, role: &'static str, what: &'static str, plane: &[u8]) -> Result<(), BadData> {
        let count = plane.len() / self.0.bytes() as usize;
        match (0..count).find(|&i| !self.get(plane, i).is_finite()) {
            None => Ok(()),
            Some(at) => {
                let found = match self.0 {
                    Dtype::F8E8M0 | Dtype::F8E4M3 => format!("0x{:02x}, which is no number", plane[at]),
                    _ => self.get(plane, at).to_string(),
                };
                Err(BadData { role, what, at, wants: "a finite number".to_owned(), found })
            }
        }
    }
}

#[inline(always)]
fn two(plane: &[u8], i: usize) -> [u8; 2] {
    [plane[2 * i], plane[2 * i + 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_that_is_no_number_is_refused_by_name() {
        let e8m0 = Real(Dtype::F8E8M0).check("scales", "a scale", &[0, 127, 255]).unwrap_err();
        assert_eq!(
            e8m0.to_string(),
            "plane `scales`: a scale at cell 2, wanted a finite number, found 0xff, which is no number"
        );
        let bf16 = Real(Dtype::BF16).check("biases", "a bias", &[0, 0, 0x80, 0xff]).unwrap_err();
        assert_eq!(bf16.to_string(), "plane `biases`: a bias at cell 1, wanted a finite number, found -inf");
    }
}

//! What schemes of several planes have in common: their geometry in few words, codes of a few bits, scales.

use std::sync::Arc;

use tensor::{Dtype, Hold, PlaneAxis, PlaneSpec, Scheme};

use super::small_float::{E4M3, from_e8m0, to_e8m0};
use crate::codec::BadData;

/// One cell for every `per` elements, which it holds.
pub(super) fn packed(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Packed }
}

/// One cell for every `per` elements, which share it.
pub(super) fn shared(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Shared }
}

/// One cell an element.
pub(super) fn each(axis: usize) -> PlaneAxis {
    packed(axis, 1)
}

pub(super) fn plane(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { axes: axes.to_vec().into(), ..PlaneSpec::new(role, cell_bytes, &[]) }
}

/// A plane that only multiplies, so that zeros stay zeros whatever it holds.
pub(super) fn factor(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { spans_padding: true, ..plane(role, cell_bytes, axes) }
}

/// A scheme of matrices, `[out, in]`.
pub(super) fn matrix(name: &str, planes: Vec<PlaneSpec>) -> Arc<Scheme> {
    Arc::new(Scheme { name: name.to_owned().into(), trailing: 2, planes: planes.into() })
}

/// `name` as a parameter spells a number: digits alone, no leading zero.
pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

/// Code `i` of a stream of `bits` (at most 8) bits each, lowest bits first.
#[inline(always)]
pub(super) fn code(stream: &[u8], bits: usize, i: usize) -> u8 {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let next = if shift + bits > 8 { stream[byte + 1] } else { 0 };
    let both = u16::from_le_bytes([stream[byte], next]);
    (both >> shift & ((1 << bits) - 1)) as u8
}

/// Puts code `i` into a stream where its bits are still zero.
#[inline(always)]
pub(super) fn put_code(stream: &mut [u8], bits: usize, i: usize, code: u8) {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let [low, high] = (u16::from(code) << shift).to_le_bytes();
    stream[byte] |= low;
    if shift + bits > 8 {
        stream[byte + 1] |= high;
    }
}

/// How the scales of a scheme are stored: as F16, BF16, F32, E8M0 or E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scales(pub(super) Dtype);

impl Scales {
    /// The dtype called `name`, if it is one of `allowed`.
    pub(super) fn parse(name: &str, allowed: &[Dtype]) -> Option<Scales> {
        allowed.iter().find(|d| d.name() == name).map(|d| Scales(*d))
    }

    /// Scale `i` of `plane`.
    #[inline(always)]
    pub(super) fn get(self, plane: &[u8], i: usize) -> f32 {
        match self.0 {
            Dtype::F16 => half::f16::from_le_bytes(two(plane, i)).to_f32(),
            Dtype::BF16 => half::bf16::from_le_bytes(two(plane, i)).to_f32(),
            Dtype::F32 => f32::from_le_bytes(std::array::from_fn(|b| plane[4 * i + b])),
            Dtype::F8E8M0 => from_e8m0(plane[i]),
            Dtype::F8E4M3 => E4M3.decode(plane[i]),
            other => unreachable!("no scales are `{other}`"),
        }
    }

    /// Stores `x`, rounded, as scale `i` of `plane`.
    pub(super) fn put(self, plane: &mut [u8], i: usize, x: f32) {
        match self.0 {
            Dtype::F16 => plane[2 * i..][..2].copy_from_slice(&half::f16::from_f32(x).to_le_bytes()),
            Dtype::BF16 => plane[2 * i..][..2].copy_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
            Dtype::F32 => plane[4 * i..][..4].copy_from_slice(&x.to_le_bytes()),
            Dtype::F8E8M0 => plane[i] = to_e8m0(x),
            Dtype::F8E4M3 => plane[i] = E4M3.encode(x),
            other => unreachable!("no scales are `{other}`"),
        }
    }

    /// Refuses scales that are infinite or no number. `what` is "a scale".
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
    fn codes_come_back_from_a_stream() {
        for bits in 1..=8 {
            let codes: Vec<u8> = (0..64).map(|i| (i * 37 % (1 << bits)) as u8).collect();
            let mut stream = vec![0; 8 * bits];
            for (i, c) in codes.iter().enumerate() {
                put_code(&mut stream, bits, i, *c);
            }
            let back: Vec<u8> = (0..64).map(|i| code(&stream, bits, i)).collect();
            assert_eq!(back, codes, "{bits} bits");
        }
    }

    #[test]
    fn a_scale_that_is_no_number_is_refused_by_name() {
        let e8m0 = Scales(Dtype::F8E8M0).check("scales", "a scale", &[0, 127, 255]).unwrap_err();
        assert_eq!(
            e8m0.to_string(),
            "plane `scales`: a scale at cell 2, wanted a finite number, found 0xff, which is no number"
        );
        let bf16 = Scales(Dtype::BF16).check("biases", "a bias", &[0, 0, 0x80, 0xff]).unwrap_err();
        assert_eq!(bf16.to_string(), "plane `biases`: a bias at cell 1, wanted a finite number, found -inf");
    }
}

//! Blocks of 32 with one scale, two to a unit.

use super::{Unit, eight, nibbles};
use crate::activations::Tile;
use crate::interleave::{Means, Number, Plain};
use crate::lanes::Lanes;

/// Block `b` of the two in a unit.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn block<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    plain: Plain,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
    b: usize,
) {
    let scales = if let Means::Min = plain.means { 2 } else { 1 };
    // SAFETY: as this function.
    unsafe {
        let codes = match plain.bits {
            8 => eight!(j => unit.words(scales + 8 * b + j)),
            4 => eight!(j => {
                let codes = nibbles::<V>(unit.words(scales + 4 * b + j % 4), j >= 4);
                if let Means::Listed(list) = plain.means { V::lookup(codes, &list.values) } else { codes }
            }),
            _ => {
                let at = scales + 5 * b;
                let fifth = unit.words(at);
                eight!(j => {
                    let low = nibbles::<V>(unit.words(at + 1 + j % 4), j >= 4);
                    V::or(low, V::fifth_bit(fifth, j))
                })
            }
        };
        let (bits, zero) = match plain.means {
            Means::Min => (plain.bits, 0),
            Means::Zero => (plain.bits, 1 << (plain.bits - 1)),
            Means::Listed(list) => (list.bits, list.zero),
        };
        let d = match plain.scale {
            Number::F16 => unit.scales(0, b),
            Number::BF16 => V::load_bf16(unit.halves(0, b)),
        };
        for (t, acc) in acc.iter_mut().enumerate() {
            let (x_codes, minus) = (x.codes(block + b, t), x.minus(block + b, t));
            let isum = match bits {
                4 => V::dot::<4, 8, 2>(&codes, x_codes, zero, minus),
                5 => V::dot::<5, 8, 2>(&codes, x_codes, zero, minus),
                _ => V::dot::<8, 8, 2>(&codes, x_codes, zero, minus),
            };
            let scale = V::mul(d, V::splat_f(x.scale(block + b, t)));
            *acc = V::fma(V::to_f(isum), scale, *acc);
            if let Means::Min = plain.means {
                *acc = V::fma(unit.scales(1, b), V::splat_f(x.sum(block + b, t)), *acc);
            }
        }
    }
}

//! Blocks of 32 with one scale, each its own or the same for some.

use super::{Unit, eight, nibbles, shifted};
use crate::activations::Tile;
use crate::lanes::Lanes;
use crate::packing::{Means, Number, Order, Plain, Sharing};

/// Block `b` of a unit.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn block<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    plain: Plain,
    sharing: Sharing,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
    b: usize,
) {
    let at = sharing.lead + plain.vectors() * b;
    let group = b >> sharing.shift;
    // SAFETY: as this function.
    unsafe {
        let codes = match plain.bits {
            8 => eight!(j => unit.words(at + j)),
            4 => eight!(j => {
                let codes = match plain.order {
                    Order::Halves => nibbles::<V>(unit.words(at + j % 4), j >= 4),
                    Order::Runs => nibbles::<V>(unit.words(at + j / 2), j % 2 == 1),
                };
                if let Means::Listed(list) = plain.means { V::lookup(codes, &list.values) } else { codes }
            }),
            _ => {
                let fifth = unit.words(at);
                eight!(j => {
                    let low = nibbles::<V>(unit.words(at + 1 + j % 4), j >= 4);
                    V::or(low, V::and(shifted::<V>(fifth, 4 - j as i32), 0x1010_1010))
                })
            }
        };
        let (bits, zero) = match plain.means {
            Means::Min => (plain.bits, 0),
            Means::Zero(zero) => (plain.bits, i32::from(zero)),
            Means::Listed(list) => (list.bits, list.zero),
        };
        for (t, acc) in acc.iter_mut().enumerate() {
            let (x_codes, minus) = (x.codes(block + b, t), x.minus(block + b, t));
            let isum = match bits {
                4 => V::dot::<4, 8, 2>(&codes, x_codes, zero, minus),
                5 => V::dot::<5, 8, 2>(&codes, x_codes, zero, minus),
                _ => V::dot::<8, 8, 2>(&codes, x_codes, zero, minus),
            };
            let dx = V::splat_f(x.scale(block + b, t));
            let scale = match plain.scale {
                Number::None => dx,
                number => V::mul(unit.number(number, group), dx),
            };
            *acc = V::fma(V::to_f(isum), scale, *acc);
            if let Means::Min = plain.means {
                let min = unit.number(plain.scale, sharing.groups + group);
                *acc = V::fma(min, V::splat_f(x.sum(block + b, t)), *acc);
            }
        }
    }
}

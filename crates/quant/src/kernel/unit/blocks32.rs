//! Blocks of 32 with one scale, each its own or the same for some.

use super::products::{Products, Rows};
use super::{Unit, for_rows, nibbles, shifted};
use crate::activations::Tile;
use crate::lanes::{Lanes, Vectors};
use crate::packing::{Means, Number, Order, Plain, Sharing};

/// The codes of a block, the first of its vectors at `at`.
struct Block<V> {
    unit: Unit<V>,
    plain: Plain,
    at: usize,
}

impl<V: Lanes> Vectors<V> for Block<V> {
    #[inline(always)]
    unsafe fn vector(&self, j: usize) -> V::I {
        let &Block { unit, plain, at } = self;
        // SAFETY: as this function.
        unsafe {
            match plain.bits {
                8 => unit.words(at + j),
                4 => {
                    let codes = match plain.order {
                        Order::Halves => nibbles::<V>(unit.words(at + j % 4), j >= 4),
                        Order::Runs => nibbles::<V>(unit.words(at + j / 2), j % 2 == 1),
                    };
                    if let Means::Listed(list) = plain.means { V::lookup(codes, &list.values) } else { codes }
                }
                _ => {
                    let low = nibbles::<V>(unit.words(at + 1 + j % 4), j >= 4);
                    let fifth = shifted::<V>(unit.words(at), 4 - j as i32);
                    V::or(low, V::and(fifth, 0x1010_1010))
                }
            }
        }
    }
}

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
        let (bits, zero) = match plain.means {
            Means::Min => (plain.bits, 0),
            Means::Zero(zero) => (plain.bits, i32::from(zero)),
            Means::Listed(list) => (list.bits, list.zero),
        };
        let codes = Block { unit, plain, at };
        let products = Products::<V, 2, NT>::new(&codes, bits, Rows::of(x, block + b), zero);
        let d = if plain.scale == Number::None { V::splat_f(1.0) } else { unit.number(plain.scale, group) };
        let min =
            if plain.means == Means::Min { unit.number(plain.scale, sharing.groups + group) } else { d };
        // Of four or eight bits with a zero point, all codes and sums have room.
        let in_order = plain.bits == 5 || !matches!(plain.means, Means::Zero(_));
        for_rows!(NT, in_order, t => {
            let dx = V::splat_f(x.scale(block + b, t));
            let scale = if plain.scale == Number::None { dx } else { V::mul(d, dx) };
            acc[t] = V::fma(V::to_f(products.of(t)), scale, acc[t]);
            if plain.means == Means::Min {
                acc[t] = V::fma(min, V::splat_f(x.sum(block + b, t)), acc[t]);
            }
        });
    }
}

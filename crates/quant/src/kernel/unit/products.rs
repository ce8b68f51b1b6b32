//! Integer products of one set of codes with every row of activations.

use crate::activations::Tile;
use crate::lanes::{Lanes, Vectors};

/// Rows of activations: where the codes of each begin, and the sum of its codes, negated.
#[derive(Clone, Copy)]
pub(super) struct Rows<const NT: usize> {
    codes: [*const i8; NT],
    minus: [i32; NT],
}

impl<const NT: usize> Rows<NT> {
    /// The 32 columns of a block.
    ///
    /// # Safety
    /// As [`Tile::codes`].
    #[inline(always)]
    pub(super) unsafe fn of(x: Tile<'_, NT>, block: usize) -> Rows<NT> {
        let mut rows = Rows { codes: [std::ptr::null(); NT], minus: [0; NT] };
        for t in 0..NT {
            // SAFETY: as this function.
            unsafe { (rows.codes[t], rows.minus[t]) = (x.codes(block, t), x.minus(block, t)) };
        }
        rows
    }
}

/// `Σ (code - zero) · x` over eight vectors of codes, for each of `NT` rows of activations.
///
/// Where all codes have room in the registers they are made first, and each row's sums when they are asked for. Where they have
/// not, the codes are made one vector at a time and the sums of all rows grow together.
pub(super) struct Products<V: Lanes, const CHAINS: usize, const NT: usize> {
    codes: [V::I; 8],
    sums: [V::I; NT],
    bits: u32,
    x: Rows<NT>,
    zero: i32,
}

impl<V: Lanes, const CHAINS: usize, const NT: usize> Products<V, CHAINS, NT> {
    const TOGETHER: bool = NT > 1 && V::TOGETHER;

    /// Of codes with no bit above `bits`, a constant: 4, 5 or else 8.
    ///
    /// # Safety
    /// As [`Lanes::dot`] for each row, and `vectors` has eight: also of the other function.
    #[inline(always)]
    pub(super) unsafe fn new(vectors: &impl Vectors<V>, bits: u32, x: Rows<NT>, zero: i32) -> Self {
        // SAFETY: as this function.
        unsafe {
            let (mut codes, mut sums) = ([V::splat(0); 8], [V::splat(0); NT]);
            if Self::TOGETHER {
                sums = match bits {
                    ..=4 => V::dots::<4, NT>(vectors, x.codes, zero, x.minus),
                    5 => V::dots::<5, NT>(vectors, x.codes, zero, x.minus),
                    _ => V::dots::<8, NT>(vectors, x.codes, zero, x.minus),
                };
            } else {
                for (j, codes) in codes.iter_mut().enumerate() {
                    *codes = vectors.vector(j);
                }
            }
            Products { codes, sums, bits, x, zero }
        }
    }

    /// The sums with row `t`.
    #[inline(always)]
    pub(super) unsafe fn of(&self, t: usize) -> V::I {
        if Self::TOGETHER {
            return self.sums[t];
        }
        let (codes, x, zero, minus) = (&self.codes, self.x.codes[t], self.zero, self.x.minus[t]);
        // SAFETY: as this function.
        unsafe {
            match self.bits {
                ..=4 => V::dot::<4, 8, CHAINS>(codes, x, zero, minus),
                5 => V::dot::<5, 8, CHAINS>(codes, x, zero, minus),
                _ => V::dot::<8, 8, CHAINS>(codes, x, zero, minus),
            }
        }
    }
}

//! The arithmetic that is compiled: one kind for all schemes whose codes mean the same.

use std::marker::PhantomData;

use crate::isa::Isa;
use crate::packing::{Codes, FP4, Number, Plain};
use crate::scheme::IQ4;

use super::blocks::{Accumulate, accumulate_of};

/// Codes whose arithmetic is compiled.
pub(super) trait Kind {
    const CODES: Codes;
    /// True if the arithmetic asks for memory ahead: see [`Way`](crate::Way).
    const ASK: bool;
}

/// A kind whose memory is asked for.
struct Asked<K>(PhantomData<K>);

impl<K: Kind> Kind for Asked<K> {
    const CODES: Codes = K::CODES;
    const ASK: bool = true;
}

/// The kinds by number, and the function that finds the arithmetic of one by its codes.
macro_rules! kinds {
    ($($i:literal $codes:expr;)*) => {
        struct At<const I: usize>;
        $(
            impl Kind for At<$i> {
                const CODES: Codes = $codes;
                const ASK: bool = false;
            }
        )*

        /// The arithmetic for `codes` with `r` rows in a group.
        pub(super) fn arithmetic(codes: &Codes, isa: Isa, r: usize, ask: bool) -> Option<Accumulate> {
            $(
                if *codes == <At<$i> as Kind>::CODES {
                    let (alone, asked) = (accumulate_of::<At<$i>>, accumulate_of::<Asked<At<$i>>>);
                    return Some(if ask { asked(isa, r) } else { alone(isa, r) });
                }
            )*
            None
        }
    };
}

kinds! {
    0 Plain::zero(4);
    1 Plain::min(4);
    2 Plain::zero(5);
    3 Plain::min(5);
    4 Plain::zero(8);
    5 Plain::listed(&IQ4, Number::F16);
    6 Plain::listed(&FP4, Number::BF16);
    7 Codes::ScaleMin { five: false };
    8 Codes::ScaleMin { five: true };
    9 Codes::ScaleListed(&IQ4);
    10 Codes::TwoBit;
    11 Codes::ThreeBit;
    12 Codes::SixBit;
    13 Codes::Plain(Plain::affine(4, Number::F16));
    14 Codes::Plain(Plain::affine(4, Number::BF16));
    15 Codes::Plain(Plain::affine(4, Number::F32));
    16 Codes::Plain(Plain::affine(8, Number::F16));
    17 Codes::Plain(Plain::affine(8, Number::BF16));
    18 Codes::Plain(Plain::symmetric(8, 128));
    19 Codes::Plain(Plain { scale: Number::None, ..Plain::symmetric(8, 128) });
    20 Codes::Plain(Plain::symmetric(4, 7));
    21 Codes::Plain(Plain::powers());
}

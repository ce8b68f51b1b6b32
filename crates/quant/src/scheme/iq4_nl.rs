use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, put_nibbles, recode};
use crate::packing::{At, Change, Field, Listed, Number, Packing, Plain};
use crate::search::{Book, Parts, TRIES, Tries, nearest_of, one_scale, places_of};

/// The values of the codes of IQ4_NL and IQ4_XS.
///
/// Source: ggml `kvalues_iq4nl`.
pub(super) const VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// [`VALUES`] for the kernels.
pub(crate) static IQ4: Listed = Listed::of(VALUES, 128);

/// [`VALUES`] to be searched.
pub(super) struct Values;

impl Values {
    const RISING: [f32; 16] = {
        let mut values = [0.0; 16];
        let mut i = 0;
        while i < 16 {
            values[i] = VALUES[i] as f32;
            i += 1;
        }
        values
    };
}

impl Book for Values {
    const LOW: f32 = Self::RISING[0];
    const HIGH: f32 = Self::RISING[15];

    #[inline(always)]
    fn nearest(t: &Tries) -> Tries {
        nearest_of(&Self::RISING, t)
    }

    #[inline(always)]
    fn codes(t: &Tries) -> [u8; TRIES] {
        places_of(&Self::RISING, t)
    }
}

/// 32 values `d * value of q`: `d` (f16), 16 bytes. Byte `i` holds code `i` in its low nibble and `i + 16` in
/// its high one; the values are those of a table of 16.
///
/// Source: ggml `block_iq4_nl`, `dequantize_row_iq4_nl`.
pub(crate) struct IQ4NL;

impl Block for IQ4NL {
    const NAME: &'static str = "iq4_nl";
    const PER: usize = 32;
    const BYTES: usize = 18;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::listed(&IQ4, Number::F16),
        &[
            Field::Scales(At(0, 0), Some(At(0, 18))),
            Field::Words(At(0, 2), 4, Change::None),
            Field::Words(At(0, 20), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(IQ4NL, encode);
    const RECODE: Option<Recode> = recode!(IQ4NL, Levels::Listed(&VALUES), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        looked_up(&VALUES, half_at(b, 0), &b[2..18], out);
    }
}

#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 18]) {
    let (d, codes) = one_scale::<Values, 32>(&Parts::new(x, importance));
    put_half(out, 0, d);
    put(&codes, out);
}

#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 18]) {
    put_nibbles(&mut out[2..], codes);
}

/// The values `d * value of q` of bytes of nibbles: the low ones, then the high ones.
#[inline(always)]
pub(super) fn looked_up(values: &[i8; 16], d: f32, codes: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((low, high), q) in low.iter_mut().zip(high).zip(codes) {
        *low = d * value(values, *q as u32 & 15);
        *high = d * value(values, *q as u32 >> 4);
    }
}

/// Value `q` of the table, taken out of four words by selects and a shift: that can be done in many lanes at
/// once, where loads cannot.
#[inline(always)]
fn value(values: &[i8; 16], q: u32) -> f32 {
    let (low, high) =
        if q & 4 == 0 { (word(values, 0), word(values, 8)) } else { (word(values, 4), word(values, 12)) };
    let word = if q & 8 == 0 { low } else { high };
    (word >> ((q & 3) * 8)) as i8 as f32
}

/// Four values of the table.
#[inline(always)]
fn word(values: &[i8; 16], at: usize) -> u32 {
    u32::from_le_bytes([values[at] as u8, values[at + 1] as u8, values[at + 2] as u8, values[at + 3] as u8])
}

use super::iq4_nl::{IQ4, VALUES, Values, looked_up};
use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, put_nibbles, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, scaled};

/// 256 values in eight sub-blocks of 32, `d * (scale - 32) * value of q`: `d` (f16), two bytes of high pairs of
/// the scales, four bytes of their low nibbles, 16 bytes of codes for each sub-block as in IQ4_NL.
///
/// Source: ggml `block_iq4_xs`, `dequantize_row_iq4_xs`.
pub(crate) struct IQ4XS;

impl Block for IQ4XS {
    const NAME: &'static str = "iq4_xs";
    const PER: usize = 256;
    const BYTES: usize = 136;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::ScaleListed(&IQ4),
        &[Field::Scales(At(0, 0), Some(At(0, 2))), Field::Words(At(0, 4), 33, Change::None)],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(IQ4XS, encode);
    const RECODE: Option<Recode> = recode!(IQ4XS, Levels::Listed(&VALUES), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let high = u16::from_le_bytes([b[2], b[3]]);
        for (j, out) in out.chunks_exact_mut(32).enumerate() {
            let scale = u16::from(b[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4;
            looked_up(&VALUES, d * (scale as i32 - 32) as f32, &b[8 + 16 * j..][..16], out);
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 136]) {
    let found = scaled::<Values, 32, 8, 32>(&Parts::new(x, importance));
    put_half(out, 0, found.d);
    let mut high = 0u16;
    out[4..8].fill(0);
    for (j, scale) in found.scales.iter().enumerate() {
        let scale = (scale + 32) as u8;
        out[4 + j / 2] |= (scale & 15) << (j % 2 * 4);
        high |= u16::from(scale >> 4) << (2 * j);
    }
    out[2..4].copy_from_slice(&high.to_le_bytes());
    put(found.codes.as_flattened(), out);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 136]) {
    for (out, codes) in out[8..].chunks_exact_mut(16).zip(codes.as_chunks().0) {
        put_nibbles(out, codes);
    }
}

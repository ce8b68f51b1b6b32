use super::{Block, EncodeRow, Recode, at_once, bytes_at, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, put_pairs, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, Whole, affine};

/// 256 values in sixteen sub-blocks of 16, `d * scale * q - dmin * min`: sixteen bytes with a scale in the low
/// nibble and a minimum in the high one, 64 bytes of two-bit codes, `d`, `dmin` (f16).
///
/// In each half of 128 values, value `32 s + i` is in bits `2 s` of byte `i`.
///
/// Source: ggml `block_q2_K`, `dequantize_row_q2_K`.
pub(crate) struct Q2K;

impl Block for Q2K {
    const NAME: &'static str = "q2_k";
    const PER: usize = 256;
    const BYTES: usize = 84;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::TwoBit,
        &[Field::Scales(At(0, 80), Some(At(0, 82))), Field::Words(At(0, 0), 20, Change::None)],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q2K, encode);
    const RECODE: Option<Recode> = recode!(Q2K, Levels::Even(4), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(b, 80), half_at(b, 82));
        let parts: [u8; 16] = bytes_at(b, 0);
        let scales = at_once(parts.map(|part| d * (part & 15) as f32));
        let mins = at_once(parts.map(|part| dmin * (part >> 4) as f32));
        for (p, out) in out.chunks_exact_mut(32).enumerate() {
            for (i, (out, q)) in out.iter_mut().zip(&b[16 + p / 4 * 32..][..32]).enumerate() {
                let j = 2 * p + i / 16;
                *out = scales[j] * (q >> (p % 4 * 2) & 3) as f32 - mins[j];
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 84]) {
    let found = affine::<Whole<0, 3>, 16, 16, 15>(&Parts::new(x, importance));
    for j in 0..16 {
        out[j] = found.scales[j] | found.mins[j] << 4;
    }
    put_half(out, 80, found.d);
    put_half(out, 82, found.dmin);
    put(found.codes.as_flattened(), out);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 84]) {
    put_pairs(&mut out[16..80], codes);
}

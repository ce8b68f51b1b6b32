use super::{Block, EncodeRow, Recode, at_once, bytes_at, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, Whole, scaled};

/// 256 values in sixteen sub-blocks of 16, `d * scale * (q - 32)`: 128 bytes of low nibbles, 64 bytes of high
/// bit pairs, sixteen signed scales, `d` (f16).
///
/// In each half of 128 values, value `32 s + i` has its low nibble in byte `32 (s % 2) + i` (the low nibble
/// there for `s < 2`, else the high one) and its high pair in bits `2 s` of byte `i`.
///
/// Source: ggml `block_q6_K`, `dequantize_row_q6_K`.
pub(crate) struct Q6K;

impl Block for Q6K {
    const NAME: &'static str = "q6_k";
    const PER: usize = 256;
    const BYTES: usize = 210;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::SixBit,
        &[
            Field::Scales(At(0, 208), None),
            Field::Words(At(0, 192), 4, Change::None),
            // In the order in which one row of activations meets them: see `six_bit_half`.
            Field::Words(At(0, 0), 4, Change::None),
            Field::Words(At(0, 32), 4, Change::None),
            Field::Words(At(0, 128), 4, Change::None),
            Field::Words(At(0, 16), 4, Change::None),
            Field::Words(At(0, 48), 4, Change::None),
            Field::Words(At(0, 144), 4, Change::None),
            Field::Words(At(0, 64), 4, Change::None),
            Field::Words(At(0, 96), 4, Change::None),
            Field::Words(At(0, 160), 4, Change::None),
            Field::Words(At(0, 80), 4, Change::None),
            Field::Words(At(0, 112), 4, Change::None),
            Field::Words(At(0, 176), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q6K, encode);
    const RECODE: Option<Recode> = recode!(Q6K, Levels::Even(64), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 208);
        let scales = at_once(bytes_at::<16>(b, 192).map(|scale| d * scale.cast_signed() as f32));
        for (p, out) in out.chunks_exact_mut(32).enumerate() {
            let (half, s) = (p / 4, p % 4);
            let low = &b[half * 64 + s % 2 * 32..][..32];
            let high = &b[128 + half * 32..][..32];
            for (i, out) in out.iter_mut().enumerate() {
                let q = (low[i] >> (s / 2 * 4) & 15) | (high[i] >> (2 * s) & 3) << 4;
                *out = scales[2 * p + i / 16] * (q as i32 - 32) as f32;
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 210]) {
    let found = scaled::<Whole<-32, 31>, 16, 16, 128>(&Parts::new(x, importance));
    put(found.codes.as_flattened(), out);
    for (out, scale) in out[192..208].iter_mut().zip(found.scales) {
        *out = (scale as i8).cast_unsigned();
    }
    put_half(out, 208, found.d);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 210]) {
    for half in 0..2 {
        for i in 0..32 {
            let code = |s: usize| codes[128 * half + 32 * s + i];
            out[64 * half + i] = code(0) & 15 | code(2) << 4;
            out[64 * half + 32 + i] = code(1) & 15 | code(3) << 4;
            out[128 + 32 * half + i] =
                code(0) >> 4 | code(1) >> 4 << 2 | code(2) >> 4 << 4 | code(3) >> 4 << 6;
        }
    }
}

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, put_pairs, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, Whole, scaled};

/// 256 values in sixteen sub-blocks of 16, `d * (scale - 32) * (q - 4)`: 32 bytes of high bits, 64 bytes of low
/// pairs, twelve bytes of six-bit scales, `d` (f16).
///
/// In each half of 128 values, value `32 s + i` has its low pair in bits `2 s` of byte `i` of that half. The
/// high bit of value `32 s + i` of the whole block is bit `s` of byte `i`. Scale `j` has its low four bits in
/// byte `j % 8` (the low nibble for `j < 8`, else the high one), its high pair in bits `2 (j / 4)` of byte
/// `8 + j % 4`.
///
/// Source: ggml `block_q3_K`, `dequantize_row_q3_K`.
pub(crate) struct Q3K;

impl Block for Q3K {
    const NAME: &'static str = "q3_k";
    const PER: usize = 256;
    const BYTES: usize = 110;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::ThreeBit,
        &[
            Field::Scales(At(0, 108), None),
            Field::Word(At(0, 96)),
            Field::Word(At(0, 100)),
            Field::Word(At(0, 104)),
            Field::Words(At(0, 0), 24, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q3K, encode);
    const RECODE: Option<Recode> = recode!(Q3K, Levels::Even(8), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 108);
        let scales = &b[96..108];
        for (j, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = (scales[j % 8] >> (j / 8 * 4) & 15) | (scales[8 + j % 4] >> (j / 4 * 2) & 3) << 4;
            let scale = d * (scale as i32 - 32) as f32;
            let low = &b[32 + j / 8 * 32 + j % 2 * 16..][..16];
            let high = &b[j % 2 * 16..][..16];
            for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
                let q = (low >> (j % 8 / 2 * 2) & 3) | (high >> (j / 2) & 1) << 2;
                *out = scale * (q as i32 - 4) as f32;
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 110]) {
    let found = scaled::<Whole<-4, 3>, 16, 16, 32>(&Parts::new(x, importance));
    put(found.codes.as_flattened(), out);
    out[96..108].fill(0);
    for (j, scale) in found.scales.iter().enumerate() {
        let scale = (scale + 32) as u8;
        out[96 + j % 8] |= (scale & 15) << (j / 8 * 4);
        out[104 + j % 4] |= scale >> 4 << (j / 4 * 2);
    }
    put_half(out, 108, found.d);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 110]) {
    out[..32].fill(0);
    for (s, codes) in codes.chunks_exact(32).enumerate() {
        for (out, code) in out[..32].iter_mut().zip(codes) {
            *out |= code >> 2 << s;
        }
    }
    put_pairs(&mut out[32..96], codes);
}

//! Signs of eight values at once, as bytes.

/// FF in each byte whose bit in the index is set.
static MASKS: [u64; 256] = {
    let mut table = [0; 256];
    let mut signs = 0;
    while signs < 256 {
        let mut bit = 0;
        while bit < 8 {
            if signs >> bit & 1 == 1 {
                table[signs] |= 0xff << (8 * bit);
            }
            bit += 1;
        }
        signs += 1;
    }
    table
};

/// The masks of eight signs of which seven are stored: the number of minus signs is even.
static EVEN: [u64; 128] = {
    let mut table = [0; 128];
    let mut signs = 0;
    while signs < 128 {
        table[signs] = MASKS[signs | (signs.count_ones() as usize & 1) << 7];
        signs += 1;
    }
    table
};

/// The eight positive bytes of `entry`, byte `i` negative where bit `i` of `signs` is set.
#[inline(always)]
pub(super) fn signed(entry: u64, signs: u8) -> [u8; 8] {
    negate(entry, MASKS[signs as usize])
}

/// The same with the low seven bits of `signs`, the eighth such that the number of minus signs is even.
///
/// Source: ggml `ksigns_iq2xs`.
#[inline(always)]
pub(super) fn even_signed(entry: u64, signs: usize) -> [u8; 8] {
    negate(entry, EVEN[signs & 127])
}

/// Negates the bytes of `entry` under `mask`. None is zero, so that no carry leaves its byte.
#[inline(always)]
fn negate(entry: u64, mask: u64) -> [u8; 8] {
    ((entry ^ mask) + (mask & 0x0101_0101_0101_0101)).to_le_bytes()
}

/// Writes `scale` times each signed byte of `codes` to `out`.
#[inline(always)]
pub(super) fn scaled<const N: usize>(codes: &[[u8; 8]; N], scale: f32, out: &mut [f32]) {
    for (out, q) in out.iter_mut().zip(codes.as_flattened()) {
        *out = q.cast_signed() as f32 * scale;
    }
}

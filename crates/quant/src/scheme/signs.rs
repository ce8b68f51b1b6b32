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

/// Writes `scale` times the eight positive bytes of `entry` to `out`, value `i` negated where bit `i` of `signs`
/// is set.
#[inline(always)]
pub(super) fn signed(entry: u64, signs: u8, scale: f32, out: &mut [f32; 8]) {
    masked(entry, MASKS[signs as usize], scale, out);
}

/// The same with the low seven bits of `signs`, the eighth such that the number of minus signs is even.
///
/// Source: ggml `ksigns_iq2xs`.
#[inline(always)]
pub(super) fn even_signed(entry: u64, signs: usize, scale: f32, out: &mut [f32; 8]) {
    masked(entry, EVEN[signs & 127], scale, out);
}

/// The same with the bytes of `mask`. None of `entry` is zero, so that no carry leaves its byte.
#[inline(always)]
fn masked(entry: u64, mask: u64, scale: f32, out: &mut [f32; 8]) {
    let codes = (entry ^ mask) + (mask & 0x0101_0101_0101_0101);
    for (out, q) in out.iter_mut().zip(bytes(codes)) {
        *out = q.cast_signed() as f32 * scale;
    }
}

/// The bytes of `entry`.
///
/// The compiler is not to see where they come from: else it makes vectors of the loop around this, one lane for
/// each entry, with gathers and a scatter for each byte, and takes twice as long.
#[inline(always)]
pub(super) fn bytes(entry: u64) -> [u8; 8] {
    std::hint::black_box(entry.to_le_bytes())
}

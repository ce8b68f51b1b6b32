//! Numbers of 16 bits, without a question to the processor at each call, and so that the compiler makes vectors of them.

/// A binary16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half(u16);

impl Half {
    pub(crate) const ZERO: Half = Half(0);

    #[inline(always)]
    pub(crate) fn from_bits(bits: u16) -> Half {
        Half(bits)
    }

    #[inline(always)]
    pub(crate) fn to_bits(self) -> u16 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn from_le_bytes(bytes: [u8; 2]) -> Half {
        Half(u16::from_le_bytes(bytes))
    }

    #[inline(always)]
    pub(crate) fn to_le_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    pub(crate) fn is_finite(self) -> bool {
        self.0 & 0x7C00 != 0x7C00
    }

    /// The one nearest to `x`, ties to even; a NaN stays one, and becomes quiet.
    #[inline(always)]
    pub(crate) fn from_f32(x: f32) -> Half {
        let rounded = round_to_half(x).to_bits();
        let magnitude = rounded & 0x7FFF_FFFF;
        // Denormals are multiples of 2^-24, as are f32 between 0.5 and 1.
        let denormal = (f32::from_bits(magnitude) + 0.5).to_bits() & 0x7FF;
        let normal = magnitude.wrapping_sub(APART) >> 13;
        let rest = INFINITY >> 13 | magnitude >> 13 & 0x3FF;
        let number = if magnitude < TINY { denormal } else { normal };
        let bits = rounded >> 16 & 0x8000 | if magnitude < 0x7F80_0000 { number } else { rest };
        Half(bits as u16)
    }

    /// Its value. It has no branch, and no f32 below the normal ones: denormal scales are common (nearly all of
    /// Q6_K in Gemma 3).
    #[inline(always)]
    pub(crate) fn to_f32(self) -> f32 {
        let magnitude = (self.0 as u32 & 0x7FFF) << 13;
        let denormal = (f32::from_bits(magnitude + TINY) - f32::from_bits(TINY)).to_bits();
        // Infinity stays so, and a NaN becomes a quiet one.
        let rest = magnitude + if magnitude < INFINITY { APART } else { 2 * APART };
        let rest = rest | if magnitude > INFINITY { 0x0040_0000 } else { 0 };
        f32::from_bits((self.0 as u32 & 0x8000) << 16 | if magnitude < LEAST { denormal } else { rest })
    }
}

/// The least normal binary16 and infinity, with their bits where an f32 has them.
const LEAST: u32 = 0x0400 << 13;
const INFINITY: u32 = 0x7C00 << 13;
/// The distance of the exponents.
const APART: u32 = 112 << 23;
/// 2^-14, the least normal one, as an f32.
const TINY: u32 = LEAST + APART;

/// `x` with as many bits as a binary16 has, ties to even.
#[inline(always)]
pub(crate) fn round_to_half(x: f32) -> f32 {
    const INFINITY: u32 = 0x7F80_0000;
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let even = magnitude >> 13 & 1;
    let nearest = (magnitude + 0xFFF + even) & !0x1FFF;
    let finite = if nearest >= (127 + 16) << 23 { INFINITY } else { nearest };
    let denormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let number = if magnitude < TINY { denormal } else { finite };
    let rest = (magnitude | 0x0040_0000) & !0x1FFF;
    f32::from_bits(x.to_bits() & 0x8000_0000 | if magnitude > INFINITY { rest } else { number })
}

/// `x` with as many bits as a bfloat16 has, ties to even; a NaN stays one, and becomes quiet.
#[inline(always)]
pub(crate) fn round_to_bfloat(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = bits >> 16 & 1;
    let nearest = (bits.wrapping_add(0x7FFF + even)) & 0xFFFF_0000;
    let quiet = (bits | 0x0040_0000) & 0xFFFF_0000;
    f32::from_bits(if x.is_nan() { quiet } else { nearest })
}

/// The bytes of the bfloat16 nearest to `x`.
#[inline(always)]
pub(crate) fn bfloat_to_le_bytes(x: f32) -> [u8; 2] {
    let [_, _, low, high] = round_to_bfloat(x).to_bits().to_le_bytes();
    [low, high]
}

/// The value of a bfloat16; a NaN becomes quiet.
#[inline(always)]
pub(crate) fn bfloat_from_le_bytes(bytes: [u8; 2]) -> f32 {
    let value = f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
    f32::from_bits(value.to_bits() | if value.is_nan() { 0x0040_0000 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_what_the_library_says() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits);
            let found = Half::from_bits(bits);
            assert_eq!(found.to_f32().to_bits(), want.to_f32().to_bits(), "{bits:#06x}");
            assert_eq!(found.is_finite(), want.is_finite(), "{bits:#06x}");
            let want = half::bf16::from_bits(bits).to_f32();
            assert_eq!(bfloat_from_le_bytes(bits.to_le_bytes()).to_bits(), want.to_bits(), "{bits:#06x}");
        }
    }

    #[test]
    fn rounding_is_what_the_library_says() {
        let mut noise = 1u32;
        let random = (0..2_000_000).map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            noise
        });
        // Every binary16 and bfloat16, what is beside them, and half the way to the next.
        let halves = (0..=u16::MAX).flat_map(|h| {
            let x = half::f16::from_bits(h).to_f32().to_bits();
            [x, x ^ 1, x.wrapping_sub(1), x ^ 0x1000, x ^ 0x1001, x ^ 0xFFF]
        });
        let brains = (0..=u16::MAX)
            .flat_map(|b| [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF].map(|low| u32::from(b) << 16 | low));
        for bits in random.chain(halves).chain(brains) {
            let x = f32::from_bits(bits);
            let (f16, bf16) = (half::f16::from_f32(x), half::bf16::from_f32(x));
            assert_eq!(Half::from_f32(x).to_bits(), f16.to_bits(), "{bits:#010x}");
            assert_eq!(bfloat_to_le_bytes(x), bf16.to_le_bytes(), "{bits:#010x}");
            let found = [round_to_half(x), round_to_bfloat(x)].map(f32::to_bits);
            assert_eq!(found, [f16.to_f32(), bf16.to_f32()].map(f32::to_bits), "{bits:#010x}");
        }
    }
}

//! Floats of eight bits.

use super::{Block, EncodeRow};

/// Meaning of the largest codes of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    /// No infinity; only all ones is no number.
    Finite,
    /// The highest exponent is infinity and no number, as in IEEE 754.
    Ieee,
    /// Neither infinity nor minus zero, whose code is no number.
    Unsigned,
}

/// A format of one sign bit, `7 - mantissa` exponent bits and `mantissa` more.
///
/// Source of the formats: OCP 8-bit Floating Point Specification (OFP8) v1.0; for those without minus zero
/// arXiv:2206.02915. Both directions are torch 2.15.0's `Tensor.to`, which rounds to nearest even. There E4M3 alone
/// saturates: numbers larger than 448, including infinity, become 448.
pub(super) struct Small {
    mantissa: u32,
    bias: i32,
    top: Top,
    values: [f32; 256],
}

/// One sign, four exponent, three mantissa bits; up to 448.
pub(super) static E4M3: Small = Small::new(3, 7, Top::Finite);
/// One sign, five exponent, two mantissa bits; up to 57344.
pub(super) static E5M2: Small = Small::new(2, 15, Top::Ieee);
static E4M3_UNSIGNED: Small = Small::new(3, 8, Top::Unsigned);
static E5M2_UNSIGNED: Small = Small::new(2, 16, Top::Unsigned);

impl Small {
    const fn new(mantissa: u32, bias: i32, top: Top) -> Small {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            values[code as usize] = value(code, mantissa, bias, top);
            code += 1;
        }
        Small { mantissa, bias, top, values }
    }

    /// Returns the value of `code`.
    #[inline(always)]
    pub(super) fn decode(&self, code: u8) -> f32 {
        self.values[code as usize]
    }

    /// The largest number.
    pub(super) fn largest(&self) -> f32 {
        self.decode(self.largest_code())
    }

    const fn largest_code(&self) -> u8 {
        match self.top {
            Top::Finite => 0x7e,
            Top::Ieee => 0x7f - (1 << self.mantissa),
            Top::Unsigned => 0x7f,
        }
    }

    /// The code of the number nearest to `x`.
    pub(super) fn encode(&self, x: f32) -> u8 {
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        if x.is_nan() {
            return if self.top == Top::Unsigned { 0x80 } else { sign | 0x7f };
        }
        let (largest, code) = (u32::from(self.largest_code()), self.rounded(x.abs()));
        match self.top {
            Top::Finite => sign | code.min(largest) as u8,
            Top::Ieee => sign | code.min(largest + 1) as u8,
            Top::Unsigned if code > largest => 0x80,
            Top::Unsigned if code == 0 => 0,
            Top::Unsigned => sign | code as u8,
        }
    }

    /// The code of `x`, 0 or more, as if there were no largest one.
    fn rounded(&self, x: f32) -> u32 {
        let (m, rebias) = (self.mantissa, 127 - self.bias as u32);
        if x < power(1 - self.bias) {
            // Multiples of the smallest number; the first that is not is the smallest normal one's code.
            return (x * power(self.bias - 1 + m as i32)).round_ties_even() as u32;
        }
        let (bits, cut) = (x.to_bits(), 23 - m);
        let odd = bits >> cut & 1;
        ((bits + odd + (1 << (cut - 1)) - 1) >> cut) - (rebias << m)
    }
}

const fn value(code: u32, mantissa: u32, bias: i32, top: Top) -> f32 {
    let (exponent, low) = ((code & 0x7f) >> mantissa, code & ((1 << mantissa) - 1));
    let ones = (0x7f >> mantissa) as u32;
    match top {
        Top::Finite if code & 0x7f == 0x7f => return f32::NAN,
        Top::Ieee if exponent == ones && low != 0 => return f32::NAN,
        Top::Ieee if exponent == ones => {
            return if code < 0x80 { f32::INFINITY } else { f32::NEG_INFINITY };
        }
        Top::Unsigned if code == 0x80 => return f32::NAN,
        _ => {}
    }
    let unit = power(if exponent == 0 { 1 } else { exponent as i32 } - bias - mantissa as i32);
    let size = unit * (low + if exponent == 0 { 0 } else { 1 << mantissa }) as f32;
    if code < 0x80 { size } else { -size }
}

/// `2^n` for a normal number.
const fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// `2^(code - 127)`; no number for 255.
///
/// Source: OCP Microscaling Formats v1.0, 5.4.1.
#[inline(always)]
pub(super) fn from_e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

/// The code of the power of two nearest to the size of `x`, upward from halfway between two; 255 if that is
/// too large, or `x` no finite number.
///
/// Source: torch 2.15.0, c10/util/Float8_e8m0fnu.h.
pub(super) fn to_e8m0(x: f32) -> u8 {
    let (exponent, mantissa) = (x.to_bits() >> 23 & 0xff, x.to_bits() & 0x007f_ffff);
    let half = 0x0040_0000;
    // Under the smallest normal number, halfway is the smallest power itself.
    let up = exponent != 255 && (mantissa > half || (mantissa == half && exponent > 0));
    (exponent + u32::from(up)) as u8
}

/// A plain dtype of one byte.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $text:literal, $decode:expr, $encode:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl Block for $name {
            const NAME: &'static str = $text;
            const PER: usize = 1;
            const BYTES: usize = 1;
            const ENCODE: Option<EncodeRow> = Some(|_, values, _, out| {
                for (x, out) in values.iter().zip(out) {
                    *out = $encode(*x);
                }
            });

            fn block(b: &[u8], out: &mut [f32]) {
                out[0] = $decode(b[0]);
            }
        }
    };
}

plain!(
    /// Plain E4M3: finite, up to 448.
    F8E4M3, "f8_e4m3", |b| E4M3.decode(b), |x| E4M3.encode(x)
);
plain!(
    /// Plain E5M2: as IEEE 754 would have it, up to 57344.
    F8E5M2, "f8_e5m2", |b| E5M2.decode(b), |x| E5M2.encode(x)
);
plain!(
    /// Plain E4M3 without minus zero, up to 240.
    F8E4M3FNUZ, "f8_e4m3fnuz", |b| E4M3_UNSIGNED.decode(b), |x| E4M3_UNSIGNED.encode(x)
);
plain!(
    /// Plain E5M2 without minus zero, up to 57344.
    F8E5M2FNUZ, "f8_e5m2fnuz", |b| E5M2_UNSIGNED.decode(b), |x| E5M2_UNSIGNED.encode(x)
);
plain!(
    /// Plain E8M0: a power of two.
    F8E8M0, "f8_e8m0", from_e8m0, to_e8m0
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_its_own_nearest() {
        for format in [&E4M3, &E5M2, &E4M3_UNSIGNED, &E5M2_UNSIGNED] {
            for code in 0..=255 {
                let x = format.decode(code);
                assert!(x.is_nan() || format.encode(x) == code, "{x}");
            }
        }
        for code in 0..=254 {
            assert_eq!(to_e8m0(from_e8m0(code)), code);
        }
    }

    #[test]
    fn the_largest_numbers_are_those_of_the_formats() {
        let largest = [&E4M3, &E5M2, &E4M3_UNSIGNED, &E5M2_UNSIGNED].map(|format| format.largest() as u32);
        assert_eq!(largest, [448, 57344, 240, 57344]);
    }
}

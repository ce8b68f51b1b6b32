//! The exponential function.

use super::fma;

/// `exp(x)` to about one unit in the last place; 0 below -87.33, where results are no longer normal, and
/// infinity above 88.72. NaN stays NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then `2^n * p(r)`. The two parts of `ln 2` and the polynomial are
/// those of Cephes `expf` (S. Moshier, single/expf.c).
#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f32) -> f32 {
    const HIGHEST: f32 = 88.722_83;

    let bounded = if x < LOWEST { LOWEST } else { x };
    let (n, p) = split::<FMA>(if bounded > HIGHEST { HIGHEST } else { bounded });
    // 2^n as two factors, since 2^128 is not a float though 2^128 * p may be: n is from -126 to 128.
    let half = n >> 1;
    let value = p * power(half) * power(n - half);
    let value = if x < LOWEST { 0.0 } else { value };
    if x > HIGHEST { f32::INFINITY } else { value }
}

/// The same for `x` that is not above 0.
#[inline(always)]
pub(super) fn exp_of_negative<const FMA: bool>(x: f32) -> f32 {
    let (n, p) = split::<FMA>(if x < LOWEST { LOWEST } else { x });
    let value = p * power(n);
    if x < LOWEST { 0.0 } else { value }
}

const LOWEST: f32 = -87.336_54;

/// `n` and `p(r)`.
#[inline(always)]
fn split<const FMA: bool>(x: f32) -> (i32, f32) {
    /// 1.5 * 2^23: added to it, a small number is rounded to an integer in the low bits of the sum.
    const MAGIC: f32 = 12_582_912.0;

    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<FMA>(n, -0.693_359_4, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    let p = fma::<FMA>(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = fma::<FMA>(p, r, 8.333_452e-3);
    let p = fma::<FMA>(p, r, 4.166_579_6e-2);
    let p = fma::<FMA>(p, r, 1.666_666_5e-1);
    let p = fma::<FMA>(p, r, 0.5);
    let p = fma::<FMA>(p * r, r, r) + 1.0;
    (shifted.to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed(), p)
}

/// `2^n`.
#[inline(always)]
fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of `found` in units of the last place of the true value.
    fn ulps(x: f32, found: f32) -> f64 {
        let want = f64::from(x).exp();
        let place = f64::from(f32::from_bits((want as f32).to_bits() & 0x7F80_0000)) * 2f64.powi(-23);
        (f64::from(found) - want).abs() / place
    }

    #[test]
    fn it_is_within_two_units_over_its_whole_range() {
        let mut worst = 0f64;
        let mut x = -87.33_f32;
        while x < 88.72 {
            worst = worst.max(ulps(x, exp::<true>(x))).max(ulps(x, exp::<false>(x)));
            x += 0.000_37;
        }
        assert!(worst < 2.0, "{worst} units");
    }

    #[test]
    fn it_ends_well() {
        for (x, want) in [(0.0, 1.0), (f32::NEG_INFINITY, 0.0), (f32::INFINITY, f32::INFINITY), (-88.0, 0.0)]
        {
            let want: f32 = want;
            assert_eq!([exp::<true>(x), exp::<false>(x)].map(f32::to_bits), [want.to_bits(); 2], "{x}");
        }
        assert!(exp::<true>(f32::NAN).is_nan());
        assert!(exp::<true>(88.8).is_infinite() && exp::<true>(88.72).is_finite());
    }

    #[test]
    fn it_is_the_same_for_what_is_not_above_0() {
        for x in (0..200_000).map(|i| -i as f32 * 0.000_45).chain([f32::NEG_INFINITY, -0.0, LOWEST]) {
            assert_eq!(exp_of_negative::<true>(x).to_bits(), exp::<true>(x).to_bits(), "{x}");
            assert_eq!(exp_of_negative::<false>(x).to_bits(), exp::<false>(x).to_bits(), "{x}");
        }
        assert!(exp_of_negative::<true>(f32::NAN).is_nan());
    }
}

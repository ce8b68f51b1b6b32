//! The error function.

use super::exp::exp;
use super::fma;

/// `1 + erf(x)` to about 1e-4 of it, or 1e-10 where that is more. NaN stays NaN.
///
/// Near 0, `erf` is a polynomial; beyond, `1 - exp(p(|x|))`. Both are taken, so that there is no branch. The polynomials are those of N. Juffa
/// (<https://stackoverflow.com/a/35148199>).
#[inline(always)]
pub(super) fn one_plus_erf<const FMA: bool>(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);

    let high = fma::<FMA>(-1.728_534_7e-5, t, 3.831_971_3e-4);
    let low = fma::<FMA>(-3.883_964_4e-3, t, 2.425_462_2e-2);
    let far = fma::<FMA>(high, s, low);
    let far = fma::<FMA>(far, t, -1.067_778_8e-1);
    let far = fma::<FMA>(far, t, -6.348_467e-1);
    let far = fma::<FMA>(far, t, -1.287_175_1e-1);
    let tail = exp::<FMA>(fma::<FMA>(far, t, -t));
    let far = if x < 0.0 { tail } else { 2.0 - tail };

    let near = fma::<FMA>(-5.967_617e-4, s, 4.991_194_2e-3);
    let near = fma::<FMA>(near, s, -2.676_813_5e-2);
    let near = fma::<FMA>(near, s, 1.128_199_3e-1);
    let near = fma::<FMA>(near, s, -3.761_253_4e-1);
    let near = fma::<FMA>(near, s, 1.283_791_7e-1);
    let near = fma::<FMA>(near, x, x);

    if t > 0.927_734_4 { far } else { 1.0 + near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_libm_over_its_whole_range() {
        let mut worst = 0f64;
        let mut x = -9f32;
        while x < 6.0 {
            // Without the cancellation of `1 + erf(x)`.
            let wanted = libm::erfc(-f64::from(x));
            for found in [one_plus_erf::<true>(x), one_plus_erf::<false>(x)] {
                worst = worst.max((f64::from(found) - wanted).abs() / wanted.max(1e-6));
            }
            x += 0.000_113;
        }
        assert!(worst < 1e-4, "off by {worst:e}");
    }

    #[test]
    fn its_ends_are_exact() {
        for (x, wanted) in [(0.0, 1.0), (10.0, 2.0), (-10.0, 0.0), (f32::MAX, 2.0), (f32::MIN, 0.0)] {
            assert_eq!(one_plus_erf::<true>(x).to_bits(), f32::to_bits(wanted), "{x}");
        }
        assert!(one_plus_erf::<true>(f32::NAN).is_nan());
    }
}

//! The error function.

use super::exp::exp;
use super::fma;

/// `erf(x)` to about one unit in the last place. NaN stays NaN.
///
/// Near 0 a polynomial; beyond, `1 - exp(p(|x|))`. Both are taken, so that there is no branch. The polynomials are those of N. Juffa
/// (<https://stackoverflow.com/a/35148199>).
#[inline(always)]
pub(super) fn erf<const FMA: bool>(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);

    let high = fma::<FMA>(-1.728_534_7e-5, t, 3.831_971_3e-4);
    let low = fma::<FMA>(-3.883_964_4e-3, t, 2.425_462_2e-2);
    let far = fma::<FMA>(high, s, low);
    let far = fma::<FMA>(far, t, -1.067_778_8e-1);
    let far = fma::<FMA>(far, t, -6.348_467e-1);
    let far = fma::<FMA>(far, t, -1.287_175_1e-1);
    let far = 1.0 - exp::<FMA>(fma::<FMA>(far, t, -t));

    let near = fma::<FMA>(-5.967_617e-4, s, 4.991_194_2e-3);
    let near = fma::<FMA>(near, s, -2.676_813_5e-2);
    let near = fma::<FMA>(near, s, 1.128_199_3e-1);
    let near = fma::<FMA>(near, s, -3.761_253_4e-1);
    let near = fma::<FMA>(near, s, 1.283_791_7e-1);
    let near = fma::<FMA>(near, x, x);

    if t > 0.927_734_4 { far.copysign(x) } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_libm_over_its_whole_range() {
        let mut worst = 0f64;
        let mut x = -6f32;
        while x < 6.0 {
            let wanted = libm::erf(f64::from(x));
            for found in [erf::<true>(x), erf::<false>(x)] {
                worst = worst.max((f64::from(found) - wanted).abs() / wanted.abs().max(1e-30));
            }
            x += 0.000_113;
        }
        assert!(worst < 3e-7, "off by {worst:e}");
    }

    #[test]
    fn its_ends_are_one() {
        for (x, wanted) in [(0.0, 0.0), (10.0, 1.0), (-10.0, -1.0), (f32::MAX, 1.0)] {
            assert_eq!(erf::<true>(x).to_bits(), f32::to_bits(wanted), "{x}");
        }
        assert_eq!((erf::<true>(f32::INFINITY), erf::<true>(f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(erf::<true>(f32::NAN).is_nan());
    }
}

//! Schemes with the same codes, whose scales and offsets have other dtypes: codes are copied, and nothing is quantised again.
//!
//! squish's `q4a` and MLX's four bits are the same but for that: nibbles, the low one first, in groups along a row, times a scale, plus
//! an offset (squish@b9a44a9f5, squish/quant/compressed_loader.py builds the one from the other; mlx@846d17622, mlx/ops.cpp).

use tensor::{Dtype, Scheme};

use crate::codec::Matrix;
use crate::scheme::Real;

/// The codes of a scheme, and the dtype of its scales and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coded {
    bits: u64,
    group: u64,
    dtype: Dtype,
}

impl Coded {
    /// Those of the scheme called `name`: each is a plane of codes, one of scales, and one of offsets.
    fn of(name: &str) -> Option<Coded> {
        let (family, params) = name.split_once(':')?;
        match family {
            "squish-q4a" => {
                let group = params.strip_prefix('g')?.parse().ok()?;
                Some(Coded { bits: 4, group, dtype: Dtype::F32 })
            }
            "mlx-affine" => {
                let (bits, rest) = params.strip_prefix('b')?.split_once(",g")?;
                let (group, real) = rest.split_once(',')?;
                let dtype = [Dtype::F32, Dtype::F16, Dtype::BF16].into_iter().find(|d| d.name() == real)?;
                Some(Coded { bits: bits.parse().ok()?, group: group.parse().ok()?, dtype })
            }
            _ => None,
        }
    }
}

/// Whether `from` becomes `to` by copying its codes; then whether every value stays what it is.
pub fn recasts(from: &Scheme, to: &Scheme) -> Option<bool> {
    let (a, b) = (Coded::of(&from.name)?, Coded::of(&to.name)?);
    // Both hold groups of f32 and compute in it: those of 16 bits round each value to their dtype.
    let exact = a.dtype == Dtype::F32 && b.dtype == Dtype::F32;
    (a.bits == b.bits && a.group == b.group && from.name != to.name).then_some(exact)
}

/// The planes of `from` as those of `to`, for which [`recasts`] is not `None`.
///
/// # Panics
/// If a length does not fit another.
pub fn recast(from: &Scheme, to: &Scheme, src: Matrix<'_>, dst: &mut [&mut [u8]]) {
    let dtype = |scheme: &Scheme| Coded::of(&scheme.name).map_or(Dtype::F32, |coded| coded.dtype);
    let (before, after) = (Real(dtype(from)), Real(dtype(to)));
    let ([codes, scales @ ..], [out, reals @ ..]) = (src.planes, dst) else { panic!("planes of `{from}`") };
    out.copy_from_slice(codes);
    for (scales, out) in scales.iter().zip(reals) {
        let count = scales.len() as u64 / dtype(from).bytes();
        assert_eq!(out.len() as u64, count * dtype(to).bytes(), "scales of `{to}`");
        for i in 0..usize::try_from(count).unwrap_or(0) {
            after.put(out, i, before.get(scales, i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(name: &str) -> std::sync::Arc<Scheme> {
        crate::scheme(name).unwrap()
    }

    #[test]
    fn only_scales_differ() {
        let is = |a: &str, b: &str| recasts(&scheme(a), &scheme(b));
        assert_eq!(is("squish-q4a:g32", "mlx-affine:b4,g32,f32"), Some(true));
        assert_eq!(is("mlx-affine:b4,g64,f16", "squish-q4a:g64"), Some(false));
        assert_eq!(is("mlx-affine:b6,g64,f16", "mlx-affine:b6,g64,bf16"), Some(false));
        for (a, b) in [
            ("squish-q4a:g32", "mlx-affine:b4,g64,f32"),
            ("squish-q4a:g32", "mlx-affine:b8,g32,f32"),
            ("squish-q4:g32", "mlx-affine:b4,g32,f32"),
            ("squish-q4a:g32", "squish-q4a:g32"),
            ("q4_1", "mlx-affine:b4,g32,f16"),
        ] {
            assert_eq!(is(a, b), None, "{a} to {b}");
        }
    }

    #[test]
    fn codes_are_the_same_bits_and_values_those_of_f32() {
        let (rows, k) = (6, 128);
        let mut random = testkit::Rng(3);
        let values: Vec<f32> = (0..rows * k).map(|_| random.float()).collect();
        let (from, to) = (scheme("squish-q4a:g32"), scheme("mlx-affine:b4,g32,f32"));
        let planes = |scheme: &Scheme| -> Vec<Vec<u8>> {
            let shape = tensor::Shape::from([rows as u64, k as u64]);
            scheme.planes.iter().map(|p| vec![0; scheme.plane_bytes(p, &shape).unwrap() as usize]).collect()
        };
        let mut before = planes(&from);
        let mut places: Vec<&mut [u8]> = before.iter_mut().map(|plane| &mut plane[..]).collect();
        crate::codec(&from.name).unwrap().encoder().unwrap().encode(&values, k, None, &mut places);
        let there = |from: &Scheme, to: &Scheme, planes_of: &[Vec<u8>]| {
            let mut after = planes(to);
            let src: Vec<&[u8]> = planes_of.iter().map(|plane| &plane[..]).collect();
            let mut places: Vec<&mut [u8]> = after.iter_mut().map(|plane| &mut plane[..]).collect();
            recast(from, to, Matrix { planes: &src, rows, k }, &mut places);
            after
        };
        let after = there(&from, &to, &before);
        assert_eq!(after[0], before[0]);
        let decoded = |scheme: &Scheme, planes: &[Vec<u8>]| {
            let planes: Vec<&[u8]> = planes.iter().map(|plane| &plane[..]).collect();
            let mut out = vec![0.0; rows * k];
            crate::codec(&scheme.name).unwrap().decode(
                Matrix { planes: &planes, rows, k },
                0..rows,
                &mut out,
            );
            out
        };
        assert_eq!(decoded(&to, &after), decoded(&from, &before));
        assert_eq!(there(&to, &from, &after), before);
        // In 16 bits, codes stay what they are too.
        let half = scheme("mlx-affine:b4,g32,f16");
        assert_eq!(there(&from, &half, &before)[0], before[0]);
    }
}

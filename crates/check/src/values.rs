//! Whether values are numbers.

use std::ops::Range;

use quant::{BadData, Codec, Matrix};
use tensor::{Dtype, Scheme};

use tensor::Bands;

/// Values that are decoded at a time: they stay in a core's cache.
const AT_ONCE: usize = 1 << 15;

/// Findings in some of a tensor's values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// Values that are no number.
    pub(crate) nan: u64,
    /// Values that are infinite.
    pub(crate) infinite: u64,
    /// The place of the first of both, counted in row-major order.
    pub(crate) first: Option<u64>,
    /// Invalid stored data; the values made from it were not checked.
    pub(crate) bad: Option<BadData>,
}

impl Values {
    /// Adds the findings of a later band.
    pub(crate) fn and(self, later: Values) -> Values {
        Values {
            nan: self.nan + later.nan,
            infinite: self.infinite + later.infinite,
            first: self.first.or(later.first),
            bad: self.bad.or(later.bad),
        }
    }

    /// Counts decoded or plain values from place `at` on.
    fn count<T: Copy>(
        values: &[T],
        at: u64,
        nan: impl Fn(T) -> bool,
        infinite: impl Fn(T) -> bool,
    ) -> Values {
        let count = |is: &dyn Fn(T) -> bool| values.iter().position(|x| is(*x));
        let (mut nans, mut infinites) = (0, 0);
        for &x in values {
            nans += u32::from(nan(x));
            infinites += u32::from(infinite(x));
        }
        let first = if nans + infinites == 0 { None } else { count(&|x| nan(x) || infinite(x)) };
        Values {
            nan: u64::from(nans),
            infinite: u64::from(infinites),
            first: first.map(|i| at + i as u64),
            bad: None,
        }
    }
}

/// The codec that knows what the values of a scheme are, if they are floats.
pub(crate) fn codec(scheme: &Scheme) -> Option<&'static dyn Codec> {
    quant::codec(&scheme.name)
}

/// Whether there is nothing to look at: every bit pattern of the elements is a value.
pub(crate) fn is_whole_numbers(scheme: &Scheme) -> bool {
    use Dtype::{Bool, I8, I16, I32, I64, U8, U16, U32, U64};
    scheme.dtype().is_some_and(|d| [Bool, U8, I8, U16, I16, U32, I32, U64, I64].contains(&d))
}

/// Looks at rows `rows` of a matrix, whose bytes are `planes`.
pub(crate) fn look(
    codec: &dyn Codec,
    scheme: &Scheme,
    bands: &Bands<'_>,
    (matrix, rows): (u64, &Range<u64>),
    planes: &[&[u8]],
    scratch: &mut Vec<f32>,
) -> Values {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let at = (matrix * bands.rows + rows.start) * bands.k;
    if let (Some(dtype), [bytes]) = (scheme.dtype(), planes)
        && let Some(values) = plain(dtype, bytes, at)
    {
        return values;
    }
    let (count, k) = (size(rows.end - rows.start), size(bands.k));
    let band = Matrix { planes, rows: count, k };
    if let Err(mut bad) = codec.check(band) {
        // The band's cells are counted from its own beginning.
        let plane = scheme.planes.iter().position(|p| p.role == bad.role);
        if let Some(plane) = plane {
            let start = bands.bytes(plane, matrix, rows).start - bands.bytes(plane, matrix, &(0..1)).start;
            bad.at += size(start / scheme.planes[plane].cell_bytes.max(1));
        }
        return Values { bad: Some(bad), ..Values::default() };
    }
    let mut found = Values::default();
    let step = (AT_ONCE / k).max(1);
    for start in (0..count).step_by(step) {
        let rows = start..(start + step).min(count);
        scratch.resize(rows.len() * k, 0.0);
        codec.decode(band, rows, scratch);
        let first = at + (start * k) as u64;
        found = found.and(Values::count(scratch, first, f32::is_nan, f32::is_infinite));
    }
    found
}

/// Checks plain elements without decoding them: by their bits, without the sign.
fn plain(dtype: Dtype, bytes: &[u8], at: u64) -> Option<Values> {
    macro_rules! scan {
        ($bits:ty, $bytes:literal, $infinity:literal) => {{
            const MAGNITUDE: $bits = <$bits>::MAX >> 1;
            let of = |x: [u8; $bytes]| <$bits>::from_le_bytes(x) & MAGNITUDE;
            let (elements, _) = bytes.as_chunks::<$bytes>();
            Values::count(elements, at, |x| of(x) > $infinity, |x| of(x) == $infinity)
        }};
    }
    Some(match dtype {
        Dtype::F16 => scan!(u16, 2, 0x7C00),
        Dtype::BF16 => scan!(u16, 2, 0x7F80),
        Dtype::F32 | Dtype::C64 => scan!(u32, 4, 0x7F80_0000),
        Dtype::F64 => scan!(u64, 8, 0x7FF0_0000_0000_0000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_floats_are_told_by_their_bits() {
        let of = |dtype, bytes: &[u8]| {
            let v = plain(dtype, bytes, 10).unwrap();
            (v.nan, v.infinite, v.first)
        };
        let f32s = [1.0, f32::MAX, -0.0, f32::NEG_INFINITY, 1e-40, -f32::NAN].map(f32::to_le_bytes).concat();
        assert_eq!(of(Dtype::F32, &f32s), (1, 1, Some(13)));
        // 65504, -inf, the least NaN.
        assert_eq!(of(Dtype::F16, &[0xFF, 0x7B, 0, 0xFC, 1, 0x7C]), (1, 1, Some(11)));
        assert_eq!(of(Dtype::BF16, &[0x7F, 0x7F, 0x80, 0x7F]), (0, 1, Some(11)));
        assert_eq!(of(Dtype::F64, &1e300f64.to_le_bytes()), (0, 0, None));
    }

    /// Past the first bands, at the cell of the whole plane.
    #[test]
    fn a_bad_scale_is_found_in_its_place() {
        let scheme = quant::scheme("mlx-affine:b4,g64,f32").unwrap();
        let shape = [2, 40, 128].into();
        let mut planes: Vec<Vec<u8>> = scheme
            .planes
            .iter()
            .map(|p| vec![0; usize::try_from(scheme.plane_bytes(p, &shape).unwrap()).unwrap()])
            .collect();
        // Row 33 of the second matrix, its second group.
        planes[1][((40 + 33) * 2 + 1) * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        let bands = Bands::of(&scheme, &shape).unwrap();
        let codec = codec(&scheme).unwrap();
        let mut found = vec![];
        for matrix in 0..2 {
            for rows in bands.cut(512) {
                let parts = planes.iter().zip(0..).map(|(bytes, plane)| {
                    let range = bands.bytes(plane, matrix, &rows);
                    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
                });
                let parts: Vec<&[u8]> = parts.collect();
                let values = look(codec, &scheme, &bands, (matrix, &rows), &parts, &mut vec![]);
                found.extend(values.bad.map(|bad| (matrix, bad.at)));
            }
        }
        assert_eq!(found, [(1, 33 * 2 + 1)]);
    }
}

//! Plain floats with the most significant byte first, as big-endian GGUF files, numpy's `>f4` and PyTorch files of such
//! machines have them. Whole numbers and blocks in that order are listed and moved, and decoded by nothing.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, Scheme};

use super::real::Real;
use crate::codec::{Codec, Matrix};

/// `f32.be`: the plain dtype, and `.be`.
pub(crate) struct BigEndian {
    name: &'static str,
    plain: Dtype,
}

pub(crate) const F32_BE: BigEndian = BigEndian { name: "f32.be", plain: Dtype::F32 };
pub(crate) const F16_BE: BigEndian = BigEndian { name: "f16.be", plain: Dtype::F16 };
pub(crate) const BF16_BE: BigEndian = BigEndian { name: "bf16.be", plain: Dtype::BF16 };
pub(crate) const F64_BE: BigEndian = BigEndian { name: "f64.be", plain: Dtype::F64 };

impl Codec for BigEndian {
    fn name(&self) -> &str {
        self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        Arc::new(Scheme { name: self.name.into(), ..Scheme::clone(&Scheme::plain(self.plain)) })
    }

    /// An f64 is rounded to the nearest f32.
    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [data] = matrix.planes();
        let width = self.plain.bytes() as usize;
        let row = matrix.k * width;
        assert_eq!(out.len(), rows.len() * matrix.k, "values of `{}`", self.name);
        let data = &data[rows.start * row..rows.end * row];
        for (element, out) in data.chunks_exact(width).zip(out) {
            let mut swapped = [0; 8];
            for (to, from) in swapped.iter_mut().zip(element.iter().rev()) {
                *to = *from;
            }
            *out = match self.plain {
                Dtype::F64 => f64::from_le_bytes(swapped) as f32,
                dtype => Real(dtype).get(&swapped, 0),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(codec: &BigEndian, bytes: &[u8]) -> Vec<u32> {
        let k = bytes.len() / codec.plain.bytes() as usize;
        let mut out = vec![0.0; k];
        codec.decode(Matrix { planes: &[bytes], rows: 1, k }, 0..1, &mut out);
        out.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn values_are_those_of_the_other_order() {
        // numpy: np.array([1.5, -2, np.inf], ">f4").tobytes(), and so on.
        let wanted = [1.5f32, -2.0, f32::INFINITY].map(f32::to_bits);
        assert_eq!(decoded(&F32_BE, b"?\xc0\0\0\xc0\0\0\0\x7f\x80\0\0"), wanted);
        assert_eq!(decoded(&F16_BE, b">\0\xc0\0|\0"), wanted);
        assert_eq!(decoded(&BF16_BE, b"?\xc0\xc0\0\x7f\x80"), wanted);
        let doubles = b"?\xf8\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0\x7f\xf0\0\0\0\0\0\0";
        assert_eq!(decoded(&F64_BE, doubles), wanted);
    }

    #[test]
    fn rows_are_found() {
        let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_be_bytes()).collect();
        let mut out = [0.0; 2];
        F32_BE.decode(Matrix { planes: &[&bytes], rows: 2, k: 2 }, 1..2, &mut out);
        assert_eq!(out.map(f32::to_bits), [3f32, 4.0].map(f32::to_bits));
        assert_eq!(F32_BE.scheme().byte_len(&tensor::Shape::from([2, 2])), Ok(16));
    }
}

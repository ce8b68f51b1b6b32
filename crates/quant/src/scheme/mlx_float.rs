//! MLX's small floats with a scale per group: `mxfp4`, `nvfp4` and `mxfp8`.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::bits::{code, put_code};
use super::plane::{each, factor, matrix, out_in, packed, part, plane, shared};
use super::real::Real;
use super::small_float::E4M3;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Matrix};
use crate::packing::Packing;

/// Four-bit floats (E2M1) in groups of 32 with a power of two (E8M0).
pub(crate) static MLX_MXFP4: Float =
    Float { name: "mlx-mxfp4", bits: 4, group: 32, scales: Real(Dtype::F8E8M0) };
/// Four-bit floats (E2M1) in groups of 16 with an E4M3 scale.
pub(crate) static MLX_NVFP4: Float =
    Float { name: "mlx-nvfp4", bits: 4, group: 16, scales: Real(Dtype::F8E4M3) };
/// E4M3 in groups of 32 with a power of two (E8M0).
pub(crate) static MLX_MXFP8: Float =
    Float { name: "mlx-mxfp8", bits: 8, group: 32, scales: Real(Dtype::F8E8M0) };

/// Values `scale * float`: floats of 4 or 8 bits in u32 words, lowest bits first, and scales of a byte,
/// `[out, in / group]`.
///
/// The product is rounded to f32 once, as `mx.dequantize(..., dtype=mx.float32)` does; MLX's default of
/// bfloat16 holds every product of a power of two as well, save near its smallest and largest numbers.
///
/// Encoding is `mx.quantize` on the CPU for values in f32: a four-bit float halfway between two is the
/// smaller one, minus zero never comes up, and a power of two is the smallest that nothing exceeds. (MLX
/// before 0.32.4 took the nearest power, and its kernels for GPUs go to the even one of two.) Groups of
/// nothing but values under 2^-125 get the smallest power, where MLX wraps round; values over 448 * 6 get the
/// largest number of `nvfp4`, where MLX writes zeros if they are over that a million times.
///
/// Source: mlx@846d17622, mlx/ops.cpp (`fp_quantize`, `fp_dequantize`), and mlx 0.32.4 as it behaves.
pub(crate) struct Float {
    name: &'static str,
    bits: usize,
    group: usize,
    scales: Real,
}

/// The values of the codes of a four-bit float.
///
/// Source: OCP Microscaling Formats v1.0, 5.3.3.
pub(super) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

impl Codec for Float {
    fn name(&self) -> &str {
        self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let weight = plane("weight", 4, &[each(OUT), packed(IN, 32 / self.bits as u64)]);
        let scales = factor("scales", 1, &[each(OUT), shared(IN, self.group as u64)]);
        matrix(self.name, vec![weight, scales])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [weight, scales] = matrix.planes();
        let (k, groups) = (matrix.k, matrix.k.div_ceil(self.group));
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name);
        for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let stream = &weight[row * k * self.bits / 8..][..k * self.bits / 8];
            for (g, out) in out.chunks_mut(self.group).enumerate() {
                let scale = self.scales.get(scales, row * groups + g);
                for (i, out) in out.iter_mut().enumerate() {
                    let q = code(stream, self.bits, g * self.group + i);
                    *out = scale * if self.bits == 4 { E2M1[usize::from(q)] } else { E4M3.decode(q) };
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scales] = matrix.planes();
        self.scales.check("scales", "a scale", scales)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }

    fn packing(&self) -> Option<Packing> {
        (self.bits == 4 && self.scales.0 == Dtype::F8E8M0).then(Packing::powers)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let (words, groups) = (k.saturating_mul(self.bits as u64) / 32, k.div_ceil(self.group as u64));
        vec![
            part(".weight", Dtype::U32, shape, &[out, words]),
            part(".scales", Dtype::U8, shape, &[out, groups]),
        ]
    }
}

impl Encoder for Float {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, scales] = planes else { panic!("`{}` has two planes", self.name) };
        let largest = if self.bits == 4 { 6.0 } else { E4M3.largest() };
        weight.fill(0);
        let mut at = 0;
        for (values, stream) in values.chunks_exact(k).zip(weight.chunks_exact_mut(k * self.bits / 8)) {
            for (g, values) in values.chunks(self.group).enumerate() {
                let size = values.iter().fold(0f32, |most, x| most.max(x.abs())) / largest;
                let stored =
                    if self.scales.0 == Dtype::F8E8M0 { power_above(size) } else { E4M3.encode(size) };
                scales[at] = stored;
                let scale = self.scales.get(scales, at);
                at += 1;
                for (i, x) in values.iter().enumerate() {
                    let q = match self.bits {
                        // A scale that is rounded to zero has nothing but zeros.
                        _ if scale == 0.0 => 0,
                        4 => nearest_e2m1(x / scale),
                        _ => E4M3.encode(x / scale),
                    };
                    put_code(stream, self.bits, g * self.group + i, q);
                }
            }
        }
    }
}

/// The E8M0 code of the smallest power of two that is at least `size`; of 1 for zero.
fn power_above(size: f32) -> u8 {
    let (exponent, mantissa) = (size.to_bits() >> 23, size.to_bits() & 0x007f_ffff);
    match exponent {
        _ if size == 0.0 => 127,
        // 2^-127 is half of the smallest normal number.
        0 => u8::from(mantissa > 0x0040_0000),
        _ => (exponent + u32::from(mantissa > 0)) as u8,
    }
}

/// The code of the four-bit float nearest to `x`, of the smaller one of two, and never of minus zero.
fn nearest_e2m1(x: f32) -> u8 {
    const HALFWAY: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let code = HALFWAY.iter().filter(|half| x.abs() > **half).count() as u8;
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_is_never_under_the_size() {
        for (size, exponent) in
            [(1.0, 0), (1.000_000_1, 1), (0.3, -1), (1e-45, -127), (f32::MIN_POSITIVE, -126)]
        {
            assert_eq!(i32::from(power_above(size)) - 127, exponent, "{size}");
        }
        assert_eq!(power_above(0.0), 127);
    }
}

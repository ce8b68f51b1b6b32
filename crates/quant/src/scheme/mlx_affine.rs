//! MLX affine: `scale * q + bias` per group of a row, with codes of 1 to 8 bits.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::bits::{put_code, put_codes, unpack};
use super::plane::{each, matrix, number, out_in, packed, part, plane, shared};
use super::real::{REALS, Real};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Levels, Matrix, Recoder, SchemeFamily};
use crate::isa::{Isa, per_isa};
use crate::packing::{Number, Packing, Plain};

/// The widths that MLX has kernels for.
pub const BITS: &[u64] = &[1, 2, 3, 4, 5, 6, 8];
/// The group sizes that it has kernels for.
pub const GROUPS: &[u64] = &[32, 64, LARGEST_GROUP as u64];
const LARGEST_GROUP: usize = 128;

/// `mlx-affine:b4,g64,bf16`: bits of a code, columns of a group, dtype of scales and biases.
pub(crate) struct MlxAffine;

impl SchemeFamily for MlxAffine {
    fn name(&self) -> &'static str {
        "mlx-affine"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (bits, rest) = params.strip_prefix('b')?.split_once(",g")?;
        let (group, real) = rest.split_once(',')?;
        let known = |text, of: &[u64]| number(text).filter(|n| of.contains(n));
        let (bits, group) = (known(bits, BITS)?, known(group, GROUPS)?);
        let real = Real::parse(real, REALS)?;
        let name = format!("mlx-affine:{params}");
        Some(Box::new(Affine { name, bits: bits as usize, group: group as usize, real }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &[
            "b2,g64,bf16",
            "b3,g64,bf16",
            "b4,g32,bf16",
            "b4,g64,bf16",
            "b4,g64,f16",
            "b4,g64,f32",
            "b4,g128,bf16",
            "b5,g64,bf16",
            "b6,g64,bf16",
            "b8,g64,bf16",
            "b8,g64,f16",
            "b8,g64,f32",
        ]
    }
}

/// A row is one stream of codes in u32 words, lowest bits first; widths of 3, 5 and 6 bits cross words, so a
/// cell is the shortest whole run of words. Scales and biases are `[out, in / group]`.
///
/// A value is `scale * q + bias` with both results rounded to the dtype of the scales, as `mx.dequantize`
/// computes it on the CPU, then widened.
///
/// Encoding is `mx.quantize`: in f32, codes from the scale and bias before these are rounded. It takes the
/// values as they are; MLX would round them to the dtype of the scales first.
///
/// Source: mlx@846d17622, mlx/ops.cpp (`affine_dequantize`) and mlx/backend/cpu/quantized.cpp (`quantize`);
/// equal to mlx 0.32.4.
struct Affine {
    name: String,
    bits: usize,
    group: usize,
    real: Real,
}

impl Codec for Affine {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let (bits, group) = (self.bits as u64, self.group as u64);
        // 32 bits and these share the factors of two of `bits`.
        let per = 32 >> bits.trailing_zeros();
        let real = |role| plane(role, self.real.0.bytes(), &[each(OUT), shared(IN, group)]);
        let weight = plane("weight", per * bits / 8, &[each(OUT), packed(IN, per)]);
        matrix(&self.name, vec![weight, real("scales"), real("biases")])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        match self.real.0 {
            Dtype::F16 => decode::<F16>(isa, self, matrix, rows, out),
            Dtype::BF16 => decode::<BF16>(isa, self, matrix, rows, out),
            _ => decode::<F32>(isa, self, matrix, rows, out),
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scales, biases] = matrix.planes();
        self.real.check("scales", "a scale", scales)?;
        self.real.check("biases", "a bias", biases)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }

    fn recoder(&self) -> Option<&dyn Recoder> {
        Some(self)
    }

    /// Products are of what the codes stand for, not rounded to the dtype of the scales: so `mx.quantized_matmul`
    /// has it too.
    fn packing(&self) -> Option<Packing> {
        let scale = match (self.bits, self.real.0) {
            (4 | 8, Dtype::F16) => Number::F16,
            (4 | 8, Dtype::BF16) => Number::BF16,
            (4, Dtype::F32) => Number::F32,
            _ => return None,
        };
        Packing::groups(Plain::affine(self.bits as u32, scale), self.group)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let (words, groups) = (k.saturating_mul(self.bits as u64) / 32, k.div_ceil(self.group as u64));
        vec![
            part(".weight", Dtype::U32, shape, &[out, words]),
            part(".scales", self.real.0, shape, &[out, groups]),
            part(".biases", self.real.0, shape, &[out, groups]),
        ]
    }
}

/// The dtype of scales, known when compiled.
trait Known {
    const REAL: Real;
}

struct F16;
struct BF16;
struct F32;

impl Known for F16 {
    const REAL: Real = Real(Dtype::F16);
}

impl Known for BF16 {
    const REAL: Real = Real(Dtype::BF16);
}

impl Known for F32 {
    const REAL: Real = Real(Dtype::F32);
}

per_isa! {
    /// Decodes whole rows.
    fn decode<R: Known>(of: &Affine, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) = decode_rows
}

#[inline(always)]
fn decode_rows<R: Known>(of: &Affine, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
    let [weight, scales, biases] = matrix.planes();
    let (k, groups) = (matrix.k, matrix.k.div_ceil(of.group));
    assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", of.name);
    let mut codes = [0; LARGEST_GROUP];
    for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
        let stream = &weight[row * k * of.bits / 8..][..k * of.bits / 8];
        for (g, out) in out.chunks_mut(of.group).enumerate() {
            let codes = &mut codes[..out.len()];
            unpack(stream, of.bits, g * of.group, codes);
            let at = row * groups + g;
            let (scale, bias) = (R::REAL.get(scales, at), R::REAL.get(biases, at));
            for (out, q) in out.iter_mut().zip(codes) {
                *out = R::REAL.round(R::REAL.round(scale * *q as f32) + bias);
            }
        }
    }
}

impl Encoder for Affine {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, scales, biases] = planes else { panic!("`{}` has three planes", self.name) };
        let (bytes, most) = (k * self.bits / 8, largest_code(self.bits));
        weight.fill(0);
        let mut at = 0;
        for (values, stream) in values.chunks_exact(k).zip(weight.chunks_exact_mut(bytes)) {
            for (g, values) in values.chunks(self.group).enumerate() {
                let (scale, bias) = line(values, self.bits);
                self.real.put(scales, at, scale);
                self.real.put(biases, at, bias);
                at += 1;
                for (i, x) in values.iter().enumerate() {
                    let q = ((x - bias) / scale).round_ties_even().max(0.0).min(most);
                    put_code(stream, self.bits, g * self.group + i, q as u8);
                }
            }
        }
    }
}

impl Recoder for Affine {
    fn levels(&self) -> Levels {
        Levels::Even(1 << self.bits)
    }

    fn columns(&self, _: usize) -> usize {
        self.group
    }

    fn put(&self, codes: &[u8], _: usize, planes: &mut [&mut [u8]]) {
        let [weight, ..] = planes else { panic!("`{}` has three planes", self.name) };
        put_codes(weight, self.bits, codes);
    }
}

/// The scale and bias of a group: the end of larger size is hit exactly, and zero too where it is between.
/// Codes of one bit are the two ends.
fn line(values: &[f32], bits: usize) -> (f32, f32) {
    let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
    for &x in values {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
    }
    let step = ((max - min) / largest_code(bits)).max(1e-7);
    if bits == 1 {
        return (step, min);
    }
    let (scale, edge) = if min.abs() > max.abs() { (step, min) } else { (-step, max) };
    let zero = (edge / scale).round_ties_even();
    if zero == 0.0 { (scale, 0.0) } else { (edge / zero, edge) }
}

fn largest_code(bits: usize) -> f32 {
    ((1u32 << bits) - 1) as f32
}

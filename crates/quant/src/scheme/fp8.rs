//! FP8 weights and their scales: one for the matrix, for each row, or for each block.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::plane::{each, factor, matrix, out_in, part, plane};
use super::real::Real;
use super::scope::Scope;
use super::small_float::{E4M3, E5M2, Small};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Difference, Encoder, Matrix, Merger, SchemeFamily};

/// The dtypes of scales.
pub const FP8_SCALES: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F8E8M0];

/// `fp8:e4m3,b128x128,f32`: the dtype of the weight (`e4m3` or `e5m2`), what shares a scale (`tensor`, `row`,
/// or a block of rows and columns), and the dtype of the scales (`f32`, `bf16`, `f16` or `f8_e8m0`).
pub(crate) struct Fp8;

impl SchemeFamily for Fp8 {
    fn name(&self) -> &'static str {
        "fp8"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (element, rest) = params.split_once(',')?;
        let (scope, scales) = rest.split_once(',')?;
        let (dtype, element) = match element {
            "e4m3" => (Dtype::F8E4M3, &E4M3),
            "e5m2" => (Dtype::F8E5M2, &E5M2),
            _ => return None,
        };
        let scope = rectangle(scope)?;
        let scales = Real::parse(scales, FP8_SCALES)?;
        let (name, rounds) = (format!("fp8:{params}"), false);
        Some(Box::new(Scaled { name, dtype, element, scope, scales, rounds }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["e4m3,b128x128,f32", "e4m3,b128x128,f8_e8m0", "e4m3,row,f32", "e4m3,row,bf16", "e4m3,tensor,f32"]
    }
}

/// `ct-fp8:row,bf16`, compressed-tensors' `float-quantized` with scales of 16 bits: the scope of a scale (`tensor`,
/// `row`, or `b128x128`), and the dtype of the scales, to which values are rounded. With f32 it is an `fp8`.
pub(crate) struct CtFp8;

impl SchemeFamily for CtFp8 {
    fn name(&self) -> &'static str {
        "ct-fp8"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (scope, scales) = params.split_once(',')?;
        Some(Box::new(Scaled {
            name: format!("ct-fp8:{params}"),
            dtype: Dtype::F8E4M3,
            element: &E4M3,
            scope: rectangle(scope)?,
            scales: Real::parse(scales, &[Dtype::F16, Dtype::BF16])?,
            rounds: true,
        }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["row,bf16", "tensor,bf16", "b128x128,bf16", "row,f16"]
    }
}

/// Returns the scope of a scale, if that is a rectangle.
fn rectangle(scope: &str) -> Option<Scope> {
    Scope::parse(scope).filter(|s| !matches!(s, Scope::Group(_) | Scope::Act(_)))
}

/// A value is `weight * scale` in f32, rounded once. Products with scales of 16 bits or fewer are exact.
///
/// Encoding is transformers' `Fp8Quantize`, in f32: the scale is `1 / (448 / largest)`, rounded up to a power of
/// two for E8M0, and a weight is `value * (448 / largest)` to the nearest even code, where scales of fewer
/// than 32 bits are first rounded and their reciprocal multiplies. A block of zeros, or of values so small
/// that the reciprocal is infinite, has scale 1. Blocks may be partial, which transformers leaves unquantised.
///
/// Source: DeepSeek-V3 inference/kernel.py (`weight_dequant_kernel`); transformers 5.23.0,
/// integrations/finegrained_fp8.py (`Fp8Quantize`, `Fp8Dequantize`); for what is rounded compressed-tensors 0.20.0,
/// compressed_tensors/quantization/lifecycle/forward_helpers.py (`_dequantize`).
struct Scaled {
    name: String,
    dtype: Dtype,
    element: &'static Small,
    scope: Scope,
    scales: Real,
    /// Whether values are rounded to the dtype of the scales.
    rounds: bool,
}

impl Scaled {
    /// The value of `code` with `scale`.
    #[inline(always)]
    fn value(&self, code: u8, scale: f32) -> f32 {
        let value = self.element.decode(code) * scale;
        if self.rounds { self.scales.round(value) } else { value }
    }

    /// The scale to store for a block whose largest value is `largest`, and what its values are multiplied by.
    fn scale(&self, largest: f32) -> (f32, f32) {
        // torch divides a number by a tensor so.
        let up = (1.0 / largest) * self.element.largest();
        if !up.is_finite() {
            return (1.0, 1.0);
        }
        let down = 1.0 / up;
        match self.scales.0 {
            Dtype::F32 => (down, up),
            Dtype::F8E8M0 => {
                // torch rounds the logarithm to f32 before it goes up.
                let exponent = (f64::from(down.max(f32::MIN_POSITIVE)).log2() as f32).ceil();
                let power = exponent.exp2();
                (power, 1.0 / power)
            }
            _ => {
                let mut stored = [0; 2];
                self.scales.put(&mut stored, 0, down);
                let down = self.scales.get(&stored, 0);
                if down == 0.0 { (1.0, 1.0) } else { (down, 1.0 / down) }
            }
        }
    }
}

impl Codec for Scaled {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let scales = factor("scales", self.scales.bytes(), &self.scope.axes());
        matrix(&self.name, vec![plane("weight", 1, &[each(OUT), each(IN)]), scales])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let ([weight, scales], k) = (matrix.planes(), matrix.k);
        let (tall, wide) = self.scope.size();
        let across = k.div_ceil(wide);
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name);
        for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let blocks = weight[row * k..][..k].chunks(wide).zip(out.chunks_mut(wide));
            for (column, (codes, out)) in blocks.enumerate() {
                let scale = self.scales.get(scales, row / tall * across + column);
                for (code, out) in codes.iter().zip(out) {
                    *out = self.value(*code, scale);
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scales] = matrix.planes();
        self.scales.check("scales", "a scale", scales)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        (!self.rounds).then_some(self as &dyn Encoder)
    }

    fn merger(&self) -> Option<&dyn Merger> {
        (self.scope == Scope::Tensor).then_some(self as &dyn Merger)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let [rows, columns] = self.scope.cells([out, k]);
        let scales = match self.scope {
            Scope::Tensor => part(".weight_scale", self.scales.0, shape, &[]),
            Scope::Block(..) if !self.rounds => {
                part(".weight_scale_inv", self.scales.0, shape, &[rows, columns])
            }
            _ => part(".weight_scale", self.scales.0, shape, &[rows, columns]),
        };
        vec![part(".weight", self.dtype, shape, &[out, k]), scales]
    }
}

/// The largest scale is that of vLLM's `requantize_with_max_scale`. A code becomes the one nearest to `code * scale / largest`,
/// where vLLM uses float16 (`per_tensor_dequantize`): of values whose products are denormal there ours are nearer.
///
/// Source: vLLM 0.33.0, vllm/model_executor/layers/quantization/utils/w8a8_utils.py.
impl Merger for Scaled {
    fn by_row(&self) -> Arc<Scheme> {
        let name = self.name.replacen("tensor", "row", 1);
        Scaled { name, scope: Scope::Row, ..*self }.scheme()
    }

    fn merge(&self, rows: Matrix<'_>, planes: &mut [&mut [u8]]) -> Difference {
        let ([weight, scales], k) = (rows.planes(), rows.k);
        let [codes, scale] = planes else { panic!("`{}` has two planes", self.name) };
        assert!(weight.len() == rows.rows * k && codes.len() == weight.len(), "`{}`: codes", self.name);
        let of = |row: usize| self.scales.get(scales, row);
        let size = |row: &usize| of(*row).abs();
        let Some(top) = (0..rows.rows).reduce(|a, b| if size(&a) < size(&b) { b } else { a }) else {
            return Difference::default();
        };
        let (width, largest) = (self.scales.bytes() as usize, of(top));
        scale.copy_from_slice(&scales[top * width..][..width]);
        let mut lost = Difference::default();
        let mut row = 0;
        while row < rows.rows {
            // Rows that follow each other mostly come from one matrix.
            let own = of(row);
            let end = (row + 1..rows.rows).find(|next| of(*next).to_bits() != own.to_bits());
            let run = row * k..end.unwrap_or(rows.rows) * k;
            row = end.unwrap_or(rows.rows);
            let table: [u8; 256] = std::array::from_fn(|code| {
                let value = f64::from(self.element.decode(code as u8));
                let quotient = (value * f64::from(own) / f64::from(largest)) as f32;
                let stays = own.to_bits() == largest.to_bits() || !quotient.is_finite();
                if stays { code as u8 } else { self.element.encode(quotient) }
            });
            let mut counts = [0u64; 256];
            for (from, to) in weight[run.clone()].iter().zip(&mut codes[run]) {
                counts[usize::from(*from)] += 1;
                *to = table[usize::from(*from)];
            }
            for (code, count) in (0..=u8::MAX).zip(counts).filter(|(_, count)| *count > 0) {
                let (was, is) = (self.value(code, own), self.value(table[usize::from(code)], largest));
                lost = lost.and(Difference::repeated(count, was, is));
            }
        }
        lost
    }

    fn spread(&self, whole: Matrix<'_>, planes: &mut [&mut [u8]]) {
        let [weight, scale] = whole.planes();
        let [codes, scales] = planes else { panic!("`{}` has two planes", self.name) };
        codes.copy_from_slice(weight);
        scales.chunks_exact_mut(scale.len()).for_each(|row| row.copy_from_slice(scale));
    }
}

impl Encoder for Scaled {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, scales] = planes else { panic!("`{}` has two planes", self.name) };
        let (tall, wide) = self.scope.size();
        let band = tall.saturating_mul(k);
        let mut at = 0;
        for (values, codes) in values.chunks(band).zip(weight.chunks_mut(band)) {
            for column in (0..k).step_by(wide.min(k)) {
                let end = k.min(column.saturating_add(wide));
                let block = values.chunks_exact(k).flat_map(|row| &row[column..end]);
                let largest = block.fold(0f32, |most, x| most.max(x.abs()));
                let (down, up) = self.scale(largest);
                self.scales.put(scales, at, down);
                at += 1;
                for (values, codes) in values.chunks_exact(k).zip(codes.chunks_exact_mut(k)) {
                    for (x, code) in values[column..end].iter().zip(&mut codes[column..end]) {
                        let most = self.element.largest();
                        *code = self.element.encode((x * up).clamp(-most, most));
                    }
                }
            }
        }
    }
}

//! Small floats in groups along a row, with a scale of one byte: compressed-tensors' `nvfp4-pack-quantized`,
//! `mxfp4-pack-quantized` and `mxfp8-quantized`, and modelopt's NVFP4.
//!
//! | | codes | scale, for | of the matrix |
//! |---|---|---|---|
//! | `ct-nvfp4` | `weight_packed` u8 `[out, in / 2]` | `weight_scale` E4M3, 16 | `weight_global_scale` f32, a divisor |
//! | `ct-mxfp4` | `weight_packed` u8 `[out, in / 2]` | `weight_scale` E8M0, 32 | |
//! | `ct-mxfp8` | `weight` E4M3 `[out, in]` | `weight_scale` E8M0, 32 | |
//! | `modelopt-nvfp4:bf16` | `weight` u8 `[out, in / 2]` | `weight_scale` E4M3, 16 | `weight_scale_2` f32, a factor |
//!
//! Four-bit floats are E2M1, the first in the low nibble. The value is `q * (scale / divisor)` or
//! `q * (scale * factor)`, both steps in f32, cast to bfloat16, or for modelopt to the dtype of the model.
//! Without a divisor the reference multiplies in bfloat16: powers of two make the f32 product exact, so that
//! rounding it is the same. modelopt reads the code of minus zero as zero.
//!
//! Source: compressed-tensors 0.20.0, compressed_tensors/compressors/{nvfp4,mxfp4,mxfp8}/base.py,
//! quantization/lifecycle/forward_helpers.py `_dequantize`; nvidia-modelopt 0.47.0,
//! modelopt/torch/quantization/qtensor/nvfp4_tensor.py `dequantize`.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, PlaneSpec, Scheme, Shape};

use super::bits::code;
use super::mlx_float::E2M1;
use super::plane::{each, factor, matrix, out_in, packed, part, plane, shared};
use super::real::{REALS, Real};
use super::small_float::E4M3;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Matrix, SchemeFamily};

/// Groups of 16 four-bit floats, as compressed-tensors stores them.
pub(crate) static CT_NVFP4: Grouped<&str> = Grouped {
    name: "ct-nvfp4",
    bits: 4,
    group: 16,
    codes: ".weight_packed",
    scales: Real(Dtype::F8E4M3),
    whole: Some(Whole::Divides),
    result: Real(Dtype::BF16),
};
/// Groups of 32 four-bit floats, as compressed-tensors stores them.
pub(crate) static CT_MXFP4: Grouped<&str> = Grouped {
    name: "ct-mxfp4",
    bits: 4,
    group: 32,
    codes: ".weight_packed",
    scales: Real(Dtype::F8E8M0),
    whole: None,
    result: Real(Dtype::BF16),
};
/// Groups of 32 eight-bit floats, as compressed-tensors stores them.
pub(crate) static CT_MXFP8: Grouped<&str> = Grouped {
    name: "ct-mxfp8",
    bits: 8,
    group: 32,
    codes: ".weight",
    scales: Real(Dtype::F8E8M0),
    whole: None,
    result: Real(Dtype::BF16),
};

/// `modelopt-nvfp4:bf16`: the dtype of the result.
pub(crate) struct ModeloptNvfp4;

impl SchemeFamily for ModeloptNvfp4 {
    fn name(&self) -> &'static str {
        "modelopt-nvfp4"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        Some(Box::new(Grouped {
            name: format!("modelopt-nvfp4:{params}"),
            bits: 4,
            group: 16,
            codes: ".weight",
            scales: Real(Dtype::F8E4M3),
            whole: Some(Whole::Multiplies),
            result: Real::parse(params, REALS)?,
        }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["bf16", "f16", "f32"]
    }
}

/// How the matrix's own number is applied to its scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Divides,
    Multiplies,
}

impl Whole {
    /// The tensor that it is in, and the plane.
    fn suffix(self) -> &'static str {
        match self {
            Whole::Divides => ".weight_global_scale",
            Whole::Multiplies => ".weight_scale_2",
        }
    }

    fn role(self) -> &'static str {
        &self.suffix()[1..]
    }
}

/// One of the formats above.
pub(crate) struct Grouped<N> {
    name: N,
    /// Of a code: 4 or 8.
    bits: usize,
    group: usize,
    /// The tensor that codes are in, and the plane.
    codes: &'static str,
    scales: Real,
    whole: Option<Whole>,
    result: Real,
}

impl<N: AsRef<str> + Send + Sync> Codec for Grouped<N> {
    fn name(&self) -> &str {
        self.name.as_ref()
    }

    fn scheme(&self) -> Arc<Scheme> {
        let mut planes = vec![
            plane(&self.codes[1..], 1, &[each(OUT), packed(IN, 8 / self.bits as u64)]),
            factor("weight_scale", 1, &[each(OUT), shared(IN, self.group as u64)]),
        ];
        // A fused tensor has one such number: exporters give the same to the layers that runtimes fuse.
        let one = |whole: Whole| PlaneSpec { must_agree: true, ..factor(whole.role(), 4, &[]) };
        planes.extend(self.whole.map(one));
        matrix(self.name(), planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let (codes, scales, k) = (matrix.planes[0], matrix.planes[1], matrix.k);
        assert_eq!(matrix.planes.len(), 2 + usize::from(self.whole.is_some()), "planes of `{}`", self.name());
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name());
        let mut four = E2M1;
        if self.whole == Some(Whole::Multiplies) {
            four[8] = 0.0;
        }
        let whole = self.whole.map(|whole| (whole, Real::F32.get(matrix.planes[2], 0)));
        let (bytes, groups) = (k * self.bits / 8, k.div_ceil(self.group));
        for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let codes = &codes[row * bytes..][..bytes];
            for (g, out) in out.chunks_mut(self.group).enumerate() {
                let scale = self.scales.get(scales, row * groups + g);
                let scale = match whole {
                    None => scale,
                    Some((Whole::Divides, divisor)) => scale / divisor,
                    Some((Whole::Multiplies, factor)) => scale * factor,
                };
                for (i, out) in (g * self.group..).zip(out) {
                    let q = match self.bits {
                        4 => four[usize::from(code(codes, 4, i))],
                        _ => E4M3.decode(codes[i]),
                    };
                    *out = self.result.round(q * scale);
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        self.scales.check("weight_scale", "a scale", matrix.planes[1])?;
        let (Some(whole), Some(plane)) = (self.whole, matrix.planes.get(2)) else { return Ok(()) };
        Real::F32.check(whole.role(), "a scale", plane)?;
        if whole == Whole::Divides && Real::F32.get(plane, 0) == 0.0 {
            let (wants, found) = ("a number to divide by".to_owned(), "0".to_owned());
            return Err(BadData { role: whole.role(), what: "a scale", at: 0, wants, found });
        }
        Ok(())
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let (dtype, columns) = if self.bits == 4 { (Dtype::U8, k / 2) } else { (Dtype::F8E4M3, k) };
        let mut parts = vec![
            part(self.codes, dtype, shape, &[out, columns]),
            part(".weight_scale", self.scales.0, shape, &[out, k.div_ceil(self.group as u64)]),
        ];
        parts.extend(self.whole.map(|whole| part(whole.suffix(), Dtype::F32, shape, &[])));
        parts
    }
}

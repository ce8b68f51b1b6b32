//! CTranslate2: integers that are divided by a scale.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::plane::{beneath, each, factor, matrix, out_in, part, plane};
use super::real::Real;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Matrix, SchemeFamily};

/// `ctranslate2-int8:row` has a scale for each row, `ctranslate2-int8:matrix` one for each matrix.
pub(crate) struct CTranslate2Int8;
/// `ctranslate2-int16:matrix` has one scale for each matrix.
pub(crate) struct CTranslate2Int16;

impl SchemeFamily for CTranslate2Int8 {
    fn name(&self) -> &'static str {
        "ctranslate2-int8"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let by_row = match params {
            "row" => true,
            "matrix" => false,
            _ => return None,
        };
        Some(Box::new(CTranslate2 { name: format!("ctranslate2-int8:{params}"), bytes: 1, by_row }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["row", "matrix"]
    }
}

impl SchemeFamily for CTranslate2Int16 {
    fn name(&self) -> &'static str {
        "ctranslate2-int16"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let name = format!("ctranslate2-int16:{params}");
        (params == "matrix")
            .then(|| Box::new(CTranslate2 { name, bytes: 2, by_row: false }) as Box<dyn Codec>)
    }

    fn usual(&self) -> &'static [&'static str] {
        &["matrix"]
    }
}

/// `weight` `[out, in]` in i8 or i16, `weight_scale` in f32: the value is `q * (1 / scale)`, in f32.
///
/// Source: CTranslate2@2c5da05c, src/ops/dequantize_cpu.cc (`dequantize_kernel`).
struct CTranslate2 {
    name: String,
    /// Bytes of a code.
    bytes: usize,
    /// Each row has a scale.
    by_row: bool,
}

impl Codec for CTranslate2 {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let weight = plane("weight", self.bytes as u64, &[each(OUT), each(IN)]);
        let rows = [each(OUT)];
        matrix(&self.name, vec![weight, factor("weight_scale", 4, if self.by_row { &rows } else { &[] })])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [weight, scales] = matrix.planes();
        let k = matrix.k.max(1);
        assert_eq!(out.len(), rows.len() * matrix.k, "values of `{}`", self.name);
        for (o, out) in rows.zip(out.chunks_exact_mut(k)) {
            let scale = Real::F32.get(scales, if self.by_row { o } else { 0 });
            // Rows that pad a matrix have neither codes nor a scale.
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let codes = &weight[o * k * self.bytes..];
            if self.bytes == 1 {
                for (out, q) in out.iter_mut().zip(codes) {
                    *out = f32::from(*q as i8) * inverse;
                }
            } else {
                for (out, q) in out.iter_mut().zip(codes.as_chunks::<2>().0) {
                    *out = f32::from(i16::from_le_bytes(*q)) * inverse;
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [weight, scales] = matrix.planes();
        let (role, what) = ("weight_scale", "a scale");
        Real::F32.check(role, what, scales)?;
        let of_each = weight.len() / (scales.len() / 4).max(1);
        // Codes that are all 0 need none.
        let has_codes = |i: usize| weight[i * of_each..(i + 1) * of_each].iter().any(|code| *code != 0);
        match (0..scales.len() / 4).find(|i| Real::F32.get(scales, *i) == 0.0 && has_codes(*i)) {
            None => Ok(()),
            Some(at) => {
                let (wants, found) = ("a number to divide by".to_owned(), "0".to_owned());
                Err(BadData { role, what, at, wants, found })
            }
        }
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let dtype = if self.bytes == 1 { Dtype::I8 } else { Dtype::I16 };
        let [out, k] = out_in(shape);
        let scale = if self.by_row {
            part("_scale", Dtype::F32, shape, &[out])
        } else {
            PlaneTensor { suffix: "_scale", dtype: Dtype::F32, shape: beneath(shape, &[]) }
        };
        vec![part("", dtype, shape, &[out, k]), scale]
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }
}

/// Source: python/ctranslate2/specs/model_spec.py (`_quantize`) of CTranslate2 4.8.5. A matrix of zeros in 16 bits gets a scale of 1 here,
/// and an infinite one there.
impl Encoder for CTranslate2 {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, scales] = planes else { panic!("`{}` has two planes", self.name) };
        let of_each = if self.by_row { k } else { values.len() }.max(1);
        let groups = values.chunks(of_each).zip(weight.chunks_mut(of_each * self.bytes));
        for (at, (values, codes)) in groups.enumerate() {
            let largest = values.iter().fold(0f32, |most, x| most.max(x.abs()));
            let scale = match (self.bytes, largest) {
                (_, 0.0) => 1.0,
                // The scale stays finite.
                (1, largest) => 127.0 / largest.max(127.0 / f32::MAX),
                (_, largest) => 1024.0 / largest.max(1024.0 / f32::MAX),
            };
            Real::F32.put(scales, at, scale);
            if self.bytes == 1 {
                for (x, code) in values.iter().zip(codes) {
                    *code = (x * scale).round_ties_even() as i8 as u8;
                }
            } else {
                for (x, code) in values.iter().zip(codes.as_chunks_mut::<2>().0) {
                    *code = ((x * scale).round_ties_even() as i16).to_le_bytes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_of_zero_is_for_codes_of_zero_alone() {
        let codec = crate::codec("ctranslate2-int8:row").unwrap();
        let scales: Vec<u8> = [2.0f32, 0.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
        // A row, and one that pads.
        let padded: [&[u8]; 2] = [&[4, 0xFE, 0, 0], &scales];
        let matrix = Matrix { planes: &padded, rows: 2, k: 2 };
        assert!(codec.check(matrix).is_ok());
        let mut values = [7.0; 4];
        codec.decode(matrix, 0..2, &mut values);
        assert_eq!(values.map(f32::to_bits), [2.0f32, -1.0, 0.0, 0.0].map(f32::to_bits));
        let broken: [&[u8]; 2] = [&[4, 0xFE, 0, 1], &scales];
        let error = codec.check(Matrix { planes: &broken, ..matrix }).unwrap_err();
        let wanted = "plane `weight_scale`: a scale at cell 1, wanted a number to divide by, found 0";
        assert_eq!(error.to_string(), wanted);
    }
}

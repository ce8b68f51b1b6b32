//! BitNet as transformers packs it: four rows in a byte, one scale for all.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::plane::{factor, matrix, number, out_in, packed, part, plane};
use super::real::{REALS, Real};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Matrix, SchemeFamily};

/// `bitnet:2560x6912,bf16,mul`: outputs and inputs, the dtype of the scale, and whether it multiplies (`mul`)
/// or divides (`div`).
///
/// The size is a parameter, since it says which rows lie in a byte together.
pub(crate) struct BitNet;

impl SchemeFamily for BitNet {
    fn name(&self) -> &'static str {
        "bitnet"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (size, rest) = params.split_once(',')?;
        let (scale, sense) = rest.split_once(',')?;
        let (out, k) = size.split_once('x')?;
        let (out, k) = (number(out)?, number(k)?);
        // As many as one plane may have, and whole bytes.
        let bytes = out.checked_mul(k).filter(|n| *n > 0 && out.is_multiple_of(4) && *n < 1 << 48)? / 4;
        let divides = match sense {
            "mul" => false,
            "div" => true,
            _ => return None,
        };
        let scale = Real::parse(scale, REALS)?;
        Some(Box::new(Ternary { name: format!("bitnet:{params}"), out, k, bytes, scale, divides }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["256x512,bf16,mul", "256x512,bf16,div"]
    }
}

/// Values `q - 1` times or over one scale, in f32 and rounded once: code `i` of byte `[r, c]`, lowest bits
/// first, is row `i * out / 4 + r` of column `c`.
///
/// Rows that are far apart share a byte, so the whole matrix is one cell: it can be moved, stacked and
/// decoded, and nothing of it alone. The reference leaves the scale to the layer's output: `BitLinear`
/// divides by it, `AutoBitLinear` (the published models) multiplies.
///
/// Source: transformers 5.23.0, integrations/bitnet.py (`unpack_weights`, `BitLinear.post_quant_process`,
/// `AutoBitLinear.forward`).
struct Ternary {
    name: String,
    out: u64,
    k: u64,
    bytes: u64,
    scale: Real,
    divides: bool,
}

impl Codec for Ternary {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let weight = plane("weight", self.bytes, &[packed(OUT, self.out), packed(IN, self.k)]);
        matrix(&self.name, vec![weight, factor("scale", self.scale.0.bytes(), &[])])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let ([weight, scale], k) = (matrix.planes(), matrix.k);
        assert_eq!((matrix.rows as u64, k as u64), (self.out, self.k), "`{}`: a whole matrix", self.name);
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name);
        let (scale, packed) = (self.scale.get(scale, 0), matrix.rows / 4);
        let values = [-1f32, 0.0, 1.0, 2.0].map(|q| if self.divides { q / scale } else { q * scale });
        for (row, out) in rows.zip(out.chunks_exact_mut(k)) {
            let (bytes, shift) = (&weight[row % packed * k..][..k], 2 * (row / packed));
            for (byte, out) in bytes.iter().zip(out) {
                *out = values[usize::from(byte >> shift & 3)];
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scale] = matrix.planes();
        self.scale.check("scale", "a scale", scale)?;
        if self.divides && self.scale.get(scale, 0) == 0.0 {
            let (wants, found) = ("a number to divide by".to_owned(), "0".to_owned());
            return Err(BadData { role: "scale", what: "a scale", at: 0, wants, found });
        }
        Ok(())
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        vec![
            part(".weight", Dtype::U8, shape, &[out / 4, k]),
            part(".weight_scale", self.scale.0, shape, &[]),
        ]
    }
}

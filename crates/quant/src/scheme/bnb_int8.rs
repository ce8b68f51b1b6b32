//! bitsandbytes with eight bits (LLM.int8()): signed bytes and the largest magnitude of each row.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::plane::{each, factor, matrix, out_in, part, plane};
use super::real::Real;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Matrix};
use crate::packing::{Packing, Plain};

/// `weight` i8 `[out, in]`, `SCB` f32 `[out]`: the value is `q * SCB * (1 / 127)`, in f32 from left to right.
///
/// Encoding: `SCB` is the row's largest magnitude, and codes are values times `127 / SCB`, halves to even.
///
/// Source: bitsandbytes 0.50.2, bitsandbytes/_ops.py `int8_vectorwise_dequant`, and
/// bitsandbytes/backends/default/ops.py `int8_vectorwise_quant`.
pub(crate) struct BnbInt8;

/// The reference's 7.874015718698502e-3, which torch takes as an f32.
const INVERSE: f32 = 7.874_015_718_698_502e-3_f64 as f32;

impl Codec for BnbInt8 {
    fn name(&self) -> &'static str {
        "bnb-int8"
    }

    fn scheme(&self) -> Arc<Scheme> {
        let weight = plane("weight", 1, &[each(OUT), each(IN)]);
        matrix(self.name(), vec![weight, factor("SCB", 4, &[each(OUT)])])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [weight, scb] = matrix.planes();
        let k = matrix.k;
        assert_eq!(out.len(), rows.len() * k, "values of `bnb-int8`");
        for (o, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let scale = Real::F32.get(scb, o);
            for (out, q) in out.iter_mut().zip(&weight[o * k..]) {
                *out = f32::from(*q as i8) * scale * INVERSE;
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scb] = matrix.planes();
        Real::F32.check("SCB", "a scale", scb)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }

    fn packing(&self) -> Option<Packing> {
        Some(Packing::rows(Plain::symmetric(8, 128), INVERSE))
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        vec![part(".weight", Dtype::I8, shape, &[out, k]), part(".SCB", Dtype::F32, shape, &[out])]
    }
}

impl Encoder for BnbInt8 {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, scb] = planes else { panic!("`bnb-int8` has two planes") };
        assert_eq!(
            (weight.len(), scb.len()),
            (values.len(), values.len() / k.max(1) * 4),
            "bytes of `bnb-int8`"
        );
        let rows = values.chunks_exact(k.max(1)).zip(weight.chunks_exact_mut(k.max(1)));
        for ((values, codes), scb) in rows.zip(scb.as_chunks_mut::<4>().0) {
            let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            *scb = most.to_le_bytes();
            // Of zeros, or too small for `127 / SCB` to be a number, where the reference has zeros, too.
            let scale = Some(127.0 / most).filter(|s| s.is_finite()).unwrap_or(0.0);
            for (x, code) in values.iter().zip(codes) {
                *code = (x * scale).round_ties_even() as i8 as u8;
            }
        }
    }
}

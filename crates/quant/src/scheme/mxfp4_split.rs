//! MXFP4 as gpt-oss stores its experts: blocks and scales apart.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::bits::code;
use super::mlx_float::E2M1;
use super::plane::{each, factor, matrix, out_in, packed, part, plane, shared};
use super::real::Real;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Matrix};
use crate::packing::Packing;

/// Values `2^(scale - 127) * e2m1` in groups of 32: 16 bytes with two codes each, the low nibble first
/// (`_blocks`, `[.., out, in / 32, 16]`), and a power of two (`_scales`, E8M0, `[.., out, in / 32]`).
///
/// A product is exact, in f32 and in the bfloat16 of the reference, but for those over 2^127 and for the
/// scale 255, which is no number and refused. The reference goes on to transpose each expert; here rows are
/// outputs.
///
/// Source: transformers 5.23.0, integrations/mxfp4.py (`convert_moe_packed_tensors`).
pub(crate) struct Mxfp4Split;

const NAME: &str = "mxfp4-split";
const GROUP: usize = 32;
const BYTES: usize = 16;
const SCALES: Real = Real(Dtype::F8E8M0);

impl Codec for Mxfp4Split {
    fn name(&self) -> &str {
        NAME
    }

    fn scheme(&self) -> Arc<Scheme> {
        let blocks = plane("blocks", BYTES as u64, &[each(OUT), packed(IN, GROUP as u64)]);
        matrix(NAME, vec![blocks, factor("scales", 1, &[each(OUT), shared(IN, GROUP as u64)])])
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [blocks, scales] = matrix.planes();
        assert_eq!(out.len(), rows.len() * matrix.k, "`{NAME}`: values of rows {rows:?}");
        let groups = matrix.k / GROUP;
        let planes = blocks.chunks_exact(BYTES).zip(scales).skip(rows.start * groups);
        for ((block, scale), out) in planes.zip(out.chunks_exact_mut(GROUP)) {
            let scale = SCALES.get(&[*scale], 0);
            for (i, out) in out.iter_mut().enumerate() {
                *out = scale * E2M1[usize::from(code(block, 4, i))];
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, scales] = matrix.planes();
        SCALES.check("scales", "a scale", scales)
    }

    fn packing(&self) -> Option<Packing> {
        Some(Packing::powers())
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let groups = k / GROUP as u64;
        vec![
            part("_blocks", Dtype::U8, shape, &[out, groups, BYTES as u64]),
            part("_scales", Dtype::U8, shape, &[out, groups]),
        ]
    }
}

//! AWQ as AutoAWQ's gemm kernels read it: four-bit codes in words along `out`, stored transposed.
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `qweight` | `[in, out / 8]` i32 | nibble `i` of a word is output `[0, 2, 4, 6, 1, 3, 5, 7][i]` of its eight |
//! | `qzeros` | `[groups, out / 8]` i32 | zero points, in the same order |
//! | `scales` | `[groups, out]` | f16 or bf16 |
//!
//! The value is `(code - zero) * scale`. The reference subtracts in int8 and multiplies in the dtype of the scales,
//! rounding once: so does an f32 product that is rounded to that dtype.
//!
//! Encoding is our own, by the least weighted squared error, with any zero point.
//!
//! Source: AutoAWQ 0.2.9, awq/utils/packing_utils.py `dequantize_gemm`, awq/modules/linear/gemm.py
//! `WQLinear_GEMM`.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::bits::Run;
use super::plane::{each, matrix, out_in, packed, part, plane};
use super::real::Real;
use super::scope::Scope;
use crate::assemble::{AssembleError, Assembler, Codes};
use crate::codec::{BadData, Codec, Encoder, Levels, Matrix, PlaneTensor, Recoder, SchemeFamily};
use crate::isa::Isa;
use crate::search::{Grid, Room, shifted};

/// `awq:g128,f16`: `g128` for groups of 128 inputs, `row` for one group; the dtype of the scales.
pub(crate) struct AwqFamily;

/// One size of AWQ.
struct Awq {
    name: String,
    scope: Scope,
    scales: Real,
}

/// Outputs of a word.
const PER: usize = 8;
/// The nibble that holds an output. AutoAWQ: `AWQ_REVERSE_ORDER`.
const NIBBLE: [usize; PER] = [0, 4, 1, 5, 2, 6, 3, 7];
/// The output that a nibble holds. AutoAWQ: `AWQ_ORDER`.
const OUTPUT: [usize; PER] = [0, 2, 4, 6, 1, 3, 5, 7];
const RUN: Run = Run::of(4);

impl SchemeFamily for AwqFamily {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (scope, scales) = params.split_once(',')?;
        let scope = Scope::parse(scope).filter(|s| matches!(s, Scope::Group(_) | Scope::Row))?;
        let scales = Real::parse(scales, &[Dtype::F16, Dtype::BF16])?;
        Some(Box::new(Awq { name: format!("awq:{params}"), scope, scales }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["g128,f16", "g64,f16", "g32,f16", "row,f16", "g128,bf16"]
    }
}

impl Codec for Awq {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let words = packed(OUT, PER as u64);
        matrix(
            &self.name,
            vec![
                plane("qweight", 4, &[each(IN), words]),
                plane("qzeros", 4, &self.scope.transposed(words)),
                plane("scales", self.scales.bytes(), &self.scope.transposed(each(OUT))),
            ],
        )
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        /// Rows at a time: their words are half a cache line.
        const TILE: usize = 64;
        let [qweight, qzeros, scales] = matrix.planes();
        let (n, k) = (matrix.rows, matrix.k);
        assert!(n.is_multiple_of(PER) && rows.end <= n, "`{}`: rows {rows:?} of {n}", self.name);
        assert_eq!(out.len(), rows.len() * k, "values of `{}`", self.name);
        let (_, group) = self.scope.size();
        let code =
            |plane, row: usize, o: usize| RUN.get(plane, row * (n / PER) + o / PER, 1).code(NIBBLE[o % PER]);
        for (start, out) in rows.clone().step_by(TILE).zip(out.chunks_mut(TILE * k.max(1))) {
            let mut factors = [(0, 0.0); TILE];
            for i in 0..k {
                if i % group == 0 {
                    let g = i / group;
                    for (o, factor) in (start..rows.end).zip(&mut factors) {
                        *factor = (code(qzeros, g, o), self.scales.get(scales, g * n + o));
                    }
                }
                for ((o, (zero, scale)), out) in (start..).zip(factors).zip(out.chunks_exact_mut(k)) {
                    out[i] = self.scales.round((code(qweight, i, o) - zero) as f32 * scale);
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        let [_, _, scales] = matrix.planes();
        self.scales.check("scales", "a scale", scales)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }

    fn recoder(&self) -> Option<&dyn Recoder> {
        Some(self)
    }

    fn assembler(&self) -> Option<&dyn Assembler> {
        Some(self)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, inputs] = out_in(shape);
        let (words, groups) = (out / PER as u64, self.scope.groups(inputs));
        vec![
            part(".qweight", Dtype::I32, shape, &[inputs, words]),
            part(".qzeros", Dtype::I32, shape, &[groups, words]),
            part(".scales", self.scales.0, shape, &[groups, out]),
        ]
    }
}

/// Writes `tile`, eight rows of `columns`, as column `word` of `plane`, `[columns, words]`.
fn pack(tile: &[u8], columns: usize, plane: &mut [u8], word: usize, words: usize) {
    for i in 0..columns {
        RUN.put(OUTPUT.map(|o| tile[o * columns + i]), plane, i * words + word, 1);
    }
}

impl Encoder for Awq {
    fn encode(&self, values: &[f32], k: usize, importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [qweight, qzeros, scales] = planes else { panic!("`{}` has three planes", self.name) };
        let n = values.len() / k;
        assert!(n.is_multiple_of(PER), "`{}` of [{n}, {k}]", self.name);
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        let grid = Grid { top: 15, zeros: (0, 15), scales: self.scales };
        let group = self.scope.size().1.min(k);
        let groups = k.div_ceil(group);
        let (mut codes, mut zeros) = (vec![0; PER * k], vec![0; PER * groups]);
        let mut room = Room::default();
        for (word, values) in values.chunks_exact(PER * k).enumerate() {
            for (e, (values, codes)) in values.chunks_exact(k).zip(codes.chunks_exact_mut(k)).enumerate() {
                for (g, (values, codes)) in values.chunks(group).zip(codes.chunks_mut(group)).enumerate() {
                    let importance = importance.map(|all| &all[g * group..][..values.len()]);
                    let found = shifted(isa, grid, values, importance, &mut room, codes);
                    self.scales.put(scales, g * n + word * PER + e, found.scale);
                    zeros[e * groups + g] = found.zero;
                }
            }
            pack(&codes, k, qweight, word, n / PER);
            pack(&zeros, groups, qzeros, word, n / PER);
        }
    }
}

impl Recoder for Awq {
    fn levels(&self) -> Levels {
        Levels::Even(16)
    }

    fn columns(&self, k: usize) -> usize {
        self.scope.size().1.min(k)
    }

    fn put(&self, codes: &[u8], k: usize, planes: &mut [&mut [u8]]) {
        let [qweight, ..] = planes else { panic!("`{}` has three planes", self.name) };
        let words = codes.len() / k / PER;
        for (word, codes) in codes.chunks_exact(PER * k).enumerate() {
            pack(codes, k, qweight, word, words);
        }
    }
}

impl Assembler for Awq {
    fn assemble(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, AssembleError> {
        let (n, k) = (codes.rows, codes.k);
        let groups = self.scope.groups(k as u64) as usize;
        let mut planes = codes.planes(&self.scheme(), 4, groups)?;
        let [qweight, qzeros, scales] = &mut planes[..] else { unreachable!("three planes") };
        for word in 0..n / PER {
            pack(&codes.codes[word * PER * k..], k, qweight, word, n / PER);
            pack(&codes.zeros[word * PER * groups..], groups, qzeros, word, n / PER);
        }
        for o in 0..n {
            (0..groups).for_each(|g| self.scales.put(scales, g * n + o, codes.scales[o * groups + g]));
        }
        self.scales.check("scales", "a scale", scales)?;
        Ok(planes)
    }
}

//! GPTQ: codes in words along `in`, zero points in words along `out`, stored transposed.
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `qweight` | `[in · bits / 32, out]` i32 | 32 / bits codes of one output in a word; 32 of 3 bits in three words |
//! | `qzeros` | `[groups, out · bits / 32]` i32 | zero points in the same way, along `out` |
//! | `scales` | `[groups, out]` | f16, bf16 or f32 |
//! | `g_idx` | `[in]` i32 | the group of each input |
//!
//! The value is `scale * (code - zero)`. The reference subtracts integers and multiplies in the dtype of the
//! scales. `code - zero` is exact in each, and torch rounds the product once, so an f32 product rounded to that
//! dtype is equal bit for bit; one that is too large for it is infinite, there as here.
//!
//! Version 1 stores `zero - 1` modulo `2^bits`, version 2 `zero` (`checkpoint_format`: `gptq`, `gptq_v2`). A
//! stored field of all ones is therefore the zero point 0. Readers differ there: GPTQModel's
//! `_shift_gptq_qzeros`, whom we follow, AutoGPTQ's qlinear_cuda_old.py and exllama's kernels wrap, AutoGPTQ's
//! qlinear_cuda.py goes on to `2^bits`. Its writer never stores that field.
//!
//! Source: GPTQModel@f4c327a1, gptqmodel/nn_modules/qlinear/__init__.py `dequantize_weight`,
//! gptqmodel/utils/model_dequant.py `convert_gptq_file`, `_shift_gptq_qzeros`; the same arithmetic in
//! AutoGPTQ@9f7d3707, auto_gptq/nn_modules/qlinear/qlinear_cuda.py.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape};

use super::bits::Run;
use super::plane::{each, factor, matrix, number, out_in, packed, part, plane};
use super::real::{REALS, Real};
use super::scope::{Scope, check_groups};
use crate::assemble::{AssembleError, Assembler, Codes};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Matrix, SchemeFamily};

/// `gptq:b4,g128,f16` (version 1) and `gptq-v2:…`: bits 2, 3, 4 or 8; `g128` for groups of 128 consecutive inputs,
/// `row` for one group, or `act32` for 32 groups whose members `g_idx` names; the dtype of the scales.
pub(crate) struct GptqFamily(pub(crate) Version);

/// Bits of a code.
pub const GPTQ_BITS: &[u64] = &[2, 3, 4, 8];

/// The contents of `qzeros`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Zero points less one.
    V1,
    /// Zero points.
    V2,
}

/// One size of GPTQ.
struct Gptq {
    name: String,
    version: Version,
    run: Run,
    scope: Scope,
    scales: Real,
}

impl Version {
    /// The prefix of a scheme's name.
    pub fn family(self) -> &'static str {
        match self {
            Version::V1 => "gptq",
            Version::V2 => "gptq-v2",
        }
    }

    /// The number added to a stored zero point.
    fn plus(self) -> i32 {
        i32::from(self == Version::V1)
    }
}

impl SchemeFamily for GptqFamily {
    fn name(&self) -> &'static str {
        self.0.family()
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let [bits, scope, scales] = *params.split(',').collect::<Vec<_>>() else { return None };
        let bits = number(bits.strip_prefix('b')?).filter(|b| GPTQ_BITS.contains(b))?;
        let scope = Scope::parse(scope).filter(|s| !matches!(s, Scope::Tensor | Scope::Block(..)))?;
        Some(Box::new(Gptq {
            name: format!("{}:{params}", self.0.family()),
            version: self.0,
            run: Run::of(bits as usize),
            scope,
            scales: Real::parse(scales, REALS)?,
        }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &[
            "b4,g128,f16",
            "b4,g64,f16",
            "b4,g32,f16",
            "b4,row,f16",
            "b4,act32,f16",
            "b4,g128,bf16",
            "b8,g128,f16",
            "b8,row,f16",
            "b3,g128,f16",
            "b2,g64,f16",
        ]
    }
}

impl Codec for Gptq {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let Run { per, words, .. } = self.run;
        let (per, word) = (per as u64, 4 * words as u64);
        // The words of a run lie a row of words apart.
        let mut codes = vec![packed(IN, per), PlaneAxis::Table(words as u64), each(OUT)];
        if words == 1 {
            codes.remove(1);
        }
        let mut planes = vec![
            plane("qweight", 4, &codes),
            plane("qzeros", word, &self.scope.transposed(packed(OUT, per))),
            plane("scales", self.scales.bytes(), &self.scope.transposed(each(OUT))),
        ];
        if self.scope.indexed() {
            // It names a group and is no value: padded outputs stay zero because of their own scales.
            planes.push(PlaneSpec { must_agree: true, ..factor("g_idx", 4, &[each(IN)]) });
        }
        matrix(&self.name, planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        /// Rows at a time: their words are a cache line.
        const TILE: usize = 16;
        let (n, k) = (matrix.rows, matrix.k);
        let (qweight, qzeros, scales, g_idx) = match *matrix.planes {
            [qweight, qzeros, scales] if !self.scope.indexed() => (qweight, qzeros, scales, None),
            [qweight, qzeros, scales, g_idx] if self.scope.indexed() => {
                (qweight, qzeros, scales, Some(g_idx))
            }
            _ => panic!("`{}`: found {} planes", self.name, matrix.planes.len()),
        };
        let Run { bits, per, words } = self.run;
        assert!(k.is_multiple_of(per) && n.is_multiple_of(per), "`{}` of [{n}, {k}]", self.name);
        assert!(rows.end <= n && out.len() == rows.len() * k, "`{}`: {} values", self.name, out.len());
        let factor = |g: usize, o: usize| {
            let zero = self.run.get(qzeros, (g * (n / per) + o / per) * words, 1).code(o % per);
            ((zero + self.version.plus()) & ((1 << bits) - 1), self.scales.get(scales, g * n + o))
        };
        for (start, out) in rows.clone().step_by(TILE).zip(out.chunks_mut(TILE * k.max(1))) {
            for run in 0..k / per {
                for (o, out) in (start..rows.end).zip(out.chunks_exact_mut(k.max(1))) {
                    let codes = self.run.get(qweight, run * words * n + o, n);
                    let (mut known, mut zero, mut scale) = (usize::MAX, 0, 0.0);
                    for (e, out) in out[run * per..][..per].iter_mut().enumerate() {
                        let g = self.scope.group(run * per + e, g_idx);
                        if g != known {
                            (known, (zero, scale)) = (g, factor(g, o));
                        }
                        *out = self.scales.round(scale * (codes.code(e) - zero) as f32);
                    }
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        self.scales.check("scales", "a scale", matrix.planes[2])?;
        let (Scope::Act(groups), Some(g_idx)) = (self.scope, matrix.planes.get(3)) else { return Ok(()) };
        check_groups("g_idx", g_idx, matrix.k, groups)
    }

    fn assembler(&self) -> Option<&dyn Assembler> {
        Some(self)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, inputs] = out_in(shape);
        let groups = self.scope.groups(inputs);
        // No product of a shape that fits the scheme overflows.
        let words = |n: u64| n / self.run.per as u64 * self.run.words as u64;
        let mut parts = vec![
            part(".qweight", Dtype::I32, shape, &[words(inputs), out]),
            part(".qzeros", Dtype::I32, shape, &[groups, words(out)]),
            part(".scales", self.scales.0, shape, &[groups, out]),
        ];
        if self.scope.indexed() {
            parts.push(part(".g_idx", Dtype::I32, shape, &[inputs]));
        }
        parts
    }
}

impl Assembler for Gptq {
    fn assemble(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, AssembleError> {
        let (n, k) = (codes.rows, codes.k);
        let Run { bits, per, words } = self.run;
        let groups = self.scope.groups(k as u64) as usize;
        let mut planes = codes.planes(&self.scheme(), bits, groups)?;
        let [qweight, qzeros, scales, rest @ ..] = &mut planes[..] else {
            unreachable!("three planes or four")
        };
        for o in 0..n {
            for run in 0..k / per {
                let codes = codes.codes[o * k + run * per..].iter().copied();
                self.run.put(codes, qweight, run * words * n + o, n);
            }
        }
        let mask = (1 << bits) - 1;
        for g in 0..groups {
            for run in 0..n / per {
                let zero = |o| ((i32::from(codes.zeros[o * groups + g]) - self.version.plus()) & mask) as u8;
                let zeros = (run * per..(run + 1) * per).map(zero);
                self.run.put(zeros, qzeros, (g * (n / per) + run) * words, 1);
            }
            for o in 0..n {
                self.scales.put(scales, g * n + o, codes.scales[o * groups + g]);
            }
        }
        if let ([plane], Some(g_idx)) = (rest, codes.g_idx) {
            for (cell, g) in plane.as_chunks_mut::<4>().0.iter_mut().zip(g_idx) {
                *cell = g.to_le_bytes();
            }
        }
        let borrowed: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        self.check(Matrix { planes: &borrowed, rows: n, k })?;
        Ok(planes)
    }
}

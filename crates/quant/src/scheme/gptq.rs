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
//! Encoding is our own, by the least weighted squared error. Version 1 is symmetric: every zero point is `2^(bits - 1)`, which
//! all readers know, and which vLLM supposes without reading it. Version 2 has the zero points that fit best. Scales may be
//! negative, so that the largest value of a group can stand at the end that has one code more.
//!
//! Source: GPTQModel@f4c327a1, gptqmodel/nn_modules/qlinear/__init__.py `dequantize_weight`,
//! gptqmodel/utils/model_dequant.py `convert_gptq_file`, `_shift_gptq_qzeros`; the same arithmetic in
//! AutoGPTQ@9f7d3707, auto_gptq/nn_modules/qlinear/qlinear_cuda.py.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape, lcm};

use super::bits::Run;
use super::plane::{each, factor, matrix, number, out_in, packed, part, plane};
use super::real::{REALS, Real};
use super::scope::{Scope, check_groups};
use crate::assemble::{AssembleError, Assembler, Codes};
use crate::codec::{BadData, Codec, Encoder, Fact, Levels, Matrix, PlaneTensor, Recoder, SchemeFamily};
use crate::isa::Isa;
use crate::search::{Grid, Room, shifted};

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

impl Gptq {
    /// The codes and zero points that the encoder may choose.
    fn grid(&self) -> Grid {
        let top = ((1u16 << self.run.bits) - 1) as u8;
        let zeros = match self.version {
            Version::V1 => (top / 2 + 1, top / 2 + 1),
            Version::V2 => (0, top),
        };
        Grid { top, zeros, scales: self.scales }
    }

    /// Puts the codes of row `o` of `n` into `qweight`.
    fn put_row(&self, codes: &[u8], n: usize, o: usize, qweight: &mut [u8]) {
        let Run { per, words, .. } = self.run;
        for (run, codes) in codes.chunks_exact(per).enumerate() {
            self.run.put(codes.iter().copied(), qweight, run * words * n + o, n);
        }
    }

    /// Puts zero points, `[groups, n]`, into `qzeros`.
    fn put_zeros(&self, zeros: &[u8], qzeros: &mut [u8]) {
        let Run { bits, per, words } = self.run;
        let mask = (1 << bits) - 1;
        for (run, zeros) in zeros.chunks_exact(per).enumerate() {
            let stored = zeros.iter().map(|zero| ((i32::from(*zero) - self.version.plus()) & mask) as u8);
            self.run.put(stored, qzeros, run * words, 1);
        }
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

    /// An order of one's own is for a quantiser that knows the inputs.
    fn encoder(&self) -> Option<&dyn Encoder> {
        (!self.scope.indexed()).then_some(self as &dyn Encoder)
    }

    fn recoder(&self) -> Option<&dyn Recoder> {
        (!self.scope.indexed()).then_some(self as &dyn Recoder)
    }

    fn assembler(&self) -> Option<&dyn Assembler> {
        Some(self)
    }

    /// GPTQModel's layers have `g_idx` in their state, in order or not, and AutoGPTQ always writes it.
    fn facts(&self, shape: &Shape) -> Vec<Fact> {
        let ([_, inputs], 2) = (out_in(shape), shape.len()) else { return vec![] };
        if self.scope.indexed() {
            return vec![];
        }
        let (_, group) = self.scope.size();
        let group_of = |i: u64| i32::try_from(i / group as u64).unwrap_or(i32::MAX);
        let bytes = (0..inputs).flat_map(|i| group_of(i).to_le_bytes()).collect();
        vec![Fact {
            tensor: PlaneTensor { suffix: ".g_idx", dtype: Dtype::I32, shape: [inputs].into() },
            bytes,
        }]
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

impl Encoder for Gptq {
    fn encode(&self, values: &[f32], k: usize, importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [qweight, qzeros, scales] = planes else { panic!("`{}` has three planes", self.name) };
        let n = values.len() / k;
        assert!(
            k.is_multiple_of(self.run.per) && n.is_multiple_of(self.run.per),
            "`{}` of [{n}, {k}]",
            self.name
        );
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        let (grid, group) = (self.grid(), self.scope.size().1.min(k));
        let mut zeros = vec![0; k.div_ceil(group) * n];
        let (mut codes, mut room) = (vec![0; k], Room::default());
        for (o, values) in values.chunks_exact(k).enumerate() {
            for (g, (values, codes)) in values.chunks(group).zip(codes.chunks_mut(group)).enumerate() {
                let importance = importance.map(|all| &all[g * group..][..values.len()]);
                let found = shifted(isa, grid, values, importance, &mut room, codes);
                self.scales.put(scales, g * n + o, found.scale);
                zeros[g * n + o] = found.zero;
            }
            self.put_row(&codes, n, o, qweight);
        }
        self.put_zeros(&zeros, qzeros);
    }
}

impl Recoder for Gptq {
    fn levels(&self) -> Levels {
        Levels::Even(1 << self.run.bits)
    }

    /// Whole groups in whole words.
    fn columns(&self, k: usize) -> usize {
        lcm(self.scope.size().1.min(k) as u64, self.run.per as u64).min(k as u64) as usize
    }

    fn put(&self, codes: &[u8], k: usize, planes: &mut [&mut [u8]]) {
        let [qweight, ..] = planes else { panic!("`{}` has three planes", self.name) };
        let n = codes.len() / k;
        for (o, codes) in codes.chunks_exact(k).enumerate() {
            self.put_row(codes, n, o, qweight);
        }
    }
}

impl Assembler for Gptq {
    fn assemble(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, AssembleError> {
        let (n, k) = (codes.rows, codes.k);
        let groups = self.scope.groups(k as u64) as usize;
        let mut planes = codes.planes(&self.scheme(), self.run.bits, groups)?;
        let [qweight, qzeros, scales, rest @ ..] = &mut planes[..] else {
            unreachable!("three planes or four")
        };
        for (o, codes) in codes.codes.chunks_exact(k.max(1)).enumerate() {
            self.put_row(codes, n, o, qweight);
        }
        let mut zeros = vec![0; groups * n];
        for g in 0..groups {
            for o in 0..n {
                zeros[g * n + o] = codes.zeros[o * groups + g];
                self.scales.put(scales, g * n + o, codes.scales[o * groups + g]);
            }
        }
        self.put_zeros(&zeros, qzeros);
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

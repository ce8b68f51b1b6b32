//! compressed-tensors' integers: `pack-quantized` and `int-quantized`.
//!
//! | tensor | packed | bytes |
//! |---|---|---|
//! | weight | `weight_packed` i32 `[out, in · bits / 32]` | `weight` i8 `[out, in]` |
//! | `weight_scale` | f16, bf16 or f32: `[out, groups]`, `[out, 1]` or `[1]` | the same |
//! | `weight_zero_point` | i32 `[out · bits / 32, groups]`, packed along `out` | i8, as the scales |
//! | `weight_g_idx` | i32 `[in]`, the group of each input | |
//!
//! Packed codes and zero points are stored plus `2^(bits-1)`. The value is `(q - zero) * scale`. The reference
//! casts to the dtype of the scales, where `q - zero` is exact, and multiplies there: an f32 product rounded to
//! that dtype is equal bit for bit.
//!
//! Source: compressed-tensors 0.20.0, compressed_tensors/compressors/pack_quantized/{base,helpers}.py,
//! compressors/naive_quantized/base.py, quantization/lifecycle/forward_helpers.py `_dequantize`;
//! `weight_g_idx`, which newer versions no longer write, 0.9.4, quantization/lifecycle/forward.py
//! `_process_quantization`.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape};

use super::bits::{Run, code};
use super::plane::{each, factor, matrix, number, out_in, packed, part, plane};
use super::real::{REALS, Real};
use super::scope::{Scope, check_groups};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Matrix, SchemeFamily};

/// `ct-pack:b4,g128,bf16`: bits of a code; the scope of a scale (`g128`, `row`, `tensor`, or `act32` for 32 groups
/// whose members `weight_g_idx` names); `z` if there are zero points; the dtype of the scales. `ct-int8:row,bf16`
/// likewise, without bits.
pub(crate) struct CtIntFamily(pub(crate) Store);

/// How integers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In words.
    Packed,
    /// One a byte.
    Bytes,
}

/// One size.
struct CtInt {
    name: String,
    /// `None` for bytes.
    run: Option<Run>,
    scope: Scope,
    zeros: bool,
    scales: Real,
}

/// Bits of packed codes.
const BITS: &[u64] = &[2, 3, 4, 6, 8];

impl SchemeFamily for CtIntFamily {
    fn name(&self) -> &'static str {
        match self.0 {
            Store::Packed => "ct-pack",
            Store::Bytes => "ct-int8",
        }
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (run, rest) = match self.0 {
            Store::Packed => {
                let (bits, rest) = params.strip_prefix('b')?.split_once(',')?;
                let bits = number(bits).filter(|b| BITS.contains(b))?;
                (Some(Run::of(bits as usize)), rest)
            }
            Store::Bytes => (None, params),
        };
        let (scope, rest) = rest.split_once(',')?;
        let (zeros, scales) = rest.strip_prefix("z,").map_or((false, rest), |rest| (true, rest));
        let scope = Scope::parse(scope).filter(|scope| match scope {
            Scope::Block(..) => false,
            // Zero points of a matrix are not packed.
            Scope::Tensor => !zeros || run.is_none(),
            Scope::Act(_) => run.is_some(),
            Scope::Row | Scope::Group(_) => true,
        })?;
        let name = format!("{}:{params}", self.name());
        Some(Box::new(CtInt { name, run, scope, zeros, scales: Real::parse(scales, REALS)? }))
    }

    fn usual(&self) -> &'static [&'static str] {
        match self.0 {
            Store::Packed => &[
                "b4,g128,bf16",
                "b4,g128,f16",
                "b4,g128,z,bf16",
                "b4,g32,bf16",
                "b4,row,bf16",
                "b4,act32,bf16",
                "b8,g128,bf16",
                "b8,row,bf16",
            ],
            Store::Bytes => &["row,bf16", "row,f16", "row,f32", "tensor,bf16"],
        }
    }
}

impl CtInt {
    /// The number subtracted from a packed code.
    fn middle(&self) -> i32 {
        self.run.map_or(0, |run| 1 << (run.bits - 1))
    }

    /// Decodes rows whose code `i` is `code(row, i)`, and whose zero point is `zero(row, group)`.
    #[inline(always)]
    fn rows(
        &self,
        matrix: Matrix<'_>,
        rows: Range<usize>,
        out: &mut [f32],
        code: impl Fn(usize, usize) -> i32,
        zero: impl Fn(usize, usize) -> i32,
    ) {
        let g_idx = self.scope.indexed().then(|| matrix.planes[matrix.planes.len() - 1]);
        let (columns, (tall, run)) = (self.scope.groups(matrix.k as u64) as usize, self.scope.size());
        for (row, out) in rows.zip(out.chunks_exact_mut(matrix.k.max(1))) {
            for (r, out) in out.chunks_mut(run).enumerate() {
                let first = r * run.min(matrix.k);
                let group = self.scope.group(first, g_idx);
                let scale = self.scales.get(matrix.planes[1], row / tall * columns + group);
                let zero = zero(row, group);
                for (i, out) in (first..).zip(out) {
                    *out = self.scales.round((code(row, i) - zero) as f32 * scale);
                }
            }
        }
    }
}

impl Codec for CtInt {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let (axes, bytes) = (self.scope.axes(), self.scales.bytes());
        let mut planes = match self.run {
            Some(Run { per, words, .. }) => vec![
                plane("weight_packed", 4 * words as u64, &[each(OUT), packed(IN, per as u64)]),
                // Zero is the code in the middle, not 0, so padding cannot share a scale.
                plane("weight_scale", bytes, &axes),
            ],
            None => {
                let scale = if self.zeros { plane } else { factor };
                vec![plane("weight", 1, &[each(OUT), each(IN)]), scale("weight_scale", bytes, &axes)]
            }
        };
        match self.run {
            Some(Run { per, words, .. }) if self.zeros => {
                // The words of a run lie a row of words apart.
                let mut cells = vec![packed(OUT, per as u64)];
                cells.extend((words > 1).then_some(PlaneAxis::Table(words as u64)));
                cells.extend(self.scope.inputs());
                planes.push(plane("weight_zero_point", 4, &cells));
            }
            None if self.zeros => planes.push(plane("weight_zero_point", 1, &axes)),
            _ => {}
        }
        if self.scope.indexed() {
            planes.push(PlaneSpec { must_agree: true, ..factor("weight_g_idx", 4, &[each(IN)]) });
        }
        matrix(&self.name, planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let (k, planes) = (matrix.k, 2 + usize::from(self.zeros) + usize::from(self.scope.indexed()));
        assert_eq!(matrix.planes.len(), planes, "planes of `{}`", self.name);
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name);
        let weight = matrix.planes[0];
        let zeros = self.zeros.then(|| matrix.planes[2]);
        let columns = self.scope.groups(k as u64) as usize;
        let Some(run) = self.run else {
            let (tall, _) = self.scope.size();
            let zero = |o: usize, g| zeros.map_or(0, |zeros| i32::from(zeros[o / tall * columns + g] as i8));
            return self.rows(matrix, rows, out, |o, i| i32::from(weight[o * k + i] as i8), zero);
        };
        let (middle, bytes) = (self.middle(), k * run.bits / 8);
        let zero = |o: usize, g| {
            let at = o / run.per * run.words * columns + g;
            zeros.map_or(middle, |zeros| run.get(zeros, at, columns).code(o % run.per))
        };
        let code = |o: usize, i| i32::from(code(&weight[o * bytes..], run.bits, i));
        self.rows(matrix, rows, out, code, zero);
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        self.scales.check("weight_scale", "a scale", matrix.planes[1])?;
        let (Scope::Act(groups), Some(g_idx)) = (self.scope, matrix.planes.last()) else { return Ok(()) };
        check_groups("weight_g_idx", g_idx, matrix.k, groups)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let scales = self.scope.cells([out, k]);
        let words = |n: u64, run: Run| n / run.per as u64 * run.words as u64;
        let mut parts = vec![match self.run {
            Some(run) => part(".weight_packed", Dtype::I32, shape, &[out, words(k, run)]),
            None => part(".weight", Dtype::I8, shape, &[out, k]),
        }];
        parts.push(part(".weight_scale", self.scales.0, shape, &scales));
        match self.run {
            Some(run) if self.zeros => {
                let packed = [words(out, run), scales[1]];
                parts.push(part(".weight_zero_point", Dtype::I32, shape, &packed));
            }
            None if self.zeros => parts.push(part(".weight_zero_point", Dtype::I8, shape, &scales)),
            _ => {}
        }
        if self.scope.indexed() {
            parts.push(part(".weight_g_idx", Dtype::I32, shape, &[k]));
        }
        parts
    }
}

//! bitsandbytes with four bits: codes of a table of 16 values, and the largest magnitude of each block.
//!
//! The matrix `[out, in]` is one flat sequence. Byte `j` of `weight` holds code `2 j` in its **high** nibble and
//! code `2 j + 1` in its low one; block `b` of the sequence has the factor `absmax[b]`, f32. With double
//! quantisation `absmax` is a byte, and the factor is `nested_quant_map[absmax] * nested_absmax[b / 256] +
//! nested_offset`.
//!
//! The value is `table[code] * factor`, in f32, cast to the dtype that the quantised weight had, which
//! `quant_state` names; we compute the same, with one rounding in each place. Code 8 of FP4 is zero: plus zero in
//! the reference's table, while its native loops differ among themselves in that sign.
//!
//! Source: bitsandbytes 0.50.2, bitsandbytes/functional.py `QuantState`, `get_4bit_type`, `dequantize_4bit`;
//! bitsandbytes/backends/default/ops.py `_dequantize_4bit_compute`, `quantize_4bit`.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape};

use super::plane::{each, matrix, packed, plane, shared};
use super::real::{REALS, Real};
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Matrix, SchemeFamily};

/// `bnb-nf4:b64,bf16` and `bnb-fp4:…`: values of a block, and the dtype of the result. Then, if rows are not
/// whole blocks, `7x9` for a matrix that is only moved whole; and with double quantisation, `r4` or `c16384` for the rows or
/// columns that 256 blocks span, and `o3d4ccccd` for the bits of `nested_offset`.
pub(crate) struct BnbFamily(pub(crate) Table);

/// Meaning of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Quantiles of the normal distribution.
    Nf4,
    /// A float of four bits, as multiples of the largest.
    Fp4,
}

const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
const FP4: [f32; 16] = {
    let twelfths = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0];
    let mut values = [0.0; 16];
    let mut i = 0;
    while i < 8 {
        values[i] = twelfths[i] / 12.0;
        // Not minus zero for the first.
        values[i + 8] = 0.0 - values[i];
        i += 1;
    }
    values
};
/// The codes of [`FP4`] by value. Its two zeros stand as the reference's sort leaves them.
const FP4_ORDER: [u8; 16] = [11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3];

impl Table {
    fn family(self) -> &'static str {
        match self {
            Table::Nf4 => "bnb-nf4",
            Table::Fp4 => "bnb-fp4",
        }
    }

    /// As `quant_type` spells it.
    pub fn name(self) -> &'static str {
        &self.family()["bnb-".len()..]
    }

    /// The value of each code.
    pub fn values(self) -> &'static [f32; 16] {
        match self {
            Table::Nf4 => &NF4,
            Table::Fp4 => &FP4,
        }
    }

    /// Code of rank `r` by value.
    fn ranked(self, r: usize) -> u8 {
        match self {
            Table::Nf4 => r as u8,
            Table::Fp4 => FP4_ORDER[r],
        }
    }
}

/// How blocks lie in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Rows are whole blocks.
    Rows,
    /// The matrix of just this shape is moved whole.
    Whole(u64, u64),
}

/// Double quantisation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Nested {
    span: Span,
    /// `nested_offset`.
    offset: f32,
}

/// The span of 256 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Rows(u64),
    Columns(u64),
    /// The number of values of a matrix that is moved whole.
    Flat,
}

/// Blocks that share a `nested_absmax`.
pub const NESTED: u64 = 256;

/// One size of bitsandbytes' four bits.
struct Bnb {
    name: String,
    table: Table,
    block: u64,
    dtype: Real,
    layout: Layout,
    nested: Option<Nested>,
}

impl Bnb {
    /// Returns `None` if there is no such scheme.
    fn new(table: Table, block: u64, dtype: Real, layout: Layout, nested: Option<Nested>) -> Option<Bnb> {
        let fits = match (layout, nested.map(|n| n.span)) {
            (Layout::Whole(out, k), None | Some(Span::Flat)) => {
                out > 0 && k > 0 && out.checked_mul(k).is_some_and(|n| n < 1 << 40)
            }
            (Layout::Rows, None) => true,
            (Layout::Rows, Some(Span::Rows(r))) => r > 0 && (block * NESTED).is_multiple_of(r),
            (Layout::Rows, Some(Span::Columns(c))) => c == block * NESTED,
            _ => false,
        };
        // The sizes that `dequantize_4bit` takes.
        let known = block.is_power_of_two() && (32..=4096).contains(&block);
        if !(fits && known && nested.is_none_or(|n| n.offset.is_finite())) {
            return None;
        }
        let whole = match layout {
            Layout::Whole(out, k) => format!(",{out}x{k}"),
            Layout::Rows => String::new(),
        };
        let doubly = nested.map_or(String::new(), |Nested { span, offset }| {
            let span = match span {
                Span::Rows(r) => format!(",r{r}"),
                Span::Columns(c) => format!(",c{c}"),
                Span::Flat => String::new(),
            };
            format!("{span},o{:08x}", offset.to_bits())
        });
        let name = format!("{}:b{block},{}{whole}{doubly}", table.family(), dtype.0);
        Some(Bnb { name, table, block, dtype, layout, nested })
    }

    /// How a matrix `[out, k]` is stored.
    fn layout(block: u64, out: u64, k: u64, nested: bool) -> (Layout, Option<Span>) {
        let span = block * NESTED;
        let spans = match k {
            0 => None,
            k if span.is_multiple_of(k) => Some(Span::Rows(span / k)),
            k if k.is_multiple_of(span) => Some(Span::Columns(span)),
            _ => None,
        };
        match (k.is_multiple_of(block), nested, spans) {
            (true, false, _) => (Layout::Rows, None),
            (true, true, Some(span)) => (Layout::Rows, Some(span)),
            _ => (Layout::Whole(out, k), nested.then_some(Span::Flat)),
        }
    }

    /// The factor of the block with element `i` of row `o`, of rows that the planes begin with.
    fn factor(&self, matrix: Matrix<'_>, o: usize, i: usize) -> f32 {
        let at = o * matrix.k + i;
        let block = at / self.block as usize;
        let absmax = matrix.planes[1];
        let Some(Nested { span, offset }) = self.nested else { return Real::F32.get(absmax, block) };
        let nested = match span {
            Span::Rows(r) => o / r as usize,
            Span::Columns(c) => o * matrix.k.div_ceil(c as usize) + i / c as usize,
            Span::Flat => block / NESTED as usize,
        };
        let code = Real::F32.get(matrix.planes[3], usize::from(absmax[block]));
        code * Real::F32.get(matrix.planes[2], nested) + offset
    }
}

/// Returns the name of the scheme of a matrix `[out, k]`, with `nested_offset` if it is doubly quantised; `None` if
/// there is no such scheme.
pub fn bnb_name(
    table: Table,
    block: u64,
    dtype: Dtype,
    [out, k]: [u64; 2],
    offset: Option<f32>,
) -> Option<String> {
    let (layout, span) = Bnb::layout(block, out, k, offset.is_some());
    let nested = offset.zip(span).map(|(offset, span)| Nested { span, offset });
    Bnb::new(table, block, Real(dtype), layout, nested).map(|bnb| bnb.name)
}

impl SchemeFamily for BnbFamily {
    fn name(&self) -> &'static str {
        self.0.family()
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let mut rest = params.split(',').peekable();
        let block = rest.next()?.strip_prefix('b')?.parse().ok()?;
        let dtype = Real::parse(rest.next()?, REALS)?;
        let whole = |text: &&str| {
            let (out, k) = text.split_once('x')?;
            Some(Layout::Whole(out.parse().ok()?, k.parse().ok()?))
        };
        let layout = rest.peek().and_then(whole);
        if layout.is_some() {
            rest.next();
        }
        let span = |text: &&str| match text.split_at_checked(1)? {
            ("r", n) => Some(Span::Rows(n.parse().ok()?)),
            ("c", n) => Some(Span::Columns(n.parse().ok()?)),
            _ => None,
        };
        let spans = rest.peek().and_then(span);
        if spans.is_some() {
            rest.next();
        }
        let nested = match rest.next() {
            None => None,
            Some(text) => {
                let bits = u32::from_str_radix(text.strip_prefix('o')?, 16).ok()?;
                Some(Nested { span: spans.unwrap_or(Span::Flat), offset: f32::from_bits(bits) })
            }
        };
        let codec = Bnb::new(self.0, block, dtype, layout.unwrap_or(Layout::Rows), nested)?;
        (codec.name.split_once(':')?.1 == params).then(|| Box::new(codec) as Box<dyn Codec>)
    }

    fn usual(&self) -> &'static [&'static str] {
        &["b64,bf16", "b64,f16", "b64,f32", "b64,bf16,r4,o3d4ccccd"]
    }
}

impl Codec for Bnb {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let byte = if self.nested.is_some() { 1 } else { 4 };
        let mut planes = match self.layout {
            Layout::Rows => vec![
                plane("weight", 1, &[each(OUT), packed(IN, 2)]),
                // The code 0 is no zero, so that zeros cannot share a factor.
                plane("absmax", byte, &[each(OUT), shared(IN, self.block)]),
            ],
            Layout::Whole(out, k) => {
                let (n, all) = (out * k, [packed(OUT, out), packed(IN, k)]);
                vec![
                    plane("weight", n.div_ceil(2), &all),
                    plane("absmax", byte * n.div_ceil(self.block), &all),
                ]
            }
        };
        if let Some(Nested { span, .. }) = self.nested {
            planes.push(match (span, self.layout) {
                (Span::Rows(r), _) => plane("nested_absmax", 4, &[shared(OUT, r)]),
                (Span::Columns(c), _) => plane("nested_absmax", 4, &[each(OUT), shared(IN, c)]),
                (Span::Flat, Layout::Whole(out, k)) => {
                    let cells = (out * k).div_ceil(self.block).div_ceil(NESTED);
                    plane("nested_absmax", 4 * cells, &[packed(OUT, out), packed(IN, k)])
                }
                (Span::Flat, Layout::Rows) => unreachable!("`Bnb::new` refuses it"),
            });
            let map = plane("nested_quant_map", 4, &[PlaneAxis::Table(256)]);
            planes.push(PlaneSpec { must_agree: true, ..map });
        }
        matrix(&self.name, planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let (k, block) = (matrix.k, self.block as usize);
        assert_eq!(
            matrix.planes.len(),
            if self.nested.is_some() { 4 } else { 2 },
            "planes of `{}`",
            self.name
        );
        assert!(rows.end <= matrix.rows && out.len() == rows.len() * k, "`{}`: rows {rows:?}", self.name);
        let (weight, table) = (matrix.planes[0], self.table.values());
        for (o, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let mut i = 0;
            while i < k {
                let at = o * k + i;
                let end = (i + block - at % block).min(k);
                let factor = self.factor(matrix, o, i);
                for (at, out) in (at..).zip(&mut out[i..end]) {
                    let code = weight[at / 2] >> (4 - at % 2 * 4) & 15;
                    *out = self.dtype.round(table[usize::from(code)] * factor);
                }
                i = end;
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        match *matrix.planes {
            [_, _, nested, map] => {
                Real::F32.check("nested_absmax", "a scale", nested)?;
                Real::F32.check("nested_quant_map", "a scale", map)
            }
            [_, absmax] => Real::F32.check("absmax", "a scale", absmax),
            _ => Ok(()),
        }
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        (self.layout == Layout::Rows && self.nested.is_none()).then_some(self as &dyn Encoder)
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        // A shape that fits the scheme has a product.
        let n = shape.elements().unwrap_or(0);
        let part = |suffix, dtype, n| PlaneTensor { suffix, dtype, shape: Shape::from([n]) };
        let blocks = n.div_ceil(self.block);
        let absmax = if self.nested.is_some() { Dtype::U8 } else { Dtype::F32 };
        let mut parts =
            vec![part(".weight", Dtype::U8, n.div_ceil(2)), part(".weight.absmax", absmax, blocks)];
        if self.nested.is_some() {
            parts.push(part(".weight.nested_absmax", Dtype::F32, blocks.div_ceil(NESTED)));
            parts.push(part(".weight.nested_quant_map", Dtype::F32, 256));
        }
        parts
    }
}

impl Encoder for Bnb {
    /// Rounds to the nearest value of the table, a tie to the lower one, as bitsandbytes does on CPU.
    fn encode(&self, values: &[f32], k: usize, _: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let [weight, absmax] = planes else { panic!("`{}` has two planes", self.name) };
        let block = self.block as usize;
        assert!(
            k.is_multiple_of(block) && values.len().is_multiple_of(k.max(1)),
            "`{}`: rows of {k}",
            self.name
        );
        assert_eq!(
            (weight.len() * 2, absmax.len() / 4 * block),
            (values.len(), values.len()),
            "`{}`",
            self.name
        );
        let table = self.table.values();
        let between = |r: usize| {
            let value = |r| table[usize::from(self.table.ranked(r))];
            f32::midpoint(value(r), value(r + 1))
        };
        let bounds: [f32; 15] = std::array::from_fn(between);
        let blocks = values.chunks_exact(block).zip(weight.chunks_exact_mut(block / 2));
        for (b, (values, weight)) in blocks.enumerate() {
            let most = values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            Real::F32.put(absmax, b, most);
            let inverse = 1.0 / most.max(1e-38);
            let code = |x: f32| {
                let x = (x * inverse).clamp(-1.0, 1.0);
                self.table.ranked(bounds.iter().filter(|bound| **bound < x).count())
            };
            for (byte, pair) in weight.iter_mut().zip(values.as_chunks::<2>().0) {
                *byte = code(pair[0]) << 4 | code(pair[1]);
            }
        }
    }
}

//! Squish: int8, and four bits symmetric or not, with f32 scales.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::bits::{code, put_code, put_codes};
use super::plane::{each, factor, matrix, number, out_in, packed, part, plane, shared};
use super::real::Real;
use crate::codec::PlaneTensor;
use crate::codec::{BadData, Codec, Encoder, Levels, Matrix, Recoder, SchemeFamily};
use crate::packing::{Number, Packing, Plain};

/// `squish-int8:g64`: columns of a group; `squish-int8:row` has one scale a row.
pub(crate) struct SquishInt8;
/// `squish-q4:g64`: columns of a group.
pub(crate) struct SquishQ4;
/// `squish-q4a:g32`: columns of a group.
pub(crate) struct SquishQ4a;

impl SchemeFamily for SquishInt8 {
    fn name(&self) -> &'static str {
        "squish-int8"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let group = if params == "row" { None } else { Some(group(params)?) };
        Some(Box::new(Squish { name: format!("squish-int8:{params}"), kind: SquishCodes::Int8, group }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["row", "g64", "g32"]
    }
}

impl SchemeFamily for SquishQ4 {
    fn name(&self) -> &'static str {
        "squish-q4"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let group = Some(group(params)?);
        Some(Box::new(Squish { name: format!("squish-q4:{params}"), kind: SquishCodes::Q4, group }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["g64", "g32"]
    }
}

impl SchemeFamily for SquishQ4a {
    fn name(&self) -> &'static str {
        "squish-q4a"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let group = Some(group(params)?);
        Some(Box::new(Squish { name: format!("squish-q4a:{params}"), kind: SquishCodes::Q4a, group }))
    }

    fn usual(&self) -> &'static [&'static str] {
        &["g32", "g64"]
    }
}

/// A group size: an even number, so that no byte has codes of two groups.
fn group(params: &str) -> Option<usize> {
    let group = number(params.strip_prefix('g')?)?;
    (group.is_multiple_of(2) && (2..=1 << 20).contains(&group)).then_some(group as usize)
}

/// The kinds of codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SquishCodes {
    /// -127 to 127, times the scale.
    Int8,
    /// -7 to 7, stored plus 7 in nibbles (low first), times the scale.
    Q4,
    /// 0 to 15 in nibbles (low first), times the scale, plus the group's minimum.
    Q4a,
}

/// Planes in files of their own: codes (`__q`, `__q4`, `__q4a`), scales and minima, f32, `[out, in / group]`.
/// The last group of a row may be partial.
///
/// All arithmetic is in f32, the product rounded before the minimum is added.
///
/// Encoding is squish's own, halves away from zero: int8 multiplies by the reciprocal of the scale, Q4 divides
/// by it, and Q4a is [`clipped`] first, unless there is but one row.
///
/// Source: squish@b9a44a9f5, squish_quant_rs/src/lib.rs (`quantize_int8_f32`, `quantize_int8_grouped`,
/// `quantize_int4_grouped`, `quantize_int4_asymmetric_grouped` and their inverses) and
/// squish/quant/quantizer.py (`quantize_int4_asymmetric_mse`).
struct Squish {
    name: String,
    kind: SquishCodes,
    /// `None` for the whole row.
    group: Option<usize>,
}

const F32: Real = Real::F32;

impl Squish {
    /// Columns that share a scale, of `k`.
    fn group_of(&self, k: usize) -> usize {
        self.group.unwrap_or(k).max(1)
    }

    fn bits(&self) -> usize {
        if self.kind == SquishCodes::Int8 { 8 } else { 4 }
    }
}

impl Codec for Squish {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let axes: Vec<_> =
            [Some(each(OUT)), self.group.map(|g| shared(IN, g as u64))].into_iter().flatten().collect();
        let codes = plane("codes", 1, &[each(OUT), packed(IN, 8 / self.bits() as u64)]);
        let mut planes = vec![codes, factor("scales", 4, &axes)];
        if self.kind == SquishCodes::Q4a {
            planes = vec![planes.remove(0), plane("scales", 4, &axes), plane("minima", 4, &axes)];
        }
        matrix(&self.name, planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let (codes, scales, k) = (matrix.planes[0], matrix.planes[1], matrix.k);
        let minima = matrix.planes.get(2);
        let (group, bytes) = (self.group_of(k), k * self.bits() / 8);
        let across = k.div_ceil(group);
        assert_eq!(out.len(), rows.len() * k, "`{}`: values of rows {rows:?}", self.name);
        for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let codes = &codes[row * bytes..][..bytes];
            for (g, out) in out.chunks_mut(group).enumerate() {
                let scale = F32.get(scales, row * across + g);
                let minimum = minima.map(|m| F32.get(m, row * across + g));
                for (i, out) in (g * group..).zip(out) {
                    *out = match (self.kind, minimum) {
                        (SquishCodes::Int8, _) => codes[i] as i8 as f32 * scale,
                        (_, None) => (code(codes, 4, i) as i8 - 7) as f32 * scale,
                        (_, Some(minimum)) => minimum + code(codes, 4, i) as f32 * scale,
                    };
                }
            }
        }
    }

    fn check(&self, matrix: Matrix<'_>) -> Result<(), BadData> {
        F32.check("scales", "a scale", matrix.planes[1])?;
        matrix.planes.get(2).map_or(Ok(()), |minima| F32.check("minima", "a minimum", minima))
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }

    fn recoder(&self) -> Option<&dyn Recoder> {
        Some(self)
    }

    fn packing(&self) -> Option<Packing> {
        let plain = match self.kind {
            SquishCodes::Int8 => Plain::symmetric(8, 128),
            SquishCodes::Q4 => Plain::symmetric(4, 7),
            SquishCodes::Q4a => Plain::affine(4, Number::F32),
        };
        match self.group {
            Some(group) => Packing::groups(plain, group),
            None => Some(Packing::rows(plain, 1.0)),
        }
    }

    fn parts(&self, shape: &Shape) -> Vec<PlaneTensor> {
        let [out, k] = out_in(shape);
        let real = |suffix| match self.group {
            Some(group) => part(suffix, Dtype::F32, shape, &[out, k.div_ceil(group as u64)]),
            None => part(suffix, Dtype::F32, shape, &[out]),
        };
        let nibbles = |suffix| part(suffix, Dtype::U8, shape, &[out, k / 2]);
        match self.kind {
            SquishCodes::Int8 => vec![part("__q", Dtype::I8, shape, &[out, k]), real("__s")],
            SquishCodes::Q4 => vec![nibbles("__q4"), real("__s4")],
            SquishCodes::Q4a => vec![nibbles("__q4a"), real("__s4a"), real("__z4a")],
        }
    }
}

impl Encoder for Squish {
    fn encode(&self, values: &[f32], k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        self.rows(values, k, planes, clipped);
    }

    fn encode_vector(&self, values: &[f32], _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        self.rows(values, values.len(), planes, ends);
    }
}

impl Squish {
    /// Encodes rows, whose groups with a minimum have the range that `range` says.
    fn rows(&self, values: &[f32], k: usize, planes: &mut [&mut [u8]], range: impl Fn(&[f32]) -> (f32, f32)) {
        let [codes, scales, minima @ ..] = planes else { panic!("`{}` has planes", self.name) };
        codes.fill(0);
        let group = self.group_of(k);
        let mut at = 0;
        for (values, codes) in values.chunks_exact(k).zip(codes.chunks_exact_mut(k * self.bits() / 8)) {
            for (g, values) in values.chunks(group).enumerate() {
                let first = g * group;
                let scale = match (self.kind, &mut *minima) {
                    (SquishCodes::Q4a, [minima]) => {
                        let (low, high) = range(values);
                        let scale = if high > low { (high - low) / 15.0 } else { 1.0 };
                        for (i, x) in (first..).zip(values) {
                            let q = ((x.clamp(low, high) - low) / scale).round().clamp(0.0, 15.0);
                            put_code(codes, 4, i, q as u8);
                        }
                        F32.put(minima, at, low);
                        scale
                    }
                    _ => symmetric(self.kind, values, first, codes),
                };
                F32.put(scales, at, scale);
                at += 1;
            }
        }
    }
}

impl Recoder for Squish {
    fn levels(&self) -> Levels {
        Levels::Even(match self.kind {
            SquishCodes::Int8 => 255,
            SquishCodes::Q4 => 15,
            SquishCodes::Q4a => 16,
        })
    }

    fn columns(&self, k: usize) -> usize {
        self.group_of(k)
    }

    fn put(&self, values: &[u8], _: usize, planes: &mut [&mut [u8]]) {
        let [codes, ..] = planes else { panic!("`{}` has planes", self.name) };
        if self.kind == SquishCodes::Int8 {
            for (code, value) in codes.iter_mut().zip(values) {
                *code = value.wrapping_sub(127);
            }
        } else {
            put_codes(codes, 4, values);
        }
    }
}

/// Encodes a group whose first column is `first`, and returns its scale.
fn symmetric(kind: SquishCodes, values: &[f32], first: usize, codes: &mut [u8]) -> f32 {
    let largest = values.iter().fold(0f32, |most, x| most.max(x.abs()));
    let most = if kind == SquishCodes::Int8 { 127.0 } else { 7.0 };
    let scale = if largest == 0.0 { 1.0 } else { largest / most };
    let inverse = 1.0 / scale;
    for (i, x) in (first..).zip(values) {
        match kind {
            SquishCodes::Int8 => codes[i] = (x * inverse).round().clamp(-most, most) as i8 as u8,
            _ => put_code(codes, 4, i, ((x / scale).round().clamp(-most, most) as i8 + 7) as u8),
        }
    }
    scale
}

/// The least and the largest of `values`.
fn ends(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}

/// The shares of the range that [`clipped`] tries to cut off.
const CUTS: [f32; 8] = {
    let mut cuts = [0.0; 8];
    let mut i = 0;
    while i < 8 {
        cuts[i] = (i as f64 * (0.1 / 7.0)) as f32;
        i += 1;
    }
    cuts
};

/// The ends to which `values` are clipped for the least square error: of eight candidates, from none to a tenth
/// of the range at both ends, the first that is best.
fn clipped(values: &[f32]) -> (f32, f32) {
    let (low, high) = ends(values);
    let (mut best, mut least) = ((low, high), f32::INFINITY);
    let mut squares = vec![0.0; values.len()];
    for cut in CUTS {
        let (a, b) = (low + cut * (high - low), high - cut * (high - low));
        let scale = (b - a) / 15.0;
        for (x, square) in values.iter().zip(&mut squares) {
            let q = ((x.max(a).min(b) - a) / scale).round_ties_even().clamp(0.0, 15.0);
            let error = x - (a + q * scale);
            *square = error * error;
        }
        let mean = sum(&squares) / values.len() as f32;
        if a < b && mean < least {
            (best, least) = ((a, b), mean);
        }
    }
    best
}

/// The sum in the order in which numpy adds: halves of long runs, eight sums side by side in short ones.
///
/// Source: numpy 2.4, `pairwise_sum` in numpy/_core/src/umath/loops_utils.h.src.
fn sum(values: &[f32]) -> f32 {
    if values.len() > 128 {
        let (left, right) = values.split_at(values.len() / 2 / 8 * 8);
        return sum(left) + sum(right);
    }
    let (runs, rest) = values.as_chunks::<8>();
    let Some((first, runs)) = runs.split_first() else {
        return rest.iter().fold(0.0, |sum, x| sum + x);
    };
    let mut r = *first;
    for run in runs {
        for (r, x) in r.iter_mut().zip(run) {
            *r += x;
        }
    }
    let eight = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    rest.iter().fold(eight, |sum, x| sum + x)
}

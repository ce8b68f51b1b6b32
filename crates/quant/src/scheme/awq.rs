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
//! Source: AutoAWQ 0.2.9, awq/utils/packing_utils.py `dequantize_gemm`, awq/modules/linear/gemm.py
//! `WQLinear_GEMM`.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use tensor::{Dtype, IN, OUT, Scheme, Shape};

use super::config::{group_size, quantization};
use super::float::Float;
use super::gptq::Groups;
use super::planes::{Run, beneath, each, matrices, out_in, packed, plane};
use crate::codec::{BadData, Codec, Family, Matrix};
use crate::companions::{Convention, Module, Part, Reading, Weight};
use crate::pack::{Codes, PackError, Packer};

/// `awq:g128,f16`: `g128` for groups of 128 inputs, `row` for one group; the dtype of the scales.
pub(crate) struct AwqFamily;

/// One size of AWQ.
struct Awq {
    name: String,
    groups: Groups,
    scales: Float,
}

/// Outputs of a word.
const PER: usize = 8;
/// The nibble that holds an output. AutoAWQ: `AWQ_REVERSE_ORDER`.
const NIBBLE: [usize; PER] = [0, 4, 1, 5, 2, 6, 3, 7];
/// The output that a nibble holds. AutoAWQ: `AWQ_ORDER`.
const OUTPUT: [usize; PER] = [0, 2, 4, 6, 1, 3, 5, 7];
const RUN: Run = Run::of(4);

impl Awq {
    fn new(groups: Groups, scales: Float) -> Option<Awq> {
        let known = !matches!(groups, Groups::Act(_)) && scales != Float::F32;
        known.then(|| Awq { name: format!("awq:{},{}", groups.text(), scales.dtype()), groups, scales })
    }
}

impl Family for AwqFamily {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let (groups, scales) = params.split_once(',')?;
        let codec = Awq::new(Groups::parse(groups)?, Float::parse(scales)?)?;
        codec.name.ends_with(params).then(|| Box::new(codec) as Box<dyn Codec>)
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
        matrices(
            &self.name,
            vec![
                plane("qweight", 4, vec![each(IN), words]),
                plane("qzeros", 4, self.groups.by(words)),
                plane("scales", self.scales.bytes(), self.groups.by(each(OUT))),
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
        let group = match self.groups {
            Groups::Of(g) => g as usize,
            Groups::Row | Groups::Act(_) => k.max(1),
        };
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
        self.scales.finite("scales", scales)
    }

    fn packer(&self) -> Option<&dyn Packer> {
        Some(self)
    }

    fn parts(&self, shape: &Shape) -> Vec<Part> {
        let [out, inputs] = out_in(shape);
        let (words, groups) = (out / PER as u64, self.groups.count(inputs));
        let part = |suffix, dtype, last: [u64; 2]| Part { suffix, dtype, shape: beneath(shape, &last) };
        vec![
            part(".qweight", Dtype::I32, [inputs, words]),
            part(".qzeros", Dtype::I32, [groups, words]),
            part(".scales", self.scales.dtype(), [groups, out]),
        ]
    }
}

impl Packer for Awq {
    fn pack(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, PackError> {
        let (n, k) = (codes.rows, codes.k);
        let groups = self.groups.count(k as u64) as usize;
        let mut planes = codes.planes(&self.scheme(), 4, groups)?;
        let [qweight, qzeros, scales] = &mut planes[..] else { unreachable!("three planes") };
        // Column `i` of `[out, columns]`, as row `i` of `[columns, out / 8]`.
        let pack = |from: &[u8], columns: usize, i: usize, plane: &mut [u8]| {
            for word in 0..n / PER {
                let codes = OUTPUT.map(|o| from[(word * PER + o) * columns + i]);
                RUN.put(codes, plane, i * (n / PER) + word, 1);
            }
        };
        (0..k).for_each(|i| pack(codes.codes, k, i, qweight));
        for g in 0..groups {
            pack(codes.zeros, groups, g, qzeros);
            (0..n).for_each(|o| self.scales.put(scales, g * n + o, codes.scales[o * groups + g]));
        }
        self.scales.finite("scales", scales)?;
        Ok(planes)
    }
}

/// `quant_method: awq`.
///
/// Source: transformers `AwqConfig`; AutoAWQ 0.2.9, awq/models/_config.py.
pub(crate) struct AwqConvention;

struct AwqReading(Groups);

impl Convention for AwqConvention {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn Reading>, String>> {
        let config = quantization(config, "awq")?;
        Some(AwqReading::of(config).map(|r| Box::new(r) as Box<dyn Reading>))
    }
}

impl AwqReading {
    fn of(config: &Value) -> Result<AwqReading, String> {
        let is = |key: &str, wanted: &str, ok: bool| {
            if ok { Ok(()) } else { Err(format!("`{key}` of awq: wanted {wanted}, found {}", config[key])) }
        };
        is("bits", "4", config["bits"].as_u64() == Some(4))?;
        let version = config["version"].as_str().map(str::to_ascii_lowercase);
        is("version", "\"gemm\"", version.is_none_or(|v| v == "gemm"))?;
        is("zero_point", "true", config["zero_point"].as_bool() != Some(false))?;
        Ok(AwqReading(group_size(config)?.map_or(Groups::Row, Groups::Of)))
    }
}

impl Reading for AwqReading {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight", ".qzeros", ".scales"]
    }

    fn weight(&self, module: &Module<'_>) -> Result<Option<Weight>, String> {
        let [inputs, words] = module.shape(".qweight")?;
        let out = words.checked_mul(PER as u64).ok_or("`qweight` is too large")?;
        let scales = module.dtype(".scales", &[Dtype::F16, Dtype::BF16])?;
        if let Groups::Of(g) = self.0
            && !inputs.is_multiple_of(g)
        {
            return Err(format!("`qweight` has {inputs} inputs, wanted a multiple of the {g} in a group"));
        }
        let codec = Float::of(scales).and_then(|scales| Awq::new(self.0, scales));
        let scheme = codec.map(|c| c.name).ok_or_else(|| format!("no awq with scales of {scales}"))?;
        Ok(Some(Weight {
            suffix: ".weight",
            scheme,
            shape: Shape::from([out, inputs]),
            facts: vec![],
            renamed: vec![],
        }))
    }
}

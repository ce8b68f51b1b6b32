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

use serde_json::Value;
use tensor::{Dtype, IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape};

use super::config::{group_size, quantization};
use super::float::Float;
use super::planes::{Run, beneath, each, factor, matrices, out_in, packed, plane, shared};
use crate::codec::{BadData, Codec, Family, Matrix};
use crate::companions::{Convention, Module, Part, Reading, Weight};
use crate::pack::{Codes, PackError, Packer};

/// `gptq:b4,g128,f16` (version 1) and `gptq-v2:…`: bits 2, 3, 4 or 8; `g128` for groups of 128 consecutive inputs,
/// `row` for one group, or `act32` for 32 groups whose members `g_idx` names; the dtype of the scales.
pub(crate) struct GptqFamily(pub(crate) Version);

/// What `qzeros` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Zero points less one.
    V1,
    /// Zero points.
    V2,
}

/// Which inputs share a scale and a zero point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// So many that follow each other; the last group may be shorter.
    Of(u64),
    /// All.
    Row,
    /// Those that `g_idx` gives the same of so many groups.
    Act(u64),
}

impl Groups {
    /// As names spell it: `g128`, `row`, `act32`.
    pub(super) fn parse(text: &str) -> Option<Groups> {
        match text {
            "row" => Some(Groups::Row),
            _ => match text.strip_prefix("act") {
                Some(n) => Some(Groups::Act(n.parse().ok().filter(|n| (1..=1 << 24).contains(n))?)),
                None => Some(Groups::Of(text.strip_prefix('g')?.parse().ok().filter(|g| *g > 0)?)),
            },
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Groups::Of(g) => format!("g{g}"),
            Groups::Row => "row".to_owned(),
            Groups::Act(n) => format!("act{n}"),
        }
    }

    /// How many there are for so many inputs.
    pub(super) fn count(self, inputs: u64) -> u64 {
        match self {
            Groups::Of(g) => inputs.div_ceil(g),
            Groups::Row => 1,
            Groups::Act(n) => n,
        }
    }

    /// The axes of a plane with one cell for each group and what `out` says.
    pub(super) fn by(self, out: PlaneAxis) -> Vec<PlaneAxis> {
        match self {
            Groups::Of(g) => vec![shared(IN, g), out],
            Groups::Row => vec![out],
            Groups::Act(n) => vec![PlaneAxis::Table(n), out],
        }
    }

    /// Whether `g_idx` gives each input the group that this does; `None` if it is not one number an input.
    fn are(self, inputs: u64, g_idx: &[u8]) -> Option<bool> {
        let (found, rest) = g_idx.as_chunks::<4>();
        let per = match self {
            Groups::Of(g) => g,
            Groups::Row | Groups::Act(_) => u64::MAX,
        };
        let same = |(i, g): (u64, &[u8; 4])| i64::from(i32::from_le_bytes(*g)) == (i / per) as i64;
        (rest.is_empty() && found.len() as u64 == inputs).then(|| (0..).zip(found).all(same))
    }
}

/// One size of GPTQ.
struct Gptq {
    name: String,
    version: Version,
    run: Run,
    groups: Groups,
    scales: Float,
}

impl Version {
    fn family(self) -> &'static str {
        match self {
            Version::V1 => "gptq",
            Version::V2 => "gptq-v2",
        }
    }

    /// What is added to a stored zero point.
    fn plus(self) -> i32 {
        i32::from(self == Version::V1)
    }
}

impl Gptq {
    fn new(version: Version, bits: usize, groups: Groups, scales: Float) -> Option<Gptq> {
        let run = [2, 3, 4, 8].contains(&bits).then(|| Run::of(bits))?;
        let name = format!("{}:b{bits},{},{}", version.family(), groups.text(), scales.dtype());
        Some(Gptq { name, version, run, groups, scales })
    }

    fn act(&self) -> bool {
        matches!(self.groups, Groups::Act(_))
    }
}

impl Family for GptqFamily {
    fn name(&self) -> &'static str {
        self.0.family()
    }

    fn parse(&self, params: &str) -> Option<Box<dyn Codec>> {
        let [bits, groups, scales] = *params.split(',').collect::<Vec<_>>() else { return None };
        let bits = bits.strip_prefix('b')?.parse().ok()?;
        let codec = Gptq::new(self.0, bits, Groups::parse(groups)?, Float::parse(scales)?)?;
        codec.name.ends_with(params).then(|| Box::new(codec) as Box<dyn Codec>)
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
            plane("qweight", 4, codes),
            plane("qzeros", word, self.groups.by(packed(OUT, per))),
            plane("scales", self.scales.bytes(), self.groups.by(each(OUT))),
        ];
        if self.act() {
            // It names a group and is no value: what keeps padded outputs zero is their own scales.
            planes.push(PlaneSpec { must_agree: true, ..factor("g_idx", 4, vec![each(IN)]) });
        }
        matrices(&self.name, planes)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        /// Rows at a time: their words are a cache line.
        const TILE: usize = 16;
        let (n, k) = (matrix.rows, matrix.k);
        let (qweight, qzeros, scales, g_idx) = match *matrix.planes {
            [qweight, qzeros, scales] if !self.act() => (qweight, qzeros, scales, None),
            [qweight, qzeros, scales, g_idx] if self.act() => (qweight, qzeros, scales, Some(g_idx)),
            _ => panic!("`{}`: found {} planes", self.name, matrix.planes.len()),
        };
        let Run { bits, per, words } = self.run;
        assert!(k.is_multiple_of(per) && n.is_multiple_of(per), "`{}` of [{n}, {k}]", self.name);
        assert!(rows.end <= n && out.len() == rows.len() * k, "`{}`: {} values", self.name, out.len());
        let groups = self.groups.count(k as u64) as usize;
        let group = |i: usize| match (self.groups, g_idx) {
            (Groups::Of(g), _) => i / g as usize,
            (_, Some(g_idx)) => index_at(g_idx, i).clamp(0, groups as i64 - 1) as usize,
            _ => 0,
        };
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
                        let g = group(run * per + e);
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
        self.scales.finite("scales", matrix.planes[2])?;
        let (Groups::Act(groups), Some(g_idx)) = (self.groups, matrix.planes.get(3)) else { return Ok(()) };
        check_groups("g_idx", g_idx, matrix.k, groups)
    }

    fn packer(&self) -> Option<&dyn Packer> {
        Some(self)
    }

    fn parts(&self, shape: &Shape) -> Vec<Part> {
        let [out, inputs] = out_in(shape);
        let groups = self.groups.count(inputs);
        // No product of a shape that fits the scheme overflows.
        let words = |n: u64| n / self.run.per as u64 * self.run.words as u64;
        let part = |suffix, dtype, last: &[u64]| Part { suffix, dtype, shape: beneath(shape, last) };
        let mut parts = vec![
            part(".qweight", Dtype::I32, &[words(inputs), out]),
            part(".qzeros", Dtype::I32, &[groups, words(out)]),
            part(".scales", self.scales.dtype(), &[groups, out]),
        ];
        if self.act() {
            parts.push(part(".g_idx", Dtype::I32, &[inputs]));
        }
        parts
    }
}

impl Packer for Gptq {
    fn pack(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, PackError> {
        let (n, k) = (codes.rows, codes.k);
        let Run { bits, per, words } = self.run;
        let groups = self.groups.count(k as u64) as usize;
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

/// Number `i` of an i32 plane.
#[inline(always)]
pub(super) fn index_at(plane: &[u8], i: usize) -> i64 {
    i64::from(i32::from_le_bytes(plane.as_chunks::<4>().0[i]))
}

/// Refuses an index of `k` inputs with a group that is not there.
pub(super) fn check_groups(role: &'static str, g_idx: &[u8], k: usize, groups: u64) -> Result<(), BadData> {
    let Some(at) = (0..k).find(|i| !(0..groups as i64).contains(&index_at(g_idx, *i))) else { return Ok(()) };
    let wants = format!("one of the {groups} groups, 0 to {}", groups - 1);
    Err(BadData { role, what: "a group index", at, wants, found: index_at(g_idx, at).to_string() })
}

/// `quant_method: gptq`.
///
/// Source: transformers `GPTQConfig`; `dynamic`, by which modules may have other bits and groups than the rest:
/// GPTQModel@f4c327a1, gptqmodel/quantization/config.py.
pub(crate) struct GptqConvention;

struct GptqReading {
    version: Version,
    bits: u64,
    /// `None` for whole rows.
    group: Option<u64>,
    /// Modules may differ from `bits` and `group`.
    dynamic: bool,
    /// Whether `g_idx` may differ from the order of the inputs; `None` if nothing says.
    act: Option<bool>,
}

impl Convention for GptqConvention {
    fn name(&self) -> &'static str {
        "gptq"
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn Reading>, String>> {
        let config = quantization(config, "gptq")?;
        Some(GptqReading::of(config).map(|r| Box::new(r) as Box<dyn Reading>))
    }
}

impl GptqReading {
    fn of(config: &Value) -> Result<GptqReading, String> {
        let bits = &config["bits"];
        let bits = bits.as_u64().filter(|b| [2, 3, 4, 8].contains(b));
        let bits =
            bits.ok_or_else(|| format!("`bits` of gptq: wanted 2, 3, 4 or 8, found {}", config["bits"]))?;
        let version = match config["checkpoint_format"].as_str() {
            None | Some("gptq") => Version::V1,
            Some("gptq_v2") => Version::V2,
            Some(other) => {
                return Err(format!("`checkpoint_format`: wanted `gptq` or `gptq_v2`, found `{other}`"));
            }
        };
        let group = group_size(config)?;
        let dynamic = config["dynamic"].as_object().is_some_and(|d| !d.is_empty());
        Ok(GptqReading { version, bits, group, dynamic, act: config["desc_act"].as_bool() })
    }
}

impl Reading for GptqReading {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight", ".qzeros", ".scales", ".g_idx"]
    }

    fn weight(&self, module: &Module<'_>) -> Result<Option<Weight>, String> {
        let [words, out] = module.shape(".qweight")?;
        let [_, zero_words] = module.shape(".qzeros")?;
        let [groups, _] = module.shape(".scales")?;
        let scales = module.dtype(".scales", &[Dtype::F16, Dtype::BF16, Dtype::F32])?;
        let scales = Float::of(scales).unwrap_or(Float::F16);
        let bits = if self.dynamic { found_bits(zero_words, out).unwrap_or(self.bits) } else { self.bits };
        let inputs = words.checked_mul(32).ok_or("`qweight` is too large")? / bits;
        let mut order = match self.group {
            Some(g) => Groups::Of(g),
            None => Groups::Row,
        };
        if order.count(inputs) != groups {
            let even = (self.dynamic && groups > 0 && inputs.is_multiple_of(groups)).then(|| inputs / groups);
            order = match even {
                Some(g) if g == inputs => Groups::Row,
                Some(g) => Groups::Of(g),
                None => {
                    return Err(format!(
                        "`scales` has {groups} groups, wanted {}: {inputs} inputs, {} to a group",
                        order.count(inputs),
                        self.group.map_or("all".to_owned(), |g| g.to_string())
                    ));
                }
            };
        }
        let mut facts = vec![];
        if module.get(".g_idx").is_some() {
            module.dtype(".g_idx", &[Dtype::I32])?;
            let [found] = module.shape(".g_idx")?;
            let in_order = order.are(inputs, &module.bytes(".g_idx")?);
            match (in_order, self.act) {
                (None, _) => {
                    return Err(format!(
                        "`g_idx` has {found} entries, wanted one for each of {inputs} inputs"
                    ));
                }
                (Some(true), _) => facts.push(".g_idx"),
                (Some(false), Some(false)) => {
                    return Err("`g_idx` is out of order, but `desc_act` is false".to_owned());
                }
                (Some(false), _) => order = Groups::Act(groups),
            }
        } else if self.act == Some(true) {
            module.want(".g_idx")?;
        }
        let codec = Gptq::new(self.version, bits as usize, order, scales);
        let scheme = codec.map(|c| c.name).ok_or_else(|| format!("no gptq of {bits} bits"))?;
        Ok(Some(Weight {
            suffix: ".weight",
            scheme,
            shape: Shape::from([out, inputs]),
            facts,
            renamed: vec![],
        }))
    }
}

/// The bits that so many words for `out` zero points mean.
fn found_bits(words: u64, out: u64) -> Option<u64> {
    [2, 3, 4, 8].into_iter().find(|bits| words.checked_mul(32) == out.checked_mul(*bits))
}

//! The order in which vLLM's Marlin kernels want weights of GPTQ and AWQ: tiles of 16 inputs and 64 outputs.
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `qweight` | `[in / 16, out · bits / 2]` i32 | tile by tile, in the order of the fragments that a warp multiplies |
//! | `scales` | `[groups, out]` | 64 outputs, or 32 where a row has one group, in the order of the fragments |
//! | `qzeros` | `[groups, out · bits / 32]` i32 | of AWQ: in the order of scales, and then as codes in a word |
//!
//! vLLM brings weights into this order after it has loaded them. GPTQ has no zero points there: they are supposed to be in the
//! middle, `2^(bits - 1)`, and weights whose zero points are elsewhere are refused.
//!
//! Source: vLLM 0.33.0, vllm/model_executor/kernels/linear/mixed_precision/marlin.py `process_weights_after_loading`;
//! vllm/model_executor/layers/quantization/utils/marlin_utils.py `marlin_permute_scales`, `marlin_zero_points`,
//! `awq_to_marlin_zero_points`; marlin_utils_test.py `get_weight_perm`, `marlin_weights`, whose results are those of the kernels
//! `gptq_marlin_repack` and `awq_marlin_repack`. golden/marlin.py compares with these functions.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use quant::spelling::{GptqVersion, Scope};
use tensor::{Hold, IN, Lines, OUT, PlaneAxis, PlaneSpec, Scheme, Shape, SharedStage, Stage, StageInput};

/// Inputs of a tile.
const TILE_IN: usize = 16;
/// Outputs of a tile.
const TILE_OUT: usize = 64;
/// Codes of a tile.
const TILE: usize = TILE_IN * TILE_OUT;

/// Sizes of groups that the kernels have. Source: `MARLIN_SUPPORTED_GROUP_SIZES`.
const GROUPS: [u64; 3] = [32, 64, 128];

/// The output that a nibble of AWQ holds. Source: AutoAWQ 0.2.9, `AWQ_ORDER`.
const AWQ_NIBBLE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// The stage that brings weights of one scheme into the order of Marlin.
#[derive(Clone, Debug)]
pub struct Marlin {
    takes: Arc<Scheme>,
    gives: Arc<Scheme>,
    source: Source,
    bits: usize,
    /// Inputs that share a scale; `None` for a whole row.
    group: Option<usize>,
    /// Bytes of a scale.
    scale: usize,
}

/// The ecosystem of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Gptq(GptqVersion),
    Awq,
}

impl Marlin {
    /// The stage for weights that are stored in `scheme`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of(scheme: &Scheme) -> Result<Marlin, String> {
        let none = |why: &str| Err(format!("`{scheme}` has no Marlin order: {why}"));
        let (family, params) = scheme.name.split_once(':').unwrap_or((&scheme.name, ""));
        let params: Vec<&str> = params.split(',').collect();
        let versions = [GptqVersion::V1, GptqVersion::V2];
        let version = versions.into_iter().find(|version| version.family() == family);
        let (source, bits, scope, scales) = match (version, &params[..]) {
            (Some(version), [bits, scope, scales]) => (Source::Gptq(version), *bits, *scope, *scales),
            (None, [scope, scales]) if family == "awq" => (Source::Awq, "b4", *scope, *scales),
            _ => return none("it is neither gptq nor awq"),
        };
        let bits = match bits {
            "b4" => 4,
            "b8" => 8,
            _ => return none("the kernels have 4 bits and 8"),
        };
        let scale = match scales {
            "f16" | "bf16" => 2,
            _ => return none("the kernels have scales of 16 bits"),
        };
        let group = match Scope::parse(scope) {
            Some(Scope::Row) => None,
            Some(Scope::Group(group)) if GROUPS.contains(&group) => usize::try_from(group).ok(),
            Some(Scope::Group(_)) => return none("the kernels have groups of 32, 64 and 128"),
            _ => return none("vLLM has no order of inputs of one's own"),
        };
        let Some(takes) = quant::scheme(&scheme.name) else { return none("it is unknown") };
        let packed = |axis, per: usize| PlaneAxis::Cells { axis, per: per as u64, hold: Hold::Packed };
        let groups = group.map(|g| PlaneAxis::Cells { axis: IN, per: g as u64, hold: Hold::Shared });
        let plane = |role, cell: usize, axes: Vec<PlaneAxis>| PlaneSpec {
            axes: Cow::Owned(axes),
            ..PlaneSpec::new(role, cell as u64, &[])
        };
        let of_group = || groups.into_iter().chain([packed(OUT, TILE_OUT)]).collect::<Vec<_>>();
        let codes = vec![packed(IN, TILE_IN), packed(OUT, TILE_OUT)];
        let mut planes = vec![plane("qweight", TILE * bits / 8, codes)];
        if source == Source::Awq {
            planes.push(plane("qzeros", TILE_OUT * bits / 8, of_group()));
        }
        planes.push(plane("scales", TILE_OUT * scale, of_group()));
        let name = Cow::Owned(format!("marlin-{}", takes.name));
        let gives = Arc::new(Scheme { name, trailing: 2, planes: Cow::Owned(planes) });
        Ok(Marlin { takes, gives, source, bits, group, scale })
    }

    /// The same, to be added to a plan.
    ///
    /// # Errors
    /// As [`Marlin::of`].
    pub fn stage(scheme: &Scheme) -> Result<SharedStage, String> {
        Ok(SharedStage::new(Marlin::of(scheme)?))
    }

    /// Code `(i, o)` of a band of `n` outputs.
    fn code(&self, qweight: &[[u8; 4]], n: usize, i: usize, o: usize) -> u32 {
        let (word, at) = match self.source {
            Source::Gptq(_) => {
                let per = 32 / self.bits;
                (i / per * n + o, i % per * self.bits)
            }
            Source::Awq => (i * (n / 8) + o / 8, 4 * AWQ_NIBBLE[o % 8]),
        };
        u32::from_le_bytes(qweight[word]) >> at & ((1 << self.bits) - 1)
    }

    /// Checks that all zero points of GPTQ are in the middle.
    fn check_zeros(&self, version: GptqVersion, qzeros: &[u8]) -> Result<(), String> {
        let middle = 1u32 << (self.bits - 1);
        let stored = middle - u32::from(version == GptqVersion::V1);
        let word = (0..32 / self.bits).fold(0, |word, i| word | stored << (i * self.bits));
        match qzeros.as_chunks::<4>().0.iter().position(|cell| u32::from_le_bytes(*cell) != word) {
            None => Ok(()),
            Some(at) => Err(format!(
                "vLLM has GPTQ of symmetric weights alone, all of whose zero points are {middle}: word {at} of `qzeros` has others"
            )),
        }
    }
}

impl Stage for Marlin {
    fn name(&self) -> &'static str {
        "marlin"
    }

    fn identity(&self) -> Vec<u8> {
        // The order of codes; raised if it changes.
        vec![1]
    }

    fn takes(&self) -> Arc<Scheme> {
        Arc::clone(&self.takes)
    }

    fn gives(&self) -> Arc<Scheme> {
        Arc::clone(&self.gives)
    }

    fn loses(&self) -> Option<String> {
        None
    }

    /// vLLM fills other shapes up with zeros, which changes what a layer computes with; here they are refused.
    fn fits(&self, shape: &Shape) -> Result<(), String> {
        let [out, inputs] = **shape else {
            return Err(format!("it is for one matrix `[out, in]`, found {shape}"));
        };
        let tiles = |n: u64, k: u64| out.is_multiple_of(n) && inputs.is_multiple_of(k);
        if !tiles(64, 128) && !tiles(128, 64) {
            return Err(format!(
                "{shape} are no whole tiles: wanted outputs and inputs in multiples of 64 and 128, or of 128 and 64"
            ));
        }
        match self.group {
            Some(group) if !inputs.is_multiple_of(group as u64) => {
                Err(format!("{inputs} inputs are no whole groups of {group}"))
            }
            _ => Ok(()),
        }
    }

    fn lines(&self) -> Lines {
        Lines::Columns
    }

    fn unit(&self) -> u64 {
        TILE_IN as u64
    }

    fn apply(&self, input: StageInput<'_>, planes: &mut [&mut [u8]]) -> Result<(), String> {
        let ([qweight, qzeros, scales], n) = (input.planes, input.rows) else {
            return Err(format!("wanted 3 planes, found {}", input.planes.len()));
        };
        let (to_weight, to_zeros, to_scales) = match (self.source, planes) {
            (Source::Gptq(version), [qweight, scales]) => {
                self.check_zeros(version, qzeros)?;
                (qweight, None, scales)
            }
            (Source::Awq, [qweight, qzeros, scales]) => (qweight, Some(qzeros), scales),
            (_, planes) => return Err(format!("wanted as many planes as it gives, found {}", planes.len())),
        };
        let qweight = qweight.as_chunks::<4>().0;
        let order = if self.bits == 4 { &*ORDER_4 } else { &*ORDER_8 };
        let per = 32 / self.bits;
        let words = to_weight.as_chunks_mut::<4>().0;
        for (tile, words) in words.chunks_exact_mut(TILE / per).enumerate() {
            let (top, left) = (tile / (n / TILE_OUT) * TILE_IN, tile % (n / TILE_OUT) * TILE_OUT);
            for (word, places) in words.iter_mut().zip(order.chunks_exact(per)) {
                let mut packed = 0;
                for (e, (i, o)) in places.iter().enumerate() {
                    packed |= self.code(qweight, n, top + i, left + o) << (e * self.bits);
                }
                *word = packed.to_le_bytes();
            }
        }
        let one_group = self.group.is_none_or(|group| group >= input.whole[1]);
        let place = |at: usize| {
            if one_group { at / 32 * 32 + single(at % 32) } else { at / 64 * 64 + grouped(at % 64) }
        };
        let cells = scales.chunks_exact(n * self.scale).zip(to_scales.chunks_exact_mut(n * self.scale));
        for (from, to) in cells {
            for (at, to) in to.chunks_exact_mut(self.scale).enumerate() {
                to.copy_from_slice(&from[place(at) * self.scale..][..self.scale]);
            }
        }
        if let Some(to) = to_zeros {
            let rows = qzeros.as_chunks::<4>().0.chunks_exact(n / 8);
            for (from, to) in rows.zip(to.as_chunks_mut::<4>().0.chunks_exact_mut(n / 8)) {
                for (word, to) in to.iter_mut().enumerate() {
                    let zero = |at: usize| {
                        // Of AWQ's words, and there of its nibbles.
                        let o = at / 64 * 64 + grouped(at % 64);
                        u32::from_le_bytes(from[o / 8]) >> (4 * AWQ_NIBBLE[o % 8]) & 15
                    };
                    let packed = (0..8).fold(0, |all, e| all | zero(word * 8 + IN_WORD_4[e]) << (4 * e));
                    *to = packed.to_le_bytes();
                }
            }
        }
        Ok(())
    }
}

/// The values of a run of eight that a word of four bits has, from the lowest bits on.
const IN_WORD_4: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
/// The same of four, for a word of eight bits.
const IN_WORD_8: [usize; 4] = [0, 2, 1, 3];

/// For each code of a tile, in the order of its words, the input and the output that it belongs to.
static ORDER_4: LazyLock<Vec<(usize, usize)>> = LazyLock::new(|| order(&IN_WORD_4));
static ORDER_8: LazyLock<Vec<(usize, usize)>> = LazyLock::new(|| order(&IN_WORD_8));

/// A tile is four tiles of 16 × 16. A thread of a warp has eight codes of each: of two blocks of eight outputs, inputs in pairs.
fn order(in_word: &[usize]) -> Vec<(usize, usize)> {
    let mut all = Vec::with_capacity(TILE);
    for thread in 0..32 {
        for sub in 0..4 {
            for block in 0..2 {
                for pair in [thread % 4, thread % 4 + 4] {
                    for input in [2 * pair, 2 * pair + 1] {
                        all.push((input, 16 * sub + thread / 4 + 8 * block));
                    }
                }
            }
        }
    }
    all.chunks_exact(in_word.len()).flat_map(|run| in_word.iter().map(|at| run[*at])).collect()
}

/// Where the scale comes from that is at `at` of 64, where rows have several groups.
fn grouped(at: usize) -> usize {
    at / 8 + 8 * (at % 8)
}

/// Where the scale comes from that is at `at` of 32, where rows have one.
fn single(at: usize) -> usize {
    2 * (at / 8) + [0, 1, 8, 9, 16, 17, 24, 25][at % 8]
}

//! Every preset.
//!
//! Source of those that are named as llama.cpp's file types: `llama_tensor_get_type_impl` and `tensor_allows_quantization` of
//! src/llama-quant.cpp, llama.cpp@0c1e57098; `golden/presets` holds what llama-quantize makes of models. Its rules for
//! Falcon, and those for layers by architectures that are no family here, are left out. Source of those of mlx:
//! `quantize_model` of mlx-lm 0.32.2 (utils.py: linear layers and embeddings whose columns are whole groups; routers with
//! 8 bits, as the `quant_predicate` of its mixtures says), and `mixed_quant_predicate_builder` (convert.py).

use super::super::purposes::Purpose::{
    self, AttentionOutput, Down, Embedding, Key, Latent, LatentKeyValue, Matrix, Output, Position, Router,
    TiedEmbedding, Unused, Value, Vector,
};
use super::When::{EightExperts, First, FirstPart, Groups, Guided, MoreBits, Of70B, OfFamily, Stacked};
use super::{Preset, PresetGroup, Rule, To};

const KEPT: To = To::AsStored;
const F32: To = To::Scheme("f32");
const F16: To = To::Scheme("f16");
const BF16: To = To::Scheme("bf16");
const Q8_0: To = To::Scheme("q8_0");
const Q6_K: To = To::Scheme("q6_k");
const Q5_K: To = To::Scheme("q5_k");
const Q5_1: To = To::Scheme("q5_1");
const Q5_0: To = To::Scheme("q5_0");
const Q4_K: To = To::Scheme("q4_k");
const Q4_1: To = To::Scheme("q4_1");
const Q4_0: To = To::Scheme("q4_0");
const IQ4_NL: To = To::Scheme("iq4_nl");
const IQ4_XS: To = To::Scheme("iq4_xs");
const MXFP4: To = To::Scheme("mxfp4");
const Q3_K: To = To::Scheme("q3_k");
const Q2_K: To = To::Scheme("q2_k");
const MLX2: To = To::Scheme("mlx-affine:b2,g64,{}");
const MLX3: To = To::Scheme("mlx-affine:b3,g64,{}");
const MLX4: To = To::Scheme("mlx-affine:b4,g64,{}");
const MLX5: To = To::Scheme("mlx-affine:b5,g64,{}");
const MLX6: To = To::Scheme("mlx-affine:b6,g64,{}");
const MLX8: To = To::Scheme("mlx-affine:b8,g64,{}");
const SQUISH4: To = To::Scheme("squish-q4a:g32");
const SQUISH8: To = To::Scheme("squish-int8:g64");
const CT2_ROWS: To = To::Scheme("ctranslate2-int8:row");
const CT2_KERNELS: To = To::Scheme("ctranslate2-int8:matrix");
const INT8: To = To::Scheme("bnb-int8");
const FP8: To = To::Scheme("fp8:e4m3,b128x128,f32");
const GPTQ4: To = To::Scheme("gptq:b4,g{group},{half}");
const AWQ4: To = To::Scheme("awq:g{group},{half}");

/// Purposes for which `category_is_attn_v` of llama.cpp is true.
const VALUES: &[Purpose] = &[Value, LatentKeyValue];
/// All that has more than one axis, but for the output.
const MATRICES: &[Purpose] = &[Embedding, Value, Key, Latent, LatentKeyValue, AttentionOutput, Down, Matrix];

/// Tensors that llama-quantize does not quantise; vectors are f32 in GGUF.
const LEFT: &[Rule] = &[Rule(&[Vector], &[], F32), Rule(&[Router, Position, Unused], &[], KEPT)];

/// The same, and what the file types of llama.cpp have in common.
const SHARED: &[Rule] = &[
    Rule(&[Vector], &[], F32),
    Rule(&[Router, Position, Unused], &[], KEPT),
    Rule(&[Output, TiedEmbedding], &[], Q6_K),
    Rule(&[Value, LatentKeyValue, Key], &[EightExperts], Q8_0),
];

/// The same tensors in any other format.
const PLAIN: &[Rule] = &[Rule(&[Vector, Router, Position, Unused], &[], KEPT)];

/// Parameters that are neither linear layers nor embeddings in mlx.
const MLX: &[Rule] = &[Rule(&[Vector, Unused], &[], KEPT), Rule(&[Router], &[OfFamily("deepseek_v3")], KEPT)];

/// Routers of mixtures, as the `quant_predicate` of mlx-lm has them.
const ROUTERS: &[Rule] =
    &[Rule(&[Router], &[OfFamily("qwen3moe")], MLX8), Rule(&[Router], &[OfFamily("gpt-oss")], MLX8)];

const RECIPE_4: &[Rule] = &[Rule(&[Output], &[], MLX4), Rule(&[Value, Latent, Down], &[MoreBits], MLX4)];
const RECIPE_6: &[Rule] = &[Rule(&[Output], &[], MLX6), Rule(&[Value, Latent, Down], &[MoreBits], MLX6)];

/// Matrices and embeddings; squish keeps the rest in floats.
const SQUISH: &[Rule] = &[Rule(&[Vector, Router, Position, Unused], &[], KEPT)];

/// CTranslate2 has a scale for each kernel of a convolution, too.
const CT2: &[Rule] =
    &[Rule(&[Vector], &[Stacked], CT2_KERNELS), Rule(&[Vector, Router, Position, Unused], &[], KEPT)];

/// All but the matrices of the layers.
const HF: &[Rule] = &[Rule(&[Vector, Router, Position, Unused, Output, TiedEmbedding, Embedding], &[], KEPT)];

/// Smaller values go with larger models.
const VALUES_70B: Rule = Rule(VALUES, &[Of70B], Q5_K);
/// Attention is a small part of a mixture.
const OUTPUT_OF_8: Rule = Rule(&[AttentionOutput], &[EightExperts], Q5_K);

/// Columns that matter can be far off in the first layers.
const DOWN_4_1: Rule = Rule(&[Down], &[FirstPart(8), Guided(true)], Q4_1);
const DOWN_5_1: Rule = Rule(&[Down], &[FirstPart(8), Guided(true)], Q5_1);

const IQ4: &[Rule] =
    &[Rule(VALUES, &[Groups], Q5_K), Rule(&[Down], &[FirstPart(8), Guided(false)], Q5_K), OUTPUT_OF_8];

/// Every preset, by groups, in the order of bits.
pub static PRESETS: &[Preset] = &[
    ggml("q2_k_s", 21, 3.0, "q2_k; needs an importance matrix", Q2_K).guided("q2_k").rules(&[
        Rule(VALUES, &[Of70B, Groups], Q5_K),
        Rule(VALUES, &[Groups], Q4_K),
        Rule(&[Down], &[FirstPart(8)], Q4_K),
    ]),
    ggml("q2_k", 10, 3.2, "q2_k, and q3_k where it matters", Q2_K).rules(&[
        VALUES_70B,
        Rule(VALUES, &[Groups], Q4_K),
        Rule(VALUES, &[], Q3_K),
        Rule(&[Down], &[], Q3_K),
        OUTPUT_OF_8,
        Rule(&[AttentionOutput], &[], Q3_K),
    ]),
    ggml("q3_k_s", 11, 3.6, "q3_k", Q3_K).rules(&[VALUES_70B, OUTPUT_OF_8]),
    ggml("q3_k_m", 12, 4.0, "q3_k, and q4_k where it matters", Q3_K).or("q3_k").rules(&[
        VALUES_70B,
        Rule(VALUES, &[First(2)], Q5_K),
        Rule(VALUES, &[], Q4_K),
        Rule(&[Down], &[FirstPart(16)], Q5_K),
        Rule(&[Down], &[], Q4_K),
        OUTPUT_OF_8,
        Rule(&[AttentionOutput], &[], Q4_K),
    ]),
    ggml("q3_k_l", 13, 4.3, "q3_k, and q5_k where it matters", Q3_K).rules(&[
        Rule(VALUES, &[], Q5_K),
        Rule(&[Down], &[], Q5_K),
        Rule(&[AttentionOutput], &[EightExperts], Q3_K),
        Rule(&[AttentionOutput], &[], Q5_K),
    ]),
    ggml("mxfp4_moe", 38, 4.4, "mxfp4 for experts, q8_0 for all else", Q8_0).shared(LEFT).rules(&[Rule(
        MATRICES,
        &[Stacked],
        MXFP4,
    )]),
    ggml("iq4_xs", 30, 4.5, "iq4_xs: 16 uneven steps, blocks of 256", IQ4_XS).rules(IQ4),
    ggml("q4_0", 2, 4.6, "q4_0: a scale for 32", Q4_0).rules(&[DOWN_4_1]),
    ggml("q4_k_s", 14, 4.7, "q4_k, and q5_k in the first layers", Q4_K).rules(&[
        Rule(VALUES, &[First(4)], Q5_K),
        VALUES_70B,
        Rule(&[Down], &[FirstPart(8)], Q5_K),
        OUTPUT_OF_8,
    ]),
    ggml("iq4_nl", 25, 4.7, "iq4_nl: 16 uneven steps, blocks of 32", IQ4_NL).rules(IQ4),
    ggml("q4_k_m", 15, 4.9, "q4_k, and q6_k where it matters", Q4_K).or("q4_k").rules(&[
        Rule(VALUES, &[MoreBits], Q6_K),
        VALUES_70B,
        Rule(&[Down], &[MoreBits], Q6_K),
        OUTPUT_OF_8,
    ]),
    ggml("q4_1", 3, 5.1, "q4_1: a scale and an offset for 32", Q4_1),
    ggml("q5_0", 8, 5.6, "q5_0: a scale for 32", Q5_0).rules(&[DOWN_5_1]),
    ggml("q5_k_s", 16, 5.6, "q5_k", Q5_K),
    ggml("q5_k_m", 17, 5.7, "q5_k, and q6_k where it matters", Q5_K)
        .or("q5_k")
        .rules(&[Rule(VALUES, &[MoreBits], Q6_K), Rule(&[Down], &[MoreBits], Q6_K)]),
    ggml("q5_1", 9, 6.0, "q5_1: a scale and an offset for 32", Q5_1),
    ggml("q6_k", 18, 6.6, "q6_k", Q6_K),
    ggml("q8_0", 7, 8.5, "q8_0", Q8_0).shared(LEFT),
    mlx("mixed_2_6", 3.3, "2 bits, and 6 where it matters", MLX2).rules(RECIPE_6),
    mlx("mlx-3bit", 3.5, "3 bits", MLX3).rules(ROUTERS),
    mlx("mixed_3_4", 3.7, "3 bits, and 4 where it matters", MLX3).rules(RECIPE_4),
    mlx("mixed_3_6", 4.1, "3 bits, and 6 where it matters", MLX3).rules(RECIPE_6),
    mlx("mlx-4bit", 4.5, "4 bits", MLX4).rules(ROUTERS),
    mlx("mixed_4_6", 4.9, "4 bits, and 6 where it matters", MLX4).rules(RECIPE_6),
    mlx("mlx-5bit", 5.5, "5 bits", MLX5).rules(ROUTERS),
    mlx("mlx-6bit", 6.5, "6 bits", MLX6).rules(ROUTERS),
    mlx("mlx-8bit", 8.5, "8 bits", MLX8).rules(ROUTERS),
    hf("gptq-4bit", 5.7, "the matrices of the layers, 4 bits, a scale for 128 (or 64, or 32)", GPTQ4),
    hf(
        "awq-4bit",
        5.7,
        "the matrices of the layers, 4 bits, a scale and a zero point for 128 (or 64, or 32)",
        AWQ4,
    ),
    hf("fp8-block", 8.0, "the matrices of the layers, a scale for 128 × 128", FP8),
    hf("int8", 8.0, "the matrices of the layers, a scale a row (bitsandbytes)", INT8),
    squish("squish-4bit", 6.0, "4 bits, a scale and an offset for 32", SQUISH4),
    squish("squish-int8", 8.5, "8 bits, a scale for 64", SQUISH8),
    ct2("ct2-int8", 8.0, "8 bits, a scale a row", CT2_ROWS).rules(&[Rule(
        &[Matrix],
        &[Stacked],
        CT2_KERNELS,
    )]),
    floats("f16", 1, 16.0, F16),
    floats("bf16", 32, 16.0, BF16),
    floats("f32", 0, 32.0, F32),
];

/// A file type of llama.cpp: its number, and `base`, the scheme of matrices that neither its rules nor [`SHARED`] name.
const fn ggml(name: &'static str, file_type: u32, bits: f32, about: &'static str, base: To) -> Preset {
    let rules: [&[Rule]; 2] = [SHARED, &[]];
    let (group, file_type) = (PresetGroup::Gguf, Some(file_type));
    Preset { name, alias: None, group, bits, about, file_type, rules, base, guided: None }
}

/// A preset that mlx-lm has, in groups of 64.
const fn mlx(name: &'static str, bits: f32, about: &'static str, base: To) -> Preset {
    let group = PresetGroup::Mlx;
    Preset { group, file_type: None, ..ggml(name, 0, bits, about, base) }.shared(MLX)
}

/// The matrices of the layers of a directory of transformers.
const fn hf(name: &'static str, bits: f32, about: &'static str, base: To) -> Preset {
    let group = PresetGroup::Hf;
    Preset { group, file_type: None, ..ggml(name, 0, bits, about, base) }.shared(HF)
}

/// What squish reads in directories of arrays.
const fn squish(name: &'static str, bits: f32, about: &'static str, base: To) -> Preset {
    let group = PresetGroup::Squish;
    Preset { group, file_type: None, ..ggml(name, 0, bits, about, base) }.shared(SQUISH)
}

/// What CTranslate2 quantises; other tensors stay in floats.
/// Source: python/ctranslate2/specs/model_spec.py (`_quantize`) of CTranslate2 4.8.5.
const fn ct2(name: &'static str, bits: f32, about: &'static str, base: To) -> Preset {
    let group = PresetGroup::Ctranslate2;
    Preset { group, file_type: None, ..ggml(name, 0, bits, about, base) }.shared(CT2)
}

/// A plain dtype for what llama-quantize touches.
const fn floats(name: &'static str, file_type: u32, bits: f32, base: To) -> Preset {
    Preset { group: PresetGroup::Any, ..ggml(name, file_type, bits, name, base) }.shared(PLAIN)
}

impl Preset {
    const fn shared(self, shared: &'static [Rule]) -> Preset {
        Preset { rules: [shared, self.rules[1]], ..self }
    }

    const fn rules(self, own: &'static [Rule]) -> Preset {
        Preset { rules: [self.rules[0], own], ..self }
    }

    const fn or(self, alias: &'static str) -> Preset {
        Preset { alias: Some(alias), ..self }
    }

    const fn guided(self, scheme: &'static str) -> Preset {
        Preset { guided: Some(scheme), ..self }
    }
}

//! Large checkpoints that take no room on the disk: headers as real ones have them, and holes for data.

mod decoder;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use decoder::{DECODERS, Decoder};

/// What a fixture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixtureSize {
    /// Tensors in all files.
    pub tensors: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Files with tensors.
    pub files: u64,
}

/// A tensor: name, dtype as safetensors writes it, shape.
type Tensor = (String, &'static str, Vec<u64>);

fn bytes((_, dtype, shape): &Tensor) -> u64 {
    let width = match *dtype {
        "F32" => 4,
        "BF16" => 2,
        _ => 1,
    };
    shape.iter().product::<u64>() * width
}

/// Tensors of the two files that [`many_tensors`] makes.
pub const MANY: u64 = 500_000;

/// Makes `many.safetensors` and `many.gguf` in `dir`: half a million small tensors in one header, in each.
pub fn many_tensors(dir: &Path) -> io::Result<FixtureSize> {
    fs::create_dir_all(dir)?;
    let tensor = |i: u64| {
        let name = format!("model.layers.{}.mlp.experts.{}.w{}.weight", i / 300, i / 3 % 100, i % 3);
        (name, "BF16", vec![4, 4])
    };
    let tensors: Vec<Tensor> = (0..MANY).map(tensor).collect();
    let data = safetensors(&dir.join("many.safetensors"), &tensors)?;

    let mut header = b"GGUF".to_vec();
    let text = |header: &mut Vec<u8>, text: &str| {
        header.extend((text.len() as u64).to_le_bytes());
        header.extend(text.as_bytes());
    };
    header.extend(3u32.to_le_bytes());
    header.extend(MANY.to_le_bytes());
    header.extend(1u64.to_le_bytes());
    text(&mut header, "general.architecture");
    header.extend(8u32.to_le_bytes());
    text(&mut header, "llama");
    for (i, (name, _, shape)) in (0u64..).zip(&tensors) {
        text(&mut header, name);
        header.extend(2u32.to_le_bytes());
        shape.iter().rev().for_each(|n| header.extend(n.to_le_bytes()));
        // BF16, as gguf.h numbers it, and each at the alignment of 32.
        header.extend(30u32.to_le_bytes());
        header.extend((32 * i).to_le_bytes());
    }
    header.resize(header.len().next_multiple_of(32), 0);
    fs::write(dir.join("many.gguf"), &header)?;
    File::options().write(true).open(dir.join("many.gguf"))?.set_len(header.len() as u64 + 32 * MANY)?;
    Ok(FixtureSize { tensors: 2 * MANY, bytes: 2 * data, files: 2 })
}

/// Makes in `dir` what deepseek-ai/DeepSeek-V3 is: its names, shapes and dtypes in 163 files of 688 GB, all holes.
///
/// Source: config.json and modeling_deepseek.py of <https://huggingface.co/deepseek-ai/DeepSeek-V3>, and its
/// README_WEIGHTS.md for the layer that predicts a second token and for the blocks of fp8.
pub fn deepseek_v3(dir: &Path) -> io::Result<FixtureSize> {
    mixture(dir, 256)
}

/// The same with 384 experts in each layer, as moonshotai/Kimi-K2 has: a trillion parameters.
pub fn trillion(dir: &Path) -> io::Result<FixtureSize> {
    mixture(dir, 384)
}

fn mixture(dir: &Path, experts: u64) -> io::Result<FixtureSize> {
    const FILES: usize = 163;
    fs::create_dir_all(dir)?;
    let routed = |n: u64| format!("\"n_routed_experts\": {n},");
    fs::write(dir.join("config.json"), CONFIG.replace(&routed(256), &routed(experts)))?;
    let tensors = mixture_tensors(experts);
    let total: u64 = tensors.iter().map(bytes).sum();
    let mut index = format!("{{\"metadata\":{{\"total_size\":{total}}},\"weight_map\":{{");
    let (mut rest, mut before) = (tensors.as_slice(), 0);
    for number in 1..=FILES {
        // As many tensors as bring this file up to its share of the whole.
        let share = total / FILES as u64 * number as u64;
        let mut count = 0;
        while count < rest.len() && (before < share || number == FILES) {
            before += bytes(&rest[count]);
            count += 1;
        }
        let (held, others) = rest.split_at(count);
        let file = format!("model-{number:05}-of-{FILES:06}.safetensors");
        safetensors(&dir.join(&file), held)?;
        for (name, ..) in held {
            let comma = if index.ends_with('{') { "" } else { "," };
            let _ = write!(index, "{comma}\"{name}\":\"{file}\"");
        }
        rest = others;
    }
    index.push_str("}}");
    fs::write(dir.join("model.safetensors.index.json"), index)?;
    Ok(FixtureSize { tensors: tensors.len() as u64, bytes: total, files: FILES as u64 })
}

fn mixture_tensors(experts: u64) -> Vec<Tensor> {
    const HIDDEN: u64 = 7168;
    const VOCAB: u64 = 129_280;
    const LAYERS: u64 = 61;
    let mut all = Vec::new();
    let mut plain = |name: String, shape: &[u64]| all.push((name, "BF16", shape.to_vec()));
    plain("model.embed_tokens.weight".to_owned(), &[VOCAB, HIDDEN]);
    plain("model.norm.weight".to_owned(), &[HIDDEN]);
    plain("lm_head.weight".to_owned(), &[VOCAB, HIDDEN]);
    // The layer after the last predicts a token more.
    let next = format!("model.layers.{LAYERS}");
    plain(format!("{next}.embed_tokens.weight"), &[VOCAB, HIDDEN]);
    plain(format!("{next}.enorm.weight"), &[HIDDEN]);
    plain(format!("{next}.hnorm.weight"), &[HIDDEN]);
    plain(format!("{next}.eh_proj.weight"), &[HIDDEN, 2 * HIDDEN]);
    plain(format!("{next}.shared_head.norm.weight"), &[HIDDEN]);
    plain(format!("{next}.shared_head.head.weight"), &[VOCAB, HIDDEN]);
    for layer in 0..=LAYERS {
        let at = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        for (name, size) in [
            ("input_layernorm", HIDDEN),
            ("post_attention_layernorm", HIDDEN),
            ("self_attn.q_a_layernorm", 1536),
            ("self_attn.kv_a_layernorm", 512),
        ] {
            all.push((at(name), "BF16", vec![size]));
        }
        // fp8 in blocks of 128 × 128, each with a factor.
        let mut matrix = |name: &str, rows: u64, columns: u64| {
            all.push((at(name), "F8_E4M3", vec![rows, columns]));
            let scales = vec![rows.div_ceil(128), columns.div_ceil(128)];
            all.push((format!("model.layers.{layer}.{name}.weight_scale_inv"), "F32", scales));
        };
        // 128 heads of 128 + 64 for q, 128 + 128 for k and v; 512 + 64 are shared by all of them.
        matrix("self_attn.q_a_proj", 1536, HIDDEN);
        matrix("self_attn.q_b_proj", 128 * 192, 1536);
        matrix("self_attn.kv_a_proj_with_mqa", 512 + 64, HIDDEN);
        matrix("self_attn.kv_b_proj", 128 * 256, 512);
        matrix("self_attn.o_proj", HIDDEN, 128 * 128);
        let mut network = |name: &str, size: u64| {
            matrix(&format!("mlp.{name}gate_proj"), size, HIDDEN);
            matrix(&format!("mlp.{name}up_proj"), size, HIDDEN);
            matrix(&format!("mlp.{name}down_proj"), HIDDEN, size);
        };
        if layer < 3 {
            network("", 18_432);
            continue;
        }
        network("shared_experts.", 2048);
        (0..experts).for_each(|expert| network(&format!("experts.{expert}."), 2048));
        all.push((at("mlp.gate"), "BF16", vec![experts, HIDDEN]));
        all.push((format!("model.layers.{layer}.mlp.gate.e_score_correction_bias"), "F32", vec![experts]));
    }
    all
}

/// Writes the header of a safetensors file, and makes it as long as it says; gives the bytes of data.
fn safetensors(path: &Path, tensors: &[Tensor]) -> io::Result<u64> {
    let (head, end) = header(tensors);
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&head)?;
    file.into_inner()?.set_len(head.len() as u64 + end)?;
    Ok(end)
}

/// The header of a safetensors file with its length, and the bytes of data.
fn header(tensors: &[Tensor]) -> (Vec<u8>, u64) {
    let (mut header, mut end) = (String::from("{"), 0);
    for tensor in tensors {
        let (name, dtype, shape) = tensor;
        let (start, comma) = (end, if end == 0 { "" } else { "," });
        end += bytes(tensor);
        let _ = write!(
            header,
            "{comma}\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        );
    }
    header.push('}');
    (safetensors_bytes(&header, &[]), end)
}

/// A safetensors file: the length of its JSON header, the header up to a multiple of 8, data.
pub fn safetensors_bytes(header: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

const CONFIG: &str = r#"{
  "architectures": ["DeepseekV3ForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 0,
  "eos_token_id": 1,
  "ep_size": 1,
  "first_k_dense_replace": 3,
  "hidden_act": "silu",
  "hidden_size": 7168,
  "initializer_range": 0.02,
  "intermediate_size": 18432,
  "kv_lora_rank": 512,
  "max_position_embeddings": 163840,
  "model_type": "deepseek_v3",
  "moe_intermediate_size": 2048,
  "moe_layer_freq": 1,
  "n_group": 8,
  "n_routed_experts": 256,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 61,
  "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  },
  "rms_norm_eps": 1e-06,
  "rope_scaling": {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn"
  },
  "rope_theta": 10000,
  "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid",
  "tie_word_embeddings": false,
  "topk_group": 4,
  "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "v_head_dim": 128,
  "vocab_size": 129280
}
"#;

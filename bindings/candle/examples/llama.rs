//! The llama of candle-transformers, in f32, from a checkpoint of any format: the tokens that it continues a prompt with.
//!
//! `cargo run --release --example llama -- model.gguf "The capital of France is"`

#![allow(clippy::print_stdout, reason = "examples print what they show")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "candle has smaller numbers")]

use std::error::Error;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_transformers::models::llama::{Cache, Config, Llama, Llama3RopeConfig, Llama3RopeType};
use weighbridge::Checkpoint;
use weighbridge::engine::text::{EncodeOptions, SpecialText, tokenizer};
use weighbridge::model::RopeScaling;
use weighbridge_candle::Weights;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (path, prompt) = (args.next().ok_or("wanted a checkpoint")?, args.next().ok_or("wanted a prompt")?);
    let checkpoint = weighbridge::open(path)?;
    let tokenizer = tokenizer(&checkpoint)?;
    let prompt = tokenizer.encode(&prompt, EncodeOptions { add_special: true, parse_special: false })?;
    let tokens = continued(checkpoint, &prompt, 16)?;
    println!("{}", tokenizer.decode(&tokens, SpecialText::Hidden)?);
    Ok(())
}

/// Candle's configuration of a llama in a checkpoint of any format.
///
/// # Errors
/// If it is no model that Weighbridge knows, or no llama as candle has it.
pub fn config(weights: &Weights) -> Result<Config, Box<dyn Error>> {
    let model = weighbridge::describe(weights.checkpoint())?;
    if model.family.name() != "llama" {
        return Err(format!("wanted a llama, found `{}`", model.family.name()).into());
    }
    let config = model.config();
    let rope_scaling = match *config.rope_scaling {
        RopeScaling::None => None,
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            Some(Llama3RopeConfig {
                factor: factor as f32,
                low_freq_factor: low_freq_factor as f32,
                high_freq_factor: high_freq_factor as f32,
                original_max_position_embeddings: original_context as usize,
                rope_type: Llama3RopeType::Llama3,
            })
        }
        ref other => return Err(format!("candle's llama has no rotary frequencies such as {other:?}").into()),
    };
    Ok(Config {
        hidden_size: usize::try_from(*config.hidden)?,
        intermediate_size: usize::try_from(*config.ffn)?,
        vocab_size: usize::try_from(*config.vocab)?,
        num_hidden_layers: usize::try_from(*config.layers)?,
        num_attention_heads: usize::try_from(*config.heads)?,
        num_key_value_heads: usize::try_from(*config.kv_heads)?,
        use_flash_attn: false,
        rms_norm_eps: *config.norm_eps,
        rope_theta: *config.rope_theta as f32,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling,
        max_position_embeddings: usize::try_from(*config.context)?,
        // The output matrix is the embedding if the checkpoint has no other.
        tie_word_embeddings: !weights.contains_tensor("lm_head.weight"),
    })
}

/// The `count` most likely tokens, one after the other, after `prompt`.
///
/// # Errors
/// Every way in which the checkpoint is not this llama; candle's own errors.
pub fn continued(checkpoint: Checkpoint, prompt: &[u32], count: usize) -> Result<Vec<u32>, Box<dyn Error>> {
    let device = Device::Cpu;
    let weights = Weights::of(checkpoint)?;
    let config = config(&weights)?;
    let llama = weights.model(DType::F32, &device, |vb| Llama::load(vb, &config))?;
    let mut cache = Cache::new(true, DType::F32, &config, &device)?;
    let mut tokens = prompt.to_vec();
    let mut done = 0;
    while tokens.len() < prompt.len() + count {
        let input = Tensor::new(&tokens[done..], &device)?.unsqueeze(0)?;
        let logits = llama.forward(&input, done, &mut cache)?;
        done = tokens.len();
        tokens.push(logits.argmax(D::Minus1)?.squeeze(0)?.to_scalar()?);
    }
    Ok(tokens.split_off(prompt.len()))
}

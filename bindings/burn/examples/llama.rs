//! A llama written in burn, in f32, from a checkpoint of any format: the tokens that it continues a prompt with.
//!
//! `cargo run --release --example llama -- model.gguf "The capital of France is"`

#![allow(clippy::print_stdout, reason = "examples print what they show")]
#![allow(clippy::cast_possible_truncation, reason = "angles are f32")]
#![allow(clippy::struct_field_names, reason = "fields have the names of Hugging Face")]

use std::error::Error;
use std::num::TryFromIntError;

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::store::{ModuleSnapshot, ModuleStore};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use weighbridge::engine::text::{EncodeOptions, SpecialText, tokenizer};
use weighbridge::model::{Config, RopeScaling};
use weighbridge::{Checkpoint, Dtype};
use weighbridge_burn::CheckpointStore;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (path, prompt) = (args.next().ok_or("wanted a checkpoint")?, args.next().ok_or("wanted a prompt")?);
    let checkpoint = weighbridge::open(path)?;
    let tokenizer = tokenizer(&checkpoint)?;
    let prompt = tokenizer.encode(&prompt, EncodeOptions { add_special: true, parse_special: false })?;
    let tokens = load(&checkpoint, &Device::default())?.continued(&prompt, 16)?;
    println!("{}", tokenizer.decode(&tokens, SpecialText::Hidden)?);
    Ok(())
}

/// The fields have the names of Hugging Face, and so the parameters do.
#[derive(Module, Debug)]
pub struct Llama {
    model: Decoder,
    /// None if the output matrix is the embedding.
    lm_head: Option<Linear>,
    heads: usize,
    kv_heads: usize,
    rope_theta: f64,
}

#[derive(Module, Debug)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
}

#[derive(Module, Debug)]
struct Layer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
}

#[derive(Module, Debug)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

/// A llama with the weights of `checkpoint`.
///
/// # Errors
/// Every way in which the checkpoint is not this llama.
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Llama, Box<dyn Error>> {
    let model = weighbridge::describe(checkpoint)?;
    if model.family.name() != "llama" || *model.config().rope_scaling != RopeScaling::None {
        return Err("wanted a llama whose rotary frequencies are not scaled".into());
    }
    let mut store = CheckpointStore::planned(checkpoint, Dtype::F32, |builder| builder)?;
    let mut llama = Llama::new(model.config(), device)?;
    if store.get_tensor("lm_head.weight")?.is_none() {
        llama.lm_head = None;
    }
    // No parameter was initialised: each is filled now.
    let found = llama.load_from(&mut store)?;
    if !found.unused.is_empty() {
        return Err(format!("the llama does without tensors of the checkpoint:\n{found}").into());
    }
    Ok(llama)
}

impl Llama {
    /// A llama without weights.
    ///
    /// # Errors
    /// If a size does not fit this machine.
    pub fn new(config: &Config, device: &Device) -> Result<Llama, TryFromIntError> {
        let hidden = usize::try_from(*config.hidden)?;
        let ffn = usize::try_from(*config.ffn)?;
        let (heads, kv_heads) = (usize::try_from(*config.heads)?, usize::try_from(*config.kv_heads)?);
        let kv = hidden / heads * kv_heads;
        let linear = |from: usize, to: usize| LinearConfig::new(from, to).with_bias(false).init(device);
        let norm = || RmsNormConfig::new(hidden).with_epsilon(*config.norm_eps).init(device);
        let layer = |_| Layer {
            input_layernorm: norm(),
            self_attn: Attention {
                q_proj: linear(hidden, hidden),
                k_proj: linear(hidden, kv),
                v_proj: linear(hidden, kv),
                o_proj: linear(hidden, hidden),
            },
            post_attention_layernorm: norm(),
            mlp: Mlp {
                gate_proj: linear(hidden, ffn),
                up_proj: linear(hidden, ffn),
                down_proj: linear(ffn, hidden),
            },
        };
        let vocab = usize::try_from(*config.vocab)?;
        let model = Decoder {
            embed_tokens: EmbeddingConfig::new(vocab, hidden).init(device),
            layers: (0..*config.layers).map(layer).collect(),
            norm: norm(),
        };
        let lm_head = Some(linear(hidden, vocab));
        Ok(Llama { model, lm_head, heads, kv_heads, rope_theta: *config.rope_theta })
    }

    /// The `count` most likely tokens, one after the other, after `prompt`. All positions are computed each time.
    ///
    /// # Errors
    /// If burn cannot give the logits.
    pub fn continued(&self, prompt: &[u32], count: usize) -> Result<Vec<u32>, Box<dyn Error>> {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let logits = self.logits(&tokens).try_into_vec_as::<f32>()?;
            let best =
                logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
            tokens.push(u32::try_from(best)?);
        }
        Ok(tokens.split_off(prompt.len()))
    }

    /// The logits after `tokens`: `[vocabulary]`.
    pub fn logits(&self, tokens: &[u32]) -> Tensor<1> {
        let table = self.model.embed_tokens.weight.val();
        let device = table.device();
        let count = tokens.len();
        let ids: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, count]), &device);
        let mut x = self.model.embed_tokens.forward(ids).squeeze_dim::<2>(0);
        let hidden = x.dims()[1];
        let (cos, sin) = self.rotations(count, hidden / self.heads, &device);
        // A position sees itself and those before it.
        let hides = Tensor::<2, Bool>::tril_mask([count, count], 0, &device);
        let hides = hides.unsqueeze::<3>().expand([self.heads, count, count]);
        for layer in &self.model.layers {
            let h = layer.input_layernorm.forward(x.clone());
            let attention = &layer.self_attn;
            let rotated = |x: Tensor<2>, heads: usize| {
                let x = per_head(x, heads);
                let half = x.dims()[2] / 2;
                let (low, high) = (x.clone().narrow(2, 0, half), x.clone().narrow(2, half, half));
                x * cos.clone() + Tensor::cat(vec![high.neg(), low], 2) * sin.clone()
            };
            let q = rotated(attention.q_proj.forward(h.clone()), self.heads);
            let k = self.shared(rotated(attention.k_proj.forward(h.clone()), self.kv_heads));
            let v = self.shared(per_head(attention.v_proj.forward(h), self.kv_heads));
            let scores = q.matmul(k.swap_dims(1, 2)) / ((hidden / self.heads) as f32).sqrt();
            let scores = scores.mask_fill(hides.clone(), f32::NEG_INFINITY);
            let seen = softmax(scores, 2).matmul(v).swap_dims(0, 1).reshape([count, hidden]);
            x = x + attention.o_proj.forward(seen);
            let h = layer.post_attention_layernorm.forward(x.clone());
            let gate = silu(layer.mlp.gate_proj.forward(h.clone()));
            x = x + layer.mlp.down_proj.forward(gate * layer.mlp.up_proj.forward(h));
        }
        let last = self.model.norm.forward(x.narrow(0, count - 1, 1));
        let logits = match &self.lm_head {
            Some(head) => head.forward(last),
            None => last.matmul(table.transpose()),
        };
        logits.squeeze_dim(0)
    }

    /// Cosines and sines of the positions' rotations: `[1, positions, head]`.
    fn rotations(&self, positions: usize, head: usize, device: &Device) -> (Tensor<3>, Tensor<3>) {
        let angle = |at: usize, i: usize| {
            let turn = self.rope_theta.powf(-((i % (head / 2) * 2) as f64) / head as f64);
            (at as f64 * turn) as f32
        };
        let angles: Vec<f32> = (0..positions).flat_map(|at| (0..head).map(move |i| angle(at, i))).collect();
        let angles = Tensor::<3>::from_data(TensorData::new(angles, [1, positions, head]), device);
        (angles.clone().cos(), angles.sin())
    }

    /// Keys or values for each head of queries: several have one in common.
    fn shared(&self, x: Tensor<3>) -> Tensor<3> {
        let [heads, positions, head] = x.dims();
        let each = self.heads / heads;
        x.unsqueeze_dim::<4>(1).expand([heads, each, positions, head]).reshape([
            heads * each,
            positions,
            head,
        ])
    }
}

/// `[positions, heads * head]` as `[heads, positions, head]`.
fn per_head(x: Tensor<2>, heads: usize) -> Tensor<3> {
    let [positions, width] = x.dims();
    x.reshape([positions, heads, width / heads]).swap_dims(0, 1)
}

//! Whisper's names in OpenAI's own files, which whisper.cpp keeps. The output matrix is the token embedding, always.
//!
//! Source: whisper/model.py of openai-whisper 20250625 (`Whisper`, `ModelDimensions`).

use crate::config::describe::Description;
use crate::config::{Config, Encoder};
use crate::dialect::Rule;
use crate::ecosystem::DialectName;

/// What the checkpoint calls it.
pub(super) static ARCHITECTURE: &[&str] = &["whisper"];

/// The sizes.
pub(super) fn describe(c: &Config, encoder: &Encoder) -> Description {
    let mut d = Description::new(DialectName::Openai);
    d.text("architecture", ARCHITECTURE[0]);
    d.count("n_vocab", *c.vocab);
    d.count("n_audio_ctx", *encoder.context);
    d.count("n_audio_state", *c.hidden);
    d.count("n_audio_head", *encoder.heads);
    d.count("n_audio_layer", *encoder.layers);
    d.count("n_text_ctx", *c.context);
    d.count("n_text_state", *c.hidden);
    d.count("n_text_head", *c.heads);
    d.count("n_text_layer", *c.layers);
    d.count("n_mels", *encoder.mels);
    d
}

pub(super) static RULES: &[Rule] = &[
    Rule::same("enc.conv1.weight", "encoder.conv1.weight"),
    Rule::same("enc.conv1.bias", "encoder.conv1.bias"),
    Rule::same("enc.conv2.weight", "encoder.conv2.weight"),
    Rule::same("enc.conv2.bias", "encoder.conv2.bias"),
    Rule::same("enc.position_embedding.weight", "encoder.positional_embedding"),
    Rule::same("enc.layers.{n}.attention_norm.weight", "encoder.blocks.{n}.attn_ln.weight"),
    Rule::same("enc.layers.{n}.attention_norm.bias", "encoder.blocks.{n}.attn_ln.bias"),
    Rule::same("enc.layers.{n}.attention.q.weight", "encoder.blocks.{n}.attn.query.weight"),
    Rule::same("enc.layers.{n}.attention.q.bias", "encoder.blocks.{n}.attn.query.bias"),
    Rule::same("enc.layers.{n}.attention.k.weight", "encoder.blocks.{n}.attn.key.weight"),
    Rule::same("enc.layers.{n}.attention.v.weight", "encoder.blocks.{n}.attn.value.weight"),
    Rule::same("enc.layers.{n}.attention.v.bias", "encoder.blocks.{n}.attn.value.bias"),
    Rule::same("enc.layers.{n}.attention.output.weight", "encoder.blocks.{n}.attn.out.weight"),
    Rule::same("enc.layers.{n}.attention.output.bias", "encoder.blocks.{n}.attn.out.bias"),
    Rule::same("enc.layers.{n}.ffn_norm.weight", "encoder.blocks.{n}.mlp_ln.weight"),
    Rule::same("enc.layers.{n}.ffn_norm.bias", "encoder.blocks.{n}.mlp_ln.bias"),
    Rule::same("enc.layers.{n}.ffn.up.weight", "encoder.blocks.{n}.mlp.0.weight"),
    Rule::same("enc.layers.{n}.ffn.up.bias", "encoder.blocks.{n}.mlp.0.bias"),
    Rule::same("enc.layers.{n}.ffn.down.weight", "encoder.blocks.{n}.mlp.2.weight"),
    Rule::same("enc.layers.{n}.ffn.down.bias", "encoder.blocks.{n}.mlp.2.bias"),
    Rule::same("enc.output_norm.weight", "encoder.ln_post.weight"),
    Rule::same("enc.output_norm.bias", "encoder.ln_post.bias"),
    Rule::same("token_embedding.weight", "decoder.token_embedding.weight"),
    Rule::same("position_embedding.weight", "decoder.positional_embedding"),
    Rule::same("layers.{n}.attention_norm.weight", "decoder.blocks.{n}.attn_ln.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "decoder.blocks.{n}.attn_ln.bias"),
    Rule::same("layers.{n}.attention.q.weight", "decoder.blocks.{n}.attn.query.weight"),
    Rule::same("layers.{n}.attention.q.bias", "decoder.blocks.{n}.attn.query.bias"),
    Rule::same("layers.{n}.attention.k.weight", "decoder.blocks.{n}.attn.key.weight"),
    Rule::same("layers.{n}.attention.v.weight", "decoder.blocks.{n}.attn.value.weight"),
    Rule::same("layers.{n}.attention.v.bias", "decoder.blocks.{n}.attn.value.bias"),
    Rule::same("layers.{n}.attention.output.weight", "decoder.blocks.{n}.attn.out.weight"),
    Rule::same("layers.{n}.attention.output.bias", "decoder.blocks.{n}.attn.out.bias"),
    Rule::same("layers.{n}.cross_attn_norm.weight", "decoder.blocks.{n}.cross_attn_ln.weight"),
    Rule::same("layers.{n}.cross_attn_norm.bias", "decoder.blocks.{n}.cross_attn_ln.bias"),
    Rule::same("layers.{n}.cross_attn.q.weight", "decoder.blocks.{n}.cross_attn.query.weight"),
    Rule::same("layers.{n}.cross_attn.q.bias", "decoder.blocks.{n}.cross_attn.query.bias"),
    Rule::same("layers.{n}.cross_attn.k.weight", "decoder.blocks.{n}.cross_attn.key.weight"),
    Rule::same("layers.{n}.cross_attn.v.weight", "decoder.blocks.{n}.cross_attn.value.weight"),
    Rule::same("layers.{n}.cross_attn.v.bias", "decoder.blocks.{n}.cross_attn.value.bias"),
    Rule::same("layers.{n}.cross_attn.output.weight", "decoder.blocks.{n}.cross_attn.out.weight"),
    Rule::same("layers.{n}.cross_attn.output.bias", "decoder.blocks.{n}.cross_attn.out.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "decoder.blocks.{n}.mlp_ln.weight"),
    Rule::same("layers.{n}.ffn_norm.bias", "decoder.blocks.{n}.mlp_ln.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "decoder.blocks.{n}.mlp.0.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "decoder.blocks.{n}.mlp.0.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "decoder.blocks.{n}.mlp.2.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "decoder.blocks.{n}.mlp.2.bias"),
    Rule::same("output_norm.weight", "decoder.ln.weight"),
    Rule::same("output_norm.bias", "decoder.ln.bias"),
];

/// Tensors that are not read.
pub(super) static DROPS: &[(&str, &str)] =
    &[("alignment_heads", "for the times of words"), ("decoder.mask", "the causal mask, a constant")];

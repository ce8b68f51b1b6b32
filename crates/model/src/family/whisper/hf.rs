//! Whisper's names in transformers.

use crate::config::describe::Description;
use crate::config::{Config, Encoder, WithoutEffect};
use crate::dialect::Rule;
use crate::ecosystem::DialectName;

/// The configuration of a model that has the parameters of which `own` is true.
pub(super) fn describe(c: &Config, encoder: &Encoder, own: &dyn Fn(&str) -> bool) -> Description {
    let mut d = Description::new(DialectName::Hf);
    d.named("WhisperForConditionalGeneration", "whisper");
    d.text("activation_function", c.activation.name());
    d.flag("is_encoder_decoder", true);
    d.count("d_model", *c.hidden);
    d.count("encoder_layers", *encoder.layers);
    d.count("encoder_attention_heads", *encoder.heads);
    d.count("encoder_ffn_dim", *encoder.ffn);
    d.count("decoder_layers", *c.layers);
    d.count("decoder_attention_heads", *c.heads);
    d.count("decoder_ffn_dim", *c.ffn);
    d.count("max_source_positions", *encoder.context);
    d.count("max_target_positions", *c.context);
    d.count("num_mel_bins", *encoder.mels);
    d.count("vocab_size", *c.vocab);
    d.flag("tie_word_embeddings", !own("output.weight"));
    d
}

macro_rules! linear {
    ($param:literal, $entry:literal) => {
        Rule::same(concat!($param, ".weight"), concat!($entry, ".weight"))
    };
    ($param:literal, $entry:literal, bias) => {
        Rule::same(concat!($param, ".bias"), concat!($entry, ".bias"))
    };
}

pub(super) static RULES: &[Rule] = &[
    linear!("enc.conv1", "encoder.conv1"),
    linear!("enc.conv1", "encoder.conv1", bias),
    linear!("enc.conv2", "encoder.conv2"),
    linear!("enc.conv2", "encoder.conv2", bias),
    linear!("enc.position_embedding", "encoder.embed_positions"),
    linear!("enc.layers.{n}.attention_norm", "encoder.layers.{n}.self_attn_layer_norm"),
    linear!("enc.layers.{n}.attention_norm", "encoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("enc.layers.{n}.attention.q", "encoder.layers.{n}.self_attn.q_proj"),
    linear!("enc.layers.{n}.attention.q", "encoder.layers.{n}.self_attn.q_proj", bias),
    linear!("enc.layers.{n}.attention.k", "encoder.layers.{n}.self_attn.k_proj"),
    linear!("enc.layers.{n}.attention.v", "encoder.layers.{n}.self_attn.v_proj"),
    linear!("enc.layers.{n}.attention.v", "encoder.layers.{n}.self_attn.v_proj", bias),
    linear!("enc.layers.{n}.attention.output", "encoder.layers.{n}.self_attn.out_proj"),
    linear!("enc.layers.{n}.attention.output", "encoder.layers.{n}.self_attn.out_proj", bias),
    linear!("enc.layers.{n}.ffn_norm", "encoder.layers.{n}.final_layer_norm"),
    linear!("enc.layers.{n}.ffn_norm", "encoder.layers.{n}.final_layer_norm", bias),
    linear!("enc.layers.{n}.ffn.up", "encoder.layers.{n}.fc1"),
    linear!("enc.layers.{n}.ffn.up", "encoder.layers.{n}.fc1", bias),
    linear!("enc.layers.{n}.ffn.down", "encoder.layers.{n}.fc2"),
    linear!("enc.layers.{n}.ffn.down", "encoder.layers.{n}.fc2", bias),
    linear!("enc.output_norm", "encoder.layer_norm"),
    linear!("enc.output_norm", "encoder.layer_norm", bias),
    linear!("token_embedding", "decoder.embed_tokens"),
    linear!("position_embedding", "decoder.embed_positions"),
    linear!("layers.{n}.attention_norm", "decoder.layers.{n}.self_attn_layer_norm"),
    linear!("layers.{n}.attention_norm", "decoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("layers.{n}.attention.q", "decoder.layers.{n}.self_attn.q_proj"),
    linear!("layers.{n}.attention.q", "decoder.layers.{n}.self_attn.q_proj", bias),
    linear!("layers.{n}.attention.k", "decoder.layers.{n}.self_attn.k_proj"),
    linear!("layers.{n}.attention.v", "decoder.layers.{n}.self_attn.v_proj"),
    linear!("layers.{n}.attention.v", "decoder.layers.{n}.self_attn.v_proj", bias),
    linear!("layers.{n}.attention.output", "decoder.layers.{n}.self_attn.out_proj"),
    linear!("layers.{n}.attention.output", "decoder.layers.{n}.self_attn.out_proj", bias),
    linear!("layers.{n}.cross_attn_norm", "decoder.layers.{n}.encoder_attn_layer_norm"),
    linear!("layers.{n}.cross_attn_norm", "decoder.layers.{n}.encoder_attn_layer_norm", bias),
    linear!("layers.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn.q_proj"),
    linear!("layers.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn.q_proj", bias),
    linear!("layers.{n}.cross_attn.k", "decoder.layers.{n}.encoder_attn.k_proj"),
    linear!("layers.{n}.cross_attn.v", "decoder.layers.{n}.encoder_attn.v_proj"),
    linear!("layers.{n}.cross_attn.v", "decoder.layers.{n}.encoder_attn.v_proj", bias),
    linear!("layers.{n}.cross_attn.output", "decoder.layers.{n}.encoder_attn.out_proj"),
    linear!("layers.{n}.cross_attn.output", "decoder.layers.{n}.encoder_attn.out_proj", bias),
    linear!("layers.{n}.ffn_norm", "decoder.layers.{n}.final_layer_norm"),
    linear!("layers.{n}.ffn_norm", "decoder.layers.{n}.final_layer_norm", bias),
    linear!("layers.{n}.ffn.up", "decoder.layers.{n}.fc1"),
    linear!("layers.{n}.ffn.up", "decoder.layers.{n}.fc1", bias),
    linear!("layers.{n}.ffn.down", "decoder.layers.{n}.fc2"),
    linear!("layers.{n}.ffn.down", "decoder.layers.{n}.fc2", bias),
    linear!("output_norm", "decoder.layer_norm"),
    linear!("output_norm", "decoder.layer_norm", bias),
    Rule::unprefixed("output.weight", "proj_out.weight"),
];

pub(super) static WITHOUT_EFFECT: &WithoutEffect = &[
    ("is_encoder_decoder", "it names the family"),
    ("num_hidden_layers", "`encoder_layers` and `decoder_layers` say it"),
    ("num_attention_heads", "`encoder_attention_heads` says it"),
    ("num_key_value_heads", "`encoder_attention_heads` says it"),
    ("hidden_size", "`d_model` says it"),
    ("*dropout", "for training"),
    ("*_layerdrop", "for training"),
    ("init_std", "for training"),
    ("apply_spec_augment", "for training"),
    ("mask_*", "for training"),
    ("classifier_proj_size", "for another head"),
    ("use_weighted_layer_sum", "for another head"),
    ("median_filter_width", "for the times of words"),
    ("alignment_heads", "for the times of words"),
    ("lang_ids", "for the program that runs it"),
    ("rope_parameters*", "positions are learned"),
    ("rope_theta", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
];

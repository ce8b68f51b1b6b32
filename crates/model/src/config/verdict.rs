//! The verdict on each key of a configuration.
//!
//! A key is used, checked, without effect, or unknown. There is no other outcome: each key that the [`Reader`] was not
//! asked for is looked up in tables of keys without effect, and is unknown if it is not there.
//!
//! [`Reader`]: super::Reader

use std::collections::BTreeMap;
use std::fmt;

use crate::{DialectName, Fact, Facts};

/// The verdict on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The model uses it.
    Used,
    /// Only some values are supported, and this is one of them.
    Checked,
    /// This value changes results, and the engine does not follow it.
    NotFollowed {
        /// The values that are followed.
        wanted: String,
    },
    /// It does not change results, for this reason.
    WithoutEffect(&'static str),
    /// The key is unknown.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Used => f.write_str("used"),
            Verdict::Checked => f.write_str("checked"),
            Verdict::NotFollowed { wanted } => write!(f, "not followed: wanted {wanted}"),
            Verdict::WithoutEffect(why) => write!(f, "without effect: {why}"),
            Verdict::Unknown => f.write_str("unknown"),
        }
    }
}

/// A key, its value, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyVerdict {
    /// The key; dots descend into objects.
    pub key: String,
    /// The value, cut to a length that can be shown.
    pub value: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// A value that changes results and that the engine does not follow; weights are moved all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFollowed {
    /// The key.
    pub key: String,
    /// Its value.
    pub found: String,
    /// The values that are followed.
    pub wanted: String,
}

impl fmt::Display for NotFollowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, wanted {}", self.key, self.found, self.wanted)
    }
}

/// Keys without effect, each with the reason. A key may begin or end with a star; dots descend.
pub type WithoutEffect = [(&'static str, &'static str)];

const PROGRAM: &str = "of the program that wrote it";
const TRAINING: &str = "for training";
const OTHER_HEAD: &str = "for another head";
const RUNNING: &str = "for the program that runs it";
const SAMPLING: &str = "for sampling, where generation_config.json says it";
const NO_EXPERTS: &str = "the family has no experts, and no tensors of any";
const STORED: &str = "each tensor has its own";

/// Keys of every config.json. Source: transformers configuration_utils.py@v5.23 and @v4.57, `PreTrainedConfig`.
static HF: &WithoutEffect = &[
    ("transformers_version", PROGRAM),
    ("_name_or_path", PROGRAM),
    ("_commit_hash", PROGRAM),
    ("_attn_implementation*", RUNNING),
    ("attn_implementation", RUNNING),
    ("experts_implementation*", RUNNING),
    ("name_or_path", PROGRAM),
    ("auto_map", "it names code, which is never run"),
    ("architectures", "it names the family"),
    ("model_type", "it names the family"),
    ("dtype", STORED),
    ("torch_dtype", STORED),
    ("initializer_range", TRAINING),
    ("attention_dropout", TRAINING),
    ("use_cache", RUNNING),
    ("pretraining_tp", "it splits products in another order, with the same result"),
    ("output_hidden_states", RUNNING),
    ("output_attentions", RUNNING),
    ("return_dict", RUNNING),
    ("is_encoder_decoder", "the family says it"),
    ("rope_scaling", "empty"),
    ("rope_parameters", "empty"),
    ("chunk_size_feed_forward", "it splits products in another order, with the same result"),
    ("id2label*", OTHER_HEAD),
    ("label2id*", OTHER_HEAD),
    ("num_labels", OTHER_HEAD),
    ("problem_type", "for training"),
    ("sentence_transformers*", RUNNING),
    ("sbert_ce_default_activation_function", RUNNING),
    ("classifier_dropout", TRAINING),
    ("finetuning_task", TRAINING),
    ("task_specific_params*", RUNNING),
    ("tokenizer_class", "tokenizer.json says it"),
    ("prefix", RUNNING),
    ("torchscript", RUNNING),
    ("use_bfloat16", TRAINING),
    ("tf_legacy_loss", TRAINING),
    ("bos_token_id", "the tokenizer says it"),
    ("eos_token_id", "it ends a text, and is read with the tokenizer"),
    ("pad_token_id", "it fills batches"),
    ("sep_token_id", "the tokenizer says it"),
    ("decoder_start_token_id", "it begins a text of an encoder and decoder"),
    // Defaults of generation, which transformers 4 wrote here, too.
    ("max_length", SAMPLING),
    ("min_length", SAMPLING),
    ("do_sample", SAMPLING),
    ("early_stopping", SAMPLING),
    ("num_beams", SAMPLING),
    ("num_beam_groups", SAMPLING),
    ("diversity_penalty", SAMPLING),
    ("temperature", SAMPLING),
    ("top_k", SAMPLING),
    ("top_p", SAMPLING),
    ("typical_p", SAMPLING),
    ("repetition_penalty", SAMPLING),
    ("length_penalty", SAMPLING),
    ("no_repeat_ngram_size", SAMPLING),
    ("encoder_no_repeat_ngram_size", SAMPLING),
    ("bad_words_ids", SAMPLING),
    ("num_return_sequences", SAMPLING),
    ("output_scores", SAMPLING),
    ("return_dict_in_generate", SAMPLING),
    ("forced_bos_token_id", SAMPLING),
    ("forced_eos_token_id", SAMPLING),
    ("remove_invalid_values", SAMPLING),
    ("exponential_decay_length_penalty", SAMPLING),
    ("suppress_tokens", SAMPLING),
    ("begin_suppress_tokens", SAMPLING),
    // Which of a module's tensors are one weight is found by their names, and checked where they are read.
    ("quantization", "read where weights are put together"),
    ("quantization_config", "read where weights are put together"),
    ("compression_config", "read where weights are put together"),
    ("quantization.*", "read where weights are put together"),
    ("quantization_config.*", "read where weights are put together"),
    ("compression_config.*", "read where weights are put together"),
    // Other parts of the model.
    ("vision_config*", "for the vision part"),
    ("audio_config*", "for the audio part"),
    ("image_token_index", "for the vision part"),
    ("image_token_id", "for the vision part"),
    ("boi_token_index", "for the vision part"),
    ("eoi_token_index", "for the vision part"),
    ("mm_tokens_per_image", "for the vision part"),
    ("projector_hidden_act", "for the vision part"),
    ("vision_feature_layer", "for the vision part"),
    ("vision_feature_select_strategy", "for the vision part"),
    ("multimodal_projector_bias", "for the vision part"),
];

/// Keys of every GGUF file. Source: gguf-py/gguf/constants.py@0c1e57098.
static GGUF: &WithoutEffect = &[
    ("general.architecture", "it names the family"),
    ("general.tensor_extra.*", "which products may have activations of four bits, where a program has them"),
    ("general.type", "of the file"),
    ("general.alignment", "of the file"),
    ("general.file_type", STORED),
    ("general.quantization_version", "of the file"),
    ("general.quantized_by", "of the file"),
    ("general.name", "about the model"),
    ("general.basename", "about the model"),
    ("general.finetune", "about the model"),
    ("general.author", "about the model"),
    ("general.version", "about the model"),
    ("general.organization", "about the model"),
    ("general.description", "about the model"),
    ("general.size_label", "about the model"),
    ("general.license*", "about the model"),
    ("general.url", "about the model"),
    ("general.doi", "about the model"),
    ("general.uuid", "about the model"),
    ("general.repo_url", "about the model"),
    ("general.source.*", "about the model"),
    ("general.base_model.*", "about the model"),
    ("general.dataset.*", "about the model"),
    ("general.datasets", "about the model"),
    ("general.tags", "about the model"),
    ("general.languages", "about the model"),
    ("*.rope.scaling.original_context_length", "frequencies are not stretched"),
    ("*.rope.scaling.yarn_log_multiplier", "frequencies are not stretched"),
    ("*.rope.scaling.finetuned", "llama.cpp computes nothing from it"),
    ("*.rope.scale_linear", "`rope.scaling.factor` says it"),
    ("*.pooling_type", OTHER_HEAD),
    ("*.classifier.output_labels", OTHER_HEAD),
    ("*.expert_count", NO_EXPERTS),
    ("*.expert_used_count", NO_EXPERTS),
    ("*.expert_group_count", NO_EXPERTS),
    ("*.expert_group_used_count", NO_EXPERTS),
    ("quantize.*", "how it was made"),
    ("split.*", "of the file"),
    // Read by the tokenizer and the sampler, which have tables of their own.
    ("tokenizer.*", "read with the tokenizer"),
    ("general.sampling.*", "read with the sampler"),
];

/// Keys of every model of CTranslate2.
static CTRANSLATE2: &WithoutEffect = &[("spec", "it names the family")];

/// Keys of every model of OpenAI.
static OPENAI: &WithoutEffect = &[("architecture", "it names the family"), ("ftype", STORED)];

/// Keys of GGUF that every decoder's file may have and do not change what it computes.
pub static GGUF_DECODER_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.attention.key_length", "the shapes say it"),
    ("*.vocab_size", "the tokens say it"),
    ("*.rope.dimension_count", "positions are learned"),
    ("*.rope.scaling.finetuned", "llama.cpp computes nothing from it"),
    ("*.attention.causal", "a decoder"),
];

/// Matches `key` against `pattern`, which may begin or end with a star.
pub(crate) fn fits(pattern: &str, key: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => key.ends_with(end),
        (_, Some(start)) => key.starts_with(start),
        _ => key == pattern,
    }
}

/// The verdict on every key of `facts`: `noted` are the keys that were read, `own` is the family's table.
pub(crate) fn verdicts(
    facts: &dyn Facts,
    noted: &BTreeMap<String, Verdict>,
    own: &WithoutEffect,
) -> Vec<KeyVerdict> {
    let common = match facts.dialect() {
        DialectName::Gguf => GGUF,
        DialectName::Hf => HF,
        DialectName::Ctranslate2 => CTRANSLATE2,
        DialectName::Openai => OPENAI,
    };
    let without_effect = |key: &str| {
        let inner = key.strip_prefix("text_config.").unwrap_or(key);
        let found = own.iter().chain(common).find(|(pattern, _)| fits(pattern, inner));
        found.map(|(_, why)| Verdict::WithoutEffect(why))
    };
    let verdict = |(key, value): (String, Fact)| {
        let noted = noted.get(&key).cloned();
        // Absent and null are the same, but where somebody asked.
        if noted.is_none() && value == Fact::Null {
            return None;
        }
        let verdict = noted.or_else(|| without_effect(&key)).unwrap_or(Verdict::Unknown);
        Some(KeyVerdict { value: value.to_string(), key, verdict })
    };
    facts.pairs().into_iter().filter_map(verdict).collect()
}

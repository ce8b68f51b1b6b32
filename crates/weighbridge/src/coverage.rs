//! The verdict on every key that a checkpoint has besides its tensors.

use checkpoint::{Checkpoint, Metadata};
use model::{KeyVerdict, Model, Verdict};

use crate::{Error, sampling};

/// A key of one of a checkpoint's files, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The file, or `metadata` for GGUF.
    pub file: &'static str,
    /// The key; dots descend into objects.
    pub key: String,
    /// The value, cut to a length that can be shown.
    pub value: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on every key of `checkpoint`, from which `model` was read.
///
/// # Errors
/// If a file beside the weights cannot be read.
pub fn coverage(checkpoint: &Checkpoint, model: &Model) -> Result<Vec<Covered>, Error> {
    let file = if checkpoint.metadata().gguf().is_some() { "metadata" } else { "config.json" };
    let sampling = sampling::sampling(checkpoint)?.keys;
    let own = model.verdicts(checkpoint.metadata()).into_iter().map(|key| match () {
        () if key.key.starts_with("tokenizer.") => tokenizer(key),
        () => quantisation(key),
    });
    let covered =
        |file| move |KeyVerdict { key, value, verdict }: KeyVerdict| Covered { file, key, value, verdict };
    Ok(match checkpoint.metadata() {
        Metadata::Gguf(_) => {
            let others = own.filter(|key| !key.key.starts_with("general.sampling."));
            others.chain(sampling).map(covered(file)).collect()
        }
        _ => own.map(covered(file)).chain(sampling.into_iter().map(covered(sampling::FILE))).collect(),
    })
}

/// Keys of GGUF's tokenizer. Source: gguf-py/gguf/constants.py@0c1e57098, `Keys.Tokenizer`.
static TOKENIZER: &[(&str, Option<&str>)] = &[
    ("model", None),
    ("pre", None),
    ("tokens", None),
    ("scores", None),
    ("token_type", None),
    ("merges", None),
    ("bos_token_id", None),
    ("eos_token_id", None),
    ("eot_token_id", None),
    ("eom_token_id", None),
    ("unknown_token_id", None),
    ("padding_token_id", None),
    ("add_bos_token", None),
    ("add_eos_token", None),
    ("add_space_prefix", None),
    ("token_type_count", Some("of BERT, where it is a size")),
    ("seperator_token_id", Some("of encoders, which no text is made with")),
    ("cls_token_id", Some("of encoders, which no text is made with")),
    ("mask_token_id", Some("of encoders, which no text is made with")),
    ("add_sep_token", Some("of encoders, which no text is made with")),
    ("fim_pre_token_id", Some("for programs that fill in the middle")),
    ("fim_suf_token_id", Some("for programs that fill in the middle")),
    ("fim_mid_token_id", Some("for programs that fill in the middle")),
    ("fim_pad_token_id", Some("for programs that fill in the middle")),
    ("fim_rep_token_id", Some("for programs that fill in the middle")),
    ("fim_sep_token_id", Some("for programs that fill in the middle")),
    ("prefix_token_id", Some("for programs that fill in the middle")),
    ("suffix_token_id", Some("for programs that fill in the middle")),
    ("middle_token_id", Some("for programs that fill in the middle")),
    ("remove_extra_whitespaces", Some("of T5, whose tokenizer is refused")),
    ("precompiled_charsmap", Some("of T5, whose tokenizer is refused")),
];

fn tokenizer(key: KeyVerdict) -> KeyVerdict {
    let verdict = match key.key.as_str() {
        "tokenizer.chat_template" => Verdict::Used,
        "tokenizer.huggingface.json" => Verdict::WithoutEffect("the same as the other keys, in another form"),
        name => {
            let known = name.strip_prefix("tokenizer.ggml.");
            let known = known.and_then(|name| TOKENIZER.iter().find(|(known, _)| *known == name));
            match known {
                Some((_, None)) => Verdict::Used,
                Some((_, Some(why))) => Verdict::WithoutEffect(why),
                None => Verdict::Unknown,
            }
        }
    };
    KeyVerdict { verdict, ..key }
}

/// Keys of a quantisation that say how weights were made, not what they are, and why.
static QUANTISATION: &[(&str, &str)] = &[
    ("quantizer", "of the program that wrote it"),
    ("meta", "of the program that wrote it"),
    ("version", "of the program that wrote it"),
    ("quantization_status", "of the program that wrote it"),
    ("global_compression_ratio", "of the program that wrote it"),
    ("producer", "of the program that wrote it"),
    ("damp_percent", "how it was made"),
    ("damp_auto_increment", "how it was made"),
    ("static_groups", "how it was made"),
    ("true_sequential", "how it was made"),
    ("mse", "how it was made"),
    ("dataset", "how it was made"),
    ("tokenizer", "how it was made"),
    ("model_seqlen", "how it was made"),
    ("block_name_to_quantize", "how it was made"),
    ("module_name_preceding_first_block", "how it was made"),
    ("batch_size", "how it was made"),
    ("iters", "how it was made"),
    ("lr", "how it was made"),
    ("model_name_or_path", "how it was made"),
    ("model_file_base_name", "how it was made"),
    ("is_marlin_format", "for the program that runs it"),
    ("use_cuda_fp16", "for the program that runs it"),
    ("use_exllama", "for the program that runs it"),
    ("max_input_length", "for the program that runs it"),
    ("exllama_config", "for the program that runs it"),
    ("backend", "for the program that runs it"),
    ("pack_dtype", "the tensors say it"),
    ("lm_head", "the names of the tensors say it"),
    ("modules_to_not_convert", "the names of the tensors say it"),
    ("modules_in_block_to_quantize", "the names of the tensors say it"),
    ("ignore", "the names of the tensors say it"),
    ("targets", "the names of the tensors say it"),
    ("exclude_modules", "the names of the tensors say it"),
    ("llm_int8_skip_modules", "the names of the tensors say it"),
    ("group_size", "the shapes of the scales say it"),
    ("sym", "zero points are stored"),
    ("kv_cache_scheme", "for a quantised cache; here it is not"),
    ("kv_cache_quant_algo", "for a quantised cache; here it is not"),
    ("input_activations", "for quantised activations; here they are not"),
    ("output_activations", "for quantised activations; here they are not"),
    ("activation_scheme", "for quantised activations; here they are not"),
    ("llm_int8_threshold", "for quantised activations; here they are not"),
    ("llm_int8_has_fp16_weight", "for training"),
    ("llm_int8_enable_fp32_cpu_offload", "for the program that runs it"),
    ("bnb_4bit_compute_dtype", "for the program that runs it"),
    ("bnb_4bit_quant_storage", "the tensors say it"),
    ("bnb_4bit_quant_type", "the tensors say it"),
    ("bnb_4bit_use_double_quant", "the tensors say it"),
    ("_load_in_4bit", "the tensors say it"),
    ("_load_in_8bit", "the tensors say it"),
    ("observer", "how it was made"),
    ("observer_kwargs", "how it was made"),
    ("actorder", "the tensors say it"),
    ("dynamic", "a rule for each module is refused where it is one"),
];

/// Keys that are read where weights are put together, by the conventions of `quant`.
static READ: &[&str] = &[
    "quant_method",
    "quant_algo",
    "quant_type",
    "bits",
    "mode",
    "format",
    "checkpoint_format",
    "desc_act",
    "zero_point",
    "num_bits",
    "type",
    "strategy",
    "block_structure",
    "symmetric",
    "weight_block_size",
    "fmt",
    "linear_class",
    "quantization_mode",
    "load_in_4bit",
    "load_in_8bit",
    "scale_dtype",
    "zp_dtype",
    "quantize",
    "modules",
    "scale_fmt",
];

/// The verdict on a key of the quantisation, by its last name: each tool nests objects differently.
fn quantisation(key: KeyVerdict) -> KeyVerdict {
    const OBJECTS: &[&str] = &["quantization.", "quantization_config.", "compression_config."];
    let bare = key.key.strip_prefix("text_config.").unwrap_or(&key.key);
    let Some(rest) = OBJECTS.iter().find_map(|object| bare.strip_prefix(object)) else { return key };
    let names: Vec<&str> = rest.split('.').collect();
    let last = names.last().copied().unwrap_or_default();
    let why = |name: &&str| QUANTISATION.iter().find(|(known, _)| known == name).map(|(_, why)| *why);
    // MLX has an object, or a flag, for each module.
    let of_module = bare.starts_with("quantization.") && names.len() > 1;
    let verdict = match names.iter().find_map(why) {
        _ if READ.contains(&last) || of_module => Verdict::Used,
        Some(why) => Verdict::WithoutEffect(why),
        None if key.value == "an object" || key.value == "a list of 0" => Verdict::Checked,
        None => Verdict::Unknown,
    };
    KeyVerdict { verdict, ..key }
}

//! GPTQ: `quant_method: gptq` in `config.json`; `qweight`, `qzeros`, `scales` and `g_idx`.

use serde_json::Value;

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{BY_NAME, BY_TENSORS, MAKING, RUNNING, WRITER, any_of, group_size, in_order, method};
use quant::spelling::{GPTQ_BITS, GptqVersion as Version, REALS, Scope};

/// A module is quantised if it has `qweight`.
///
/// Source: transformers `GPTQConfig`; `dynamic`, by which modules may have other bits and groups than the rest:
/// GPTQModel@f4c327a1, gptqmodel/quantization/config.py.
pub(crate) struct Gptq;

struct Modules {
    version: Version,
    bits: u64,
    scope: Scope,
    /// Modules may differ from `bits` and `scope`.
    dynamic: bool,
    /// Whether `g_idx` may differ from the order of the inputs; `None` if nothing says.
    act: Option<bool>,
}

static KEYS: &Keys = &[
    ("quant_method", None),
    ("bits", None),
    ("group_size", None),
    ("checkpoint_format", None),
    ("format", None),
    ("desc_act", None),
    ("dynamic", None),
    ("dynamic.*", None),
    ("sym", Some("zero points are stored")),
    ("pack_dtype", BY_TENSORS),
    ("lm_head", BY_NAME),
    ("modules_in_block_to_quantize*", BY_NAME),
    ("modules_to_not_convert*", BY_NAME),
    ("meta*", WRITER),
    ("quantizer*", WRITER),
    ("model_name_or_path", WRITER),
    ("model_file_base_name", WRITER),
    ("tokenizer", MAKING),
    ("dataset*", MAKING),
    ("damp_percent", MAKING),
    ("damp_auto_increment", MAKING),
    ("static_groups", MAKING),
    ("true_sequential", MAKING),
    ("act_group_aware", MAKING),
    ("mse", MAKING),
    ("model_seqlen", MAKING),
    ("block_name_to_quantize", MAKING),
    ("module_name_preceding_first_block*", MAKING),
    ("batch_size", MAKING),
    ("pad_token_id", MAKING),
    ("cache_block_outputs", MAKING),
    ("backend", RUNNING),
    ("is_marlin_format", RUNNING),
    ("use_cuda_fp16", RUNNING),
    ("use_exllama", RUNNING),
    ("max_input_length", RUNNING),
    ("exllama_config*", RUNNING),
    ("disable_exllama", RUNNING),
];

impl Convention for Gptq {
    fn name(&self) -> &'static str {
        "gptq"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let config = method(config, "gptq")?;
        Some(Modules::read(config).map(|modules| Box::new(modules) as Box<dyn ConventionReader>))
    }
}

impl Modules {
    fn read(config: &Value) -> Result<Modules, String> {
        let found = &config["bits"];
        let bits = found
            .as_u64()
            .filter(|b| GPTQ_BITS.contains(b))
            .ok_or_else(|| format!("`bits` of gptq: wanted {}, found {found}", any_of(GPTQ_BITS)))?;
        // The older name wins.
        let said = |key| config[key].as_str().map(|format| (key, format.to_ascii_lowercase()));
        let format = said("checkpoint_format").or_else(|| said("format"));
        let version = match format.as_ref().map(|(key, format)| (key, format.as_str())) {
            None | Some((_, "gptq")) => Version::V1,
            Some((_, "gptq_v2")) => Version::V2,
            Some((key, other)) => {
                return Err(format!("`{key}`: wanted `gptq` or `gptq_v2`, found `{other}`"));
            }
        };
        let dynamic = config["dynamic"].as_object().is_some_and(|d| !d.is_empty());
        let act = config["desc_act"].as_bool();
        Ok(Modules { version, bits, scope: group_size(config)?, dynamic, act })
    }

    /// The scope of a scale: `groups` per row of `inputs` columns.
    fn scope(&self, groups: u64, inputs: u64) -> Result<Scope, String> {
        if self.scope.groups(inputs) == groups {
            return Ok(self.scope);
        }
        match (self.dynamic && groups > 0 && inputs.is_multiple_of(groups)).then(|| inputs / groups) {
            Some(g) if g == inputs => Ok(Scope::Row),
            Some(g) => Ok(Scope::Group(g)),
            None => Err(format!(
                "`scales` has {groups} groups, wanted {}: {inputs} inputs, {} to a group",
                self.scope.groups(inputs),
                if let Scope::Group(g) = self.scope { g.to_string() } else { "all".to_owned() }
            )),
        }
    }
}

impl ConventionReader for Modules {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight", ".qzeros", ".scales", ".g_idx"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let [words, out] = module.shape(".qweight")?;
        let [_, zero_words] = module.shape(".qzeros")?;
        let [groups, _] = module.shape(".scales")?;
        let scales = module.dtype(".scales", REALS)?;
        let bits = if self.dynamic { found_bits(zero_words, out).unwrap_or(self.bits) } else { self.bits };
        let inputs = words.checked_mul(32).ok_or("`qweight` is too large")? / bits;
        let mut scope = self.scope(groups, inputs)?;
        let mut facts = vec![];
        if module.get(".g_idx").is_some() {
            match (in_order(module, ".g_idx", inputs, scope)?, self.act) {
                (true, _) => facts.push(".g_idx"),
                (false, Some(false)) => {
                    return Err("`g_idx` is out of order, but `desc_act` is false".to_owned());
                }
                (false, _) => scope = Scope::Act(groups),
            }
        } else if self.act == Some(true) {
            module.want(".g_idx")?;
        }
        Ok(Some(Weight {
            suffix: ".weight",
            scheme: format!("{}:b{bits},{},{scales}", self.version.family(), scope.text()),
            shape: [out, inputs].into(),
            facts,
            renamed: vec![],
        }))
    }
}

/// The bits of a zero point, given `out` of them in `words` words.
fn found_bits(words: u64, out: u64) -> Option<u64> {
    GPTQ_BITS.iter().copied().find(|bits| words.checked_mul(32) == out.checked_mul(*bits))
}

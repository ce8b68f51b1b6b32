//! GPTQ: `quant_method: gptq` in `config.json`; `qweight`, `qzeros`, `scales` and `g_idx`.

use serde_json::{Map, Value, json};
use tensor::Scheme;

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight, described, split};
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

    /// The most common parameters are stored once, those of other modules in `dynamic`, which GPTQModel and vLLM read. Matrices of the layers
    /// that are left out are named there too; transformers goes by `modules_in_block_to_quantize`, which names the others.
    ///
    /// Source: GPTQModel@f4c327a1, gptqmodel/quantization/config.py `_resolve_dynamic_override`; vLLM 0.33.0,
    /// vllm/model_executor/layers/quantization/utils/gptq_utils.py; optimum 2.3.0, optimum/gptq/quantizer.py `convert_model`.
    fn describe(&self, weights: &[(&str, &Scheme)], before: Option<&Value>) -> Option<Map<String, Value>> {
        let (plain, quantised) = split(weights);
        let said: Vec<(&str, Said)> = quantised
            .iter()
            .map(|(module, scheme)| Some((*module, Said::of(&scheme.name)?)))
            .collect::<Option<_>>()?;
        let (_, first) = said.first()?;
        if said.iter().any(|(_, said)| said.version != first.version) {
            return None;
        }
        let count = |wanted: &Said| said.iter().filter(|(_, said)| said == wanted).count();
        let usual = said.iter().rev().map(|(_, said)| *said).max_by_key(|said| count(said))?;
        let left: Vec<&str> =
            plain.iter().map(|(module, _)| *module).filter(|m| in_layer(m).is_some()).collect();
        let mut dynamic = Map::new();
        for module in &left {
            dynamic.insert(format!("-:^{}$", escaped(module)), json!({}));
        }
        for (module, own) in said.iter().filter(|(_, own)| *own != usual) {
            let own = json!({"bits": own.bits, "group_size": own.group_size()});
            dynamic.insert(format!("+:^{}$", escaped(module)), own);
        }
        // Weights that were so before may have any zero points; those of version 1 that are encoded here have the symmetric one.
        let any_zeros =
            before.is_some_and(|before| before["quant_method"] == "gptq" && before["sym"] == false);
        let config = json!({
            "bits": usual.bits,
            "checkpoint_format": usual.version.family().replace('-', "_"),
            "desc_act": false,
            "group_size": usual.group_size(),
            "lm_head": false,
            "quant_method": "gptq",
            "sym": usual.version == Version::V1 && !any_zeros,
        });
        let Value::Object(mut config) = config else { return None };
        if !dynamic.is_empty() {
            config.insert("dynamic".to_owned(), dynamic.into());
        }
        if !left.is_empty() {
            let modules = said.iter().map(|(module, _)| *module);
            config.insert(IN_BLOCK.to_owned(), json!([in_block(modules, &left)]));
        }
        let config = described(config, before, &["dynamic", IN_BLOCK]);
        Some([("quantization_config".to_owned(), config.into())].into_iter().collect())
    }
}

/// The modules that transformers makes quantised layers of; without it, all linear ones of the layers.
const IN_BLOCK: &str = "modules_in_block_to_quantize";

/// The keys of `config.json` for weights of one scheme.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Said {
    version: Version,
    bits: u64,
    scope: Scope,
}

impl Said {
    /// Of the scheme called `name`; `None` if it is none, or has an order of its own, whose groups the name does not tell.
    fn of(name: &str) -> Option<Said> {
        let (family, params) = name.split_once(':')?;
        let version = [Version::V1, Version::V2].into_iter().find(|version| version.family() == family)?;
        let [bits, scope, _] = *params.split(',').collect::<Vec<_>>() else { return None };
        let bits = bits.strip_prefix('b')?.parse().ok()?;
        let scope = Scope::parse(scope).filter(|scope| matches!(scope, Scope::Group(_) | Scope::Row))?;
        Some(Said { version, bits, scope })
    }

    /// -1 for a whole row.
    fn group_size(self) -> Value {
        match self.scope {
            Scope::Group(group) => group.into(),
            _ => (-1).into(),
        }
    }
}

/// The part of a module's name after the number of its layer.
fn in_layer(module: &str) -> Option<&str> {
    let numbered = |segment: &str| !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit());
    let mut rest = module;
    while let Some((segment, after)) = rest.split_once('.') {
        rest = after;
        if numbered(segment) {
            return Some(rest);
        }
    }
    None
}

/// The ends of the names of `modules` that end none of `left`: within a layer, or the whole names.
fn in_block<'a>(modules: impl Iterator<Item = &'a str> + Clone, left: &[&str]) -> Vec<&'a str> {
    let short = modules.clone().map(|module| in_layer(module).unwrap_or(module));
    let mut short: Vec<&str> = short.collect();
    short.sort_unstable();
    short.dedup();
    if left.iter().any(|module| short.iter().any(|end| module.ends_with(end))) {
        return modules.collect();
    }
    short
}

/// A pattern that matches `name` alone.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|c| (!c.is_alphanumeric() && c != '_').then_some('\\').into_iter().chain([c]))
        .collect()
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

//! AWQ: `quant_method: awq` in `config.json`; `qweight`, `qzeros` and `scales`.

use serde_json::{Map, Value, json};
use tensor::{Dtype, Scheme};

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight, described, split};
use super::{BY_NAME, RUNNING, WRITER, group_size, method};
use quant::spelling::Scope;

/// All that AutoAWQ's gemm kernels read, and nothing else.
///
/// Source: transformers `AwqConfig`; AutoAWQ 0.2.9, awq/models/_config.py.
pub(crate) struct Awq;

struct Modules(Scope);

static KEYS: &Keys = &[
    ("quant_method", None),
    ("bits", None),
    ("group_size", None),
    ("version", None),
    ("format", None),
    ("zero_point", None),
    ("backend", None),
    ("modules_to_not_convert*", BY_NAME),
    ("sym", Some("zero points are stored")),
    ("do_fuse", RUNNING),
    ("fuse_max_seq_len", RUNNING),
    ("modules_to_fuse*", RUNNING),
    ("exllama_config*", RUNNING),
    ("quantizer*", WRITER),
    ("meta*", WRITER),
    ("desc_act", Some("AWQ has no order of its own")),
];

impl Convention for Awq {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let config = method(config, "awq")?;
        Some(scope(config).map(|scope| Box::new(Modules(scope)) as Box<dyn ConventionReader>))
    }

    /// All weights have groups of one size.
    fn describe(&self, weights: &[(&str, &Scheme)], before: Option<&Value>) -> Option<Map<String, Value>> {
        let (plain, quantised) = split(weights);
        let scope = |(_, scheme): &(&str, &Scheme)| {
            let (scope, _) = scheme.name.strip_prefix("awq:")?.split_once(',')?;
            Scope::parse(scope)
        };
        let first = scope(quantised.first()?)?;
        if quantised.iter().any(|weight| scope(weight) != Some(first)) {
            return None;
        }
        let plain: Vec<&str> = plain.iter().map(|(module, _)| *module).collect();
        let group = if let Scope::Group(group) = first { json!(group) } else { json!(-1) };
        let config = json!({
            "bits": 4,
            "group_size": group,
            "modules_to_not_convert": plain,
            "quant_method": "awq",
            "version": "gemm",
            "zero_point": true,
        });
        let Value::Object(config) = config else { return None };
        let config = described(config, before, &["modules_to_not_convert"]);
        Some([("quantization_config".to_owned(), config.into())].into_iter().collect())
    }
}

fn scope(config: &Value) -> Result<Scope, String> {
    let is = |key: &str, wanted: &str, ok: bool| {
        if ok { Ok(()) } else { Err(format!("`{key}` of awq: wanted {wanted}, found {}", config[key])) }
    };
    is("bits", "4", config.get("bits").is_none_or(|bits| bits.as_u64() == Some(4)))?;
    // The older name wins.
    let key = if config["version"].is_string() { "version" } else { "format" };
    is(key, "\"gemm\"", config[key].as_str().is_none_or(|format| format.eq_ignore_ascii_case("gemm")))?;
    is("backend", "another than llm-awq", config["backend"] != "llm-awq")?;
    is("zero_point", "true", config["zero_point"].as_bool() != Some(false))?;
    group_size(config)
}

impl ConventionReader for Modules {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight", ".qzeros", ".scales"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let [inputs, words] = module.shape(".qweight")?;
        let out = words.checked_mul(8).ok_or("`qweight` is too large")?;
        let scales = module.dtype(".scales", &[Dtype::F16, Dtype::BF16])?;
        if let Scope::Group(g) = self.0
            && !inputs.is_multiple_of(g)
        {
            return Err(format!("`qweight` has {inputs} inputs, wanted a multiple of the {g} in a group"));
        }
        Ok(Some(Weight {
            suffix: ".weight",
            scheme: format!("awq:{},{scales}", self.0.text()),
            shape: [out, inputs].into(),
            facts: vec![],
            renamed: vec![],
        }))
    }
}

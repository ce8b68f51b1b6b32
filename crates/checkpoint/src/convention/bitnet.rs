//! BitNet: `quant_method: bitnet` in `config.json`; `weight` with four rows in a byte, and `weight_scale`.

use serde_json::Value;
use tensor::Dtype;

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{BY_NAME, method, text};
use quant::spelling::REALS;

/// A module is quantised if its weight is of bytes. The scale divides, but where `linear_class` is
/// `autobitlinear` it multiplies.
///
/// Source: transformers 5.23.0, integrations/bitnet.py and utils/quantization_config.py (`BitNetQuantConfig`).
pub(crate) struct BitNet;

static KEYS: &Keys = &[
    ("quant_method", None),
    ("linear_class", None),
    ("quantization_mode", None),
    ("use_rms_norm", None),
    ("rms_norm_eps", Some("of a norm that is not there")),
    ("modules_to_not_convert*", BY_NAME),
];

impl Convention for BitNet {
    fn name(&self) -> &'static str {
        "bitnet"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let quantization = method(config, "bitnet")?;
        let class = text("quantization_config", quantization, "linear_class");
        let divides = class.and_then(|class| match class.unwrap_or("bitlinear") {
            "bitlinear" => Ok(true),
            "autobitlinear" => Ok(false),
            other => Err(format!(
                "`quantization_config.linear_class` is `{other}`, wanted bitlinear or autobitlinear"
            )),
        });
        // Weights that are quantised while the model runs, and norms of inputs, are not in the tensors.
        let is = |key: &str, wanted: &str, taken: &[&str]| match &quantization[key] {
            Value::Null => Ok(()),
            found if taken.contains(&found.to_string().as_str()) => Ok(()),
            found => Err(format!("`quantization_config.{key}` is {found}, wanted {wanted}")),
        };
        let divides = is("quantization_mode", "\"offline\"", &["\"offline\""])
            .and_then(|()| is("use_rms_norm", "false", &["false"]))
            .and(divides);
        Some(divides.map(|divides| Box::new(Layers { divides }) as Box<dyn ConventionReader>))
    }
}

struct Layers {
    divides: bool,
}

impl ConventionReader for Layers {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight", ".weight_scale"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let stored = module.get(".weight").and_then(|w| w.scheme.dtype());
        if stored != Some(Dtype::U8) {
            return match module.get(".weight_scale") {
                Some(_) => module.dtype(".weight", &[Dtype::U8]).map(|_| None),
                None => Ok(None),
            };
        }
        let real = module.dtype(".weight_scale", REALS)?;
        let [packed, k] = module.shape(".weight")?;
        let out = packed.checked_mul(4).ok_or_else(|| format!("`weight` has {packed} rows of bytes"))?;
        let sense = if self.divides { "div" } else { "mul" };
        Ok(Some(Weight {
            suffix: ".weight",
            scheme: format!("bitnet:{out}x{k},{real},{sense}"),
            shape: [out, k].into(),
            facts: vec![],
            renamed: vec![],
        }))
    }
}

//! BitNet: `quant_method: bitnet` in `config.json`; `weight` with four rows in a byte, and `weight_scale`.

use serde_json::Value;
use tensor::Dtype;

use super::{method, text};
use crate::companions::{Convention, Module, Reading, Weight};
use crate::scheme::REALS;

/// A module is quantised if its weight is of bytes. The scale divides, but where `linear_class` is
/// `autobitlinear` it multiplies.
///
/// Source: transformers 5.23.0, integrations/bitnet.py and utils/quantization_config.py (`BitNetQuantConfig`).
pub(crate) struct BitNet;

impl Convention for BitNet {
    fn name(&self) -> &'static str {
        "bitnet"
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn Reading>, String>> {
        let quantization = method(config, "bitnet")?;
        let class = text("quantization_config", quantization, "linear_class");
        let divides = class.and_then(|class| match class.unwrap_or("bitlinear") {
            "bitlinear" => Ok(true),
            "autobitlinear" => Ok(false),
            other => Err(format!(
                "`quantization_config.linear_class` is `{other}`, wanted bitlinear or autobitlinear"
            )),
        });
        Some(divides.map(|divides| Box::new(Layers { divides }) as Box<dyn Reading>))
    }
}

struct Layers {
    divides: bool,
}

impl Reading for Layers {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight", ".weight_scale"]
    }

    fn weight(&self, module: &Module<'_>) -> Result<Option<Weight>, String> {
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

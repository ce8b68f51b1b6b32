//! gpt-oss: `quant_method: mxfp4` in `config.json`; experts' `_blocks` and `_scales`.

use serde_json::Value;

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{BY_NAME, RUNNING, method};

/// All experts of a layer in one weight, `[experts, out, in]`, called as the tensors without `_blocks`.
///
/// Source: transformers 5.23.0, integrations/mxfp4.py (`Mxfp4GptOssExperts`, `convert_moe_packed_tensors`).
pub(crate) struct Mxfp4;

static KEYS: &Keys = &[("quant_method", None), ("modules_to_not_convert*", BY_NAME), ("dequantize", RUNNING)];

impl Convention for Mxfp4 {
    fn name(&self) -> &'static str {
        "mxfp4"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        method(config, "mxfp4").map(|_| Ok(Box::new(Experts) as Box<dyn ConventionReader>))
    }
}

struct Experts;

impl ConventionReader for Experts {
    fn marks(&self) -> &'static [&'static str] {
        &["_blocks", "_scales"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let (blocks, _) = (module.want("_blocks")?, module.want("_scales")?);
        let [lead @ .., groups, 16] = &blocks.shape[..] else {
            return Err(format!("`_blocks` has shape {}, wanted 16 bytes as the last axis", blocks.shape));
        };
        let inputs = groups.checked_mul(32).filter(|_| !lead.is_empty());
        let Some(inputs) = inputs else {
            return Err(format!("`_blocks` has shape {}, wanted [.., out, in / 32, 16]", blocks.shape));
        };
        Ok(Some(Weight {
            suffix: "",
            scheme: "mxfp4-split".to_owned(),
            shape: [lead, &[inputs]].concat().into(),
            facts: vec![],
            renamed: vec![],
        }))
    }
}

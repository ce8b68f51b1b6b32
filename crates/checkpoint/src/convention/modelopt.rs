//! modelopt: `quant_method: modelopt` in `config.json`; `weight`, `weight_scale` and, for NVFP4, `weight_scale_2`.

use serde_json::Value;
use tensor::Dtype;

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{BY_NAME, BY_TENSORS, CACHE, WRITER, method};

/// NVFP4, and E4M3 with a scale for the matrix or for each row. `input_scale`, of activations, stays a tensor of
/// its own; so does `pre_quant_scale` of AWQ, which inputs are multiplied by.
///
/// Source: nvidia-modelopt 0.47.0, modelopt/torch/export/convert_hf_config.py, unified_export_hf.py.
pub(crate) struct Modelopt;

static KEYS: &Keys = &[
    ("quant_method", None),
    ("quant_algo", BY_TENSORS),
    ("group_size", BY_TENSORS),
    ("config_groups*", BY_TENSORS),
    ("quantized_layers*", BY_TENSORS),
    ("ignore*", BY_NAME),
    ("exclude_modules*", BY_NAME),
    ("producer*", WRITER),
    ("kv_cache_quant_algo", CACHE),
    ("kv_cache_scheme*", CACHE),
];

impl Convention for Modelopt {
    fn name(&self) -> &'static str {
        "modelopt"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        method(config, "modelopt")?;
        let places = [&config["dtype"], &config["torch_dtype"], &config["text_config"]["dtype"]];
        let dtype = match places.into_iter().find_map(Value::as_str) {
            Some("float16") => Dtype::F16,
            Some("float32") => Dtype::F32,
            _ => Dtype::BF16,
        };
        Some(Ok(Box::new(Modules { dtype })))
    }
}

struct Modules {
    /// The dtype of the model, and of decoded values.
    dtype: Dtype,
}

const WEIGHT: &str = ".weight";
const SCALE: &str = ".weight_scale";
const SCALE_2: &str = ".weight_scale_2";

impl ConventionReader for Modules {
    fn marks(&self) -> &'static [&'static str] {
        &[WEIGHT, SCALE, SCALE_2]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let stored = module.get(WEIGHT).and_then(|w| w.scheme.dtype());
        let (scheme, shape) = match (stored, module.get(SCALE), module.get(SCALE_2)) {
            (Some(Dtype::U8), ..) => {
                let [out, bytes] = module.shape(WEIGHT)?;
                let inputs = bytes.checked_mul(2).ok_or("`weight` is too large")?;
                (format!("modelopt-nvfp4:{}", self.dtype), [out, inputs])
            }
            (Some(Dtype::F8E4M3), scale, None) => {
                let shape: [u64; 2] = module.shape(WEIGHT)?;
                let scope = match scale.map(|s| &s.shape[..]) {
                    Some(rows @ ([_] | [_, 1])) if rows[0] == shape[0] && rows[0] > 1 => "row",
                    _ => "tensor",
                };
                (format!("fp8:e4m3,{scope},f32"), shape)
            }
            (_, None, None) => return Ok(None),
            (_, _, two) => {
                let wanted = if two.is_some() { Dtype::U8 } else { Dtype::F8E4M3 };
                return module.dtype(WEIGHT, &[wanted]).map(|_| None);
            }
        };
        let (facts, renamed) = (vec![], vec![]);
        Ok(Some(Weight { suffix: WEIGHT, scheme, shape: shape.into(), facts, renamed }))
    }
}

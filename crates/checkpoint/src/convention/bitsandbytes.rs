//! bitsandbytes: `quant_method: bitsandbytes` in `config.json`; `weight`, `absmax` and `quant_state`, or `SCB`.

use serde_json::{Map, Value};
use tensor::{Dtype, Scheme, Shape};

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight, split};
use super::{ACTIVATIONS, BY_NAME, BY_TENSORS, RUNNING, method};
use quant::spelling::{BNB_NESTED, BnbTable as Table, bnb_name};

/// Each module describes itself: by `quant_state`, JSON in bytes, or by `SCB`.
///
/// Source: bitsandbytes 0.50.2, bitsandbytes/functional.py `QuantState.from_dict`, bitsandbytes/nn/modules.py
/// `Linear8bitLt`.
pub(crate) struct BitsAndBytes;

struct Modules;

const NF4: &str = ".weight.quant_state.bitsandbytes__nf4";
const FP4: &str = ".weight.quant_state.bitsandbytes__fp4";

static KEYS: &Keys = &[
    ("quant_method", None),
    ("load_in_8bit", BY_TENSORS),
    ("load_in_4bit", BY_TENSORS),
    ("_load_in_8bit", BY_TENSORS),
    ("_load_in_4bit", BY_TENSORS),
    ("bnb_4bit_quant_type", BY_TENSORS),
    ("bnb_4bit_use_double_quant", BY_TENSORS),
    ("bnb_4bit_quant_storage", BY_TENSORS),
    ("llm_int8_skip_modules*", BY_NAME),
    ("target_modules*", BY_NAME),
    ("llm_int8_threshold", ACTIVATIONS),
    ("llm_int8_enable_fp32_cpu_offload", RUNNING),
    ("llm_int8_has_fp16_weight", RUNNING),
    ("bnb_4bit_compute_dtype", RUNNING),
];

impl Convention for BitsAndBytes {
    fn name(&self) -> &'static str {
        "bitsandbytes"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        method(config, "bitsandbytes")?;
        Some(Ok(Box::new(Modules)))
    }

    /// Eight bits only: four need a `quant_state` for each module.
    fn describe(&self, weights: &[(&str, &Scheme)], _: Option<&Value>) -> Option<Map<String, Value>> {
        let (plain, quantised) = split(weights);
        if quantised.is_empty() || quantised.iter().any(|(_, scheme)| scheme.name != "bnb-int8") {
            return None;
        }
        let plain: Vec<&str> = plain.iter().map(|(module, _)| *module).collect();
        let said: [(&str, Value); 5] = [
            ("llm_int8_skip_modules", plain.into()),
            ("llm_int8_threshold", 6.0.into()),
            ("load_in_4bit", false.into()),
            ("load_in_8bit", true.into()),
            ("quant_method", "bitsandbytes".into()),
        ];
        let said = said.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        Some([("quantization_config".to_owned(), Value::Object(said))].into_iter().collect())
    }
}

impl ConventionReader for Modules {
    fn marks(&self) -> &'static [&'static str] {
        &[
            NF4,
            FP4,
            ".weight",
            ".weight.absmax",
            ".weight.quant_map",
            ".weight.nested_absmax",
            ".weight.nested_quant_map",
            ".SCB",
            ".weight_format",
        ]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        if let Some((mark, table)) =
            [(NF4, Table::Nf4), (FP4, Table::Fp4)].into_iter().find(|(mark, _)| module.get(mark).is_some())
        {
            return four_bits(module, mark, table).map(Some);
        }
        if module.get(".SCB").is_some() {
            return eight_bits(module).map(Some);
        }
        if module.get(".weight.absmax").is_some() || module.get(".weight.quant_map").is_some() {
            return Err("wanted `weight.quant_state.bitsandbytes__nf4` or `…__fp4`, found neither".to_owned());
        }
        Ok(None)
    }
}

fn four_bits(module: &QuantisedModule<'_>, mark: &'static str, table: Table) -> Result<Weight, String> {
    let state = module.bytes(mark)?;
    let state: Value =
        serde_json::from_slice(&state).map_err(|e| format!("`quant_state` is no JSON: {e}"))?;
    let refuse =
        |key: &str, wanted: &str| format!("`quant_state.{key}`: wanted {wanted}, found {}", state[key]);
    if state["quant_type"].as_str() != Some(table.name()) {
        return Err(refuse("quant_type", &format!("\"{}\"", table.name())));
    }
    let shape: Option<Vec<u64>> =
        state["shape"].as_array().and_then(|axes| axes.iter().map(Value::as_u64).collect());
    let [out, k] = *shape.unwrap_or_default() else { return Err(refuse("shape", "[out, in]")) };
    let dtype = state["dtype"].as_str().unwrap_or_default();
    let dtype = [("float16", Dtype::F16), ("bfloat16", Dtype::BF16), ("float32", Dtype::F32)]
        .into_iter()
        .find_map(|(name, real)| (name == dtype).then_some(real));
    let dtype = dtype.ok_or_else(|| refuse("dtype", "float16, bfloat16 or float32"))?;
    let sizes = "a power of two from 32 to 4096";
    let block = state["blocksize"].as_u64().filter(|b| b.is_power_of_two() && (32..=4096).contains(b));
    let block = block.ok_or_else(|| refuse("blocksize", sizes))?;

    let mut facts = vec![mark];
    if module.get(".weight.quant_map").is_some() {
        let map = module.bytes(".weight.quant_map")?;
        let map = map.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        // Older versions computed the table, which moved its last bits; none of them reads it back.
        let near = |(a, b): (f32, &f32)| (a - b).abs() < 1e-6;
        if map.len() != 16 || !map.zip(table.values()).all(near) {
            return Err(format!("`weight.quant_map` is not the table of {}", table.name()));
        }
        facts.push(".weight.quant_map");
    }

    let offset = if module.get(".weight.nested_absmax").is_some() {
        if state["nested_blocksize"].as_u64() != Some(BNB_NESTED) {
            return Err(refuse("nested_blocksize", "256"));
        }
        if state["nested_dtype"].as_str() != Some("float32") {
            return Err(refuse("nested_dtype", "\"float32\""));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an f32 was written; what is beyond one is refused"
        )]
        let narrow = |x: f64| x as f32;
        let offset = state["nested_offset"].as_f64().map(narrow).filter(|x| x.is_finite());
        Some(offset.ok_or_else(|| refuse("nested_offset", "a finite number"))?)
    } else {
        None
    };
    let scheme =
        bnb_name(table, block, dtype, [out, k], offset).ok_or_else(|| refuse("shape", "[out, in]"))?;
    Ok(Weight { suffix: ".weight", scheme, shape: Shape::from([out, k]), facts, renamed: vec![] })
}

fn eight_bits(module: &QuantisedModule<'_>) -> Result<Weight, String> {
    let [out, k] = module.shape(".weight")?;
    module.dtype(".weight", &[Dtype::I8])?;
    let mut facts = vec![];
    if module.get(".weight_format").is_some() {
        // `LINEAR_8BIT_WEIGHTS_FORMAT_MAPPING`: other orders were for the tensor cores of old GPUs.
        let format = module.bytes(".weight_format")?;
        if format.iter().any(|b| *b != 0) {
            return Err(format!("`weight_format`: wanted 0, rows one after the other, found {}", format[0]));
        }
        facts.push(".weight_format");
    }
    Ok(Weight {
        suffix: ".weight",
        scheme: "bnb-int8".into(),
        shape: Shape::from([out, k]),
        facts,
        renamed: vec![],
    })
}

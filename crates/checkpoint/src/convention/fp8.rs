//! FP8: `quant_method: fp8` in `config.json`; `weight` and its scales.

use serde_json::{Map, Value};
use tensor::{Dtype, Scheme, Shape};

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{ACTIVATIONS, BY_NAME, BY_TENSORS, CACHE, RUNNING, method};
use quant::spelling::FP8_SCALES;

/// DeepSeek's `weight_scale_inv`, one for each block of `weight_block_size`, and `weight_scale`, one for each row or
/// for the whole weight. All multiply, whatever their name.
///
/// A module is quantised if it has a scale. Scales of activations (`input_scale`, `activation_scale`) stay
/// tensors of their own.
///
/// Source: DeepSeek-V3 README_WEIGHTS.md; transformers 5.23.0, integrations/finegrained_fp8.py (`FP8Linear`,
/// `FP8Embedding`) and utils/quantization_config.py (`FineGrainedFP8Config`).
pub(crate) struct Fp8;

static KEYS: &Keys = &[
    ("quant_method", None),
    ("weight_block_size*", None),
    ("fmt", BY_TENSORS),
    ("scale_fmt", BY_TENSORS),
    ("expert_dtype", BY_TENSORS),
    ("activation_scheme", ACTIVATIONS),
    ("modules_to_not_convert*", BY_NAME),
    ("modules_to_convert*", BY_NAME),
    ("ignored_layers*", BY_NAME),
    ("dequantize", RUNNING),
    ("kv_cache_scheme*", CACHE),
    ("kv_cache_quant_method", CACHE),
];

impl Convention for Fp8 {
    fn name(&self) -> &'static str {
        "fp8"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let quantization = method(config, "fp8")?;
        let block = match quantization.get("weight_block_size") {
            None | Some(Value::Null) => Ok(None),
            Some(size) => block(size).map(Some),
        };
        Some(block.map(|block| Box::new(Blocks(block)) as Box<dyn ConventionReader>))
    }

    /// Blocks of one size, or one scale a weight; scales of rows are another convention's.
    fn describe(&self, weights: &[(&str, &Scheme)], _: Option<&Value>) -> Option<Map<String, Value>> {
        let (plain, quantised) = super::gather::split(weights);
        let span = |scheme: &Scheme| {
            let span = scheme.name.strip_prefix("fp8:e4m3,")?.split(',').next()?;
            (span != "row").then(|| span.to_owned())
        };
        let first = span(quantised.first()?.1)?;
        if quantised.iter().any(|(_, scheme)| span(scheme).as_ref() != Some(&first)) {
            return None;
        }
        let mut said = Map::new();
        said.insert("activation_scheme".to_owned(), "dynamic".into());
        said.insert("fmt".to_owned(), "e4m3".into());
        said.insert("quant_method".to_owned(), "fp8".into());
        if let Some((rows, columns)) = first.strip_prefix('b').and_then(|b| b.split_once('x')) {
            let size = [rows, columns].map(|n| n.parse::<u64>().ok());
            said.insert("weight_block_size".to_owned(), vec![size[0]?, size[1]?].into());
        }
        let plain: Vec<&str> = plain.iter().map(|(module, _)| *module).collect();
        said.insert("modules_to_not_convert".to_owned(), plain.into());
        Some([("quantization_config".to_owned(), Value::Object(said))].into_iter().collect())
    }
}

/// The most rows or columns of a block.
const MOST: u64 = 1 << 20;

fn block(size: &Value) -> Result<[u64; 2], String> {
    let numbers = size.as_array().map(|n| n.iter().map(Value::as_u64).collect::<Vec<_>>());
    match numbers.as_deref() {
        Some([Some(rows @ 1..=MOST), Some(columns @ 1..=MOST)]) => Ok([*rows, *columns]),
        _ => {
            Err(format!("`quantization_config.weight_block_size` is `{size}`, wanted two sizes of 1 or more"))
        }
    }
}

/// Rows and columns of a block, if there are blocks.
struct Blocks(Option<[u64; 2]>);

impl ConventionReader for Blocks {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight", ".weight_scale_inv", ".weight_scale"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        const SMALL: &[Dtype] = &[Dtype::F8E4M3, Dtype::F8E5M2];
        let stored = module.get(".weight").and_then(|w| w.scheme.dtype());
        let (inv, plain) = (module.get(".weight_scale_inv"), module.get(".weight_scale"));
        let (mark, scales) = match (inv, plain) {
            (None, None) if stored.is_some_and(|d| SMALL.contains(&d)) => {
                return Err(format!(
                    "`weight` is {}, wanted `weight_scale_inv` or `weight_scale` beside it, found neither",
                    stored.map_or("", Dtype::name)
                ));
            }
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err("wanted `weight_scale_inv` or `weight_scale`, found both".to_owned());
            }
            (Some(inv), None) => (".weight_scale_inv", inv),
            (None, Some(plain)) => (".weight_scale", plain),
        };
        let element = if module.dtype(".weight", SMALL)? == Dtype::F8E4M3 { "e4m3" } else { "e5m2" };
        let shape = &module.want(".weight")?.shape;
        // A byte that is no float is a power of two.
        let real = match module.dtype(mark, &[FP8_SCALES, &[Dtype::U8]].concat())? {
            Dtype::U8 => Dtype::F8E8M0,
            real => real,
        };
        let span = self.span(shape, &scales.shape, mark)?;
        let usual = if span.starts_with('b') { ".weight_scale_inv" } else { ".weight_scale" };
        Ok(Some(Weight {
            suffix: ".weight",
            scheme: format!("fp8:{element},{span},{real}"),
            shape: shape.clone(),
            facts: vec![],
            renamed: vec![(usual, mark)],
        }))
    }
}

impl Blocks {
    /// The scope of a scale, as the scheme's name says it.
    fn span(&self, weight: &Shape, scales: &Shape, mark: &str) -> Result<String, String> {
        let [lead @ .., out, _] = &weight[..] else {
            return Err(format!("`weight` has shape {weight}, wanted at least 2 axes"));
        };
        let long = |axes: &[u64]| axes.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        let blocks = self.0.map(|[rows, columns]| format!("b{rows}x{columns}"));
        match blocks {
            Some(blocks) if mark == ".weight_scale_inv" => Ok(blocks),
            _ if long(scales) == long(lead) => Ok("tensor".to_owned()),
            _ if long(scales) == long(&[lead, &[*out]].concat()) => Ok("row".to_owned()),
            Some(blocks) => Ok(blocks),
            None => Err(format!(
                "`{}` has shape {scales} for a weight {weight}, wanted one scale or {out}, \
                 or `weight_block_size` in the configuration",
                mark.trim_start_matches('.')
            )),
        }
    }
}

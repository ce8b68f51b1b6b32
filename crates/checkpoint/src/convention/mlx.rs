//! MLX: `quantization` in `config.json`; `weight`, `scales` and, for affine, `biases`.

use std::collections::HashMap;

use serde_json::{Map, Value};
use tensor::{Dtype, Scheme, Shape};

use super::gather::{Convention, ConventionReader, KeyUse, Keys, QuantisedModule, Weight, known};
use super::{WRITER, any_of, number, text};
use quant::spelling::{MLX_BITS, MLX_GROUPS, REALS};

/// A module is quantised if it has `scales`. `quantization` says how, and under a module's path how that
/// one is: an object with parameters of its own, or `false`. It goes before `quantization_config`, which
/// mlx-lm writes as a copy.
///
/// Source: mlx-lm `load_model` and mlx@846d17622, python/mlx/nn/layers/quantized.py.
pub(crate) struct Mlx;

static KEYS: &Keys = &[
    ("bits", None),
    ("group_size", None),
    ("mode", None),
    ("*.bits", None),
    ("*.group_size", None),
    ("*.mode", None),
    ("quant_method", WRITER),
];

impl Convention for Mlx {
    fn name(&self) -> &'static str {
        "mlx"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn key_use(&self, config: &Value, object: &str, path: &str) -> KeyUse {
        // A module's own flag.
        if config["quantization"][path].is_boolean() {
            return KeyUse::Read;
        }
        match known(KEYS, path) {
            KeyUse::Read if object == "quantization" => KeyUse::Read,
            KeyUse::Read if config[object] == config["quantization"] => {
                KeyUse::WithoutEffect("a copy of `quantization`")
            }
            KeyUse::Read => KeyUse::Unknown,
            other => other,
        }
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let quantization = config.get("quantization").filter(|q| !q.is_null())?;
        Some(Modules::read(quantization).map(|modules| Box::new(modules) as Box<dyn ConventionReader>))
    }

    /// The most common parameters are stored once, those of other modules under their paths. Both are stored under two
    /// keys, as mlx-lm does.
    fn describe(&self, weights: &[(&str, &Scheme)], _: Option<&Value>) -> Option<Map<String, Value>> {
        let quantised = weights.iter().filter(|(_, scheme)| scheme.dtype().is_none());
        let said: Vec<(&str, Map<String, Value>)> =
            quantised.map(|(module, scheme)| Some((*module, said(&scheme.name)?))).collect::<Option<_>>()?;
        let count = |params: &Map<String, Value>| said.iter().filter(|(_, p)| p == params).count();
        let usual = said.iter().rev().map(|(_, params)| params).max_by_key(|params| count(params))?;
        let mut object = usual.clone();
        for (module, params) in said.iter().filter(|(_, params)| params != usual) {
            for path in [(*module).to_owned()].into_iter().chain(stacked(module)) {
                object.insert(path, Value::Object(params.clone()));
            }
        }
        let both = ["quantization", "quantization_config"];
        Some(both.map(|key| (key.to_owned(), Value::Object(object.clone()))).into_iter().collect())
    }
}

/// The path under which mlx-lm looks for `module`, if that is of an expert: it stacks the experts of a layer.
///
/// Source: `sanitize` of mlx-lm 0.32.2, models/mixtral.py, qwen3_moe.py and deepseek_v3.py.
fn stacked(module: &str) -> Option<String> {
    let (layer, expert) = module.split_once(".experts.")?;
    let name = match expert.split_once('.')?.1 {
        "w1" => "gate_proj",
        "w2" => "down_proj",
        "w3" => "up_proj",
        name => name,
    };
    Some(format!("{layer}.switch_mlp.{name}"))
}

/// The parameters of the scheme called `name`, as `quantization` has them.
fn said(name: &str) -> Option<Map<String, Value>> {
    let (mode, bits, group) = if let Some(params) = name.strip_prefix("mlx-affine:") {
        let mut params = params.split(',');
        let mut number = |prefix| params.next()?.strip_prefix(prefix)?.parse::<u64>().ok();
        ("affine", number("b")?, number("g")?)
    } else {
        let mode = MODES.iter().find(|m| !m.biases && name.strip_prefix("mlx-") == Some(m.name))?;
        (mode.name, mode.usual_bits, mode.usual_group)
    };
    let object = [("group_size", group.into()), ("bits", bits.into()), ("mode", mode.into())];
    Some(object.map(|(key, value): (&str, Value)| (key.to_owned(), value)).into_iter().collect())
}

/// How weights are quantised.
#[derive(Clone, Copy, Debug)]
struct Params {
    mode: &'static Mode,
    bits: u64,
    group: u64,
}

/// A way of quantising: its name, the scheme that it makes, and which sizes there are, the usual one first.
#[derive(Debug)]
struct Mode {
    name: &'static str,
    bits: &'static [u64],
    usual_bits: u64,
    groups: &'static [u64],
    usual_group: u64,
    scales: &'static [Dtype],
    biases: bool,
}

const fn float(name: &'static str, bits: &'static [u64], groups: &'static [u64]) -> Mode {
    let (usual_bits, usual_group) = (bits[0], groups[0]);
    Mode { name, bits, usual_bits, groups, usual_group, scales: &[Dtype::U8], biases: false }
}

static MODES: &[Mode] = &[
    Mode {
        name: "affine",
        bits: MLX_BITS,
        usual_bits: 4,
        groups: MLX_GROUPS,
        usual_group: 64,
        scales: REALS,
        biases: true,
    },
    float("mxfp4", &[4], &[32]),
    float("nvfp4", &[4], &[16]),
    float("mxfp8", &[8], &[32]),
];

impl Params {
    /// The parameters in `object`, which stands at `path`.
    fn read(path: &str, object: &Value) -> Result<Params, String> {
        let name = text(path, object, "mode")?.unwrap_or("affine");
        let Some(mode) = MODES.iter().find(|m| m.name == name) else {
            let modes: Vec<&str> = MODES.iter().map(|m| m.name).collect();
            return Err(format!("`{path}.mode` is `{name}`, wanted one of {}", modes.join(", ")));
        };
        let one_of = |key, usual, allowed: &[u64]| {
            let n = number(path, object, key)?.unwrap_or(usual);
            if allowed.contains(&n) {
                return Ok(n);
            }
            Err(format!("`{path}.{key}` is {n}, wanted {} for mode `{name}`", any_of(allowed)))
        };
        let bits = one_of("bits", mode.usual_bits, mode.bits)?;
        let group = one_of("group_size", mode.usual_group, mode.groups)?;
        Ok(Params { mode, bits, group })
    }
}

/// How a checkpoint's modules are quantised.
struct Modules {
    usual: Params,
    /// Modules with parameters of their own, by path; `None` if the module is not quantised.
    apart: HashMap<String, Option<Params>>,
}

impl Modules {
    fn read(quantization: &Value) -> Result<Modules, String> {
        let Some(object) = quantization.as_object() else {
            return Err(format!("`quantization` is `{quantization}`, wanted an object"));
        };
        let usual = Params::read("quantization", quantization)?;
        let mut apart = HashMap::new();
        for (path, value) in object {
            let params = match value {
                Value::Object(_) => Some(Params::read(&format!("quantization.{path}"), value)?),
                Value::Bool(true) => Some(usual),
                Value::Bool(false) => None,
                // Of the whole: numbers, the mode, and what tools add.
                _ if !path.contains('.') => continue,
                _ => {
                    return Err(format!("`quantization.{path}` is {value}, wanted an object, true or false"));
                }
            };
            apart.insert(path.clone(), params);
        }
        Ok(Modules { usual, apart })
    }
}

impl ConventionReader for Modules {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight", ".scales", ".biases"]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let own = self.apart.get(module.name()).copied();
        let words = module.get(".weight").is_some_and(|w| w.scheme.dtype() == Some(Dtype::U32));
        let params = match own {
            Some(Some(params)) => params,
            Some(None) if words || module.get(".scales").is_some() => {
                let what = if words { "`weight` is u32" } else { "there are `scales`" };
                return Err(format!("`quantization` says that it is not quantised, but {what}"));
            }
            None if words || module.get(".scales").is_some() => self.usual,
            _ => return Ok(None),
        };
        weight(module, params).map(Some)
    }
}

/// The weight of `module`, quantised with `params`.
fn weight(module: &QuantisedModule<'_>, params: Params) -> Result<Weight, String> {
    let Params { mode, bits, group } = params;
    module.dtype(".weight", &[Dtype::U32])?;
    let real = module.dtype(".scales", mode.scales)?;
    if mode.biases {
        module.want(".biases")?;
    } else if module.get(".biases").is_some() {
        return Err(format!("there are `biases`, which mode `{}` has none of", mode.name));
    }
    let (words, scales) = (&module.want(".weight")?.shape, &module.want(".scales")?.shape);
    let inputs = |shape: &Shape, of: u64, per: u64| {
        let n = shape.last()?.checked_mul(of)?;
        n.is_multiple_of(per).then_some(n / per)
    };
    let (held, scaled) = (inputs(words, 32, bits), inputs(scales, group, 1));
    let (Some(k), true) = (held, held == scaled) else {
        let count = |n: Option<u64>| n.map_or("no whole number of".to_owned(), |n| n.to_string());
        return Err(format!(
            "`weight` {words} u32 holds {} inputs of {bits} bits, `scales` {scales} are for {} in groups of {group}",
            count(held),
            count(scaled),
        ));
    };
    let mut shape = words.clone().into_vec();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    let scheme = if mode.biases {
        format!("mlx-affine:b{bits},g{group},{real}")
    } else {
        format!("mlx-{}", mode.name)
    };
    Ok(Weight { suffix: ".weight", scheme, shape: shape.into(), facts: vec![], renamed: vec![] })
}

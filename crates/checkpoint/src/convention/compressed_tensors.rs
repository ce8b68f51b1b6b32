//! compressed-tensors: `quant_method: compressed-tensors` in `config.json`; `weight_packed` or `weight`, and
//! `weight_scale`.

use serde_json::Value;
use tensor::{Dtype, Shape};

use super::gather::{Convention, ConventionReader, Keys, QuantisedModule, Weight};
use super::{ACTIVATIONS, BY_NAME, BY_TENSORS, CACHE, MAKING, RUNNING, WRITER, in_order, method};
use quant::spelling::{REALS, Scope};

/// A module's own tensors determine its scheme; some group of `config_groups` must agree. (Names, classes and regular
/// expressions assign groups to modules, which changes nothing.)
///
/// Source: compressed-tensors 0.20.0, compressed_tensors/quantization/quant_config.py `QuantizationConfig`,
/// quantization/quant_args.py `QuantizationArgs`, and the names in the compressors under compressors/.
pub(crate) struct CompressedTensors;

static KEYS: &Keys = &[
    ("quant_method", None),
    ("config_groups.*.weights.num_bits", None),
    ("config_groups.*.weights.type", None),
    ("config_groups.*.weights.group_size", None),
    ("config_groups.*.weights.strategy", None),
    ("config_groups.*.weights.block_structure*", None),
    ("config_groups.*.weights.symmetric", None),
    ("config_groups", None),
    ("sparsity_config.format", None),
    ("sparsity_config", None),
    ("transform_config", None),
    ("transform_config.config_groups", None),
    ("config_groups.*.weights.actorder", BY_TENSORS),
    ("config_groups.*.weights.dynamic", BY_TENSORS),
    ("config_groups.*.weights.scale_dtype", BY_TENSORS),
    ("config_groups.*.weights.zp_dtype", BY_TENSORS),
    ("config_groups.*.weights.observer*", MAKING),
    ("config_groups.*.input_activations*", ACTIVATIONS),
    ("config_groups.*.output_activations*", ACTIVATIONS),
    ("config_groups.*.targets*", BY_NAME),
    ("config_groups.*.format", BY_TENSORS),
    ("format", BY_TENSORS),
    ("ignore*", BY_NAME),
    ("kv_cache_scheme*", CACHE),
    ("quantization_status", WRITER),
    ("global_compression_ratio", WRITER),
    ("version", WRITER),
    ("sparsity_config.*", Some("weights are dense")),
    ("run_compressed", RUNNING),
    ("dequantize", RUNNING),
    ("use_optimized_inference", RUNNING),
];

impl Convention for CompressedTensors {
    fn name(&self) -> &'static str {
        "compressed-tensors"
    }

    fn keys(&self) -> &'static Keys {
        KEYS
    }

    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>> {
        let config = method(config, "compressed-tensors")?;
        Some(Groups::read(config).map(|groups| Box::new(groups) as Box<dyn ConventionReader>))
    }
}

/// How the weights of one of `config_groups` are quantised.
struct Group {
    bits: u64,
    float: bool,
    scope: Scope,
    symmetric: bool,
}

impl Group {
    fn read(name: &str, weights: &Value) -> Result<Group, String> {
        let refuse = |key: &str, wanted: &str| {
            format!("`config_groups.{name}.weights.{key}`: wanted {wanted}, found {}", weights[key])
        };
        let bits = weights["num_bits"].as_u64().ok_or_else(|| refuse("num_bits", "a number"))?;
        let float = match weights["type"].as_str() {
            None | Some("int") => false,
            Some("float") => true,
            Some(_) => return Err(refuse("type", "\"int\" or \"float\"")),
        };
        let size = weights["group_size"].as_i64();
        let strategy = match (weights["strategy"].as_str(), size) {
            (Some(strategy), _) => strategy.to_ascii_lowercase(),
            (None, None) => "tensor".to_owned(),
            (None, Some(-1)) => "channel".to_owned(),
            (None, _) => "group".to_owned(),
        };
        let scope = match &*strategy {
            "tensor" => Scope::Tensor,
            "channel" => Scope::Row,
            "group" | "tensor_group" => {
                let size = size.and_then(|g| u64::try_from(g).ok()).filter(|g| *g > 0);
                Scope::Group(size.ok_or_else(|| refuse("group_size", "a positive number"))?)
            }
            "block" => {
                let size = block(&weights["block_structure"]);
                let (rows, columns) = size.ok_or_else(|| refuse("block_structure", "[rows, columns]"))?;
                Scope::Block(rows, columns)
            }
            _ => return Err(refuse("strategy", "tensor, channel, group, tensor_group or block")),
        };
        Ok(Group { bits, float, scope, symmetric: weights["symmetric"].as_bool().unwrap_or(true) })
    }

    fn text(&self) -> String {
        let Group { bits, float, scope, symmetric } = self;
        let scope = match scope {
            Scope::Tensor => "tensor".to_owned(),
            Scope::Row | Scope::Act(_) => "row".to_owned(),
            Scope::Group(g) => format!("group of {g}"),
            Scope::Block(rows, columns) => format!("block of {rows}x{columns}"),
        };
        let kind = if *float { "float" } else { "int" };
        format!("{bits}-bit {kind} by {scope}{}", if *symmetric { "" } else { " with zero points" })
    }
}

/// `[128, 128]`, or `"128x128"` as older versions write it.
fn block(structure: &Value) -> Option<(u64, u64)> {
    let (rows, columns) = match (structure.as_array().map(Vec::as_slice), structure.as_str()) {
        (Some([rows, columns]), _) => (rows.as_u64()?, columns.as_u64()?),
        (None, Some(text)) => {
            let (rows, columns) = text.split_once('x')?;
            (rows.parse().ok()?, columns.parse().ok()?)
        }
        _ => return None,
    };
    (rows > 0 && columns > 0).then_some((rows, columns))
}

/// All of `config_groups`.
struct Groups(Vec<Group>);

const WEIGHT: &str = ".weight";
const PACKED: &str = ".weight_packed";
const SCALE: &str = ".weight_scale";
const SHAPE: &str = ".weight_shape";
const ZERO: &str = ".weight_zero_point";
const G_IDX: &str = ".weight_g_idx";
const GLOBAL: &str = ".weight_global_scale";

impl Groups {
    fn read(config: &Value) -> Result<Groups, String> {
        if let Some(format) = config["sparsity_config"]["format"].as_str().filter(|f| *f != "dense") {
            return Err(format!("`sparsity_config.format`: wanted \"dense\", found \"{format}\""));
        }
        if config["transform_config"]["config_groups"].as_object().is_some_and(|groups| !groups.is_empty()) {
            return Err("`transform_config`: wanted none, found weights in a rotated basis".to_owned());
        }
        let groups = config["config_groups"]
            .as_object()
            .ok_or_else(|| format!("`config_groups`: wanted an object, found {}", config["config_groups"]))?;
        let groups = groups.iter().filter(|(_, group)| group["weights"].is_object());
        groups.map(|(name, group)| Group::read(name, &group["weights"])).collect::<Result<_, _>>().map(Groups)
    }

    /// The first group that says the same as a module's tensors, which are `found`.
    fn find(&self, found: &str, same: impl Fn(&Group) -> bool) -> Result<&Group, String> {
        self.0.iter().find(|g| same(g)).ok_or_else(|| {
            let groups: Vec<String> = self.0.iter().map(Group::text).collect();
            format!("the tensors are {found}, but `config_groups` has only {}", groups.join("; "))
        })
    }

    /// `pack-quantized`.
    fn packed(&self, module: &QuantisedModule<'_>) -> Result<Weight, String> {
        module.dtype(PACKED, &[Dtype::I32])?;
        let [out, inputs] = weight_shape(module)?;
        let [_, words] = module.shape(PACKED)?;
        let scales = Scales::of(module, [out, inputs])?;
        let found = format!("ints in {words} words a row, {}", scales.text());
        let group = self.find(&found, |g| {
            let wanted = inputs.checked_mul(g.bits).map(|n| n.div_ceil(32));
            !g.float && (1..=8).contains(&g.bits) && wanted == Some(words) && scales.are(g)
        })?;
        let mut scope = group.scope;
        let mut facts = vec![SHAPE];
        if module.get(G_IDX).is_some() {
            // One -1 says that nothing was ordered.
            let unordered = module.bytes(G_IDX)?.as_chunks().0.contains(&(-1i32).to_le_bytes());
            if in_order(module, G_IDX, inputs, scope)? || unordered {
                facts.push(G_IDX);
            } else {
                scope = Scope::Act(scope.groups(inputs));
            }
        }
        let scheme = format!("ct-pack:b{},{}", group.bits, scales.spelt(scope));
        Ok(weight(scheme, [out, inputs], facts, None))
    }

    /// `int-quantized` and `float-quantized`.
    fn bytes(&self, module: &QuantisedModule<'_>, float: bool) -> Result<Weight, String> {
        let shape: [u64; 2] = module.shape(WEIGHT)?;
        let scales = Scales::of(module, shape)?;
        let kind = if float { "8-bit floats" } else { "ints in bytes" };
        let group = self.find(&format!("{kind}, {}", scales.text()), |g| {
            g.float == float && (g.bits == 8 || (!float && g.bits < 8)) && scales.are(g)
        })?;
        let scope = match group.scope {
            Scope::Group(g) if float => Scope::Block(1, g),
            scope => scope,
        };
        Ok(match (float, scales.dtype) {
            (false, _) => weight(format!("ct-int8:{}", scales.spelt(scope)), shape, vec![], None),
            (true, Dtype::F32) => {
                let renamed = (".weight_scale_inv", SCALE);
                weight(format!("fp8:e4m3,{}", scales.spelt(scope)), shape, vec![], Some(renamed))
            }
            (true, _) => weight(format!("ct-fp8:{}", scales.spelt(scope)), shape, vec![], None),
        })
    }

    /// Small floats in groups: only one size each.
    fn small(
        &self,
        module: &QuantisedModule<'_>,
        scheme: &str,
        bits: u64,
        size: u64,
    ) -> Result<Weight, String> {
        let [out, columns] = module.shape(if bits == 4 { PACKED } else { WEIGHT })?;
        let inputs = columns.checked_mul(8 / bits).ok_or("the weight is too large")?;
        self.find(&format!("{bits}-bit floats by group of {size}"), |g| {
            (g.bits, g.float, g.scope) == (bits, true, Scope::Group(size))
        })?;
        Ok(weight(scheme.to_owned(), [out, inputs], vec![], None))
    }
}

fn weight(
    scheme: String,
    shape: [u64; 2],
    facts: Vec<&'static str>,
    renamed: Option<(&'static str, &'static str)>,
) -> Weight {
    Weight { suffix: WEIGHT, scheme, shape: shape.into(), facts, renamed: renamed.into_iter().collect() }
}

impl ConventionReader for Groups {
    fn marks(&self) -> &'static [&'static str] {
        &[WEIGHT, PACKED, SCALE, SHAPE, ZERO, G_IDX, GLOBAL]
    }

    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String> {
        let dtype = |mark| module.get(mark).and_then(|e| e.scheme.dtype());
        match (dtype(PACKED), dtype(WEIGHT), dtype(SCALE)) {
            (Some(Dtype::U8), _, Some(Dtype::F8E4M3)) => self.small(module, "ct-nvfp4", 4, 16),
            (Some(Dtype::U8), _, Some(Dtype::U8 | Dtype::F8E8M0)) => self.small(module, "ct-mxfp4", 4, 32),
            (Some(_), ..) => self.packed(module),
            (None, Some(Dtype::F8E4M3), Some(Dtype::U8 | Dtype::F8E8M0)) => {
                self.small(module, "ct-mxfp8", 8, 32)
            }
            (None, Some(Dtype::F8E4M3), _) => self.bytes(module, true),
            (None, Some(Dtype::I8), _) => self.bytes(module, false),
            // A weight as it is; scales of activations and caches are no marks.
            (None, Some(_), None) => return Ok(None),
            (None, Some(other), Some(_)) => {
                Err(format!("`weight` is {other}, wanted i8 or f8_e4m3 beside `weight_scale`"))
            }
            (None, None, _) => return module.want(WEIGHT).map(|_| None),
        }
        .map(Some)
    }
}

/// The value of `weight_shape`.
fn weight_shape(module: &QuantisedModule<'_>) -> Result<[u64; 2], String> {
    let bytes = module.bytes(SHAPE)?;
    let numbers: Vec<i64> = match module.dtype(SHAPE, &[Dtype::I64, Dtype::I32])? {
        Dtype::I64 => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
    };
    match *numbers {
        [out, inputs] if out > 0 && inputs > 0 => Ok([out.cast_unsigned(), inputs.cast_unsigned()]),
        _ => Err(format!("`weight_shape` is {numbers:?}, wanted [out, in]")),
    }
}

/// The scales of a module's weight, `[out, in]`, and whether there are zero points.
struct Scales {
    dtype: Dtype,
    weight: [u64; 2],
    /// Below each other, and in a row.
    cells: [u64; 2],
    zeros: bool,
}

impl Scales {
    fn of(module: &QuantisedModule<'_>, weight: [u64; 2]) -> Result<Scales, String> {
        let dtype = module.dtype(SCALE, REALS)?;
        let shape: &Shape = &module.want(SCALE)?.shape;
        let cells = match **shape {
            [] => [1, 1],
            [n] => [n, 1],
            [rows, columns] => [rows, columns],
            _ => return Err(format!("`weight_scale` has shape {shape}, wanted at most 2 axes")),
        };
        Ok(Scales { dtype, weight, cells, zeros: module.get(ZERO).is_some() })
    }

    /// Whether the number of scales and the presence of zero points match the group.
    fn are(&self, group: &Group) -> bool {
        group.scope.cells(self.weight) == self.cells && group.symmetric != self.zeros
    }

    /// As a message says it.
    fn text(&self) -> String {
        let Scales { weight, cells, .. } = self;
        format!("{weight:?} with {cells:?} scales{}", if self.zeros { " and zero points" } else { "" })
    }

    /// As the name of a scheme does.
    fn spelt(&self, scope: Scope) -> String {
        format!("{},{}{}", scope.text(), if self.zeros { "z," } else { "" }, self.dtype)
    }
}

//! Presets: which scheme a parameter gets by what it is for. One line a rule; the first that takes it wins.
//!
//! Source of those that are named as llama.cpp's file types: `llama_tensor_get_type_impl`,
//! `tensor_allows_quantization` and `tensor_type_fallback` of src/llama-quant.cpp, llama.cpp@0c1e57098. Not
//! followed: its exceptions for 70B Llama, for Falcon and for mixtures of eight experts. `mlx-4bit` is what mlx-lm's
//! `quantize_model` does by default (utils.py: linear layers and embeddings whose columns are whole groups; routers
//! with 8 bits, as the `quant_predicate` of its mixtures says).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{Model, Role};
use plan::Resolved;
use tensor::{Diagnostics, Dtype, Expr, Scheme, Shape, Target};

use super::misfits::fits;
use super::{Choice, Subject};
use crate::{Adapter, Error};
use Layers::{All, More};
use Purpose::{Down, Embedding, Matrix, Output, Position, Router, Unused, Value, Vector};

/// What a parameter is for, as far as presets tell parameters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Norms, biases, tables of one axis.
    Vector,
    /// Chooses experts.
    Router,
    /// Position and token type embeddings.
    Position,
    /// The output matrix, and the token embedding where that is the same.
    Output,
    /// The token embedding, where the output matrix is another.
    Embedding,
    /// Attention values, alone or fused with queries and keys.
    Value,
    /// The last matrix of a feed-forward network.
    Down,
    /// Every other matrix.
    Matrix,
    /// Entries that the model does not use.
    Unused,
}

/// The layers that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layers {
    /// All.
    All,
    /// The first and the last eighth, and every third between them.
    More,
}

/// What a rule makes of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// What it is.
    AsStored,
    /// This scheme, or what [`FALLBACKS`] has for it. `{}` is the dtype of the parameter's own floats, or where its blocks
    /// say none that of the model's.
    Scheme(&'static str),
}

struct Rule(&'static [Purpose], Layers, To);

/// A named set of rules.
pub struct Preset {
    name: &'static str,
    about: &'static str,
    /// `general.file_type` of GGUF.
    file_type: Option<u32>,
    rules: &'static [Rule],
}

const KEPT: To = To::AsStored;
const F32: To = To::Scheme("f32");
const Q8_0: To = To::Scheme("q8_0");
const Q6_K: To = To::Scheme("q6_k");
const Q5_K: To = To::Scheme("q5_k");
const Q4_K: To = To::Scheme("q4_k");
const MLX4: To = To::Scheme("mlx-affine:b4,g64,{}");
const MLX8: To = To::Scheme("mlx-affine:b8,g64,{}");
const INT8: To = To::Scheme("bnb-int8");
const FP8: To = To::Scheme("fp8:e4m3,b128x128,f32");

/// Every preset.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "q4_k_m",
        about: "4.8 bits: q4_k, and q6_k where it matters",
        file_type: Some(15),
        rules: &[
            Rule(&[Vector], All, F32),
            Rule(&[Router, Position, Unused], All, KEPT),
            Rule(&[Output], All, Q6_K),
            Rule(&[Value, Down], More, Q6_K),
            Rule(&[Embedding, Value, Down, Matrix], All, Q4_K),
        ],
    },
    Preset {
        name: "q5_k_m",
        about: "5.7 bits: q5_k, and q6_k where it matters",
        file_type: Some(17),
        rules: &[
            Rule(&[Vector], All, F32),
            Rule(&[Router, Position, Unused], All, KEPT),
            Rule(&[Output], All, Q6_K),
            Rule(&[Value, Down], More, Q6_K),
            Rule(&[Embedding, Value, Down, Matrix], All, Q5_K),
        ],
    },
    Preset {
        name: "q6_k",
        about: "6.6 bits",
        file_type: Some(18),
        rules: &[
            Rule(&[Vector], All, F32),
            Rule(&[Router, Position, Unused], All, KEPT),
            Rule(&[Output, Embedding, Value, Down, Matrix], All, Q6_K),
        ],
    },
    Preset {
        name: "q8_0",
        about: "8.5 bits",
        file_type: Some(7),
        rules: &[
            Rule(&[Vector], All, F32),
            Rule(&[Router, Position, Unused], All, KEPT),
            Rule(&[Output, Embedding, Value, Down, Matrix], All, Q8_0),
        ],
    },
    Preset {
        name: "mlx-4bit",
        about: "4.5 bits: every matrix and embedding, for mlx",
        file_type: None,
        rules: &[
            Rule(&[Vector, Unused], All, KEPT),
            Rule(&[Router], All, MLX8),
            Rule(&[Position, Output, Embedding, Value, Down, Matrix], All, MLX4),
        ],
    },
    Preset {
        name: "int8",
        about: "8 bits and a scale a row: the matrices of the layers, for hf (bitsandbytes)",
        file_type: None,
        rules: &[
            Rule(&[Vector, Router, Position, Unused, Output, Embedding], All, KEPT),
            Rule(&[Value, Down, Matrix], All, INT8),
        ],
    },
    Preset {
        name: "fp8-block",
        about: "8 bits and a scale for 128 × 128: the matrices of the layers, for hf",
        file_type: None,
        rules: &[
            Rule(&[Vector, Router, Position, Unused, Output, Embedding], All, KEPT),
            Rule(&[Value, Down, Matrix], All, FP8),
        ],
    },
];

/// What a shape that does not fit a scheme gets instead.
static FALLBACKS: &[(&str, &str)] = &[
    ("q4_k", "q5_0"),
    ("q5_k", "q5_1"),
    ("q6_k", "q8_0"),
    ("q5_0", "f16"),
    ("q5_1", "f16"),
    ("q8_0", "f16"),
];

/// Why a matrix cannot have what a preset has for it.
pub(super) const TRANSPOSED: &str =
    "it is stored `[in, out]`, so that its last axis is not what is summed over";

impl Purpose {
    fn text(self) -> &'static str {
        match self {
            Vector => "norms and vectors",
            Router => "routers",
            Position => "position embeddings",
            Output => "output",
            Embedding => "token embedding",
            Value => "attention values",
            Down => "ffn down",
            Matrix => "matrices",
            Unused => "unused",
        }
    }
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Preset {
    /// The preset called `name`, in capitals or not.
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|p| p.name.eq_ignore_ascii_case(name))
    }

    /// The schemes that it makes of tensors whose shapes they fit; of models in bf16, if that matters.
    pub(super) fn schemes(&self) -> impl Iterator<Item = Arc<Scheme>> {
        let names = self.rules.iter().filter_map(|rule| match rule.2 {
            To::AsStored => None,
            To::Scheme(name) => Some(name.replace("{}", Dtype::BF16.name())),
        });
        names.filter_map(|name| quant::scheme(&name))
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in a few words.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// That nobody knows what tensors are for.
    pub(crate) fn unknown(&self, source: &Error) -> Error {
        let what = format!(
            "the preset `{}` depends on what each tensor is for, which is unknown: {source}",
            self.name
        );
        let hints = source.hints().into_iter().chain(["name the tensors, with encoding rules".to_owned()]);
        Error::Encoding { what: Diagnostics::of(&what, hints) }
    }

    /// `general.file_type` of the GGUF file that it makes.
    pub fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// What becomes of a parameter; or what is wrong.
    pub(super) fn choose(&self, subject: &Subject<'_>, parts: &Purposes) -> Result<Choice, String> {
        let place = parts.of(subject.name);
        let (part, more) = place.map_or((Unused, false), |p| (p.part, p.more));
        let takes = |r: &&Rule| r.0.contains(&part) && (r.1 == All || more);
        let Some(Rule(_, layers, to)) = self.rules.iter().find(takes) else {
            return Err(format!("the preset `{}` has no rule for {}", self.name, part.text()));
        };
        let layers = if *layers == More { ", more bits" } else { "" };
        let rule = format!("{}: {}{layers}", self.name, part.text());
        let To::Scheme(wanted) = to else { return Ok(Choice { scheme: None, rule }) };
        if place.is_some_and(|p| p.transposed) && subject.shape.len() > 1 {
            return Err(TRANSPOSED.to_owned());
        }
        // Blocks are decoded to f32, whatever the model computes with.
        let decoded = floats_in(subject.stored).is_none() && subject.scheme.dtype() == Some(Dtype::F32);
        let floats = floats_in(subject.scheme).filter(|_| !decoded).unwrap_or(parts.floats);
        let (scheme, fell) = match fitting(wanted, subject.shape, floats) {
            Some((scheme, fell)) => (Some(scheme), fell),
            None => (None, true),
        };
        let rule = if fell { format!("{rule}, as {wanted} does not fit") } else { rule };
        Ok(Choice { scheme, rule })
    }
}

/// The dtype of the floats that a model computes with, if `scheme` tells it: by being that, or by the scales of its blocks,
/// which have it but for those that are f32 in any model.
pub fn floats_in(scheme: &Scheme) -> Option<Dtype> {
    let name = scheme.name.strip_suffix(".be").unwrap_or(&scheme.name);
    let (blocks, last) = name.rsplit_once(',').unwrap_or(("", name));
    match last {
        "f16" => Some(Dtype::F16),
        "bf16" => Some(Dtype::BF16),
        "f32" if blocks.is_empty() || blocks.starts_with("mlx-") => Some(Dtype::F32),
        _ => None,
    }
}

/// The dtype of floats in the model that `resolved` is of, where blocks do not tell it: that of most 16-bit floats, else
/// bf16, in which models are trained.
fn floats_of(resolved: &Resolved) -> Dtype {
    let count = |dtype| -> u64 {
        let own = resolved.params.iter().filter(|p| floats_in(&p.scheme) == Some(dtype));
        own.filter_map(|p| p.shape.elements()).fold(0, u64::saturating_add)
    };
    if count(Dtype::F16) > count(Dtype::BF16) { Dtype::F16 } else { Dtype::BF16 }
}

/// `wanted`, or the first of its fallbacks that `shape` fits, and whether it is a fallback.
fn fitting(wanted: &str, shape: &Shape, floats: Dtype) -> Option<(Arc<Scheme>, bool)> {
    let mut name = wanted.replace("{}", floats.name());
    let mut fell = false;
    loop {
        let scheme = quant::scheme(&name)?;
        if fits(&scheme, shape).is_ok() {
            return Some((scheme, fell));
        }
        name = FALLBACKS.iter().find(|(from, _)| *from == name)?.1.to_owned();
        fell = true;
    }
}

/// What one parameter is for.
struct ParamPurpose {
    part: Purpose,
    /// Whether it is in a layer of [`Layers::More`].
    more: bool,
    /// Whether it is stored transposed.
    transposed: bool,
}

/// A canonical parameter in a parameter of a layout.
pub(crate) struct LayoutParam {
    /// The layout's name.
    pub(super) name: String,
    /// The canonical name.
    pub(super) param: String,
    /// Whether it lies transposed there.
    pub(super) transposed: bool,
}

impl LayoutParam {
    /// The canonical parameters themselves.
    pub(crate) fn in_params(resolved: &Resolved) -> Vec<LayoutParam> {
        let own = resolved.params.iter().filter(|p| p.tied_to.is_none());
        own.map(|p| LayoutParam { name: p.name.clone(), param: p.name.clone(), transposed: false }).collect()
    }

    /// The entries that canonical parameters are made from.
    fn in_entries(resolved: &Resolved) -> Vec<LayoutParam> {
        let mut held = vec![];
        for param in resolved.params.iter().filter(|p| p.tied_to.is_none()) {
            let transposed = is_transposed(&param.expr);
            param.expr.for_each_source(&mut |name| {
                held.push(LayoutParam { name: name.to_owned(), param: param.name.clone(), transposed });
            });
        }
        held
    }

    /// The targets that are made from canonical parameters.
    pub(crate) fn in_targets(targets: &[Target]) -> Vec<LayoutParam> {
        let mut held = vec![];
        for target in targets {
            let transposed = is_transposed(&target.expr);
            target.expr.for_each_source(&mut |param| {
                held.push(LayoutParam { name: target.name.clone(), param: param.to_owned(), transposed });
            });
        }
        held
    }
}

/// What each parameter of a layout is for.
pub(crate) struct Purposes {
    places: HashMap<String, ParamPurpose>,
    /// The dtype of floats in the model.
    floats: Dtype,
}

impl Purposes {
    /// What each name of a layout is for, given the canonical parameters that are in it, and what their roles are.
    pub(crate) fn new(
        resolved: &Resolved,
        role: impl Fn(&str) -> Option<Role>,
        held: &[LayoutParam],
    ) -> Purposes {
        let own: HashMap<&str, usize> = resolved
            .params
            .iter()
            .filter(|p| p.tied_to.is_none())
            .map(|p| (p.name.as_str(), p.shape.len()))
            .collect();
        let tied = !own.contains_key("output.weight");
        // One entry may hold several parameters: the one that needs most care decides.
        let mut places: HashMap<String, (ParamPurpose, Option<u64>)> = HashMap::new();
        for LayoutParam { name, param, transposed } in held {
            let Some(axes) = own.get(param.as_str()) else { continue };
            let role = role(param).unwrap_or(Role::Matrix);
            let part = part(param, role, *axes, tied);
            let place = || (ParamPurpose { part, more: false, transposed: *transposed }, layer(param));
            let (there, _) = places.entry(name.clone()).or_insert_with(place);
            if part == Value {
                there.part = Value;
            }
        }
        for part in [Value, Down] {
            let layers: BTreeSet<u64> =
                places.values().filter(|(p, _)| p.part == part).filter_map(|(_, n)| *n).collect();
            let rank: HashMap<u64, usize> = layers.iter().enumerate().map(|(i, n)| (*n, i)).collect();
            for (place, n) in places.values_mut().filter(|(p, _)| p.part == part) {
                place.more = n.and_then(|n| rank.get(&n)).is_some_and(|i| more_bits(*i, layers.len()));
            }
        }
        let places = places.into_iter().map(|(name, (place, _))| (name, place)).collect();
        Purposes { places, floats: floats_of(resolved) }
    }

    /// The same of the entries of a checkpoint, under the names that they have after a user's rules.
    pub(crate) fn in_entries(
        checkpoint: &Checkpoint,
        adapter: &Adapter,
        model: &Model,
    ) -> Result<Purposes, Error> {
        let resolved = adapter.resolve_named(checkpoint, model)?;
        Ok(Purposes::new(&resolved, roles(model), &LayoutParam::in_entries(&resolved)))
    }

    fn of(&self, name: &str) -> Option<&ParamPurpose> {
        self.places.get(name)
    }
}

/// The roles of a model's parameters, by name.
pub(crate) fn roles(model: &Model) -> impl Fn(&str) -> Option<Role> {
    let roles: HashMap<String, Role> = model.params().map(|s| (s.name.clone(), s.role)).collect();
    move |name| roles.get(name).copied()
}

/// Source: `use_more_bits`.
fn more_bits(i: usize, layers: usize) -> bool {
    i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2
}

/// What the canonical parameter called `name` is for.
fn part(name: &str, role: Role, axes: usize, tied: bool) -> Purpose {
    let segments: Vec<&str> = name.split('.').collect();
    match segments[..] {
        _ if role == Role::Vector || axes < 2 => Vector,
        _ if segments.contains(&"router") => Router,
        [.., "position_embedding" | "token_type_embedding", _] => Position,
        ["output", "weight"] => Output,
        ["token_embedding", ..] => {
            if tied {
                Output
            } else {
                Embedding
            }
        }
        [.., "v" | "v_b", "weight"] => Value,
        [.., "down", "weight"] => Down,
        _ => Matrix,
    }
}

fn layer(name: &str) -> Option<u64> {
    let mut segments = name.split('.');
    segments.find(|s| *s == "layers")?;
    segments.next()?.parse().ok()
}

/// Whether the rows of what `expr` gives are columns of what it is made from.
fn is_transposed(expr: &Expr) -> bool {
    match expr {
        Expr::Permute { axes, of } => axes[..] == [1, 0] || is_transposed(of),
        Expr::Slice { of, .. }
        | Expr::Split { of, .. }
        | Expr::Merge { of, .. }
        | Expr::Encode { of, .. } => is_transposed(of),
        Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().any(is_transposed),
        Expr::Source(_) | Expr::Zero(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_rule_for_every_part_and_every_scheme_is_there() {
        for preset in PRESETS {
            for part in [Vector, Router, Position, Output, Embedding, Value, Down, Matrix, Unused] {
                let rule = preset.rules.iter().find(|r| r.0.contains(&part) && r.1 == All);
                assert!(rule.is_some(), "`{}` has none for {part:?}", preset.name);
            }
            for Rule(_, _, to) in preset.rules {
                if let To::Scheme(name) = to {
                    assert!(quant::scheme(&name.replace("{}", "bf16")).is_some(), "{name}");
                }
            }
        }
        assert!(FALLBACKS.iter().all(|(a, b)| quant::scheme(a).is_some() && quant::scheme(b).is_some()));
    }

    #[test]
    fn columns_that_do_not_fit_fall_back_as_in_llama_cpp() {
        let get = |name: &str, columns: u64| {
            fitting(name, &[2, columns].into(), Dtype::BF16).map(|(s, fell)| (s.name.to_string(), fell))
        };
        let some = |name: &str, fell| Some((name.to_owned(), fell));
        assert_eq!(get("q4_k", 512), some("q4_k", false));
        assert_eq!(get("q4_k", 576), some("q5_0", true));
        assert_eq!(get("q6_k", 576), some("q8_0", true));
        assert_eq!(get("q5_k", 100), some("f16", true));
    }

    #[test]
    fn floats_are_those_that_a_model_computes_with() {
        for (name, floats) in [
            ("f32", Some(Dtype::F32)),
            ("bf16.be", Some(Dtype::BF16)),
            ("mlx-affine:b4,g64,f16", Some(Dtype::F16)),
            ("mlx-affine:b4,g64,f32", Some(Dtype::F32)),
            ("fp8:e4m3,b128x128,f32", None),
            ("q4_1", None),
        ] {
            assert_eq!(floats_in(&quant::scheme(name).unwrap()), floats, "{name}");
        }
    }

    #[test]
    fn parameters_are_told_apart_by_their_canonical_names() {
        let of = |name: &str, axes: usize| part(name, Role::Matrix, axes, false);
        for (name, axes, wanted) in [
            ("layers.3.ffn.router.weight", 2, Router),
            ("layers.3.ffn.router.correction.bias", 1, Vector),
            ("layers.3.ffn.experts.gate.weight", 3, Matrix),
            ("layers.3.ffn.experts.down.weight", 3, Down),
            ("layers.3.ffn.shared.down.weight", 2, Down),
            ("layers.3.attention.v.weight", 2, Value),
            ("layers.3.attention.v_b.weight", 3, Value),
            ("layers.3.attention.kv_a.weight", 2, Matrix),
            ("layers.3.attention.sinks.weight", 1, Vector),
            ("layers.3.cross_attn.v.weight", 2, Value),
            ("enc.position_embedding.weight", 2, Position),
            ("token_type_embedding.weight", 2, Position),
            ("output.weight", 2, Output),
        ] {
            assert_eq!(of(name, axes), wanted, "{name}");
        }
        // Biases of experts have two axes.
        assert_eq!(part("layers.3.ffn.experts.gate.bias", Role::Vector, 2, false), Vector);
    }

    #[test]
    fn more_bits_go_to_the_ends_and_every_third_layer() {
        let more: Vec<usize> = (0..30).filter(|i| more_bits(*i, 30)).collect();
        assert_eq!(more, [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]);
    }
}

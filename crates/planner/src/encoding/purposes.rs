//! The purpose of each parameter, as far as presets tell parameters apart.

use std::collections::{BTreeSet, HashMap};

use checkpoint::Checkpoint;
use model::{Model, Role};
use plan::Resolved;
use tensor::{Dtype, Expr, Shape, Target};

use super::floats_in;
use crate::{Adapter, Error};
use Purpose::{
    AttentionOutput, Down, Embedding, Key, Latent, LatentKeyValue, Matrix, Output, Position, Router,
    TiedEmbedding, Unused, Value, Vector,
};

/// The purpose of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Norms, biases, tables of one axis.
    Vector,
    /// Chooses experts.
    Router,
    /// Position and token type embeddings.
    Position,
    /// The output matrix.
    Output,
    /// The token embedding, where the output matrix is the same.
    TiedEmbedding,
    /// The token embedding, where the output matrix is another.
    Embedding,
    /// Attention values, alone or fused with queries and keys.
    Value,
    /// Attention keys, alone.
    Key,
    /// The latent vector that keys and values come from.
    Latent,
    /// Keys and values that come from a latent vector, fused.
    LatentKeyValue,
    /// The last matrix of attention.
    AttentionOutput,
    /// The last matrix of a feed-forward network.
    Down,
    /// Every other matrix.
    Matrix,
    /// Entries that the model does not use.
    Unused,
}

impl Purpose {
    #[cfg(test)]
    pub(super) const ALL: [Purpose; 14] = [
        Vector,
        Router,
        Position,
        Output,
        TiedEmbedding,
        Embedding,
        Value,
        Key,
        Latent,
        LatentKeyValue,
        AttentionOutput,
        Down,
        Matrix,
        Unused,
    ];

    pub(super) fn text(self) -> &'static str {
        match self {
            Vector => "norms and vectors",
            Router => "routers",
            Position => "position embeddings",
            Output | TiedEmbedding => "output",
            Embedding => "token embedding",
            Value => "attention values",
            Key => "attention keys",
            Latent => "latent vectors",
            LatentKeyValue => "latent keys and values",
            AttentionOutput => "attention output",
            Down => "ffn down",
            Matrix => "matrices",
            Unused => "unused",
        }
    }
}

/// The numbers of a model that presets depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// The name of its family.
    pub(super) family: &'static str,
    /// Query heads of a key and value head.
    pub(super) group: u64,
    /// Experts of a layer; 0: none.
    pub(super) experts: u64,
    /// Whether llama.cpp calls the model `70B`.
    pub(super) is_70b: bool,
}

impl Traits {
    pub(crate) fn of(model: &Model) -> Traits {
        let config = model.config();
        let (layers, heads, kv_heads) = (*config.layers, *config.heads, *config.kv_heads);
        // `LLM_TYPE_70B` in src/models/llama.cpp, which mistral and mixtral are too, and src/models/qwen2.cpp.
        let is_70b = match model.family.name() {
            "llama" | "mistral" | "mixtral" => layers == 80 && heads != kv_heads,
            "qwen2" => layers == 80,
            _ => false,
        };
        let experts = config.moe.as_ref().map_or(0, |moe| *moe.experts);
        Traits {
            family: model.family.name(),
            group: heads.checked_div(kv_heads).unwrap_or(0),
            experts,
            is_70b,
        }
    }
}

/// The purpose of one parameter, and the place of its layer.
pub(super) struct ParamPurpose {
    pub(super) purpose: Purpose,
    /// Index of its layer, from 0, among the layers that have a parameter of this purpose.
    pub(super) index: usize,
    /// How many such layers there are.
    pub(super) layers: usize,
    /// Whether it is stored transposed.
    pub(super) transposed: bool,
}

impl ParamPurpose {
    /// True if it is the matrix of a linear layer within the model, and lies `[out, in]`.
    fn is_linear(&self) -> bool {
        let others = [Vector, Router, Position, Output, TiedEmbedding, Embedding, Unused];
        !self.transposed && !others.contains(&self.purpose)
    }
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

/// The purposes of all parameters of a layout.
pub(crate) struct Purposes {
    places: HashMap<String, ParamPurpose>,
    pub(super) traits: Traits,
    /// The dtype of floats in the model.
    pub(super) floats: Dtype,
    /// Columns of a group of GPTQ and AWQ: as many of [`GROUPS`] as every linear layer has whole groups of.
    pub(super) group: u64,
}

/// The sizes of groups that all readers of GPTQ and AWQ know (vLLM 0.33.0, `MARLIN_SUPPORTED_GROUP_SIZES`), the usual one first.
const GROUPS: [u64; 3] = [128, 64, 32];

impl Purposes {
    /// Finds the purpose of each name of a layout from the canonical parameters in it and their roles.
    pub(crate) fn new(
        resolved: &Resolved,
        role: impl Fn(&str) -> Option<Role>,
        held: &[LayoutParam],
        traits: Traits,
    ) -> Purposes {
        let own: HashMap<&str, usize> = resolved
            .params
            .iter()
            .filter(|p| p.tied_to.is_none())
            .map(|p| (p.name.as_str(), p.shape.len()))
            .collect();
        let tied = !own.contains_key("output.weight");
        let mut places: HashMap<String, (ParamPurpose, Option<u64>)> = HashMap::new();
        for LayoutParam { name, param, transposed } in held {
            let Some(axes) = own.get(param.as_str()) else { continue };
            let role = role(param).unwrap_or(Role::Matrix);
            let purpose = purpose(param, role, *axes, tied);
            let place = ParamPurpose { purpose, index: 0, layers: 0, transposed: *transposed };
            match places.get_mut(name) {
                None => {
                    places.insert(name.clone(), (place, layer(param)));
                }
                Some((there, _)) => there.purpose = fused(there.purpose, purpose, param),
            }
        }
        let mut layers: HashMap<Purpose, BTreeSet<u64>> = HashMap::new();
        for (place, n) in places.values() {
            layers.entry(place.purpose).or_default().extend(n);
        }
        let ranks: HashMap<(Purpose, u64), usize> = layers
            .iter()
            .flat_map(|(purpose, layers)| layers.iter().enumerate().map(|(i, n)| ((*purpose, *n), i)))
            .collect();
        let places = places.into_iter().map(|(name, (place, n))| {
            let index = n.and_then(|n| ranks.get(&(place.purpose, n))).copied().unwrap_or(0);
            let layers = layers.get(&place.purpose).map_or(0, BTreeSet::len);
            (name, ParamPurpose { index, layers, ..place })
        });
        let places: HashMap<String, ParamPurpose> = places.collect();
        let columns: Vec<u64> = held
            .iter()
            .filter(|held| places.get(&held.name).is_some_and(ParamPurpose::is_linear))
            .filter_map(|held| Some(resolved.find(&held.param)?.shape.last_chunk::<2>()?[1]))
            .collect();
        let whole = |group: &u64| columns.iter().all(|columns| columns.is_multiple_of(*group));
        let group = GROUPS.into_iter().find(whole).unwrap_or(GROUPS[0]);
        Purposes { places, traits, floats: floats_of(resolved), group }
    }

    /// The same of the entries of a checkpoint, under the names that they have after a user's rules.
    pub(crate) fn in_entries(
        checkpoint: &Checkpoint,
        adapter: &Adapter,
        model: &Model,
    ) -> Result<Purposes, Error> {
        let resolved = adapter.resolve_named(checkpoint, model)?;
        let held = LayoutParam::in_entries(&resolved);
        Ok(Purposes::new(&resolved, roles(model), &held, Traits::of(model)))
    }

    pub(super) fn of(&self, name: &str) -> Option<&ParamPurpose> {
        self.places.get(name)
    }

    /// Names the kind of the parameter called `name`, of `shape`, if it is not the matrix of one linear layer, `[out, in]`.
    pub(super) fn other_than_linear(&self, name: &str, shape: &Shape) -> Option<&'static str> {
        match self.of(name) {
            None => Some("not used by the model"),
            Some(place) if !place.is_linear() => Some(match place.purpose {
                Vector => "a norm or another vector",
                Router => "a router",
                Position => "a table of positions",
                Output => "the output matrix",
                TiedEmbedding | Embedding => "the token embedding",
                Unused => "not used by the model",
                _ => "stored `[in, out]`",
            }),
            Some(_) if shape.len() != 2 => Some("no matrix"),
            Some(_) => None,
        }
    }
}

/// The roles of a model's parameters, by name.
pub(crate) fn roles(model: &Model) -> impl Fn(&str) -> Option<Role> {
    let roles: HashMap<String, Role> = model.params().map(|s| (s.name.clone(), s.role)).collect();
    move |name| roles.get(name).copied()
}

/// Returns the purpose of the canonical parameter called `name`.
fn purpose(name: &str, role: Role, axes: usize, tied: bool) -> Purpose {
    let segments: Vec<&str> = name.split('.').collect();
    match segments[..] {
        _ if role == Role::Vector || axes < 2 => Vector,
        _ if segments.contains(&"router") => Router,
        [.., "position_embedding" | "token_type_embedding", _] => Position,
        ["output", "weight"] => Output,
        ["token_embedding", ..] if tied => TiedEmbedding,
        ["token_embedding", ..] => Embedding,
        [.., "v", "weight"] => Value,
        [.., "k", "weight"] => Key,
        [.., "kv_a", "weight"] => Latent,
        [.., "attention" | "cross_attn", "output", "weight"] => AttentionOutput,
        [.., "down", "weight"] => Down,
        _ => Matrix,
    }
}

/// Returns the purpose of an entry that fuses parameters for `one` and, called `name`, for `other`. The purpose that
/// needs most care wins.
fn fused(one: Purpose, other: Purpose, name: &str) -> Purpose {
    match (one, other) {
        (Value, _) | (_, Value) => Value,
        _ if name.ends_with(".k_b.weight") || name.ends_with(".v_b.weight") => LatentKeyValue,
        // Queries and keys, or keys and queries.
        (Key, _) => other,
        _ => one,
    }
}

fn layer(name: &str) -> Option<u64> {
    let mut segments = name.split('.');
    segments.find(|s| *s == "layers")?;
    segments.next()?.parse().ok()
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

/// Whether the rows of the result of `expr` are columns of its source.
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
    fn parameters_are_told_apart_by_their_canonical_names() {
        let of = |name: &str, axes: usize| purpose(name, Role::Matrix, axes, false);
        for (name, axes, wanted) in [
            ("layers.3.ffn.router.weight", 2, Router),
            ("layers.3.ffn.router.correction.bias", 1, Vector),
            ("layers.3.ffn.experts.gate.weight", 3, Matrix),
            ("layers.3.ffn.experts.down.weight", 3, Down),
            ("layers.3.ffn.shared.down.weight", 2, Down),
            ("layers.3.attention.q.weight", 2, Matrix),
            ("layers.3.attention.k.weight", 2, Key),
            ("layers.3.attention.v.weight", 2, Value),
            ("layers.3.attention.output.weight", 2, AttentionOutput),
            ("layers.3.attention.v_b.weight", 3, Matrix),
            ("layers.3.attention.kv_a.weight", 2, Latent),
            ("layers.3.attention.sinks.weight", 1, Vector),
            ("layers.3.cross_attn.v.weight", 2, Value),
            ("layers.3.cross_attn.output.weight", 2, AttentionOutput),
            ("enc.position_embedding.weight", 2, Position),
            ("token_type_embedding.weight", 2, Position),
            ("token_embedding.weight", 2, Embedding),
            ("output.weight", 2, Output),
        ] {
            assert_eq!(of(name, axes), wanted, "{name}");
        }
        assert_eq!(purpose("token_embedding.weight", Role::Matrix, 2, true), TiedEmbedding);
        // Biases of experts have two axes.
        assert_eq!(purpose("layers.3.ffn.experts.gate.bias", Role::Vector, 2, false), Vector);
    }

    #[test]
    fn what_is_fused_is_for_what_needs_most_care() {
        let k_b = "layers.0.attention.k_b.weight";
        for (one, other, name, wanted) in [
            (Matrix, Value, "layers.0.attention.v.weight", Value),
            (Value, Key, "layers.0.attention.k.weight", Value),
            (Matrix, Key, "layers.0.attention.k.weight", Matrix),
            (Key, Matrix, "layers.0.attention.q.weight", Matrix),
            (Matrix, Matrix, k_b, LatentKeyValue),
            (Down, Down, "layers.0.ffn.experts.down.weight", Down),
        ] {
            assert_eq!(fused(one, other, name), wanted, "{one:?} and {other:?}");
        }
    }
}

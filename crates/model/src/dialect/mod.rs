//! Dialects: how an ecosystem names a family's parameters and lays them out.
//!
//! The rule tables are in their family's file; the code that applies them is here.

mod fit;
mod tables;
mod wrapper;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use tensor::{Binding, Bindings, DropRule, Expr, Function, Pattern, Presence, Step};

use crate::config::Config;
use crate::ecosystem::DialectName;
use crate::param::ParamSpec;

pub use fit::{Fit, better_fit};
use tables::HF_ACTIVATIONS;
pub use tables::{
    GGUF_DECODER, GGUF_MOE, GGUF_QKV, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, HF_MOE,
};
pub use wrapper::Ambiguous;
use wrapper::Wrapped;

/// The change from an entry to the canonical parameter; `rank` is the parameter's.
pub type How = fn(Expr, &Config, rank: usize) -> Expr;

/// One canonical parameter and the entry that holds it. `{n}` is the layer; where the entry has `{e}`, there is one for
/// each expert, and the parameter is made of all of them in a stack.
#[derive(Debug)]
pub struct Rule {
    param: &'static str,
    entry: &'static str,
    prefixed: bool,
    how: Option<How>,
    /// Only directories of mlx-lm have it so.
    mlx: bool,
}

impl Rule {
    /// Stored as it is.
    pub const fn same(param: &'static str, entry: &'static str) -> Rule {
        Rule { param, entry, prefixed: true, how: None, mlx: false }
    }

    /// Stored as it is in directories of mlx-lm, whose models are not all named as transformers' are.
    pub const fn mlx(param: &'static str, entry: &'static str) -> Rule {
        Rule { mlx: true, ..Rule::same(param, entry) }
    }

    /// Stored otherwise; `how` makes the canonical form.
    pub const fn with(param: &'static str, entry: &'static str, how: How) -> Rule {
        Rule { how: Some(how), ..Rule::same(param, entry) }
    }

    /// Stored as it is, outside the dialect's prefix.
    pub const fn unprefixed(param: &'static str, entry: &'static str) -> Rule {
        Rule { prefixed: false, ..Rule::same(param, entry) }
    }

    /// The pattern of the canonical parameter.
    pub fn param(&self) -> &'static str {
        self.param
    }

    /// The pattern of the entry.
    pub fn entry(&self) -> &'static str {
        self.entry
    }

    /// The entry that holds the parameter called `name`: of its layer, if it is in one.
    pub fn entry_in(&self, name: &str) -> String {
        let digits = |s: &&str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        self.entry.replace("{n}", name.split('.').find(digits).unwrap_or_default())
    }

    /// The source of the parameter called `name`: an entry, or a stack of one for each expert.
    fn stored(&self, prefix: &str, name: &str, config: &Config, wrapped: &Wrapped<'_>) -> Expr {
        let prefix = if self.prefixed { prefix } else { "" };
        let entry = self.entry_in(name);
        let source = |entry: String| Expr::source(wrapped.entry(&entry));
        let Some((before, after)) = entry.split_once("{e}") else {
            return source(format!("{prefix}{entry}"));
        };
        let experts = config.moe.as_ref().map_or(0, |moe| *moe.experts);
        Expr::Stack((0..experts).map(|e| source(format!("{prefix}{before}{e}{after}"))).collect())
    }

    /// The pattern of the entries, as [`Pattern::of`] gives it.
    fn pattern(&self, prefix: &str) -> String {
        let prefix = if self.prefixed { prefix } else { "" };
        format!("{prefix}{}", self.entry.replace("{e}", "{n}"))
    }

    /// The parameter, made of the entry.
    pub fn made_of(&self, entry: Expr, config: &Config, rank: usize) -> Expr {
        match self.how {
            Some(how) => how(entry, config, rank),
            None => entry,
        }
    }
}

/// Elements of an entry that no parameter has, and that must be zero: part `part`, counted from 0, of `of` equal parts of
/// the first axis.
#[derive(Debug)]
pub struct Zeros {
    /// The pattern of the entry.
    pub entry: &'static str,
    /// The part.
    pub part: u64,
    /// The number of parts.
    pub of: u64,
}

/// A family in one ecosystem.
#[derive(Debug)]
pub struct Dialect {
    /// The ecosystem.
    pub name: DialectName,
    /// A rule for each canonical parameter that the ecosystem can hold: shared tables and the family's own. Where there
    /// are several for one parameter, the first is taken whose entries the checkpoint has; the first of all if none.
    pub rules: Vec<&'static [Rule]>,
    /// The prefix of names in the model with its head; the backbone alone lacks it.
    pub prefix: &'static str,
    /// Entries that are known and not needed, below the prefix, with the reason. Tensors that quantisers add for
    /// activations are not listed. `{next}` is each of the layers after the last.
    pub drops: &'static [(&'static str, &'static str)],
    /// Canonical parameters that its files leave out, with the reason.
    pub without: &'static [(&'static str, &'static str)],
    /// Canonical parameters of which its files leave out the parts that a rule has as zeros, with the reason.
    pub cut: &'static [(&'static str, &'static str)],
    /// Parts of entries that must be zero: the model has no parameter for them.
    pub zeros: &'static [Zeros],
}

impl Dialect {
    /// Rules without a prefix; no entry is dropped, no parameter left out.
    pub fn new(name: DialectName, rules: Vec<&'static [Rule]>) -> Dialect {
        Dialect { name, rules, prefix: "", drops: &[], without: &[], cut: &[], zeros: &[] }
    }

    /// Whether mlx-lm has other names for some parameter.
    pub(crate) fn differs_in_mlx(&self) -> bool {
        self.rules().any(|rule| rule.mlx)
    }

    /// Whether one of `names` is one that only mlx-lm has.
    pub(crate) fn is_named_as_mlx<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        let names = patterns(names);
        let rules = self.rules().filter(|rule| rule.mlx);
        rules.map(|rule| rule.pattern(self.prefix)).any(|pattern| names.contains(&pattern))
    }

    /// `params` as expressions over the entries of files that are written: for mlx-lm, or for the ecosystem's own
    /// reader.
    pub(crate) fn written<'p>(
        &self,
        params: impl Iterator<Item = &'p ParamSpec>,
        config: &Config,
        mlx: bool,
    ) -> Bindings {
        self.bound(params, config, &Wrapped::plain(&[]), &|rule| rule.mlx == mlx)
    }

    /// Returns `params` as expressions over entry names, and the entries that may be left out. `entries` only determine
    /// the wrapper around the names, and the rule where there are several.
    ///
    /// # Errors
    /// If the names match the model's twice.
    pub(crate) fn bindings<'a, 'p>(
        &self,
        params: impl Iterator<Item = &'p ParamSpec>,
        config: &Config,
        entries: impl Iterator<Item = &'a str>,
    ) -> Result<Bindings, Ambiguous> {
        let names: Vec<&str> = entries.collect();
        let wrapped = self.wrapped(&names)?;
        let params: Vec<&ParamSpec> = params.collect();
        let has = |rule: &Rule| wrapped.has(&rule.pattern(self.prefix));
        let mut bound = self.bound(params.iter().copied(), config, &wrapped, &has);
        // One that no file of the ecosystem has is tied all the same.
        let ruled: HashSet<&str> = self.rules().map(Rule::param).collect();
        let tied = |spec: &&&ParamSpec| matches!(spec.presence, Presence::TiedTo(_));
        for spec in
            params.iter().filter(tied).filter(|spec| !ruled.contains(Pattern::of(&spec.name).as_str()))
        {
            bound.bindings.push(Binding {
                name: spec.name.clone(),
                shape: spec.shape(),
                expr: Expr::source(spec.name.clone()),
                presence: spec.presence.clone(),
            });
        }
        Ok(bound)
    }

    /// `params` by the first rules of theirs that are `meant`, or the first of all.
    fn bound<'p>(
        &self,
        params: impl Iterator<Item = &'p ParamSpec>,
        config: &Config,
        wrapped: &Wrapped<'_>,
        meant: &dyn Fn(&Rule) -> bool,
    ) -> Bindings {
        let prefix = self.prefix;
        let mut by_param: HashMap<&str, (&Rule, bool)> = HashMap::new();
        for rule in self.rules() {
            match by_param.entry(rule.param) {
                Entry::Vacant(slot) => {
                    slot.insert((rule, meant(rule)));
                }
                Entry::Occupied(mut slot) if !slot.get().1 && meant(rule) => {
                    slot.insert((rule, true));
                }
                Entry::Occupied(_) => {}
            }
        }
        let bindings = params
            .filter_map(|spec| {
                let pattern = Pattern::of(&spec.name);
                let shape = spec.shape();
                let Some((rule, _)) = by_param.get(pattern.as_str()) else {
                    // A required parameter without a name in this ecosystem is missing under its canonical name.
                    let expr = Expr::source(spec.name.clone());
                    let required = spec.presence == Presence::Required;
                    return required.then_some(Binding {
                        name: spec.name.clone(),
                        shape,
                        expr,
                        presence: spec.presence.clone(),
                    });
                };
                let stored = rule.stored(prefix, &spec.name, config, wrapped);
                let expr = rule.made_of(stored, config, shape.len());
                Some(Binding { name: spec.name.clone(), shape, expr, presence: spec.presence.clone() })
            })
            .collect();
        let mut drops = vec![];
        for (pattern, why) in self.drops {
            let layers = if pattern.contains("{next}") { *config.next_layers } else { 1 };
            drops.extend((0..layers).map(|i| {
                let pattern = pattern.replace("{next}", &(*config.layers + i).to_string());
                DropRule { pattern: Pattern::new(format!("{prefix}{pattern}")), why: (*why).to_owned() }
            }));
        }
        if self.name == DialectName::Openai {
            for drop in &mut drops {
                drop.pattern = Pattern::new(wrapped.entry(drop.pattern.as_str()));
            }
        }
        if self.name == DialectName::Hf {
            let shared = HF_ACTIVATIONS.iter();
            drops.extend(
                shared.map(|(pattern, why)| DropRule {
                    pattern: Pattern::new(*pattern),
                    why: (*why).to_owned(),
                }),
            );
            drops = wrapped.drops(drops);
        }
        Bindings { bindings, drops }
    }

    fn wrapped<'a>(&self, names: &[&'a str]) -> Result<Wrapped<'a>, Ambiguous> {
        match self.name {
            // Their names have nothing around them.
            DialectName::Gguf | DialectName::Ctranslate2 => Ok(Wrapped::plain(names)),
            // PyTorch's files have the weights beside the sizes.
            DialectName::Openai => Ok(Wrapped::below("model_state_dict.", names)),
            DialectName::Hf => {
                let kinds = self.rules().map(|rule| rule.pattern(self.prefix)).collect();
                Wrapped::find(names, self.base(), &kinds)
            }
        }
    }

    /// The backbone's name in the model with its head: transformers' `base_model_prefix`.
    fn base(&self) -> &'static str {
        if self.prefix.is_empty() { "model." } else { self.prefix }
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        self.rules.iter().copied().flatten()
    }
}

/// The kinds of entries: their names with `{n}` for numbers. A mixture of experts has many names and few kinds.
fn patterns<'a>(entries: impl Iterator<Item = &'a str>) -> HashSet<String> {
    let mut there = HashSet::new();
    let mut pattern = String::new();
    for name in entries {
        pattern.clear();
        for (i, segment) in name.split('.').enumerate() {
            pattern.push_str(if i > 0 { "." } else { "" });
            let hole = !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit());
            pattern.push_str(if hole { "{n}" } else { segment });
        }
        if !there.contains(&pattern) {
            there.insert(pattern.clone());
        }
    }
    there
}

/// Rows in interleaved `RoPE` order to rotate-half order: `[H, d/2, 2]` to `[H, 2, d/2]`.
///
/// It moves whole rows, so it is exact for every encoding, and lowers to one piece.
pub fn unpermute_rope(expr: Expr, config: &Config, rank: usize) -> Expr {
    swap_pairs(expr, *config.head_dim, 2, rank)
}

/// The inverse of [`unpermute_rope`].
pub(crate) fn permute_rope(expr: Expr, config: &Config, rank: usize) -> Expr {
    swap_pairs(expr, *config.head_dim, *config.head_dim / 2, rank)
}

/// `[H · d, …]` as `[H, d / inner, inner, …]` with the two inner axes swapped.
fn swap_pairs(expr: Expr, head_dim: u64, inner: u64, rank: usize) -> Expr {
    let order: &[usize] = if rank == 1 { &[0, 2, 1] } else { &[0, 2, 1, 3] };
    expr.split(0, head_dim).split(1, inner).permute(order).merge(1).merge(0)
}

/// The axis and the unit of the heads of values that a parameter of linear attention has, by its canonical name.
fn of_values(name: &str, config: &Config) -> Option<(usize, u64, u64)> {
    let delta = config.delta.as_ref()?;
    let group = delta.value_heads.checked_div(*delta.key_heads).filter(|group| *group > 1)?;
    let wide = [".attention.v_in.weight", ".attention.z_in.weight", ".attention.v_conv.weight"];
    let thin = [
        ".attention.b_in.weight",
        ".attention.a_in.weight",
        ".attention.a_in.bias",
        ".attention.decay.weight",
    ];
    let is_one = |names: &[&str]| names.iter().any(|end| name.ends_with(end));
    if is_one(&wide) {
        Some((0, *delta.value, group))
    } else if is_one(&thin) {
        Some((0, 1, group))
    } else {
        name.ends_with(".attention.out.weight").then_some((1, *delta.value, group))
    }
}

/// The parameter called `name` with its heads of values tiled, if it has some: it is canonical, and may be a rank's share.
pub(crate) fn tiled(expr: Expr, config: &Config, name: &str, rank: usize) -> Expr {
    match of_values(name, config) {
        Some((axis, unit, group)) => swap_heads(expr, axis, unit, group, rank),
        None => expr,
    }
}

/// Heads of values that are tiled along `axis`, in groups. `unit` elements are a head.
pub(crate) fn untile(expr: Expr, config: &Config, axis: usize, unit: u64, rank: usize) -> Expr {
    match &config.delta {
        Some(delta) if *delta.value_heads > *delta.key_heads => {
            swap_heads(expr, axis, unit, *delta.key_heads, rank)
        }
        _ => expr,
    }
}

/// `axis` as `[…, inner, unit]`, with the first two swapped.
fn swap_heads(expr: Expr, axis: usize, unit: u64, inner: u64, rank: usize) -> Expr {
    let (is_wide, all) = (unit > 1, rank + 1 + usize::from(unit > 1));
    let expr = if is_wide { expr.split(axis, unit) } else { expr };
    let mut order: Vec<usize> = (0..all).collect();
    order.swap(axis, axis + 1);
    let expr = expr.split(axis, inner).permute(&order).merge(axis);
    if is_wide { expr.merge(axis) } else { expr }
}

/// A rate that is stored as the logarithm of its opposite.
pub(crate) fn neg_exp(expr: Expr, _: &Config, _: usize) -> Expr {
    expr.encode(Step::Apply(Function::NegExp))
}

/// Norms that are stored less one.
pub fn add_one(expr: Expr, _: &Config, _: usize) -> Expr {
    expr.encode(Step::Add(1))
}

/// A matrix that is stored `[in, out]`, as `Conv1D` of transformers does.
pub fn conv1d(expr: Expr, _: &Config, _: usize) -> Expr {
    expr.transpose()
}

/// Queries, keys or values of a tensor that has them one after the other along `axis`.
fn of_qkv(expr: Expr, config: &Config, axis: usize, part: usize) -> Expr {
    let (q, kv) = (*config.heads * *config.head_dim, *config.kv_heads * *config.head_dim);
    let ends = [0, q, q + kv, q + 2 * kv];
    expr.slice(axis, ends[part]..ends[part + 1])
}

macro_rules! of_qkv {
    ($($rows:ident, $conv1d:ident, $part:literal;)*) => { $(
        #[doc = concat!("Part ", $part, " of q, k and v, counted from 0, which are rows of one tensor.")]
        pub fn $rows(expr: Expr, config: &Config, _: usize) -> Expr {
            of_qkv(expr, config, 0, $part)
        }
        #[doc = concat!("Part ", $part, " of q, k and v, counted from 0, which are columns of one tensor stored `[in, out]`.")]
        pub fn $conv1d(expr: Expr, config: &Config, _: usize) -> Expr {
            of_qkv(expr, config, 1, $part).transpose()
        }
    )* };
}

// q, k and v as parts of one tensor: of its rows, or of the columns of a `Conv1D`.
of_qkv! { rows_q, conv1d_q, 0; rows_k, conv1d_k, 1; rows_v, conv1d_v, 2; }

/// The gate of rows that it shares with what it gates: the first half.
pub fn rows_gate(expr: Expr, config: &Config, _: usize) -> Expr {
    expr.slice(0, 0..*config.ffn)
}

/// The part that the gate is multiplied with: the second half.
pub fn rows_up(expr: Expr, config: &Config, _: usize) -> Expr {
    expr.slice(0, *config.ffn..2 * *config.ffn)
}

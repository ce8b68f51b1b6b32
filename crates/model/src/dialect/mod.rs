//! Dialects: how an ecosystem names a family's parameters and lays them out.
//!
//! The rule tables stand with their family; what the rules do is here.

mod tables;

use std::collections::HashMap;

use tensor::{Binding, Bindings, Drop, Expr, Pattern, Step};

use crate::{Config, Family};

use tables::HF_ACTIVATIONS;
pub(crate) use tables::{GGUF_DECODER, HF_DECODER};

/// An ecosystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectName {
    /// llama.cpp's GGUF.
    Gguf,
    /// Hugging Face transformers.
    Hf,
}

impl std::fmt::Display for DialectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DialectName::Gguf => "gguf",
            DialectName::Hf => "hf",
        })
    }
}

/// What is done to an entry to get the canonical parameter; `rank` is the parameter's.
pub(crate) type How = fn(Expr, &Config, rank: usize) -> Expr;

/// One canonical parameter and the entry that holds it; `{n}` is the layer.
pub struct Rule {
    param: &'static str,
    entry: &'static str,
    prefixed: bool,
    how: Option<How>,
}

impl Rule {
    /// Stored as it is.
    pub(crate) const fn same(param: &'static str, entry: &'static str) -> Rule {
        Rule { param, entry, prefixed: true, how: None }
    }

    /// Stored otherwise; `how` makes the canonical form.
    pub(crate) const fn with(param: &'static str, entry: &'static str, how: How) -> Rule {
        Rule { param, entry, prefixed: true, how: Some(how) }
    }

    /// The pattern of the canonical parameter.
    pub(crate) fn param(&self) -> &'static str {
        self.param
    }

    /// The entry that holds the parameter called `name`: of its layer, if it is in one.
    pub(crate) fn entry_in(&self, name: &str) -> String {
        let layer = name.split('.').nth(1).filter(|_| name.starts_with("layers."));
        self.entry.replace("{n}", layer.unwrap_or_default())
    }

    /// The parameter, made of the entry.
    pub(crate) fn made_of(&self, entry: Expr, config: &Config, rank: usize) -> Expr {
        match self.how {
            Some(how) => how(entry, config, rank),
            None => entry,
        }
    }

    /// Stored as it is, outside the dialect's prefix.
    pub(crate) const fn unprefixed(param: &'static str, entry: &'static str) -> Rule {
        Rule { param, entry, prefixed: false, how: None }
    }
}

/// A family in one ecosystem.
pub struct Dialect {
    /// The ecosystem.
    pub name: DialectName,
    /// One rule for each canonical parameter that the ecosystem can hold: shared tables and the family's own.
    pub rules: Vec<&'static [Rule]>,
    /// What entry names may start with; the one that most entries start with is taken, the first if none.
    pub prefixes: &'static [&'static str],
    /// Entries that are known and not needed, below the prefix, with the reason; besides what quantisers add for
    /// activations.
    pub drops: &'static [(&'static str, &'static str)],
}

impl Dialect {
    /// The parameters of `family` as expressions over entry names. `entries` only chooses the prefix.
    pub(crate) fn bindings<'a>(
        &self,
        family: &dyn Family,
        config: &Config,
        entries: impl Iterator<Item = &'a str> + Clone,
    ) -> Bindings {
        let prefix = self.prefix(entries);
        let mut by_param: HashMap<&str, &Rule> = HashMap::new();
        for rule in self.rules() {
            by_param.entry(rule.param).or_insert(rule);
        }
        let bindings = family
            .params(config)
            .into_iter()
            .filter_map(|spec| {
                let pattern = Pattern::of(&spec.name);
                let rule = by_param.get(pattern.as_str())?;
                let entry = rule.entry_in(&spec.name);
                let entry = if rule.prefixed { format!("{prefix}{entry}") } else { entry };
                let shape = spec.shape();
                let expr = rule.made_of(Expr::source(entry), config, shape.len());
                Some(Binding { name: spec.name, shape, expr, presence: spec.presence })
            })
            .collect();
        let shared = if self.name == DialectName::Hf { HF_ACTIVATIONS } else { &[] };
        let drops = self
            .drops
            .iter()
            .chain(shared)
            .map(|(pattern, why)| Drop {
                pattern: Pattern::new(format!("{prefix}{pattern}")),
                why: (*why).to_owned(),
            })
            .collect();
        Bindings { bindings, drops }
    }

    fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        self.rules.iter().copied().flatten()
    }

    fn prefix<'a>(&self, entries: impl Iterator<Item = &'a str> + Clone) -> &'static str {
        let hits = |prefix: &str| {
            let known = |name: &str| {
                let Some(rest) = name.strip_prefix(prefix) else { return false };
                let pattern = Pattern::of(rest);
                self.rules().any(|r| r.prefixed && r.entry == pattern.as_str())
            };
            entries.clone().filter(|name| known(name)).count()
        };
        // `max_by_key` keeps the last of equals: look from the back so that the first wins.
        self.prefixes.iter().rev().copied().max_by_key(|p| hits(p)).unwrap_or("")
    }
}

/// Rows in interleaved `RoPE` order to rotate-half order: `[H, d/2, 2]` to `[H, 2, d/2]`.
///
/// It moves whole rows, so it is exact for every encoding, and lowers to one piece.
pub(crate) fn unpermute_rope(expr: Expr, config: &Config, rank: usize) -> Expr {
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

pub(crate) fn add_one(expr: Expr, _: &Config, _: usize) -> Expr {
    expr.encode(Step::Add(1))
}

/// `Conv1D` stores `[in, out]`.
pub(crate) fn conv1d(expr: Expr, _: &Config, _: usize) -> Expr {
    expr.transpose()
}

fn third(expr: Expr, config: &Config, axis: usize, part: u64) -> Expr {
    let rows = *config.heads * *config.head_dim;
    expr.slice(axis, part * rows..(part + 1) * rows)
}

macro_rules! thirds {
    ($($rows:ident, $conv1d:ident, $part:literal;)*) => { $(
        pub(crate) fn $rows(expr: Expr, config: &Config, _: usize) -> Expr {
            third(expr, config, 0, $part)
        }
        pub(crate) fn $conv1d(expr: Expr, config: &Config, _: usize) -> Expr {
            third(expr, config, 1, $part).transpose()
        }
    )* };
}

// q, k and v as thirds of one tensor: of its rows, or of the columns of a `Conv1D`.
thirds! { rows_q, conv1d_q, 0; rows_k, conv1d_k, 1; rows_v, conv1d_v, 2; }

//! The layout that kernels run fastest on: projections of one input fused where their encodings agree,
//! block types with their rows interleaved.

use std::collections::HashMap;
use std::sync::Arc;

use tensor::{Dtype, Expr, Scheme, Target};

use super::{Layout, Param, Roles, RuntimeLayout};
use crate::architecture::RopeOrder;
use crate::{Model, Role};

/// Fused and row-interleaved. Rows are padded with zeros to whole groups.
pub struct Packed<'a> {
    /// Rows that are interleaved.
    pub rows: u64,
    /// The scheme that interleaves `rows` rows of a scheme with `k` elements, if there is one.
    pub interleaved: &'a dyn Fn(&Scheme, u64) -> Option<Arc<Scheme>>,
}

/// What is fused, and into what.
const FUSED: &[(&str, &[&str])] = &[
    ("attention.qkv", &["attention.q", "attention.k", "attention.v"]),
    ("ffn.gate_up", &["ffn.gate", "ffn.up"]),
];

impl Layout for Packed<'_> {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn targets(&self, model: &Model, params: &[Param]) -> RuntimeLayout {
        let roles = Roles::of(model);
        let by_name: HashMap<&str, &Param> = params.iter().map(|p| (p.name.as_str(), p)).collect();
        let mut targets = Vec::with_capacity(params.len());
        for param in params {
            match fusion(param, &by_name) {
                Fusion::Alone => targets.push(match roles.of_param(param) {
                    Role::Matrix => self.matrix(&param.name, vec![param]),
                    Role::Embedding | Role::Vector => roles.target(param, Expr::source(&param.name)),
                }),
                Fusion::First { name, parts } if name.ends_with(".bias") => targets.push(Target {
                    expr: concat(&parts),
                    name,
                    scheme: Some(Scheme::plain(Dtype::F32)),
                }),
                Fusion::First { name, parts } => targets.push(self.matrix(&name, parts)),
                Fusion::Later => {}
            }
        }
        RuntimeLayout { targets, rope_order: RopeOrder::Half }
    }
}

impl Packed<'_> {
    fn matrix(&self, name: &str, parts: Vec<&Param>) -> Target {
        let first = parts[0];
        let (rows, k) = (parts.iter().map(|p| p.shape[0]).sum::<u64>(), first.shape[1]);
        let scheme = if first.encoded { None } else { (self.interleaved)(&first.scheme, k) };
        let mut expr = concat(&parts);
        let padding = rows.next_multiple_of(self.rows) - rows;
        if scheme.is_some() && padding > 0 {
            expr = Expr::concat(0, vec![expr, Expr::Zero([padding, k].into())]);
        }
        Target { name: name.to_owned(), expr, scheme }
    }
}

fn concat(parts: &[&Param]) -> Expr {
    let mut sources: Vec<Expr> = parts.iter().map(|p| Expr::source(&p.name)).collect();
    if sources.len() == 1 { sources.remove(0) } else { Expr::concat(0, sources) }
}

enum Fusion<'a> {
    /// It is not fused.
    Alone,
    /// It is the first of `parts`, which become one.
    First { name: String, parts: Vec<&'a Param> },
    /// It is one of the others: the first takes it along.
    Later,
}

/// Parts are fused if all of them are there, in one encoding whose cells hold rows of one part alone.
fn fusion<'a>(param: &'a Param, by_name: &HashMap<&str, &'a Param>) -> Fusion<'a> {
    let Some((prefix, rest)) = split_layer(&param.name) else { return Fusion::Alone };
    let Some((stem, kind)) = rest.rsplit_once('.') else { return Fusion::Alone };
    let Some((whole, parts)) = FUSED.iter().find(|(_, parts)| parts.contains(&stem)) else {
        return Fusion::Alone;
    };
    let found: Option<Vec<&Param>> =
        parts.iter().map(|part| by_name.get(format!("{prefix}.{part}.{kind}").as_str()).copied()).collect();
    match found {
        // Biases follow their weights, whose encodings decide: both are fused, or neither is.
        Some(found) if fusible(&found) && weights_fusible(prefix, parts, by_name) => {
            if found[0].name == param.name {
                Fusion::First { name: format!("{prefix}.{whole}.{kind}"), parts: found }
            } else {
                Fusion::Later
            }
        }
        _ => Fusion::Alone,
    }
}

fn weights_fusible(prefix: &str, parts: &[&str], by_name: &HashMap<&str, &Param>) -> bool {
    let weights: Option<Vec<&Param>> =
        parts.iter().map(|part| by_name.get(format!("{prefix}.{part}.weight").as_str()).copied()).collect();
    let biases = parts.iter().filter(|part| by_name.contains_key(format!("{prefix}.{part}.bias").as_str()));
    let biases = biases.count();
    weights.is_some_and(|w| fusible(&w)) && (biases == 0 || biases == parts.len())
}

fn fusible(parts: &[&Param]) -> bool {
    let rows: Vec<u64> = parts.iter().map(|p| p.shape.first().copied().unwrap_or(1)).collect();
    parts.iter().all(|p| p.scheme == parts[0].scheme && p.encoded == parts[0].encoded)
        && parts[0].scheme.stacks(&rows)
}

/// `layers.3.attention.q.weight` as `layers.3` and `attention.q.weight`.
fn split_layer(name: &str) -> Option<(&str, &str)> {
    let mut dots = name.match_indices('.').map(|(i, _)| i);
    let (_, second) = (dots.next()?, dots.next()?);
    name.starts_with("layers.").then(|| (&name[..second], &name[second + 1..]))
}

//! The layout of vLLM's layers: its names, and what each layer holds on a rank of a tensor-parallel group.
//!
//! Source: vllm/model_executor/models, v0.20.2 and v0.33.0; of each family, the file of its architecture. Names and
//! shapes are compared with those that v0.33.0 builds, golden/vllm_names.py, and the files of ranks with those that its
//! loader expects, golden/vllm_stages.py.

use std::collections::{HashMap, HashSet};

use model::{Family, Holding, Layout, Model, Param, RuntimeLayout, VOCAB_PADDING};
use tensor::{Expr, Made, OneWay, Pattern, RopeOrder, Target, ValueOrder};

use crate::family;

/// As vLLM's layers hold the parameters: fused, encoded as stored.
#[derive(Debug)]
pub struct Vllm;

impl Layout for Vllm {
    fn name(&self) -> &'static str {
        "vllm"
    }

    /// The vocabulary is padded also on one rank, and every rank has the biases of row-parallel layers.
    fn holding(&self, family: Option<&dyn Family>) -> Holding {
        let names = family.and_then(|family| family::names(family.name()));
        let ends = names.and_then(|names| names.stages).unwrap_or_default();
        Holding { vocab: Some(VOCAB_PADDING), once_everywhere: true, ends }
    }

    fn merges(&self) -> bool {
        true
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let Some(names) = family::names(model.family.name()) else {
            let name = format!("the family {}", model.family.name());
            return Err(OneWay { name, why: "has no names in vLLM that are known" });
        };
        let there: HashMap<&str, &Param> = params.iter().map(|p| (p.name.as_str(), p)).collect();
        let own = |name: &str| there.get(name).is_some_and(|p| p.tied_to.is_none());
        let (tree, rules) = (model.tree(), (names.rules)(&own));
        let mut placed = HashSet::new();
        let mut targets = Vec::new();
        for held in tree.held() {
            let pattern = Pattern::of(&held.name);
            let rule = rules.iter().copied().flatten().find(|rule| rule.param() == pattern.as_str());
            let parts = held.parts();
            let Some(rule) = rule.filter(|_| parts.iter().all(|part| there.contains_key(part))) else {
                continue;
            };
            let name = rule.entry_in(&held.name);
            let rank = parts.first().map_or(1, |part| there[part].shape.len());
            let expr = match rule.made_of(Expr::source(&name), model.config(), rank) {
                made if made == Expr::source(&name) => held.expr.clone(),
                expr => {
                    let shape = shape(&held.expr, &|part| there.get(part).map(|p| p.shape.to_vec()));
                    let back =
                        tensor::invert(&[Made { name: held.name.clone(), shape: shape.into(), expr }])?;
                    let back = back.into_iter().next().map_or_else(|| held.expr.clone(), |made| made.expr);
                    substituted(&back, &held.expr)
                }
            };
            placed.extend(parts.iter().map(|part| (*part).to_owned()));
            targets.push(Target { name, expr, scheme: None });
        }
        // What is tied to another parameter needs no name of its own.
        let nameless = params.iter().filter(|p| !placed.contains(&p.name) && p.tied_to.is_none());
        let nameless = nameless.map(|p| p.name.clone()).collect();
        Ok(RuntimeLayout { targets, rope_order: RopeOrder::Half, value_order: ValueOrder::Grouped, nameless })
    }
}

/// The shape of what a layer holds: a parameter, or several that are joined.
fn shape(held: &Expr, of: &dyn Fn(&str) -> Option<Vec<u64>>) -> Vec<u64> {
    match held {
        Expr::Source(name) => of(name).unwrap_or_default(),
        Expr::Concat { axis, parts } => {
            let parts: Vec<Vec<u64>> = parts.iter().map(|part| shape(part, of)).collect();
            let mut whole = parts.first().cloned().unwrap_or_default();
            if let Some(extent) = whole.get_mut(*axis) {
                *extent = parts.iter().filter_map(|part| part.get(*axis)).sum();
            }
            whole
        }
        _ => vec![],
    }
}

/// `of` with its source replaced by `by`.
fn substituted(of: &Expr, by: &Expr) -> Expr {
    let by = of.substitute::<std::convert::Infallible>(&mut |_| Ok(std::borrow::Cow::Borrowed(by)));
    by.unwrap_or_else(|never| match never {})
}

//! The layout that kernels run fastest on: projections of one input fused where their encodings agree,
//! block types with their rows interleaved.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tensor::{Dtype, Expr, OneWay, RopeOrder, Scheme, Target};

use super::{Layout, Param, Roles, RuntimeLayout, as_stored};
use crate::module::RuntimeParam;
use crate::{Model, Role, Tree};

/// Fused and row-interleaved. Rows are padded with zeros to whole groups.
pub struct Packed<'a> {
    /// Rows that are interleaved.
    pub rows: u64,
    /// The scheme that interleaves `rows` rows of a scheme with `k` elements, if there is one.
    pub interleaved: &'a dyn Fn(&Scheme, u64) -> Option<Arc<Scheme>>,
}

impl fmt::Debug for Packed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Layout for Packed<'_> {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let tree = model.tree();
        let roles = Roles::of(tree);
        let fusions = Fusions::of(tree, params);
        let mut targets = Vec::with_capacity(params.len());
        for param in params {
            match fusions.of_param(param) {
                Fusion::Alone => targets.push(match roles.of_param(param) {
                    Role::Matrix if param.shape.len() >= 2 => self.matrix(&param.name, vec![param], model),
                    Role::Matrix | Role::Embedding | Role::Vector => {
                        roles.target(param, as_stored(param, model))
                    }
                }),
                Fusion::First { name, parts } if name.ends_with(".bias") => targets.push(Target {
                    expr: concat(&parts, model),
                    name: name.to_owned(),
                    scheme: Some(Scheme::plain(Dtype::F32)),
                }),
                Fusion::First { name, parts } => targets.push(self.matrix(name, parts, model)),
                Fusion::Later => {}
            }
        }
        Ok(RuntimeLayout::of_all(targets, RopeOrder::Half).values_as_stored(model))
    }

    fn runs(&self) -> bool {
        true
    }
}

impl Packed<'_> {
    /// A matrix, or a stack of them, whose rows are padded each on their own.
    fn matrix(&self, name: &str, parts: Vec<&Param>, model: &Model) -> Target {
        let first = parts[0];
        let axis = first.shape.len() - 2;
        let (rows, k) = (parts.iter().map(|p| p.shape[axis]).sum::<u64>(), first.shape[axis + 1]);
        let scheme = (self.interleaved)(&first.scheme, k);
        let mut expr = concat(&parts, model);
        let padding = rows.next_multiple_of(self.rows) - rows;
        if scheme.is_some() && padding > 0 {
            let stack = first.shape[..axis].iter().copied();
            let zeros: Vec<u64> = stack.chain([padding, k]).collect();
            expr = Expr::concat(axis, vec![expr, Expr::Zero(zeros.into())]);
        }
        Target { name: name.to_owned(), expr, scheme }
    }
}

fn concat(parts: &[&Param], model: &Model) -> Expr {
    let mut sources: Vec<Expr> = parts.iter().map(|p| as_stored(p, model)).collect();
    if sources.len() == 1 { sources.remove(0) } else { Expr::concat(0, sources) }
}

enum Fusion<'a> {
    /// It is not fused.
    Alone,
    /// It is the first of `parts`, which become one.
    First { name: &'a str, parts: Vec<&'a Param> },
    /// It is one of the others: the first takes it along.
    Later,
}

/// The parameters that the modules of a model fuse, limited to those that the checkpoint has.
struct Fusions<'a> {
    by_name: HashMap<&'a str, &'a Param>,
    /// For each part, the parameter that it is fused into.
    fused: HashMap<&'a str, &'a RuntimeParam>,
    held: HashMap<&'a str, &'a RuntimeParam>,
}

impl<'a> Fusions<'a> {
    fn of(tree: &'a Tree, params: &'a [Param]) -> Fusions<'a> {
        let rows = tree.held().iter().filter(|h| matches!(&h.expr, Expr::Concat { axis: 0, .. }));
        let held: HashMap<&str, &RuntimeParam> = rows.map(|h| (h.name.as_str(), h)).collect();
        let fused = held.values().flat_map(|h| h.parts().into_iter().map(|part| (part, *h))).collect();
        Fusions { by_name: params.iter().map(|p| (p.name.as_str(), p)).collect(), fused, held }
    }

    /// Parts are fused if all of them are there, in one encoding that they come to by the same steps, whose cells hold
    /// rows of one part alone.
    fn of_param(&self, param: &'a Param) -> Fusion<'a> {
        let Some(held) = self.fused.get(param.name.as_str()) else { return Fusion::Alone };
        match self.parts(held) {
            // Biases follow their weights, whose encodings decide: both are fused, or neither is.
            Some(parts) if fusible(&parts) && self.weights_fusible(held) => {
                if parts[0].name == param.name {
                    Fusion::First { name: &held.name, parts }
                } else {
                    Fusion::Later
                }
            }
            _ => Fusion::Alone,
        }
    }

    fn weights_fusible(&self, held: &RuntimeParam) -> bool {
        let stem = held.name.rsplit_once('.').map_or(held.name.as_str(), |(stem, _)| stem);
        let of = |kind: &str| self.held.get(format!("{stem}.{kind}").as_str()).copied();
        let fusible = |held: &RuntimeParam| self.parts(held).is_some_and(|parts| fusible(&parts));
        let none = |held: &RuntimeParam| held.parts().iter().all(|part| !self.by_name.contains_key(part));
        of("weight").is_some_and(fusible) && of("bias").is_none_or(|bias| none(bias) || fusible(bias))
    }

    fn parts(&self, held: &RuntimeParam) -> Option<Vec<&'a Param>> {
        held.parts().iter().map(|part| self.by_name.get(part).copied()).collect()
    }
}

fn fusible(parts: &[&Param]) -> bool {
    let rows: Vec<u64> = parts.iter().map(|p| p.shape.first().copied().unwrap_or(1)).collect();
    parts.iter().all(|p| p.scheme == parts[0].scheme && p.steps == parts[0].steps)
        && parts[0].scheme.stacks(&rows)
}

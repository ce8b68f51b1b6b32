//! Whether the parameters of modules have the shapes that what the modules compute takes. An engine trusts them.

use std::collections::BTreeMap;

use super::{Architecture, MatrixNames};
use crate::computes::{Attention, Computes, FeedForward, NotRun};
use crate::module::Tree;

/// Reasons that are given; a model of many layers has each in every one.
const MOST: usize = 3;

/// Lists the shapes that do not fit.
pub(super) fn wrong(architecture: &Architecture, tree: &Tree) -> Vec<String> {
    let specs = tree.declared().iter().map(|declared| &declared.spec);
    let extents = specs.map(|spec| (&*spec.name, spec.axes.iter().map(|axis| axis.extent).collect()));
    let shapes = Shapes { architecture, extents: extents.collect() };
    let found = architecture.modules().filter_map(|(path, computes)| shapes.of(path, computes).err());
    let mut wrong: Vec<String> = found.map(|NotRun { why }| why).collect();
    if let Err(NotRun { why }) = shapes.matrix("output", &[architecture.decoder.vocab], shapes.hidden()) {
        wrong.push(why);
    }
    wrong.truncate(MOST);
    wrong
}

struct Shapes<'a> {
    architecture: &'a Architecture,
    /// Of parameters, by name.
    extents: BTreeMap<&'a str, Vec<u64>>,
}

impl Shapes<'_> {
    fn hidden(&self) -> u64 {
        self.architecture.decoder.hidden
    }

    /// Checks the parameters of the module at `path`.
    fn of(&self, path: &str, computes: &Computes) -> Result<(), NotRun> {
        match computes {
            Computes::Embedding { .. } if path == "token_embedding" => self.shape(
                &format!("{path}.weight"),
                &[Some(self.architecture.decoder.vocab), Some(self.hidden())],
            ),
            Computes::Embedding { .. } => self.shape(&format!("{path}.weight"), &[None, Some(self.hidden())]),
            Computes::Attention(attention) => self.attention(path, attention),
            Computes::FeedForward(ffn) => self.feed_forward(path, *ffn),
            Computes::Residual(branches) => {
                if branches.first().is_some_and(|branch| branch.parallel) {
                    return Err(NotRun::new(format!("`{path}` begins with a branch beside another")));
                }
                for branch in branches {
                    for norm in [branch.norm, branch.post_norm].into_iter().flatten() {
                        self.shape(&format!("{path}.{norm}.weight"), &[Some(self.hidden())])?;
                    }
                }
                Ok(())
            }
            Computes::Decoder(_) => self.shape("output_norm.weight", &[Some(self.hidden())]),
            Computes::Norm(_) => Ok(()),
        }
    }

    fn attention(&self, path: &str, attention: &Attention) -> Result<(), NotRun> {
        let Attention { heads, kv_heads, head_dim, .. } = *attention;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || head_dim == 0 || !head_dim.is_multiple_of(2) {
            let why =
                format!("`{path}` has {heads} heads of {head_dim} elements, {kv_heads} of keys and values");
            return Err(NotRun::new(why));
        }
        if let Some(dims) = attention.rope.as_ref().map(|rope| rope.dims).filter(|dims| *dims != head_dim) {
            return Err(NotRun::new(format!("`{path}` rotates {dims} of {head_dim} elements of a head")));
        }
        let q = heads.saturating_mul(head_dim);
        let kv = kv_heads.saturating_mul(head_dim);
        self.matrix(&format!("{path}.qkv"), &[q, kv, kv], self.hidden())?;
        self.matrix(&format!("{path}.output"), &[self.hidden()], q)?;
        for (norm, all) in [("q_norm", q), ("k_norm", kv)] {
            if self.architecture.get(&format!("{path}.{norm}")).is_some() {
                let weight = format!("{path}.{norm}.weight");
                // All heads together, or each.
                self.shape(&weight, &[Some(all)]).or_else(|_| self.shape(&weight, &[Some(head_dim)]))?;
            }
        }
        Ok(())
    }

    fn feed_forward(&self, path: &str, ffn: FeedForward) -> Result<(), NotRun> {
        let down = format!("{path}.down");
        let Some(inner) = self.architecture.matrix(&down).map(|matrix| matrix.input) else {
            return Err(absent(&down));
        };
        self.matrix(&down, &[self.hidden()], inner)?;
        if ffn.gated {
            self.matrix(&format!("{path}.gate_up"), &[inner, inner], self.hidden())
        } else {
            self.matrix(&format!("{path}.up"), &[inner], self.hidden())
        }
    }

    /// Checks the matrix that the module at `path` holds: output features of its parts, which may be one that is fused, and
    /// input features.
    fn matrix(&self, path: &str, outs: &[u64], input: u64) -> Result<(), NotRun> {
        let Some(MatrixNames { parts, input: found }) = self.architecture.matrix(path) else {
            return Err(absent(path));
        };
        let sum = |outs: &[u64]| outs.iter().copied().fold(0, u64::saturating_add);
        let rows: Vec<u64> = parts.iter().map(|part| part.1).collect();
        let (all, wanted) = (sum(&rows), sum(outs));
        if (all, *found) != (wanted, input) {
            return Err(NotRun::new(format!("`{path}` is [{all}, {found}], wanted [{wanted}, {input}]")));
        }
        if rows.len() == 1 || rows == outs {
            return Ok(());
        }
        Err(NotRun::new(format!("`{path}` has parts of {rows:?} rows, wanted {outs:?}")))
    }

    /// Checks the extents of the parameter called `name`, where they are given.
    fn shape(&self, name: &str, wanted: &[Option<u64>]) -> Result<(), NotRun> {
        let Some(found) = self.extents.get(name) else { return Err(absent(name)) };
        let fits = found.len() == wanted.len()
            && found.iter().zip(wanted).all(|(found, wanted)| wanted.is_none_or(|wanted| wanted == *found));
        if fits {
            return Ok(());
        }
        let wanted = wanted.iter().map(|n| n.map_or("any".to_owned(), |n| n.to_string()));
        let wanted = wanted.collect::<Vec<_>>().join(", ");
        Err(NotRun::new(format!("`{name}` is {found:?}, wanted [{wanted}]")))
    }
}

fn absent(name: &str) -> NotRun {
    NotRun::new(format!("no module owns `{name}`"))
}

//! The experts of a mixture, under the name that vLLM gave them.
//!
//! Source: vllm/model_executor/layers/fused_moe/layer.py, v0.33.0.

use tensor::Expr;

use super::{Module, Tree};
use crate::param::{Along, Axis, ParamSpec, Role};

/// The feed-forward networks of a mixture of experts, stacked: gates and ups fused as `gate_up` `[experts, 2 · ffn,
/// hidden]`, and `down` `[experts, hidden, ffn]`. A checkpoint has each matrix of each expert apart.
#[derive(Clone, Debug)]
pub struct FusedMoe {
    experts: u64,
    hidden: Along,
    ffn: Along,
    names: [String; 3],
    bias: bool,
}

impl FusedMoe {
    /// A layer of `experts` experts; a checkpoint has `{expert}.gate_proj`, `{expert}.down_proj` and `{expert}.up_proj`.
    pub fn new(experts: u64, hidden: impl Into<Along>, ffn: u64) -> FusedMoe {
        let names = ["gate_proj", "down_proj", "up_proj"].map(str::to_owned);
        FusedMoe { experts, hidden: hidden.into(), ffn: Axis::Ffn.of(ffn), names, bias: false }
    }

    /// The same with other names for gate, down and up (`w1`, `w2` and `w3` in Mixtral).
    #[must_use]
    pub fn named(self, names: [&str; 3]) -> FusedMoe {
        FusedMoe { names: names.map(str::to_owned), ..self }
    }

    /// The same, each matrix with a bias.
    #[must_use]
    pub fn with_bias(self) -> FusedMoe {
        FusedMoe { bias: true, ..self }
    }
}

impl Module for FusedMoe {
    fn declare(&self, tree: &mut Tree) {
        let [gate, down, up] = &self.names;
        let expert = Axis::Expert.of(self.experts);
        let mut part = |name: &str, kind: &str, axes: &[Along], once: bool| {
            let axes: Vec<Along> = [expert].iter().chain(axes).copied().collect();
            let role = if kind == "bias" { Role::Vector } else { Role::Matrix };
            let spec = ParamSpec { once, ..ParamSpec::new(role, axes) };
            let one = |tree: &Tree, e| Expr::source(tree.full(&format!("{e}.{name}.{kind}")));
            let stacked = |tree: &Tree| Expr::Stack((0..self.experts).map(|e| one(tree, e)).collect());
            Expr::source(tree.part_of(&format!("{name}.{kind}"), spec, stacked))
        };
        let mut held = vec![];
        for (kind, inner) in [("weight", Some(self.hidden)), ("bias", None)] {
            if kind == "bias" && !self.bias {
                continue;
            }
            let rows = |axis: Along| [axis].into_iter().chain(inner).collect::<Vec<_>>();
            let gate_up =
                vec![part(gate, kind, &rows(self.ffn), false), part(up, kind, &rows(self.ffn), false)];
            held.push((format!("gate_up.{kind}"), Expr::concat(1, gate_up)));
            let down_axes = match inner {
                Some(hidden) => vec![hidden, self.ffn],
                None => vec![self.hidden],
            };
            held.push((format!("down.{kind}"), part(down, kind, &down_axes, kind == "bias")));
        }
        for (name, expr) in held {
            tree.held_as(&name, expr);
        }
    }
}

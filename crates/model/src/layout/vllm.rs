//! The layout of vLLM's layers: its names, and what each layer holds on a rank of a tensor-parallel group.
//!
//! Source: vllm/model_executor/models, v0.20.2 and v0.33.0; of each family, the file of its architecture.
//! Names and shapes are compared with what v0.33.0 builds, golden/vllm_names.py, and the files of ranks with what its loader of
//! such files asks for, golden/vllm_stages.py.

use std::collections::{HashMap, HashSet};

use tensor::{Expr, Made, OneWay, Pattern, RopeOrder, Target};

use super::{Export, Param, RuntimeLayout};
use crate::mesh::{Holding, VOCAB_PADDING};
use crate::{Family, Model, Rule};

/// As vLLM's layers hold the parameters: fused, encoded as stored.
#[derive(Debug)]
pub struct Vllm;

impl Vllm {
    /// What ranks hold of a model of `family`. The vocabulary is padded also on one rank, and every rank has the biases of
    /// row-parallel layers.
    pub fn holding(&self, family: Option<&dyn Family>) -> Holding {
        let ends = family.and_then(Family::vllm_stages).unwrap_or_default();
        Holding { vocab: Some(VOCAB_PADDING), once_everywhere: true, ends }
    }

    /// The parameters of vLLM's model, for those of the checkpoint that are there.
    ///
    /// # Errors
    /// If the rules of the family have no way back.
    pub fn targets(&self, model: &Model, params: &[Param]) -> Result<Export, OneWay> {
        let there: HashMap<&str, &Param> = params.iter().map(|p| (p.name.as_str(), p)).collect();
        let own = |name: &str| there.get(name).is_some_and(|p| p.tied_to.is_none());
        let (tree, rules) = (model.tree(), model.family.vllm(&own));
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
            let expr = match rule.made_of(Expr::source(&name), &model.config, rank) {
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
        let nameless = params.iter().filter(|p| !placed.contains(&p.name)).map(|p| p.name.clone()).collect();
        Ok(Export { layout: RuntimeLayout { targets, rope_order: RopeOrder::Half }, nameless })
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

/// Decoders after Llama. Source: vllm/model_executor/models/llama.py, v0.33.0.
pub(crate) static VLLM_DECODER: &[Rule] = &[
    Rule::same("token_embedding.weight", "model.embed_tokens.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention.qkv.weight", "model.layers.{n}.self_attn.qkv_proj.weight"),
    Rule::same("layers.{n}.attention.qkv.bias", "model.layers.{n}.self_attn.qkv_proj.bias"),
    Rule::same("layers.{n}.attention.q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight"),
    Rule::same("layers.{n}.attention.output.weight", "model.layers.{n}.self_attn.o_proj.weight"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn.gate_up.weight", "model.layers.{n}.mlp.gate_up_proj.weight"),
    Rule::same("layers.{n}.ffn.gate_up.bias", "model.layers.{n}.mlp.gate_up_proj.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.down_proj.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.down_proj.bias"),
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.mlp.gate.weight"),
    Rule::same(
        "layers.{n}.ffn.experts.gate_up.weight",
        "model.layers.{n}.mlp.experts.routed_experts.w13_weight",
    ),
    Rule::same("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.routed_experts.w2_weight"),
    Rule::same("output_norm.weight", "model.norm.weight"),
    Rule::same("output.weight", "lm_head.weight"),
];

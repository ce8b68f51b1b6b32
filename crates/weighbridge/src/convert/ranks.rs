//! What each rank of vLLM gets, as its loader `sharded_state` wants it.
//!
//! Source: vllm/model_executor/model_loader/sharded_state_loader.py, v0.33.0.

use std::collections::HashSet;

use checkpoint::Outgoing;
use model::{Mesh, Model};
use plan::{LoadPlan, PlannedParam};
use tensor::{Dtype, Scheme, Shape};

use super::carry::Made;
use crate::wanted::Wanted;

/// Why vLLM has no ranks that share `model` so, if that is so.
pub(super) fn refuses(mesh: &Mesh, model: &Model) -> Option<String> {
    if mesh.ep > 1 {
        let what = "vLLM calls the files of ranks by their stage and their place in it, not by their group of experts\n\
                    hint: --whole-experts deals the experts to the ranks that share each layer";
        return Some(what.to_owned());
    }
    let refused = mesh.pp > 1 && model.family.vllm_stages().is_none();
    refused.then(|| format!("vLLM does not run `{}` in stages\nhint: --tp alone", model.family.name()))
}

/// Canonical parameters of some rank that the layout has no name for.
pub(super) fn nameless(first: &Wanted, others: &[Wanted]) -> Vec<String> {
    let mut all = first.nameless.clone();
    for name in others.iter().flat_map(|wanted| &wanted.nameless) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// Layers of attention have scales that no checkpoint has, and that are 1: where a tensor is called so, the layer is.
///
/// Source: `set_default_quant_scales` of vllm/model_executor/layers/attention/attention.py.
static ATTENTION: &[(&str, &str)] = &[
    (".self_attn.qkv_proj.weight", ".self_attn.attn"),
    (".self_attn.kv_b_proj.weight", ".self_attn.mla_attn.mla_attn"),
    (".encoder_attn.kv_proj.weight", ".encoder_attn.attn"),
    (".attention.self.qkv_proj.weight", ".attention.self.attn"),
    (".attn.qkv_proj.weight", ".attn.attn"),
    (".attn.c_attn.weight", ".attn.attn"),
];

/// The encoder of Whisper has attention of another kind.
const WITHOUT: &str = "model.encoder.layers.";

/// The scales of the attention of `rank`'s layers.
pub(super) fn scales(rank: &LoadPlan) -> Vec<Made> {
    let layer = |name: &str| {
        let (layer, attention) =
            ATTENTION.iter().find_map(|(end, attention)| Some((name.strip_suffix(end)?, attention)))?;
        (!name.starts_with(WITHOUT)).then(|| format!("{layer}{attention}"))
    };
    let one = |layer: &str, scale: &str| {
        let name = format!("{layer}._{scale}_scale");
        let outgoing = Outgoing { name, shape: Shape::from([]), scheme: Scheme::plain(Dtype::F32) };
        Made { outgoing, bytes: 1f32.to_le_bytes().to_vec() }
    };
    let layers = rank.params.iter().filter_map(|param| layer(&param.name));
    layers.flat_map(|layer| ["q", "k", "v", "prob"].map(|scale| one(&layer, scale))).collect()
}

/// Parts of names that are others in mixtures of experts, which hold their experts, router and shared experts as theirs.
///
/// Source: vllm/model_executor/layers/fused_moe.
static EXPERTS: &[(&str, &str)] = &[
    (".experts.w", ".experts.routed_experts.w"),
    (".mlp.gate.", ".mlp.experts.gate."),
    (".mlp.shared_experts.", ".mlp.experts._shared_experts._layer."),
];

/// Calls the tensors of `rank` as vLLM v0.33.0 saves them and looks for them. Of several names it takes the smallest:
/// `lm_head.weight`, not `model.embed_tokens.weight` that is tied to it; in attention of low rank and in mixtures of
/// experts those of the inner module, where they are before the outer one's.
///
/// Source: `_filter_subtensors`; vllm/model_executor/layers/mla.py.
pub(super) fn call_as_saved(rank: &mut LoadPlan) {
    for i in 0..rank.params.len() {
        if let Some(root) = rank.params[i].tied_to
            && rank.params[i].name < rank.params[root].name
        {
            let name = std::mem::take(&mut rank.params[i].name);
            rank.params[i].name = std::mem::replace(&mut rank.params[root].name, name);
        }
    }
    let low = |p: &PlannedParam| p.name.strip_suffix("kv_b_proj.weight").map(str::to_owned);
    let low: HashSet<String> = rank.params.iter().filter_map(low).collect();
    for param in &mut rank.params {
        for (ours, theirs) in EXPERTS {
            param.name = param.name.replace(ours, theirs);
        }
        if let Some(at) = param.name.find(".self_attn.").map(|at| at + ".self_attn.".len())
            && low.contains(&param.name[..at])
            && param.name[at..] > *"mla_attn."
        {
            param.name.insert_str(at, "mla_attn.");
        }
    }
}

/// `counts` of ranks, stage by stage.
pub(super) fn in_stages(counts: &[usize], mesh: &Mesh) -> Vec<Vec<usize>> {
    let ranks = usize::try_from(mesh.tp).unwrap_or(usize::MAX).max(1);
    counts.chunks(ranks).map(<[usize]>::to_vec).collect()
}

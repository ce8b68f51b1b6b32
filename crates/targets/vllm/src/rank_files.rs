//! The files of each rank, as vLLM's loader `sharded_state` wants them.
//!
//! Source: vllm/model_executor/model_loader/sharded_state_loader.py, v0.33.0.

use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{Mesh, Model};
use plan::Codecs as _;
use tensor::{Diagnostic, Diagnostics, Dtype, Expr, Scheme, Shape, Step, Target};

use load::Plan;
use planner::{Error, Request};

use crate::family;

/// The scales that attention has for its cache.
pub(crate) const CACHE: [&str; 4] = ["k_scale", "v_scale", "q_scale", "prob_scale"];
/// Schemes whose layers have parameters for them too, which are -1 where a checkpoint has none:
/// vllm/model_executor/layers/quantization/kv_cache.py `BaseKVCacheMethod`.
const WITH_CACHE: [&str; 3] = ["fp8:", "ct-", "modelopt-"];

/// The reason why ranks of vLLM cannot share `model` by this mesh, if there is one.
pub fn refuses(mesh: &Mesh, model: &Model) -> Option<Diagnostic> {
    if mesh.ep > 1 {
        let what = "vLLM names the files of ranks by stage and rank, not by group of experts";
        let hint = "deal whole experts to the ranks that share each layer".to_owned();
        return Some(Diagnostic::new(what).with_hint(hint));
    }
    let family = model.family.name();
    let stages = family::names(family).and_then(|names| names.stages);
    (mesh.pp > 1 && stages.is_none()).then(|| {
        Diagnostic::new(format!("vLLM does not run `{family}` in stages"))
            .with_hint("share each layer among all ranks".to_owned())
    })
}

/// Renames everything as in the state of vLLM's modules.
pub fn rename(request: &mut Request, model: &Model) {
    let mut names: Vec<&mut String> = request.targets.iter_mut().map(|t| &mut t.name).collect();
    if let Some(family) = family::names(model.family.name()) {
        family.state.names(&mut names);
    }
    // Of what is tied the first name counts.
    request.tie_to_first_names();
}

/// The plan of the whole state of the modules on the rank of `request`, under the names of their `state_dict`. A parameter for which `held`
/// has a scheme becomes that while it is loaded, and so does one that is tied to it.
///
/// # Errors
/// Whatever does not fit, as [`Request::compile`] says; [`Error::Refused`] if vLLM would misread it.
pub fn state(
    mut request: Request,
    model: &Model,
    checkpoint: &Checkpoint,
    held: impl Fn(&str) -> Option<Arc<Scheme>>,
) -> Result<Plan, Error> {
    rename(&mut request, model);
    let mut wanted: Vec<_> = request.targets.iter().map(|target| held(&target.name)).collect();
    for (other, first) in request.ties() {
        let of_first = wanted[first].clone();
        wanted[other] = wanted[other].take().or(of_first);
    }
    for (target, scheme) in request.targets.iter_mut().zip(wanted) {
        target.scheme = scheme.or(target.scheme.take());
    }
    let before = request.compile_unmerged()?;
    complete(&mut request, &before, model, checkpoint)?;
    request.compile()
}

/// Adds the tensors that no checkpoint has to a request that was compiled to `plan`, before its targets got their
/// current encodings.
///
/// # Errors
/// Every reason why vLLM would not load the files, or would misread them.
pub fn complete(
    request: &mut Request,
    plan: &Plan,
    model: &Model,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    let held = request.targets.iter().zip(plan.params());
    let planned: Vec<Saved> = held
        .map(|(target, param)| Saved {
            name: target.name.clone(),
            shape: param.shape.clone(),
            scheme: Arc::clone(target.scheme.as_ref().unwrap_or(&param.scheme)),
        })
        .collect();
    let is_of = |schemes: &[&str], p: &Saved| schemes.iter().any(|s| p.scheme.name.starts_with(s));
    let floats = planned.iter().any(|p| is_of(&WITH_CACHE, p));
    let is_static = |name: &str| name.ends_with(".input_scale") || name.ends_with(".input_global_scale");
    let mut wrong = vec![];
    if let Some((name, _)) = plan.pieces().dropped.iter().find(|(name, _)| floats && is_static(name)) {
        wrong.push(format!(
            "vLLM wants the scales of activations too, such as `{name}`, and these are not written"
        ));
    }
    if let Some(param) =
        planned.iter().find(|p| p.name.ends_with(".w13_weight") && load::Codecs.by_row(&p.scheme).is_some())
    {
        wrong.push(format!(
            "`{}` is {}: vLLM wants two scales for each expert, of which it makes one itself, and the loader \
             `sharded_state` cannot have both",
            param.name, param.scheme
        ));
    }
    if !wrong.is_empty() {
        let hint = "encode all of it as bf16, or have vLLM load the checkpoint itself".to_owned();
        let what: Diagnostics = wrong.into_iter().map(Diagnostic::new).collect();
        return Err(Error::Refused { what: what.with_hint(hint) });
    }
    let constant = |name: String, n: i32, scheme: &Arc<Scheme>| Target {
        name,
        expr: Expr::Zero(Shape::from([])).encode(Step::Add(n)),
        scheme: Some(Arc::clone(scheme)),
    };
    let float = Scheme::plain(Dtype::F32);
    // The dtype of the model, which is that of its norms.
    let plain = planned.iter().find(|p| p.shape.len() == 1 && p.scheme.dtype().is_some());
    let plain = plain.map_or_else(|| Arc::clone(&float), |p| Arc::clone(&p.scheme));
    // In latent attention modelopt.py alone has them.
    let config = checkpoint.metadata().hf().and_then(|hf| hf.config());
    let modelopt = config.is_some_and(|c| c["quantization_config"]["quant_method"] == "modelopt");
    let latent = model.config().latent.is_some();
    let with_cache = if latent { modelopt } else { floats };
    let names = planned.iter().map(|p| p.name.as_str());
    let mut more = vec![];
    let attention = family::names(model.family.name()).map(|family| family.state.attention(names));
    for module in attention.into_iter().flatten() {
        more.extend(CACHE.map(|scale| constant(format!("{module}._{scale}"), 1, &float)));
        if with_cache {
            more.extend(CACHE.map(|scale| constant(format!("{module}.{scale}"), -1, &plain)));
        }
    }
    // auto_gptq.py has a bias for all experts.
    for param in planned.iter().filter(|p| is_of(&["gptq:"], p)) {
        if let (Some(stem), [experts, out, _]) = (param.name.strip_suffix("_weight"), &param.shape[..]) {
            let expr = Expr::Zero(Shape::from([*experts, *out]));
            more.push(Target { name: format!("{stem}_bias"), expr, scheme: Some(Arc::clone(&plain)) });
        }
    }
    request.targets.extend(more);
    Ok(())
}

/// A tensor in the file of a rank.
struct Saved {
    name: String,
    shape: Shape,
    scheme: Arc<Scheme>,
}

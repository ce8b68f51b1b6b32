//! The matrices that vLLM's latent attention makes of `kv_b_proj` after it has loaded it.
//!
//! While it decodes, vLLM does not make keys and values of the latent vectors in its cache. It takes queries to the latent space
//! by `W_UK_T`, `[heads, nope, rank]`, and results back by `W_UV`, `[heads, rank, value]`. Both are parts of `kv_b_proj`, moved and
//! turned: no arithmetic, so that a plan has them as it has any other parameter, exactly. `kv_b_proj` itself stays, for prompts.
//!
//! Source: vLLM 0.33.0, vllm/model_executor/layers/attention/mla_attention.py, `split_kv_b_proj` and
//! `MLAAttention.process_weights_after_loading`. golden/vllm_mla.py compares with the first.

use planner::Request;
use tensor::{Diagnostic, Dtype, Expr, Scheme, Target};

/// How a layer of vLLM names the matrix that keys and values come from.
const KV_B: &str = ".self_attn.kv_b_proj.weight";
/// The module that has what is made of it.
const ATTENTION: &str = ".self_attn.mla_attn.mla_attn";

/// Adds `W_UK_T` and `W_UV` of every layer to `request`, which is of the layout [`LAYOUT`](crate::LAYOUT), on any rank: of the heads
/// that the rank holds. What is stored in blocks becomes bf16, as it does in vLLM.
///
/// # Errors
/// If no layer of the model has latent attention.
pub fn absorb(request: &mut Request) -> Result<(), Diagnostic> {
    let mut found = vec![];
    for target in &request.targets {
        let (Some(layer), Some([keys, values])) = (target.name.strip_suffix(KV_B), parts(&target.expr))
        else {
            continue;
        };
        let mut plain = true;
        target.expr.for_each_source(&mut |name| {
            plain &= request.resolved.find(name).is_none_or(|param| param.becomes().dtype().is_some());
        });
        let scheme = (!plain).then(|| Scheme::plain(Dtype::BF16)).or(target.scheme.clone());
        let made =
            |name, expr| Target { name: format!("{layer}{ATTENTION}.{name}"), expr, scheme: scheme.clone() };
        found.push(made("W_UK_T", keys.clone()));
        found.push(made("W_UV", values.clone().permute(&[0, 2, 1])));
    }
    if found.is_empty() {
        let what = "nothing is absorbed: no layer has the latent attention of DeepSeek, as vLLM holds it";
        let hint = "use it with the layout vllm, on a model with `kv_b_proj`".to_owned();
        return Err(Diagnostic::new(what).with_hint(hint));
    }
    request.targets.extend(found);
    Ok(())
}

/// The keys, `[heads, nope, rank]`, and the values, `[heads, value, rank]`, that `kv_b_proj` holds head by head.
fn parts(held: &Expr) -> Option<[&Expr; 2]> {
    let Expr::Merge { axis: 0, of } = held else { return None };
    let Expr::Concat { axis: 1, parts } = &**of else { return None };
    let [keys, values] = &parts[..] else { return None };
    Some([keys, values])
}

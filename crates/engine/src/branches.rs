//! The branches of a model's layers, from the computations that its modules declare.

use ::model::Computes;
use ::model::module;

use crate::Error;
use crate::build::{Builder, unsaid};
use crate::layer::{
    Attention, Branch, CrossAttention, FeedForward, GatedDelta, LatentAttention, Layer, Mixture,
};

/// The branches of the module at `path`, in order.
pub(crate) fn of(path: &str, build: &mut Builder<'_>) -> Result<Vec<Branch>, Error> {
    let Some(Computes::Residual(branches)) = build.get(path) else { return Err(unsaid(path)) };
    let branch = |branch: &module::Branch| {
        let at = |child: &str| format!("{path}.{child}");
        Ok(Branch {
            norm: branch.norm.map(|norm| build.norm(&at(norm))).transpose()?,
            layer: layer(&at(branch.layer), build)?,
            post_norm: branch.post_norm.map(|post| build.norm(&at(post))).transpose()?,
            scale: branch.scale,
            sum_norm: branch.sum_norm.map(|norm| build.norm(&at(norm))).transpose()?,
            parallel: branch.parallel,
        })
    };
    branches.iter().map(branch).collect()
}

/// The layer at `path`: one line for each kind.
fn layer(path: &str, build: &mut Builder<'_>) -> Result<Box<dyn Layer>, Error> {
    Ok(match build.get(path) {
        Some(Computes::Attention(attention)) => Box::new(Attention::new(path, attention, build)?),
        Some(Computes::CrossAttention(cross)) => {
            Box::new(CrossAttention::new(path, *cross, build.heard().ok_or_else(|| unsaid(path))?, build)?)
        }
        Some(Computes::LatentAttention(latent)) => Box::new(LatentAttention::new(path, latent, build)?),
        Some(Computes::GatedDelta(delta)) => Box::new(GatedDelta::new(path, delta, build)?),
        Some(Computes::FeedForward(ffn)) => Box::new(FeedForward::new(path, *ffn, build)?),
        Some(Computes::Mixture(mixture)) => Box::new(Mixture::new(path, mixture, build)?),
        _ => return Err(unsaid(path)),
    })
}

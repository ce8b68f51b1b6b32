//! Factors of rotary frequencies, which GGUF has as tensors and config.json as numbers.

use load::{Loaded, Slot};
use model::{Model, Rope};

/// Factors of Llama 3.
pub(crate) const FACTORS: &str = "rope_factors.weight";
/// Factors of `longrope` for texts longer than the first context; files use this name, too.
pub(crate) const LONG: &str = "rope_factors_long.weight";
/// Factors of `longrope` for texts within the first context.
pub(crate) const SHORT: &str = "rope_factors_short.weight";

/// The rotary embedding that the configuration of `model` says.
pub(crate) fn of(model: &Model) -> Rope {
    let config = model.config();
    let scaling = config.rope_scaling.value.clone();
    Rope { theta: *config.rope_theta, dims: *config.rope_dims, context: *config.context, scaling }
}

/// The values of the factors called `name`, loaded as f32; none if they are not there.
pub(crate) fn values(loaded: &Loaded, name: &str) -> Vec<f32> {
    let slots = loaded.get(name).map(load::Tensor::slots).unwrap_or_default();
    let bytes = slots.first().map(Slot::bytes).unwrap_or_default();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

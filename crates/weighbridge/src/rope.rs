//! The rotary factors of Llama 3, which GGUF has as a tensor and config.json as numbers.

use load::{Loaded, Slot};
use model::{Model, Rope};

/// The canonical parameter.
pub(crate) const FACTORS: &str = "rope_factors.weight";

/// The rotary embedding that the configuration of `model` says.
pub(crate) fn of(model: &Model) -> Rope {
    let config = &model.config;
    Rope { theta: *config.rope_theta, dims: *config.head_dim, scaling: *config.rope_scaling }
}

/// The values of [`FACTORS`], loaded as f32; none if it is not there.
pub(crate) fn values(loaded: &Loaded) -> Vec<f32> {
    let slots = loaded.get(FACTORS).map(load::Tensor::slots).unwrap_or_default();
    let bytes = slots.first().map(Slot::bytes).unwrap_or_default();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

//! Activations by their formulas.
//!
//! Source: transformers activations.py@v5.23.

use model::Activation;

/// `act(x)`.
pub(crate) fn activated(act: Activation, x: f32) -> f32 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
        Activation::Gelu => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0) * x.max(0.0),
        // As with a gate that has nothing beside it.
        Activation::ClampedSwiglu => clamped_swiglu(x, 0.0),
    }
}

/// The activation of `gate` and `up`, which is beside it.
pub(super) fn gated(act: Activation, gate: f32, up: f32) -> f32 {
    match act {
        Activation::ClampedSwiglu => clamped_swiglu(gate, up),
        _ => activated(act, gate) * up,
    }
}

/// Source: transformers `GptOssExperts._apply_gate`@v5.23.
fn clamped_swiglu(gate: f32, up: f32) -> f32 {
    let (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0));
    (up + 1.0) * gate / (1.0 + (-1.702 * gate).exp())
}

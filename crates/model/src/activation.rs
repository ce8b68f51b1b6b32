//! The feed-forward activations, by the names that config.json has for them.

/// The feed-forward activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of GELU, which GPT-2 and Gemma use.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    Relu2,
    /// `g · sigmoid(1.702 g) · (u + 1)` for the gate `g`, at most 7, and `u` beside it, from -7 to 7: gpt-oss. It needs a gate, and
    /// no configuration names it.
    ClampedSwiglu,
}

/// Every activation by the names that config.json has for it.
/// Source: transformers activations.py@v5.23, `ACT2CLS`.
static ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
];

impl Activation {
    /// The activation that config.json calls so.
    pub fn named(name: &str) -> Option<Activation> {
        ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// The first of its names.
    pub fn name(self) -> &'static str {
        ACTIVATIONS.iter().find(|(_, activation)| *activation == self).map_or("", |(name, _)| name)
    }

    /// Every name that is understood.
    pub(crate) fn names() -> String {
        ACTIVATIONS.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

//! Layers that own vectors and tables.

use tensor::Presence;

use super::{Computes, Module, Norm, Tree, with_presence};
use crate::param::{Along, ParamSpec, Role};

/// `x / sqrt(mean(x²) + eps) · weight`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    width: Along,
    eps: Option<f32>,
}

impl RmsNorm {
    /// Returns one of `width` elements.
    pub fn new(width: impl Into<Along>) -> RmsNorm {
        RmsNorm { width: width.into(), eps: None }
    }

    /// The same, which declares its computation.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> RmsNorm {
        RmsNorm { eps: Some(eps), ..self }
    }
}

impl Module for RmsNorm {
    fn declare(&self, tree: &mut Tree) {
        tree.param("weight", ParamSpec::vector(self.width));
        if let Some(eps) = self.eps {
            tree.computes(Ok(Computes::Norm(Norm::Rms { eps })));
        }
    }
}

/// `(x - mean) / sqrt(var + eps) · weight + bias`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    width: Along,
    eps: Option<f32>,
    presence: Presence,
    biased: bool,
}

impl LayerNorm {
    /// Returns one of `width` elements.
    pub fn new(width: impl Into<Along>) -> LayerNorm {
        LayerNorm { width: width.into(), eps: None, presence: Presence::Required, biased: true }
    }

    /// The same, which declares its computation.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> LayerNorm {
        LayerNorm { eps: Some(eps), ..self }
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(self) -> LayerNorm {
        LayerNorm { biased: false, ..self }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> LayerNorm {
        LayerNorm { presence: Presence::Optional, ..self }
    }
}

impl Module for LayerNorm {
    fn declare(&self, tree: &mut Tree) {
        tree.param("weight", with_presence(ParamSpec::vector(self.width), &self.presence));
        if self.biased {
            tree.param("bias", with_presence(ParamSpec::vector(self.width), &self.presence));
        }
        if let Some(eps) = self.eps {
            tree.computes(Ok(Computes::Norm(Norm::Layer { eps })));
        }
    }
}

/// Numbers that a layer uses as they are: `weight`.
#[derive(Clone, Debug)]
pub struct Table {
    axes: Vec<Along>,
    presence: Presence,
    name: &'static str,
}

impl Table {
    /// Returns one of `width` elements.
    pub fn new(width: impl Into<Along>) -> Table {
        Table::of_axes([width.into()])
    }

    /// Creates a table of several axes, slowest first.
    pub fn of_axes(axes: impl Into<Vec<Along>>) -> Table {
        Table { axes: axes.into(), presence: Presence::Required, name: "weight" }
    }

    /// The same, called otherwise.
    #[must_use]
    pub fn named(self, name: &'static str) -> Table {
        Table { name, ..self }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> Table {
        Table { presence: Presence::Optional, ..self }
    }
}

impl Module for Table {
    fn declare(&self, tree: &mut Tree) {
        let spec = ParamSpec::new(Role::Vector, self.axes.clone());
        tree.param(self.name, with_presence(spec, &self.presence));
    }
}

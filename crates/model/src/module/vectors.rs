//! Layers that own vectors and tables.

use tensor::Presence;

use super::{Module, Tree, with_presence};
use crate::param::{Along, ParamSpec, Role};

/// `x / sqrt(mean(x²) + eps) · weight`.
#[derive(Clone, Debug)]
pub struct RmsNorm(Along);

impl RmsNorm {
    /// Of so many elements.
    pub fn new(width: impl Into<Along>) -> RmsNorm {
        RmsNorm(width.into())
    }
}

impl Module for RmsNorm {
    fn declare(&self, tree: &mut Tree) {
        tree.param("weight", ParamSpec::vector(self.0));
    }
}

/// `(x - mean) / sqrt(var + eps) · weight + bias`.
#[derive(Clone, Debug)]
pub struct LayerNorm(Along, Presence);

impl LayerNorm {
    /// Of so many elements.
    pub fn new(width: impl Into<Along>) -> LayerNorm {
        LayerNorm(width.into(), Presence::Required)
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> LayerNorm {
        LayerNorm(self.0, Presence::Optional)
    }
}

impl Module for LayerNorm {
    fn declare(&self, tree: &mut Tree) {
        tree.param("weight", with_presence(ParamSpec::vector(self.0), &self.1));
        tree.param("bias", with_presence(ParamSpec::vector(self.0), &self.1));
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
    /// Of so many elements.
    pub fn new(width: impl Into<Along>) -> Table {
        Table::of_axes([width.into()])
    }

    /// Of several axes, slowest first.
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

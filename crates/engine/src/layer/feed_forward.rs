//! Feed-forward networks: `down(act(up(x)))`, or `down(act(gate(x)) · up(x))`.

use std::sync::Arc;

use model::{Activation, Computes};

use super::{Layer, Pass};
use crate::Error;
use crate::backend::Mlp;
use crate::build::{Builder, unsaid};
use crate::weights::Projection;

/// A feed-forward network; it has no state.
pub(crate) struct FeedForward {
    /// Applied to the gate, or to up where there is no gate.
    pub(crate) activation: Activation,
    /// Whether there is a gate.
    pub(crate) gated: bool,
    /// Gate (if any) and up.
    pub(crate) gate_up: Arc<Projection>,
    /// Back to hidden.
    pub(crate) down: Arc<Projection>,
}

impl FeedForward {
    /// The network at `path`.
    pub(crate) fn new(
        path: &str,
        says: ::model::module::FeedForward,
        build: &Builder<'_>,
    ) -> Result<FeedForward, Error> {
        let up = if says.gated { "gate_up" } else { "up" };
        Ok(FeedForward {
            activation: says.activation,
            gated: says.gated,
            gate_up: build.projection(&format!("{path}.{up}"))?,
            down: build.projection(&format!("{path}.down"))?,
        })
    }
}

impl FeedForward {
    /// The network at `path`, if there is one.
    pub(crate) fn optional(path: &str, build: &Builder<'_>) -> Result<Option<FeedForward>, Error> {
        match build.get(path) {
            Some(Computes::FeedForward(ffn)) => Ok(Some(FeedForward::new(path, *ffn, build)?)),
            Some(_) => Err(unsaid(path)),
            None => Ok(None),
        }
    }
}

impl Layer for FeedForward {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        vec![&self.gate_up, &self.down]
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let gate_up = &mut pass.wide[..pass.rows * self.gate_up.out];
        let activated = &mut pass.narrow[..pass.rows * self.down.input];
        let FeedForward { activation, gated: is_gated, gate_up: first, down } = self;
        let mlp = Mlp { activation: *activation, is_gated: *is_gated, gate_up: first, down };
        pass.backend.feed_forward(&mlp, h, pass.rows, [gate_up, activated], out);
    }
}

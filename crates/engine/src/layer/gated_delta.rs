//! Linear attention by the gated delta rule.

use std::sync::Arc;

use ::model::Activation;
use load::Tensor;
use tensor::ValueOrder;

use super::{Layer, Pass};
use crate::backend::DeltaRule;
use crate::build::Builder;
use crate::state::{Recurrent, RecurrentShape, State};
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvKind};

/// Linear attention by the gated delta rule; its state is a [`Recurrent`].
pub(crate) struct GatedDelta {
    shape: RecurrentShape,
    /// To queries, keys, values, their gates, how much of them is written, and how much of the state is kept.
    input: Arc<Projection>,
    /// Of the convolution: `[heads, kernel, channels]`.
    weights: Vec<f32>,
    /// Applied to the output of the convolution.
    activation: Activation,
    /// f32, `[value heads]`: how fast each forgets.
    decay: Tensor,
    /// The order of heads of values.
    order: ValueOrder,
    unit_eps: f32,
    norm: NormWeights,
    /// Values to hidden.
    output: Arc<Projection>,
}

impl GatedDelta {
    /// The layer at `path`.
    pub(crate) fn new(
        path: &str,
        says: &::model::module::GatedDelta,
        build: &Builder<'_>,
    ) -> Result<GatedDelta, Error> {
        let at = |child: &str| format!("{path}.{child}");
        let shape = RecurrentShape::of(says, 1).ok_or(Error::TooLarge)?;
        let (kernel, channels) = (shape.kernel, shape.channels());
        // `[channels, kernel]` each.
        let tables =
            ["q_conv", "k_conv", "v_conv"].map(|conv| build.parameter(&at(&format!("{conv}.weight"))));
        let [q, k, v] = tables;
        let (q, k, v) = (q?, k?, v?);
        let mut weights = vec![0.0; shape.heads * kernel * channels];
        for (head, weights) in weights.chunks_exact_mut(kernel * channels).enumerate() {
            let shared = shape.key_head(head, build.value_order);
            let parts = [(&q, shared, shape.key), (&k, shared, shape.key), (&v, head, shape.value)];
            let rows = parts.into_iter().flat_map(|(table, head, width)| {
                table.as_f32()[head * width * kernel..][..width * kernel].chunks_exact(kernel)
            });
            for (channel, taps) in rows.enumerate() {
                for (tap, weight) in taps.iter().enumerate() {
                    weights[tap * channels + channel] = *weight;
                }
            }
        }
        let decay = build.parameter(&at("decay.weight"))?;
        Ok(GatedDelta {
            shape,
            input: build.projection(&at("in"))?,
            weights,
            activation: says.activation,
            decay,
            order: build.value_order,
            unit_eps: says.unit_eps,
            norm: build.norm(&at("norm"))?,
            output: build.projection(&at("out"))?,
        })
    }
}

impl Layer for GatedDelta {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        vec![&self.input, &self.output]
    }

    fn recurrent(&self) -> Option<RecurrentShape> {
        Some(self.shape)
    }

    fn state(&self, _: KvKind, positions: usize) -> Result<State, Error> {
        let state = Recurrent::new(&self.shape).ok_or(Error::CacheTooLarge { capacity: positions })?;
        Ok(State::Recurrent(Box::new(state)))
    }

    fn state_bytes(&self, _: KvKind, _: usize) -> Option<u64> {
        self.shape.bytes()
    }

    fn state_reads(&self, _: KvKind, _: usize) -> u64 {
        self.shape.bytes().unwrap_or(0)
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let (width, values) = (self.input.out, self.output.input);
        let x = &mut pass.wide[..pass.rows * width];
        let mixed = &mut pass.narrow[..pass.rows * values];
        pass.backend.linear(&self.input, h, pass.rows, x);
        let rule = DeltaRule {
            shape: self.shape,
            weights: &self.weights,
            activation: self.activation,
            decay: self.decay.as_f32(),
            order: self.order,
            unit_eps: self.unit_eps,
            norm: &self.norm,
            width,
        };
        let Pass { sequences, backend, .. } = pass;
        sequences.states_mut(|segments, position, state| {
            let State::Recurrent(state) = state else { unreachable!("`state` has made it for this layer") };
            for segment in segments {
                let rows = segment.tokens.len();
                let state = state.advance(position, rows);
                let x = &x[segment.row * width..][..rows * width];
                backend.delta(&rule, state, x, rows, &mut mixed[segment.row * values..][..rows * values]);
            }
        });
        pass.backend.linear(&self.output, mixed, pass.rows, out);
    }
}

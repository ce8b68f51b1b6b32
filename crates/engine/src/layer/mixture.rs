//! Mixtures of experts: a router sends each token to some of many feed-forward networks. Only the weights of these are read.

mod routing;

use std::sync::Arc;

use load::Tensor;
use model::Activation;
use model::module::Routing;

use super::{FeedForward, Layer, Pass, Room};
use crate::Error;
use crate::build::{Builder, Experts, size};
use crate::weights::Projection;

pub(crate) use routing::Routes;

/// A mixture of experts; it has no state.
pub(crate) struct Mixture {
    routing: Routing,
    /// Experts that a token is sent to.
    used: usize,
    activation: Activation,
    /// Hidden to a score for each expert.
    router: Arc<Projection>,
    /// f32, `[experts]`: added to the scores where experts are chosen.
    correction: Option<Tensor>,
    /// Of each expert.
    gate_up: Vec<Arc<Projection>>,
    /// Of each expert.
    down: Vec<Arc<Projection>>,
    /// The network that every token is sent to.
    shared: Option<FeedForward>,
}

impl Mixture {
    /// The mixture at `path`.
    pub(crate) fn new(
        path: &str,
        says: &::model::module::Mixture,
        build: &Builder<'_>,
    ) -> Result<Mixture, Error> {
        let (hidden, ffn) = (build.hidden(), says.ffn);
        let experts = format!("{path}.experts");
        let all = Experts { count: says.experts, used: says.routing.used };
        let gate_up = [("gate", ffn), ("up", ffn)];
        Ok(Mixture {
            routing: says.routing,
            used: size(says.routing.used)?,
            activation: says.activation,
            router: build.projection(&format!("{path}.router"))?,
            correction: build.optional_parameter(&format!("{path}.router.correction.bias")),
            gate_up: build.stack(&experts, "gate_up", &gate_up, &all, hidden)?,
            down: build.stack(&experts, "down", &[("down", hidden)], &all, ffn)?,
            shared: FeedForward::optional(&format!("{path}.shared"), build)?,
        })
    }
}

impl Layer for Mixture {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        let shared = self.shared.iter().flat_map(|shared| shared.projections());
        let experts = self.gate_up.iter().zip(&self.down).flat_map(|(gate_up, down)| [gate_up, down]);
        [&self.router].into_iter().chain(shared).chain(experts).collect()
    }

    fn room(&self) -> Room {
        let widest = |of: fn(&Projection) -> usize| {
            let each = [&self.gate_up[0], &self.down[0]].map(|projection| of(projection) * self.used);
            let once = [&self.router].into_iter().chain(self.shared.iter().flat_map(|s| s.projections()));
            each.into_iter().chain(once.map(|projection| of(projection))).max().unwrap_or(0)
        };
        Room {
            wide: widest(|projection| projection.out),
            narrow: widest(|projection| projection.input),
            used: self.used,
            experts: self.gate_up.len(),
            each: self.gate_up[0].out.max(self.down[0].out),
        }
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let (rows, hidden) = (pass.rows, self.router.input);
        let scores = &mut pass.wide[..rows * self.router.out];
        pass.backend.linear(&self.router, h, rows, scores);
        let correction = self.correction.as_ref().map(Tensor::as_f32);
        pass.routes.choose(&self.routing, correction, scores, rows);

        match &self.shared {
            Some(shared) => shared.run(pass, h, out),
            None => out.fill(0.0),
        }

        // The rows of an expert follow each other: a row is there once for each expert that it is sent to.
        let sent = rows * self.used;
        let (ffn, counts) = (self.down[0].input, &pass.routes.counts[..]);
        let x = &mut pass.narrow[..sent * hidden];
        for (place, row) in pass.routes.rows().enumerate() {
            x[place * hidden..][..hidden].copy_from_slice(&h[row * hidden..][..hidden]);
        }
        let gate_up = &mut pass.wide[..sent * 2 * ffn];
        pass.backend.linear_each(&self.gate_up, counts, x, gate_up);
        let activated = &mut pass.narrow[..sent * ffn];
        pass.backend.activate(self.activation, true, gate_up, sent, activated);
        let results = &mut pass.wide[..sent * hidden];
        pass.backend.linear_each(&self.down, counts, activated, results);
        // In the order in which a row's experts were chosen, whatever the other rows are.
        for (row, out) in out.chunks_exact_mut(hidden).enumerate() {
            for (place, weight) in pass.routes.of(row) {
                let result = &results[place * hidden..][..hidden];
                out.iter_mut().zip(result).for_each(|(out, result)| *out += weight * result);
            }
        }
    }
}

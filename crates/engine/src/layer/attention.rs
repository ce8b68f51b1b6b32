//! Attention of query heads that share key and value heads, over all positions or a window of them.

use std::sync::Arc;

use load::Tensor;
use tensor::RopeOrder;

use ::model::module::Relative;

use super::{HeadSizes, Layer, Pass};
use crate::backend::{Attend, Heads, Sees};
use crate::build::{Builder, size};
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvShape};

/// Grouped-query attention; its state is a [`KvCache`].
pub(crate) struct Attention {
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; divides `heads`.
    pub(crate) kv_heads: usize,
    /// Elements of a head.
    pub(crate) head_dim: usize,
    /// A query sees itself and the `window - 1` positions before it; as many after it, if it sees both ways.
    pub(crate) window: Option<usize>,
    /// The positions of its sequence that it sees.
    pub(crate) sees: Sees,
    /// Scores are multiplied by this.
    pub(crate) scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub(crate) soft_cap: Option<f32>,
    /// Which rotary embedding of the model, if positions are rotary.
    pub(crate) rope: Option<usize>,
    /// The order in which the rows of q and k lie.
    pub(crate) rope_order: RopeOrder,
    /// The sigmoid of a gate multiplies the output of the heads.
    pub(crate) gated: bool,
    /// q, k and v, and perhaps the gate.
    pub(crate) qkv: Arc<Projection>,
    /// Norm of each query head, or of all together.
    pub(crate) q_norm: Option<NormWeights>,
    /// Norm of each key head, or of all together.
    pub(crate) k_norm: Option<NormWeights>,
    /// f32, `[heads]`: for each query head, a score that goes to no position.
    pub(crate) sinks: Option<Tensor>,
    /// Addends by distance, as [`Attend::relative`] has them.
    pub(crate) relative: Option<Vec<f32>>,
    /// Heads to hidden.
    pub(crate) output: Arc<Projection>,
}

impl Attention {
    /// The attention at `path`.
    pub(crate) fn new(
        path: &str,
        says: &::model::module::Attention,
        build: &mut Builder<'_>,
    ) -> Result<Attention, Error> {
        let at = |child: &str| format!("{path}.{child}");
        Ok(Attention {
            heads: size(says.heads)?,
            kv_heads: size(says.kv_heads)?,
            head_dim: size(says.head_dim)?,
            window: says.window.map(|window| usize::try_from(window).unwrap_or(usize::MAX)),
            sees: if says.bidirectional { Sees::BothWays } else { Sees::Before },
            scale: says.scale,
            soft_cap: says.soft_cap,
            rope: says.rope.as_ref().map(|rope| build.rope(rope)),
            rope_order: build.rope_order,
            gated: says.gated,
            qkv: build.projection(&at("qkv"))?,
            q_norm: build.optional_norm(&at("q_norm"))?,
            k_norm: build.optional_norm(&at("k_norm"))?,
            sinks: build.optional_parameter(&at("sinks.weight")),
            relative: match &says.relative {
                Some(relative) => Some(addends(*relative, size(says.heads)?, says.scale, build)?),
                None => None,
            },
            output: build.projection(&at("output"))?,
        })
    }

    /// How rows of `width` elements attend.
    fn how(&self, width: usize) -> Attend<'_> {
        Attend {
            heads: self.heads,
            width,
            window: self.window,
            sees: self.sees,
            scale: self.scale,
            soft_cap: self.soft_cap,
            sinks: self.sinks.as_ref().map(Tensor::as_f32),
            relative: self.relative.as_deref(),
        }
    }
}

/// The addends of the scores by distance, which the whole model has: those of every distance that is told apart.
fn addends(relative: Relative, heads: usize, scale: f32, build: &Builder<'_>) -> Result<Vec<f32>, Error> {
    let table = build.parameter(Relative::TABLE)?;
    let reach = i64::try_from(relative.farthest).map_err(|_| Error::TooLarge)?;
    let table = table.as_f32();
    let places = |head: usize| {
        let place = move |distance| size(relative.bucket(distance)).map(|bucket| bucket * heads + head);
        (-reach..=reach).map(place)
    };
    // The scores are scaled, these are not.
    (0..heads).flat_map(places).map(|place| Ok(table[place?] / scale)).collect()
}

impl Layer for Attention {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        vec![&self.qkv, &self.output]
    }

    fn cached(&self) -> Option<KvShape> {
        let Attention { kv_heads, head_dim, window, .. } = *self;
        Some(KvShape { kv_heads, key: head_dim, value: head_dim, shared: false, window })
    }

    fn attention(&self) -> Option<HeadSizes> {
        let group = self.heads / self.kv_heads;
        let norms = [&self.q_norm, &self.k_norm].into_iter().flatten();
        let normed = norms.map(|norm| norm.weight.width()).max().unwrap_or(0);
        Some(HeadSizes { heads: self.heads, group, key: self.head_dim, value: self.head_dim, normed })
    }

    fn attends(&self, width: usize) -> Option<Attend<'_>> {
        Some(self.how(width))
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let gate = q + 2 * kv;
        let width = if self.gated { gate + q } else { gate };
        let heads = Heads {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            width,
            q_norm: self.q_norm.as_ref(),
            k_norm: self.k_norm.as_ref(),
            rotation: self.rope.map(|i| pass.rotations[i].of(0, self.rope_order)),
        };
        let qkv = &mut pass.wide[..pass.rows * width];
        let mixed = &mut pass.narrow[..pass.rows * q];
        pass.backend.linear(&self.qkv, h, pass.rows, qkv);
        let how = self.how(width);
        pass.sequences.attend(pass.backend, &heads, &how, [q..q + kv, q + kv..gate], qkv, mixed);
        if self.gated {
            pass.backend.gate(qkv, width, gate, mixed);
        }
        pass.backend.linear(&self.output, mixed, pass.rows, out);
    }
}

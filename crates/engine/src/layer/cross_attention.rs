//! Attention to the vectors of an audio encoder. Their keys and values are made once for all sessions that hear them.

use std::sync::Arc;

use ::model::module;

use super::{HeadSizes, Layer, Pass, Sequences, Watch};
use crate::backend::{Attend, Backend, Sees};
use crate::build::{Builder, size};
use crate::state::State;
use crate::weights::Projection;
use crate::{BATCH, Error, KvCache, KvKind, KvShape};

/// Cross-attention; its state is a [`KvCache`] that sessions share.
pub(crate) struct CrossAttention {
    heads: usize,
    head_dim: usize,
    /// Vectors that the encoder gives.
    context: usize,
    scale: f32,
    q: Arc<Projection>,
    kv: Arc<Projection>,
    output: Arc<Projection>,
}

impl KvShape {
    /// The cache of [`module::CrossAttention`].
    pub(crate) fn cross(heads: usize, head_dim: usize) -> KvShape {
        KvShape { kv_heads: heads, key: head_dim, value: head_dim, shared: false, window: None }
    }
}

impl CrossAttention {
    /// The attention at `path`.
    pub(crate) fn new(
        path: &str,
        says: module::CrossAttention,
        context: u64,
        build: &Builder<'_>,
    ) -> Result<CrossAttention, Error> {
        let at = |child: &str| format!("{path}.{child}");
        Ok(CrossAttention {
            heads: size(says.heads)?,
            head_dim: size(says.head_dim)?,
            context: size(context)?,
            scale: says.scale,
            q: build.projection(&at("q"))?,
            kv: build.projection(&at("kv"))?,
            output: build.projection(&at("output"))?,
        })
    }

    /// The sizes of a vector's keys and values.
    fn shape(&self) -> KvShape {
        KvShape::cross(self.heads, self.head_dim)
    }

    /// The keys and values of `vectors`, `[vectors, hidden]`; `room` is for the products of [`BATCH`] of them.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn hear(
        &self,
        backend: &mut dyn Backend,
        vectors: &[f32],
        kind: KvKind,
        room: &mut [f32],
    ) -> Result<KvCache, Error> {
        let (hidden, inner) = (self.kv.input, self.heads * self.head_dim);
        let mut cache = KvCache::new(self.shape(), kind.without_codes(), vectors.len() / hidden)?;
        for (n, vectors) in vectors.chunks(BATCH * hidden).enumerate() {
            let rows = vectors.len() / hidden;
            let kv = &mut room[..rows * 2 * inner];
            backend.linear(&self.kv, vectors, rows, kv);
            cache.extend(n * BATCH, kv.chunks_exact(2 * inner).map(|row| row.split_at(inner)));
        }
        Ok(cache)
    }
}

impl CrossAttention {
    /// Keeps the products of the queries `q` of one session with what its watched heads look at.
    fn watch(&self, watch: &mut Watch, sequences: &Sequences<'_>, q: &[f32]) {
        let Some(State::Heard(Some(cache))) = sequences
            .segments
            .first()
            .map(|segment| sequences.sessions.state(segment.part, sequences.branch).1)
        else {
            return;
        };
        let mine = watch.heads.iter().zip(&mut watch.products);
        for ((_, head), products) in mine.filter(|((branch, _), _)| *branch == sequences.branch) {
            let (keys, _) = cache.rows(*head, 0..cache.len(), 0);
            for row in q.chunks_exact(self.heads * self.head_dim) {
                let query = &row[head * self.head_dim..][..self.head_dim];
                let product =
                    |key: &[f32]| key.iter().zip(query).map(|(k, q)| k * q).sum::<f32>() * self.scale;
                products.extend(keys.chunks_exact(self.head_dim).map(product));
            }
        }
    }
}

impl Layer for CrossAttention {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        vec![&self.q, &self.kv, &self.output]
    }

    fn state(&self, _: KvKind, _: usize) -> Result<State, Error> {
        Ok(State::Heard(None))
    }

    fn state_bytes(&self, kind: KvKind, _: usize) -> Option<u64> {
        self.shape().bytes(kind.without_codes(), self.context)
    }

    fn state_reads(&self, kind: KvKind, _: usize) -> u64 {
        self.shape().reads(kind.without_codes(), self.context.saturating_sub(1))
    }

    fn attention(&self) -> Option<HeadSizes> {
        Some(HeadSizes { heads: self.heads, group: 1, key: self.head_dim, value: self.head_dim, normed: 0 })
    }

    fn cross(&self) -> Option<&CrossAttention> {
        Some(self)
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let inner = self.heads * self.head_dim;
        let q = &mut pass.wide[..pass.rows * inner];
        let mixed = &mut pass.narrow[..pass.rows * inner];
        pass.backend.linear(&self.q, h, pass.rows, q);
        if let Some(watch) = &mut pass.watch {
            self.watch(watch, &pass.sequences, q);
        }
        let how = Attend {
            heads: self.heads,
            width: inner,
            window: None,
            sees: Sees::Heard,
            scale: self.scale,
            soft_cap: None,
            sinks: None,
            relative: None,
        };
        pass.sequences.attend_heard(pass.backend, &how, q, mixed);
        pass.backend.linear(&self.output, mixed, pass.rows, out);
    }
}

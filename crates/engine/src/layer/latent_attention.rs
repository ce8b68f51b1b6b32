//! Low-rank attention (MLA): what is kept of a position is one latent vector for all heads. The matrices that make keys and values
//! of it are multiplied with queries and results instead, so that it is read once, as it is.
//!
//! Source: DeepSeek-V2, arXiv:2405.04434, section 2.1; transformers `DeepseekV3Attention`@v5.23.

use std::sync::Arc;

use ::model::module;
use tensor::RopeOrder;

use super::{HeadSizes, Layer, Pass, Room};
use crate::backend::{Attend, Heads, Sees};
use crate::build::{Builder, Experts, size};
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvShape};

/// Low-rank attention; its state is a [`KvCache`](crate::KvCache) of latent vectors.
pub(crate) struct LatentAttention {
    heads: usize,
    /// Elements of a latent vector of keys and values.
    latent: usize,
    /// Elements of a query that are not rotated.
    nope: usize,
    /// Elements that are rotated.
    rotated: usize,
    /// Elements of a value.
    value: usize,
    cached: KvShape,
    scale: f32,
    /// Which rotary embedding of the model.
    rope: usize,
    queries: Queries,
    kv_norm: NormWeights,
    /// Of each head: from what is not rotated to a latent vector.
    k_b: Vec<Arc<Projection>>,
    /// Of each head: from a latent vector to a value.
    v_b: Vec<Arc<Projection>>,
    /// Values to hidden.
    output: Arc<Projection>,
}

/// How queries, and latent vectors of keys and values, are made.
enum Queries {
    /// Queries through a latent vector of their own: of `width` elements, at the start of the results of `qkv_a`.
    Latent { qkv_a: Arc<Projection>, width: usize, norm: NormWeights, q_b: Arc<Projection> },
    /// Queries at once.
    Direct { q: Arc<Projection>, kv_a: Arc<Projection> },
}

impl KvShape {
    /// The cache of [`module::LatentAttention`]: a key is a latent vector and the part that is rotated; the vector is its value.
    /// `None` if no memory could hold one.
    pub(crate) fn latent(says: &module::LatentAttention) -> Option<KvShape> {
        let key = usize::try_from(says.latent.checked_add(says.rope.dims)?).ok()?;
        let value = usize::try_from(says.latent).ok()?;
        Some(KvShape { kv_heads: 1, key, value, shared: true, window: None })
    }
}

impl LatentAttention {
    /// The attention at `path`.
    pub(crate) fn new(
        path: &str,
        says: &module::LatentAttention,
        build: &mut Builder<'_>,
    ) -> Result<LatentAttention, Error> {
        let at = |child: &str| format!("{path}.{child}");
        let queries = match says.q_latent {
            Some(width) => Queries::Latent {
                qkv_a: build.projection(&at("qkv_a"))?,
                width: size(width)?,
                norm: build.norm(&at("q_a_norm"))?,
                q_b: build.projection(&at("q_b"))?,
            },
            None => Queries::Direct { q: build.projection(&at("q"))?, kv_a: build.projection(&at("kv_a"))? },
        };
        let heads = Experts { count: says.heads, used: says.heads };
        Ok(LatentAttention {
            heads: size(says.heads)?,
            latent: size(says.latent)?,
            nope: size(says.nope)?,
            rotated: size(says.rope.dims)?,
            value: size(says.value)?,
            cached: KvShape::latent(says).ok_or(Error::TooLarge)?,
            scale: says.scale,
            rope: build.rope(&says.rope),
            queries,
            kv_norm: build.norm(&at("kv_a_norm"))?,
            k_b: build.stack(path, "k_b", &[("k_b", says.latent)], &heads, says.nope)?,
            v_b: build.stack(path, "v_b", &[("v_b", says.value)], &heads, says.latent)?,
            output: build.projection(&at("output"))?,
        })
    }

    /// How rows of `width` elements attend.
    fn how(&self, width: usize) -> Attend<'_> {
        Attend {
            heads: self.heads,
            width,
            window: None,
            sees: Sees::Before,
            scale: self.scale,
            soft_cap: None,
            sinks: None,
            relative: None,
        }
    }
}

impl Layer for LatentAttention {
    fn projections(&self) -> Vec<&Arc<Projection>> {
        let queries = match &self.queries {
            Queries::Latent { qkv_a, q_b, .. } => [qkv_a, q_b],
            Queries::Direct { q, kv_a } => [q, kv_a],
        };
        queries.into_iter().chain(&self.k_b).chain(&self.v_b).chain([&self.output]).collect()
    }

    fn cached(&self) -> Option<KvShape> {
        Some(self.cached)
    }

    fn attention(&self) -> Option<HeadSizes> {
        Some(HeadSizes {
            heads: self.heads,
            group: self.heads,
            key: self.key(),
            value: self.latent,
            normed: 0,
        })
    }

    fn room(&self) -> Room {
        let sizes = self.sizes();
        let narrow = [2 * sizes.q_latent, 2 * self.latent, self.heads * self.nope, self.heads * self.latent];
        let narrow = narrow.into_iter().max().unwrap_or(0).max(self.heads * self.value);
        let wide = sizes.queries + sizes.latents + sizes.keys + self.heads * self.latent;
        Room { wide, narrow, experts: self.heads, each: self.latent.max(self.value), ..Room::default() }
    }

    fn attends(&self, width: usize) -> Option<Attend<'_>> {
        Some(self.how(width))
    }

    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]) {
        let (rows, heads, key, sizes) = (pass.rows, self.heads, self.key(), self.sizes());
        let (nope, latent, value, rotated) = (self.nope, self.latent, self.value, self.rotated);
        let (queries, rest) = pass.wide.split_at_mut(rows * sizes.queries);
        let (latents, rest) = rest.split_at_mut(rows * sizes.latents);
        let (keys, rest) = rest.split_at_mut(rows * sizes.keys);
        let by_head = &mut rest[..rows * heads * latent];
        let narrow = &mut *pass.narrow;

        let head = nope + rotated;
        let q = &mut queries[..rows * heads * head];
        match &self.queries {
            Queries::Latent { qkv_a, width, norm, q_b } => {
                pass.backend.linear(qkv_a, h, rows, latents);
                let (x, normed) = narrow.split_at_mut(rows * width);
                gather(x, *width, latents, sizes.latents, 0);
                pass.backend.norm(norm, x, &mut normed[..rows * width]);
                pass.backend.linear(q_b, &normed[..rows * width], rows, q);
            }
            Queries::Direct { q: matrix, kv_a } => {
                pass.backend.linear(matrix, h, rows, q);
                pass.backend.linear(kv_a, h, rows, latents);
            }
        }

        // The key of each row: the latent vector, normed, and what is rotated.
        let (x, normed) = narrow.split_at_mut(rows * latent);
        let normed = &mut normed[..rows * latent];
        gather(x, latent, latents, sizes.latents, sizes.q_latent);
        pass.backend.norm(&self.kv_norm, x, normed);
        let own = keys.chunks_exact_mut(sizes.keys).map(|row| &mut row[heads * key..]);
        for ((own, normed), row) in
            own.zip(normed.chunks_exact(latent)).zip(latents.chunks_exact(sizes.latents))
        {
            own[..latent].copy_from_slice(normed);
            own[latent..].copy_from_slice(&row[sizes.q_latent + latent..]);
        }

        // Queries in the space of the latent vectors.
        let x = &mut narrow[..heads * rows * nope];
        for (n, x) in x.chunks_exact_mut(rows * nope).enumerate() {
            gather(x, nope, q, heads * head, n * head);
        }
        let counts = pass.routes.equal(heads, rows);
        pass.backend.linear_each(&self.k_b, counts, x, by_head);
        for (n, results) in by_head.chunks_exact(rows * latent).enumerate() {
            let results = results.chunks_exact(latent).zip(q.chunks_exact(heads * head));
            for (row, (result, q)) in keys.chunks_exact_mut(sizes.keys).zip(results) {
                let row = &mut row[n * key..][..key];
                row[..latent].copy_from_slice(result);
                row[latent..].copy_from_slice(&q[n * head + nope..][..rotated]);
            }
        }
        let rotation = pass.rotations[self.rope].of(latent, RopeOrder::Interleaved);
        let (width, head_dim) = (sizes.keys, key);
        let rotation = Some(rotation);
        let rotated = Heads { heads, kv_heads: 1, head_dim, width, q_norm: None, k_norm: None, rotation };

        let mixed = &mut narrow[..rows * heads * latent];
        let how = self.how(width);
        pass.sequences.attend(pass.backend, &rotated, &how, [heads * key..width, 0..0], keys, mixed);

        // Values of the latent vectors that were mixed.
        for (n, by_head) in by_head.chunks_exact_mut(rows * latent).enumerate() {
            gather(by_head, latent, mixed, heads * latent, n * latent);
        }
        let results = &mut narrow[..heads * rows * value];
        pass.backend.linear_each(&self.v_b, counts, by_head, results);
        let values = &mut queries[..rows * heads * value];
        for (n, results) in results.chunks_exact(rows * value).enumerate() {
            for (row, result) in values.chunks_exact_mut(heads * value).zip(results.chunks_exact(value)) {
                row[n * value..][..value].copy_from_slice(result);
            }
        }
        pass.backend.linear(&self.output, values, rows, out);
    }
}

/// Elements of a row of each buffer.
struct Sizes {
    /// Queries, and values of all heads.
    queries: usize,
    /// Latent vectors, of queries too if they have one, and what of a key is rotated.
    latents: usize,
    /// The latent vector of queries; 0 if they have none.
    q_latent: usize,
    /// Queries in the space of latent vectors, and the key.
    keys: usize,
}

impl LatentAttention {
    /// Elements of a key.
    fn key(&self) -> usize {
        self.latent + self.rotated
    }

    fn sizes(&self) -> Sizes {
        let q_latent = match &self.queries {
            Queries::Latent { width, .. } => *width,
            Queries::Direct { .. } => 0,
        };
        Sizes {
            queries: self.heads * (self.nope + self.rotated).max(self.value),
            latents: q_latent + self.key(),
            q_latent,
            keys: (self.heads + 1) * self.key(),
        }
    }
}

/// The rows of `out`, of `width` elements each: those from `first` on of the rows of `from`, which have `stride`.
fn gather(out: &mut [f32], width: usize, from: &[f32], stride: usize, first: usize) {
    for (out, from) in out.chunks_exact_mut(width).zip(from.chunks_exact(stride)) {
        out.copy_from_slice(&from[first..][..width]);
    }
}

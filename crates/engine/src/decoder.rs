//! A decoder-only transformer, written once over the operations of a [`Backend`].

use load::Loaded;
use model::Architecture;
use std::fmt;

use crate::backend::{Attend, Backend, Heads};
use crate::weights::Weights;
use crate::{Error, KvCache};

/// Tokens that one pass takes through the model at most: prompts go in batches of this.
pub const BATCH: usize = 256;

/// A model that is ready to run: weights, cache, and every buffer that a pass needs.
///
/// After [`Decoder::new`] nothing here allocates.
pub struct Decoder {
    arch: Architecture,
    weights: Weights,
    cache: KvCache,
    ropes: Vec<RopeTable>,
    /// The rope of each layer, as an index into `ropes`.
    rope_of: Vec<Option<usize>>,
    buffers: Buffers,
    dims: Dims,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Dims {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    vocab: usize,
}

/// Row-major f32, for [`BATCH`] rows (the logits for one).
struct Buffers {
    /// The residual stream: `[rows, hidden]`.
    x: Vec<f32>,
    /// Normed, or what a block adds: `[rows, hidden]`.
    h: Vec<f32>,
    /// `[rows, hidden]`.
    added: Vec<f32>,
    /// `[rows, (heads + 2 kv_heads) · head_dim]`.
    qkv: Vec<f32>,
    /// `[rows, heads · head_dim]`.
    attention: Vec<f32>,
    /// `[rows, 2 ffn]`.
    gate_up: Vec<f32>,
    /// `[rows, ffn]`.
    activated: Vec<f32>,
    /// `[vocab]`.
    logits: Vec<f32>,
}

/// `cos` and `sin` of the current rows.
struct RopeTable {
    rope: model::Rope,
    /// Radians a position: `[head_dim / 2]`.
    frequencies: Vec<f64>,
    /// `[rows, head_dim / 2]`.
    cos: Vec<f32>,
    /// `[rows, head_dim / 2]`.
    sin: Vec<f32>,
}

impl RopeTable {
    fn fill(&mut self, position: usize, rows: usize) {
        let half = self.frequencies.len();
        for t in 0..rows {
            for (i, frequency) in self.frequencies.iter().enumerate() {
                let (sin, cos) = (frequency * (position + t) as f64).sin_cos();
                self.cos[t * half + i] = cos as f32;
                self.sin[t * half + i] = sin as f32;
            }
        }
    }
}

impl Decoder {
    /// A decoder over what was loaded, with room for `context` positions.
    ///
    /// # Errors
    /// If a parameter is not there, the layout does not say in which order the rows of q and k lie, or memory is not to be had.
    pub fn new(loaded: &Loaded, arch: Architecture, context: usize) -> Result<Decoder, Error> {
        let weights = Weights::new(loaded, &arch)?;
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::TooLarge);
        let dims = Dims {
            hidden: size(arch.hidden)?,
            heads: size(arch.heads)?,
            kv_heads: size(arch.kv_heads)?,
            head_dim: size(arch.head_dim)?,
            ffn: size(arch.ffn)?,
            vocab: size(arch.vocab)?,
        };
        if let Some(table) = &weights.position_embedding {
            let learned = size(table.shape()[0])?;
            if context > learned {
                return Err(Error::Positions { wanted: context, learned });
            }
        }
        let cache = KvCache::new(arch.layers.len(), dims.kv_heads, dims.head_dim, context)?;
        let rows = BATCH.min(context.max(1));
        let (ropes, rope_of) = rope_tables(&arch, &weights, rows);
        let zeros = |n: usize| rows.checked_mul(n).map(|n| vec![0f32; n]).ok_or(Error::TooLarge);
        let buffers = Buffers {
            x: zeros(dims.hidden)?,
            h: zeros(dims.hidden)?,
            added: zeros(dims.hidden)?,
            qkv: zeros((dims.heads + 2 * dims.kv_heads) * dims.head_dim)?,
            attention: zeros(dims.heads * dims.head_dim)?,
            gate_up: zeros(2 * dims.ffn)?,
            activated: zeros(dims.ffn)?,
            logits: vec![0.0; dims.vocab],
        };
        Ok(Decoder { arch, weights, cache, ropes, rope_of, buffers, dims })
    }

    /// What runs.
    pub fn architecture(&self) -> &Architecture {
        &self.arch
    }

    /// The parameters.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The keys and values.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Forgets every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    /// Runs `tokens` at the next positions and returns the logits after the last: `[vocab]`.
    ///
    /// # Errors
    /// If there are none, one is outside the vocabulary, or the context is full. Nothing has changed then.
    pub fn forward(&mut self, backend: &mut dyn Backend, tokens: &[u32]) -> Result<&[f32], Error> {
        self.check(tokens)?;
        for batch in tokens.chunks(BATCH) {
            self.pass(backend, batch);
        }
        let last = (tokens.len() - 1) % BATCH;
        self.project(backend, last);
        Ok(&self.buffers.logits)
    }

    /// Runs `tokens` at the next positions and calls `each` with the logits after every one.
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn forward_each(
        &mut self,
        backend: &mut dyn Backend,
        tokens: &[u32],
        mut each: impl FnMut(&[f32]),
    ) -> Result<(), Error> {
        self.check(tokens)?;
        for batch in tokens.chunks(BATCH) {
            self.pass(backend, batch);
            for row in 0..batch.len() {
                self.project(backend, row);
                each(&self.buffers.logits);
            }
        }
        Ok(())
    }

    /// Does the products of a prompt of `tokens` tokens and nothing else: what they alone take bounds a prompt.
    pub fn products(&mut self, backend: &mut dyn Backend, tokens: usize) {
        let Dims { hidden, heads, kv_heads, head_dim, ffn, .. } = self.dims;
        let b = &mut self.buffers;
        for start in (0..tokens).step_by(BATCH) {
            let rows = (tokens - start).min(BATCH).min(b.x.len() / hidden);
            for block in &self.weights.blocks {
                let h = &b.h[..rows * hidden];
                backend.linear(&block.qkv, h, rows, &mut b.qkv[..rows * (heads + 2 * kv_heads) * head_dim]);
                let attention = &b.attention[..rows * heads * head_dim];
                backend.linear(&block.attention_output, attention, rows, &mut b.added[..rows * hidden]);
                backend.linear(&block.gate_up, h, rows, &mut b.gate_up[..rows * block.gate_up.out]);
                backend.linear(&block.down, &b.activated[..rows * ffn], rows, &mut b.added[..rows * hidden]);
            }
        }
        backend.linear(&self.weights.output, &b.h[..hidden], 1, &mut b.logits);
    }

    /// Bytes of keys and values that a token at `position` reads.
    pub fn cache_bytes(&self, position: usize) -> u64 {
        let Dims { kv_heads, head_dim, .. } = self.dims;
        let seen = |window: Option<u64>| (position as u64 + 1).min(window.unwrap_or(u64::MAX));
        let positions: u64 = self.arch.layers.iter().map(|layer| seen(layer.window)).sum();
        positions * (2 * kv_heads * head_dim * 4) as u64
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        if let Some(token) = tokens.iter().find(|t| **t as usize >= self.dims.vocab) {
            return Err(Error::Token { token: *token, vocab: self.dims.vocab });
        }
        let wanted = self.cache.len() + tokens.len();
        if wanted > self.cache.capacity() {
            return Err(Error::ContextFull { wanted, capacity: self.cache.capacity() });
        }
        Ok(())
    }

    /// One batch through all blocks; the residual stream of its rows is left in `x`.
    fn pass(&mut self, backend: &mut dyn Backend, tokens: &[u32]) {
        let Dims { hidden, heads, kv_heads, head_dim, ffn, .. } = self.dims;
        let rows = tokens.len();
        let position = self.cache.len();
        let norm = self.arch.norm;
        let b = &mut self.buffers;
        let x = &mut b.x[..rows * hidden];
        let h = &mut b.h[..rows * hidden];
        let added = &mut b.added[..rows * hidden];
        let width = (heads + 2 * kv_heads) * head_dim;
        let qkv = &mut b.qkv[..rows * width];
        let attention = &mut b.attention[..rows * heads * head_dim];

        backend.embed(&self.weights.token_embedding, tokens, self.arch.embedding_scale, x);
        if let Some(table) = &self.weights.position_embedding {
            for (t, h) in h.chunks_exact_mut(hidden).enumerate() {
                table.decode_row(position + t, h);
            }
            backend.add(x, h);
        }
        for table in &mut self.ropes {
            table.fill(position, rows);
        }
        for (n, (block, layer)) in self.weights.blocks.iter().zip(&self.arch.layers).enumerate() {
            let table = self.rope_of[n].map(|i| &self.ropes[i]);
            let heads = Heads {
                heads,
                kv_heads,
                head_dim,
                q_norm: block.q_norm.as_ref(),
                k_norm: block.k_norm.as_ref(),
                rotation: table.map(|t| (&t.cos[..], &t.sin[..])),
                order: self.weights.rope_order,
            };
            backend.norm(&block.attention_norm, norm, x, h);
            backend.linear(&block.qkv, h, rows, qkv);
            backend.rotate(&heads, norm, qkv, rows);
            let (q, kv) = (heads.heads * head_dim, kv_heads * head_dim);
            for (t, row) in qkv.chunks_exact(width).enumerate() {
                self.cache.write(n, position + t, &row[q..q + kv], &row[q + kv..]);
            }
            let attend = Attend {
                cache: &self.cache,
                layer: n,
                position,
                window: layer.window.map(|w| usize::try_from(w).unwrap_or(usize::MAX)),
                scale: layer.scale,
            };
            backend.attend(&heads, &attend, qkv, rows, attention);
            backend.linear(&block.attention_output, attention, rows, added);
            match &block.attention_post_norm {
                Some(post) => {
                    backend.norm(post, norm, added, h);
                    backend.add(x, h);
                }
                None => backend.add(x, added),
            }

            let gate_up = &mut b.gate_up[..rows * block.gate_up.out];
            let activated = &mut b.activated[..rows * ffn];
            backend.norm(&block.ffn_norm, norm, x, h);
            backend.linear(&block.gate_up, h, rows, gate_up);
            backend.activate(self.arch.activation, block.gated, gate_up, rows, activated);
            backend.linear(&block.down, activated, rows, added);
            match &block.ffn_post_norm {
                Some(post) => {
                    backend.norm(post, norm, added, h);
                    backend.add(x, h);
                }
                None => backend.add(x, added),
            }
        }
        self.cache.advance(rows);
    }

    /// Logits of row `row` of the last pass.
    fn project(&mut self, backend: &mut dyn Backend, row: usize) {
        let hidden = self.dims.hidden;
        let b = &mut self.buffers;
        let x = &b.x[row * hidden..(row + 1) * hidden];
        backend.norm(&self.weights.output_norm, self.arch.norm, x, &mut b.h[..hidden]);
        backend.linear(&self.weights.output, &b.h[..hidden], 1, &mut b.logits);
        if let Some(cap) = self.arch.logit_soft_cap {
            b.logits.iter_mut().for_each(|l| *l = cap * (*l / cap).tanh());
        }
    }
}

/// One table for each distinct rope: most models have one, Gemma 3 two.
fn rope_tables(arch: &Architecture, weights: &Weights, rows: usize) -> (Vec<RopeTable>, Vec<Option<usize>>) {
    let mut tables: Vec<RopeTable> = Vec::new();
    let mut rope_of = Vec::with_capacity(arch.layers.len());
    for layer in &arch.layers {
        rope_of.push(layer.rope.as_ref().map(|rope| {
            if let Some(i) = tables.iter().position(|t| t.rope == *rope) {
                return i;
            }
            let mut frequencies = rope.frequencies();
            if let Some(factors) = &weights.rope_factors {
                frequencies.iter_mut().zip(factors.as_f32()).for_each(|(f, by)| *f /= f64::from(*by));
            }
            let zeros = vec![0.0; rows * frequencies.len()];
            tables.push(RopeTable { rope: rope.clone(), frequencies, cos: zeros.clone(), sin: zeros });
            tables.len() - 1
        }));
    }
    (tables, rope_of)
}

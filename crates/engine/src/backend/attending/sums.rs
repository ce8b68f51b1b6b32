//! How much some queries look at each position.

use load::Pool;
use quant::Isa;
use quant::attention::{Attention, Weights, weights};

use super::{Attending, ROWS_TOGETHER, SPAN, Scratch, blocks_of, rows_together};
use crate::backend::Attend;
use crate::state::PAGE;
use crate::{KvCache, KvShape};

impl Attending {
    /// As [`Backend::attention_sums`](crate::backend::Backend::attention_sums).
    pub(in crate::backend) fn sums(
        &mut self,
        pool: &mut Pool,
        how: &Attend<'_>,
        cache: &KvCache,
        q: &[f32],
        to: &mut [f32],
    ) {
        let KvShape { kv_heads, key, .. } = *cache.shape();
        let (isa, group, before) = (self.isa, how.heads / kv_heads, to.len() / kv_heads);
        let (rows, together) = (q.len() / how.width, rows_together(group));
        pool.share_chunks(&mut self.locals, to, before, |local, head, to| {
            to.fill(0.0);
            let mut row = 0;
            while row < rows {
                let first = before + row;
                let count = (together - first % together).min(rows - row);
                let queries = &mut local.scratch.queries[..count * group * key];
                for (queries, q) in
                    queries.chunks_exact_mut(group * key).zip(q[row * how.width..].chunks_exact(how.width))
                {
                    queries.copy_from_slice(&q[head * group * key..][..group * key]);
                }
                let rows = Rows { cache, head, first, count, heads: group };
                add(isa, how, &rows, &mut local.scratch, to);
                row += count;
            }
        });
    }
}

/// Queries that share a key head, of positions that follow each other.
struct Rows<'a> {
    cache: &'a KvCache,
    /// The key head.
    head: usize,
    /// The place of the first.
    first: usize,
    count: usize,
    /// Query heads.
    heads: usize,
}

/// Adds the weights that the queries in `scratch` give to each position of `to`.
fn add(isa: Isa, how: &Attend<'_>, rows: &Rows<'_>, scratch: &mut Scratch, to: &mut [f32]) {
    let Scratch { room, queries, .. } = scratch;
    let KvShape { key, .. } = *rows.cache.shape();
    let queries = &queries[..rows.count * rows.heads * key];
    let how_each =
        Attention { heads: rows.heads, scale: how.scale, soft_cap: how.soft_cap, relative: None, next: None };
    let end = rows.first + rows.count;
    // The weights of a span, for each of them.
    let mut each = |start: usize, each: &mut dyn FnMut(usize, Weights<'_>)| {
        let end = end.min(start + SPAN);
        let pages = start / PAGE..end.div_ceil(PAGE);
        let blocks = blocks_of(rows.cache, rows.head, pages.clone(), rows.first);
        let mut visible = [const { 0..0 }; ROWS_TOGETHER];
        for (row, visible) in visible[..rows.count].iter_mut().enumerate() {
            *visible = 0..(rows.first + row + 1).clamp(start, end) - start;
        }
        let (blocks, visible) = (&blocks[..pages.len()], &visible[..rows.count]);
        weights(isa, how_each, queries, blocks, visible, room, each);
    };
    // The largest score of a query, and the sum of its weights.
    let mut all = vec![(f32::NEG_INFINITY, 0.0); rows.count * rows.heads];
    if let Some(sinks) = how.sinks {
        let sinks = &sinks[rows.head * rows.heads..][..rows.heads];
        all.chunks_exact_mut(rows.heads)
            .for_each(|row| row.iter_mut().zip(sinks).for_each(|(to, sink)| *to = (*sink, 1.0)));
    }
    for start in (0..end).step_by(SPAN) {
        each(start, &mut |query, found| {
            let (most, sum) = &mut all[query];
            if !found.each.is_empty() {
                let larger = most.max(found.most);
                *sum = *sum * (*most - larger).exp() + found.sum * (found.most - larger).exp();
                *most = larger;
            }
        });
    }
    for start in (0..to.len()).step_by(SPAN) {
        each(start, &mut |query, found| {
            let (most, sum) = all[query];
            let share = (found.most - most).exp() / sum;
            to[start..].iter_mut().zip(found.each).for_each(|(to, weight)| *to += share * weight);
        });
    }
}

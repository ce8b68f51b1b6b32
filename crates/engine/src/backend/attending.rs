//! Attention on all threads.
//!
//! Rows of a sequence that follow each other see nearly the same positions, so a block of them reads these once. A task is a block
//! and some of its heads. Where there are few, as for a single token, each span of positions is a task of its own. Either way
//! spans are put together in their order, so results do not depend on the tasks.

mod sums;

use std::ops::Range;

use load::Pool;
use quant::Isa;
use quant::attention::{Attention, Block, Found, Partial, Relative, Room, attend};

use super::{Attend, Sequence};
use crate::layer::HeadSizes;
use crate::state::PAGE;
use crate::{Error, KvCache, KvShape};

/// Positions whose weights are taken together.
const SPAN: usize = 512;

/// Most rows of a sequence that are taken at once. Divides a page, as its halves do: the rows of a block read the same codes.
const ROWS_TOGETHER: usize = 8;

/// The buffers of attention, kept from one pass to the next.
pub(super) struct Attending {
    isa: Isa,
    locals: Vec<Local>,
    blocks: Vec<Rows>,
    /// The results of tasks.
    found: Vec<f32>,
    /// The largest heads of the model.
    sizes: Vec<HeadSizes>,
    /// Rows of a pass at most.
    rows: usize,
}

/// One thread's own.
struct Local {
    scratch: Scratch,
    /// The result of a task that nobody else needs.
    found: Vec<f32>,
}

/// The room that a thread looks in.
struct Scratch {
    room: Room,
    /// The queries of a task.
    queries: Vec<f32>,
    /// The result of one span, or of a row in all spans.
    span: Vec<f32>,
}

/// Rows of one sequence.
#[derive(Clone, Copy)]
struct Rows {
    sequence: usize,
    /// Blocks before.
    number: usize,
    /// The first, in its sequence.
    first: usize,
    count: usize,
    /// The first, among all rows.
    row: usize,
    /// Spans that the blocks before see.
    before: usize,
    /// The first span that it sees.
    span: usize,
    /// How many spans it sees.
    spans: usize,
}

/// How rows are made tasks: `[blocks, groups of heads, spans that have a task of their own]`.
struct Tasks {
    /// Query heads of a task, which share a key head.
    together: usize,
    /// Groups of heads.
    groups: usize,
    /// Whether each span has a task of its own.
    split: bool,
    /// Floats of what a task finds.
    room: usize,
}

/// Rows, some of their query heads, which share a key head, and the spans of positions that these look at.
#[derive(Clone)]
struct Task {
    rows: Rows,
    heads: Range<usize>,
    spans: Range<usize>,
}

impl Attending {
    /// For heads of `sizes`, and passes of `rows` rows.
    pub(super) fn new(threads: usize, isa: Isa, sizes: Vec<HeadSizes>, rows: usize) -> Attending {
        let most = |of: &dyn Fn(&HeadSizes) -> usize| sizes.iter().map(of).max().unwrap_or(0);
        let queries = most(&|s| rows_together(s.group) * s.group);
        let (key, value) = (most(&|s| s.key), most(&|s| s.value));
        let partial = most(&|s| Partial::room(rows_together(s.group) * s.group, s.value));
        let scratch = || Scratch {
            room: Room::new(queries, SPAN / PAGE, key, value),
            queries: vec![0.0; most(&|s| rows_together(s.group) * s.group * s.key)],
            span: vec![0.0; partial],
        };
        let local = || Local { scratch: scratch(), found: vec![0.0; partial] };
        let locals = (0..threads).map(|_| local()).collect();
        Attending { isa, locals, blocks: Vec::with_capacity(rows), found: vec![], sizes, rows }
    }

    /// Makes room for sequences of `positions` positions.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn reserve(&mut self, positions: usize) -> Result<(), Error> {
        let (threads, spans) = (self.locals.len(), positions.div_ceil(SPAN));
        let wanted = |s: &HeadSizes| {
            let split = Partial::room(rows_together(s.group) * s.group, s.value).checked_mul(few(threads))?;
            let whole = Partial::room(self.rows * rows_together(s.group) * s.heads, s.value);
            Some(split.checked_mul(spans)?.max(whole))
        };
        let too_large = || Error::CacheTooLarge { capacity: positions };
        let wanted = self.sizes.iter().map(wanted).try_fold(0, |most, n| Some(most.max(n?)));
        let wanted = wanted.ok_or_else(too_large)?;
        if wanted > self.found.len() {
            // As in a cache: asked for first, so that a failure is an error, and touched when it is used.
            Vec::<f32>::new().try_reserve_exact(wanted).map_err(|_| too_large())?;
            self.found = vec![0.0; wanted];
        }
        Ok(())
    }

    /// As [`Backend::attend`](super::Backend::attend).
    pub(super) fn run(
        &mut self,
        pool: &mut Pool,
        how: &Attend<'_>,
        sequences: &[Sequence<'_>],
        q: &[f32],
        out: &mut [f32],
    ) {
        let Some(shape) = sequences.first().map(|sequence| *sequence.cache.shape()) else { return };
        let (isa, value, group) = (self.isa, shape.value, how.heads / shape.kv_heads);
        self.cut(how, sequences, rows_together(group));
        let tasks = self.tasks(pool.threads(), group, &shape);
        let Tasks { together, groups, split, room } = tasks;
        let blocks = &self.blocks;
        let block_of = |is_before: &dyn Fn(&Rows) -> bool| blocks[blocks.partition_point(is_before) - 1];
        let count = blocks
            .last()
            .map_or(0, |last| groups * (if split { last.before + last.spans } else { blocks.len() }));
        // A task of the block that has spans before its own, or is one of as many blocks.
        let first_task = |rows: &Rows| groups * if split { rows.before } else { rows.number };
        let task_of = |i: usize| {
            let rows = block_of(&|rows| first_task(rows) <= i);
            let within = i - first_task(&rows);
            let (n, spans) = if split {
                let span = rows.span + within % rows.spans;
                (within / rows.spans, span..span + 1)
            } else {
                (within, rows.span..rows.span + rows.spans)
            };
            Task { rows, heads: n * together..(n + 1) * together, spans }
        };

        let width = how.heads * value;
        if !split && blocks.iter().all(|rows| rows.count == 1) {
            // Each task has a stretch of the result for itself.
            pool.share_chunks(&mut self.locals, out, together * value, |local, i, out| {
                let Local { scratch, found } = local;
                let found = &mut found[..Partial::room(together, value)];
                let task = task_of(i);
                let next = (i + 1 < count).then(|| task_of(i + 1));
                look(isa, how, sequences, (&task, next.as_ref()), q, scratch, found);
                let sinks = how.sinks.map(|sinks| &sinks[task.heads]);
                Found::within(found, together).finish(isa, sinks, out);
            });
            return;
        }
        let found = &mut self.found[..count * room];
        pool.share_chunks(&mut self.locals, found, room, |local, i, found| {
            let task = task_of(i);
            let next = (i + 1 < count).then(|| task_of(i + 1));
            let found = &mut found[..Partial::room(task.rows.count * together, value)];
            look(isa, how, sequences, (&task, next.as_ref()), q, &mut local.scratch, found);
        });

        let found = &self.found;
        pool.share_chunks(&mut self.locals, out, ROWS_TOGETHER * width, |local, i, out| {
            for (out, row) in out.chunks_exact_mut(width).zip(i * ROWS_TOGETHER..) {
                let rows = block_of(&|rows| rows.row <= row);
                let spans = if split { rows.spans } else { 1 };
                let queries = (row - rows.row) * together..(row - rows.row + 1) * together;
                for (n, out) in out.chunks_exact_mut(together * value).enumerate() {
                    let parts = &found[(first_task(&rows) + n * spans) * room..][..spans * room];
                    let parts = parts.chunks_exact(room).map(|part| {
                        let part = &part[..Partial::room(rows.count * together, value)];
                        Found::within(part, rows.count * together).queries(queries.clone())
                    });
                    let sinks = how.sinks.map(|sinks| &sinks[n * together..][..together]);
                    let own = &mut local.scratch.span[..Partial::room(together, value)];
                    put_together(isa, together, parts, own, sinks, out);
                }
            }
        });
    }

    /// Cuts the rows of `sequences` into blocks of `together` rows at most, which begin at multiples of it.
    fn cut(&mut self, how: &Attend<'_>, sequences: &[Sequence<'_>], together: usize) {
        self.blocks.clear();
        let (mut row, mut before) = (0, 0);
        for (n, sequence) in sequences.iter().enumerate() {
            let mut first = 0;
            while first < sequence.rows {
                let position = sequence.position + first;
                let count = (together - position % together).min(sequence.rows - first);
                let span = how.visible(sequence, position).start / SPAN;
                let spans = (how.visible(sequence, position + count - 1).end - 1) / SPAN + 1 - span;
                let number = self.blocks.len();
                self.blocks.push(Rows { sequence: n, number, first, count, row, before, span, spans });
                (first, row, before) = (first + count, row + count, before + spans);
            }
        }
    }

    /// The tasks of the blocks: few where each has much to do, and no fewer than threads.
    fn tasks(&self, threads: usize, group: usize, shape: &KvShape) -> Tasks {
        let (blocks, kv_heads) = (self.blocks.len(), shape.kv_heads);
        let split = blocks * kv_heads < few(threads);
        let spans = self.blocks.last().map_or(0, |last| last.before + last.spans);
        let together = heads_together(kv_heads * if split { spans } else { blocks }, group, threads);
        let rows = self.blocks.iter().map(|rows| rows.count).max().unwrap_or(0);
        let room = Partial::room(rows * together, shape.value);
        Tasks { together, groups: kv_heads * group / together, split, room }
    }
}

/// The results of `queries` queries, of what they found in spans in their order.
fn put_together<'a>(
    isa: Isa,
    queries: usize,
    parts: impl ExactSizeIterator<Item = Found<'a>>,
    room: &mut [f32],
    sinks: Option<&[f32]>,
    out: &mut [f32],
) {
    if parts.len() == 1 {
        return parts.for_each(|only| only.finish(isa, sinks, out));
    }
    let mut all = Partial::empty(room, queries);
    parts.for_each(|part| all.merge(isa, part));
    all.found().finish(isa, sinks, out);
}

/// Fewer blocks of a key head than these have a task for each span.
fn few(threads: usize) -> usize {
    if threads > 1 { 2 * threads } else { 0 }
}

/// Does a task, and asks for what comes next.
fn look(
    isa: Isa,
    how: &Attend<'_>,
    sequences: &[Sequence<'_>],
    (task, next): (&Task, Option<&Task>),
    q: &[f32],
    scratch: &mut Scratch,
    found: &mut [f32],
) {
    let Task { rows, heads, spans } = task.clone();
    let sequence = &sequences[rows.sequence];
    let KvShape { kv_heads, key, .. } = *sequence.cache.shape();
    let group = how.heads / kv_heads;
    let Scratch { room, queries, span } = scratch;
    let count = heads.len() * rows.count;
    // The queries of several rows lie apart.
    let of_row = |row: usize| &q[(rows.row + row) * how.width + heads.start * key..][..heads.len() * key];
    let queries = if rows.count == 1 {
        of_row(0)
    } else {
        let queries = &mut queries[..count * key];
        for (row, to) in queries.chunks_exact_mut(heads.len() * key).enumerate() {
            to.copy_from_slice(of_row(row));
        }
        &*queries
    };
    let (scale, soft_cap) = (how.scale, how.soft_cap);
    let addends = how.relative.map(|table| {
        let width = table.len() / how.heads;
        &table[heads.start * width..heads.end * width]
    });
    let first = sequence.position + rows.first;
    let mut span_of = |span: usize, out: &mut Partial<'_>| {
        let seen = rows.seen(how, sequence, span);
        let pages = seen.start / PAGE..seen.end.div_ceil(PAGE);
        let before = sequence.first_page;
        let there = before + pages.start..before + pages.end;
        let blocks = blocks_of(sequence.cache, heads.start / group, there, before * PAGE + first);
        let mut visible = [const { 0..0 }; ROWS_TOGETHER];
        for (row, visible) in visible[..rows.count].iter_mut().enumerate() {
            let within = |position: usize| position.clamp(pages.start * PAGE, seen.end) - pages.start * PAGE;
            let all = how.visible(sequence, first + row);
            *visible = within(all.start)..within(all.end);
        }
        let (blocks, visible) = (&blocks[..pages.len()], &visible[..rows.count]);
        let before = first.cast_signed() - (pages.start * PAGE).cast_signed();
        let relative = addends.map(|table| Relative { table, first: before });
        let after = if span + 1 < spans.end {
            Some((task, span + 1))
        } else {
            next.map(|next| (next, next.spans.start))
        };
        let next = after.map(|(Task { rows, heads, .. }, span)| {
            let sequence = &sequences[rows.sequence];
            rows.page(sequence, heads.start / group, rows.seen(how, sequence, span).start)
        });
        let attention = Attention { heads: heads.len(), scale, soft_cap, relative, next };
        attend(isa, attention, queries, blocks, visible, room, out);
    };
    if spans.len() == 1 {
        return span_of(spans.start, &mut Partial::within(found, count));
    }
    let (size, mut all) = (found.len(), Partial::empty(found, count));
    for n in spans.clone() {
        let mut one = Partial::within(&mut span[..size], count);
        span_of(n, &mut one);
        all.merge(isa, one.found());
    }
}

impl Rows {
    /// The positions of a span that they see.
    fn seen(&self, how: &Attend<'_>, sequence: &Sequence<'_>, span: usize) -> Range<usize> {
        let first = sequence.position + self.first;
        let last = how.visible(sequence, first + self.count - 1);
        how.visible(sequence, first).start.max(span * SPAN)..last.end.min((span + 1) * SPAN)
    }

    /// The page of a position, of one key head, as they read it.
    fn page<'a>(&self, sequence: &Sequence<'a>, head: usize, position: usize) -> Block<'a> {
        let at = sequence.first_page * PAGE + sequence.position + self.first;
        sequence.cache.block(head, sequence.first_page + position / PAGE, at)
    }
}

/// The pages of a span, of one key head, as a query at place `at` reads them; more are the first again.
fn blocks_of(cache: &KvCache, head: usize, pages: Range<usize>, at: usize) -> [Block<'_>; SPAN / PAGE] {
    let mut blocks = [cache.block(head, pages.start, at); SPAN / PAGE];
    for (to, page) in blocks.iter_mut().zip(pages) {
        *to = cache.block(head, page, at);
    }
    blocks
}

/// The number of rows of a prompt that attention takes at once, where `group` query heads share a key head. More rows use a
/// position more often while it is in the cache; fewer leave room there for their scores.
fn rows_together(group: usize) -> usize {
    match group {
        0..=2 => ROWS_TOGETHER,
        3..=4 => ROWS_TOGETHER / 2,
        5..=8 => ROWS_TOGETHER / 4,
        _ => 1,
    }
}

/// Returns the number of query heads of one task: the most, among those that share a key head, that leave all threads
/// with work. Each task reads its keys and values once.
fn heads_together(key_heads: usize, group: usize, threads: usize) -> usize {
    let balanced = |together: &usize| {
        let tasks = key_heads * (group / together);
        5 * tasks >= 4 * threads * tasks.div_ceil(threads)
    };
    (1..=group).rev().filter(|n| group.is_multiple_of(*n)).find(balanced).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_share_keys_as_far_as_threads_stay_busy() {
        assert_eq!(heads_together(3, 3, 2), 1); // SmolLM2, one token: 9 tasks for 2 threads
        assert_eq!(heads_together(1, 4, 2), 2); // Gemma 3 270M
        assert_eq!(heads_together(3 * 128, 3, 2), 3); // a prompt
        assert_eq!(heads_together(8, 4, 1), 4);
        assert_eq!(heads_together(1, 1, 16), 1);
    }
}

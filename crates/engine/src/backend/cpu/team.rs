//! The threads, and how they multiply many rows together.

use std::sync::Arc;

use load::Pool;
use quant::{Activations, ColumnsMut, Filling, Forms, Isa};

use super::{ROWS, activate};
use crate::backend::Mlp;
use crate::backend::kernels::{Kernels, PARTS};
use crate::weights::Projection;

/// Floats of the results that a thread of a network activates at once, where its rows allow it: they are still in the cache.
const RESULTS: usize = 64 << 10;

/// The threads, and what they multiply with.
pub(super) struct Team {
    pub(super) pool: Pool,
    pub(super) isa: Isa,
    pub(super) kernels: Arc<Kernels>,
    pub(super) locals: Vec<Local>,
}

/// One thread's own.
pub(super) struct Local {
    /// One head, or all of queries or keys, while they are normed.
    pub(super) normed: Vec<f32>,
    /// Rows of a group that is padded beyond the output: `[rows, 16]`.
    pub(super) padded: Vec<f32>,
    /// A head of linear attention.
    pub(super) delta: Vec<f32>,
    /// Some results of the first matrices of a network: of all rows, those of the gate before the others.
    pub(super) results: Vec<f32>,
    /// A few rows of these, activated.
    pub(super) activated: Vec<f32>,
}

impl Team {
    /// [`Pool::share_chunks`], with what each thread has.
    pub(super) fn share<T: Send>(
        &mut self,
        out: &mut [T],
        chunk: usize,
        f: impl Fn(&mut Local, usize, &mut [T]) + Sync,
    ) {
        self.pool.share_chunks(&mut self.locals, out, chunk, f);
    }

    /// Takes `rows` rows of `x` in the forms that a projection reads.
    pub(super) fn fill(&mut self, to: &mut Activations, projection: &Projection, x: &[f32], rows: usize) {
        let (isa, k) = (self.isa, projection.input);
        let filling = to.begin(rows, k, self.kernels.forms(projection));
        if rows <= ROWS {
            return filling.fill(isa, x);
        }
        let mut parts: [Option<(Filling<'_>, &[f32])>; PARTS] = [const { None }; PARTS];
        let step = rows.div_ceil(PARTS - 1).next_multiple_of(4 * ROWS);
        let (mut count, mut left, mut x) = (0, filling, x);
        while left.rows() > step {
            let (part, others) = left.split_at(step);
            let (values, more) = x.split_at(step * k);
            parts[count] = Some((part, values));
            (count, left, x) = (count + 1, others, more);
        }
        parts[count] = Some((left, x));
        self.share(&mut parts[..=count], 1, |_, _, parts| {
            for (part, x) in parts.iter_mut().filter_map(Option::take) {
                part.fill(isa, x);
            }
        });
    }

    /// The products of a projection with `x`, on all threads: `y` is `[rows, out]`; of what codes leave out, as [`Kernels::product`] has it.
    pub(super) fn multiply(
        &mut self,
        projection: &Projection,
        x: &Activations,
        y: &mut [f32],
        is_beyond: bool,
    ) {
        let (isa, kernels) = (self.isa, &self.kernels);
        // Some features of the projection from a first one on, and where they go.
        let mut parts: [Option<(usize, ColumnsMut<'_>)>; PARTS] = [const { None }; PARTS];
        let (mut count, mut at) = (0, 0);
        let mut left = ColumnsMut::new(y, x.rows(), projection.out);
        for end in kernels.cuts(projection, self.pool.threads()) {
            let (part, others) = left.split_at(end - at);
            left = others;
            if end > at {
                parts[count] = Some((at, part));
                (count, at) = (count + 1, end);
            }
        }
        self.pool.share_chunks(&mut self.locals, &mut parts[..count], 1, |local, _, parts| {
            let (first, y) = parts[0].take().expect("each part is taken once");
            kernels.product(isa, (projection, is_beyond), first, x, &mut local.padded, y);
        });
    }

    /// Fills `to`, which the last matrix of a network reads, from the activations `x`: each thread activates and encodes what it has multiplied.
    pub(super) fn expand(&mut self, mlp: &Mlp<'_>, x: &Activations, to: &mut Activations) {
        let (isa, kernels, rows) = (self.isa, &self.kernels, x.rows());
        let Mlp { activation, is_gated, gate_up, down } = *mlp;
        let width = down.input;
        let mut parts: [Option<(usize, Filling<'_>)>; PARTS] = [const { None }; PARTS];
        let (mut count, mut at) = (0, 0);
        let mut left = to.begin(rows, width, Forms::INT8);
        for end in ends(width, is_gated, rows, self.pool.threads()) {
            let (part, others) = left.split_at_column(end - at);
            parts[count] = Some((at, part));
            (count, left, at) = (count + 1, others, end);
        }
        self.pool.share_chunks(&mut self.locals, &mut parts[..count], 1, |local, _, parts| {
            let (first, mut part) = parts[0].take().expect("each part is taken once");
            let columns = part.columns();
            let (gate, up) = local.results.split_at_mut(if is_gated { rows * columns } else { 0 });
            let up = &mut up[..rows * columns];
            let mut product = |first: usize, y: &mut [f32]| {
                let y = ColumnsMut::new(y, rows, columns);
                kernels.product(isa, (gate_up, false), first, x, &mut local.padded, y);
            };
            if is_gated {
                product(first, &mut gate[..]);
                product(width + first, &mut up[..]);
            } else {
                product(first, &mut up[..]);
            }
            for row in (0..rows).step_by(ROWS) {
                let values = row * columns..rows.min(row + ROWS) * columns;
                let activated = &mut local.activated[..values.len()];
                activate(isa, activation, is_gated.then(|| &gate[values.clone()]), &up[values], activated);
                part.fill_rows(isa, row, activated);
            }
        });
    }

    /// True if [`expand`](Self::expand) takes networks whose last matrix is `down`: this reads codes alone, and each thread has four blocks of
    /// 32 features or more, so that shares are about equal.
    pub(super) fn expands(kernels: &Kernels, threads: usize, down: &Projection) -> bool {
        kernels.forms(down) == Forms::INT8 && threads <= PARTS / 4 && down.input / 32 >= 4 * threads
    }

    /// The floats that a thread needs for [`results`](Local::results) and [`activated`](Local::activated) of a network of `width` features, of `rows`
    /// rows at most.
    pub(super) fn room(width: usize, rows: usize, threads: usize) -> [usize; 2] {
        let results = RESULTS.max(2 * rows * least(width, threads)).min(2 * rows * width);
        [results, results.min(ROWS * width)]
    }
}

/// Where the parts of a network of `width` features end, between blocks: each thread has parts that follow each other, about as many
/// features as the others.
fn ends(width: usize, is_gated: bool, rows: usize, threads: usize) -> impl Iterator<Item = usize> {
    let room = RESULTS / (rows * if is_gated { 2 } else { 1 }) / 32 * 32;
    // As in a product of few rows: three quarters of a share, and a quarter.
    let most = (width / threads).div_ceil(4) * 3;
    let step = room.min(most).next_multiple_of(32).max(least(width, threads));
    let share = move |n: usize| if n == threads { width } else { width * n / threads / 32 * 32 };
    (0..threads).flat_map(move |n| {
        let (start, end) = (share(n), share(n + 1));
        (start..end).step_by(step).map(move |start| end.min(start + step))
    })
}

/// The features that a part has at least, so that there are no more parts than [`PARTS`].
fn least(width: usize, threads: usize) -> usize {
    width.div_ceil(threads).div_ceil(PARTS / threads - 1).next_multiple_of(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_cut_between_blocks_into_parts_that_have_room() {
        for threads in 1..=PARTS / 4 {
            let widths = [128 * threads, 128 * threads + 32, 1536, 2048, 14336, 18944, 53248];
            for width in widths.into_iter().filter(|width| width / 32 >= 4 * threads) {
                for (rows, is_gated) in
                    [1, 2, 3, 8, 256, 1500].into_iter().flat_map(|n| [(n, true), (n, false)])
                {
                    let ends: Vec<usize> = ends(width, is_gated, rows, threads).collect();
                    let of = format!("{width} features, {rows} rows, {threads} threads: {ends:?}");
                    assert!(ends.len() >= threads && ends.len() <= PARTS, "{of}");
                    assert_eq!(ends.last(), Some(&width), "{of}");
                    let [results, activated] = Team::room(width, 1500, threads);
                    let starts = std::iter::once(&0).chain(&ends);
                    for part in starts.zip(&ends).map(|(start, end)| end - start) {
                        assert!(part > 0 && part.is_multiple_of(32), "{of}");
                        assert!(part * rows * if is_gated { 2 } else { 1 } <= results, "{of}");
                        assert!(part * rows.min(ROWS) <= activated, "{of}");
                    }
                }
            }
        }
    }
}

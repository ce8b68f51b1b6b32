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

    /// The products of a projection with `x`, on all threads: `y` is `[rows, out]`. Of what codes leave out (`is_beyond`), the products
    /// with matrices that read codes alone, without biases; those with others are 0.
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

    /// What the last matrix of a network reads, of the activations `x`: each thread activates and encodes what it has multiplied.
    pub(super) fn expand(&mut self, mlp: &Mlp<'_>, x: &Activations, to: &mut Activations) {
        let (isa, kernels, rows) = (self.isa, &self.kernels, x.rows());
        let Mlp { activation, is_gated, gate_up, down } = *mlp;
        let (width, step) = (down.input, step(mlp, rows, self.pool.threads()));
        let mut parts: [Option<(usize, Filling<'_>)>; PARTS] = [const { None }; PARTS];
        let (mut count, mut at) = (0, 0);
        let mut left = to.begin(rows, width, Forms::INT8);
        for share in shares(width, self.pool.threads()) {
            while at < share {
                let (part, others) = left.split_at_column(step.min(share - at));
                parts[count] = Some((at, part));
                (count, left, at) = (count + 1, others, share.min(at + step));
            }
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

    /// Whether [`expand`](Self::expand) takes the network: its last matrix reads codes alone, and threads have blocks of them.
    pub(super) fn expands(&self, mlp: &Mlp<'_>) -> bool {
        self.kernels.forms(mlp.down) == Forms::INT8
    }

    /// The floats that a thread needs for [`results`](Local::results) of a network of `width` features, of `rows` rows at most.
    pub(super) fn results(width: usize, rows: usize, threads: usize) -> usize {
        RESULTS.max(2 * rows * most_parts(width, threads))
    }
}

/// Where the shares of threads of `width` features end, between blocks.
fn shares(width: usize, threads: usize) -> impl Iterator<Item = usize> {
    let shares = threads.min(PARTS / 2);
    (1..=shares).map(move |n| if n == shares { width } else { width * n / shares / 32 * 32 })
}

/// The fewest features that a part may have, so that there are no more than [`PARTS`].
fn most_parts(width: usize, threads: usize) -> usize {
    let shares = threads.min(PARTS / 2);
    let of_share = PARTS / shares - 1;
    width.div_ceil(shares).div_ceil(of_share).next_multiple_of(32)
}

/// The features of a part of a network with `rows` rows.
fn step(mlp: &Mlp<'_>, rows: usize, threads: usize) -> usize {
    let width = mlp.down.input;
    let room = RESULTS / (rows * if mlp.is_gated { 2 } else { 1 }) / 32 * 32;
    // As in a product of few rows: three quarters of a share, and a quarter.
    let share = width / threads.min(PARTS / 2);
    room.min(share.div_ceil(4) * 3).next_multiple_of(32).max(most_parts(width, threads))
}

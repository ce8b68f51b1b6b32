//! SIMD on all threads.
//!
//! Work that pays for a fork-join (products, attention, and anything on many rows) is cut into parts that
//! the pool's threads share; one row's norms and activations are done by the caller alone, which is
//! quicker than waking anyone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use load::{Pool, Tensor};
use model::{Activation, Norm};

use super::activation::{self, activated};
use super::attending::Attending;
use quant::{Access, Activations, ColumnsMut, Filling, Forms, Isa, Kernel, Matrix, vector};
use tensor::{RopeOrder, Scheme};

use super::ceiling::{self, Ceiling};
use super::product::Products;
use super::{Attend, Backend, DeltaRule, Growth, Heads, Rotated, Sequence, delta};
use crate::weights::{Linear, NormWeights, Projection};
use crate::{Error, KvCache, Model};

/// Parts of one fork-join at most.
pub(super) const PARTS: usize = 128;
/// Rows of activations that one part takes where rows are independent.
const ROWS: usize = 4;
/// Values that one part takes where each is independent: less is not worth waking anyone.
const PART_VALUES: usize = 8 << 10;

/// The backend for the processor.
pub struct Cpu {
    pool: Pool,
    isa: Isa,
    kernels: Arc<Kernels>,
    activations: Activations,
    products: Products,
    attending: Attending,
    /// Room for products with what codes of activations leave out, if these are made too.
    beyond: Option<Beyond>,
    locals: Vec<Local>,
}

/// Room for products with what codes of activations leave out.
struct Beyond {
    /// The remainders of the activations: `[rows, in]`.
    x: Vec<f32>,
    /// The products: `[rows, out]`.
    y: Vec<f32>,
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu").finish_non_exhaustive()
    }
}

/// One thread's own.
struct Local {
    /// One head, or all of queries or keys, while they are normed.
    normed: Vec<f32>,
    /// Rows of a group that is padded beyond the output: `[rows, 16]`.
    padded: Vec<f32>,
    /// A head of linear attention.
    delta: Vec<f32>,
}

impl Cpu {
    /// A backend for `model`, with all that it needs allocated but for room to attend. It reads weights as `access` says.
    ///
    /// # Errors
    /// If a matrix is stored in a scheme that has no kernel.
    pub fn new(pool: Pool, isa: Isa, access: Access, model: &Model) -> Result<Cpu, Error> {
        Cpu::of_rows(pool, isa, access, model, model.rows())
    }

    /// A backend for a [`Sequencer`](crate::Sequencer), for passes of [`rows`](crate::Sequencer::rows) rows. Vectors are compared by
    /// smaller differences than logits. So with quantised matrices activations have 16 bits, in two parts of 8, but for those of
    /// [`Projection::is_down`]: they are a third of the products, and of all-MiniLM-L6-v2 a seventh of the difference.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    pub fn for_vectors(
        pool: Pool,
        isa: Isa,
        access: Access,
        model: &Model,
        rows: usize,
    ) -> Result<Cpu, Error> {
        let mut cpu = Cpu::of_rows(pool, isa, access, model, rows)?;
        let projections = || model.projections().map(|p| &**p).filter(|p| cpu.has_beyond(p));
        let input = projections().map(|p| p.input).max().unwrap_or(0);
        let out = projections().map(|p| p.out).max().unwrap_or(0);
        cpu.beyond = Some(Beyond { x: vec![0.0; rows * input], y: vec![0.0; rows * out] });
        Ok(cpu)
    }

    /// True for a projection whose activations have 16 bits in a backend for vectors.
    fn has_beyond(&self, projection: &Projection) -> bool {
        !projection.is_down() && self.kernels.forms(projection).int8
    }

    fn of_rows(pool: Pool, isa: Isa, access: Access, model: &Model, rows: usize) -> Result<Cpu, Error> {
        let projections = || model.projections().map(|p| &**p);
        let kernels = Arc::new(Kernels::new(isa, access, projections())?);
        let widest = projections().map(|p| p.input).max().unwrap_or(0);
        let sizes: Vec<_> = model.all_branches().filter_map(|branch| branch.layer.attention()).collect();
        let normed = sizes.iter().map(|size| size.normed).max().unwrap_or(0);
        let recurrent = model.branches().iter().filter_map(|branch| branch.layer.recurrent());
        let delta = recurrent.map(|shape| delta::room(&shape)).max().unwrap_or(0);
        let local =
            || Local { normed: vec![0.0; normed], padded: vec![0.0; rows * 16], delta: vec![0.0; delta] };
        let locals = (0..pool.threads()).map(|_| local()).collect();
        let room = model.room();
        let each = (room.experts, room.each);
        let products = Products::new(pool.threads(), isa, &kernels, projections(), each);
        let activations = Activations::new(rows, widest);
        let attending = Attending::new(pool.threads(), isa, sizes, rows);
        Ok(Cpu { pool, isa, kernels, activations, products, attending, beyond: None, locals })
    }
}

/// The kernels of a model, by scheme name: it has a handful.
pub(super) struct Kernels(Vec<(Arc<Scheme>, Kernel)>);

impl Kernels {
    fn new<'a>(
        isa: Isa,
        access: Access,
        projections: impl Iterator<Item = &'a Projection>,
    ) -> Result<Kernels, Error> {
        let mut kernels = Kernels(vec![]);
        for projection in projections {
            for part in &projection.parts {
                let scheme = part.weight.scheme();
                let none = || Error::NoKernel { scheme: scheme.name.to_string() };
                if kernels.0.iter().all(|(s, _)| s.name != scheme.name) {
                    kernels.0.push((
                        Arc::clone(scheme),
                        quant::kernel_with(scheme, isa, access).ok_or_else(none)?,
                    ));
                }
                // The last scale of a row may be for fewer columns than the kernel takes at once.
                if !projection.input.is_multiple_of(kernels.of(part).k_multiple) {
                    return Err(none());
                }
            }
        }
        Ok(kernels)
    }

    /// The kernel for a matrix.
    pub(super) fn of(&self, linear: &Linear) -> &Kernel {
        let found = self.0.iter().find(|(scheme, _)| scheme.name == linear.weight.scheme().name);
        &found.expect("`new` has seen every matrix").1
    }

    /// Where a projection is cut for `threads` threads: the ends of the parts, in order. Each thread, of 64 at most, has two parts that follow each other, three
    /// quarters and a quarter of its share: each part costs some hundred nanoseconds, and who is held up leaves the small one to
    /// the others. Cuts are between the groups of rows of a matrix.
    fn cuts(&self, projection: &Projection, threads: usize) -> impl Iterator<Item = usize> {
        let shares = threads.min(PARTS / 2);
        (1..=2 * shares).map(move |n| {
            let quarters = n.div_ceil(2) * 4 - n % 2;
            let wanted = projection.out * quarters / (4 * shares);
            let mut start = 0;
            for linear in &projection.parts {
                if wanted < start + linear.out {
                    let grain = self.of(linear).grain.max(16);
                    return start + (wanted - start) / grain * grain;
                }
                start += linear.out;
            }
            projection.out
        })
    }

    /// The forms of the activations that the kernels of a projection read.
    pub(super) fn forms(&self, projection: &Projection) -> Forms {
        projection.parts.iter().map(|part| self.of(part).forms).fold(Forms::default(), Forms::union)
    }
}

/// Some output features of one matrix, and where they go.
pub(super) struct FeatureRange<'a> {
    pub(super) linear: &'a Linear,
    pub(super) kernel: &'a Kernel,
    pub(super) features: Range<usize>,
    /// Whether biases are added to the product.
    pub(super) is_biased: bool,
    pub(super) y: ColumnsMut<'a>,
}

impl FeatureRange<'_> {
    /// `padded` has room for a group of every row.
    pub(super) fn run(&mut self, isa: Isa, x: &Activations, padded: &mut [f32]) {
        let planes = &self.linear.weight.planes();
        let w = Matrix { planes, rows: self.linear.weight.rows(), k: x.k() };
        let Range { start, end } = self.features.clone();
        // The last group may be padded beyond the output: its columns go through a buffer.
        let group = if end.is_multiple_of(self.kernel.grain) || !self.kernel.is_grouped() {
            end
        } else {
            end - end % self.kernel.grain
        };
        let (mut whole, mut rest) = self.y.reborrow().split_at(group - start);
        if group > start {
            self.kernel.run(w, start..group, x, whole.reborrow());
        }
        if end > group {
            let grain = self.kernel.grain;
            let padded = &mut padded[..x.rows() * grain];
            self.kernel.run(w, group..group + grain, x, ColumnsMut::new(padded, x.rows(), grain));
            for (t, padded) in padded.chunks_exact(grain).enumerate() {
                rest.row_mut(t).copy_from_slice(&padded[..end - group]);
            }
        }
        for (at, bias) in self.linear.biases_of(start..end).filter(|_| self.is_biased) {
            for t in 0..x.rows() {
                vector::add(isa, &mut self.y.row_mut(t)[at..at + bias.len()], bias);
            }
        }
    }
}

impl Cpu {
    /// The products of `rows` rows of `x`.
    fn product(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        if rows == 1 && self.pool.threads() > 1 {
            return self.products.run(&mut self.pool, projection, x, y);
        }
        self.products_of(projection, x, rows, y, false);
    }

    /// The same on all threads, whatever the number of rows. Of what codes leave out, the products with matrices that read codes alone,
    /// without biases; those with others are 0.
    fn products_of(
        &mut self,
        projection: &Projection,
        x: &[f32],
        rows: usize,
        y: &mut [f32],
        is_beyond: bool,
    ) {
        let isa = self.isa;
        let forms = self.kernels.forms(projection);
        let filling = self.activations.begin(rows, projection.input, forms);
        fill(&mut self.pool, &mut self.locals, isa, filling, x, projection.input);

        // Some features of the projection from a first one on, and where they go.
        let mut parts: [Option<(usize, ColumnsMut<'_>)>; PARTS] = [const { None }; PARTS];
        let (mut count, mut at) = (0, 0);
        let mut left = ColumnsMut::new(y, rows, projection.out);
        for end in self.kernels.cuts(projection, self.pool.threads()) {
            let (part, others) = left.split_at(end - at);
            left = others;
            if end > at {
                parts[count] = Some((at, part));
                (count, at) = (count + 1, end);
            }
        }
        let (activations, kernels) = (&self.activations, &self.kernels);
        self.pool.share_chunks(&mut self.locals, &mut parts[..count], 1, |local, _, parts| {
            let (first, mut left) = parts[0].take().expect("each part is taken once");
            let last = first + left.columns();
            let mut start = 0;
            for linear in &projection.parts {
                let all = start..start + linear.out;
                start = all.end;
                let (from, to) = (first.max(all.start), last.min(all.end));
                if from >= to {
                    continue;
                }
                let (mut y, others) = left.split_at(to - from);
                left = others;
                let kernel = kernels.of(linear);
                if is_beyond && !kernel.forms.int8 {
                    (0..rows).for_each(|t| y.row_mut(t).fill(0.0));
                    continue;
                }
                let features = from - all.start..to - all.start;
                let mut part = FeatureRange { linear, kernel, features, is_biased: !is_beyond, y };
                part.run(isa, activations, &mut local.padded);
            }
        });
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu {}", self.isa.name())
    }

    fn reserve(&mut self, positions: usize) -> Result<(), Error> {
        self.attending.reserve(positions)
    }

    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
        let width = norm.weight.width();
        let isa = self.isa;
        self.pool.share_chunks(&mut self.locals, out, ROWS * width, |_, i, out| {
            let x = &x[i * ROWS * width..][..out.len()];
            for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                normalise(isa, norm, x, out);
            }
        });
    }

    fn linear(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        let has_beyond = self.has_beyond(projection);
        let Some(mut beyond) = self.beyond.take_if(|_| has_beyond) else {
            return self.product(projection, x, rows, y);
        };
        self.products_of(projection, x, rows, y, false);
        let (isa, rest) = (self.isa, &mut beyond.x[..rows * projection.input]);
        self.pool.share_chunks(&mut self.locals, rest, ROWS * projection.input, |_, i, rest| {
            vector::beyond_codes(isa, &x[i * ROWS * projection.input..][..rest.len()], rest);
        });
        let more = &mut beyond.y[..rows * projection.out];
        self.products_of(projection, &beyond.x[..rows * projection.input], rows, more, true);
        self.pool.share_chunks(&mut self.locals, y, ROWS * projection.out, |_, i, y| {
            vector::add(isa, y, &more[i * ROWS * projection.out..][..y.len()]);
        });
        self.beyond = Some(beyond);
    }

    fn linear_each(&mut self, projections: &[Arc<Projection>], rows: &[usize], x: &[f32], y: &mut [f32]) {
        let single = self.pool.threads() > 1;
        if single {
            self.products.run_each(&mut self.pool, projections, rows, x, y);
        }
        let mut first = 0;
        for (projection, rows) in projections.iter().zip(rows.iter().copied()) {
            let (x, y) = (&x[first * projection.input..], &mut y[first * projection.out..]);
            if rows > usize::from(single) {
                self.linear(projection, &x[..rows * projection.input], rows, &mut y[..rows * projection.out]);
            }
            first += rows;
        }
    }

    fn rotate(&mut self, heads: &Heads, qk: &mut [f32], first: usize) {
        let isa = self.isa;
        self.pool.share_chunks(&mut self.locals, qk, ROWS * heads.width, |local, i, qk| {
            rotate_rows(isa, heads, qk, first + i * ROWS, &mut local.normed);
        });
    }

    fn grow(&mut self, heads: &Heads, kv: [Range<usize>; 2], growths: &mut [Option<Growth<'_>>]) {
        let isa = self.isa;
        let is_small = |growth: &&mut Growth<'_>| growth.rows.len() <= ROWS * heads.width;
        // Who writes keys attends to most of them.
        self.pool.share_chunks(&mut self.locals, growths, 1, |local, _, growths| {
            for growth in growths.iter_mut().flatten().filter(is_small) {
                rotate_rows(isa, heads, growth.rows, growth.first_row(), &mut local.normed);
                growth.take_rows(heads.width, &kv);
            }
        });
        for growth in growths.iter_mut().flatten().filter(|growth| !is_small(growth)) {
            self.rotate(heads, growth.rows, growth.first_row());
            growth.take_rows(heads.width, &kv);
        }
    }

    fn attend(&mut self, how: &Attend, sequences: &[Sequence], q: &[f32], out: &mut [f32]) {
        self.attending.run(&mut self.pool, how, sequences, q, out);
    }

    fn attention_sums(&mut self, how: &Attend, cache: &KvCache, q: &[f32], to: &mut [f32]) {
        self.attending.sums(&mut self.pool, how, cache, q, to);
    }

    fn gate(&mut self, x: &[f32], width: usize, first: usize, out: &mut [f32]) {
        let (isa, gated) = (self.isa, out.len() / (x.len() / width));
        self.pool.share_chunks(&mut self.locals, out, ROWS * gated, |_, i, out| {
            let x = &x[i * ROWS * width..];
            for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(gated)) {
                vector::sigmoid_mul(isa, &x[first..first + gated], out);
            }
        });
    }

    fn delta(&mut self, rule: &DeltaRule<'_>, state: &mut [f32], x: &[f32], rows: usize, out: &mut [f32]) {
        let (isa, shape) = (self.isa, rule.shape);
        let together = shape.heads.div_ceil(PARTS).max(1);
        let mut parts: [Option<(&mut [f32], ColumnsMut<'_>)>; PARTS] = [const { None }; PARTS];
        let mut left = ColumnsMut::new(out, rows, shape.heads * shape.value);
        let states = state.chunks_mut(together * shape.numbers());
        let count = states.len();
        for (part, state) in parts.iter_mut().zip(states) {
            let (mine, others) = left.split_at(state.len() / shape.numbers() * shape.value);
            left = others;
            *part = Some((state, mine));
        }
        self.pool.share_chunks(&mut self.locals, &mut parts[..count], 1, |local, i, parts| {
            for (state, out) in parts.iter_mut().flatten() {
                delta::run(isa, rule, i * together, state, x, out.reborrow(), &mut local.delta);
            }
        });
    }

    fn activate(&mut self, act: Activation, gated: bool, x: &[f32], rows: usize, out: &mut [f32]) {
        let isa = self.isa;
        let width = out.len() / rows;
        let stride = if gated { 2 * width } else { width };
        self.pool.share_chunks(&mut self.locals, out, ROWS * width, |_, i, out| {
            let x = &x[i * ROWS * stride..];
            for (x, out) in x.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
                let (gate, up) = x.split_at(width);
                match (act, gated) {
                    (Activation::Silu, true) => vector::silu_mul(isa, gate, up, out),
                    (Activation::GeluTanh, true) => vector::gelu_tanh_mul(isa, gate, up, out),
                    (Activation::GeluTanh, false) => vector::gelu_tanh(isa, gate, out),
                    (Activation::Gelu, false) => vector::gelu_erf(isa, gate, out),
                    // Few models have them: not worth a kernel.
                    (_, true) => {
                        let both = gate.iter().zip(up);
                        out.iter_mut()
                            .zip(both)
                            .for_each(|(out, (x, up))| *out = activation::gated(act, *x, *up));
                    }
                    (_, false) => {
                        out.iter_mut().zip(gate).for_each(|(out, x)| *out = activated(act, *x));
                    }
                }
            }
        });
    }

    fn add(&mut self, x: &mut [f32], y: &[f32], scale: f32) {
        let isa = self.isa;
        if x.len() < PART_VALUES {
            return vector::axpy(isa, scale, y, x);
        }
        self.pool.share_chunks(&mut self.locals, x, PART_VALUES, |_, i, x| {
            vector::axpy(isa, scale, &y[i * PART_VALUES..][..x.len()], x);
        });
    }

    fn ceiling(&mut self, memory: &[&[u8]]) -> Option<Ceiling> {
        Some(ceiling::measure(&mut self.pool, self.isa, memory))
    }
}

/// Takes `x` in tiles of rows, by all threads where there are many.
fn fill(pool: &mut Pool, locals: &mut [Local], isa: Isa, filling: Filling<'_>, x: &[f32], k: usize) {
    let rows = filling.rows();
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
    count += 1;
    pool.share_chunks(locals, &mut parts[..count], 1, |_, _, parts| {
        for (part, x) in parts.iter_mut().filter_map(Option::take) {
            part.fill(isa, x);
        }
    });
}

/// Norms and rotates the heads of rows of a pass, the first of which is `first`; `normed` is room for what is normed together.
fn rotate_rows(isa: Isa, heads: &Heads<'_>, rows: &mut [f32], first: usize, normed: &mut [f32]) {
    if heads.q_norm.is_none() && heads.k_norm.is_none() && heads.rotation.is_none() {
        return;
    }
    for (row, t) in rows.chunks_exact_mut(heads.width).zip(first..) {
        let (q, rest) = row.split_at_mut(heads.heads * heads.head_dim);
        let k = &mut rest[..heads.kv_heads * heads.head_dim];
        for (part, norm) in [(q, heads.q_norm), (k, heads.k_norm)] {
            if let Some(norm) = norm {
                for x in part.chunks_exact_mut(norm.weight.width()) {
                    let before = &mut normed[..x.len()];
                    before.copy_from_slice(x);
                    normalise(isa, norm, before, x);
                }
            }
            for head in part.chunks_exact_mut(heads.head_dim) {
                if let Some(Rotated { cos, sin, pairs, first, order }) = heads.rotation {
                    let (cos, sin) = (&cos[t * pairs..][..pairs], &sin[t * pairs..][..pairs]);
                    let head = &mut head[first..first + 2 * pairs];
                    match order {
                        RopeOrder::Half => vector::rope_half(isa, head, cos, sin),
                        RopeOrder::Interleaved => vector::rope_interleaved(isa, head, cos, sin),
                    }
                }
            }
        }
    }
}

pub(super) fn normalise(isa: Isa, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
    let weight = norm.weight.as_f32();
    match norm.kind {
        Norm::Rms { eps } => vector::rms_norm(isa, x, weight, eps, out),
        Norm::Layer { eps } => {
            vector::layer_norm(isa, x, weight, norm.bias.as_ref().map(Tensor::as_f32), eps, out);
        }
    }
}

//! SIMD on all threads.
//!
//! Work that pays for a fork-join (products, attention, and anything on many rows) is cut into parts that
//! the pool's threads share; one row's norms and activations are done by the caller alone, which is
//! quicker than waking anyone.

mod team;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use load::{Pool, Tensor};
use model::{Activation, Norm};
use quant::{Access, Activations, ColumnsMut, Isa, vector};
use tensor::RopeOrder;

use super::activation::{self, activated};
use super::attending::Attending;
use super::ceiling::{self, Ceiling};
use super::kernels::{Kernels, PARTS};
use super::product::Products;
use super::{ALONE, Attend, Backend, DeltaRule, Growth, Heads, Mlp, Rotated, Sequence, delta};
use crate::state::write_alone;
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvCache, Model};
use team::{Local, Team};

/// Rows of activations that one part takes where rows are independent.
const ROWS: usize = 4;
/// Values that one part takes where each is independent: less is not worth waking anyone.
const PART_VALUES: usize = 8 << 10;

/// The backend for the processor.
pub struct Cpu {
    team: Team,
    /// Of a product.
    activations: Activations,
    /// Of the last matrix of a network.
    hidden: Activations,
    products: Products,
    attending: Attending,
    /// Room for products with what codes of activations leave out, if these are made too.
    beyond: Option<Beyond>,
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

impl Cpu {
    /// A backend for `model`, with all that it needs allocated but for room to attend. It reads weights as `access` says.
    ///
    /// # Errors
    /// If a matrix is stored in a scheme that has no kernel.
    pub fn new(pool: Pool, isa: Isa, access: Access, model: &Model) -> Result<Cpu, Error> {
        Cpu::of_rows(pool, isa, access, model, model.rows(), false)
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
        let mut cpu = Cpu::of_rows(pool, isa, access, model, rows, true)?;
        let projections = || model.projections().map(|p| &**p).filter(|p| cpu.has_beyond(p));
        let input = projections().map(|p| p.input).max().unwrap_or(0);
        let out = projections().map(|p| p.out).max().unwrap_or(0);
        cpu.beyond = Some(Beyond { x: vec![0.0; rows * input], y: vec![0.0; rows * out] });
        Ok(cpu)
    }

    /// True for a projection whose activations have 16 bits in a backend for vectors.
    fn has_beyond(&self, projection: &Projection) -> bool {
        !projection.is_down() && self.team.kernels.forms(projection).int8
    }

    fn of_rows(
        pool: Pool,
        isa: Isa,
        access: Access,
        model: &Model,
        rows: usize,
        for_vectors: bool,
    ) -> Result<Cpu, Error> {
        let projections = || model.projections().map(|p| &**p);
        let kernels = Arc::new(Kernels::new(isa, access, projections())?);
        let widest = projections().map(|p| p.input).max().unwrap_or(0);
        let sizes: Vec<_> = model.all_branches().filter_map(|branch| branch.layer.attention()).collect();
        let normed = sizes.iter().map(|size| size.normed).max().unwrap_or(0);
        let recurrent = model.branches().iter().filter_map(|branch| branch.layer.recurrent());
        let delta = recurrent.map(|shape| delta::room(&shape)).max().unwrap_or(0);
        let threads = pool.threads();
        let expands = |p: &&Projection| !for_vectors && p.is_down() && Team::expands(&kernels, threads, p);
        let hidden = projections().filter(expands).map(|p| p.input).max().unwrap_or(0);
        let [results, activated] = Team::room(hidden, rows, threads);
        let local = || Local {
            normed: vec![0.0; normed],
            padded: vec![0.0; rows * 16],
            delta: vec![0.0; delta],
            results: vec![0.0; results],
            activated: vec![0.0; activated],
        };
        let locals = (0..threads).map(|_| local()).collect();
        let room = model.room();
        let each = (room.experts, room.each);
        let products = Products::new(threads, isa, &kernels, projections(), each);
        let activations = Activations::new(rows, widest);
        let hidden = Activations::of_codes(rows, hidden);
        let attending = Attending::new(threads, isa, sizes, rows);
        let team = Team { pool, isa, kernels, locals };
        Ok(Cpu { team, activations, hidden, products, attending, beyond: None })
    }
}

impl Cpu {
    /// The products of `rows` rows of `x`.
    fn product(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        if rows == 1 && self.team.pool.threads() > 1 {
            return self.products.run(&mut self.team.pool, projection, x, y);
        }
        self.products_of(projection, x, rows, y, false);
    }

    /// The same on all threads, whatever the number of rows; of what codes leave out, as [`Team::multiply`] has it.
    fn products_of(
        &mut self,
        projection: &Projection,
        x: &[f32],
        rows: usize,
        y: &mut [f32],
        is_beyond: bool,
    ) {
        self.team.fill(&mut self.activations, projection, x, rows);
        self.team.multiply(projection, &self.activations, y, is_beyond);
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu {}", self.team.isa.name())
    }

    fn reserve(&mut self, positions: usize) -> Result<(), Error> {
        self.attending.reserve(positions)
    }

    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
        let width = norm.weight.width();
        let isa = self.team.isa;
        self.team.share(out, ROWS * width, |_, i, out| {
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
        let (isa, rest) = (self.team.isa, &mut beyond.x[..rows * projection.input]);
        self.team.share(rest, ROWS * projection.input, |_, i, rest| {
            vector::beyond_codes(isa, &x[i * ROWS * projection.input..][..rest.len()], rest);
        });
        let more = &mut beyond.y[..rows * projection.out];
        self.products_of(projection, &beyond.x[..rows * projection.input], rows, more, true);
        self.team.share(y, ROWS * projection.out, |_, i, y| {
            vector::add(isa, y, &more[i * ROWS * projection.out..][..y.len()]);
        });
        self.beyond = Some(beyond);
    }

    fn linear_each(&mut self, projections: &[Arc<Projection>], rows: &[usize], x: &[f32], y: &mut [f32]) {
        let single = self.team.pool.threads() > 1;
        if single {
            self.products.run_each(&mut self.team.pool, projections, rows, x, y);
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
        if heads.stay() {
            return;
        }
        let isa = self.team.isa;
        self.team.share(qk, ROWS * heads.width, |local, i, qk| {
            rotate_rows(isa, heads, qk, first + i * ROWS, &mut local.normed);
        });
    }

    fn grow(&mut self, heads: &Heads, kv: [Range<usize>; 2], growths: &mut [Option<Growth<'_>>]) {
        let isa = self.team.isa;
        let is_small = |growth: &Growth<'_>| growth.rows.len() <= ALONE * heads.width;
        if growths.iter().flatten().any(is_small) {
            // Who writes keys attends to most of them.
            self.team.share(growths, 1, |local, _, growths| {
                for growth in growths.iter_mut().flatten().filter(|growth| is_small(growth)) {
                    rotate_rows(isa, heads, growth.rows, growth.first_row(), &mut local.normed);
                    growth.take_rows(heads.width, &kv);
                }
            });
        }
        for growth in growths.iter_mut().flatten().filter(|growth| !is_small(growth)) {
            self.rotate(heads, growth.rows, growth.first_row());
            growth.take_rows_by(heads.width, &kv, &mut |parts, write| {
                self.team.share(parts, 1, |_, _, parts| write_alone(parts, write));
            });
        }
    }

    fn attend(&mut self, how: &Attend, sequences: &[Sequence], q: &[f32], out: &mut [f32]) {
        self.attending.run(&mut self.team.pool, how, sequences, q, out);
    }

    fn attention_sums(&mut self, how: &Attend, cache: &KvCache, q: &[f32], to: &mut [f32]) {
        self.attending.sums(&mut self.team.pool, how, cache, q, to);
    }

    fn gate(&mut self, x: &[f32], width: usize, first: usize, out: &mut [f32]) {
        let (isa, gated) = (self.team.isa, out.len() / (x.len() / width));
        self.team.share(out, ROWS * gated, |_, i, out| {
            let x = &x[i * ROWS * width..];
            for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(gated)) {
                vector::sigmoid_mul(isa, &x[first..first + gated], out);
            }
        });
    }

    fn delta(&mut self, rule: &DeltaRule<'_>, state: &mut [f32], x: &[f32], rows: usize, out: &mut [f32]) {
        let (isa, shape) = (self.team.isa, rule.shape);
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
        self.team.share(&mut parts[..count], 1, |local, i, parts| {
            for (state, out) in parts.iter_mut().flatten() {
                delta::run(isa, rule, i * together, state, x, out.reborrow(), &mut local.delta);
            }
        });
    }

    fn activate(&mut self, act: Activation, gated: bool, x: &[f32], rows: usize, out: &mut [f32]) {
        let isa = self.team.isa;
        let width = out.len() / rows;
        let stride = if gated { 2 * width } else { width };
        self.team.share(out, ROWS * width, |_, i, out| {
            let x = &x[i * ROWS * stride..];
            for (x, out) in x.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
                let (gate, up) = x.split_at(stride - width);
                activate(isa, act, gated.then_some(gate), up, out);
            }
        });
    }

    fn feed_forward(
        &mut self,
        mlp: &Mlp<'_>,
        x: &[f32],
        rows: usize,
        room: [&mut [f32]; 2],
        out: &mut [f32],
    ) {
        let threads = self.team.pool.threads();
        let is_alone = rows == 1 && threads > 1;
        if is_alone || self.beyond.is_some() || !Team::expands(&self.team.kernels, threads, mlp.down) {
            return mlp.run(self, x, rows, room, out);
        }
        self.team.fill(&mut self.activations, mlp.gate_up, x, rows);
        self.team.expand(mlp, &self.activations, &mut self.hidden);
        self.team.multiply(mlp.down, &self.hidden, out, false);
    }

    fn add(&mut self, x: &mut [f32], y: &[f32], scale: f32) {
        let isa = self.team.isa;
        if x.len() < PART_VALUES {
            return vector::axpy(isa, scale, y, x);
        }
        self.team.share(x, PART_VALUES, |_, i, x| {
            vector::axpy(isa, scale, &y[i * PART_VALUES..][..x.len()], x);
        });
    }

    fn ceiling(&mut self, memory: &[&[u8]]) -> Option<Ceiling> {
        Some(ceiling::measure(&mut self.team.pool, self.team.isa, memory))
    }
}

/// `out = act(gate) · up`, or `act(up)` without a gate.
fn activate(isa: Isa, act: Activation, gate: Option<&[f32]>, up: &[f32], out: &mut [f32]) {
    match (act, gate) {
        (Activation::Silu, Some(gate)) => vector::silu_mul(isa, gate, up, out),
        (Activation::GeluTanh, Some(gate)) => vector::gelu_tanh_mul(isa, gate, up, out),
        (Activation::GeluTanh, None) => vector::gelu_tanh(isa, up, out),
        (Activation::Gelu, None) => vector::gelu_erf(isa, up, out),
        // Few models have them: not worth a kernel.
        (_, Some(gate)) => {
            let both = gate.iter().zip(up);
            out.iter_mut().zip(both).for_each(|(out, (x, up))| *out = activation::gated(act, *x, *up));
        }
        (_, None) => out.iter_mut().zip(up).for_each(|(out, x)| *out = activated(act, *x)),
    }
}

/// Norms and rotates the heads of rows of a pass, the first of which is `first`; `normed` is room for what is normed together.
fn rotate_rows(isa: Isa, heads: &Heads<'_>, rows: &mut [f32], first: usize, normed: &mut [f32]) {
    if heads.stay() {
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

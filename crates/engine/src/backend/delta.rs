//! The gated delta rule with SIMD, by heads of values.

use model::Activation;
use quant::{ColumnsMut, Isa, vector};

use super::cpu::normalise;
use super::{DeltaRule, activated, soft_plus};
use crate::state::RecurrentShape;

/// Numbers of scratch for a head: its row before the convolution and after it, and a value before its norm and after it.
pub(super) fn room(shape: &RecurrentShape) -> usize {
    2 * shape.channels() + 2 * shape.value
}

/// All rows of `x` through some heads, from `first` on, whose state is `state`. The columns of `out` are theirs.
pub(super) fn run(
    isa: Isa,
    rule: &DeltaRule<'_>,
    first: usize,
    state: &mut [f32],
    x: &[f32],
    mut out: ColumnsMut<'_>,
    room: &mut [f32],
) {
    let shape = rule.shape;
    let RecurrentShape { key, value, kernel, .. } = shape;
    let channels = shape.channels();
    let (now, room) = room.split_at_mut(channels);
    let (mixed, room) = room.split_at_mut(channels);
    let (found, room) = room.split_at_mut(value);
    let normed = &mut room[..value];
    for (n, state) in state.chunks_exact_mut(shape.numbers()).enumerate() {
        let (head, at) = (first + n, rule.row(first + n));
        let weights = &rule.weights[head * kernel * channels..][..kernel * channels];
        let (before, memory) = state.split_at_mut(shape.before());
        for (t, x) in x.chunks_exact(rule.width).enumerate() {
            now[..key].copy_from_slice(&x[at.q..][..key]);
            now[key..2 * key].copy_from_slice(&x[at.k..][..key]);
            now[2 * key..].copy_from_slice(&x[at.v..][..value]);
            vector::convolve(isa, weights, before, now, mixed);
            match rule.activation {
                Activation::Silu => vector::silu(isa, mixed),
                // No released model has another: not worth a kernel.
                other => mixed.iter_mut().for_each(|x| *x = activated(other, *x)),
            }
            if kernel > 1 {
                before.copy_within(channels.., 0);
                before[(kernel - 2) * channels..].copy_from_slice(now);
            }
            let (q, rest) = mixed.split_at_mut(key);
            let (k, v) = rest.split_at_mut(key);
            let unit = |x: &[f32]| 1.0 / (vector::dot(isa, x, x) + rule.unit_eps).sqrt();
            let (q_unit, k_unit) = (unit(q) / (key as f32).sqrt(), unit(k));
            for (x, unit) in [(&mut *q, q_unit), (&mut *k, k_unit)] {
                for x in x {
                    *x *= unit;
                }
            }
            let keep = (rule.decay[head] * soft_plus(x[at.a])).exp();
            let write = 1.0 / (1.0 + (-x[at.b]).exp());
            vector::delta_step(isa, memory, q, k, v, [keep, write], found);
            normalise(isa, rule.norm, found, normed);
            let row = &mut out.row_mut(t)[n * value..][..value];
            vector::silu_mul(isa, &x[at.z..][..value], normed, row);
        }
    }
}

//! The oracle: plain f32, one thread, one loop an operation, in the order of the formula.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use model::{Activation, Norm};
use tensor::RopeOrder;

use super::activation::{self, activated};
use super::{Attend, Backend, DeltaRule, Heads, Rotated, Sequence, soft_plus};
use crate::state::RecurrentShape;
use crate::weights::{NormWeights, Projection};
use crate::{KvCache, KvShape, PAGE};

/// Naive f32. Every other backend is measured against it.
#[derive(Default)]
pub struct Reference {
    row: Vec<f32>,
    scores: Vec<f32>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").finish_non_exhaustive()
    }
}

impl Reference {
    /// A new one.
    pub fn new() -> Reference {
        Reference::default()
    }
}

impl Reference {
    /// Leaves the weights that head `h` of the query at `position` gives to the keys of `seen` in `scores`, before they are divided by their
    /// sum, which it returns.
    fn weigh(
        &mut self,
        how: &Attend,
        h: usize,
        query: &[f32],
        keys: &[f32],
        position: usize,
        seen: Range<usize>,
    ) -> f32 {
        self.scores.clear();
        let capped = |score: f32| how.soft_cap.map_or(score, |cap| cap * (score / cap).tanh());
        let products = keys.chunks_exact(query.len()).map(|key| dot(query, key));
        let products = products.zip(seen).map(|(x, key)| x + how.addend(h, position, key));
        self.scores.extend(products.map(|product| capped(product * how.scale)));
        // The last score goes to no position.
        self.scores.extend(how.sinks.map(|sinks| sinks[h]));
        let max = self.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        self.scores.iter_mut().for_each(|s| *s = (*s - max).exp());
        self.scores.iter().sum()
    }
}

impl Backend for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
        let weight = norm.weight.as_f32();
        for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
            out.copy_from_slice(x);
            normalise(norm, out);
        }
    }

    fn linear(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        let (input, out) = (projection.input, projection.out);
        self.row.resize(input, 0.0);
        let mut first = 0;
        for part in &projection.parts {
            for feature in 0..part.out {
                part.weight.decode_row(feature, &mut self.row);
                for t in 0..rows {
                    let dot = dot(&self.row, &x[t * input..(t + 1) * input]);
                    let bias: f32 = part.biases_of(feature..feature + 1).map(|(_, bias)| bias[0]).sum();
                    y[t * out + first + feature] = dot + bias;
                }
            }
            first += part.out;
        }
    }

    fn rotate(&mut self, heads: &Heads, qk: &mut [f32], first: usize) {
        let d = heads.head_dim;
        for (row, t) in qk.chunks_exact_mut(heads.width).zip(first..) {
            let (q, rest) = row.split_at_mut(heads.heads * d);
            let k = &mut rest[..heads.kv_heads * d];
            for (part, norm) in [(&mut *q, heads.q_norm), (&mut *k, heads.k_norm)] {
                let Some(norm) = norm else { continue };
                part.chunks_exact_mut(norm.weight.width()).for_each(|x| normalise(norm, x));
            }
            for head in q.chunks_exact_mut(d).chain(k.chunks_exact_mut(d)) {
                let Some(Rotated { cos, sin, pairs, first, order }) = heads.rotation else { continue };
                let head = &mut head[first..first + 2 * pairs];
                for i in 0..pairs {
                    let (cos, sin) = (cos[t * pairs + i], sin[t * pairs + i]);
                    let (a, b) = match order {
                        RopeOrder::Half => (i, i + pairs),
                        RopeOrder::Interleaved => (2 * i, 2 * i + 1),
                    };
                    (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
                }
            }
        }
    }

    fn attend(&mut self, how: &Attend, sequences: &[Sequence], q: &[f32], out: &mut [f32]) {
        let rows = sequences.iter().flat_map(|sequence| (0..sequence.rows).map(move |row| (sequence, row)));
        for (t, (sequence, row)) in rows.enumerate() {
            let (cache, position) = (sequence.cache, sequence.position + row);
            let KvShape { kv_heads, key, value, .. } = *cache.shape();
            for h in 0..how.heads {
                let query = &q[t * how.width + h * key..][..key];
                let head = h / (how.heads / kv_heads);
                let seen = how.visible(sequence, position);
                let first = sequence.first_page * PAGE;
                let stored = first + seen.start..first + seen.end;
                let (keys, values) = cache.rows(head, stored, first + position);
                let sum = self.weigh(how, h, query, &keys, position, seen.clone());
                let out = &mut out[(t * how.heads + h) * value..][..value];
                out.fill(0.0);
                let stride = values.len() / seen.len();
                for (score, value) in self.scores.iter().zip(values.chunks_exact(stride)) {
                    out.iter_mut().zip(value).for_each(|(o, v)| *o += score / sum * v);
                }
            }
        }
    }

    fn attention_sums(&mut self, how: &Attend, cache: &KvCache, q: &[f32], to: &mut [f32]) {
        let KvShape { kv_heads, key, .. } = *cache.shape();
        let before = to.len() / kv_heads;
        to.fill(0.0);
        for (q, position) in q.chunks_exact(how.width).zip(before..) {
            for (h, query) in q.chunks_exact(key).enumerate() {
                let head = h / (how.heads / kv_heads);
                let (keys, _) = cache.rows(head, 0..=position, position);
                let sum = self.weigh(how, h, query, &keys, position, 0..position + 1);
                let to = &mut to[head * before..][..before];
                to.iter_mut().zip(&self.scores).for_each(|(to, weight)| *to += weight / sum);
            }
        }
    }

    fn gate(&mut self, x: &[f32], width: usize, first: usize, out: &mut [f32]) {
        let rows = x.len() / width;
        let gated = out.len() / rows;
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(gated)) {
            out.iter_mut().zip(&x[first..]).for_each(|(out, gate)| *out *= sigmoid(*gate));
        }
    }

    fn delta(&mut self, rule: &DeltaRule<'_>, state: &mut [f32], x: &[f32], rows: usize, out: &mut [f32]) {
        let shape = rule.shape;
        let RecurrentShape { heads, key, value, kernel, .. } = shape;
        let channels = shape.channels();
        let unit = |x: &[f32]| 1.0 / (dot(x, x) + rule.unit_eps).sqrt();
        for (t, x) in x.chunks_exact(rule.width).enumerate().take(rows) {
            for (head, state) in state.chunks_exact_mut(shape.numbers()).enumerate() {
                let at = rule.row(head);
                let (before, memory) = state.split_at_mut(shape.before());
                let now = [&x[at.q..][..key], &x[at.k..][..key], &x[at.v..][..value]].concat();
                let mut seen = [&*before, &now].concat();
                let weights = &rule.weights[head * kernel * channels..][..kernel * channels];
                let convolved: Vec<f32> = (0..channels)
                    .map(|c| {
                        (0..kernel).map(|j| weights[j * channels + c] * seen[j * channels + c]).sum::<f32>()
                    })
                    .map(|sum| activated(rule.activation, sum))
                    .collect();
                before.copy_from_slice(&seen.split_off(channels));
                let (q, rest) = convolved.split_at(key);
                let (k, v) = rest.split_at(key);
                let (q_unit, k_unit) = (unit(q) / (key as f32).sqrt(), unit(k));
                let keep = (rule.decay[head] * soft_plus(x[at.a])).exp();
                for m in &mut *memory {
                    *m *= keep;
                }
                let out = &mut out[(t * heads + head) * value..][..value];
                for (i, out) in out.iter_mut().enumerate() {
                    let known: f32 = (0..key).map(|j| memory[j * value + i] * k[j] * k_unit).sum();
                    let change = (v[i] - known) * sigmoid(x[at.b]);
                    (0..key).for_each(|j| memory[j * value + i] += k[j] * k_unit * change);
                    *out = (0..key).map(|j| memory[j * value + i] * q[j] * q_unit).sum();
                }
                normalise(rule.norm, out);
                out.iter_mut().zip(&x[at.z..]).for_each(|(out, gate)| *out *= gate * sigmoid(*gate));
            }
        }
    }

    fn activate(&mut self, act: Activation, gated: bool, x: &[f32], rows: usize, out: &mut [f32]) {
        let width = out.len() / rows;
        let stride = if gated { 2 * width } else { width };
        for (x, out) in x.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = if gated { activation::gated(act, x[i], x[width + i]) } else { activated(act, x[i]) };
            }
        }
    }

    fn add(&mut self, x: &mut [f32], y: &[f32], scale: f32) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += scale * y);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Sums in f64, so that the oracle's own rounding is out of the way.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Four sums, since one alone waits for each addition.
    let mut sums = [0f64; 4];
    let (a4, b4) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 =
        a4.remainder().iter().zip(b4.remainder()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    for (a, b) in a4.zip(b4) {
        for i in 0..4 {
            sums[i] += f64::from(a[i]) * f64::from(b[i]);
        }
    }
    (sums.iter().sum::<f64>() + rest) as f32
}

fn normalise(norm: &NormWeights, x: &mut [f32]) {
    let weight = norm.weight.as_f32();
    let n = x.len() as f64;
    let mean_of = |x: &[f32], f: &dyn Fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>() / n;
    let (mean, eps, variance) = match norm.kind {
        Norm::Rms { eps } => (0.0, eps, mean_of(x, &|v| v * v)),
        Norm::Layer { eps } => {
            let mean = mean_of(x, &|v| v);
            (mean, eps, mean_of(x, &|v| (v - mean) * (v - mean)))
        }
    };
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    for (i, v) in x.iter_mut().enumerate() {
        let bias = norm.bias.as_ref().map_or(0.0, |b| f64::from(b.as_f32()[i]));
        *v = ((f64::from(*v) - mean) * scale * f64::from(weight[i]) + bias) as f32;
    }
}

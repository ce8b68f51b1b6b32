//! Backends that look on, or disturb.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use load::Tensor;
use model::Activation;
use quant::Gram;

use super::hadamard::{Signs, sign};
use super::{Inputs, Part};
use crate::KvCache;
use crate::backend::{Attend, Backend, DeltaRule, Growth, Heads, Sequence};
use crate::weights::{NormWeights, Projection};

/// What is done beside each product.
pub(crate) enum Probe {
    /// Squares are summed.
    Sums(Sums),
    /// Products of columns are summed.
    Grams(Grams),
    /// Something is added to the results.
    Noise(Noise),
}

/// The squares of what went into each projection and came out of it.
#[derive(Default)]
pub(crate) struct Sums {
    projections: BTreeMap<String, Sum>,
    /// Of what was looked up: rows, the sum of their squares, and their length.
    lookup: (u64, f64, usize),
}

#[derive(Default)]
struct Sum {
    rows: u64,
    /// `[in]`.
    squares: Vec<f64>,
    /// `[out]`.
    results: Vec<f64>,
}

/// The products of the columns of what goes into some projections.
pub(crate) struct Grams {
    pub(super) threads: usize,
    /// By the paths of projections: those that are not here are passed over.
    pub(super) sums: BTreeMap<String, Gram>,
}

/// An error that is added to what one matrix does.
pub(crate) struct Noise {
    /// The factor of each sign.
    sigma: f32,
    place: Disturbed,
}

enum Disturbed {
    /// Some of the results of the projection at `path`.
    Product { path: String, out: Range<usize>, signs: Box<Signs> },
    /// The rows of the table of tokens, each by its own signs.
    Lookup,
}

impl Sums {
    /// What went into `part`.
    pub(super) fn inputs(&self, part: &Part) -> Inputs {
        let sum = self.projections.get(&part.path);
        Inputs {
            name: part.name.clone(),
            rows: sum.map_or(0, |sum| sum.rows),
            squares: sum.map(|sum| sum.squares.clone()).unwrap_or_default(),
            results: sum.and_then(|sum| sum.results.get(part.out.clone())).unwrap_or_default().iter().sum(),
            sensitivity: None,
        }
    }

    /// The mean of the squares of a row that was looked up, summed.
    pub(super) fn looked_up(&self) -> f64 {
        self.lookup.1 / self.lookup.0.max(1) as f64
    }

    /// The length of such a row.
    pub(super) fn lookup_width(&self) -> usize {
        self.lookup.2.max(1)
    }
}

impl Noise {
    pub(super) fn in_product(path: &str, out: Range<usize>, input: usize, sigma: f32) -> Noise {
        // Different matrices have different signs.
        let bytes = path.bytes().chain(out.start.to_le_bytes());
        let seed = bytes.fold(0u64, |seed, byte| seed.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte));
        let signs = Box::new(Signs::new(out.len(), input, seed));
        Noise { sigma, place: Disturbed::Product { path: path.to_owned(), out, signs } }
    }

    pub(super) fn in_lookup(sigma: f32) -> Noise {
        Noise { sigma, place: Disturbed::Lookup }
    }
}

/// Adds the squares of `rows` to `sums`.
fn add_squares(sums: &mut Vec<f64>, values: &[f32], width: usize) {
    sums.resize(width, 0.0);
    for row in values.chunks_exact(width) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f64::from(*x) * f64::from(*x);
        }
    }
}

/// A backend with a probe, if there is one.
pub(crate) struct Probed<'a> {
    backend: &'a mut dyn Backend,
    probe: Option<&'a mut Probe>,
}

impl<'a> Probed<'a> {
    pub(crate) fn new(backend: &'a mut dyn Backend, probe: Option<&'a mut Probe>) -> Probed<'a> {
        Probed { backend, probe }
    }

    /// The backend itself, if nobody looks on.
    pub(crate) fn backend(&mut self) -> &mut dyn Backend {
        if self.probe.is_some() { self } else { &mut *self.backend }
    }
}

impl Backend for Probed<'_> {
    fn name(&self) -> String {
        self.backend.name()
    }

    fn embed(&mut self, table: &Tensor, ids: &[u32], scale: f32, out: &mut [f32]) {
        self.backend.embed(table, ids, scale, out);
        let width = out.len() / ids.len().max(1);
        match &mut self.probe {
            Some(Probe::Sums(sums)) => {
                let scale = f64::from(scale);
                let squares = out.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
                sums.lookup.0 += ids.len() as u64;
                // As they are in the table.
                sums.lookup.1 += squares / (scale * scale);
                sums.lookup.2 = width;
            }
            Some(Probe::Noise(Noise { sigma, place: Disturbed::Lookup })) => {
                for (id, row) in ids.iter().zip(out.chunks_exact_mut(width.max(1))) {
                    for (i, x) in row.iter_mut().enumerate() {
                        *x += scale * *sigma * sign(u64::from(*id) << 32, i as u64);
                    }
                }
            }
            _ => {}
        }
    }

    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
        self.backend.norm(norm, x, out);
    }

    fn linear(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        self.backend.linear(projection, x, rows, y);
        match &mut self.probe {
            Some(Probe::Sums(sums)) => {
                let sum = sums.projections.entry(projection.path.clone()).or_default();
                sum.rows += rows as u64;
                add_squares(&mut sum.squares, x, projection.input);
                add_squares(&mut sum.results, y, projection.out);
            }
            Some(Probe::Grams(grams)) => {
                if let Some(gram) = grams.sums.get_mut(&projection.path) {
                    gram.add(x, grams.threads);
                }
            }
            Some(Probe::Noise(Noise { sigma, place: Disturbed::Product { path, out, signs } }))
                if *path == projection.path =>
            {
                for (x, y) in x.chunks_exact(projection.input).zip(y.chunks_exact_mut(projection.out)) {
                    signs.add(*sigma, x, &mut y[out.clone()]);
                }
            }
            _ => {}
        }
    }

    fn rotate(&mut self, heads: &Heads, qk: &mut [f32], first: usize) {
        self.backend.rotate(heads, qk, first);
    }

    fn grow(&mut self, heads: &Heads, kv: [Range<usize>; 2], growths: &mut [Option<Growth<'_>>]) {
        self.backend.grow(heads, kv, growths);
    }

    fn attend(&mut self, how: &Attend, sequences: &[Sequence], q: &[f32], out: &mut [f32]) {
        self.backend.attend(how, sequences, q, out);
    }

    fn attention_sums(&mut self, how: &Attend, cache: &KvCache, q: &[f32], to: &mut [f32]) {
        self.backend.attention_sums(how, cache, q, to);
    }

    fn gate(&mut self, x: &[f32], width: usize, first: usize, out: &mut [f32]) {
        self.backend.gate(x, width, first, out);
    }

    fn delta(&mut self, rule: &DeltaRule<'_>, state: &mut [f32], x: &[f32], rows: usize, out: &mut [f32]) {
        self.backend.delta(rule, state, x, rows, out);
    }

    fn activate(&mut self, act: Activation, gated: bool, x: &[f32], rows: usize, out: &mut [f32]) {
        self.backend.activate(act, gated, x, rows, out);
    }

    fn add(&mut self, x: &mut [f32], y: &[f32], scale: f32) {
        self.backend.add(x, y, scale);
    }
}

//! `LoRA` adapters beside the weights: each session of a model may have its own.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ::model::Activation;
use load::Tensor;
use lora::LowRank;
use quant::Isa;

use crate::backend::{Attend, Backend, DeltaRule, Growth, Heads, Sequence};
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvCache, Model};

/// A `LoRA` adapter of a model: what it adds to the products of its matrices.
pub struct Adapter {
    model: Arc<Model>,
    /// By the paths of projections.
    changes: HashMap<String, Vec<Change>>,
    isa: Isa,
    /// Products with a factor that are held at once.
    room: usize,
}

/// The change of one matrix of a projection.
struct Change {
    /// Its first output feature.
    first: usize,
    low_rank: LowRank,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("projections", &self.changes.len()).finish_non_exhaustive()
    }
}

impl Adapter {
    /// The adapter of `model` that makes `changes`, by the names that its parameters were loaded under. It computes
    /// with `isa`.
    ///
    /// # Errors
    /// If one of them is no matrix that activations are multiplied with, or is replaced.
    pub fn new(
        model: &Arc<Model>,
        mut changes: HashMap<String, LowRank>,
        isa: Isa,
    ) -> Result<Adapter, Error> {
        let mut adapter = Adapter { model: Arc::clone(model), changes: HashMap::new(), isa, room: 0 };
        for projection in model.projections() {
            let Some(matrix) = model.architecture().matrix(&projection.path) else { continue };
            let mut first = 0;
            // Fused, or each of its parts.
            let mut places = vec![(projection.path.as_str(), 0)];
            for (stem, out) in &matrix.parts {
                places.push((stem, first));
                first += usize::try_from(*out).map_err(|_| Error::TooLarge)?;
            }
            for (stem, first) in places {
                let name = format!("{stem}.weight");
                let fits = |low_rank: &LowRank| {
                    low_rank.is_sum() && low_rank.shape()[1] == projection.input && first < projection.out
                };
                if changes.get(&name).is_some_and(fits)
                    && let Some(low_rank) = changes.remove(&name)
                {
                    adapter.room = adapter.room.max(low_rank.room());
                    let list = adapter.changes.entry(projection.path.clone()).or_default();
                    list.push(Change { first, low_rank });
                }
            }
        }
        let mut left: Vec<String> = changes.into_keys().collect();
        left.sort_unstable();
        if left.is_empty() { Ok(adapter) } else { Err(Error::NotApart { params: left }) }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The digest of all that it changes, as text.
    pub(crate) fn digest(&self) -> String {
        let sorted: BTreeMap<&String, &Vec<Change>> = self.changes.iter().collect();
        let mut all = blake3::Hasher::new();
        for (path, changes) in sorted {
            for Change { first, low_rank } in changes {
                let identity = low_rank.identity();
                for n in [path.len(), *first, identity.len()] {
                    all.update(&(n as u64).to_le_bytes());
                }
                all.update(path.as_bytes()).update(&identity);
            }
        }
        all.finalize().to_string()
    }

    /// Values that [`Adapter::add`] needs room for.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Adds to `y` `[out]` what is added to the product of `projection` with `x` `[in]`.
    pub(crate) fn add(&self, projection: &Projection, x: &[f32], y: &mut [f32], room: &mut [f32]) {
        let dot = |a: &[f32], b: &[f32]| quant::vector::dot(self.isa, a, b);
        for Change { first, low_rank } in self.changes.get(&projection.path).into_iter().flatten() {
            low_rank.add_product(x, &mut y[*first..], room, dot);
        }
    }
}

/// Rows of a pass, and the adapter of their session.
pub(crate) type AdaptedRows = (Range<usize>, Arc<Adapter>);

/// A backend that adds to products what the adapters of sessions add.
pub(crate) struct Adapted<'a> {
    backend: &'a mut dyn Backend,
    changed: &'a [AdaptedRows],
    /// Of the pass: an expert gets fewer, and has no adapter.
    rows: usize,
    room: &'a mut [f32],
}

impl<'a> Adapted<'a> {
    pub(crate) fn new(
        backend: &'a mut dyn Backend,
        changed: &'a [AdaptedRows],
        rows: usize,
        room: &'a mut [f32],
    ) -> Adapted<'a> {
        Adapted { backend, changed, rows, room }
    }

    /// The backend itself, if no session has an adapter.
    pub(crate) fn backend(&mut self) -> &mut dyn Backend {
        if self.changed.is_empty() { &mut *self.backend } else { self }
    }
}

impl Backend for Adapted<'_> {
    fn name(&self) -> String {
        self.backend.name()
    }

    fn embed(&mut self, table: &Tensor, ids: &[u32], scale: f32, out: &mut [f32]) {
        self.backend.embed(table, ids, scale, out);
    }

    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
        self.backend.norm(norm, x, out);
    }

    fn linear(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]) {
        self.backend.linear(projection, x, rows, y);
        if rows != self.rows {
            return;
        }
        for (rows, adapter) in self.changed {
            for row in rows.clone() {
                let x = &x[row * projection.input..][..projection.input];
                adapter.add(projection, x, &mut y[row * projection.out..][..projection.out], self.room);
            }
        }
    }

    fn linear_each(&mut self, projections: &[Arc<Projection>], rows: &[usize], x: &[f32], y: &mut [f32]) {
        self.backend.linear_each(projections, rows, x, y);
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

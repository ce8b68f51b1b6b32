//! The product of a projection with one row of activations, by all threads.

use std::ops::Range;
use std::sync::Arc;

use load::{Pool, Race, Task};
use quant::{Activations, ColumnsMut, Isa};

use super::cpu::{FeatureRange, Kernels, PARTS};
use crate::weights::{Linear, Projection};

/// Bytes of weights that one item reads, about: some microseconds, so that a thread that is stopped holds little, and memory is
/// still read in long runs.
const ITEM: usize = 256 << 10;

/// Products that are run one after the other.
pub(super) struct Products {
    /// One per thread: each of the other threads may have been preempted in one race, and one is left.
    races: Vec<Arc<Race<Product>>>,
}

/// One product.
struct Product {
    isa: Isa,
    kernels: Arc<Kernels>,
    threads: usize,
    projection: Option<Arc<Projection>>,
    activations: Activations,
    /// Which part of the projection, which features of it, and where in the result these are.
    items: Vec<(usize, Range<usize>, usize)>,
}

impl Products {
    /// For all of `projections`: nothing is allocated later.
    pub(super) fn new<'a>(
        threads: usize,
        isa: Isa,
        kernels: &Arc<Kernels>,
        projections: impl Iterator<Item = &'a Projection>,
    ) -> Products {
        let (mut widest, mut values) = (0, 0);
        for projection in projections {
            widest = widest.max(projection.input);
            values = values.max(step(projection, kernels, threads));
        }
        let race = || {
            let activations = Activations::new(1, widest);
            let items = Vec::with_capacity(PARTS);
            let kernels = Arc::clone(kernels);
            let product = Product { isa, kernels, threads, projection: None, activations, items };
            Arc::new(Race::new(product, threads, PARTS, values))
        };
        Products { races: (0..threads).map(|_| race()).collect() }
    }

    /// `y = W x + b` for every part of the projection.
    pub(super) fn run(&mut self, pool: &mut Pool, projection: &Arc<Projection>, x: &[f32], y: &mut [f32]) {
        // A worker that is preempted in a race holds that one until it goes on, and none of the others.
        let race = loop {
            if let Some(free) = self.races.iter_mut().find(|race| Arc::strong_count(race) == 1) {
                break free;
            }
            std::thread::yield_now();
        };
        if let Some(race) = Arc::get_mut(race) {
            race.task_mut().set(projection, x);
        }
        pool.race(race, y);
    }
}

impl Product {
    fn set(&mut self, projection: &Arc<Projection>, x: &[f32]) {
        self.activations.fill(self.isa, x, 1, projection.input, self.kernels.forms(projection));
        let step = step(projection, &self.kernels, self.threads);
        self.items.clear();
        let mut first = 0;
        for (part, linear) in projection.parts.iter().enumerate() {
            let starts = (0..linear.out).step_by(step);
            self.items.extend(starts.map(|at| (part, at..(at + step).min(linear.out), first + at)));
            first += linear.out;
        }
        self.projection = Some(Arc::clone(projection));
    }
}

impl Task for Product {
    fn items(&self) -> usize {
        self.items.len()
    }

    fn place(&self, i: usize) -> Range<usize> {
        let (_, features, at) = &self.items[i];
        *at..at + features.len()
    }

    fn run(&self, i: usize, out: &mut [f32]) {
        let (part, features, _) = &self.items[i];
        let Some(linear) = self.projection.as_ref().and_then(|p| p.parts.get(*part)) else { return };
        let y = ColumnsMut::new(out, 1, features.len());
        let kernel = self.kernels.of(linear);
        FeatureRange { linear, kernel, features: features.clone(), y }.run(
            self.isa,
            &self.activations,
            &mut [0.0; 16],
        );
    }
}

/// Features that one item makes: all threads get as many items of equal size if none is held up.
fn step(projection: &Projection, kernels: &Kernels, threads: usize) -> usize {
    // A part that ends within an item costs one more.
    let most = PARTS - projection.parts.len().min(PARTS - 1);
    let bytes = |linear: &Linear| linear.weight.planes().iter().map(|plane| plane.len()).sum::<usize>();
    let bytes: usize = projection.parts.iter().map(bytes).sum();
    let items = (bytes / ITEM).max(1).next_multiple_of(threads).min(most);
    let grain = projection.parts.iter().fold(16, |grain, part| grain.max(kernels.of(part).grain));
    projection.out.div_ceil(items).next_multiple_of(grain)
}

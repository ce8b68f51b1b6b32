//! The product of a projection with one row of activations, by all threads.

use std::ops::Range;
use std::sync::Arc;

use load::{Pool, Race, Task};
use quant::{Activations, ColumnsMut, Isa};

use super::kernels::{FeatureRange, Kernels, PARTS};
use crate::weights::{Linear, Projection};

/// Bytes of weights that one item reads, about: some microseconds, so that a thread that is stopped holds little, and memory is
/// still read in long runs.
const ITEM: usize = 256 << 10;

/// Products that one race makes at most, of a row each.
const TOGETHER: usize = 16;

/// Products of single rows. Those of one race are made at the same time, and races one after the other.
pub(super) struct Products {
    /// One per thread: each of the other threads may have been preempted in one race, and one is left.
    races: Vec<Arc<Race<Product>>>,
    /// Products that a race has room for.
    together: usize,
}

/// Some products.
struct Product {
    isa: Isa,
    kernels: Arc<Kernels>,
    threads: usize,
    /// The projections, and where the results of each begin.
    projections: Vec<(Arc<Projection>, usize)>,
    /// The row that each is multiplied with.
    rows: Vec<Activations>,
    items: Vec<Item>,
}

/// Some features of one part of a projection.
struct Item {
    /// Which of the products.
    product: usize,
    /// Which part of its projection.
    part: usize,
    features: Range<usize>,
    /// Where they are in the result.
    at: usize,
}

impl Products {
    /// For all of `projections`, of which `each` run together in groups, each with `features` results at most: nothing is
    /// allocated later.
    pub(super) fn new<'a>(
        threads: usize,
        isa: Isa,
        kernels: &Arc<Kernels>,
        projections: impl Iterator<Item = &'a Projection>,
        (each, features): (usize, usize),
    ) -> Products {
        let (mut widest, mut values) = (0, features);
        let together = each.clamp(1, TOGETHER);
        for projection in projections {
            widest = widest.max(projection.input);
            values = values.max(step(projection, kernels, bytes(projection), threads));
        }
        let race = || {
            let rows = (0..together).map(|_| Activations::new(1, widest)).collect();
            let (projections, items) = (Vec::with_capacity(together), Vec::with_capacity(PARTS));
            let kernels = Arc::clone(kernels);
            let product = Product { isa, kernels, threads, projections, rows, items };
            Arc::new(Race::new(product, threads, PARTS, values))
        };
        Products { races: (0..threads).map(|_| race()).collect(), together }
    }

    /// `y = W x + b` for every part of the projection.
    pub(super) fn run(&mut self, pool: &mut Pool, projection: &Arc<Projection>, x: &[f32], y: &mut [f32]) {
        self.race(pool, y, |product| product.add(projection, x, 0));
    }

    /// The product of each of `projections` that has a single row among `rows`, as
    /// [`Backend::linear_each`](super::Backend::linear_each) has it.
    pub(super) fn run_each(
        &mut self,
        pool: &mut Pool,
        projections: &[Arc<Projection>],
        rows: &[usize],
        x: &[f32],
        y: &mut [f32],
    ) {
        let starts = rows.iter().scan(0, |next, rows| Some(std::mem::replace(next, *next + rows)));
        let single = projections.iter().zip(starts).zip(rows).filter(|(_, rows)| **rows == 1);
        let mut single = single.map(|(product, _)| product).peekable();
        while single.peek().is_some() {
            let together = self.together;
            self.race(pool, y, |product| {
                for (projection, row) in single.by_ref().take(together) {
                    product.add(
                        projection,
                        &x[row * projection.input..][..projection.input],
                        row * projection.out,
                    );
                }
            });
        }
    }

    fn race(&mut self, pool: &mut Pool, y: &mut [f32], set: impl FnOnce(&mut Product)) {
        // A worker that is preempted in a race holds that one until it goes on, and none of the others.
        let race = loop {
            if let Some(free) = self.races.iter_mut().find(|race| Arc::strong_count(race) == 1) {
                break free;
            }
            std::thread::yield_now();
        };
        if let Some(race) = Arc::get_mut(race) {
            let product = race.task_mut();
            product.projections.clear();
            product.items.clear();
            set(product);
            product.cut();
        }
        pool.race(race, y);
    }
}

impl Product {
    /// The product of `projection` with `x`, a row, whose results go to the places from `at` on.
    fn add(&mut self, projection: &Arc<Projection>, x: &[f32], at: usize) {
        let n = self.projections.len();
        self.rows[n].fill(self.isa, x, 1, projection.input, self.kernels.forms(projection));
        self.projections.push((Arc::clone(projection), at));
    }

    /// Cuts the products into items of about one size.
    fn cut(&mut self) {
        let bytes = self.projections.iter().map(|(projection, _)| bytes(projection)).sum();
        for (product, (projection, at)) in self.projections.iter().enumerate() {
            let step = step(projection, &self.kernels, bytes, self.threads);
            let mut first = *at;
            for (part, linear) in projection.parts.iter().enumerate() {
                let cuts = (0..linear.out).step_by(step);
                let item = |at: usize| Item {
                    product,
                    part,
                    features: at..(at + step).min(linear.out),
                    at: first + at,
                };
                self.items.extend(cuts.map(item));
                first += linear.out;
            }
        }
    }
}

impl Task for Product {
    fn items(&self) -> usize {
        self.items.len()
    }

    fn place(&self, i: usize) -> Range<usize> {
        let Item { features, at, .. } = &self.items[i];
        *at..at + features.len()
    }

    fn run(&self, i: usize, out: &mut [f32]) {
        let Item { product, part, features, .. } = &self.items[i];
        let (linear, x) = (&self.projections[*product].0.parts[*part], &self.rows[*product]);
        let y = ColumnsMut::new(out, 1, features.len());
        let kernel = self.kernels.of(linear);
        FeatureRange { linear, kernel, features: features.clone(), is_biased: true, y }.run(
            self.isa,
            x,
            &mut [0.0; 16],
        );
    }
}

/// Bytes of all matrices of a projection.
fn bytes(projection: &Projection) -> usize {
    let of = |linear: &Linear| linear.weight.planes().iter().map(|plane| plane.len()).sum::<usize>();
    projection.parts.iter().map(of).sum()
}

/// Features that one item makes where up to [`TOGETHER`] projections of one size, `all` bytes together, are multiplied: all threads
/// get as many items of equal size if none is held up.
fn step(projection: &Projection, kernels: &Kernels, all: usize, threads: usize) -> usize {
    let own = bytes(projection);
    let products = all.checked_div(own).unwrap_or(1).max(1);
    // A part that ends within an item costs one more.
    let most = PARTS / products;
    let most = most - projection.parts.len().min(most - 1);
    let items = (all / ITEM).max(1).next_multiple_of(threads).div_ceil(products).min(most);
    let grain = projection.parts.iter().fold(16, |grain, part| grain.max(kernels.of(part).grain));
    projection.out.div_ceil(items).next_multiple_of(grain)
}

//! The kernels of a model's matrices.

use std::ops::Range;
use std::sync::Arc;

use quant::{Access, Activations, ColumnsMut, Forms, Isa, Kernel, Matrix, vector};
use tensor::Scheme;

use crate::Error;
use crate::weights::{Linear, Projection};

/// Parts of one fork-join at most.
pub(super) const PARTS: usize = 128;

/// The kernels of a model, by scheme name: it has a handful.
pub(super) struct Kernels(Vec<(Arc<Scheme>, Kernel)>);

impl Kernels {
    pub(super) fn new<'a>(
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
                        quant::kernel_with(scheme, isa, access.way(scheme)).ok_or_else(none)?,
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
    pub(super) fn cuts(&self, projection: &Projection, threads: usize) -> impl Iterator<Item = usize> {
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

    /// The products of `x` with the features of a projection from `first` on, as many as `y` has columns. `padded` has room for a group of
    /// every row. Of what codes leave out (`is_beyond`): those of matrices that read codes alone, without biases; others are 0.
    pub(super) fn product(
        &self,
        isa: Isa,
        (projection, is_beyond): (&Projection, bool),
        first: usize,
        x: &Activations,
        padded: &mut [f32],
        y: ColumnsMut<'_>,
    ) {
        let (mut left, mut start) = (y, 0);
        let last = first + left.columns();
        for linear in &projection.parts {
            let all = start..start + linear.out;
            start = all.end;
            let (from, to) = (first.max(all.start), last.min(all.end));
            if from >= to {
                continue;
            }
            let (mut y, others) = left.split_at(to - from);
            left = others;
            let kernel = self.of(linear);
            if is_beyond && !kernel.forms.int8 {
                (0..x.rows()).for_each(|t| y.row_mut(t).fill(0.0));
                continue;
            }
            let features = from - all.start..to - all.start;
            FeatureRange { linear, kernel, features, is_biased: !is_beyond, y }.run(isa, x, padded);
        }
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
    /// True if biases are added to the product.
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

//! One way of rows through the layers.

use std::ops::Range;

use crate::layer::{Branch, Pass, Room, Routes};
use crate::stream::Stream;
use crate::{Error, Model};

/// The buffers of a pass: row-major f32, for as many rows as it may have.
pub(crate) struct Buffers {
    /// The residual stream: `[rows, hidden]`.
    pub(crate) x: Vec<f32>,
    /// Normed: `[rows, hidden]`.
    pub(crate) h: Vec<f32>,
    /// Output of a layer, added to the residual: `[rows, hidden]`.
    pub(crate) added: Vec<f32>,
    /// Results of branches beside each other, until the last of them: `[rows, hidden]`, if the model has such branches.
    pub(crate) beside: Vec<f32>,
    /// Results of projections.
    pub(crate) wide: Vec<f32>,
    /// Inputs of projections.
    pub(crate) narrow: Vec<f32>,
    /// Experts of rows.
    pub(crate) routes: Routes,
}

impl Buffers {
    /// Room for `rows` rows of `model`.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub(crate) fn new(model: &Model, rows: usize) -> Result<Buffers, Error> {
        let beside = model.branches().iter().any(|branch| branch.parallel);
        Buffers::of(model.hidden(), model.room(), beside, rows)
    }

    /// Room for `rows` rows of `hidden` elements; `beside`: of branches beside each other.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub(crate) fn of(hidden: usize, room: Room, beside: bool, rows: usize) -> Result<Buffers, Error> {
        let zeros = |n: usize| rows.checked_mul(n).map(|n| vec![0f32; n]).ok_or(Error::TooLarge);
        Ok(Buffers {
            x: zeros(hidden)?,
            h: zeros(hidden)?,
            added: zeros(hidden)?,
            beside: zeros(if beside { hidden } else { 0 })?,
            wide: zeros(room.wide)?,
            narrow: zeros(room.narrow)?,
            routes: Routes::new(rows, room.used, room.experts),
        })
    }
}

/// Takes the residual stream `x` of a pass through those of `branches` that are in `run`; `h`, `added` and `beside` are room, as [`Buffers`] has it.
pub(crate) fn layers(
    branches: &[Branch],
    run: Range<usize>,
    stream: Option<&Stream>,
    pass: &mut Pass<'_>,
    [mut x, mut h, added]: [&mut [f32]; 3],
    beside: &mut [f32],
) {
    let is_parallel = |n: usize| branches.get(n).is_some_and(|branch| branch.parallel);
    let mut is_swapped = false;
    for (n, branch) in branches.iter().enumerate().take(run.end).skip(run.start) {
        pass.sequences.branch = n;
        let input = match &branch.norm {
            Some(norm) => {
                pass.backend.norm(norm, x, h);
                &*h
            }
            None => &*x,
        };
        during(stream, n, || branch.layer.run(pass, input, added));
        let result = match &branch.post_norm {
            Some(post) => {
                pass.backend.norm(post, added, h);
                &*h
            }
            None => &*added,
        };
        match (is_parallel(n), is_parallel(n + 1)) {
            (false, false) => pass.backend.add(x, result, branch.scale),
            (is_later, true) => {
                let beside = &mut beside[..x.len()];
                if !is_later {
                    beside.fill(0.0);
                }
                pass.backend.add(beside, result, branch.scale);
            }
            (true, false) => {
                pass.backend.add(x, &beside[..x.len()], 1.0);
                pass.backend.add(x, result, branch.scale);
            }
        }
        if let Some(norm) = &branch.sum_norm {
            pass.backend.norm(norm, x, h);
            std::mem::swap(&mut x, &mut h);
            is_swapped = !is_swapped;
        }
    }
    if is_swapped {
        h.copy_from_slice(x);
    }
}

/// Runs `run`, which uses the weights of unit `unit`, while these are in memory.
pub(crate) fn during(stream: Option<&Stream>, unit: usize, run: impl FnOnce()) {
    match stream {
        Some(stream) => stream.during(unit, run),
        None => run(),
    }
}

//! Products of any scheme that can be decoded: a few rows at a time become floats, which are multiplied.

use std::cell::RefCell;

use crate::codec::{Codec, Matrix};

use super::blocks::Job;
use super::floats::{F32, floats_of};

/// Rows that are decoded at once: enough to share the activations, few enough to stay in the cache.
const ROWS: usize = 16;

thread_local! {
    /// The rows that are floats at the moment. It grows to the widest matrix, once.
    static FLOATS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// How to multiply a scheme that has no arithmetic of its own.
#[derive(Clone, Copy)]
pub(super) struct Decoded {
    codec: &'static dyn Codec,
    run: unsafe fn(&mut Job<'_>),
}

impl Decoded {
    pub(super) fn of(codec: &'static dyn Codec, isa: crate::Isa) -> Decoded {
        Decoded { codec, run: floats_of::<F32>(isa) }
    }

    /// Multiplies rows `rows` of `w` as [`super::Kernel::run`] does.
    ///
    /// # Safety
    /// The instructions of the `Isa` are there; the sizes fit each other.
    pub(super) unsafe fn run(&self, w: Matrix<'_>, job: Job<'_>) {
        let Job { k, rows, x, mut y, way, .. } = job;
        FLOATS.with_borrow_mut(|floats| {
            floats.resize(floats.len().max(ROWS * k), 0.0);
            for first in rows.clone().step_by(ROWS) {
                let some = first..rows.end.min(first + ROWS);
                let floats = &mut floats[..some.len() * k];
                self.codec.decode(w, some.clone(), floats);
                // SAFETY: floats are bytes without gaps.
                let bytes = unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), 4 * floats.len()) };
                let (_, part) = y.reborrow().split_at(first - rows.start);
                let (y, _) = part.split_at(some.len());
                let total = some.len();
                let mut job = Job { w: [bytes, &[], &[]], total, k, rows: 0..total, x, y, way };
                // SAFETY: as this function; there are `total` rows of `k` floats.
                unsafe { (self.run)(&mut job) }
            }
        });
    }
}

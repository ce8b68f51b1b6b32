//! The two factors of one change.

use std::sync::Arc;

use crate::factors::Factor;

/// The factors of the change of one matrix.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// The tensor of the model that it changes, as the adapter's ecosystem calls it.
    pub(crate) name: String,
    /// Values of a row of `a`, rows of it, and rows of `b`.
    pub(crate) inputs: usize,
    pub(crate) rank: usize,
    pub(crate) outputs: usize,
    /// `[rank, inputs]`.
    pub(crate) a: Arc<[f32]>,
    /// `[outputs, rank]`.
    pub(crate) b: Arc<[f32]>,
    /// What the product is multiplied by.
    pub(crate) scale: f32,
    /// `[outputs, inputs]`: takes the place of the model's own matrix.
    pub(crate) base: Option<Arc<[f32]>>,
}

impl Pair {
    /// Everything that the change depends on.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for n in [self.inputs, self.rank, self.outputs] {
            hasher.update(&(n as u64).to_le_bytes());
        }
        hasher.update(&self.scale.to_le_bytes());
        for factor in [&self.a, &self.b].into_iter().chain(&self.base) {
            hasher.update(bytemuck::cast_slice(factor));
        }
        *hasher.finalize().as_bytes()
    }
}

impl Pair {
    /// The matrix called `name` as a whole, without factors.
    pub(crate) fn replacing(name: String, with: Factor) -> Pair {
        let Factor { rows, columns, values, .. } = with;
        let none: Arc<[f32]> = Arc::from([]);
        let (a, b) = (Arc::clone(&none), none);
        Pair { name, inputs: columns, rank: 0, outputs: rows, a, b, scale: 0.0, base: Some(values) }
    }
}

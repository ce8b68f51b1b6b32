//! The change of a tensor as a stage of a plan.

use std::sync::Arc;

use tensor::{Dtype, Scheme, Shape, Stage, StageInput};

use crate::LowRank;

/// Adds the change of an adapter to a matrix of f32, a band of rows at a time.
#[derive(Debug)]
pub struct Merge {
    low_rank: LowRank,
    /// The adapter, for people.
    adapter: String,
}

impl Merge {
    /// The stage's name.
    pub const NAME: &'static str = "lora";

    /// Adds `low_rank`, which `adapter` is the origin of.
    pub fn new(low_rank: LowRank, adapter: impl Into<String>) -> Merge {
        Merge { low_rank, adapter: adapter.into() }
    }
}

impl Stage for Merge {
    fn name(&self) -> &'static str {
        Merge::NAME
    }

    fn identity(&self) -> Vec<u8> {
        self.low_rank.identity()
    }

    fn takes(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn gives(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn loses(&self) -> Option<String> {
        let adapter = &self.adapter;
        Some(match self.low_rank.rank() {
            0 => format!("the adapter `{adapter}` replaces it"),
            rank => format!("the adapter `{adapter}` of rank {rank} is added"),
        })
    }

    fn fits(&self, shape: &Shape) -> Result<(), String> {
        let own = self.low_rank.shape().map(|n| n as u64);
        if **shape == own { Ok(()) } else { Err(format!("it changes a matrix of {}", Shape::from(own))) }
    }

    fn apply(&self, input: StageInput<'_>, planes: &mut [&mut [u8]]) -> Result<(), String> {
        let ([from], [to]) = (input.planes, planes) else { return Err("wanted one plane of f32".to_owned()) };
        to.copy_from_slice(from);
        let mut sums = vec![0.0; input.k];
        let values: &mut [f32] = bytemuck::cast_slice_mut(to);
        for (row, values) in values.chunks_exact_mut(input.k.max(1)).enumerate() {
            self.low_rank.change(input.first + row, values, &mut sums);
        }
        Ok(())
    }
}

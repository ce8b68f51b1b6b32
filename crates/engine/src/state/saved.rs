//! The state of a layer as tensors of a file, and back.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tensor::Dtype;

use super::{Recurrent, State, StateSnapshot};

/// A tensor of the state of a layer: rows of one length.
pub(crate) struct SavedTensor<'a> {
    /// Its name among those of its layer.
    pub(crate) name: &'static str,
    /// U32 or F32.
    pub(crate) dtype: Dtype,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// Its words, in order.
    pub(crate) parts: Vec<&'a [u32]>,
}

/// The positions that the tensors of a layer are of: how many were left out, how many of those there were kept of a prompt, the first page
/// without codes, and the first with codes.
pub(crate) type SavedPlaces = [u64; 4];

/// A file, as the states of layers read it.
pub(crate) trait SavedState {
    /// The error of a read.
    type Error;

    /// Reads the rows of a tensor, each of `width` words: as many as `count` says. A tensor that is not there has none.
    ///
    /// # Errors
    /// If the tensor is another one, or cannot be read.
    fn rows(
        &mut self,
        name: &str,
        width: usize,
        count: RangeInclusive<usize>,
    ) -> Result<Vec<Vec<u32>>, Self::Error>;

    /// The error that `what` is wrong.
    fn wrong(&self, what: &str) -> Self::Error;
}

/// The numbers of linear attention.
const NUMBERS: &str = "numbers";

impl StateSnapshot {
    /// The tensors that it consists of. `None` if it is of a sound, which no file keeps.
    pub(crate) fn tensors(&self) -> Option<Vec<SavedTensor<'_>>> {
        let tensors = match self {
            StateSnapshot::None => vec![],
            StateSnapshot::Kv(kv) => kv.tensors().into(),
            StateSnapshot::Recurrent(state) => {
                let parts = vec![bytemuck::cast_slice(state.numbers())];
                vec![SavedTensor { name: NUMBERS, dtype: Dtype::F32, rows: 1, parts }]
            }
            StateSnapshot::Heard(_) => return None,
        };
        Some(tensors.into_iter().filter(|tensor| tensor.rows > 0).collect())
    }

    /// The positions that they are of.
    pub(crate) fn places(&self) -> SavedPlaces {
        match self {
            StateSnapshot::Kv(kv) => kv.places(),
            _ => SavedPlaces::default(),
        }
    }
}

impl State {
    /// Reads the state of this layer after `position` positions, to be [restored](Self::restore) in sessions like this one's.
    ///
    /// # Errors
    /// If `saved` has not what such a state consists of.
    pub(crate) fn read<S: SavedState>(
        &self,
        position: usize,
        places: SavedPlaces,
        saved: &mut S,
    ) -> Result<StateSnapshot, S::Error> {
        match self {
            State::None => Ok(StateSnapshot::None),
            State::Heard(_) => Err(saved.wrong("its model hears, and no file keeps a sound")),
            State::Kv(cache) => Ok(StateSnapshot::Kv(cache.read(position, places, saved)?)),
            State::Recurrent(state) => {
                let rows = saved.rows(NUMBERS, state.numbers().len(), 1..=1)?;
                let numbers = rows.iter().flat_map(|row| row.iter().map(|word| f32::from_bits(*word)));
                Ok(StateSnapshot::Recurrent(Arc::new(Recurrent::after(position, numbers.collect()))))
            }
        }
    }
}

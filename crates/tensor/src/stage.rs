//! Changes of rows that are defined outside.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Scheme, Shape};

/// The part of a matrix that a stage changes.
#[derive(Clone, Copy, Debug)]
pub struct StageInput<'a> {
    /// The planes of this part, in the order of the scheme.
    pub planes: &'a [&'a [u8]],
    /// Its first row of the whole matrix; its first column, where bands are of columns.
    pub first: usize,
    /// How many rows.
    pub rows: usize,
    /// Values of a row.
    pub k: usize,
    /// Rows of the whole matrix, and values of a row of it.
    pub whole: [usize; 2],
}

/// The direction in which a matrix is cut into bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Bands of whole rows.
    #[default]
    Rows,
    /// Bands of whole columns: where planes have the columns of a matrix as their slowest axis.
    Columns,
}

/// A change of a tensor that somebody defines who uses this library: after all movement, a band at a time, on any thread.
pub trait Stage: fmt::Debug + Send + Sync {
    /// Its name, which plans show.
    fn name(&self) -> &str;

    /// All that its results depend on but its name, its schemes and the values: a part of the digests of plans.
    fn identity(&self) -> Vec<u8>;

    /// The scheme that it takes. What is stored in another is re-encoded before.
    fn takes(&self) -> Arc<Scheme>;

    /// The scheme that it gives, for the same shape.
    fn gives(&self) -> Arc<Scheme>;

    /// Why values change; `None` if they do not.
    fn loses(&self) -> Option<String>;

    /// Checks a tensor.
    ///
    /// # Errors
    /// Why the stage cannot change a tensor of this shape.
    fn fits(&self, shape: &Shape) -> Result<(), String>;

    /// The bands that it gets: of rows, or of columns. Beside changes that get bands of the other kind, it gets whole matrices.
    fn lines(&self) -> Lines {
        Lines::Rows
    }

    /// It gets multiples of this many rows or columns, and the last ones of a matrix; `u64::MAX` for all of a matrix together.
    fn unit(&self) -> u64 {
        1
    }

    /// Changes a band to `planes`, one for each plane of the scheme that it gives, as long as the scheme says for `[rows, k]`.
    ///
    /// # Errors
    /// Why these values cannot be changed, where the shape does not show it.
    fn apply(&self, input: StageInput<'_>, planes: &mut [&mut [u8]]) -> Result<(), String>;
}

/// A shared stage. Two are equal if they are one object, or have the same name, schemes and identity.
#[derive(Clone, Debug)]
pub struct SharedStage(Arc<dyn Stage>);

impl SharedStage {
    /// Shares `stage`.
    pub fn new(stage: impl Stage + 'static) -> SharedStage {
        SharedStage(Arc::new(stage))
    }
}

impl Deref for SharedStage {
    type Target = dyn Stage;

    fn deref(&self) -> &(dyn Stage + 'static) {
        &*self.0
    }
}

impl PartialEq for SharedStage {
    fn eq(&self, other: &SharedStage) -> bool {
        let own = |stage: &SharedStage| (stage.takes(), stage.gives(), stage.identity());
        Arc::ptr_eq(&self.0, &other.0) || (self.name() == other.name() && own(self) == own(other))
    }
}

impl Eq for SharedStage {}

//! What a checkpoint holds, by name.

use std::ops::Range;
use std::sync::Arc;

use crate::{Scheme, Shape};

/// One file of a checkpoint, as an index into its list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Where the bytes of one plane lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneData {
    /// The file that holds them.
    pub file: FileId,
    /// Byte range from the start of that file. Always inside it, and exactly as long as the scheme says; for a
    /// tensor with [`TensorEntry::strides`], from its first element to the end of its last.
    pub bytes: Range<u64>,
}

/// One tensor of a checkpoint: its name there, its logical shape, and where its planes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The name in the checkpoint.
    pub name: String,
    /// Logical shape, slowest axis first.
    pub shape: Shape,
    /// How it is stored.
    pub scheme: Arc<Scheme>,
    /// One for each plane of `scheme`, in its order.
    pub planes: Vec<PlaneData>,
    /// For a plain scheme whose elements do not lie one after another: elements from one step of each axis to
    /// the next, as PyTorch counts them. 0 repeats an element, and several names may share some. `None`, as
    /// almost always: dense, in row-major order.
    pub strides: Option<Vec<u64>>,
}

impl TensorEntry {
    /// Bytes of all planes together, as they lie in the file: those of a strided tensor have gaps, or stand
    /// for several elements.
    pub fn byte_len(&self) -> u64 {
        self.planes.iter().map(|p| p.bytes.end - p.bytes.start).sum()
    }
}

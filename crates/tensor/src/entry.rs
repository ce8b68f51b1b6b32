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
    /// Byte range from the start of that file. Always inside it, and exactly as long as the scheme says.
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
}

impl TensorEntry {
    /// Bytes of all planes together.
    pub fn byte_len(&self) -> u64 {
        self.planes.iter().map(|p| p.bytes.end - p.bytes.start).sum()
    }
}

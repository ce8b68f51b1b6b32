//! The size of a pass.

/// Rows that one pass takes through the layers at most: prompts go in passes of this.
pub const BATCH: usize = 256;

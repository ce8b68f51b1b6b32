//! Parts of a file around its tensors that are known only once the tensors are.

/// The parts of a file that depend on the bytes of its tensors.
pub(crate) trait Frame: Send {
    /// Returns the bytes right before the first plane of tensor `index`, given its planes. Tensors come in order.
    fn lead(&mut self, index: usize, planes: &[&[u8]]) -> Vec<u8>;

    /// The end of the file, once all tensors are known.
    fn tail(&self) -> Vec<u8>;
}

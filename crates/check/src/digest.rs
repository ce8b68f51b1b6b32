//! BLAKE3 of long tensors, leaf by leaf, on any thread.
//!
//! BLAKE3 is a tree: the digest of a long input is made from those of its parts, if these are cut at a power of two. So
//! the result equals that of any other BLAKE3 over the concatenated bytes, and no thread needs more than one leaf.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{Hash, Hasher};

/// Bytes of a leaf: a power of two.
pub(crate) const LEAF: u64 = 1 << 20;

/// Of one leaf of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaf {
    /// It is the whole input.
    Whole(Hash),
    /// It is a part.
    Part(ChainingValue),
}

impl Leaf {
    /// Number of leaves of an input of `len` bytes, at least 1.
    pub(crate) fn count(len: u64) -> u64 {
        len.div_ceil(LEAF).max(1)
    }

    /// Leaf `index` of an input of `len` bytes.
    pub(crate) fn of(bytes: &[u8], index: u64, len: u64) -> Leaf {
        Leaf::at(bytes, index, len, LEAF)
    }

    /// Part `index` of an input of `len` bytes that is cut at multiples of `unit`, a power of two.
    pub(crate) fn at(bytes: &[u8], index: u64, len: u64, unit: u64) -> Leaf {
        if len <= unit {
            return Leaf::Whole(blake3::hash(bytes));
        }
        let mut hasher = Hasher::new();
        Leaf::Part(hasher.set_input_offset(index * unit).update(bytes).finalize_non_root())
    }
}

/// The digest of an input from all its leaves in order; `None` if there is none.
pub(crate) fn join(leaves: &[Leaf]) -> Option<Hash> {
    match leaves {
        [] | [Leaf::Part(_)] => None,
        [Leaf::Whole(hash)] => Some(*hash),
        _ => {
            let (left, right) = leaves.split_at(left(leaves.len()));
            Some(merge_subtrees_root(&subtree(left)?, &subtree(right)?, Mode::Hash))
        }
    }
}

/// Leaves of a part of a longer input. Depth is the logarithm of their number.
pub(crate) fn subtree(leaves: &[Leaf]) -> Option<ChainingValue> {
    match leaves {
        [Leaf::Part(value)] => Some(*value),
        [] | [Leaf::Whole(_)] => None,
        _ => {
            let (left, right) = leaves.split_at(left(leaves.len()));
            Some(merge_subtrees_non_root(&subtree(left)?, &subtree(right)?, Mode::Hash))
        }
    }
}

/// Leaves on the left of a tree of `count`, at least 2: the largest power of two that leaves some for the right.
fn left(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_give_what_the_whole_gives() {
        let leaf = usize::try_from(LEAF).unwrap();
        for len in [0, 1, leaf - 1, leaf, leaf + 1, 2 * leaf, 3 * leaf + 5, 4 * leaf, 7 * leaf - 3] {
            let bytes: Vec<u8> = (0..len).map(|i| ((i * i) >> 7).to_le_bytes()[0]).collect();
            let mut leaves: Vec<Leaf> =
                bytes.chunks(leaf).zip(0..).map(|(part, index)| Leaf::of(part, index, len as u64)).collect();
            if len == 0 {
                leaves.push(Leaf::of(&[], 0, 0));
            }
            assert_eq!(leaves.len() as u64, Leaf::count(len as u64));
            assert_eq!(join(&leaves), Some(blake3::hash(&bytes)), "{len} bytes");
        }
    }
}

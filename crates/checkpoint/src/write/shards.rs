//! Which tensors go into which file, where one would be too long.

use std::ops::Range;

/// Where GGUF is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The most bytes of tensors in a file. A larger tensor gets a file of its own.
    Bytes(u64),
    /// The most tensors in a file.
    Tensors(u64),
}

/// Cuts a list of tensors, given by their bytes, where one more would exceed `most`.
///
/// As mlx_lm/utils.py of mlx-lm 0.32, `make_shards`, and tools/gguf-split/gguf-split.cpp of llama.cpp@0c1e57098,
/// `should_split`, which ends where a single tensor is longer: here it gets a file.
pub(crate) fn in_order(sizes: &[u64], most: u64) -> Vec<Range<usize>> {
    let (mut shards, mut start, mut held) = (vec![], 0, 0u64);
    for (i, size) in sizes.iter().enumerate() {
        if i > start && held.checked_add(*size).is_none_or(|n| n > most) {
            shards.push(start..i);
            (start, held) = (i, 0);
        }
        held = held.saturating_add(*size);
    }
    if start < sizes.len() || shards.is_empty() {
        shards.push(start..sizes.len());
    }
    shards
}

/// The same, but a tensor of over `most` bytes gets a file of its own and the one that was begun goes on after it.
///
/// As huggingface_hub 2.4 does it (serialization/_base.py, `split_state_dict_into_shards_factory`).
pub(crate) fn set_apart(sizes: &[u64], most: u64) -> Vec<Vec<usize>> {
    let (mut shards, mut current, mut held) = (vec![], vec![], 0u64);
    for (i, size) in sizes.iter().enumerate() {
        if *size > most {
            shards.push(vec![i]);
            continue;
        }
        if held.checked_add(*size).is_none_or(|n| n > most) {
            shards.push(std::mem::take(&mut current));
            held = 0;
        }
        current.push(i);
        held = held.saturating_add(*size);
    }
    if !current.is_empty() || shards.is_empty() {
        shards.push(current);
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_cut_in_order() {
        let cut = |sizes: &[u64], most| -> Vec<(usize, usize)> {
            in_order(sizes, most).into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(cut(&[6, 6, 2, 6, 2, 2], 10), [(0, 1), (1, 3), (3, 6)]);
        assert_eq!(cut(&[11, 1, 12, 1], 10), [(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert_eq!(cut(&[0, 0, 0], 0), [(0, 3)]);
        assert_eq!(cut(&[], 10), [(0, 0)]);
        assert_eq!(cut(&[u64::MAX, u64::MAX, 1], u64::MAX), [(0, 1), (1, 2), (2, 3)]);
    }

    /// The first is the example of the reference's own documentation.
    #[test]
    fn larger_tensors_are_set_apart() {
        assert_eq!(set_apart(&[6, 6, 2, 6, 2, 2], 10), [vec![0], vec![1, 2], vec![3, 4, 5]]);
        assert_eq!(set_apart(&[4, 11, 4, 4, 12], 10), [vec![1], vec![0, 2], vec![4], vec![3]]);
        assert_eq!(set_apart(&[11], 10), [vec![0]]);
        assert_eq!(set_apart(&[], 10), [Vec::<usize>::new()]);
    }
}

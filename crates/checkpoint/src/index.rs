//! Finding things by name, and finding names that are there twice.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// A table of names that are kept elsewhere: it holds their hashes and positions only. Seeded, so that no
/// file can choose names that collide.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameIndex {
    table: HashTable<(u64, u32)>,
    seed: RandomState,
}

impl NameIndex {
    /// Adds position `id`. If its name is there already, returns the position of the first and adds nothing.
    ///
    /// `name_of` gives the name at a position.
    pub(crate) fn insert<'a>(&mut self, id: u32, name_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        let name = name_of(id);
        let hash = self.seed.hash_one(name);
        let same = |&(h, other): &(u64, u32)| h == hash && name_of(other) == name;
        if let Some(&(_, first)) = self.table.find(hash, same) {
            return Some(first);
        }
        self.table.insert_unique(hash, (hash, id), |&(hash, _)| hash);
        None
    }

    /// The position of `name`.
    pub(crate) fn find<'a>(&self, name: &[u8], name_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        let hash = self.seed.hash_one(name);
        let same = |&(h, other): &(u64, u32)| h == hash && name_of(other) == name;
        self.table.find(hash, same).map(|&(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_and_the_first_of_two_equal_ones() {
        let names = ["a", "b", "a", ""].map(str::as_bytes);
        let name_of = |i: u32| names[i as usize];
        let mut index = NameIndex::default();
        assert_eq!((0..4).map(|i| index.insert(i, name_of)).collect::<Vec<_>>(), [None, None, Some(0), None]);
        assert_eq!(index.find(b"b", name_of), Some(1));
        assert_eq!(index.find(b"", name_of), Some(3));
        assert_eq!(index.find(b"c", name_of), None);
    }
}

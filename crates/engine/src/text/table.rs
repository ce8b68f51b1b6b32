//! Lists and tables in flat bytes: built once, then used as they are, in memory or read back from a file.
//!
//! Nothing here trusts its bytes: an index that is out of range finds nothing.

use std::ops::Range;
use std::sync::Arc;

/// A part of bytes that others may share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    all: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Shared {
    /// `None` if `range` is not in `all`.
    pub(super) fn part(all: &Arc<Vec<u8>>, range: Range<usize>) -> Option<Shared> {
        all.get(range.clone())?;
        Some(Shared { all: Arc::clone(all), range })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.all.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<Vec<u8>> for Shared {
    fn from(bytes: Vec<u8>) -> Shared {
        let range = 0..bytes.len();
        Shared { all: Arc::new(bytes), range }
    }
}

/// `n` little-endian numbers of 32 bits, at any alignment.
#[derive(Clone, Default)]
pub(super) struct Words(pub(super) Shared);

impl Words {
    pub(super) fn len(&self) -> usize {
        self.0.bytes().len() / 4
    }

    pub(super) fn get(&self, index: usize) -> Option<u32> {
        let word = self.0.bytes().get(index.checked_mul(4)?..)?.first_chunk()?;
        Some(u32::from_le_bytes(*word))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.bytes().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
    }
}

impl From<&[u32]> for Words {
    fn from(words: &[u32]) -> Words {
        let mut bytes = vec![0; 4 * words.len()];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        Words(bytes.into())
    }
}

impl FromIterator<u32> for Words {
    fn from_iter<I: IntoIterator<Item = u32>>(words: I) -> Words {
        Words::from(&*words.into_iter().collect::<Vec<u32>>())
    }
}

/// Strings one after the other: `n` strings, one allocation for all their bytes.
#[derive(Clone, Default)]
pub(super) struct Strings {
    pub(super) bytes: Shared,
    /// Where each ends.
    pub(super) ends: Words,
}

impl Strings {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, index: u32) -> Option<&[u8]> {
        let (ends, _) = self.ends.0.bytes().as_chunks();
        let end = |index: usize| ends.get(index).map(|end| u32::from_le_bytes(*end) as usize);
        let start = (index as usize).checked_sub(1).map_or(Some(0), end)?;
        self.bytes.bytes().get(start..end(index as usize)?)
    }

    /// Bytes of the longest string.
    pub(super) fn longest(&self) -> usize {
        let mut start = 0;
        let len = |end: u32| end.saturating_sub(std::mem::replace(&mut start, end)) as usize;
        self.ends.iter().map(len).max().unwrap_or(0)
    }

    /// Whether all strings lie in the bytes, one after the other, and nothing is left over.
    pub(super) fn is_whole(&self) -> bool {
        let last = self.ends.iter().try_fold(0, |start, end| (start <= end).then_some(end));
        last.is_some_and(|last| last as usize == self.bytes.bytes().len())
    }
}

/// [`Strings`] that are being made.
#[derive(Default)]
pub(super) struct StringsBuf {
    pub(super) bytes: Vec<u8>,
    ends: Vec<u8>,
}

impl StringsBuf {
    pub(super) fn with_capacity(strings: usize, bytes: usize) -> StringsBuf {
        StringsBuf { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(4 * strings) }
    }

    /// Closes the string made of all the bytes since the last close. `None` past 4 GiB.
    pub(super) fn close(&mut self) -> Option<()> {
        let end = u32::try_from(self.bytes.len()).ok()?;
        self.ends.extend_from_slice(&end.to_le_bytes());
        Some(())
    }

    pub(super) fn finish(self) -> Strings {
        Strings { bytes: self.bytes.into(), ends: Words(self.ends.into()) }
    }
}

/// The numbers that hashes depend on. They follow from all strings that are hashed, so that nobody can write a list of strings whose
/// hashes are equal, and the same list gives the same bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Seed([u64; 2]);

impl Seed {
    pub(super) const BYTES: usize = 16;

    pub(super) fn of(strings: &Strings) -> Seed {
        let mut hasher = blake3::Hasher::new();
        hasher.update(strings.ends.0.bytes());
        hasher.update(strings.bytes.bytes());
        Seed::read(hasher.finalize().as_bytes()).unwrap_or_default()
    }

    /// The seed in the first bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Seed> {
        let (first, rest) = bytes.split_first_chunk()?;
        // Odd, so that no product is zero unless a factor is.
        Some(Seed([u64::from_le_bytes(*first), u64::from_le_bytes(*rest.first_chunk()?) | 1]))
    }

    pub(super) fn bytes(self) -> [u8; Seed::BYTES] {
        let mut bytes = [0; Seed::BYTES];
        let halves = self.0.map(u64::to_le_bytes);
        bytes.copy_from_slice(halves.as_flattened());
        bytes
    }

    /// The hash of a text: 16 bytes at once, the last of which may be some of those before again.
    pub(super) fn text(self, text: &[u8]) -> u64 {
        let [first, factor] = self.0;
        let mut hash = first;
        if let Some(last) = text.last_chunk::<16>() {
            // The last, or all, are `last`.
            let (pairs, _) = text[..text.len() - 1].as_chunks::<16>();
            for pair in pairs.iter().chain([last]) {
                let (low, high) = halves(pair);
                hash = fold(low ^ hash, high ^ factor);
            }
        } else {
            let (low, high) = match (text.first_chunk::<8>(), text.first_chunk::<4>()) {
                (Some(low), _) => {
                    (u64::from_le_bytes(*low), text.last_chunk().map_or(0, |high| u64::from_le_bytes(*high)))
                }
                (_, Some(low)) => (word(*low), text.last_chunk().map_or(0, |high| word(*high))),
                _ => match *text {
                    [] => (0, 0),
                    [one] => (u64::from(one), 0),
                    [one, two] => (u64::from(one), u64::from(two)),
                    [one, two, three, ..] => (u64::from(one), u64::from(two) << 8 | u64::from(three)),
                },
            };
            hash = fold(low ^ hash, high ^ factor);
        }
        // A length belongs to one way of reading the text.
        fold(hash ^ text.len() as u64, factor)
    }

    pub(super) fn pair(self, (left, right): (u32, u32)) -> u64 {
        let [first, factor] = self.0;
        fold(fold(first ^ (u64::from(left) << 32 | u64::from(right)), factor), factor)
    }
}

fn halves(pair: &[u8; 16]) -> (u64, u64) {
    let pair = u128::from_le_bytes(*pair);
    #[expect(clippy::cast_possible_truncation, reason = "each half is taken")]
    (pair as u64, (pair >> 64) as u64)
}

fn word(bytes: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(bytes))
}

/// Both halves of a product, mixed.
#[expect(clippy::cast_possible_truncation, reason = "each half is taken")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// From hashes to indexes of a list of `n`: open addressing, at most half full. A slot is 0, or an index plus one with the upper bits of its
/// hash above it.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) slots: Words,
    /// The bits of a slot that hold the index.
    index: u32,
}

impl Table {
    /// The table in `slots`, of a list of `len`; `None` if it is none.
    pub(super) fn over(slots: Words, len: usize) -> Option<Table> {
        (slots.len() == slots_for(len)?).then_some(Table { slots, index: index_bits(len)? })
    }

    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (slots, _) = self.slots.0.bytes().as_chunks();
        let mask = slots.len().checked_sub(1)?;
        let mut at = place(hash, mask);
        for _ in 0..=mask {
            let slot = u32::from_le_bytes(*slots.get(at)?);
            if slot == 0 {
                return None;
            }
            if (slot ^ tag(hash)) & !self.index == 0
                && let Some(index) = (slot & self.index).checked_sub(1)
                && is(index)
            {
                return Some(index);
            }
            at = (at + 1) & mask;
        }
        None
    }
}

/// A [`Table`] that is being made.
pub(super) struct TableBuf {
    /// Little-endian slots.
    slots: Vec<u8>,
    mask: usize,
    index: u32,
}

impl TableBuf {
    /// For a list of `len`; `None` if it is too long.
    pub(super) fn new(len: usize) -> Option<TableBuf> {
        let slots = slots_for(len)?;
        Some(TableBuf { slots: vec![0; slots.checked_mul(4)?], mask: slots - 1, index: index_bits(len)? })
    }

    /// Adds `index`, which is in the list. Returns the index that is there instead, if one `is` the same.
    pub(super) fn insert(&mut self, hash: u64, index: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (slots, _) = self.slots.as_chunks_mut();
        let mut at = place(hash, self.mask);
        // At most half of the slots are taken.
        while let Some(slot) = slots.get_mut(at) {
            let now = u32::from_le_bytes(*slot);
            if now == 0 {
                *slot = (tag(hash) & !self.index | (index + 1)).to_le_bytes();
                return None;
            }
            let other = (now & self.index) - 1;
            if (now ^ tag(hash)) & !self.index == 0 && is(other) {
                return Some(other);
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    pub(super) fn finish(self) -> Table {
        Table { slots: Words(self.slots.into()), index: self.index }
    }
}

/// The lower bits of a hash, as a place.
fn place(hash: u64, mask: usize) -> usize {
    usize::try_from(hash & mask as u64).unwrap_or(0)
}

/// The upper bits of a hash.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The number of slots for a list of `len`.
fn slots_for(len: usize) -> Option<usize> {
    len.checked_mul(2)?.max(2).checked_next_power_of_two()
}

/// The bits of a slot that hold an index of a list of `len`, plus one.
fn index_bits(len: usize) -> Option<u32> {
    let len = u32::try_from(len).ok()?;
    Some(u32::MAX.checked_shr(len.leading_zeros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&[u8]]) -> Strings {
        let mut buf = StringsBuf::default();
        for text in list {
            buf.bytes.extend_from_slice(text);
            buf.close().unwrap();
        }
        buf.finish()
    }

    #[test]
    fn all_are_found_and_nothing_else() {
        for len in [0usize, 1, 2, 3, 7, 8, 1000] {
            let list: Vec<String> = (0..len).map(|i| format!("{}{i}", "ab".repeat(i % 9))).collect();
            let list: Vec<&[u8]> = list.iter().map(String::as_bytes).collect();
            let strings = strings(&list);
            let seed = Seed::of(&strings);
            let mut table = TableBuf::new(len).unwrap();
            for (index, text) in (0..).zip(&list) {
                let same = |at| strings.get(at) == Some(*text);
                assert_eq!(table.insert(seed.text(text), index, same), None);
                assert_eq!(table.insert(seed.text(text), index, same), Some(index));
            }
            let table = table.finish();
            let find = |text: &[u8]| table.find(seed.text(text), |at| strings.get(at) == Some(text));
            for (index, text) in (0..).zip(&list) {
                assert_eq!(find(text), Some(index));
            }
            assert_eq!(find(b"none"), None);
            assert!(Table::over(table.slots.clone(), len).is_some());
            assert!(Table::over(table.slots.clone(), 4 * len + 8).is_none());
        }
    }

    #[test]
    fn a_table_of_anything_ends() {
        let table = Table { slots: std::iter::repeat_n(u32::MAX, 8).collect(), index: 3 };
        assert_eq!(table.find(1 << 63, |_| false), None);
        assert_eq!(Table::default().find(0, |_| true), None);
    }

    #[test]
    fn strings_that_are_not_whole_are_known() {
        let good = strings(&[b"a", b"", b"bcd"]);
        assert!(good.is_whole() && good.get(2) == Some(b"bcd") && good.get(3).is_none());
        assert_eq!((good.len(), good.longest()), (3, 3));
        for ends in [&[1, 1, 5][..], &[2, 1, 4], &[1, 1], &[1, 1, 3]] {
            let bad = Strings { ends: ends.iter().copied().collect(), ..good.clone() };
            assert!(!bad.is_whole(), "{ends:?}");
        }
    }
}

//! The parts of a file, each of which is sent when its last byte is known.

use std::collections::BTreeMap;
use std::ops::Range;

use storage::PartLimits;

use crate::write::OutFile;

/// A part that can be sent.
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) bytes: Vec<u8>,
}

/// The parts of a file, all of the same length but the last.
pub(super) struct Parts {
    len: u64,
    part: u64,
    /// Bytes of each that a tensor, or what depends on one, will still give.
    wants: Vec<u64>,
    /// Those that are sent, or on their way.
    is_sent: Vec<bool>,
    /// Those that the bucket has.
    is_there: Vec<bool>,
    /// Those that are not full.
    open: BTreeMap<usize, Vec<u8>>,
    /// The end of what was put last.
    covered: u64,
    /// All that follows the head depends on the tensors, which come in their order.
    is_framed: bool,
}

impl Parts {
    /// The parts of `file`, in which `planes` begin at these offsets and have these lengths.
    pub(super) fn of(file: &OutFile, planes: &[(u64, u64)], limits: PartLimits) -> Parts {
        // Whole multiples of the usual length, as few as the bucket takes.
        let usual = limits.bytes.max(1);
        let part = file.len.div_ceil(limits.count.max(1)).div_ceil(usual).max(1).saturating_mul(usual);
        let part = part.min(file.len.max(1));
        let count = usize::try_from(file.len.div_ceil(part)).unwrap_or(usize::MAX);
        let mut parts = Parts {
            len: file.len,
            part,
            wants: vec![0; count],
            is_sent: vec![false; count],
            is_there: vec![false; count],
            open: BTreeMap::new(),
            covered: file.head.len() as u64,
            is_framed: file.frame.is_some(),
        };
        if parts.is_framed {
            parts.expect(parts.covered, file.len.saturating_sub(parts.covered));
        } else {
            for (at, len) in planes {
                parts.expect(*at, *len);
            }
        }
        parts
    }

    fn expect(&mut self, at: u64, len: u64) {
        for index in self.touched(at, len) {
            let overlap = self.overlap(index, at, len);
            if let Some(wants) = self.wants.get_mut(index) {
                *wants += overlap;
            }
        }
    }

    /// The bytes of a part.
    pub(super) fn part(&self) -> u64 {
        self.part
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.wants.len()
    }

    /// The end of what was put last; of a file to which nothing was put, of its head.
    pub(super) fn covered(&self) -> u64 {
        self.covered
    }

    /// Takes over what another process has sent.
    pub(super) fn sent(&mut self, tags: &mut Vec<Option<String>>) {
        tags.resize(self.count(), None);
        for ((sent, there), tag) in self.is_sent.iter_mut().zip(&mut self.is_there).zip(tags) {
            (*sent, *there) = (tag.is_some(), tag.is_some());
        }
    }

    /// Returns true if the bucket has all parts with a byte of the range.
    pub(super) fn has_sent(&self, at: u64, len: u64) -> bool {
        self.touched(at, len).all(|index| self.is_there.get(index).is_some_and(|there| *there))
    }

    /// The bucket has part `index`.
    pub(super) fn arrived(&mut self, index: usize) {
        self.is_there.iter_mut().skip(index).take(1).for_each(|there| *there = true);
    }

    /// The parts with a byte of the range.
    fn touched(&self, at: u64, len: u64) -> Range<usize> {
        if len == 0 {
            return 0..0;
        }
        let of = |at: u64| usize::try_from(at / self.part).unwrap_or(usize::MAX);
        of(at)..of(at + len - 1) + 1
    }

    fn range(&self, index: usize) -> Range<u64> {
        let start = (index as u64).saturating_mul(self.part);
        start..start.saturating_add(self.part).min(self.len)
    }

    fn overlap(&self, index: usize, at: u64, len: u64) -> u64 {
        let Range { start, end } = self.range(index);
        end.min(at + len).saturating_sub(start.max(at))
    }

    /// Counts the range as put, without its bytes: the bytes of parts that are open since, and of those that are not any more.
    pub(super) fn passed(&mut self, at: u64, len: u64) -> (u64, u64) {
        let (mut opened, mut closed) = (0, 0);
        if self.is_framed {
            return (0, 0);
        }
        for index in self.touched(at, len) {
            let overlap = self.overlap(index, at, len);
            let Some(wants) = self.wants.get_mut(index) else { continue };
            *wants = wants.saturating_sub(overlap);
            let is_full = *wants == 0;
            let was_open = self.open.contains_key(&index);
            match (was_open, is_full) {
                (false, false) => {
                    opened += self.part;
                    self.open.insert(index, vec![]);
                }
                (true, true) => {
                    closed += self.part;
                    self.open.remove(&index);
                }
                _ => {}
            }
        }
        (opened, closed)
    }

    /// Puts the first of `bytes` at `at` of `file`. Returns how many, which is all that are in the same part, and the part if it is full.
    pub(super) fn put(&mut self, file: &OutFile, at: u64, bytes: &[u8]) -> (usize, Option<Part>) {
        let index = usize::try_from(at / self.part).unwrap_or(usize::MAX);
        let Range { start, end } = self.range(index);
        let taken = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        self.covered = at + taken as u64;
        if taken == 0 || self.is_sent.get(index).is_none_or(|sent| *sent) {
            // Past the end of the file is nothing.
            return (if taken == 0 { bytes.len() } else { taken }, None);
        }
        let known = || known(file, start..end);
        let content = self.open.entry(index).or_insert_with(known);
        let from = usize::try_from(at - start).unwrap_or(usize::MAX);
        if let (Some(to), Some(bytes)) =
            (content.get_mut(from..from.saturating_add(taken)), bytes.get(..taken))
        {
            to.copy_from_slice(bytes);
        }
        let Some(wants) = self.wants.get_mut(index) else { return (taken, None) };
        *wants = wants.saturating_sub(taken as u64);
        if *wants > 0 {
            return (taken, None);
        }
        (taken, self.open.remove(&index).map(|bytes| self.full(index, bytes)))
    }

    fn full(&mut self, index: usize, bytes: Vec<u8>) -> Part {
        self.is_sent.iter_mut().skip(index).take(1).for_each(|sent| *sent = true);
        Part { index, bytes }
    }

    /// The next part in which there is no byte of a tensor.
    pub(super) fn rest(&mut self, file: &OutFile) -> Option<Part> {
        let index = self.is_sent.iter().zip(&self.wants).position(|(sent, wants)| !sent && *wants == 0)?;
        let bytes = known(file, self.range(index));
        Some(self.full(index, bytes))
    }
}

/// The bytes of a range of `file` that are known before its tensors, and zeros for the others.
fn known(file: &OutFile, range: Range<u64>) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    let pieces = std::iter::once((0, &file.head)).chain(file.between.iter().map(|(at, bytes)| (*at, bytes)));
    for (at, bytes) in pieces {
        let (from, to) = (range.start.max(at), range.end.min(at.saturating_add(bytes.len() as u64)));
        if from >= to {
            continue;
        }
        let cut = |start: u64| {
            let offset = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
            offset(from)..offset(to)
        };
        if let (Some(to), Some(bytes)) = (content.get_mut(cut(range.start)), bytes.get(cut(at))) {
            to.copy_from_slice(bytes);
        }
    }
    content
}

//! The reads of the executor, in its own order.

use plan::Piece;
use tensor::FileId;

use crate::memory::region::Region;
use crate::schedule::item::{Item, Work, near, span};
use crate::schedule::sources::{Way, Ways, clip, gap, place_of, ranges, taken};

/// The reads of the executor.
pub(crate) struct Reads<'a> {
    pub(crate) ways: Ways<'a>,
    /// Bytes of each read.
    pub(crate) sizes: Vec<u64>,
    /// Bytes that are copied out of maps.
    pub(crate) lent: u64,
}

impl Reads<'_> {
    pub(crate) fn work<S: Region>(&mut self, work: &Work<'_, S>) {
        let (mut items, room) = (&work.items[..], work.need.read);
        while !items.is_empty() {
            let (now, rest) = items.split_at(near(self.ways.checkpoint, items, room).max(1));
            match (now, span(now)) {
                ([item], _) => self.item(item, room),
                (_, Some((file, range))) => self.read(file, range.end - range.start),
                (_, None) => {}
            }
            items = rest;
        }
    }

    fn item<S: Region>(&mut self, item: &Item<'_, S>, room: u64) {
        for (plane, range) in &item.moved {
            let mut pieces = vec![];
            clip(&plane.copy, range, &mut pieces);
            let only = pieces.len() == 1;
            pieces.retain(|piece| match (self.ways.of(piece, only), place_of(self.ways.checkpoint, piece)) {
                (Way::Straight, Some((file, _))) => {
                    self.read(file, piece.run);
                    false
                }
                (way, _) => way != Way::Zeros,
            });
            self.windows(pieces, room);
            let mut equal = vec![];
            clip(&plane.equal, range, &mut equal);
            self.windows(equal, room);
        }
    }

    fn windows(&mut self, mut pieces: Vec<Piece>, room: u64) {
        let ways = self.ways;
        pieces.retain(|piece| {
            let is_lent = ways.is_lent(piece);
            self.lent += if is_lent { taken(piece) } else { 0 };
            !is_lent
        });
        let gap = gap(ways.checkpoint, &pieces);
        for read in ranges(ways.checkpoint, &pieces, gap, room.max(1)) {
            self.read(read.file, read.bytes());
        }
    }

    fn read(&mut self, file: FileId, mut bytes: u64) {
        let longest = self.ways.checkpoint.file(file).source.pace().longest.max(1);
        while bytes > 0 {
            let part = bytes.min(longest);
            self.sizes.push(part);
            bytes -= part;
        }
    }
}

//! What a load takes, before anything is read: the work is cut as for the load itself, into memory that is not there.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use checkpoint::{ByteSource, Checkpoint};
use plan::{LoadPlan, Piece, PlannedParam};
use tensor::FileId;

use crate::allocated::places;
use crate::cut::Cut;
use crate::executor::{Home, homes, threads as at_once};
use crate::gather::{Way, Ways, clip, gap, place_of, ranges, taken};
use crate::item::{Item, Space, Work, near, span};
use crate::report::Bytes;
use crate::staged::{in_memory, moving, staged_bytes, staging};
use crate::{Error, Options};

/// What a load takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Threads, those that only wait for the disk included.
    pub threads: usize,
    /// Bytes that stay in the map.
    pub borrowed: u64,
    /// Bytes allocated for parameters.
    pub owned: u64,
    /// Bytes moved as they are.
    pub copied: u64,
    /// Bytes written by a codec.
    pub encoded: u64,
    /// Bytes that entries are decoded or encoded to before they can be moved, a parameter at a time.
    pub decoded: u64,
    /// Bytes taken from files, with what lies in gaps that are read along: `LoadReport::bytes_read`.
    pub read: u64,
    /// Those of them that are copied out of a map, run by run, since they are too finely cut to be read.
    pub lent: u64,
    /// The reads of the others.
    pub reads: ReadSizes,
    /// Bytes of buffers at most, all threads together.
    pub scratch: u64,
    /// The least limit on buffers with which it can be done: with less, the load is refused.
    pub least_scratch: u64,
    /// The parameter that takes the most of them.
    pub neediest: Option<String>,
}

/// Reads of files: how many, and how long they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSizes {
    /// How many.
    pub count: usize,
    /// Bytes of the shortest.
    pub smallest: u64,
    /// Half of them are at most so long.
    pub median: u64,
    /// Bytes of the longest.
    pub largest: u64,
}

impl ReadSizes {
    fn of(mut sizes: Vec<u64>) -> ReadSizes {
        sizes.sort_unstable();
        let at = |i: usize| sizes.get(i).copied().unwrap_or(0);
        let count = sizes.len();
        ReadSizes {
            count,
            smallest: at(0),
            median: at(count.saturating_sub(1) / 2),
            largest: at(count.saturating_sub(1)),
        }
    }
}

/// What a load of `plan` takes on so many threads: see [`Plan::needs`](crate::Plan::needs).
pub(crate) fn needs(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    options: Options<'_>,
    threads: usize,
) -> Result<Needs, Error> {
    let homes = homes(plan, checkpoint, !options.owned)?;
    let spaces = places(plan, checkpoint, &homes)?;
    let Foreseen { mut needs, sizes } = foresee(plan, checkpoint, &homes, spaces, options, threads)?;
    needs.reads = ReadSizes::of(sizes);
    Ok(needs)
}

/// What is foreseen of a load, and how long each read is.
pub(crate) struct Foreseen {
    pub(crate) needs: Needs,
    sizes: Vec<u64>,
}

/// The same, where each parameter's planes go to `spaces`.
fn foresee(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    homes: &[Home],
    spaces: Vec<Vec<Range<usize>>>,
    options: Options<'_>,
    threads: usize,
) -> Result<Foreseen, Error> {
    let threads = at_once(checkpoint, threads);
    let mut needs = Needs { threads, ..Needs::default() };
    needs.owned = spaces.iter().flatten().map(|r| r.len() as u64).sum();
    for (param, home) in plan.params.iter().zip(homes) {
        match home {
            Home::Borrowed(slots) => {
                needs.borrowed += slots.iter().map(|slot| slot.bytes().len() as u64).sum::<u64>();
            }
            Home::Own(change) if param.staged.is_empty() && change.is_none() => {
                needs.copied += param.slot_bytes();
            }
            Home::Own(_) if param.staged.is_empty() => needs.encoded += param.slot_bytes(),
            Home::Own(_) | Home::Tied(_) => {}
        }
    }
    let fine = Options { memory: Some(0), ..options };
    let finest = Cut::new(plan, checkpoint, homes, spaces.clone(), fine, threads)?.neediest;
    if let Some((param, least)) = finest.filter(|(_, least)| *least > 0) {
        (needs.neediest, needs.least_scratch) = (Some(param.to_owned()), least);
    }
    let cut = Cut::new(plan, checkpoint, homes, spaces, options, threads)?;
    let ways = Ways { checkpoint, observed: options.observe.is_some() };
    let mut reads = Reads { ways, sizes: vec![], lent: 0 };
    cut.works.iter().for_each(|work| reads.work(work));
    let Reads { mut sizes, lent, .. } = reads;
    (needs.scratch, needs.lent) = (cut.scratch, lent);
    for (_, later) in cut.later {
        needs.copied += later.needs.copied;
        needs.encoded += later.needs.encoded;
        needs.decoded += later.needs.decoded;
        needs.lent += later.needs.lent;
        sizes.extend(later.sizes);
    }
    let shown = if options.observe.is_some() { needs.borrowed } else { 0 };
    needs.read = needs.lent + shown + sizes.iter().sum::<u64>();
    Ok(Foreseen { needs, sizes })
}

/// What a parameter takes whose entries are decoded or encoded before they are moved.
pub(crate) fn foresee_later<S: Space>(
    param: &PlannedParam,
    targets: &[S],
    checkpoint: &Checkpoint,
    options: Options<'_>,
    threads: usize,
) -> Result<Foreseen, Error> {
    let staged = staged_bytes(param);
    let memory = options.memory.map(|limit| limit.saturating_sub(staged));
    let options = Options { owned: true, memory, ..options };
    let plan = staging(param);
    let decoded = homes(&plan, checkpoint, false)?;
    let spaces = places(&plan, checkpoint, &decoded)?;
    let first = foresee(&plan, checkpoint, &decoded, spaces, options, threads)?;
    let (plan, memory) = (moving(param), in_memory(param, |staged| Arc::new(Hollow(staged.slot_bytes()))));
    let spaces = vec![targets.iter().map(Space::place).collect()];
    let options = Options { observe: None, ..options };
    let then = foresee(&plan, &memory, &homes(&plan, &memory, false)?, spaces, options, threads)?.needs;
    let Foreseen { needs: first, sizes } = first;
    let needs = Needs {
        copied: first.copied + then.copied,
        encoded: first.encoded + then.encoded,
        decoded: staged,
        scratch: staged.saturating_add(first.scratch.max(then.scratch)),
        least_scratch: staged.saturating_add(first.least_scratch.max(then.least_scratch)),
        ..first
    };
    Ok(Foreseen { needs, sizes })
}

/// A tensor that is not in memory yet.
#[derive(Debug)]
struct Hollow(u64);

impl ByteSource for Hollow {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "nothing"
    }
}

/// What the executor reads, in its own order.
struct Reads<'a> {
    ways: Ways<'a>,
    /// Bytes of each read.
    sizes: Vec<u64>,
    /// Bytes that are copied out of maps.
    lent: u64,
}

impl Reads<'_> {
    fn work<S: Space>(&mut self, work: &Work<'_, S>) {
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

    fn item<S: Space>(&mut self, item: &Item<'_, S>, room: u64) {
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

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadSizes { count, smallest, median, largest } = self.reads;
        let (read, lent) = (Bytes(self.read - self.lent), Bytes(self.lent));
        match count {
            0 => {}
            1 => writeln!(f, "one read of {read}")?,
            _ => writeln!(
                f,
                "{count} reads of {read}: {} to {}, half of them at most {}",
                Bytes(smallest),
                Bytes(largest),
                Bytes(median)
            )?,
        }
        if self.lent > 0 {
            writeln!(
                f,
                "{lent} copied out of the map: runs so near each other that reads would take all between"
            )?;
        }
        write!(f, "memory: {} for parameters", Bytes(self.owned))?;
        if self.borrowed > 0 {
            write!(f, ", {} borrowed from the map", Bytes(self.borrowed))?;
        }
        if self.scratch > 0 {
            let threads =
                if self.threads == 1 { "a thread".to_owned() } else { format!("{} threads", self.threads) };
            write!(
                f,
                ", {} of buffers on {threads}, of which {} would do",
                Bytes(self.scratch),
                Bytes(self.least_scratch)
            )?;
        }
        if self.decoded > 0 {
            write!(
                f,
                "; {} of entries are decoded or encoded before they are moved, a parameter at a time",
                Bytes(self.decoded)
            )?;
        }
        Ok(())
    }
}

//! The needs of a load (bytes, buffers, memory), for people and for programs.

use std::fmt;

use tensor::{Bytes, counted};

/// The needs of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Number of threads, including those that only wait for the disk.
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
    /// Bytes of those that are copied out of a map, run by run, since they are cut too finely to be read.
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
    pub(crate) fn of(mut sizes: Vec<u64>) -> ReadSizes {
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

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadSizes { count, smallest, median, largest } = self.reads;
        let (read, lent) = (Bytes(self.read - self.lent), Bytes(self.lent));
        match count {
            0 => {}
            1 => writeln!(f, "1 read of {read}")?,
            _ => writeln!(
                f,
                "{count} reads, {read} in total: {} to {} each, median {}",
                Bytes(smallest),
                Bytes(largest),
                Bytes(median)
            )?,
        }
        if self.lent > 0 {
            writeln!(f, "{lent} copied from the map, in runs too close together for separate reads")?;
        }
        write!(f, "memory: {} for parameters", Bytes(self.owned))?;
        if self.borrowed > 0 {
            write!(f, ", {} mapped", Bytes(self.borrowed))?;
        }
        if self.scratch > 0 {
            let threads = counted(self.threads, "thread");
            write!(
                f,
                ", {} of buffers on {threads} (minimum {})",
                Bytes(self.scratch),
                Bytes(self.least_scratch)
            )?;
        }
        if self.decoded > 0 {
            write!(
                f,
                "; {} decoded or encoded before the move, one parameter at a time",
                Bytes(self.decoded)
            )?;
        }
        Ok(())
    }
}

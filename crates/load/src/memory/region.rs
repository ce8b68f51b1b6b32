//! The bytes that a piece of work fills.

use std::ops::Range;

use crate::sizes::PAGE;

/// Bytes of one plane: in memory, or only planned, to foresee what a load takes.
pub(crate) trait Region: Default {
    /// How many.
    fn bytes(&self) -> usize;
    /// Bytes from the first to the next start of a page.
    fn to_page(&self) -> usize;
    /// The same bytes, as a plan has them.
    fn planned(&self) -> Planned;
    /// The first `bytes`, and the others.
    fn split(self, bytes: usize) -> (Self, Self);
    /// Whether the sink takes them by `write`, so that they need a buffer until then.
    fn is_written(&self) -> bool;
}

/// Bytes of one plane of a sink.
pub(crate) enum Slice<'m> {
    /// In memory that the sink lends.
    Lent(&'m mut [u8]),
    /// A range of a plane, which the sink takes by `write`.
    Written { plane: usize, range: Range<usize> },
}

impl Default for Slice<'_> {
    fn default() -> Self {
        Slice::Lent(&mut [])
    }
}

impl Region for Slice<'_> {
    fn bytes(&self) -> usize {
        match self {
            Slice::Lent(bytes) => bytes.len(),
            Slice::Written { range, .. } => range.len(),
        }
    }

    fn to_page(&self) -> usize {
        match self {
            Slice::Lent(bytes) => bytes.as_ptr().align_offset(PAGE),
            Slice::Written { range, .. } => to_page(range.start),
        }
    }

    fn planned(&self) -> Planned {
        match self {
            Slice::Lent(bytes) => {
                let range = bytes.as_ptr_range();
                Planned { range: range.start.addr()..range.end.addr(), is_written: false }
            }
            Slice::Written { range, .. } => Planned { range: range.clone(), is_written: true },
        }
    }

    fn split(self, bytes: usize) -> (Self, Self) {
        match self {
            Slice::Lent(all) => {
                let (first, rest) = all.split_at_mut(bytes);
                (Slice::Lent(first), Slice::Lent(rest))
            }
            Slice::Written { plane, range } => {
                let (first, rest) = halves(&range, bytes);
                (Slice::Written { plane, range: first }, Slice::Written { plane, range: rest })
            }
        }
    }

    fn is_written(&self) -> bool {
        matches!(self, Slice::Written { .. })
    }
}

/// Addresses in memory that is not there yet and will begin with a page, or a range of a plane that a sink takes by `write`.
#[derive(Clone, Default)]
pub(crate) struct Planned {
    pub(crate) range: Range<usize>,
    pub(crate) is_written: bool,
}

impl From<Range<usize>> for Planned {
    /// Addresses in memory.
    fn from(range: Range<usize>) -> Planned {
        Planned { range, is_written: false }
    }
}

impl Region for Planned {
    fn bytes(&self) -> usize {
        self.range.len()
    }

    fn to_page(&self) -> usize {
        to_page(self.range.start)
    }

    fn planned(&self) -> Planned {
        self.clone()
    }

    fn split(self, bytes: usize) -> (Self, Self) {
        let (first, rest) = halves(&self.range, bytes);
        (Planned { range: first, ..self }, Planned { range: rest, ..self })
    }

    fn is_written(&self) -> bool {
        self.is_written
    }
}

fn to_page(start: usize) -> usize {
    start.next_multiple_of(PAGE) - start
}

fn halves(range: &Range<usize>, bytes: usize) -> (Range<usize>, Range<usize>) {
    let at = range.start + bytes;
    (range.start..at, at..range.end)
}

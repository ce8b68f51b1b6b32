//! Where a loaded plane lives.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use checkpoint::ByteSource;
use memmap2::MmapMut;

use crate::Error;
use crate::memory::sink::{Destination, Place, Sink};
use crate::sizes::PAGE;

/// The bytes of one plane: borrowed from a mapped file, or owned. Cheap to clone; never moves.
#[derive(Clone)]
pub struct Slot(SlotMemory);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("bytes", &self.bytes().len())
            .field("borrowed", &self.is_borrowed())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum SlotMemory {
    Borrowed { source: Arc<dyn ByteSource>, range: Range<usize> },
    Owned { arena: Arc<Arena>, range: Range<usize> },
}

impl Slot {
    /// Borrows `range` of a mapped source; `None` if it is not mapped, too short, or misaligned.
    pub(crate) fn borrow(source: &Arc<dyn ByteSource>, range: Range<u64>, align: usize) -> Option<Slot> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        let bytes = source.mapped()?.get(range.clone())?;
        let aligned = bytes.as_ptr().addr().is_multiple_of(align);
        aligned.then(|| Slot(SlotMemory::Borrowed { source: Arc::clone(source), range }))
    }

    pub(crate) fn owned(arena: &Arc<Arena>, range: Range<usize>) -> Slot {
        Slot(SlotMemory::Owned { arena: Arc::clone(arena), range })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            // `borrow` has checked both; a mapping does not change its length.
            SlotMemory::Borrowed { source, range } => {
                source.mapped().and_then(|m| m.get(range.clone())).unwrap_or(&[])
            }
            SlotMemory::Owned { arena, range } => &arena.bytes()[range.clone()],
        }
    }

    /// The address of the bytes, if their memory may be written to: it is this process's own, or of a map that is private to it
    /// ([`ByteSource::is_private`]). Whoever writes there makes sure that nobody reads meanwhile, this load's parameters under other
    /// names included. `None` for no bytes.
    pub fn writable(&self) -> Option<std::ptr::NonNull<u8>> {
        let may = match &self.0 {
            SlotMemory::Borrowed { source, .. } => source.is_private(),
            SlotMemory::Owned { .. } => true,
        };
        let bytes = self.bytes();
        (may && !bytes.is_empty()).then(|| std::ptr::NonNull::from(bytes).cast())
    }

    /// Brings borrowed bytes into memory.
    pub fn prefetch(&self) {
        if let SlotMemory::Borrowed { source, range } = &self.0 {
            source.prefetch(range.start as u64..range.end as u64);
        }
    }

    /// Takes borrowed bytes out of this process's memory, until somebody touches them again.
    pub fn release(&self) {
        if let SlotMemory::Borrowed { source, range } = &self.0 {
            source.leave(range.start as u64..range.end as u64);
        }
    }

    /// Some of the bytes, in the same place; `None` if they are not there.
    pub(crate) fn part(&self, part: Range<usize>) -> Option<Slot> {
        let within = |range: &Range<usize>| {
            let part = range.start.checked_add(part.start)?..range.start.checked_add(part.end)?;
            (part.start <= part.end && part.end <= range.end).then_some(part)
        };
        Some(Slot(match &self.0 {
            SlotMemory::Borrowed { source, range } => {
                SlotMemory::Borrowed { source: Arc::clone(source), range: within(range)? }
            }
            SlotMemory::Owned { arena, range } => {
                SlotMemory::Owned { arena: Arc::clone(arena), range: within(range)? }
            }
        }))
    }

    /// Where in the arena the bytes lie, if they do.
    pub(crate) fn place(&self) -> Option<Range<usize>> {
        match &self.0 {
            SlotMemory::Borrowed { .. } => None,
            SlotMemory::Owned { range, .. } => Some(range.clone()),
        }
    }

    /// Whether the bytes lie in the mapped file.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, SlotMemory::Borrowed { .. })
    }
}

/// One allocation for all owned planes, in huge pages where the system has them: with 4 KiB pages the
/// hardware prefetcher stops at each page end, which costs a tenth of the decode speed.
pub(crate) struct Arena {
    map: MmapMut,
    /// From the first page on.
    range: Range<usize>,
}

/// Planes start at multiples of this many bytes, a cache line and a whole vector of any kernel. The exceptions are
/// planes that are read past the page cache and planes that stay in the map, which start as they do in the file.
pub(crate) const ALIGN: usize = 64;

impl Arena {
    /// Zeroed memory, given page by page as it is touched.
    pub(crate) fn new(bytes: usize) -> Result<Arena, Error> {
        let refuse = |source| Error::Memory { bytes, source };
        let all = bytes.checked_add(PAGE).ok_or_else(|| refuse(ErrorKind::OutOfMemory.into()))?;
        let map = MmapMut::map_anon(all).map_err(refuse)?;
        // A slot that begins on a page is cut into the same work items every time.
        let start = map.as_ptr().align_offset(PAGE);
        // Hints: a system without huge pages refuses, and runs all the same. A page that is used in part is not worth
        // clearing whole.
        #[cfg(target_os = "linux")]
        {
            let whole = bytes / PAGE * PAGE;
            let _ = map.advise_range(memmap2::Advice::HugePage, start, whole);
            let _ = map.advise_range(memmap2::Advice::NoHugePage, start + whole, all - start - whole);
        }
        Ok(Arena { map, range: start..start + bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.range.clone()]
    }

    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.bytes().as_ptr().addr()
    }
}

/// The default sink: allocates its own memory, one arena for all planes.
pub(crate) struct ArenaSink<'m, 'p> {
    rest: &'m mut [u8],
    at: usize,
    /// The place of each plane of each parameter of the plan, in order.
    places: &'p [Vec<Range<usize>>],
}

impl<'m, 'p> ArenaSink<'m, 'p> {
    pub(crate) fn new(arena: &'m mut Arena, places: &'p [Vec<Range<usize>>]) -> ArenaSink<'m, 'p> {
        ArenaSink { rest: arena.as_mut(), at: 0, places }
    }
}

impl<'m> Sink<'m> for ArenaSink<'m, '_> {
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let mut give = |range: &Range<usize>| {
            let gap = range.start.checked_sub(self.at)?;
            let (_, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(gap)?;
            let (plane, rest) = rest.split_at_mut_checked(range.len())?;
            (self.rest, self.at) = (rest, range.end);
            Some(plane)
        };
        let places = self.places.get(param.index).map(Vec::as_slice).unwrap_or_default();
        let planes = places.iter().map(&mut give).collect::<Option<_>>();
        Ok(Destination::Memory(planes.ok_or("the arena is smaller than the plan")?))
    }
}

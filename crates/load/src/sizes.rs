//! Sizes that several stages go by.

/// The unit of memory. Items end at its boundaries, since two threads that touch a new page clear it twice (measured:
/// items of half a huge page copy at half the speed).
pub(crate) const PAGE: usize = 2 << 20;
/// The most bytes of a buffer that runs are copied out of, so that it stays in the second-level cache.
pub(crate) const WINDOW: u64 = 1 << 20;
/// Reads of at most this many bytes are done together.
pub(crate) const SMALL: u64 = 64 << 10;

/// An extent that is memory, or part of some that is.
pub(crate) fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

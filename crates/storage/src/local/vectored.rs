//! Several ranges of a file in few calls.

use std::fs::File;
use std::io::{self, IoSliceMut};

use crate::source::past_the_end;
use crate::{Fill, platform};

/// Buffers of one call, at most: the kernel's `UIO_MAXIOV` (linux/uio.h).
const MOST: usize = 1024;

/// Fills `fills` from `file`, of which the first `len` bytes may be read. Ranges that touch are read in one call.
pub(super) fn read(file: &File, len: u64, fills: &mut [Fill<'_>]) -> io::Result<()> {
    let inside =
        |fill: &Fill<'_>| fill.offset.checked_add(fill.buf.len() as u64).is_some_and(|end| end <= len);
    if let Some(outside) = fills.iter().find(|fill| !inside(fill)) {
        return Err(past_the_end(outside.offset, outside.buf.len(), len));
    }
    let touch = |a: &Fill<'_>, b: &Fill<'_>| a.offset + a.buf.len() as u64 == b.offset;
    for run in fills.chunk_by_mut(touch).flat_map(|run| run.chunks_mut(MOST)) {
        match run {
            [only] => platform::read_exact_at(file, only.buf, only.offset)?,
            several => read_run(file, several)?,
        }
    }
    Ok(())
}

/// Fills `run`, each of whose ranges begins where the one before ends.
fn read_run(file: &File, run: &mut [Fill<'_>]) -> io::Result<()> {
    let mut at = run.first().map_or(0, |fill| fill.offset);
    let mut slices: Vec<IoSliceMut<'_>> = run.iter_mut().map(|fill| IoSliceMut::new(fill.buf)).collect();
    let mut rest = &mut slices[..];
    // Empty ones are no sign of an end.
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match platform::read_vectored_at(file, rest, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                at += read as u64;
                IoSliceMut::advance_slices(&mut rest, read);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

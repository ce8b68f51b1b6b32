//! Where each parameter of a plan will be: in a map, in memory of its own, or in that of another.

use std::ops::Range;

use checkpoint::Checkpoint;
use plan::{LoadPlan, PlannedParam, PlannedPlane};
use tensor::FileId;

use crate::Error;
use crate::change::Change;
use crate::memory::slot::{ALIGN, Slot};
use crate::sizes::{PAGE, SMALL};

/// Where a parameter is.
pub(crate) enum Home {
    /// In a map.
    Borrowed(Vec<Slot>),
    /// In memory of its own, and what is done on the way there.
    Own(Change),
    /// In that of another.
    Tied(usize),
}

/// Where each parameter of a plan will be; in a map if it can `lend`.
pub(crate) fn homes(plan: &LoadPlan, checkpoint: &Checkpoint, lend: bool) -> Result<Vec<Home>, Error> {
    let home = |param: &PlannedParam| {
        if let Some(other) = param.tied_to {
            return Ok(Home::Tied(other));
        }
        let change = Change::of(&param.moved, param.shape.len(), &param.steps)
            .map_err(|(from, to)| Error::Codec { param: param.name.clone(), from, to })?;
        if lend && param.staged.is_empty() && change.is_none() {
            let slots = param.planes.iter().map(|plane| {
                let (file, range) = lent(checkpoint, plane)?;
                Slot::borrow(&checkpoint.file(file).source, range, alignment(param))
            });
            if let Some(slots) = slots.collect::<Option<Vec<_>>>() {
                return Ok(Home::Borrowed(slots));
            }
        }
        Ok(Home::Own(change))
    };
    plan.params.iter().map(home).collect()
}

/// The bytes of a file that are a plane.
pub(crate) fn lent(checkpoint: &Checkpoint, plane: &PlannedPlane) -> Option<(FileId, Range<u64>)> {
    let (entry, index, offset) = plane.borrowable()?;
    let data = checkpoint.entries().get(entry)?.planes.get(index)?;
    let start = data.bytes.start.checked_add(offset)?;
    Some((data.file, start..start.checked_add(plane.bytes)?))
}

/// A plain dtype is read as such; blocks are read bytewise, if nothing more is wanted.
pub(crate) fn alignment(param: &PlannedParam) -> usize {
    let own = param.scheme.dtype().map_or(1, |d| usize::try_from(d.bytes()).unwrap_or(8));
    usize::try_from(param.align).unwrap_or(PAGE).max(own)
}

/// Bytes of each plane of a parameter's slot.
pub(crate) fn planes_of(param: &PlannedParam) -> Result<Vec<usize>, Error> {
    let too_large = || Error::TooLarge { param: param.name.clone() };
    let bytes = param.scheme.planes.iter().map(|spec| {
        let bytes = param.scheme.plane_bytes(spec, &param.shape).map_err(|_| too_large())?;
        usize::try_from(bytes).map_err(|_| too_large())
    });
    bytes.collect()
}

/// Returns the place of each plane of each parameter with memory of its own, in one allocation that begins on a page:
/// at multiples of [`ALIGN`], except for planes that are read straight to where their blocks of the file can go.
pub(crate) fn places(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    homes: &[Home],
) -> Result<Vec<Vec<Range<usize>>>, Error> {
    let mut end = 0usize;
    let mut ranges = Vec::with_capacity(homes.len());
    for (param, home) in plan.params.iter().zip(homes) {
        let planes = if let Home::Own(_) = home { planes_of(param)? } else { vec![] };
        let mut place = |(index, len): (usize, usize)| {
            let start = match straight(param, index, checkpoint, home) {
                // As far past a multiple of the block.
                Some((at, block)) => end.checked_add(at.wrapping_sub(end) % block)?,
                None => end.checked_next_multiple_of(ALIGN.max(alignment(param)))?,
            };
            end = start.checked_add(len)?;
            Some(start..end)
        };
        let placed: Option<Vec<_>> = planes.into_iter().enumerate().map(&mut place).collect();
        ranges.push(placed.ok_or_else(|| Error::TooLarge { param: param.name.clone() })?);
    }
    Ok(ranges)
}

/// For a plane that is one run of a file whose blocks go straight to memory: returns its offset within a block, and the
/// length of a block. `None` if a parameter there could not be used, or is so small that it is read with others.
fn straight(
    param: &PlannedParam,
    plane: usize,
    checkpoint: &Checkpoint,
    home: &Home,
) -> Option<(usize, usize)> {
    let Home::Own(change) = home else { return None };
    let plane = param.planes.get(plane).filter(|_| change.is_none() && param.staged.is_empty())?;
    let (file, range) = lent(checkpoint, plane)?;
    let block = checkpoint.file(file).source.pace().block;
    // Arenas begin on a page, so larger blocks cannot be aligned.
    let fits = block > 1 && block <= PAGE as u64 && range.end - range.start > SMALL;
    let at = usize::try_from(range.start % block).ok()?;
    (fits && at.is_multiple_of(alignment(param))).then_some((at, usize::try_from(block).ok()?))
}

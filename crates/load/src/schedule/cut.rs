//! A plan cut into work items, with their order and their needs.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use checkpoint::{ByteSource, Checkpoint};
use plan::{LoadPlan, PlannedParam};

use crate::memory::region::{Planned, Region};
use crate::schedule::home::{Home, homes, places};
use crate::schedule::item::{Cutter, Work, together};
use crate::schedule::needs::{Needs, ReadSizes};
use crate::schedule::reads::Reads;
use crate::schedule::sources::{Ways, threads as at_once};
use crate::schedule::staged::{Later, in_memory, moving, staged_bytes, staging};
use crate::{Error, Options};

/// A plan cut into work.
pub(crate) struct Cut<'a, S> {
    /// Items that threads take in turn.
    pub(crate) works: Vec<Work<'a, S>>,
    /// Work done after that, one after the other, with its needs.
    pub(crate) later: Vec<(Later<'a, S>, Foreseen)>,
    /// For each parameter of the plan, in how many parts it is filled.
    pub(crate) parts: Vec<usize>,
    /// The most bytes of buffers at once.
    pub(crate) scratch: u64,
    /// The parameter that takes the most buffers, cut as fine as can be, and how many bytes that is.
    pub(crate) neediest: Option<(&'a str, u64)>,
}

impl<'a, S: Region> Cut<'a, S> {
    /// Cuts `plan`. The planes of its parameters go to `spaces`, which are empty for parameters without memory of their
    /// own.
    pub(crate) fn new(
        plan: &'a LoadPlan,
        checkpoint: &'a Checkpoint,
        homes: &'a [Home],
        spaces: Vec<Vec<S>>,
        options: Options<'_>,
        threads: usize,
    ) -> Result<Cut<'a, S>, Error> {
        let limit = options.memory.unwrap_or(u64::MAX);
        let share = limit / threads as u64;
        let ways = Ways { checkpoint, observed: options.observe.is_some() };
        let mut cutter = Cutter { ways, share, neediest: None };
        let (mut items, mut later, mut parts) = (vec![], vec![], Vec::with_capacity(homes.len()));
        for (index, ((param, home), targets)) in plan.params.iter().zip(homes).zip(spaces).enumerate() {
            let before = items.len();
            match home {
                Home::Own(_) if !param.staged.is_empty() => later.push(Later { index, param, targets }),
                Home::Own(change) => {
                    let fed = options.guide.and_then(|of| of(&param.name).fed());
                    cutter.cut(index, param, (change, fed), targets, &mut items)?;
                }
                Home::Borrowed(_) | Home::Tied(_) => {}
            }
            parts.push(if param.staged.is_empty() { items.len() - before } else { 1 });
        }
        let mut neediest = cutter.neediest;
        let works = together(items, checkpoint, share);
        let mut scratch = scratch(&works, threads).min(limit);
        let mut needed = Vec::with_capacity(later.len());
        for one in later {
            let foreseen = foresee_later(one.param, &one.targets, checkpoint, options, threads)?;
            let needs = &foreseen.needs;
            scratch = scratch.max(needs.scratch.min(limit));
            if neediest.is_none_or(|(_, most)| needs.least_scratch > most) {
                neediest = Some((&one.param.name, needs.least_scratch));
            }
            needed.push((one, foreseen));
        }
        Ok(Cut { works, later: needed, parts, scratch, neediest })
    }
}

/// The most bytes of buffers that `threads` threads hold at once.
fn scratch<S>(works: &[Work<'_, S>], threads: usize) -> u64 {
    let mut needs: Vec<u64> = works.iter().map(|w| w.need.bytes()).collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    needs.iter().take(threads).fold(0u64, |sum, n| sum.saturating_add(*n))
}

/// The needs of a load of `plan` on the given number of threads: see [`Plan::needs`](crate::Plan::needs). If `written`, a sink
/// takes all bytes by `write`: see [`Plan::needs_written`](crate::Plan::needs_written).
pub(crate) fn needs(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    options: Options<'_>,
    threads: usize,
    written: bool,
) -> Result<Needs, Error> {
    let homes = homes(plan, checkpoint, !options.owned && !written)?;
    let mut spaces = planned(places(plan, checkpoint, &homes)?);
    if written {
        for plane in spaces.iter_mut().flatten() {
            *plane = Planned { range: 0..plane.bytes(), is_written: true };
        }
    }
    let Foreseen { mut needs, sizes } = foresee(plan, checkpoint, &homes, spaces, options, threads)?;
    needs.reads = ReadSizes::of(sizes);
    Ok(needs)
}

fn planned(places: Vec<Vec<Range<usize>>>) -> Vec<Vec<Planned>> {
    places.into_iter().map(|planes| planes.into_iter().map(Planned::from).collect()).collect()
}

/// The forecast of a load, and how long each read is.
pub(crate) struct Foreseen {
    pub(crate) needs: Needs,
    sizes: Vec<u64>,
}

/// The same, where each parameter's planes go to `spaces`.
fn foresee(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    homes: &[Home],
    spaces: Vec<Vec<Planned>>,
    options: Options<'_>,
    threads: usize,
) -> Result<Foreseen, Error> {
    let threads = at_once(checkpoint, threads);
    let mut needs = Needs { threads, ..Needs::default() };
    let in_memory = spaces.iter().flatten().filter(|r| !r.is_written());
    needs.owned = in_memory.map(|r| r.bytes() as u64).sum();
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

/// The needs of a parameter whose entries are decoded or encoded before they are moved.
pub(crate) fn foresee_later<S: Region>(
    param: &PlannedParam,
    targets: &[S],
    checkpoint: &Checkpoint,
    options: Options<'_>,
    threads: usize,
) -> Result<Foreseen, Error> {
    let staged = staged_bytes(param);
    let memory = options.memory.map(|limit| limit.saturating_sub(staged));
    // As the load has it.
    let guide = |_: &str| options.guide.map(|of| of(&param.name)).unwrap_or_default();
    let options = Options { owned: true, memory, guide: Some(&guide), ..options };
    let plan = staging(param);
    let decoded = homes(&plan, checkpoint, false)?;
    let spaces = planned(places(&plan, checkpoint, &decoded)?);
    let first = foresee(&plan, checkpoint, &decoded, spaces, options, threads)?;
    let (plan, memory) = (moving(param), in_memory(param, |staged| Arc::new(Hollow(staged.slot_bytes()))));
    let spaces = vec![targets.iter().map(Region::planned).collect()];
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

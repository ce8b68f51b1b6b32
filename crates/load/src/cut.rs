//! A plan cut into work: what is done, in which order, and what that takes.

use checkpoint::Checkpoint;
use plan::LoadPlan;

use crate::executor::Home;
use crate::gather::Ways;
use crate::item::{Cutter, Space, Work, together};
use crate::needs::{Foreseen, foresee_later};
use crate::staged::Later;
use crate::{Error, Options};

/// A plan cut into work.
pub(crate) struct Cut<'a, S> {
    /// What threads take in turn.
    pub(crate) works: Vec<Work<'a, S>>,
    /// What is done after that, one after the other, and what it takes.
    pub(crate) later: Vec<(Later<'a, S>, Foreseen)>,
    /// For each parameter of the plan, in how many parts it is filled.
    pub(crate) parts: Vec<usize>,
    /// The most bytes of buffers at once.
    pub(crate) scratch: u64,
    /// The parameter that takes the most buffers, cut as fine as can be, and how many bytes that is.
    pub(crate) neediest: Option<(&'a str, u64)>,
}

impl<'a, S: Space> Cut<'a, S> {
    /// Cuts `plan`, whose parameters' planes go to `spaces`: none of those that have no memory of their own.
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
                Home::Own(change) => cutter.cut(index, param, change, targets, &mut items)?,
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

/// The most bytes of buffers that so many threads hold at once.
fn scratch<S>(works: &[Work<'_, S>], threads: usize) -> u64 {
    let mut needs: Vec<u64> = works.iter().map(|w| w.need.bytes()).collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    needs.iter().take(threads).fold(0u64, |sum, n| sum.saturating_add(*n))
}

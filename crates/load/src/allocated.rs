//! Parameters whose addresses are fixed, until their bytes are there.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use checkpoint::Checkpoint;
use plan::LoadPlan;
use tensor::Arrangement;

use crate::io::executor::fill;
use crate::memory::pages::Pages;
use crate::memory::slot::{Arena, ArenaSink, Slot};
use crate::schedule::home::{Home, homes, places};
use crate::{Error, Loaded, Options, Pool, Tensor};

/// Parameters whose addresses are fixed but whose bytes are not loaded yet: those that stay in maps have addresses
/// there, all others in one allocation.
pub struct Allocated<'a, 'o> {
    plan: &'a LoadPlan,
    checkpoint: &'a Checkpoint,
    arrangement: Option<&'a Arrangement>,
    options: Options<'o>,
    homes: Vec<Home>,
    /// Where in the arena each plane of each parameter with memory of its own is.
    ranges: Vec<Vec<Range<usize>>>,
    arena: Arena,
}

impl fmt::Debug for Allocated<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocated").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl<'a, 'o> Allocated<'a, 'o> {
    /// Allocates a place for each parameter of `plan`, which was compiled against `checkpoint`'s entries.
    pub(crate) fn new(
        plan: &'a LoadPlan,
        checkpoint: &'a Checkpoint,
        arrangement: Option<&'a Arrangement>,
        options: Options<'o>,
    ) -> Result<Allocated<'a, 'o>, Error> {
        let homes = homes(plan, checkpoint, !options.owned)?;
        let ranges = places(plan, checkpoint, &homes)?;
        let arena = Arena::new(bytes(&ranges))?;
        Ok(Allocated { plan, checkpoint, arrangement, options, homes, ranges, arena })
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> usize {
        bytes(&self.ranges)
    }

    /// The addresses of the planes of the parameter called `name`: they stay as long as what is loaded.
    pub fn addresses(&self, name: &str) -> Option<Vec<usize>> {
        let (index, _) = self.plan.find(name)?;
        let index = if let Home::Tied(root) = self.homes.get(index)? { *root } else { index };
        Some(match self.homes.get(index)? {
            Home::Borrowed(slots) => slots.iter().map(|s| s.bytes().as_ptr().addr()).collect(),
            _ => self.ranges.get(index)?.iter().map(|r| self.arena.address() + r.start).collect(),
        })
    }

    /// Reads everything to its place.
    ///
    /// # Errors
    /// As [`Plan::load_with`](crate::Plan::load_with).
    pub fn fill(self, pool: &mut Pool) -> Result<Loaded, Error> {
        let Allocated { plan, checkpoint, arrangement, options, homes, ranges, mut arena } = self;
        let pages = Pages::new(arena.bytes());
        let mut sink = ArenaSink::new(&mut arena, &ranges);
        let report = fill(plan, checkpoint, &homes, &mut sink, Some(&pages), pool, options)?;
        pages.settle();
        let arena = Arc::new(arena);
        let mut params: HashMap<String, Tensor> = HashMap::with_capacity(plan.params.len());
        let mut roots = HashMap::new();
        for ((param, home), ranges) in plan.params.iter().zip(&homes).zip(ranges) {
            let slots = match home {
                Home::Borrowed(slots) => slots.clone(),
                Home::Own(_) => ranges.into_iter().map(|r| Slot::owned(&arena, r)).collect(),
                Home::Tied(other) => {
                    // A tie names an earlier parameter, so it is there.
                    let first = &plan.params[*other];
                    roots.insert(param.name.clone(), first.name.clone());
                    params.get(&first.name).map(|t| t.slots().to_vec()).unwrap_or_default()
                }
            };
            let tensor = Tensor::new(param.shape.clone(), Arc::clone(&param.scheme), slots);
            params.insert(param.name.clone(), tensor);
        }
        let arrangement = arrangement.cloned();
        Ok(Loaded::new(params, roots, arena, report, arrangement))
    }
}

fn bytes(places: &[Vec<Range<usize>>]) -> usize {
    places.iter().flatten().map(|r| r.end).max().unwrap_or(0)
}

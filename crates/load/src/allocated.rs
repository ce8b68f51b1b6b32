//! The life of parameters: their addresses are fixed, then their bytes are there.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use checkpoint::Checkpoint;
use plan::{LoadPlan, PlannedParam};
use tensor::Arrangement;

use crate::executor::{Home, alignment, fill, homes, lent, planes_of};
use crate::item::{PAGE, SMALL};
use crate::pages::Pages;
use crate::slot::{ALIGN, Arena, ArenaSink, Slot};
use crate::{Error, LoadReport, Options, Pool, Tensor};

/// Parameters whose addresses are fixed, and of which nothing can be read yet: those that stay in maps have theirs
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
    /// Gives each parameter of `plan`, which was compiled against `checkpoint`'s entries, its place.
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
        Ok(Loaded { params, roots, arena, report, arrangement, torn: BTreeSet::new() })
    }
}

/// Where in one allocation, which begins with a page, each plane of each parameter with memory of its own lies: at
/// multiples of [`ALIGN`], but for those that are read straight to where their blocks of the file can go.
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
                None => end.checked_next_multiple_of(ALIGN)?,
            };
            end = start.checked_add(len)?;
            Some(start..end)
        };
        let placed: Option<Vec<_>> = planes.into_iter().enumerate().map(&mut place).collect();
        ranges.push(placed.ok_or_else(|| Error::TooLarge { param: param.name.clone() })?);
    }
    Ok(ranges)
}

/// Of a plane that is one run of a file whose blocks go straight to memory: how far past a multiple of these it begins, and
/// how long they are. None if it could not be used there, or is so small that it is read with others.
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
    // Arenas begin with a page, and blocks of more are none.
    let fits = block > 1 && block <= PAGE as u64 && range.end - range.start > SMALL;
    let at = usize::try_from(range.start % block).ok()?;
    (fits && at.is_multiple_of(alignment(param))).then_some((at, usize::try_from(block).ok()?))
}

fn bytes(places: &[Vec<Range<usize>>]) -> usize {
    places.iter().flatten().map(|r| r.end).max().unwrap_or(0)
}

/// What was loaded: parameters by name.
pub struct Loaded {
    params: HashMap<String, Tensor>,
    /// Of parameters that are tied: to which.
    roots: HashMap<String, String>,
    arena: Arc<Arena>,
    report: LoadReport,
    /// `None` for parts of a load.
    arrangement: Option<Arrangement>,
    /// Parameters that an update was to write that ended on the way.
    torn: BTreeSet<String>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("params", &self.params.len())
            .field("arrangement", &self.arrangement)
            .field("torn", &self.torn)
            .finish_non_exhaustive()
    }
}

impl Loaded {
    /// The parameter called `name`: its shape, its scheme, its planes. While the weights are torn ([`Loaded::torn`]) this
    /// gives nothing.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.params.get(name).filter(|_| self.torn.is_empty())
    }

    /// The parameters that an update was to write which ended on the way ([`Error::Partly`]): as long as there are any, what
    /// is in memory is neither the one model nor the other, and nothing of it can be used. An update of all of them that
    /// comes to its end makes it whole.
    pub fn torn(&self) -> impl ExactSizeIterator<Item = &str> {
        self.torn.iter().map(String::as_str)
    }

    /// How the layout holds the parameters, as far as names, shapes and schemes do not say it.
    pub fn arrangement(&self) -> Option<&Arrangement> {
        self.arrangement.as_ref()
    }

    /// As [`Loaded::get`], torn or not: to look at, not to use.
    pub(crate) fn there(&self, name: &str) -> Option<&Tensor> {
        self.params.get(name)
    }

    /// Says that these parameters are about to be written.
    pub(crate) fn tear(&mut self, names: impl Iterator<Item = String>) {
        self.torn.extend(names);
    }

    /// Says that these parameters are written.
    pub(crate) fn mend<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        for name in names {
            self.torn.remove(name);
        }
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.params.keys().map(String::as_str)
    }

    /// What it cost.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The parameter whose slot `name` shares, if it has none of its own.
    pub(crate) fn root(&self, name: &str) -> Option<&str> {
        self.roots.get(name).map(String::as_str)
    }

    /// Whether nobody else holds any of it now.
    pub(crate) fn is_alone(&self) -> bool {
        let slots = self.params.values().flat_map(Tensor::slots);
        Arc::strong_count(&self.arena) == 1 + slots.filter(|slot| slot.place().is_some()).count()
    }

    /// Calls `f` with all memory that is owned; `None` if somebody else holds some of it.
    pub(crate) fn with_arena<R>(&mut self, f: impl FnOnce(&mut Arena) -> R) -> Option<R> {
        // While it is written nobody can look at it: tensors are taken apart, and put together after.
        let params = std::mem::take(&mut self.params).into_iter();
        let apart = params.map(|(name, tensor)| {
            let slots = tensor.slots().iter().map(|slot| slot.place().ok_or_else(|| slot.clone()));
            (name, tensor.shape().clone(), Arc::clone(tensor.scheme()), slots.collect::<Vec<_>>())
        });
        let apart: Vec<_> = apart.collect();
        let result = Arc::get_mut(&mut self.arena).map(f);
        let arena = &self.arena;
        let together = apart.into_iter().map(|(name, shape, scheme, slots)| {
            let slots = slots.into_iter().map(|s| s.map_or_else(|lent| lent, |r| Slot::owned(arena, r)));
            (name, Tensor::new(shape, scheme, slots.collect()))
        });
        self.params = together.collect();
        result
    }
}

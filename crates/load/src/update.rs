//! Other values of the same shapes, in the same places.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use checkpoint::Checkpoint;
use plan::{LoadPlan, PlannedParam};
use tensor::{Pattern, nearest};

use crate::loaded::Loaded;
use crate::memory::sink::{Destination, Place, Sink};
use crate::memory::slot::Arena;
use crate::schedule::sources::{extent, files_of, place_of};
use crate::{Error, LoadReport, Obstacle, Options, Plan, Pool, Tensor};

impl Loaded {
    /// Runs `plan`, which must be of the same layout, into the existing memory: addresses stay. Updates the parameters
    /// that match `only`, or all if it is empty; a tied parameter is updated with its root, by either name.
    ///
    /// Everything that can be is checked before the first byte is written: names, shapes, schemes, ties, the layout's
    /// arrangement, and that files are unchanged and long enough. Then everything is read into other memory, and copied
    /// to its place when all of it is good: an error leaves the old values. With [`Options::memory`] too small for
    /// that, bytes go straight to their place: [`Error::Partly`] then lists what was written, and the parameters are
    /// torn until an update of all of them completes.
    ///
    /// # Errors
    /// [`Error::Update`] with every obstacle, then as [`Plan::load_with`].
    pub fn update(
        &mut self,
        plan: &Plan,
        only: &[Pattern],
        pool: &mut Pool,
        options: Options<'_>,
    ) -> Result<LoadReport, Error> {
        let mut obstacles = vec![];
        let roots = self.selected(plan, only, &mut obstacles);
        let mut params: Vec<PlannedParam> = plan.params().to_vec();
        params.retain(|p| roots.contains(&p.name));
        for param in &mut params {
            param.tied_to = None;
        }
        let part = plan.part(params);
        if self.arrangement() != Some(plan.arrangement()) {
            let (wanted, found) = (self.arrangement().cloned(), plan.arrangement().clone());
            obstacles.push(Obstacle::Arrangement { wanted, found });
        }
        unreadable(part.pieces(), part.checkpoint(), &mut obstacles)?;
        if !self.is_alone() {
            obstacles.push(Obstacle::InUse);
        }
        if !obstacles.is_empty() {
            return Err(Error::Update { obstacles });
        }
        let bytes = part.params().iter().map(PlannedParam::slot_bytes).fold(0u64, u64::saturating_add);
        let left = options.memory.map(|m| m.checked_sub(bytes));
        let staged = match left {
            Some(None) => None,
            left => {
                let options = Options { owned: true, memory: left.flatten(), ..options };
                match part.load_with(pool, options) {
                    // Nothing was read yet: straight to its place it may fit.
                    Err(Error::LittleMemory { .. }) if options.memory.is_some() => None,
                    staged => Some(staged?),
                }
            }
        };
        let mut places = vec![];
        for param in part.params() {
            let slots = self.there(&param.name).map(Tensor::slots).unwrap_or_default();
            let owned = slots.iter().filter_map(crate::Slot::place).filter(|range| !range.is_empty());
            places.extend(owned.map(|range| (range, param.name.as_str())));
        }
        places.sort_by_key(|(range, _)| range.start);
        let done = self.with_arena(|arena| {
            let planes = split(arena, &places);
            match staged {
                Some(staged) => Ok(put(&staged, planes, pool)),
                None => straight(&part, planes, pool, options),
            }
        });
        let done = done.unwrap_or_else(|| Err(Error::Update { obstacles: vec![Obstacle::InUse] }));
        match &done {
            Ok(_) => self.mend(roots.iter().map(String::as_str)),
            Err(Error::Partly { .. }) => self.tear(roots.into_iter()),
            Err(_) => {}
        }
        done
    }

    /// The parameters with slots of their own that are to be updated, and everything that is in the way of it.
    fn selected(&self, plan: &Plan, only: &[Pattern], obstacles: &mut Vec<Obstacle>) -> BTreeSet<String> {
        let names: BTreeSet<&str> = self.names().collect();
        let wanted = |name: &str| only.is_empty() || only.iter().any(|p| p.matches(name));
        for pattern in only.iter().filter(|p| !names.iter().any(|name| p.matches(name))) {
            let nearest = nearest(pattern.as_str(), names.iter().copied()).map(str::to_owned);
            obstacles.push(Obstacle::NoMatch { pattern: pattern.to_string(), nearest });
        }
        let planned: HashMap<&str, &PlannedParam> =
            plan.params().iter().map(|p| (p.name.as_str(), p)).collect();
        for p in plan.params().iter().filter(|p| wanted(&p.name) && !names.contains(p.name.as_str())) {
            let nearest = nearest(&p.name, names.iter().copied().filter(|n| !planned.contains_key(n)));
            let nearest = nearest.map(str::to_owned);
            obstacles.push(Obstacle::Extra { name: p.name.clone(), nearest });
        }
        let root = |name: &str| self.root(name).unwrap_or(name).to_owned();
        let roots: BTreeSet<String> = names.iter().filter(|n| wanted(n)).map(|n| root(n)).collect();
        // Whoever shares a slot that is written is looked at too.
        for name in names.iter().filter(|name| roots.contains(&root(name))) {
            let (Some(there), name) = (self.there(name), (*name).to_owned()) else { continue };
            let Some(param) = planned.get(name.as_str()) else {
                obstacles.push(Obstacle::Missing { name });
                continue;
            };
            let (shape, scheme) = (there.shape(), there.scheme());
            if *shape != param.shape {
                let (wanted, found) = (shape.clone(), param.shape.clone());
                obstacles.push(Obstacle::Shape { name: name.clone(), wanted, found });
            }
            if *scheme != param.scheme {
                let (wanted, found) = (scheme.name.to_string(), param.scheme.name.to_string());
                obstacles.push(Obstacle::Scheme { name: name.clone(), wanted, found });
            }
            let found = param.tied_to.map(|i| plan.params()[i].name.clone());
            let wanted = self.root(&name).map(str::to_owned);
            if found != wanted {
                obstacles.push(Obstacle::Tie { name: name.clone(), wanted, found });
            }
            if there.slots().iter().any(crate::Slot::is_borrowed) {
                obstacles.push(Obstacle::Borrowed { name });
            }
        }
        roots
    }
}

/// Adds the files that have changed, or that are too short for `plan`.
fn unreadable(plan: &LoadPlan, checkpoint: &Checkpoint, obstacles: &mut Vec<Obstacle>) -> Result<(), Error> {
    files_of(plan, checkpoint)?;
    let mut ends = BTreeMap::new();
    let planes = plan.params.iter().flat_map(PlannedParam::from_entries);
    for piece in planes.flat_map(|p| p.copy.iter().chain(&p.equal)) {
        if let Some((file, at)) = place_of(checkpoint, piece) {
            let end = ends.entry(file).or_insert(0);
            *end = (at + extent(piece)).max(*end);
        }
    }
    for (file, needed) in ends.into_iter().filter(|(_, end)| *end > 0) {
        let file = checkpoint.file(file);
        if let Err(changed) = file.unchanged() {
            obstacles.push(Obstacle::Changed(changed));
        } else if let Err(source) = file.source.read_at(needed - 1, &mut [0]) {
            obstacles.push(Obstacle::File { location: file.location.clone(), needed, source });
        }
    }
    Ok(())
}

/// The planes of each parameter that are not empty, as they lie in the arena.
fn split<'m, 'n>(
    arena: &'m mut Arena,
    places: &[(Range<usize>, &'n str)],
) -> HashMap<&'n str, Vec<&'m mut [u8]>> {
    let mut planes: HashMap<&str, Vec<&mut [u8]>> = HashMap::new();
    let (mut rest, mut at) = (arena.as_mut(), 0);
    for (range, name) in places {
        let (_, after) = std::mem::take(&mut rest).split_at_mut(range.start - at);
        let (plane, after) = after.split_at_mut(range.len());
        (rest, at) = (after, range.end);
        planes.entry(name).or_default().push(plane);
    }
    planes
}

/// Puts what was staged in its place. Nothing here can fail.
fn put(staged: &Loaded, planes: HashMap<&str, Vec<&mut [u8]>>, pool: &mut Pool) -> LoadReport {
    let mut pairs = vec![];
    for (name, planes) in planes {
        let from = staged.get(name).map(Tensor::slots).unwrap_or_default();
        let from = from.iter().map(crate::Slot::bytes).filter(|bytes| !bytes.is_empty());
        pairs.extend(planes.into_iter().zip(from));
    }
    let mut none = vec![(); pool.threads()];
    pool.chunks(&mut none, &mut pairs, 1, |(), _, pairs| {
        for (to, from) in pairs {
            to.copy_from_slice(from);
        }
    });
    staged.report().clone()
}

/// A sink over the existing planes.
struct InPlace<'m, 'n> {
    planes: HashMap<&'n str, Vec<&'m mut [u8]>>,
    done: Mutex<BTreeSet<String>>,
}

impl<'m> Sink<'m> for InPlace<'m, '_> {
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let mut planes = self.planes.remove(param.name).unwrap_or_default().into_iter();
        // Empty ones have no place of their own.
        let mut plane = |len: &usize| if *len == 0 { Some(<&mut [u8]>::default()) } else { planes.next() };
        let planes = param.planes.iter().map(&mut plane).collect::<Option<_>>();
        Ok(Destination::Memory(planes.ok_or("it has no place")?))
    }

    fn done(&self, param: &Place<'_>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(param.name.to_owned());
    }
}

/// Runs the plan into what is there.
fn straight(
    part: &Plan,
    planes: HashMap<&str, Vec<&mut [u8]>>,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<LoadReport, Error> {
    let mut sink = InPlace { planes, done: Mutex::default() };
    part.load_into(&mut sink, pool, options).map_err(|error| {
        if let Error::LittleMemory { .. } | Error::Sink { .. } | Error::Codec { .. } = error {
            // Nothing was read yet.
            return error;
        }
        // Bytes of a file that has changed may be of the one or of the other.
        let written = match error {
            Error::Changed(_) => BTreeSet::new(),
            _ => sink.done.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        let names = part.params().iter().map(|p| p.name.clone());
        let broken = names.filter(|name| !written.contains(name)).collect();
        Error::Partly { written: written.into_iter().collect(), broken, source: Box::new(error) }
    })
}

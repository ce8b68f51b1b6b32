//! Loaded parameters by name.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use tensor::Arrangement;

use crate::memory::slot::{Arena, Slot};
use crate::{LoadReport, Tensor};

/// Loaded parameters by name.
pub struct Loaded {
    params: HashMap<String, Tensor>,
    /// The root of each tied parameter.
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
    /// Creates the result from `params` in `arena`; `roots` maps each tied parameter to its root.
    pub(crate) fn new(
        params: HashMap<String, Tensor>,
        roots: HashMap<String, String>,
        arena: Arc<Arena>,
        report: LoadReport,
        arrangement: Option<Arrangement>,
    ) -> Loaded {
        Loaded { params, roots, arena, report, arrangement, torn: BTreeSet::new() }
    }

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

    /// Records that these parameters are about to be written.
    pub(crate) fn tear(&mut self, names: impl Iterator<Item = String>) {
        self.torn.extend(names);
    }

    /// Records that these parameters have been written.
    pub(crate) fn mend<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        for name in names {
            self.torn.remove(name);
        }
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.params.keys().map(String::as_str)
    }

    /// The cost of the load.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Returns the parameter whose slot `name` shares, if it has none of its own.
    pub(crate) fn root(&self, name: &str) -> Option<&str> {
        self.roots.get(name).map(String::as_str)
    }

    /// Whether no one else holds any part of it now.
    pub(crate) fn is_alone(&self) -> bool {
        let slots = self.params.values().flat_map(Tensor::slots);
        Arc::strong_count(&self.arena) == 1 + slots.filter(|slot| slot.place().is_some()).count()
    }

    /// Calls `f` with all memory that is owned; `None` if somebody else holds some of it.
    pub(crate) fn with_arena<R>(&mut self, f: impl FnOnce(&mut Arena) -> R) -> Option<R> {
        // No one can read it while it is written: tensors are taken apart, and put together afterwards.
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

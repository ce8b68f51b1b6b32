//! State that a session keeps of earlier positions: one for each layer, of the layer's own kind.

mod eviction;
mod kv_cache;
mod kv_kind;
mod pages;
mod recurrent;
mod saved;

pub use eviction::OBSERVED;
pub use kv_cache::KvCache;
pub(crate) use kv_cache::{ShareParts, write_alone};
pub use kv_kind::{KvKind, KvShape, RECENT};
pub use pages::PAGE;
pub(crate) use recurrent::Recurrent;
pub use recurrent::RecurrentShape;
pub(crate) use saved::{SavedPlaces, SavedState, SavedTensor};

use std::sync::Arc;

use kv_cache::KvSnapshot;

/// The state of one layer of one session. A kind of layer that keeps something else adds a variant.
#[derive(Debug)]
pub(crate) enum State {
    /// No state: the layer looks at one position alone.
    None,
    /// Keys and values.
    Kv(Box<KvCache>),
    /// Keys and values of what the session hears, whatever its position; `None` before it has heard anything.
    Heard(Option<Arc<KvCache>>),
    /// The matrices of linear attention, after all positions so far.
    Recurrent(Box<Recurrent>),
}

impl State {
    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            State::None => 0,
            State::Kv(cache) => cache.bytes(),
            State::Heard(cache) => cache.as_ref().map_or(0, |cache| cache.bytes()),
            State::Recurrent(state) => state.bytes(),
        }
    }

    /// Whether the sequence can go on from `position`.
    pub(crate) fn reaches(&self, position: usize) -> bool {
        match self {
            State::None | State::Heard(_) => true,
            State::Kv(cache) => cache.reaches(position),
            State::Recurrent(state) => state.reaches(position),
        }
    }

    /// Forgets every position from `len` on, which it [reaches](Self::reaches).
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            State::None | State::Heard(_) => {}
            State::Kv(cache) => cache.truncate(len),
            State::Recurrent(state) => state.truncate(len),
        }
    }

    /// What it holds of the first `len` positions, to go on from there.
    pub(crate) fn snapshot(&self, len: usize) -> StateSnapshot {
        match self {
            State::None => StateSnapshot::None,
            State::Kv(cache) => StateSnapshot::Kv(cache.snapshot(len)),
            State::Heard(cache) => StateSnapshot::Heard(cache.clone()),
            State::Recurrent(state) => StateSnapshot::Recurrent(Arc::new((**state).clone())),
        }
    }

    /// Whether `snapshot`, of the same layer, has what the position `len` sees.
    pub(crate) fn reaches_in(&self, snapshot: &StateSnapshot, len: usize) -> bool {
        match (self, snapshot) {
            (State::Kv(cache), StateSnapshot::Kv(snapshot)) => cache.reaches_in(snapshot, len),
            (State::Recurrent(_), StateSnapshot::Recurrent(snapshot)) => snapshot.reaches(len),
            _ => true,
        }
    }

    /// Goes on from the first `len` positions of `snapshot`, which is of the same layer and [has them](Self::reaches_in).
    pub(crate) fn restore(&mut self, snapshot: &StateSnapshot, len: usize) {
        match (self, snapshot) {
            (State::None, StateSnapshot::None) => {}
            (State::Kv(cache), StateSnapshot::Kv(snapshot)) => cache.restore(snapshot, len),
            (State::Heard(cache), StateSnapshot::Heard(snapshot)) => cache.clone_from(snapshot),
            (State::Recurrent(state), StateSnapshot::Recurrent(snapshot)) => state.restore(snapshot, len),
            _ => unreachable!("states of one layer are of one kind"),
        }
    }
}

/// The state of one layer at one position.
pub(crate) enum StateSnapshot {
    /// No state.
    None,
    /// Keys and values.
    Kv(KvSnapshot),
    /// Keys and values of what was heard.
    Heard(Option<Arc<KvCache>>),
    /// The matrices of linear attention.
    Recurrent(Arc<Recurrent>),
}

impl StateSnapshot {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            StateSnapshot::None => 0,
            StateSnapshot::Kv(snapshot) => snapshot.bytes(),
            StateSnapshot::Heard(cache) => cache.as_ref().map_or(0, |cache| cache.bytes()),
            StateSnapshot::Recurrent(state) => state.bytes(),
        }
    }
}

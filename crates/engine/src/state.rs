//! State that a session keeps of earlier positions: one for each layer, of the layer's own kind.

mod kv_cache;

use crate::Error;

pub use kv_cache::{KvCache, KvShape};

/// The state of one layer of one session. A kind of layer that keeps something else adds a variant.
#[derive(Debug)]
pub(crate) enum State {
    /// No state: the layer looks at one position alone.
    None,
    /// Keys and values.
    Kv(KvCache),
}

impl State {
    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            State::None => 0,
            State::Kv(cache) => cache.bytes(),
        }
    }

    /// A state that holds the first `positions` positions, and has room for no more.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn snapshot(&self, positions: usize) -> Result<State, Error> {
        Ok(match self {
            State::None => State::None,
            State::Kv(cache) => {
                let mut copy = cache.like(positions)?;
                copy.copy_from(cache, positions);
                State::Kv(copy)
            }
        })
    }

    /// Takes the first `positions` positions of `other`, a state of the same layer.
    pub(crate) fn copy_from(&mut self, other: &State, positions: usize) {
        match (self, other) {
            (State::None, State::None) => {}
            (State::Kv(cache), State::Kv(other)) => cache.copy_from(other, positions),
            _ => unreachable!("states of one layer are of one kind"),
        }
    }
}

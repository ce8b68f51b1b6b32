//! One sequence of tokens.

use std::fmt;
use std::sync::Arc;

use model::{Architecture, Computes};

use crate::rotary::Turns;
use crate::state::State;
use crate::{Adapter, Error, KvShape, Model};

/// One sequence: how far it is, and what each layer keeps of the positions before.
///
/// Sessions of one [`Model`] share its weights and nothing else.
pub struct Session {
    model: Arc<Model>,
    /// One for each branch of the model.
    pub(crate) states: Vec<State>,
    /// Of each rotary embedding of the model, for as many positions as there is room for.
    pub(crate) turns: Vec<Turns>,
    /// Positions that count.
    pub(crate) position: usize,
    capacity: usize,
    /// Changes the products of its rows.
    pub(crate) adapter: Option<Arc<Adapter>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("position", &self.position)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Bytes that a [`Session`] of `positions` positions takes of a model that is not loaded; divided among `ranks`, of the one
/// that takes the most. `None` if they cannot be counted.
pub fn session_bytes(architecture: &Architecture, positions: u64, ranks: u64) -> Option<u64> {
    let bytes = |what: &Computes| match what {
        // Ranks beyond the number of heads have copies.
        Computes::Attention(attention) => {
            let (kv_heads, head) = (attention.kv_heads.div_ceil(ranks.max(1)), attention.head_dim);
            KvShape { kv_heads, key: head, value: head, shared: false }.bytes(positions)
        }
        // Each rank has the latent vectors, which all heads share.
        Computes::LatentAttention(attention) => KvShape::latent(attention).bytes(positions),
        _ => Some(0),
    };
    architecture.modules().map(|(_, what)| bytes(what)).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

impl Session {
    /// An empty session with room for `capacity` positions. Memory is reserved now and touched as positions fill.
    ///
    /// # Errors
    /// If the model has learned fewer positions, or memory runs out.
    pub fn new(model: &Arc<Model>, capacity: usize) -> Result<Session, Error> {
        if let Some(learned) = model.learned_positions().filter(|learned| capacity > *learned) {
            return Err(Error::Positions { wanted: capacity, learned });
        }
        // All of it at once before it is taken layer by layer, so that a machine that has too little says so.
        let too_large = || Error::CacheTooLarge { capacity };
        let bytes =
            model.state_bytes(capacity).and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| too_large())?;
        let states = model.branches().iter().map(|branch| branch.layer.state(capacity));
        let states = states.collect::<Result<Vec<_>, Error>>()?;
        let turns = model.ropes.iter().map(|rope| rope.turns(capacity)).collect();
        Ok(Session { model: Arc::clone(model), states, turns, position: 0, capacity, adapter: None })
    }

    /// The model that it runs on.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Positions filled: the next token is at this one.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Its adapter, if it has one.
    pub fn adapter(&self) -> Option<&Arc<Adapter>> {
        self.adapter.as_ref()
    }

    /// Runs with `adapter` from here on, or without one. Sessions beside it are not changed.
    ///
    /// # Errors
    /// If the adapter is of another model, or the session has positions already.
    pub fn set_adapter(&mut self, adapter: Option<Arc<Adapter>>) -> Result<(), Error> {
        if adapter.as_ref().is_some_and(|adapter| !Arc::ptr_eq(adapter.model(), &self.model)) {
            return Err(Error::OtherModel);
        }
        if self.position > 0 {
            return Err(Error::OtherAdapter);
        }
        self.adapter = adapter;
        Ok(())
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.states.iter().map(State::bytes).sum()
    }

    /// Forgets every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.position = self.position.min(len);
    }

    /// A copy of the positions that are filled, to go on from later, in this session or in others.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let states = self.states.iter().map(|state| state.snapshot(self.position));
        let states = Arc::new(states.collect::<Result<Vec<_>, Error>>()?);
        let (turns, adapter) = (self.turns.clone(), self.adapter.clone());
        Ok(Snapshot { model: Arc::clone(&self.model), states, turns, position: self.position, adapter })
    }

    /// Restores the state of `snapshot`, which may be of this or another session. The session's own state is dropped.
    ///
    /// # Errors
    /// If the snapshot is of another model or another adapter, of more positions than there is room for, or of a session whose room makes the model
    /// rotate keys otherwise. The session is then unchanged.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.model, &snapshot.model) {
            return Err(Error::OtherModel);
        }
        if snapshot.adapter.as_ref().map(Arc::as_ptr) != self.adapter.as_ref().map(Arc::as_ptr) {
            return Err(Error::OtherAdapter);
        }
        if snapshot.position > self.capacity {
            return Err(Error::ContextFull { wanted: snapshot.position, capacity: self.capacity });
        }
        if snapshot.turns != self.turns {
            return Err(Error::OtherTurns { capacity: self.capacity });
        }
        for (state, from) in self.states.iter_mut().zip(&*snapshot.states) {
            state.copy_from(from, snapshot.position);
        }
        self.position = snapshot.position;
        Ok(())
    }
}

/// The positions of a session at one time. A clone shares the memory.
#[derive(Clone)]
pub struct Snapshot {
    model: Arc<Model>,
    states: Arc<Vec<State>>,
    turns: Vec<Turns>,
    position: usize,
    adapter: Option<Arc<Adapter>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Positions that it holds.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.states.iter().map(State::bytes).sum()
    }
}

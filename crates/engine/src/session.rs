//! One sequence of tokens.

mod problem;
mod saved;

use std::fmt;
use std::sync::Arc;

use model::{Architecture, Computes};

use crate::rotary::Turns;
use crate::state::{OBSERVED, RecurrentShape, State, StateSnapshot};
use crate::{Adapter, Error, Heard, KvKind, KvShape, Model};

pub use problem::SavedProblem;

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
    kind: KvKind,
    /// Positions that are kept of a prompt, if not all.
    budget: Option<usize>,
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
/// that takes the most. Nothing of an encoder, whose keys and values are not kept. `None` if they cannot be counted.
pub fn session_bytes(architecture: &Architecture, kind: KvKind, positions: u64, ranks: u64) -> Option<u64> {
    let size = |n: u64| usize::try_from(n).ok();
    let positions = size(positions)?;
    let bytes = |what: &Computes| match what {
        // Ranks beyond the number of heads have copies.
        Computes::Attention(attention) if !attention.bidirectional => {
            let (kv_heads, head) =
                (size(attention.kv_heads.div_ceil(ranks.max(1)))?, size(attention.head_dim)?);
            let window = attention.window.map(|window| size(window).unwrap_or(usize::MAX));
            KvShape { kv_heads, key: head, value: head, shared: false, window }.bytes(kind, positions)
        }
        Computes::CrossAttention(attention) => {
            let heads = size(attention.heads.div_ceil(ranks.max(1)))?;
            let dim = size(attention.head_dim)?;
            let heard = size(architecture.audio_encoder()?.context)?;
            KvShape::cross(heads, dim).bytes(kind.without_codes(), heard)
        }
        // Each rank has the latent vectors, which all heads share.
        Computes::LatentAttention(attention) => KvShape::latent(attention)?.bytes(kind, positions),
        Computes::GatedDelta(delta) => RecurrentShape::of(delta, ranks)?.bytes(),
        _ => Some(0),
    };
    architecture.modules().map(|(_, what)| bytes(what)).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

impl Session {
    /// An empty session with room for `capacity` positions, which keeps keys and values as `kind` says. Memory is reserved now and
    /// touched as positions fill.
    ///
    /// # Errors
    /// If the model has learned fewer positions, or memory runs out.
    pub fn new(model: &Arc<Model>, kind: KvKind, capacity: usize) -> Result<Session, Error> {
        if let Some(learned) = model.learned_positions().filter(|learned| capacity > *learned) {
            return Err(Error::Positions { wanted: capacity, learned });
        }
        // All of it at once before it is taken layer by layer, so that a machine that has too little says so.
        let too_large = || Error::CacheTooLarge { capacity };
        let bytes =
            model.state_bytes(kind, capacity).and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| too_large())?;
        let states = model.branches().iter().map(|branch| branch.layer.state(kind, capacity));
        let states = states.collect::<Result<Vec<_>, Error>>()?;
        let turns = model.ropes.iter().map(|rope| rope.turns(capacity)).collect();
        let model = Arc::clone(model);
        Ok(Session { model, states, turns, position: 0, capacity, kind, budget: None, adapter: None })
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

    /// Lets the layers that look at all positions keep `budget` of a prompt from here on, whatever its length ([SnapKV](crate::OBSERVED)), or all
    /// of them: [`Runner::evict`](crate::Runner::evict) leaves out the others at its end. Results are not the same then; rotary positions are.
    /// Layers with a window, and linear attention, keep what they always keep.
    ///
    /// # Errors
    /// If the budget is not larger than [`OBSERVED`](crate::OBSERVED), no layer looks at all positions, or the session has positions already.
    pub fn set_kv_budget(&mut self, budget: Option<usize>) -> Result<(), Error> {
        if let Some(wanted) = budget.filter(|budget| *budget <= OBSERVED) {
            return Err(Error::KvBudget { wanted });
        }
        if self.position > 0 {
            return Err(Error::LateKvBudget);
        }
        let widths = self.model.branches().iter().map(|branch| branch.layer.observed());
        if budget.is_some() && widths.clone().flatten().next().is_none() {
            return Err(Error::NoKvBudget);
        }
        self.budget = budget;
        for (width, state) in widths.zip(&mut self.states) {
            if let State::Kv(cache) = state {
                cache.observe(width.filter(|_| budget.is_some()));
            }
        }
        Ok(())
    }

    /// Positions that the layers which look at all of them keep of a prompt; `None`: all of them.
    pub fn kv_budget(&self) -> Option<usize> {
        self.budget
    }

    /// Bytes of its state that a token at `position` reads.
    pub fn reads(&self, position: usize) -> u64 {
        let reads = self.model.branches().iter().zip(&self.states).map(|(branch, state)| match state {
            State::Kv(cache) => branch.layer.state_reads(self.kind, cache.place(position)),
            _ => branch.layer.state_reads(self.kind, position),
        });
        reads.fold(0, u64::saturating_add)
    }

    /// The memory of its keys and values.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &[u8]> {
        let caches = self.states.iter().filter_map(|state| match state {
            State::Kv(cache) => Some(cache),
            _ => None,
        });
        caches.flat_map(|cache| cache.memory())
    }

    /// Returns how many of the first `known` tokens of a prompt need not run again. The session holds these, and the prompt has `prompt` tokens.
    /// The last token runs, and with a budget the tokens that choose what is kept. All run if positions have been left out. So what follows is what
    /// follows in an empty session.
    pub fn known_of(&self, known: usize, prompt: usize) -> usize {
        let runs = if self.budget.is_some() { OBSERVED } else { 1 };
        if self.has_left_out() { 0 } else { known.min(prompt.saturating_sub(runs)) }
    }

    /// True if the session has left out positions.
    pub fn has_left_out(&self) -> bool {
        self.states.iter().any(|state| matches!(state, State::Kv(cache) if cache.left_out() > 0))
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.states.iter().map(State::bytes).sum()
    }

    /// How keys and values are kept.
    pub fn kind(&self) -> KvKind {
        self.kind
    }

    /// Listens to `heard` from here on. Its positions are forgotten: they have heard something else.
    ///
    /// # Errors
    /// If that was heard by another model.
    pub fn hear(&mut self, heard: &Heard) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.model, &heard.model) {
            return Err(Error::OtherModel);
        }
        self.truncate(0);
        let heard_by = self.states.iter_mut().filter_map(|state| match state {
            State::Heard(cache) => Some(cache),
            State::None | State::Kv(_) | State::Recurrent(_) => None,
        });
        for (state, cache) in heard_by.zip(&heard.caches) {
            *state = Some(Arc::clone(cache));
        }
        Ok(())
    }

    /// Whether there is nothing to hear, or it has been heard.
    pub(crate) fn has_heard(&self) -> bool {
        !self.states.iter().any(|state| matches!(state, State::Heard(None)))
    }

    /// Forgets every position from `len` on, and returns the position that it is at then: `len`, or 0 where a layer no longer
    /// has what that position sees. Windows forget what they have passed, by 256 positions and more; linear attention knows the last
    /// position alone.
    pub fn truncate(&mut self, len: usize) -> usize {
        if len < self.position {
            let reached = self.states.iter().all(|state| state.reaches(len));
            self.position = if reached { len } else { 0 };
            self.states.iter_mut().for_each(|state| state.truncate(self.position));
        }
        self.position
    }

    /// Keeps the state of the filled positions, for this session or others to go on from. Sessions that go on from it share its
    /// memory, as do their snapshots.
    pub fn snapshot(&self) -> Snapshot {
        let states = self.states.iter().map(|state| state.snapshot(self.position)).collect();
        Snapshot {
            model: Arc::clone(&self.model),
            states: Arc::new(states),
            turns: self.turns.clone(),
            position: self.position,
            kind: self.kind,
            adapter: self.adapter.clone(),
        }
    }

    /// Restores the state of `snapshot`, which may be of this or another session. The session's own state is dropped.
    ///
    /// # Errors
    /// If the snapshot is of another model or another adapter, of more positions than there is room for, of a session that keeps
    /// keys and values otherwise, or of one whose room makes the model rotate keys otherwise. The session is then unchanged.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.restore_first(snapshot, snapshot.position).map(|_| ())
    }

    /// Restores the first `len` positions of `snapshot`, if it has them as this session would have them, and no more otherwise: the
    /// position returned is `len` or 0.
    ///
    /// # Errors
    /// As [`Session::restore`].
    pub fn restore_first(&mut self, snapshot: &Snapshot, len: usize) -> Result<usize, Error> {
        if !Arc::ptr_eq(&self.model, &snapshot.model) {
            return Err(Error::OtherModel);
        }
        if snapshot.adapter.as_ref().map(Arc::as_ptr) != self.adapter.as_ref().map(Arc::as_ptr) {
            return Err(Error::OtherAdapter);
        }
        if len > self.capacity {
            return Err(Error::ContextFull { wanted: len, capacity: self.capacity });
        }
        if snapshot.kind != self.kind {
            return Err(Error::OtherKind { wanted: self.kind, found: snapshot.kind });
        }
        if snapshot.turns != self.turns {
            return Err(Error::OtherTurns { capacity: self.capacity });
        }
        let reached =
            self.states.iter().zip(&*snapshot.states).all(|(state, from)| state.reaches_in(from, len));
        self.position = if reached { len } else { 0 };
        for (state, from) in self.states.iter_mut().zip(&*snapshot.states) {
            if reached {
                state.restore(from, len);
            } else {
                state.truncate(0);
            }
        }
        Ok(self.position)
    }
}

/// The state of a session at one time. A clone shares the memory.
#[derive(Clone)]
pub struct Snapshot {
    model: Arc<Model>,
    states: Arc<Vec<StateSnapshot>>,
    turns: Vec<Turns>,
    position: usize,
    kind: KvKind,
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
        self.states.iter().map(StateSnapshot::bytes).sum()
    }
}

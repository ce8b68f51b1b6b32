//! Layers that are read while others run: of a model in a map, only some weights are in memory at a time.
//!
//! Tokens go through the layers in one order, over and over. What was used last is needed last, so that a cache of the latest layers
//! would never hold the next one. So the first layers stay, as many as there is room for; of the others a thread brings in the next
//! ones, and each is given back once it has run. The bytes are the file's own, wherever they are touched: a layer that is not there
//! when it runs is read then.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use load::Slot;
use tensor::Bytes;

use crate::backend::Backend;
use crate::weights::{Linear, Projection};
use crate::{Error, Model};

/// Bytes of a band of the output matrix, at least.
const LEAST_BAND: u64 = 1 << 20;

/// What a runner that streams layers keeps and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// Bytes of weights that stay in memory.
    pub kept: u64,
    /// Bytes of weights that each pass reads.
    pub read: u64,
}

impl fmt::Display for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Streaming { kept, read } = self;
        write!(f, "{} of weights stay in memory, {} are read for each token", Bytes(*kept), Bytes(*read))
    }
}

/// Matrices that run one after the other: those of a branch, or rows of the output matrix.
struct Unit {
    /// The planes that lie in a map.
    slots: Vec<Slot>,
    bytes: u64,
    /// It stays.
    is_kept: bool,
}

/// Brings in units ahead of their use, on a thread.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    /// The output matrix in bands of rows, each a unit after those of the branches.
    output: Vec<Arc<Projection>>,
    /// The token embedding, of which a pass uses some rows.
    embedding: Vec<Slot>,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    /// One for each branch, and one for each band of the output matrix.
    units: Vec<Unit>,
    /// The units that do not stay.
    streamed: Vec<usize>,
    /// The most bytes of these that are in memory.
    room: u64,
    now: Mutex<Now>,
    changed: Condvar,
}

/// Where reading is.
#[derive(Default)]
struct Now {
    /// The place in [`Shared::streamed`] of the unit that is read next.
    next: usize,
    /// The units that are in memory, in the order in which they will run. The first may be running.
    ready: VecDeque<usize>,
    /// Bytes in memory, or being read.
    bytes: u64,
    /// Counts how often reading began elsewhere than where it had been.
    turns: u64,
    is_over: bool,
}

impl Stream {
    /// Streams `model` so that at most `room` bytes of its weights are in memory. `None` if all of them may be.
    ///
    /// # Errors
    /// If there is not enough room for the largest unit.
    pub(crate) fn new(model: &Model, room: u64) -> Result<Option<Stream>, Error> {
        let branches = model.branches().iter().map(|branch| Unit::of(&branch.layer.projections()));
        let mut units: Vec<Unit> = branches.collect();
        let layer = units.iter().map(|unit| unit.bytes).max().unwrap_or(0);
        let output = model.output().map_or_else(Vec::new, |output| bands(output, layer.max(LEAST_BAND)));
        units.extend(output.iter().map(|band| Unit::of(&[band])));
        let largest = units.iter().map(|unit| unit.bytes).max().unwrap_or(0);
        if units.iter().map(|unit| unit.bytes).sum::<u64>() <= room {
            return Ok(None);
        }
        if largest > room {
            return Err(Error::LayerTooLarge { wanted: largest, limit: room });
        }
        // One runs and others come, where there is room for that.
        let mut left = room.saturating_sub(largest.saturating_mul(2).max(room / 4));
        for unit in &mut units {
            unit.is_kept = unit.bytes <= left;
            left -= if unit.is_kept { unit.bytes } else { 0 };
        }
        let kept: u64 = units.iter().filter(|unit| unit.is_kept).map(|unit| unit.bytes).sum();
        let streamed = (0..units.len()).filter(|unit| !units[*unit].is_kept).collect();
        let shared =
            Shared { units, streamed, room: room - kept, now: Mutex::default(), changed: Condvar::new() };
        let shared = Arc::new(shared);
        let reader = Arc::clone(&shared);
        let reader = std::thread::Builder::new()
            .name("layers".to_owned())
            .spawn(move || reader.read())
            .map_err(|_| Error::TooLarge)?;
        // What the output matrix keeps in memory of it, stays.
        let table = &model.token_embedding.0;
        let parts = model.output().into_iter().flat_map(|output| &output.parts);
        let is_output = parts.into_iter().any(|part| part.weight.bytes().as_ptr() == table.bytes().as_ptr());
        let is_kept =
            is_output && shared.units[shared.units.len() - output.len()..].iter().any(|unit| unit.is_kept);
        let embedding = if is_kept { vec![] } else { table.slots().to_vec() };
        Ok(Some(Stream { shared, output, embedding, reader: Some(reader) }))
    }

    /// What stays, and what each pass reads.
    pub(crate) fn about(&self) -> Streaming {
        let bytes =
            |kept: bool| self.shared.units.iter().filter(|u| u.is_kept == kept).map(|u| u.bytes).sum();
        Streaming { kept: bytes(true), read: bytes(false) }
    }

    /// Gives back the rows of the token embedding that were looked up.
    pub(crate) fn embedded(&self) {
        self.embedding.iter().for_each(Slot::release);
    }

    /// The products of `rows` rows of `x` with the output matrix: `[rows, vocab]`.
    pub(crate) fn output(&self, backend: &mut dyn Backend, x: &[f32], rows: usize, logits: &mut [f32]) {
        let (mut unit, mut first) = (self.shared.units.len() - self.output.len(), 0);
        for band in &self.output {
            self.during(unit, || {
                let x = x.chunks_exact(band.input);
                for (x, logits) in x.zip(logits.chunks_exact_mut(logits.len() / rows)) {
                    backend.linear(band, x, 1, &mut logits[first..first + band.out]);
                }
            });
            first += band.out;
            unit += 1;
        }
    }

    /// Waits until unit `unit` is in memory, runs `run`, and gives the unit back unless it stays.
    pub(crate) fn during(&self, unit: usize, run: impl FnOnce()) {
        if self.shared.units[unit].is_kept {
            return run();
        }
        self.shared.wait_for(unit);
        run();
        self.shared.done(unit);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        // It holds no more than the map, and ends after the unit that it reads.
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Unit {
    fn of(projections: &[&Arc<Projection>]) -> Unit {
        let parts = projections.iter().flat_map(|projection| &projection.parts);
        let slots: Vec<Slot> =
            parts.flat_map(|part| part.weight.slots()).filter(|slot| slot.is_borrowed()).cloned().collect();
        let bytes = slots.iter().map(|slot| slot.bytes().len() as u64).sum();
        Unit { slots, bytes, is_kept: false }
    }

    fn release(&self) {
        self.slots.iter().for_each(Slot::release);
    }
}

impl Shared {
    /// The place in [`Shared::streamed`] before `place`.
    fn before(&self, place: usize) -> usize {
        place.checked_sub(1).unwrap_or(self.streamed.len() - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'m>(&self, now: MutexGuard<'m, Now>) -> MutexGuard<'m, Now> {
        self.changed.wait(now).unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader: one unit after the other, round and round.
    fn read(&self) {
        let mut now = self.lock();
        while !now.is_over {
            let index = self.streamed[now.next];
            let unit = &self.units[index];
            if now.bytes > 0 && now.bytes + unit.bytes > self.room {
                now = self.wait(now);
                continue;
            }
            now.next = (now.next + 1) % self.streamed.len();
            now.bytes += unit.bytes;
            let turns = now.turns;
            drop(now);
            unit.slots.iter().for_each(Slot::prefetch);
            now = self.lock();
            if now.turns == turns {
                now.ready.push_back(index);
                self.changed.notify_all();
            } else {
                unit.release();
                now.bytes -= unit.bytes;
            }
        }
    }

    /// Waits until unit `unit` is the next in memory.
    fn wait_for(&self, unit: usize) {
        let mut now = self.lock();
        loop {
            let coming = now.ready.front().copied().unwrap_or_else(|| self.streamed[self.before(now.next)]);
            if now.ready.front() == Some(&unit) {
                return;
            }
            if coming != unit {
                // Not what was expected: a prompt goes through the layers again before the output matrix is used.
                for unit in std::mem::take(&mut now.ready) {
                    self.units[unit].release();
                    now.bytes -= self.units[unit].bytes;
                }
                now.next = self.streamed.iter().position(|streamed| *streamed == unit).unwrap_or(0);
                now.turns += 1;
                self.changed.notify_all();
            }
            now = self.wait(now);
        }
    }

    /// Gives unit `unit` back, the first of those in memory.
    fn done(&self, unit: usize) {
        self.units[unit].release();
        let mut now = self.lock();
        now.ready.pop_front();
        now.bytes -= self.units[unit].bytes;
        self.changed.notify_all();
    }
}

/// A projection as projections of some of its features each, with about `bytes` of weights.
fn bands(projection: &Arc<Projection>, bytes: u64) -> Vec<Arc<Projection>> {
    let [Linear { weight, biases, out }] = &projection.parts[..] else {
        return vec![Arc::clone(projection)];
    };
    if !biases.is_empty() {
        return vec![Arc::clone(projection)];
    }
    let mut left = *out;
    let band = |weight: load::Tensor| {
        // Rows beyond the last feature are padding.
        let out = weight.rows().min(left);
        left -= out;
        let parts = vec![Linear { weight, biases: vec![], out }];
        let Projection { path, input, share, .. } = &**projection;
        Arc::new(Projection { path: path.clone(), parts, input: *input, out, share: *share })
    };
    weight.bands(bytes).into_iter().map(band).collect()
}

//! Buffers by admission: whoever needs some waits until they fit.

use std::sync::{Condvar, Mutex, PoisonError};

/// The memory that one piece of work needs beside its target, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Bytes as they lie in files.
    pub(crate) read: u64,
    /// Bytes that are moved, before they are changed.
    pub(crate) moved: u64,
    /// Values of f32.
    pub(crate) values: u64,
    /// Bytes that wait to be written to the sink.
    pub(crate) written: u64,
    /// Bytes that a source needs for itself.
    pub(crate) beside: u64,
}

impl Need {
    /// All of it, in bytes.
    pub(crate) fn bytes(self) -> u64 {
        let values = self.values.saturating_mul(4);
        [self.moved, values, self.written, self.beside].into_iter().fold(self.read, u64::saturating_add)
    }

    /// Enough for either.
    pub(crate) fn max(self, other: Need) -> Need {
        Need {
            read: self.read.max(other.read),
            moved: self.moved.max(other.moved),
            values: self.values.max(other.values),
            written: self.written.max(other.written),
            beside: self.beside.max(other.beside),
        }
    }

    fn covers(self, other: Need) -> bool {
        self.max(other) == self
    }
}

/// Buffers that were admitted. No buffer grows.
#[derive(Default)]
pub(crate) struct Buffers {
    admitted: Need,
    pub(crate) read: Window,
    pub(crate) moved: Vec<u8>,
    pub(crate) values: Vec<f32>,
    pub(crate) written: Vec<u8>,
}

impl Buffers {
    fn new(need: Need) -> Buffers {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Buffers {
            admitted: need,
            read: Window { bytes: Vec::with_capacity(size(need.read)), room: need.read },
            moved: Vec::with_capacity(size(need.moved)),
            values: Vec::with_capacity(size(need.values)),
            written: Vec::with_capacity(size(need.written)),
        }
    }
}

/// Bytes that are read before they can be moved.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    /// Number of bytes that the current owner may use, so that the reads do not depend on earlier owners.
    pub(crate) room: u64,
}

impl Window {
    /// Returns `len` bytes, with arbitrary earlier contents.
    pub(crate) fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }
}

/// Accounts for the buffers in use.
pub(crate) struct Ledger {
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes of buffers in use.
    in_use: u64,
    /// Buffers that wait for their next use, and make room for others.
    idle: Vec<Buffers>,
    idle_bytes: u64,
    peak: u64,
}

impl Ledger {
    /// At most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Ledger {
        Ledger { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns buffers for `need`, which must be within the limit; waits until there is room. A thread that waits holds
    /// no buffers, so the wait ends.
    pub(crate) fn take(&self, need: Need) -> Buffers {
        let bytes = need.bytes();
        if bytes == 0 {
            return Buffers::default();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = state.idle.iter().position(|b| b.admitted.covers(need)) {
            let mut buffers = state.idle.swap_remove(i);
            buffers.read.room = need.read;
            state.idle_bytes -= buffers.admitted.bytes();
            state.in_use += buffers.admitted.bytes();
            return buffers;
        }
        // There are never more sets of buffers than there were threads at once: a new one replaces an idle one.
        let mut replaced = false;
        loop {
            let all = state.in_use.saturating_add(state.idle_bytes);
            let fits = all.checked_add(bytes).is_some_and(|sum| sum <= self.limit);
            if (!fits || !replaced)
                && let Some(old) = state.idle.pop()
            {
                state.idle_bytes -= old.admitted.bytes();
                replaced = true;
            } else if fits || state.in_use == 0 {
                break;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.in_use += bytes;
        state.peak = state.peak.max(state.in_use + state.idle_bytes);
        drop(state);
        Buffers::new(need)
    }

    /// Takes buffers back.
    pub(crate) fn give(&self, buffers: Buffers) {
        let bytes = buffers.admitted.bytes();
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_use -= bytes;
        state.idle_bytes += bytes;
        state.idle.push(buffers);
        drop(state);
        self.changed.notify_all();
    }

    /// The most bytes that were taken at once.
    pub(crate) fn peak(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).peak
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn read(read: u64) -> Need {
        Need { read, ..Need::default() }
    }

    #[test]
    fn what_does_not_fit_waits_and_the_limit_holds() {
        let ledger = Ledger::new(100);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (ledger, now, most) = (&ledger, &now, &most);
                scope.spawn(move || {
                    for i in 0..500u64 {
                        let want = 1 + (i * 37 + thread * 11) % 100;
                        let buffers = ledger.take(read(want));
                        assert!(buffers.read.bytes.capacity() as u64 >= want && buffers.read.room == want);
                        let taken = buffers.admitted.bytes();
                        most.fetch_max(now.fetch_add(taken, Ordering::SeqCst) + taken, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(taken, Ordering::SeqCst);
                        ledger.give(buffers);
                    }
                });
            }
        });
        assert!(ledger.peak() <= 100, "{}", ledger.peak());
        assert!(most.into_inner() <= 100);
    }

    #[test]
    fn buffers_are_used_again_and_their_number_does_not_grow() {
        let ledger = Ledger::new(u64::MAX);
        for want in [10, 10, 5, 20, 1] {
            ledger.give(ledger.take(read(want)));
        }
        assert_eq!(ledger.peak(), 20, "one thread has one set");
    }
}

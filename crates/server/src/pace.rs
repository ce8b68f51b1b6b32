//! How long the engine takes, so that those who are turned away know when to come back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a sequence takes.
pub(crate) struct Pace {
    /// Milliseconds, on average.
    usual: AtomicU64,
    /// Sequences that run together.
    parallel: u64,
}

impl Pace {
    pub(crate) fn new(parallel: usize) -> Pace {
        Pace { usual: AtomicU64::new(1000), parallel: parallel.max(1) as u64 }
    }

    /// Counts a sequence that took `time`.
    pub(crate) fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(1 << 40);
        self.usual.store((self.usual.load(Ordering::Relaxed) * 4 + time) / 5, Ordering::Relaxed);
    }

    /// Seconds until one of `waiting` requests will have a place, from 1 to 60.
    pub(crate) fn wait(&self, waiting: usize) -> u64 {
        let all = self.usual.load(Ordering::Relaxed).saturating_mul((waiting as u64).saturating_add(1));
        all.div_ceil(self.parallel.saturating_mul(1000)).clamp(1, 60)
    }
}

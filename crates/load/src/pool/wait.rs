//! Waiting without giving the core away.

use std::time::{Duration, Instant};

use super::sync::spin_loop;

/// Pauses between two looks at the clock.
const PAUSES: u32 = if cfg!(loom) { 0 } else { 16 };

/// Spins for a while.
pub(crate) struct Wait {
    since: Option<Instant>,
    pauses: u32,
    spin: Duration,
}

impl Wait {
    pub(crate) fn new(spin: Duration) -> Wait {
        // A model has no clock: it does not wait, and finds all that can happen meanwhile.
        Wait { since: None, pauses: 0, spin: if cfg!(loom) { Duration::ZERO } else { spin } }
    }

    /// Pauses; false, at once, if it has spun for long enough.
    pub(crate) fn spin(&mut self) -> bool {
        if self.pauses == PAUSES {
            let since = self.since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.spin {
                return false;
            }
            self.pauses = 0;
        }
        self.pauses += 1;
        spin_loop();
        true
    }
}

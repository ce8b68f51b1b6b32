//! The cost of a load.

use std::collections::BTreeMap;
use std::fmt;

use quant::Difference;
use tensor::{Bytes, counted};

/// The measured cost of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Runtime parameters.
    pub params: usize,
    /// Entries that the dialect knows and the model does not need.
    pub dropped: usize,
    /// Bytes read from files, with those in gaps that are read along. Borrowed bytes count only if the caller observes
    /// them.
    pub bytes_read: u64,
    /// Bytes that stay in the map.
    pub bytes_borrowed: u64,
    /// Bytes moved as they are.
    pub bytes_copied: u64,
    /// Bytes written by a codec: decoded, repacked.
    pub bytes_encoded: u64,
    /// For each parameter that was encoded, what that changed.
    pub differences: BTreeMap<String, Difference>,
    /// Bytes allocated for parameters.
    pub owned_bytes: u64,
    /// Bytes of buffers that are gone now, all threads together.
    pub scratch_peak: u64,
    /// The same as it was expected before anything was read: never less.
    pub scratch_predicted: u64,
    /// The process' highest resident size so far, in bytes; 0 where the system does not say.
    pub peak_rss: u64,
    /// Threads.
    pub threads: usize,
    /// Seconds that threads waited for memory that was never used before, all together: part of the wall time of each.
    pub memory_seconds: f64,
    /// Wall time.
    pub seconds: f64,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loaded {} in {:.0} ms on {}",
            counted(self.params, "parameter"),
            self.seconds * 1e3,
            counted(self.threads, "thread"),
        )?;
        let parts = [
            (self.bytes_borrowed, "mapped"),
            (self.bytes_copied, "copied"),
            (self.bytes_encoded, "re-encoded"),
        ];
        for (i, (bytes, how)) in parts.into_iter().filter(|(bytes, _)| *bytes > 0).enumerate() {
            write!(f, "{} {} {how}", if i == 0 { ":" } else { "," }, Bytes(bytes))?;
        }
        if self.peak_rss > 0 {
            write!(f, "; peak {}", Bytes(self.peak_rss))?;
        }
        Ok(())
    }
}

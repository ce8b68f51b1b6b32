//! How much memory this process holds, and the most that it held during some work.

use std::fs;

/// The memory of a process, in bytes: proc_pid_status(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// `VmRSS`: pages in memory, those of mapped files included.
    resident: u64,
    /// `VmHWM`: the most that was resident.
    peak: u64,
    /// `RssAnon`: pages that are no file's.
    private: u64,
}

/// Measures the memory that some work takes, from [`ResidentWatch::start`] on.
#[derive(Clone, Copy, Debug)]
pub struct ResidentWatch {
    before: Option<Held>,
    is_reset: bool,
}

/// The memory that some work took, in bytes. Resident are pages in memory, those of mapped files included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Resident before the work.
    pub baseline: u64,
    /// The most that was resident until now.
    pub peak: u64,
    /// True if `peak` is of the work alone. If the system did not let it be reset, it is of the whole life of the process.
    pub is_of_work: bool,
    /// By how much more is private than before the work: pages that are no file's.
    pub private: u64,
}

impl Resident {
    /// The most that the work added.
    pub fn delta(&self) -> u64 {
        self.peak.saturating_sub(self.baseline)
    }
}

impl ResidentWatch {
    /// Begins to measure. The peak of the process is reset where the system allows it: proc_pid_clear_refs(5).
    pub fn start() -> ResidentWatch {
        let is_reset = cfg!(target_os = "linux") && fs::write("/proc/self/clear_refs", "5").is_ok();
        ResidentWatch { before: held(), is_reset }
    }

    /// Returns what the work took until now; `None` where the system does not say, as on other systems than Linux.
    pub fn so_far(&self) -> Option<Resident> {
        let (before, now) = (self.before?, held()?);
        Some(Resident {
            baseline: before.resident,
            peak: now.peak.max(now.resident),
            is_of_work: self.is_reset,
            private: now.private.saturating_sub(before.private),
        })
    }
}

/// The highest resident size of this process; 0 where the system does not say.
pub(crate) fn peak_rss() -> u64 {
    held().map_or(0, |held| held.peak)
}

fn held() -> Option<Held> {
    if cfg!(target_os = "linux") { parsed(&fs::read_to_string("/proc/self/status").ok()?) } else { None }
}

fn parsed(status: &str) -> Option<Held> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Held { resident: bytes("VmRSS")?, peak: bytes("VmHWM")?, private: bytes("RssAnon")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_system_are_read() {
        let status = "VmPeak:\t  9000 kB\nVmHWM:\t    1708 kB\nVmRSS:\t    1500 kB\nRssAnon:\t     112 kB\n";
        let held = Held { resident: 1500 << 10, peak: 1708 << 10, private: 112 << 10 };
        assert_eq!(parsed(status), Some(held));
        assert_eq!(parsed(&status.replace("RssAnon", "Other")), None);
        assert_eq!(parsed(&status.replace("1500 kB", "many")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_held_and_given_back_is_in_the_peak() {
        const BYTES: usize = 64 << 20;
        let watch = ResidentWatch::start();
        let mut block = vec![0u8; BYTES];
        block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let holding = watch.so_far().unwrap();
        drop(std::hint::black_box(block));
        let after = watch.so_far().unwrap();
        // Other tests of this process take memory too, but none takes nothing.
        assert!(holding.private >= BYTES as u64 / 10 * 9, "{holding:?}");
        assert!(after.delta() >= BYTES as u64 / 10 * 9, "{after:?}");
        assert!(after.baseline > 0 && after.baseline <= after.peak);
    }
}

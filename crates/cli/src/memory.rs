//! The memory of a command: what was held before, the peak, and what the plan foresaw.

use weighbridge::load::{Resident, ResidentWatch};
use weighbridge::runtime::Foreseen;
use weighbridge::tensor::Bytes;

use crate::json;

/// Measures from the start of a command on.
pub(crate) struct Memory(ResidentWatch);

/// The memory that was measured, and that was foreseen.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    found: Option<Resident>,
    foreseen: Option<Foreseen>,
}

impl Memory {
    pub(crate) fn watch() -> Memory {
        Memory(ResidentWatch::start())
    }

    /// Measures the command until now; `foreseen` is of its plan, if there was one.
    pub(crate) fn so_far(&self, foreseen: Option<Foreseen>) -> Measured {
        Measured { found: self.0.so_far(), foreseen }
    }
}

impl Measured {
    pub(crate) fn json(&self) -> json::Resident {
        let of = |part: fn(&Resident) -> u64| self.found.as_ref().map(part);
        json::Resident {
            baseline_bytes: of(|found| found.baseline),
            peak_bytes: of(|found| found.peak),
            delta_bytes: of(Resident::delta),
            private_bytes: of(|found| found.private),
            foreseen_bytes: self.foreseen.map(|foreseen| foreseen.private),
            mapped_bytes: self.foreseen.map(|foreseen| foreseen.mapped),
            peak_of: self
                .found
                .map(|found| if found.is_of_work { json::PeakOf::Command } else { json::PeakOf::Process }),
        }
    }

    /// `memory: 3.1 MiB before, peak 101 MiB, 98.2 MiB more; 97.9 MiB foreseen, 12.0 MiB mapped`; empty where the system does
    /// not say.
    pub(crate) fn line(&self) -> String {
        let Some(found) = self.found else { return String::new() };
        let of = if found.is_of_work { "" } else { " since the process began" };
        let foreseen = self.foreseen.map_or_else(String::new, |Foreseen { private, mapped }| {
            let mapped = if mapped > 0 { format!(", {} mapped", Bytes(mapped)) } else { String::new() };
            format!("; {} foreseen{mapped}", Bytes(private))
        });
        let (before, peak, more) = (Bytes(found.baseline), Bytes(found.peak), Bytes(found.delta()));
        format!("memory: {before} before, peak {peak}{of}, {more} more{foreseen}")
    }

    /// The same, as a line of a report; nothing where the system does not say.
    pub(crate) fn indented(&self) -> String {
        match self.line() {
            line if line.is_empty() => line,
            line => format!("  {line}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_known_and_of_when_the_peak_is() {
        let found = Resident { baseline: 2 << 20, peak: 12 << 20, is_of_work: true, private: 9 << 20 };
        let foreseen = Foreseen { private: 8 << 20, mapped: 3 << 20 };
        let line = |found, foreseen| Measured { found, foreseen }.line();
        assert_eq!(
            line(Some(found), Some(foreseen)),
            "memory: 2.0 MiB before, peak 12.0 MiB, 10.0 MiB more; 8.0 MiB foreseen, 3.0 MiB mapped"
        );
        let found = Resident { is_of_work: false, ..found };
        assert_eq!(
            line(Some(found), None),
            "memory: 2.0 MiB before, peak 12.0 MiB since the process began, 10.0 MiB more"
        );
        assert_eq!(line(None, Some(foreseen)), "");
        let nothing = Measured { found: None, foreseen: Some(foreseen) }.json();
        assert!(nothing.peak_bytes.is_none() && nothing.peak_of.is_none());
        assert_eq!(nothing.foreseen_bytes, Some(8 << 20));
    }
}

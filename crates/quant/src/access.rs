//! How a processor wants its memory asked for, where a product with one row of activations waits for it.

use std::sync::LazyLock;

/// The environment variable that sets an [`Access`]: bytes ahead and streams, `4096,2`.
pub const ACCESS_VARIABLE: &str = "WEIGHBRIDGE_ACCESS";

/// How weights are read. It changes how fast, and no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How far ahead of the arithmetic memory is asked for, in bytes; 0 leaves it to the processor.
    pub ahead: usize,
    /// Groups of rows that are read at once, half of a thread's rows apart: 1 or 2.
    pub streams: usize,
}

impl Access {
    /// Reads ahead of its own: AMD since Zen, as far as was measured. Asking for lines as well takes the buffers that its
    /// own misses wait in.
    const LEFT_ALONE: Access = Access { ahead: 0, streams: 1 };
    /// Does not follow so many lines at once: Intel's servers.
    const ASKED: Access = Access { ahead: 4096, streams: 2 };

    /// What this machine reads fastest with (docs/performance.md), or what the variable says.
    pub fn detect() -> Access {
        static CHOSEN: LazyLock<Access> = LazyLock::new(|| {
            let said = std::env::var(ACCESS_VARIABLE).ok();
            said.and_then(|said| Access::named(&said)).unwrap_or_else(Access::of_processor)
        });
        *CHOSEN
    }

    fn named(said: &str) -> Option<Access> {
        let (ahead, streams) = said.split_once(',')?;
        let (ahead, streams) = (ahead.parse().ok()?, streams.parse().ok()?);
        (ahead <= 1 << 20 && (1..=2).contains(&streams)).then_some(Access { ahead, streams })
    }

    fn of_processor() -> Access {
        match &vendor() {
            b"AuthenticAMD" | b"HygonGenuine" => Access::LEFT_ALONE,
            _ => Access::ASKED,
        }
    }
}

/// Twelve letters; none where there is no such instruction.
#[cfg(target_arch = "x86_64")]
fn vendor() -> [u8; 12] {
    let found = std::arch::x86_64::__cpuid(0);
    let mut letters = [0; 12];
    for (letters, word) in letters.chunks_exact_mut(4).zip([found.ebx, found.edx, found.ecx]) {
        letters.copy_from_slice(&word.to_le_bytes());
    }
    letters
}

#[cfg(not(target_arch = "x86_64"))]
fn vendor() -> [u8; 12] {
    [0; 12]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_kernels_can_do_is_taken() {
        assert_eq!(Access::named("0,1"), Some(Access { ahead: 0, streams: 1 }));
        assert_eq!(Access::named("4096,2"), Some(Access::ASKED));
        for wrong in ["", "4096", "4096,3", "-1,2", "1e9,1", "9999999,1", "0,0"] {
            assert_eq!(Access::named(wrong), None, "{wrong}");
        }
    }
}

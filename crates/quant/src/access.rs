//! How a processor wants its memory asked for, where a product with one row of activations waits for it.

use std::sync::LazyLock;

/// How weights are read. It changes how fast, and no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How far ahead of the arithmetic memory is asked for, in bytes; 0 leaves it to the processor.
    pub ahead: usize,
    /// Groups of rows that are read at once, half of a thread's rows apart: 1 or 2.
    pub streams: usize,
}

impl Access {
    /// The processor reads ahead by itself: AMD, measured on Zen 4. Asking for lines as well takes the buffers that its own
    /// misses wait in.
    const LEFT_ALONE: Access = Access { ahead: 0, streams: 1 };
    /// The processor does not follow so many lines at once: Intel, measured on Cascade Lake.
    const ASKED: Access = Access { ahead: 4096, streams: 2 };

    /// What this processor reads fastest with, as far as was measured (docs/performance.md).
    pub fn detect() -> Access {
        static CHOSEN: LazyLock<Access> = LazyLock::new(Access::of_processor);
        *CHOSEN
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

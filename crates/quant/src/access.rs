//! How products with one row of activations, which are bound by memory, read their weights.

use std::sync::LazyLock;

use tensor::Scheme;

use crate::interleave::form;
use crate::isa::Isa;
use crate::packing::Codes;

/// How products read the matrices of a model. It changes the speed and no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The way for codes of 8 bits, which need the least arithmetic for each byte.
    pub bytes: Way,
    /// The way for all others.
    pub others: Way,
}

/// How a product reads one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The prefetch distance in bytes; 0 prefetches nothing.
    pub ahead: usize,
    /// The number of row groups that a thread reads at once, half of its rows apart: 1 or 2.
    pub streams: usize,
}

impl Way {
    const fn new(ahead: usize, streams: usize) -> Way {
        Way { ahead, streams }
    }

    /// The ways to try: those of the table, and each with the other number of places.
    pub fn all() -> [Way; 6] {
        [(0, 1), (0, 2), (4096, 1), (4096, 2), (6144, 1), (6144, 2)]
            .map(|(ahead, streams)| Way::new(ahead, streams))
    }
}

impl Access {
    /// Prefetch hurts: measured on Zen 4. The processor reads ahead by itself, and prefetches fill its miss buffers.
    const LEFT_ALONE: Access = Access { bytes: Way::new(0, 1), others: Way::new(0, 1) };
    /// Prefetch helps, from farther ahead than elsewhere. A second place helps where the codes are bytes, and costs K-quants
    /// 5 %: measured on Zen 5.
    const ASKED_IN_ORDER: Access = Access { bytes: Way::new(4096, 2), others: Way::new(6144, 1) };
    /// Prefetch helps: Intel, measured on Cascade Lake and Emerald Rapids, and AMD without AVX-512, measured on Zen 3.
    const ASKED: Access = Access { bytes: Way::new(4096, 2), others: Way::new(4096, 2) };

    /// Returns the fastest way measured on processors of this vendor and family (docs/performance.md).
    pub fn detect() -> Access {
        static CHOSEN: LazyLock<Access> = LazyLock::new(Access::of_processor);
        *CHOSEN
    }

    /// The way for matrices of `scheme`.
    pub fn way(&self, scheme: &Scheme) -> Way {
        let codes = form(&scheme.name).map(|form| &form.packing.codes);
        if matches!(codes, Some(Codes::Plain(plain)) if plain.bits == 8) { self.bytes } else { self.others }
    }

    fn of_processor() -> Access {
        match &vendor() {
            b"AuthenticAMD" if Isa::best().interleave() == Some(16) => match family() {
                ..ZEN_5 => Access::LEFT_ALONE,
                ZEN_5.. => Access::ASKED_IN_ORDER,
            },
            // Never measured: `weighbridge tune` does.
            _ if cfg!(target_arch = "aarch64") => Access::LEFT_ALONE,
            _ => Access::ASKED,
        }
    }
}

/// The family of Zen 5.
const ZEN_5: u32 = 0x1A;

/// The family that `cpuid` names, as AMD counts them; 0 on other architectures.
///
/// Source: AMD64 Architecture Programmer's Manual, volume 3, E.3.2.
fn family() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let signature = std::arch::x86_64::__cpuid(1).eax;
        (signature >> 8 & 0xF) + (signature >> 20 & 0xFF)
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Returns the processor's name, or the architecture if it gives none.
pub fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // AMD64 Architecture Programmer's Manual, volume 3, E.4.2: 48 letters, filled up with zeros.
        if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
            let words = (0x8000_0002..=0x8000_0004).map(__cpuid).flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx]);
            let letters: Vec<u8> =
                words.flat_map(u32::to_le_bytes).take_while(|letter| *letter != 0).collect();
            // Its family, model and stepping: hypervisors give many processors one name.
            return format!("{} {:08x}", String::from_utf8_lossy(&letters).trim(), __cpuid(1).eax);
        }
    }
    std::env::consts::ARCH.to_owned()
}

/// The vendor that `cpuid` names; zeros on other architectures.
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

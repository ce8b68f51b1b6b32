//! The forms in which keys and values are kept.

use std::fmt;
use std::str::FromStr;

use quant::attention::{GROUP, padded};

use super::pages::{PAGE, ring};

/// Positions before a token that it sees without codes, at least, whatever the [kind](KvKind).
pub const RECENT: usize = 128;

/// How a session keeps keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvKind {
    /// As they are computed.
    F32,
    /// binary16; what is larger becomes the largest number.
    #[default]
    F16,
    /// The last [`RECENT`] positions at least in binary16, those before in 8 bits: keys by channel and values by position, as in
    /// KIVI (Liu et al. 2024, arXiv 2402.02750). Windows of `4 * RECENT` positions and less are all binary16.
    Int8,
    /// The same in 4 bits.
    Int4,
}

impl KvKind {
    /// All of them.
    pub const ALL: [KvKind; 4] = [KvKind::F32, KvKind::F16, KvKind::Int8, KvKind::Int4];

    /// Its name: `f32`, `f16`, `int8` or `int4`.
    pub fn name(self) -> &'static str {
        match self {
            KvKind::F32 => "f32",
            KvKind::F16 => "f16",
            KvKind::Int8 => "int8",
            KvKind::Int4 => "int4",
        }
    }

    /// The kind of what is read whole: without codes.
    pub(crate) fn without_codes(self) -> KvKind {
        if self == KvKind::F32 { KvKind::F32 } else { KvKind::F16 }
    }

    /// Bits of a code, where older positions have codes.
    pub(super) fn code_bits(self) -> Option<u32> {
        match self {
            KvKind::F32 | KvKind::F16 => None,
            KvKind::Int8 => Some(8),
            KvKind::Int4 => Some(4),
        }
    }

    /// Bytes of an element that has no code.
    pub(super) fn element(self) -> usize {
        if self == KvKind::F32 { 4 } else { 2 }
    }
}

impl fmt::Display for KvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvKind {
    type Err = String;

    fn from_str(name: &str) -> Result<KvKind, String> {
        KvKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("`{name}` is none of f32, f16, int8, int4"))
    }
}

/// The sizes of what one layer keeps of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a key.
    pub key: usize,
    /// Elements of a value.
    pub value: usize,
    /// Whether a value is the first elements of its key.
    pub shared: bool,
    /// A position sees itself and the `window - 1` before it: what is older is not kept.
    pub window: Option<usize>,
}

impl KvShape {
    /// Bytes of a session's keys and values with room for `positions` positions. `None` if they cannot be counted.
    pub fn bytes(&self, kind: KvKind, positions: usize) -> Option<u64> {
        let pages = self.pages(kind, positions);
        let full = self.full_bytes(kind)?.checked_mul(pages.full as u64)?;
        full.checked_add(self.coded_bytes(kind)?.checked_mul(pages.coded as u64)?)
    }

    /// Bytes that a token at `position` reads.
    pub fn reads(&self, kind: KvKind, position: usize) -> u64 {
        let seen = position.saturating_add(1).min(self.window.unwrap_or(usize::MAX)) as u64;
        let has_codes = self.pages(kind, usize::MAX).coded > 0;
        let coded = if has_codes { seen.saturating_sub(RECENT as u64) / PAGE as u64 } else { 0 };
        let [full_page, coded_page] = [self.full_bytes(kind), self.coded_bytes(kind)];
        let full =
            u128::from(full_page.unwrap_or(u64::MAX)) * u128::from(seen - coded * PAGE as u64) / PAGE as u128;
        let read = full + u128::from(coded) * u128::from(coded_page.unwrap_or(u64::MAX));
        u64::try_from(read).unwrap_or(u64::MAX)
    }

    /// Pages that are there at once.
    pub(super) fn pages(&self, kind: KvKind, positions: usize) -> PageCounts {
        let all = positions.div_ceil(PAGE);
        let window = self.window.map_or(all, |window| ring(window.saturating_sub(1)).min(all));
        match kind.code_bits() {
            // Codes beside what stays as it is would save nothing in a shorter window.
            Some(_) if self.window.is_none_or(|window| window > 4 * RECENT) => {
                PageCounts { full: ring(RECENT).min(all), coded: window }
            }
            _ => PageCounts { full: window, coded: 0 },
        }
    }

    /// Bytes of a page that has no codes.
    fn full_bytes(&self, kind: KvKind) -> Option<u64> {
        self.parts().try_fold(0u64, |sum, (of, width)| self.add_heads(sum, of.full_bytes(kind, width)))
    }

    /// Bytes of a page of codes; 0 if the kind has none.
    fn coded_bytes(&self, kind: KvKind) -> Option<u64> {
        let Some(bits) = kind.code_bits() else { return Some(0) };
        self.parts().try_fold(0u64, |sum, (of, width)| self.add_heads(sum, of.coded_bytes(bits, width)))
    }

    /// Adds `bytes` for each head.
    fn add_heads(&self, sum: u64, bytes: Option<u64>) -> Option<u64> {
        sum.checked_add(bytes?.checked_mul(self.kv_heads as u64)?)
    }

    /// Elements of the keys or the values of a head in a page, whichever are more.
    pub(super) fn head_elements(&self) -> usize {
        PAGE * Of::Keys.elements(self.key).max(Of::Values.elements(self.value))
    }

    /// The parts that are stored, and the elements of each: keys, and values unless they are part of these.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Of, usize)> + use<> {
        let values = (!self.shared).then_some((Of::Values, self.value));
        [(Of::Keys, self.key)].into_iter().chain(values)
    }
}

/// Pages of a cache.
pub(super) struct PageCounts {
    /// Without codes.
    pub(super) full: usize,
    /// With codes.
    pub(super) coded: usize,
}

/// A part of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Keys,
    Values,
}

impl Of {
    /// Elements that a position takes.
    fn elements(self, width: usize) -> usize {
        match self {
            Of::Keys => width,
            Of::Values => padded(width),
        }
    }

    /// Bytes of a head in a page that has no codes.
    pub(super) fn full_bytes(self, kind: KvKind, width: usize) -> Option<u64> {
        (PAGE as u64 * kind.element() as u64).checked_mul(self.elements(width) as u64)
    }

    /// Bytes of the codes of a head in a page.
    pub(super) fn code_bytes(self, bits: u32, width: usize) -> Option<u64> {
        (PAGE as u64 * u64::from(bits) / 8).checked_mul(self.elements(width) as u64)
    }

    /// Bytes of a head in a page of codes: the codes, then what they mean.
    pub(super) fn coded_bytes(self, bits: u32, width: usize) -> Option<u64> {
        self.code_bytes(bits, width)?.checked_add((self.ranges(width) as u64).checked_mul(4)?)
    }

    /// Floats that say what the codes of a head and a page mean: keys have ranges by channel, values by position.
    fn ranges(self, width: usize) -> usize {
        match self {
            Of::Keys => 2 * width,
            Of::Values => 2 * PAGE * width.div_ceil(GROUP),
        }
    }
}

//! The floats that formats keep scales in.

use tensor::Dtype;

use crate::codec::BadData;

/// A floating-point type of 16 or 32 bits, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F16,
    BF16,
    F32,
}

impl Float {
    /// The one called `f16`, `bf16` or `f32`.
    pub(crate) fn parse(name: &str) -> Option<Float> {
        [Float::F16, Float::BF16, Float::F32].into_iter().find(|f| f.dtype().name() == name)
    }

    /// The one that is `dtype`.
    pub(crate) fn of(dtype: Dtype) -> Option<Float> {
        Float::parse(dtype.name())
    }

    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Float::F16 => Dtype::F16,
            Float::BF16 => Dtype::BF16,
            Float::F32 => Dtype::F32,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.dtype().bytes()
    }

    /// Value `i` of `bytes`.
    #[inline(always)]
    pub(crate) fn get(self, bytes: &[u8], i: usize) -> f32 {
        let two = |at: usize| [bytes[at], bytes[at + 1]];
        match self {
            Float::F16 => half::f16::from_le_bytes(two(2 * i)).to_f32(),
            Float::BF16 => half::bf16::from_le_bytes(two(2 * i)).to_f32(),
            Float::F32 => {
                let ([a, b], [c, d]) = (two(4 * i), two(4 * i + 2));
                f32::from_le_bytes([a, b, c, d])
            }
        }
    }

    /// The nearest value of this type, ties to even, as torch casts.
    #[inline(always)]
    pub(crate) fn round(self, x: f32) -> f32 {
        match self {
            Float::F16 => half::f16::from_f32(x).to_f32(),
            Float::BF16 => half::bf16::from_f32(x).to_f32(),
            Float::F32 => x,
        }
    }

    /// Writes value `i` of `bytes`, rounded to this type.
    pub(crate) fn put(self, bytes: &mut [u8], i: usize, x: f32) {
        let at = i * self.bytes() as usize;
        match self {
            Float::F16 => bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(x).to_le_bytes()),
            Float::BF16 => bytes[at..at + 2].copy_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
            Float::F32 => bytes[at..at + 4].copy_from_slice(&x.to_le_bytes()),
        }
    }

    /// Refuses a plane of this type with an infinite value or one that is no number.
    pub(crate) fn finite(self, role: &'static str, bytes: &[u8]) -> Result<(), BadData> {
        let values = bytes.len() / self.bytes() as usize;
        match (0..values).map(|i| self.get(bytes, i)).enumerate().find(|(_, x)| !x.is_finite()) {
            None => Ok(()),
            Some((at, x)) => Err(BadData {
                role,
                what: "a scale",
                at,
                wants: "a finite number".into(),
                found: x.to_string(),
            }),
        }
    }
}

//! The table of schemes.
//!
//! To add a scheme, write its file under `scheme/` and add one line to [`CODECS`]. A block type that nobody
//! can decode yet still has a geometry, so that it can be opened, moved, sharded and written: those are in
//! [`GEOMETRY_ONLY`].

use std::sync::{Arc, LazyLock};

use tensor::{Dtype, Scheme};

use crate::interleave;
use crate::scheme as s;

/// How a scheme's blocks become floats.
///
/// `decode` is the reference: plain scalar Rust, equal bit for bit to what the format's own implementation
/// gives (see `golden/`). Everything faster in this crate is tested against it.
pub trait Codec: Sync {
    /// The name of the scheme: `q4_k`.
    fn name(&self) -> &'static str;

    /// Elements in one cell: 1 for a plain dtype, 32 or 256 for a block type.
    fn per(&self) -> usize;

    /// Bytes of one cell.
    fn cell_bytes(&self) -> usize;

    /// Writes the values of the planes to `out`. One slice for each plane of the scheme, all of the same
    /// run of whole cells; `out.len()` is the number of elements in that run.
    ///
    /// # Panics
    /// If the lengths do not fit each other: checking them against the file is the caller's part.
    fn decode(&self, planes: &[&[u8]], out: &mut [f32]);
}

/// Every scheme that can be decoded.
const CODECS: &[&dyn Codec] = &[
    &s::F32,
    &s::F16,
    &s::BF16,
    &s::Q4_0,
    &s::Q4_1,
    &s::Q5_0,
    &s::Q5_1,
    &s::Q8_0,
    &s::Q2K,
    &s::Q3K,
    &s::Q4K,
    &s::Q5K,
    &s::Q6K,
    &s::IQ4NL,
    &s::IQ4XS,
    &s::MXFP4,
];

/// Block types that can be moved but not decoded: name, elements per block, bytes per block.
///
/// Source: the `block_*` structs and asserts of ggml/src/ggml-common.h and the `type_traits` table of
/// ggml/src/ggml.c, llama.cpp@0c1e57098.
const GEOMETRY_ONLY: &[(&str, u64, u64)] = &[
    ("q8_1", 32, 36),
    ("q8_k", 256, 292),
    ("iq2_xxs", 256, 66),
    ("iq2_xs", 256, 74),
    ("iq3_xxs", 256, 98),
    ("iq1_s", 256, 50),
    ("iq3_s", 256, 110),
    ("iq2_s", 256, 82),
    ("iq1_m", 256, 56),
    ("tq1_0", 256, 54),
    ("tq2_0", 256, 66),
    ("nvfp4", 64, 36),
    ("q1_0", 128, 18),
    ("q2_0", 64, 18),
];

/// All schemes, made once, so that equal names share one `Arc`.
static SCHEMES: LazyLock<Vec<Arc<Scheme>>> = LazyLock::new(|| {
    let plain = Dtype::ALL.iter().map(|d| Scheme::plain(*d));
    let blocks = CODECS.iter().filter(|c| c.per() > 1);
    let blocks = blocks.map(|c| Scheme::blocks(c.name(), c.per() as u64, c.cell_bytes() as u64));
    let movable = GEOMETRY_ONLY.iter().map(|&(name, per, bytes)| Scheme::blocks(name, per, bytes));
    let interleaved = interleave::SCHEMES.iter().cloned();
    plain.chain(blocks).chain(movable).chain(interleaved).collect()
});

/// The geometry of the scheme called `name`, whether or not it can be decoded.
pub fn scheme(name: &str) -> Option<Arc<Scheme>> {
    SCHEMES.iter().find(|s| s.name == name).cloned()
}

/// The codec of the scheme called `name`, if it can be decoded.
pub fn codec(name: &str) -> Option<&'static dyn Codec> {
    let stored = CODECS.iter().copied().find(|c| c.name() == name);
    stored.or_else(|| interleave::form(name).map(|f| f.codec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_codec_has_a_geometry() {
        for (i, s) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..i].iter().all(|t| t.name != s.name), "`{s}` is there twice");
        }
        for c in CODECS {
            let s = scheme(c.name()).unwrap();
            assert_eq!(s.planes[0].cell_bytes, c.cell_bytes() as u64, "{s}");
            assert_eq!(s.trailing == 0, c.per() == 1, "{s}");
        }
    }

    #[test]
    fn a_scheme_that_cannot_be_decoded_can_still_be_measured() {
        let q8_1 = scheme("q8_1").unwrap();
        assert_eq!(q8_1.byte_len(&tensor::Shape::from([2, 64])), Ok(2 * 2 * 36));
        assert!(codec("q8_1").is_none());
        assert!(scheme("q4_2").is_none());
    }
}

//! Blocks to floats, and dot products. One file per scheme, one registry line each; all CPU SIMD lives here.

mod registry;

pub use registry::{Codec, codec, scheme};

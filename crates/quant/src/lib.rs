//! Blocks to floats, and dot products. One file per scheme, one registry line each; all CPU SIMD lives here.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    reason = "codes are bytes and nibbles whose ranges the masks beside them state"
)]

mod registry;
mod scheme;

pub use registry::{Codec, codec, scheme};

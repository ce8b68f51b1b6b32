//! Blocks to floats, and dot products. One file per scheme, one registry line each; all CPU SIMD lives here.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    reason = "codes are bytes and nibbles whose ranges the masks beside them state"
)]
#![cfg_attr(
    not(feature = "products"),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "lanes and packings serve both movement and products"
    )
)]
#![allow(clippy::cast_ptr_alignment, reason = "every load and store here is an unaligned one")]
#![allow(clippy::wildcard_imports, reason = "of `std::arch` only, whose names say where they come from")]
#![allow(clippy::needless_range_loop, reason = "an index says which of several arrays' elements meet")]

#[cfg(feature = "products")]
mod access;
#[cfg(feature = "products")]
mod activations;
mod assemble;
#[cfg(feature = "products")]
pub mod attention;
#[cfg(feature = "products")]
pub mod ceiling;
mod codec;
#[cfg(feature = "products")]
mod columns;
mod decode;
mod encode;
mod error;
mod feedback;
mod float16;
mod interleave;
mod isa;
#[cfg(feature = "products")]
mod kernel;
mod lanes;
mod packing;
#[cfg(feature = "products")]
mod quants;
mod recast;
mod registry;
mod repack;
mod scheme;
mod search;
pub mod spelling;
#[cfg(feature = "products")]
pub mod vector;

#[cfg(feature = "products")]
pub use access::{Access, Way, processor};
#[cfg(feature = "products")]
pub use activations::{Activations, Filling, Forms};
pub use assemble::{AssembleError, Assembler, Codes};
pub use codec::{
    BadData, Codec, Difference, Encoder, Fact, Levels, Matrix, Merger, PlaneTensor, Recoder, SchemeFamily,
};
#[cfg(feature = "products")]
pub use columns::ColumnsMut;
pub use decode::decode_row;
pub use error::Error;
pub use feedback::{Feedback, Gram};
pub use interleave::interleaved;
pub use isa::{Avx2, Avx512Vnni, AvxVnni, ISA_VARIABLE, Isa, NeonDotprod};
#[cfg(feature = "products")]
pub use kernel::{Kernel, kernel, kernel_with};
#[cfg(feature = "products")]
pub use quants::{Quant, quants};
pub use recast::{recast, recasts};
pub use registry::{codec, names, register, scheme};
pub use repack::{repack, repack_with};

//! The C library of Weighbridge. `include/weighbridge.h` is made of this file.
//!
//! Objects are made by one function and freed by another; all else only looks at them. What an object gives (strings, shapes, bytes) lives
//! as long as it does. A function that can fail takes a `wb_error **`, which may be null, and puts an error there that the caller frees. A
//! panic of the library is an error too, and never leaves it.

#![allow(
    clippy::missing_safety_doc,
    reason = "what callers owe is the same for all, and said in the header's beginning"
)]

pub mod checkpoint;
pub mod error;
pub mod loading;
pub mod plan;
mod text;

use std::ffi::c_char;

/// Returns the version of the library's interface. Compare it with `WB_ABI_VERSION`: another one is another interface.
#[unsafe(no_mangle)]
pub extern "C" fn wb_abi_version() -> u32 {
    WB_ABI_VERSION
}

/// The version of the interface that this header describes.
pub const WB_ABI_VERSION: u32 = 1;

/// Returns the version of the library as text.
#[unsafe(no_mangle)]
pub extern "C" fn wb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

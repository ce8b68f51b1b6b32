//! Behaviour of the crate: golden vectors, repacking, activations, products and vector operations.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    clippy::float_cmp,
    reason = "tests compare bits, and make their numbers up"
)]

extern crate weighbridge_quant as quant;

mod golden;

//! Behaviour of the compiler, against an oracle and as messages.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::result_large_err,
    clippy::unwrap_used,
    reason = "test code: small numbers, cold errors"
)]

extern crate weighbridge_plan as plan;

mod blame;
mod codecs;
mod hostile;
mod mapping;
mod moves;
mod oracle;
mod packed_planes;
mod pieces;
mod plans;
mod problems;
mod random;
mod scale;
mod schemes;
mod strided;

//! What checks rest on.
#![allow(clippy::unwrap_used, reason = "a test fails so")]

mod bands;

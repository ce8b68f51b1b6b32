//! Tests of the parts that checks are built from.
#![allow(clippy::unwrap_used, reason = "a test fails so")]

mod bands;

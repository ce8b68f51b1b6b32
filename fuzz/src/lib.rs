//! Fuzz targets for every parser of Weighbridge. README.md says how to run them.

pub mod seeds;
mod sound;
pub mod targets;

#[path = "../../crates/checkpoint/tests/corpus/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod corpus;

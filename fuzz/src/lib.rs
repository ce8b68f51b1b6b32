//! Fuzz targets for every parser of Weighbridge. README.md says how to run them.

mod sound;
pub mod targets;

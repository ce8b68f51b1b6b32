//! The work itself: files are read, what pieces need is copied out, values are changed, slots are filled.

pub(crate) mod executor;
mod gather;
mod read;
mod staged;

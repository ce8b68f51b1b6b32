//! The work of a load, its order, and its needs: decided before anything is read.

pub(crate) mod cut;
pub(crate) mod home;
pub(crate) mod item;
pub(crate) mod needs;
pub(crate) mod reads;
pub(crate) mod sources;
pub(crate) mod staged;

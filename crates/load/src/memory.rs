//! Where bytes of parameters are, and what is needed on the way there.

pub(crate) mod available;
pub(crate) mod ledger;
pub(crate) mod pages;
pub(crate) mod region;
pub(crate) mod resident;
pub(crate) mod sink;
pub(crate) mod slot;
pub(crate) mod tensor;

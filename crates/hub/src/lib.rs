//! Models of the Hugging Face Hub: their names, their files, and the cache of them on this machine.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! # use weighbridge_hub as hub;
//! use hub::{Hub, HubName};
//!
//! # fn main() -> Result<(), hub::Error> {
//! let name = HubName::parse("hf:owner/name/Q4_K_M")?;
//! let pulled = Hub::from_env()?.pull(&name, &|_| ControlFlow::Continue(()))?;
//! println!("{}", pulled.path.display());
//! # Ok(())
//! # }
//! ```
//!
//! The cache is that of the Python package huggingface_hub: neither downloads what the other has. Every file is compared
//! with the digest that the hub names before it gets its place there.
//!
//! What does not happen here: no checkpoint is opened, nothing is removed that was not written here, and a token goes to no host
//! but the hub's.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod cache;
mod choice;
mod client;
mod digest;
mod download;
mod error;
mod hub;
mod listing;
pub mod local;
mod name;
mod part;
mod quant;
mod retry;
mod role;
mod settings;

pub use choice::{Choice, HubFile, choose};
pub use error::{Error, Offer};
pub use hub::{Hub, HubBuilder, Look, Progress, Pulled};
pub use listing::Files;
pub use name::{HubName, Repo};

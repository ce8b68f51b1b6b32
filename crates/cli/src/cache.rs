//! The cache directory.

use std::env;
use std::path::PathBuf;

use weighbridge::store::Cache;
use weighbridge::tensor::Bytes;

use crate::progress::note;

/// The variable that names the user's directory.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };

/// Where it is; `None` if the environment names no place.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("WEIGHBRIDGE_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("weighbridge")))
        .or_else(|| Some(set(HOME)?.join(".cache").join("weighbridge")))
}

/// The copies of loaded weights in it.
pub(crate) fn copies() -> Option<Cache> {
    Some(Cache::new(folder()?.join("ready")))
}

/// The same, where there must be one.
pub(crate) fn must() -> Result<Cache, String> {
    let hint = "hint: WEIGHBRIDGE_CACHE=DIR names it";
    copies().ok_or_else(|| {
        format!("there is no cache directory: neither XDG_CACHE_HOME nor {HOME} is set\n{hint}")
    })
}

/// Says that a copy of `bytes` is kept, where this is the first start that keeps it.
pub(crate) fn say_first(bytes: Option<u64>) {
    let Some(bytes) = bytes.map(Bytes) else { return };
    note(&format!("keeping a copy of {bytes} for the next start, in the background (`--cache off`: none)"));
}

//! Which copies are those of all ranks of one mesh.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::key::{Key, Parts};

/// The copies of all ranks, in the order of the ranks. The file is named after their keys, so that nobody has to trust it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The keys of the copies.
    pub(crate) members: Vec<String>,
    /// Where the checkpoint was.
    pub(crate) source: String,
    /// The layout.
    pub(crate) layout: String,
    /// What the keys were made of.
    pub(crate) parts: Parts,
}

impl Manifest {
    /// The key of the set.
    pub(crate) fn key(&self) -> Key {
        let mut text = "weighbridge ranks".to_owned();
        for member in &self.members {
            // Writing to a `String` cannot fail.
            let _ = write!(text, " {member}");
        }
        Key::named(&text)
    }

    /// The keys of the copies; `None` if one is no key.
    pub(crate) fn keys(&self) -> Option<Vec<Key>> {
        self.members.iter().map(|member| Key::parse(member)).collect()
    }

    /// Reads the manifest of the set `key`; `None` if it is none.
    pub(crate) fn read(path: &Path, key: Key) -> Option<Manifest> {
        let text = std::fs::read(path).ok()?;
        serde_json::from_slice(&text).ok().filter(|manifest: &Manifest| manifest.key() == key)
    }
}

//! A checkpoint's entries by name.

use std::collections::HashMap;

use tensor::{Shape, TensorEntry};

/// A checkpoint's entries, found by name. Of entries with the same name the first is found.
#[derive(Debug)]
pub struct Sources<'a> {
    entries: &'a [TensorEntry],
    index: HashMap<&'a str, usize>,
}

impl<'a> Sources<'a> {
    /// Indexes `entries`.
    pub fn new(entries: &'a [TensorEntry]) -> Sources<'a> {
        let mut index = HashMap::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            index.entry(entry.name.as_str()).or_insert(i);
        }
        Sources { entries, index }
    }

    /// The entry called `name`, with its index.
    pub fn find(&self, name: &str) -> Option<(usize, &'a TensorEntry)> {
        let i = *self.index.get(name)?;
        Some((i, &self.entries[i]))
    }

    /// The entries.
    pub fn entries(&self) -> &'a [TensorEntry] {
        self.entries
    }

    pub(crate) fn shape(&self, name: &str) -> Option<Shape> {
        self.find(name).map(|(_, e)| e.shape.clone())
    }
}

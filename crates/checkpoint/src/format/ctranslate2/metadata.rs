//! What a CTranslate2 model says beside its weights.

use std::collections::BTreeMap;

use serde_json::Value;
use tensor::Shape;

use crate::error::Error;
use crate::folder::Folder;
use crate::format::hf::{self, CONFIG, HfMetadata, Member};

/// Files that CTranslate2 has beside `model.bin`, and that transformers does not know.
const VOCABULARIES: &[&str] = &["vocabulary.json", "vocabulary.txt"];

/// The name of the specification, attributes, shapes of variables, and the files beside `model.bin`.
#[derive(Debug)]
pub struct Ctranslate2Metadata {
    pub(super) spec: String,
    pub(super) revision: u32,
    /// Variables of one number.
    pub(super) attributes: BTreeMap<String, f64>,
    pub(super) shapes: BTreeMap<String, Shape>,
    pub(super) beside: Option<HfMetadata>,
}

impl Ctranslate2Metadata {
    /// The name of the specification: `WhisperSpec`.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// The revision of the specification.
    pub fn revision(&self) -> u32 {
        self.revision
    }

    /// Names and values of the variables of one number, sorted by name.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, f64)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The value of the variable called `name`, which is one number.
    pub fn attribute(&self, name: &str) -> Option<f64> {
        self.attributes.get(name).copied()
    }

    /// The shape of the variable called `name`.
    pub fn shape(&self, name: &str) -> Option<&Shape> {
        self.shapes.get(name)
    }

    /// The number of layers whose variables' names begin with `before` and a number: `decoder/layer_`.
    pub fn layers(&self, before: &str) -> u64 {
        let numbers = self.shapes.keys().filter_map(|name| name.strip_prefix(before)?.split('/').next());
        let mut numbers: Vec<&str> =
            numbers.filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len() as u64
    }

    /// The `config.json` beside the weights, always an object.
    pub fn config(&self) -> Option<&Value> {
        self.beside.as_ref()?.config()
    }

    /// The file called `name` beside the weights: the vocabulary, a tokenizer, how sound is prepared.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.beside().find(|(there, _)| *there == name).map(|(_, member)| member)
    }

    /// The files beside the weights that transformers knows too, but for `config.json`: name and content.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let known = self.beside().filter(|(name, _)| *name != CONFIG && hf::is_written(name));
        known.map(|(name, member)| Ok((name.to_owned(), member.read()?))).collect()
    }

    /// The files beside the weights, by name.
    pub fn beside(&self) -> impl Iterator<Item = (&'static str, &Member)> {
        self.beside.iter().flat_map(HfMetadata::beside)
    }
}

/// The files beside the weights in `folder`.
pub(super) fn beside(folder: &Folder) -> Result<HfMetadata, Error> {
    HfMetadata::read_with(folder, VOCABULARIES)
}

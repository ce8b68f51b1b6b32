//! A tokenizer's tables as bytes, so that the next start reads them instead of building them.
//!
//! Sections, each with its length before it. Whoever keeps the bytes checks their digest; what is read here is checked so far that no
//! index leads out of a list.

use std::sync::Arc;

use super::table::{Shared, Strings, Words};

/// Names the form of [`Tokenizer::built`](super::Tokenizer::built). Raise the number whenever a tokenizer is built in another way, even if the
/// bytes have the same form: rules for words, names of tokens, what a token renders as, hashes.
pub const BUILT: &str = concat!("weighbridge tokenizer 1, ", env!("CARGO_PKG_VERSION"));

/// Appends sections.
pub(super) struct Writer(Vec<u8>);

impl Default for Writer {
    fn default() -> Writer {
        let mut writer = Writer(vec![]);
        writer.section(BUILT.as_bytes());
        writer
    }
}

impl Writer {
    pub(super) fn section(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn words(&mut self, words: &Words) {
        self.section(words.0.bytes());
    }

    pub(super) fn strings(&mut self, strings: &Strings) {
        self.section(strings.bytes.bytes());
        self.words(&strings.ends);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads sections, and copies none.
pub(super) struct Reader {
    all: Arc<Vec<u8>>,
    at: usize,
}

impl Reader {
    /// `None` if the bytes are of another form.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Reader> {
        let mut reader = Reader { all: Arc::new(bytes), at: 0 };
        (reader.section()?.bytes() == BUILT.as_bytes()).then_some(reader)
    }

    pub(super) fn section(&mut self) -> Option<Shared> {
        let len = u64::from_le_bytes(*self.all.get(self.at..)?.first_chunk()?);
        let start = self.at + 8;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        let section = Shared::part(&self.all, start..end)?;
        self.at = end;
        Some(section)
    }

    pub(super) fn words(&mut self) -> Option<Words> {
        self.section().filter(|section| section.bytes().len() % 4 == 0).map(Words)
    }

    pub(super) fn strings(&mut self) -> Option<Strings> {
        let strings = Strings { bytes: self.section()?, ends: self.words()? };
        strings.is_whole().then_some(strings)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.section()?.bytes().to_vec()).ok()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.all.len()
    }
}

//! Tokens or bytes as they come, text as whole characters.

use super::{SpecialText, Tokenizer};

/// Turns generated tokens into text that never ends inside a character.
#[derive(Debug)]
pub struct TokenStream<'t> {
    tokenizer: &'t Tokenizer,
    special: SpecialText,
    bytes: TextStream,
    /// Where the text of a token depends on those before it: the last of them, how many of them ended with a whole
    /// character, and how much of their text was given out.
    tokens: Vec<u32>,
    whole: Vec<usize>,
    given: usize,
    text: String,
}

/// Whole pieces of text that are kept to decode what comes after them.
const KEPT: usize = 8;

impl<'t> TokenStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, special: SpecialText) -> TokenStream<'t> {
        let bytes = TextStream::with_capacity(tokenizer.longest());
        TokenStream {
            tokenizer,
            special,
            bytes,
            tokens: vec![],
            whole: vec![],
            given: 0,
            text: String::new(),
        }
    }

    /// Takes the next token; gives the text that is whole now.
    pub fn push(&mut self, token: u32) -> &str {
        match self.tokenizer.bytes(token, self.special) {
            Some(bytes) => self.bytes.push(bytes),
            None => {
                self.tokens.push(token);
                self.rest(false)
            }
        }
    }

    /// Ends the text and returns the rest: incomplete characters come out as U+FFFD. The stream may then begin another
    /// text.
    pub fn finish(&mut self) -> &str {
        if self.tokens.is_empty() {
            return self.bytes.finish();
        }
        self.rest(true);
        self.tokens.clear();
        self.whole.clear();
        self.given = 0;
        &self.text
    }

    /// The text of the tokens after the part already returned, if it is whole or the `last`.
    fn rest(&mut self, last: bool) -> &str {
        self.text.clear();
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens, self.special).unwrap_or_default();
        let text = decode(&self.tokens);
        let whole = last || !text.ends_with(char::REPLACEMENT_CHARACTER);
        if let Some(new) = text.get(self.given..).filter(|_| whole) {
            self.text.push_str(new);
            self.given = text.len();
            self.whole.push(self.tokens.len());
            // The text of tokens depends on few before them.
            if self.whole.len() > 2 * KEPT {
                let cut = self.whole[KEPT];
                self.tokens.drain(..cut);
                self.whole.drain(..=KEPT);
                self.whole.iter_mut().for_each(|end| *end -= cut);
                self.given = decode(&self.tokens).len();
            }
        }
        &self.text
    }
}

/// Turns the bytes of generated tokens into text that never ends inside a character.
///
/// A token may hold a part of a UTF-8 character: its bytes wait until the rest comes. Bytes that can be no
/// part of any character come out as U+FFFD, one for each maximal part, as `String::from_utf8_lossy` does.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// Bytes not yet given out; between pushes, the beginning of a character at most.
    waiting: Vec<u8>,
    text: String,
}

impl TextStream {
    /// A stream whose pushes of up to `bytes` bytes do not allocate.
    pub fn with_capacity(bytes: usize) -> TextStream {
        // Each of the bytes, and of the up to three that waited, may become a U+FFFD of three.
        let waiting = bytes.saturating_add(3);
        TextStream {
            waiting: Vec::with_capacity(waiting),
            text: String::with_capacity(waiting.saturating_mul(3)),
        }
    }

    /// Takes the next bytes; gives the text that is whole now.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.text.clear();
        self.waiting.extend_from_slice(bytes);
        let mut done = 0;
        for chunk in self.waiting.utf8_chunks() {
            self.text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            done += chunk.valid().len() + invalid.len();
            if done == self.waiting.len() && is_cut_short(invalid) {
                done -= invalid.len();
            } else if !invalid.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.waiting.drain(..done);
        &self.text
    }

    /// Ends the text and returns the rest: an incomplete character comes out as U+FFFD. The stream may then begin
    /// another text.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.waiting.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.waiting.clear();
        }
        &self.text
    }
}

/// Whether more bytes could make a character of these.
fn is_cut_short(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_come_out_whole() {
        let text = "aé漢👩‍👧\u{0}z";
        let mut stream = TextStream::default();
        let mut out = String::new();
        for byte in text.bytes() {
            let piece = stream.push(&[byte]);
            assert!(piece.chars().count() <= 1);
            out.push_str(piece);
        }
        assert_eq!(out, text);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(b"a\xFFb\xE2\x82"), "a\u{FFFD}b");
        assert_eq!(stream.push(b"x"), "\u{FFFD}x");
        assert_eq!(stream.push(b"\xF0\x9F"), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
        assert_eq!(stream.finish(), "");
        assert_eq!(stream.push(b"y"), "y");
    }

    #[test]
    fn every_split_gives_what_the_whole_gives() {
        let bytes = b"\xF0\x9F\x91\xA9a\xED\xA0\x80\xC0\xAF\xF4\x90\x80\x80\xE6\xBC\xA2\xF0\x9F\x91";
        for at in 0..=bytes.len() {
            let mut stream = TextStream::default();
            let mut out = stream.push(&bytes[..at]).to_owned();
            out.push_str(stream.push(&bytes[at..]));
            out.push_str(stream.finish());
            assert_eq!(out, String::from_utf8_lossy(bytes), "split at {at}");
        }
    }
}

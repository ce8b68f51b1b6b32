//! Bytes as they come, text as whole characters.

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

    /// Ends the text: what still waits comes out as U+FFFD. The stream may then begin another text.
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

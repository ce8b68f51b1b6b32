//! Added tokens, cut out of a text as tokenizers cuts them: the leftmost first, the longest of those.
//!
//! Source: `AddedVocabulary`, tokenizers/src/tokenizer/added_vocabulary.rs@v0.23.2, where no flag but `normalized` and
//! `special` is set and text is not normalized.

use hashbrown::HashMap;

use super::super::built::{Reader, Writer};
use super::super::special::TextOrToken;
use super::file::Added;

/// Tokens that are looked for at the same time.
#[derive(Default)]
struct Set {
    /// Id, and whether the token is special.
    tokens: HashMap<Box<[u8]>, (u32, bool)>,
    /// Lengths of tokens, the longest first, by their first byte.
    lengths: HashMap<u8, Vec<usize>>,
}

/// Added tokens: those that are searched before a text is normalized, and those searched after.
#[derive(Default)]
pub(super) struct AddedTokens {
    before: Set,
    after: Set,
}

impl AddedTokens {
    pub(super) fn new(added: &[Added]) -> AddedTokens {
        let mut all = AddedTokens::default();
        for token in added {
            let set = if token.normalized { &mut all.after } else { &mut all.before };
            let text = token.content.as_bytes();
            let Some(first) = text.first() else { continue };
            set.tokens.insert(text.into(), (token.id, token.special));
            let lengths = set.lengths.entry(*first).or_default();
            if let Err(at) = lengths.binary_search_by(|len| text.len().cmp(len)) {
                lengths.insert(at, text.len());
            }
        }
        all
    }

    /// Appends all tokens, in the order of their ids.
    pub(super) fn write(&self, out: &mut Writer) {
        let mut all: Vec<(u32, &[u8], bool, bool)> = vec![];
        for (set, normalized) in [(&self.before, false), (&self.after, true)] {
            all.extend(set.tokens.iter().map(|(text, (id, special))| (*id, &**text, *special, normalized)));
        }
        all.sort_unstable();
        out.words(&all.iter().map(|token| token.0).collect());
        out.section(&all.iter().map(|token| u8::from(token.2) | u8::from(token.3) << 1).collect::<Vec<u8>>());
        for (_, text, ..) in all {
            out.section(text);
        }
    }

    /// Reads them back; `None` if they are not whole.
    pub(super) fn read(from: &mut Reader) -> Option<AddedTokens> {
        let (ids, flags) = (from.words()?, from.section()?);
        if ids.len() != flags.bytes().len() {
            return None;
        }
        let mut added = Vec::with_capacity(ids.len());
        for (id, flags) in ids.iter().zip(flags.bytes()) {
            let (content, special, normalized) = (from.text()?, flags & 1 != 0, flags & 2 != 0);
            added.push(Added {
                id,
                content,
                special,
                normalized,
                single_word: false,
                lstrip: false,
                rstrip: false,
            });
        }
        Some(AddedTokens::new(&added))
    }

    /// Cuts `text`. Where special tokens are not wanted, they are text.
    pub(super) fn cut<'a>(&self, text: &'a str, special: bool) -> Vec<TextOrToken<'a>> {
        let mut parts = Vec::new();
        self.before.cut(text, special, &mut parts);
        if self.after.tokens.is_empty() {
            return parts;
        }
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                TextOrToken::Text(text) => self.after.cut(text, special, &mut all),
                TextOrToken::Token(_) => all.push(part),
            }
        }
        all
    }
}

impl Set {
    fn cut<'a>(&self, text: &'a str, special: bool, parts: &mut Vec<TextOrToken<'a>>) {
        let bytes = text.as_bytes();
        let (mut at, mut from) = (0, 0);
        while let Some(first) = bytes.get(at) {
            let lengths = self.lengths.get(first).map_or(&[][..], Vec::as_slice);
            let found = lengths.iter().find_map(|len| {
                let token = self.tokens.get(bytes.get(at..at + len)?)?;
                Some((*len, *token))
            });
            let Some((len, (id, steers))) = found else {
                at += 1;
                continue;
            };
            // A special token that is not wanted still hides what it overlaps.
            if special || !steers {
                // Tokens are whole UTF-8 strings, so they begin and end between characters.
                parts.extend(text.get(from..at).filter(|text| !text.is_empty()).map(TextOrToken::Text));
                parts.push(TextOrToken::Token(id));
                from = at + len;
            }
            at += len;
        }
        parts.extend(text.get(from..).filter(|text| !text.is_empty()).map(TextOrToken::Text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, content: &str, special: bool, normalized: bool) -> Added {
        let content = content.to_owned();
        Added { id, content, special, normalized, single_word: false, lstrip: false, rstrip: false }
    }

    #[test]
    fn the_leftmost_goes_first_then_the_longest() {
        let tokens =
            [token(0, "ab", false, false), token(1, "bcd", true, false), token(2, "abx", false, false)];
        let added = AddedTokens::new(&tokens);
        assert_eq!(added.cut("abcd", true), [TextOrToken::Token(0), TextOrToken::Text("cd")]);
        assert_eq!(added.cut("abx", true), [TextOrToken::Token(2)]);
        assert_eq!(added.cut("xbcd", true), [TextOrToken::Text("x"), TextOrToken::Token(1)]);
        assert_eq!(added.cut("xbcd", false), [TextOrToken::Text("xbcd")]);
        assert_eq!(added.cut("", true), []);
    }

    #[test]
    fn those_of_normalized_text_come_second() {
        let tokens = [token(0, "ab", false, true), token(1, "b", false, false)];
        let added = AddedTokens::new(&tokens);
        assert_eq!(added.cut("ab", true), [TextOrToken::Text("a"), TextOrToken::Token(1)]);
    }

    #[test]
    fn one_that_is_not_wanted_hides_what_it_holds() {
        let tokens = [token(0, "<x>", true, false), token(1, "x", false, false)];
        let added = AddedTokens::new(&tokens);
        assert_eq!(added.cut("<x>x", false), [TextOrToken::Text("<x>"), TextOrToken::Token(1)]);
    }
}

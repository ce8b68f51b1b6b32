//! BERT's tokenizer: text is cleaned and cut into words, and words into the longest pieces that are tokens.
//!
//! Source: `BertNormalizer`, `BertPreTokenizer` and `WordPiece` of tokenizers 0.23, and NFD as its crate has it; what they do to single
//! characters is in a table (golden/tokenizer/bert.py), since their Unicode is not of one version.

mod characters;

use characters::CHARACTERS;

use super::store::TokenStore;

/// How a text is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the file")]
pub(super) struct Cleaning {
    /// Characters are made lower case before anything else.
    pub(super) lowers_first: bool,
    /// Control characters are taken out.
    pub(super) clean_text: bool,
    /// Each Chinese character is a word.
    pub(super) chinese: bool,
    pub(super) strip_accents: bool,
    pub(super) lowercase: bool,
}

impl Cleaning {
    /// Calls `each` with the words of `text`.
    pub(super) fn words(self, text: &str, each: &mut dyn FnMut(&str)) {
        let mut words = Words { word: String::new(), marks: vec![], lowercase: self.lowercase, each };
        for c in text.chars() {
            if self.lowers_first {
                c.to_lowercase().for_each(|c| self.take(c, &mut words));
            } else {
                self.take(c, &mut words);
            }
        }
        words.order();
        words.end();
    }

    fn take(self, c: char, words: &mut Words<'_>) {
        if c.is_ascii_alphanumeric() {
            return words.add(c, 0);
        }
        if self.clean_text {
            if c == char::REPLACEMENT_CHARACTER || CHARACTERS.is_control(c) {
                return;
            }
            if c.is_whitespace() {
                return words.add(' ', 0);
            }
        }
        let is_word = self.chinese && is_chinese(c);
        if is_word {
            words.add(' ', 0);
        }
        if self.strip_accents {
            CHARACTERS.decompose(c, &mut |c, class| match c {
                Some(c) => words.add(c, class),
                None if class == 0 => words.order(),
                None => {}
            });
        } else {
            words.add(c, 0);
        }
        if is_word {
            words.add(' ', 0);
        }
    }
}

/// The word that is being read.
struct Words<'a> {
    word: String,
    /// Marks that follow each other, with their classes, by which they are ordered.
    marks: Vec<(u8, char)>,
    lowercase: bool,
    each: &'a mut dyn FnMut(&str),
}

impl Words<'_> {
    /// Adds a character of canonical combining class `class`.
    fn add(&mut self, c: char, class: u8) {
        if class > 0 {
            self.marks.push((class, c));
            return;
        }
        self.order();
        self.put(c);
    }

    /// Adds the marks so far.
    fn order(&mut self) {
        if !self.marks.is_empty() {
            let mut marks = std::mem::take(&mut self.marks);
            marks.sort_by_key(|(class, _)| *class);
            for (_, mark) in marks {
                self.put(mark);
            }
        }
    }

    fn put(&mut self, c: char) {
        if c.is_ascii() || !self.lowercase {
            self.cut(if self.lowercase { c.to_ascii_lowercase() } else { c });
        } else {
            c.to_lowercase().for_each(|c| self.cut(c));
        }
    }

    fn cut(&mut self, c: char) {
        if c.is_whitespace() {
            self.end();
        } else if CHARACTERS.is_punctuation(c) {
            self.end();
            self.word.push(c);
            self.end();
        } else {
            self.word.push(c);
        }
    }

    fn end(&mut self) {
        if !self.word.is_empty() {
            (self.each)(&self.word);
            self.word.clear();
        }
    }
}

/// Source: `is_chinese_char`, tokenizers/src/normalizers/bert.rs@v0.23.2.
fn is_chinese(c: char) -> bool {
    matches!(
        u32::from(c),
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

/// Cuts words into the longest pieces that are tokens.
pub(super) struct Pieces {
    /// Stands before pieces that do not begin a word.
    pub(super) prefix: String,
    /// A word that is not made of tokens, or too long.
    pub(super) unk: u32,
    /// Characters of a word at most.
    pub(super) longest: usize,
    /// Bytes of the longest token.
    pub(super) most: usize,
}

impl Pieces {
    /// Appends the tokens of `word`. Tokens for which `is_piece` is false are none that words are made of.
    pub(super) fn encode(
        &self,
        store: &TokenStore,
        is_piece: impl Fn(u32) -> bool,
        word: &str,
        out: &mut Vec<u32>,
    ) {
        let before = out.len();
        if word.len() > self.longest && word.chars().count() > self.longest {
            out.push(self.unk);
            return;
        }
        let mut piece = String::new();
        let mut start = 0;
        while let Some(rest) = word.get(start..).filter(|rest| !rest.is_empty()) {
            piece.clear();
            if start > 0 {
                piece.push_str(&self.prefix);
            }
            let fixed = piece.len();
            let mut end = rest.len().min(self.most.saturating_sub(fixed));
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            piece.push_str(rest.get(..end).unwrap_or_default());
            let found = loop {
                if piece.len() == fixed {
                    break None;
                }
                if let Some(id) = store.id(piece.as_bytes()).filter(|id| is_piece(*id)) {
                    break Some(id);
                }
                piece.pop();
            };
            let Some(id) = found else {
                out.truncate(before);
                out.push(self.unk);
                return;
            };
            out.push(id);
            start += piece.len() - fixed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCASED: Cleaning = Cleaning {
        lowers_first: false,
        clean_text: true,
        chinese: true,
        strip_accents: true,
        lowercase: true,
    };

    fn words(how: Cleaning, text: &str) -> Vec<String> {
        let mut all = vec![];
        how.words(text, &mut |word| all.push(word.to_owned()));
        all
    }

    #[test]
    fn words_are_cleaned_and_cut() {
        assert_eq!(words(UNCASED, " Héllo,\tWORLD\u{0}\u{200d}!x "), ["hello", ",", "world", "!", "x"]);
        assert_eq!(words(UNCASED, "ab漢字cd"), ["ab", "漢", "字", "cd"]);
        assert_eq!(words(UNCASED, "각"), ["\u{1100}\u{1161}\u{11a8}"]);
        assert_eq!(words(UNCASED, "\u{301}"), [""; 0]);
        let cased = Cleaning { strip_accents: false, lowercase: false, ..UNCASED };
        assert_eq!(words(cased, "Héllo 漢"), ["Héllo", "漢"]);
        assert_eq!(words(Cleaning { lowers_first: true, ..cased }, "HÉLLO"), ["héllo"]);
    }

    #[test]
    fn words_are_made_of_the_longest_pieces() {
        let tokens = ["[UNK]", "un", "##aff", "##able", "##a", "é", "##é"];
        let texts: Vec<&[u8]> = tokens.iter().map(|text| text.as_bytes()).collect();
        let store = TokenStore::new(&texts, None).unwrap();
        let pieces = Pieces { prefix: "##".to_owned(), unk: 0, longest: 8, most: 6 };
        let of = |word: &str| {
            let mut out = vec![];
            pieces.encode(&store, |_| true, word, &mut out);
            out
        };
        assert_eq!(of("unaff"), [1, 2]);
        assert_eq!(of("unaffa"), [1, 2, 4]);
        assert_eq!(of("unaffx"), [0]);
        assert_eq!(of("unaffable"), [0]);
        assert_eq!(of("ééé"), [5, 6, 6]);
    }
}

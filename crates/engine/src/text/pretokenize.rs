//! Cuts text into words before merging: the regexes of known tokenizers, as scanners.
//!
//! Each scanner follows the regex in its comment alternative by alternative. They are facts of the
//! models, gathered in `llm_tokenizer_bpe` and which name stands for which in
//! `llama_vocab::impl::load`, both src/llama-vocab.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>.

use std::ops::Range;

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::Error;

/// One pass over the current words. All but the word scanners isolate their matches, and leave the text between the
/// matches as words of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|`
    /// `\s*[\r\n]+|\s+(?!\S)|\s+`; with `marks`, `[\p{L}\p{M}]` for `\p{L}` in a word; with `long_s`, U+017F is an s.
    Llama3 { digits: usize, marks: bool, long_s: bool },
    /// `\p{N}{1,max}`
    Numbers { max: usize },
    /// `[\p{P}extra]+`
    Punctuation { extra: &'static [char] },
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// `[\r\n]`
    LineBreaks,
    /// `\s?\p{L}+`
    SpacedLetters,
    /// `\s?\p{P}+`
    SpacedPunctuation,
    /// `[ࠀ-龥가-\u{D7FF}]+`
    EastAsian,
    /// `[^\n]+|[\n]+`
    Lines,
}

/// How a model cuts text.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    /// The name in `tokenizer.ggml.pre`.
    pub(super) name: &'static str,
    pub(super) passes: &'static [Pass],
    /// Whether a word that is a token as a whole is taken without merging.
    pub(super) whole_words: bool,
    /// Whether a text opens with BOS where the file does not say.
    pub(super) add_bos: bool,
}

const UNLIMITED: usize = usize::MAX;

const GPT2: &[Pass] = &[Pass::Gpt2];
const SMOLLM: &[Pass] = &[Pass::Numbers { max: 1 }, Pass::Gpt2];
const QWEN2: &[Pass] = &[Pass::Llama3 { digits: 1, marks: false, long_s: false }];
const LLAMA3: &[Pass] = &[Pass::Llama3 { digits: 3, marks: false, long_s: false }];

const fn plain(name: &'static str, passes: &'static [Pass]) -> PreTokenizer {
    PreTokenizer { name, passes, whole_words: false, add_bos: false }
}

const fn llama3(name: &'static str) -> PreTokenizer {
    PreTokenizer { name, passes: LLAMA3, whole_words: true, add_bos: true }
}

/// Every name of `tokenizer.ggml.pre` that is understood.
static KNOWN: &[PreTokenizer] = &[
    plain(
        "default",
        &[
            Pass::Punctuation { extra: &['$', '+', '<', '=', '>', '^', '~', '|'] },
            Pass::Gpt2,
            Pass::Numbers { max: UNLIMITED },
            Pass::ThreeDigits,
        ],
    ),
    plain("gpt-2", GPT2),
    plain("mpt", GPT2),
    plain("olmo", GPT2),
    plain("phi-2", GPT2),
    plain("gigachat", GPT2),
    plain("exaone4", GPT2),
    plain("a.x-4.0", GPT2),
    plain("mellum", GPT2),
    plain("trillion", GPT2),
    plain("granite-docling", GPT2),
    plain("roberta-bpe", GPT2),
    plain("modern-bert", GPT2),
    plain("smollm", SMOLLM),
    plain("starcoder", SMOLLM),
    plain("refact", SMOLLM),
    plain("command-r", SMOLLM),
    plain("codeshell", SMOLLM),
    plain("exaone", SMOLLM),
    plain("minerva-7b", SMOLLM),
    plain("mellum2", SMOLLM),
    llama3("llama-bpe"),
    llama3("llama3"),
    llama3("llama-v3"),
    llama3("falcon3"),
    llama3("falcon-h1"),
    llama3("pixtral"),
    llama3("midm-2.0"),
    llama3("lfm2"),
    plain("dbrx", LLAMA3),
    plain("smaug-bpe", LLAMA3),
    plain("chatglm-bpe", LLAMA3),
    PreTokenizer { whole_words: true, ..plain("glm4", LLAMA3) },
    plain("qwen2", QWEN2),
    plain("deepseek-r1-qwen", QWEN2),
    plain("megrez", QWEN2),
    plain("stablelm2", QWEN2),
    plain("hunyuan", QWEN2),
    plain("solar-open", QWEN2),
    plain("grok-2", QWEN2),
    plain("qwen35", &[Pass::Llama3 { digits: 1, marks: true, long_s: false }]),
    PreTokenizer {
        whole_words: true,
        ..plain(
            "minicpm5",
            &[Pass::Numbers { max: 3 }, Pass::Llama3 { digits: UNLIMITED, marks: false, long_s: false }],
        )
    },
    plain(
        "falcon",
        &[
            Pass::Punctuation { extra: &['$', '+', '<', '=', '>', '^', '~', '|', '`'] },
            Pass::Gpt2,
            Pass::ThreeDigits,
        ],
    ),
    plain(
        "deepseek-coder",
        &[
            Pass::LineBreaks,
            Pass::SpacedLetters,
            Pass::SpacedPunctuation,
            Pass::EastAsian,
            Pass::Numbers { max: 1 },
        ],
    ),
];

/// For BPE over characters (`gemma4`): the merges never cross a line end, and nothing else is cut.
pub(super) static LINES: PreTokenizer = plain("gemma4", &[Pass::Lines]);

/// The cutters of `tokenizer.json`, whose regex engine folds U+017F to an s.
pub(super) mod json {
    use super::{GPT2, Pass, PreTokenizer, SMOLLM, plain};

    const fn llama3(name: &'static str, digits: usize) -> PreTokenizer {
        match digits {
            1 => plain(name, &[Pass::Llama3 { digits: 1, marks: false, long_s: true }]),
            _ => plain(name, &[Pass::Llama3 { digits: 3, marks: false, long_s: true }]),
        }
    }

    /// Text is one word.
    pub(crate) static UNCUT: PreTokenizer = plain("", &[]);
    pub(crate) static BYTES: PreTokenizer = plain("gpt-2", GPT2);
    pub(crate) static DIGITS: PreTokenizer = plain("smollm", SMOLLM);
    pub(crate) static LLAMA3: PreTokenizer = llama3("llama-bpe", 3);
    pub(crate) static QWEN2: PreTokenizer = llama3("qwen2", 1);

    /// The one with a name.
    pub(crate) fn named(name: &str) -> Option<PreTokenizer> {
        [UNCUT, BYTES, DIGITS, LLAMA3, QWEN2].into_iter().find(|known| known.name == name)
    }
}

impl PreTokenizer {
    /// The one that `tokenizer.ggml.pre` names.
    pub(super) fn named(name: &str) -> Result<PreTokenizer, Error> {
        KNOWN.iter().find(|known| known.name == name).copied().ok_or_else(|| Error::Unsupported {
            what: "pre-tokenizer",
            found: name.to_owned(),
            supported: KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Character classes that the scanners tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\p{M}`
    Mark,
    /// `\p{P}`
    Punctuation,
    /// `\s`
    Space,
    /// Symbols, controls and what is not assigned.
    Other,
}

impl Class {
    fn of(c: char) -> Class {
        match c {
            'a'..='z' | 'A'..='Z' => Class::Letter,
            '0'..='9' => Class::Number,
            _ if c.is_whitespace() => Class::Space,
            _ => match c.general_category_group() {
                GeneralCategoryGroup::Letter => Class::Letter,
                GeneralCategoryGroup::Number => Class::Number,
                GeneralCategoryGroup::Mark => Class::Mark,
                GeneralCategoryGroup::Punctuation => Class::Punctuation,
                _ => Class::Other,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Char {
    c: char,
    class: Class,
    /// Byte offset in the text.
    at: usize,
}

/// Cuts texts; its buffers are kept from one to the next.
#[derive(Default)]
pub(super) struct Cutter {
    chars: Vec<Char>,
    /// Ends of the words as indices in `chars`, and the ends that the current pass makes.
    ends: Vec<usize>,
    next_ends: Vec<usize>,
}

impl Cutter {
    /// The words of `text`, in order; together they are all of it.
    pub(super) fn words<'a>(
        &'a mut self,
        passes: &[Pass],
        text: &'a str,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        self.chars.clear();
        self.chars.extend(text.char_indices().map(|(at, c)| Char { c, class: Class::of(c), at }));
        self.ends.clear();
        if !text.is_empty() {
            self.ends.push(self.chars.len());
        }
        for pass in passes {
            self.next_ends.clear();
            let mut start = 0;
            for &end in &self.ends {
                let words = Words { chars: &self.chars[start..end], start, ends: &mut self.next_ends };
                words.cut(*pass);
                start = end;
            }
            std::mem::swap(&mut self.ends, &mut self.next_ends);
        }
        let chars = &self.chars;
        let byte = move |index: usize| chars.get(index).map_or(text.len(), |char| char.at);
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let word = &text[byte(start)..byte(end)];
            start = end;
            word
        })
    }
}

/// One word that a pass cuts further.
struct Words<'a> {
    chars: &'a [Char],
    /// Where it starts in the text.
    start: usize,
    ends: &'a mut Vec<usize>,
}

impl Words<'_> {
    fn cut(mut self, pass: Pass) {
        match pass {
            Pass::Gpt2 => self.scan(Words::gpt2_word),
            Pass::Llama3 { digits, marks, long_s } => {
                self.scan(|words, at| words.llama3_word(at, digits, marks, long_s));
            }
            Pass::Lines => self.scan(|words, at| {
                let newline = words.is(at, '\n');
                words.run(at, UNLIMITED, |char| (char.c == '\n') == newline)
            }),
            Pass::Numbers { max } => {
                self.isolate(|words, at| words.run(at, max, |char| char.class == Class::Number));
            }
            Pass::Punctuation { extra } => self.isolate(|words, at| {
                let wanted = |char: Char| char.class == Class::Punctuation || extra.contains(&char.c);
                words.run(at, UNLIMITED, wanted)
            }),
            Pass::ThreeDigits => self.isolate(|words, at| {
                let end = words.run(at, 3, |char| char.c.is_ascii_digit());
                if end == at + 3 { end } else { at }
            }),
            Pass::LineBreaks => {
                self.isolate(|words, at| words.run(at, 1, |char| matches!(char.c, '\r' | '\n')));
            }
            Pass::SpacedLetters => self.isolate(|words, at| words.spaced(at, Class::Letter)),
            Pass::SpacedPunctuation => self.isolate(|words, at| words.spaced(at, Class::Punctuation)),
            Pass::EastAsian => self.isolate(|words, at| {
                let wanted = |c: char| matches!(c, '\u{0800}'..='\u{9FA5}' | '\u{AC00}'..='\u{D7FF}');
                words.run(at, UNLIMITED, |char| wanted(char.c))
            }),
        }
    }

    /// Cuts by a scanner that finds the end of the word at a position, which is always past it.
    fn scan(&mut self, word_end: impl Fn(&Self, usize) -> usize) {
        let mut at = 0;
        while at < self.chars.len() {
            at = word_end(self, at).max(at + 1);
            self.ends.push(self.start + at);
        }
    }

    /// Cuts out every match. `match_end` returns the end of the match at a position, or the position itself if there is
    /// none.
    fn isolate(&mut self, match_end: impl Fn(&Self, usize) -> usize) {
        let (mut at, mut cut) = (0, 0);
        while at < self.chars.len() {
            let end = match_end(self, at);
            if end == at {
                at += 1;
                continue;
            }
            if cut < at {
                self.ends.push(self.start + at);
            }
            self.ends.push(self.start + end);
            (at, cut) = (end, end);
        }
        if cut < at {
            self.ends.push(self.start + at);
        }
    }

    fn get(&self, at: usize) -> Option<Char> {
        self.chars.get(at).copied()
    }

    fn is(&self, at: usize, c: char) -> bool {
        self.get(at).is_some_and(|char| char.c == c)
    }

    fn class(&self, at: usize) -> Option<Class> {
        self.get(at).map(|char| char.class)
    }

    /// The end of the run of at most `max` wanted characters at `at`.
    fn run(&self, at: usize, max: usize, wanted: impl Fn(Char) -> bool) -> usize {
        let rest = self.chars.get(at..).unwrap_or_default();
        at + rest.iter().take(max).take_while(|char| wanted(**char)).count()
    }

    /// `\s?class+`, or `at`.
    fn spaced(&self, at: usize, class: Class) -> usize {
        let from = at + usize::from(self.class(at) == Some(Class::Space));
        let end = self.run(from, UNLIMITED, |char| char.class == class);
        if end > from { end } else { at }
    }

    fn gpt2_word(&self, at: usize) -> usize {
        if let Some(end) = self.contraction(at, |c| c) {
            return end;
        }
        // ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+`
        let from = at + usize::from(self.is(at, ' '));
        match self.class(from) {
            Some(kind @ (Class::Letter | Class::Number)) => {
                self.run(from, UNLIMITED, |char| char.class == kind)
            }
            Some(class) if class != Class::Space => self.run(from, UNLIMITED, |char| {
                !matches!(char.class, Class::Space | Class::Letter | Class::Number)
            }),
            _ => self.spaces(at),
        }
    }

    fn llama3_word(&self, at: usize, digits: usize, marks: bool, long_s: bool) -> usize {
        let letter =
            |class: Option<Class>| class == Some(Class::Letter) || marks && class == Some(Class::Mark);
        // Unicode lower-casing, as regex `(?i:` folds. U+017F is an s too, but llama.cpp's table has only what
        // lower-cases.
        let fold = |c: char| if long_s && c == 'ſ' { 's' } else { c.to_lowercase().next().unwrap_or(c) };
        if let Some(end) = self.contraction(at, fold) {
            return end;
        }
        // `[^\r\n\p{L}\p{N}]?\p{L}+`
        let opens = !self.is(at, '\r') && !self.is(at, '\n') && self.class(at) != Some(Class::Number);
        if opens && (letter(self.class(at)) || letter(self.class(at + 1))) {
            return self.run(at + 1, UNLIMITED, |char| letter(Some(char.class)));
        }
        if self.class(at) == Some(Class::Number) {
            return self.run(at, digits, |char| char.class == Class::Number);
        }
        // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
        let from = at + usize::from(self.is(at, ' '));
        let other = |class: Class| !matches!(class, Class::Space | Class::Number) && !letter(Some(class));
        if self.class(from).is_some_and(other) {
            let end = self.run(from, UNLIMITED, |char| other(char.class));
            return self.run(end, UNLIMITED, |char| matches!(char.c, '\r' | '\n'));
        }
        // `\s*[\r\n]+`
        let spaces = at..self.run(at, UNLIMITED, |char| char.class == Class::Space);
        let is_break = |&at: &usize| self.is(at, '\r') || self.is(at, '\n');
        if let Some(last) = spaces.clone().rev().find(is_break) {
            return last + 1;
        }
        self.spaces(at)
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`, after folding.
    fn contraction(&self, at: usize, fold: impl Fn(char) -> char) -> Option<usize> {
        if !self.is(at, '\'') {
            return None;
        }
        let folded = |at| self.get(at).map(|char| fold(char.c));
        match (folded(at + 1)?, folded(at + 2)) {
            ('s' | 't' | 'm' | 'd', _) => Some(at + 2),
            ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(at + 3),
            _ => None,
        }
    }

    /// `\s+(?!\S)|\s+`: the last of several spaces is left for the word after them.
    fn spaces(&self, at: usize) -> usize {
        let Range { end, .. } = at..self.run(at, UNLIMITED, |char| char.class == Class::Space);
        if end < self.chars.len() && end > at + 1 { end - 1 } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let pre = PreTokenizer::named(name).unwrap();
        Cutter::default().words(pre.passes, text).map(str::to_owned).collect()
    }

    /// `golden/tokenizer/classes.py` lists the characters that Oniguruma takes for letters, and so on.
    #[test]
    fn classes_are_those_of_oniguruma() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizer/classes.json");
        let table: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for (pattern, class) in [
            (r"\p{L}", Class::Letter),
            (r"\p{N}", Class::Number),
            (r"\p{M}", Class::Mark),
            (r"\p{P}", Class::Punctuation),
            (r"\s", Class::Space),
        ] {
            let found = ('\0'..=char::MAX).filter(|c| Class::of(*c) == class);
            let (count, sum) = found.fold((0u64, 0u64), |(n, sum), c| (n + 1, sum + u64::from(u32::from(c))));
            assert_eq!(table[pattern], serde_json::json!([count, sum]), "{pattern}");
        }
    }

    #[test]
    fn gpt2_words() {
        assert_eq!(
            words("gpt-2", "I'll  go, 12 \u{0301}x!?\n\n ok \t"),
            ["I", "'ll", " ", " go", ",", " 12", " \u{0301}", "x", "!?", "\n\n", " ok", " \t"]
        );
        assert_eq!(words("gpt-2", ""), [""; 0]);
    }

    #[test]
    fn smollm_cuts_digits_apart() {
        assert_eq!(words("smollm", "a 123"), ["a", " ", "1", "2", "3"]);
    }

    #[test]
    fn llama3_words() {
        assert_eq!(
            words("llama3", "\tfoo(bar); 12345 'LL don'T \n \n  x  "),
            ["\tfoo", "(bar", ");", " ", "123", "45", " '", "LL", " don", "'T", " \n \n", " ", " x", "  "]
        );
    }

    #[test]
    fn default_words() {
        assert_eq!(words("default", "a=12345."), ["a", "=", "123", "45", "."]);
    }

    #[test]
    fn an_unknown_name_is_told_what_is_known() {
        let error = PreTokenizer::named("nope").unwrap_err();
        assert_eq!(error.to_string(), "pre-tokenizer `nope` is not supported");
        assert!(error.hints()[0].starts_with("supported are default, gpt-2, "));
    }
}

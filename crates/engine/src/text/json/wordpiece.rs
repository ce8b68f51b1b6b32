//! A `tokenizer.json` as BERT has it, read for our own WordPiece. It gives the tokens of the library (golden/embed, golden/tokenizer).

use hashbrown::HashSet;

use super::super::bert::{Cleaning, Pieces};
use super::super::special::TextOrToken;
use super::super::store::{SPACE_MARK, TokenStore, TokenType};
use super::super::vocabulary::kinds;
use super::super::{EncodeOptions, Error, SpecialText, Vocabulary};
use super::added::AddedTokens;
use super::file::{Added, File, Model, Problems, steps};
use super::frame::{self, Frame, PairFrame};

/// A tokenizer of BERT.
pub(in super::super) struct WordPiece {
    store: TokenStore,
    pieces: Pieces,
    cleaning: Cleaning,
    added: AddedTokens,
    /// Added tokens that the model does not have: no word is made of them.
    outside: HashSet<u32>,
    frame: Frame,
    /// The prefix that decoding takes away, and whether it takes away spaces before punctuation.
    decoder: (String, bool),
    /// The same over the whole text, as transformers does.
    clean_up: bool,
}

impl WordPiece {
    /// The tokenizer of a file, or the parts of it that are not BERT's; none if its model is another.
    pub(in super::super) fn new(file: &File) -> Result<Result<WordPiece, Problems>, Error> {
        let Model::WordPiece { unk, prefix, longest } = &file.model else { return Ok(Err(vec![])) };
        let (cleaning, frame) = match shape(file) {
            Ok(shape) => shape,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let (texts, types) = file.texts();
        let outside = file.outside();
        let most = file.ids.keys().map(String::len).max().unwrap_or(0);
        let unk = file.ids.get(unk.as_str()).copied().unwrap_or(0);
        Ok(Ok(WordPiece {
            store: TokenStore::new(&texts, Some(&types))?,
            pieces: Pieces { prefix: prefix.clone(), unk, longest: *longest, most },
            cleaning,
            added: AddedTokens::new(&file.added),
            outside,
            frame,
            decoder: (
                file.decoder["prefix"].as_str().unwrap_or_default().to_owned(),
                file.decoder["cleanup"] == true,
            ),
            clean_up: file.clean_up,
        }))
    }

    /// The tokenizer that a GGUF file of BERT describes: a token that begins a word has a mark before it there, one that goes on has
    /// none.
    ///
    /// Source: `BertModel.set_vocab`, conversion/bert.py@0c1e57098, and `llama_vocab::impl::load`, src/llama-vocab.cpp there.
    pub(in super::super) fn of_gguf(vocabulary: &Vocabulary<'_>) -> Result<WordPiece, Error> {
        let types = vocabulary.types.clone().unwrap_or_else(|| vec![kinds::NORMAL; vocabulary.tokens.len()]);
        let texts = texts_of_gguf(vocabulary)?;
        let is_added = |kind| matches!(kind, kinds::CONTROL | kinds::UNKNOWN | kinds::USER_DEFINED);
        // Lists of other lengths are refused below.
        let added = (0..).zip(&texts).zip(&types).filter(|(_, kind)| is_added(**kind));
        let added: Vec<Added> =
            added.map(|((id, text), kind)| Added::plain(id, text, *kind == kinds::CONTROL)).collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let store = TokenStore::new(&texts, Some(&types))?;
        let id = |field: &'static str, id: Option<u32>, otherwise: u32| {
            let id = id.unwrap_or(otherwise);
            let problem = || Error::malformed(field, format!("{id}, and there are {} tokens", texts.len()));
            if (id as usize) < texts.len() { Ok(id) } else { Err(problem()) }
        };
        let bos = id("tokenizer.ggml.bos_token_id", vocabulary.bos, 101)?;
        let sep = id("tokenizer.ggml.seperator_token_id", vocabulary.sep, 102)?;
        let unk = id("tokenizer.ggml.unknown_token_id", vocabulary.unk, 100)?;
        let lowercase = vocabulary.lowercase.unwrap_or(true);
        Ok(WordPiece {
            pieces: Pieces {
                prefix: PREFIX.to_owned(),
                unk,
                longest: LONGEST,
                most: texts.iter().map(|text| text.len()).max().unwrap_or(0),
            },
            cleaning: Cleaning {
                lowers_first: false,
                clean_text: true,
                chinese: true,
                strip_accents: vocabulary.strip_accents.unwrap_or(lowercase),
                lowercase,
            },
            added: AddedTokens::new(&added),
            outside: HashSet::new(),
            frame: (vec![bos], vec![sep]),
            decoder: (PREFIX.to_owned(), true),
            clean_up: true,
            store,
        })
    }

    /// What stands around two texts, as BERT has it.
    pub(in super::super) fn pair(&self) -> PairFrame {
        let (before, after) = self.frame.clone();
        PairFrame { before, between: after.clone(), first: Some(after.len()), after }
    }

    pub(in super::super) fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 4 + 2);
        if options.add_special {
            out.extend_from_slice(&self.frame.0);
        }
        for part in self.added.cut(text, options.parse_special) {
            match part {
                TextOrToken::Token(id) => out.push(id),
                TextOrToken::Text(part) => self.cleaning.words(part, &mut |word| {
                    self.pieces.encode(&self.store, |id| !self.outside.contains(&id), word, &mut out);
                }),
            }
        }
        if options.add_special {
            out.extend_from_slice(&self.frame.1);
        }
        out
    }

    /// The text of `tokens`.
    ///
    /// Source: `WordPiece::decode_chain`, tokenizers/src/decoders/wordpiece.rs@v0.23.2.
    pub(in super::super) fn decode(&self, tokens: &[u32], special: SpecialText) -> String {
        let hidden =
            |id: &u32| special == SpecialText::Hidden && self.store.kind(*id).is_some_and(TokenType::steers);
        let texts = tokens.iter().filter(|id| !hidden(id)).filter_map(|id| self.store.text(*id));
        let mut text = String::new();
        let (prefix, cleanup) = &self.decoder;
        for (i, token) in texts.filter_map(|text| std::str::from_utf8(text).ok()).enumerate() {
            let piece = match (i, token.strip_prefix(prefix.as_str())) {
                (0, _) => token.to_owned(),
                (_, Some(rest)) => rest.to_owned(),
                (_, None) => format!(" {token}"),
            };
            text.push_str(&if *cleanup { cleaned(&piece) } else { piece });
        }
        if self.clean_up { super::super::cleaned(&text) } else { text }
    }

    /// Ids before and after a text.
    pub(in super::super) fn around(&self) -> &Frame {
        &self.frame
    }

    pub(in super::super) fn store(&self) -> &TokenStore {
        &self.store
    }
}

/// As transformers cleans texts, and one short form more.
///
/// Source: `cleanup`, tokenizers/src/decoders/wordpiece.rs@v0.23.2.
fn cleaned(piece: &str) -> String {
    super::super::cleaned(piece).replace(" do not", " don't")
}

/// The tokens of a GGUF file as `tokenizer.json` has them.
pub(super) fn texts_of_gguf(vocabulary: &Vocabulary<'_>) -> Result<Vec<String>, Error> {
    let of = |(id, token): (usize, &&[u8])| {
        let kind = vocabulary.types.as_ref().and_then(|types| types.get(id)).copied();
        let said = |_| Error::malformed("tokenizer.ggml.tokens", format!("token {id} is not UTF-8"));
        let token = std::str::from_utf8(token).map_err(said)?;
        let is_piece = matches!(kind.unwrap_or(kinds::NORMAL), kinds::NORMAL | kinds::BYTE);
        Ok(match token.strip_prefix(SPACE_MARK) {
            _ if !is_piece => token.to_owned(),
            Some(word) => word.to_owned(),
            None => format!("{PREFIX}{token}"),
        })
    };
    vocabulary.tokens.iter().enumerate().map(of).collect()
}

/// Stands before pieces that do not begin a word, in GGUF and in BERT's own files.
pub(super) const PREFIX: &str = "##";
/// Characters of a word at most, in these.
pub(super) const LONGEST: usize = 100;

/// How texts are cleaned and what stands around them, or what of it is not BERT's.
fn shape(file: &File) -> Result<(Cleaning, Frame), Problems> {
    let mut reasons = Problems::new();
    let cleaning = cleaning(file, &mut reasons);
    let mut lacks = |path: &str, what: &str| reasons.push((path.to_owned(), what.to_owned()));
    for token in &file.added {
        let flags = [
            ("lstrip", token.lstrip),
            ("rstrip", token.rstrip),
            ("single_word", token.single_word),
            ("normalized", token.normalized),
        ];
        for (flag, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            lacks(&format!("added_tokens.{flag}"), &format!("`{}` has it", token.content));
        }
    }
    let frame = frame::of(&file.post_processor);
    if frame.is_none() {
        lacks("post_processor", "a text that does not stand once in its template");
    }
    match (cleaning, frame) {
        (Some(cleaning), Some(frame)) if reasons.is_empty() => Ok((cleaning, frame)),
        _ => {
            reasons.truncate(8);
            Err(reasons)
        }
    }
}

/// How texts are cleaned, if they are cut into words as BERT does it.
pub(super) fn cleaning(file: &File, reasons: &mut Problems) -> Option<Cleaning> {
    let before = reasons.len();
    let mut lacks = |path: &str, what: &str| reasons.push((path.to_owned(), what.to_owned()));
    let normalizers = steps(&file.normalizer, "normalizers");
    let normalizer = match normalizers[..] {
        [only] if only["type"] == "BertNormalizer" => Some((only, false)),
        [first, only] if first["type"] == "Lowercase" && only["type"] == "BertNormalizer" => {
            Some((only, true))
        }
        _ => None,
    };
    if normalizer.is_none() {
        lacks("normalizer", "another one than `BertNormalizer`");
    }
    match steps(&file.pre_tokenizer, "pretokenizers")[..] {
        [only] if only["type"] == "BertPreTokenizer" => {}
        _ => lacks("pre_tokenizer", "another one than `BertPreTokenizer`"),
    }
    if file.decoder["type"] != "WordPiece" {
        lacks("decoder", "another one than `WordPiece`");
    }
    let (normalizer, lowers_first) = normalizer.filter(|_| reasons.len() == before)?;
    let flag = |name: &str| normalizer[name] == true;
    let lowercase = flag("lowercase");
    let strip_accents = normalizer["strip_accents"].as_bool().unwrap_or(lowercase);
    let (clean_text, chinese) = (flag("clean_text"), flag("handle_chinese_chars"));
    Some(Cleaning { lowers_first, clean_text, chinese, strip_accents, lowercase })
}

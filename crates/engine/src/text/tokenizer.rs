//! A tokenizer: text to tokens, tokens to text.

use std::borrow::Cow;

use super::built::{Reader, Writer};
use super::json::{Fast, File, PairFrame, WordPiece};
use super::options::{EncodeOptions, SpecialText};
use super::own::Own;
#[cfg(feature = "tokenizers")]
use super::reference::Reference;
use super::special::Ends;
use super::store::TokenType;
use super::{Error, Note, TokenStream, Vocabulary};

/// The implementation in use.
enum Inner {
    /// For GGUF: llama.cpp's tokens.
    Own(Box<Own>),
    /// For a `tokenizer.json` of a known shape.
    Fast(Box<Fast>),
    /// For a `tokenizer.json` as BERT has it.
    Bert(Box<WordPiece>),
    /// For any other `tokenizer.json`.
    #[cfg(feature = "tokenizers")]
    Reference(Box<Reference>),
}

/// The kinds of built forms.
const OWN: &[u8] = b"own";
const FAST: &[u8] = b"tokenizer.json";

/// A tokenizer with its vocabulary.
pub struct Tokenizer {
    inner: Inner,
    name: String,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    /// Tokens that end a generation, sorted.
    ends: Vec<u32>,
    notes: Vec<Note>,
    /// What stands around two texts; `None`: it is not known.
    pair: Option<PairFrame>,
}

impl Tokenizer {
    /// Creates the tokenizer that a GGUF file describes.
    ///
    /// It gives the same tokens as llama.cpp. That of a `bert` or `t5` model gives those of the `tokenizer.json` that the file was made
    /// of: llama.cpp has other classes of some characters. The latter needs the library `tokenizers`.
    ///
    /// # Errors
    /// [`Error::Malformed`] where lists disagree in length, an id is out of range, a merge names something that is not
    /// a token, a token is listed twice; [`Error::Unsupported`] for a model or pre-tokenizer that is not known.
    pub fn from_vocabulary(vocabulary: &Vocabulary<'_>) -> Result<Tokenizer, Error> {
        if vocabulary.model == "bert" {
            let bert = WordPiece::of_gguf(vocabulary)?;
            let (around, pair) = (bert.around().clone(), bert.pair());
            let roles = (vocabulary.bos, vocabulary.eos);
            return Ok(Tokenizer::bert(bert).with_roles(roles, Some(around), vec![]).with_pair(Some(pair)));
        }
        if vocabulary.model == "t5" {
            let config = vocabulary.to_tokenizer_config(None, 0)?.to_string();
            return Tokenizer::from_json(&vocabulary.to_tokenizer_json()?, Some(config.as_bytes()));
        }
        let tokenizer = Tokenizer::own(Own::new(vocabulary)?);
        let sep = vocabulary.sep.filter(|sep| (*sep as usize) < tokenizer.vocab_size());
        let pair = sep.zip(tokenizer.around()).map(|(sep, (before, after))| {
            // llama.cpp takes it for granted by this name.
            let adds = vocabulary.add_sep.unwrap_or(vocabulary.pre == Some("roberta-bpe"));
            let between = after.iter().copied().chain(adds.then_some(sep)).collect();
            PairFrame { before, between, after, first: None }
        });
        Ok(tokenizer.with_pair(pair))
    }

    fn own(own: Own) -> Tokenizer {
        Tokenizer {
            name: own.name.clone(),
            bos: own.roles.bos,
            eos: own.roles.eos,
            adds_bos: own.roles.add_bos,
            ends: own.ends.clone(),
            notes: vec![],
            pair: None,
            inner: Inner::Own(Box::new(own)),
        }
    }

    /// The tokenizer's tables as bytes, for [`Tokenizer::from_built`]. `None` if the library `tokenizers` has them.
    pub fn built(&self) -> Option<Vec<u8>> {
        let mut out = Writer::default();
        match &self.inner {
            Inner::Own(own) => {
                out.section(OWN);
                own.write(&mut out);
            }
            Inner::Fast(fast) => {
                out.section(FAST);
                let id = |id: Option<u32>| id.unwrap_or(u32::MAX);
                out.words(&[id(self.bos), id(self.eos), u32::from(self.adds_bos)].into_iter().collect());
                out.words(&self.ends.iter().copied().collect());
                for Note { file, field, why } in &self.notes {
                    for text in [file, field.as_str(), why.as_str()] {
                        out.section(text.as_bytes());
                    }
                }
                out.section(b"");
                fast.write(&mut out);
            }
            // Its tables are made faster than they are read.
            Inner::Bert(_) => return None,
            #[cfg(feature = "tokenizers")]
            Inner::Reference(_) => return None,
        }
        Some(out.finish())
    }

    /// True if `other` gives the same tokens for each text, and the same text for tokens. False if that is not known.
    pub fn is_like(&self, other: &Tokenizer) -> bool {
        let marks = |of: &Tokenizer| (of.bos, of.eos, of.adds_bos, of.ends.clone());
        if marks(self) != marks(other) {
            return false;
        }
        #[cfg(feature = "tokenizers")]
        if let (Inner::Reference(a), Inner::Reference(b)) = (&self.inner, &other.inner) {
            return a.is_like(b);
        }
        self.built().is_some_and(|built| other.built() == Some(built))
    }

    /// The tokenizer of bytes that [`Tokenizer::built`] returned, without working anything out again. `None` if another version wrote
    /// them, or if they contradict themselves. The caller checks that they are the same bytes: a changed letter in a token is not
    /// found here.
    pub fn from_built(bytes: Vec<u8>) -> Option<Tokenizer> {
        let mut from = Reader::new(bytes)?;
        let tokenizer = match from.section()?.bytes() {
            OWN => Tokenizer::own(Own::read(&mut from)?),
            FAST => Tokenizer::read_fast(&mut from)?,
            _ => return None,
        };
        from.is_at_end().then_some(tokenizer)
    }

    fn read_fast(from: &mut Reader) -> Option<Tokenizer> {
        let roles: Vec<u32> = from.words()?.iter().collect();
        let [bos, eos, adds_bos] = roles[..] else { return None };
        let [bos, eos] = [bos, eos].map(|id| Some(id).filter(|id| *id != u32::MAX));
        let ends: Vec<u32> = from.words()?.iter().collect();
        let mut notes = vec![];
        loop {
            let file = from.text()?;
            if file.is_empty() {
                break;
            }
            let file =
                ["tokenizer.json", "tokenizer_config.json"].into_iter().find(|known| *known == file)?;
            notes.push(Note { file, field: from.text()?, why: from.text()? });
        }
        let tokenizer = Tokenizer::fast(Fast::read(from)?);
        let is_whole = ends.is_sorted();
        is_whole.then_some(Tokenizer { bos, eos, adds_bos: adds_bos != 0, ends, notes, ..tokenizer })
    }

    pub(super) fn fast(fast: Fast) -> Tokenizer {
        Tokenizer::bare(fast.name(), Inner::Fast(Box::new(fast)))
    }

    pub(super) fn bert(bert: WordPiece) -> Tokenizer {
        Tokenizer::bare("wordpiece".to_owned(), Inner::Bert(Box::new(bert)))
    }

    #[cfg(feature = "tokenizers")]
    pub(super) fn reference(file: &File, _reasons: Vec<(String, String)>) -> Result<Tokenizer, Error> {
        let inner = Inner::Reference(Box::new(Reference::new(file)?));
        Ok(Tokenizer::bare(format!("tokenizers {}", file.kind()), inner))
    }

    #[cfg(not(feature = "tokenizers"))]
    pub(super) fn reference(_file: &File, parts: Vec<(String, String)>) -> Result<Tokenizer, Error> {
        Err(Error::NeedsLibrary { parts })
    }

    fn bare(name: String, inner: Inner) -> Tokenizer {
        let (bos, eos, ends, notes) = (None, None, vec![], vec![]);
        Tokenizer { inner, name, bos, eos, adds_bos: false, ends, notes, pair: None }
    }

    /// The same with what stands around two texts.
    pub(super) fn with_pair(self, pair: Option<PairFrame>) -> Tokenizer {
        Tokenizer { pair, ..self }
    }

    /// The same with the roles of its tokens; a file that names none has what stands `around` a text.
    pub(super) fn with_roles(
        self,
        named: (Option<u32>, Option<u32>),
        around: Option<(Vec<u32>, Vec<u32>)>,
        notes: Vec<Note>,
    ) -> Tokenizer {
        let (before, after) = around.unwrap_or_default();
        let bos = named.0.or(before.first().copied());
        let eos = named.1.or(after.last().copied());
        let ends = Ends::find(&|name| self.token_id(name), &[eos]).ids;
        let adds_bos = bos.is_some() && before.first().copied() == bos;
        Tokenizer { bos, eos, adds_bos, ends, notes, ..self }
    }

    /// The tokens that `add_special` puts before and after a text. `None` for a `tokenizer.json` that puts the text there twice, or
    /// not at all.
    pub fn around(&self) -> Option<(Vec<u32>, Vec<u32>)> {
        match &self.inner {
            Inner::Own(own) => Some(own.around()),
            Inner::Fast(fast) => Some(fast.around().clone()),
            Inner::Bert(bert) => Some(bert.around().clone()),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => reference.around().cloned(),
        }
    }

    /// The tokens of `text` with those that the model adds around it, `most` at most: of a text that is too long the last are left
    /// out. Returns how many those are. Names of special tokens in the text stand for these.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`], and if there is no room for anything beside what is added, or it is not known what is added.
    pub fn encode_within(&self, text: &str, most: usize) -> Result<(Vec<u32>, usize), Error> {
        let Some((mut tokens, after)) = self.around() else {
            let supported = "one text with tokens around it".to_owned();
            return Err(Error::Unsupported { what: "post-processor", found: self.name.clone(), supported });
        };
        let room = most.checked_sub(tokens.len() + after.len()).filter(|room| *room > 0);
        let Some(room) = room else {
            let added = tokens.len() + after.len();
            return Err(Error::NoRoom { most, added });
        };
        let own = self.encode(text, EncodeOptions { add_special: false, parse_special: true })?;
        let left_out = own.len().saturating_sub(room);
        tokens.extend_from_slice(&own[..own.len() - left_out]);
        tokens.extend_from_slice(&after);
        Ok((tokens, left_out))
    }

    /// The tokens of two texts with those that the model adds around them, `most` at most. Of texts that are too long the last are left
    /// out, of the longer one first, as the library `tokenizers` does it by `longest_first`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_within`], and if it is not known how two texts go together.
    pub fn encode_pair_within(&self, first: &str, second: &str, most: usize) -> Result<TextPair, Error> {
        let Some(PairFrame { before, between, after, first: typed }) = &self.pair else {
            let supported = "two texts with tokens around them".to_owned();
            return Err(Error::Unsupported { what: "post-processor", found: self.name.clone(), supported });
        };
        let added = before.len() + between.len() + after.len();
        let Some(room) = most.checked_sub(added).filter(|room| *room > 0) else {
            return Err(Error::NoRoom { most, added });
        };
        let encode = |text| self.encode(text, EncodeOptions { add_special: false, parse_special: true });
        let (one, two) = (encode(first)?, encode(second)?);
        let (kept_one, kept_two) = longest_first(one.len(), two.len(), room);
        let left_out = one.len() + two.len() - kept_one - kept_two;
        let mut tokens = Vec::with_capacity(added + kept_one + kept_two);
        tokens.extend_from_slice(before);
        tokens.extend_from_slice(&one[..kept_one]);
        let typed = typed.map(|of_between| tokens.len() + of_between);
        tokens.extend_from_slice(between);
        tokens.extend_from_slice(&two[..kept_two]);
        tokens.extend_from_slice(after);
        Ok(TextPair { first: typed.unwrap_or(tokens.len()), tokens, left_out })
    }

    /// The tokens of `text`.
    ///
    /// # Errors
    /// If the text is beyond what a `tokenizer.json` can be followed on: over 500,000 bytes without a word to cut.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, Error> {
        match &self.inner {
            Inner::Own(own) => Ok(own.encode(text, options)),
            Inner::Fast(fast) => Ok(fast.encode(text, options)),
            Inner::Bert(bert) => Ok(bert.encode(text, options)),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => reference.encode(text, options),
        }
    }

    /// The text of `tokens`; bytes that are no UTF-8 become U+FFFD.
    ///
    /// With the first token, the space that [`encode`](Self::encode) put before the text is taken away.
    ///
    /// # Errors
    /// If the library `tokenizers` fails.
    pub fn decode(&self, tokens: &[u32], special: SpecialText) -> Result<String, Error> {
        match &self.inner {
            Inner::Own(own) => Ok(own.decode(tokens, special)),
            Inner::Fast(fast) => Ok(fast.decode(tokens, special)),
            Inner::Bert(bert) => Ok(bert.decode(tokens, special)),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => reference.decode(tokens, special),
        }
    }

    /// The bytes that a token adds to a text: not always whole characters (see [`TokenStream`]), none for a token
    /// outside the vocabulary. For a `tokenizer.json` that needs the library, the text of the token alone.
    pub fn token_bytes(&self, token: u32, special: SpecialText) -> Cow<'_, [u8]> {
        match &self.inner {
            Inner::Own(own) => own.bytes(token, special).into(),
            Inner::Fast(fast) => fast.bytes(token, special).into(),
            Inner::Bert(bert) => bert.decode(&[token], special).into_bytes().into(),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => {
                reference.decode(&[token], special).unwrap_or_default().into_bytes().into()
            }
        }
    }

    /// The bytes of tokens, where they do not depend on what stands before.
    pub(crate) fn bytes(&self, token: u32, special: SpecialText) -> Option<&[u8]> {
        match &self.inner {
            Inner::Own(own) => Some(own.bytes(token, special)),
            Inner::Fast(fast) => Some(fast.bytes(token, special)),
            Inner::Bert(_) => None,
            #[cfg(feature = "tokenizers")]
            Inner::Reference(_) => None,
        }
    }

    /// A stream for the text of generated tokens. For GGUF, and for what needs no library, its pushes do not allocate.
    pub fn stream(&self, special: SpecialText) -> TokenStream<'_> {
        TokenStream::new(self, special)
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        match &self.inner {
            Inner::Own(own) => own.store().longest(),
            Inner::Fast(fast) => fast.store().longest(),
            Inner::Bert(_) => 0,
            #[cfg(feature = "tokenizers")]
            Inner::Reference(_) => 0,
        }
    }

    /// How the vocabulary spells a token: `Ġthe`, `▁the`, `<0x0A>`.
    pub fn token_spelling(&self, token: u32) -> Option<&str> {
        let text = match &self.inner {
            Inner::Own(own) => own.store().text(token),
            Inner::Fast(fast) => fast.store().text(token),
            Inner::Bert(bert) => bert.store().text(token),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => return reference.spelling(token),
        };
        text.and_then(|text| std::str::from_utf8(text).ok())
    }

    /// Whether the file lists the token as one that no text has.
    pub fn is_unused(&self, token: u32) -> bool {
        let kind = match &self.inner {
            Inner::Own(own) => own.store().kind(token),
            Inner::Fast(fast) => fast.store().kind(token),
            Inner::Bert(bert) => bert.store().kind(token),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(_) => None,
        };
        kind == Some(TokenType::Unused)
    }

    /// The token that is spelled so.
    pub fn token_id(&self, spelling: &str) -> Option<u32> {
        match &self.inner {
            Inner::Own(own) => own.store().id(spelling.as_bytes()),
            Inner::Fast(fast) => fast.store().id(spelling.as_bytes()),
            Inner::Bert(bert) => bert.store().id(spelling.as_bytes()),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => reference.id(spelling),
        }
    }

    /// Whether the model says that it is done: EOS, an end of turn, an end of message, and their like.
    pub fn is_end_of_generation(&self, token: u32) -> bool {
        self.ends.binary_search(&token).is_ok()
    }

    /// All tokens that [end a generation](Self::is_end_of_generation), in order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.ends
    }

    /// The token that opens a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether `add_special` puts [`bos`](Self::bos) before a text.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        match &self.inner {
            Inner::Own(own) => own.store().len(),
            Inner::Fast(fast) => fast.store().len(),
            Inner::Bert(bert) => bert.store().len(),
            #[cfg(feature = "tokenizers")]
            Inner::Reference(reference) => reference.len(),
        }
    }

    /// The algorithm and its variant: `spm`, `bpe smollm`, `tokenizers Unigram`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fields that are unknown, or that contradict others.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}

/// The tokens of two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPair {
    /// All of them.
    pub tokens: Vec<u32>,
    /// The number of the first ones that are of the first type; the others are of the second.
    pub first: usize,
    /// Tokens of the texts that were left out.
    pub left_out: usize,
}

/// How many tokens of two texts are kept where there is room for `room`.
///
/// Source: `truncate_encodings`, tokenizers/src/utils/truncation.rs@v0.23.2.
fn longest_first(one: usize, two: usize, room: usize) -> (usize, usize) {
    if one + two <= room {
        return (one, two);
    }
    let shorter = one.min(two);
    let (short, long) =
        if shorter > room / 2 { (room / 2, room / 2 + room % 2) } else { (shorter, room - shorter) };
    if one > two { (long, short) } else { (short, long) }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.vocab_size();
        f.debug_struct("Tokenizer")
            .field("name", &self.name)
            .field("vocab_size", &size)
            .finish_non_exhaustive()
    }
}

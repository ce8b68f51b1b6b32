//! A `tokenizer.json` that has been checked: all its parts fit each other, and every field has its verdict.

use hashbrown::{HashMap, HashSet};
use serde_json::Value;

use super::super::vocabulary::kinds;
use super::super::{Error, Note};
use super::config;
use super::fields::{Found, short};

/// The name of the file in messages.
pub(in super::super) const FILE: &str = "tokenizer.json";

/// A checked file.
pub(in super::super) struct File {
    /// Tokens of the model by text.
    pub(in super::super) ids: HashMap<String, u32>,
    pub(in super::super) model: Model,
    /// In the order in which they are added.
    pub(in super::super) added: Vec<Added>,
    /// Where each of them is, by text.
    places: HashMap<String, usize>,
    pub(in super::super) normalizer: Value,
    pub(in super::super) pre_tokenizer: Value,
    pub(in super::super) post_processor: Value,
    pub(in super::super) decoder: Value,
    /// Spaces before punctuation are taken out of decoded text.
    pub(in super::super) clean_up: bool,
    pub(in super::super) roles: Roles,
    pub(in super::super) notes: Vec<Note>,
}

pub(in super::super) enum Model {
    Bpe(Bpe),
    WordPiece { unk: String, prefix: String, longest: usize },
    WordLevel { unk: String },
    Unigram { pieces: Vec<(String, f64)>, unk: usize, byte_fallback: bool },
}

/// `model` of the type `BPE`.
#[expect(clippy::struct_excessive_bools, reason = "the fields of the file")]
pub(in super::super) struct Bpe {
    pub(in super::super) merges: Vec<(String, String)>,
    pub(in super::super) unk: Option<String>,
    pub(in super::super) prefix: String,
    pub(in super::super) suffix: String,
    pub(in super::super) fuse_unk: bool,
    pub(in super::super) byte_fallback: bool,
    pub(in super::super) ignore_merges: bool,
    /// Two merges are of the same pair; the later one counts.
    pub(in super::super) twice: bool,
}

/// One of `added_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the file")]
pub(in super::super) struct Added {
    pub(in super::super) id: u32,
    pub(in super::super) content: String,
    pub(in super::super) single_word: bool,
    pub(in super::super) lstrip: bool,
    pub(in super::super) rstrip: bool,
    pub(in super::super) normalized: bool,
    pub(in super::super) special: bool,
}

impl Added {
    /// One that is found wherever it stands.
    pub(super) fn plain(id: u32, content: &str, special: bool) -> Added {
        let content = content.to_owned();
        Added { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }
    }
}

/// Ids of the tokens that `tokenizer_config.json` gives a role.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Roles {
    pub(in super::super) bos: Option<u32>,
    pub(in super::super) eos: Option<u32>,
    pub(in super::super) pad: Option<u32>,
    pub(in super::super) unk: Option<u32>,
    pub(in super::super) sep: Option<u32>,
    pub(in super::super) cls: Option<u32>,
    pub(in super::super) mask: Option<u32>,
    /// `add_prefix_space` of tokenizer_config.json; only the conversion to GGUF uses it.
    pub(in super::super) add_prefix_space: Option<bool>,
}

/// The problems so far.
pub(in super::super) type Problems = Vec<(String, String)>;

impl File {
    /// Checks a file, and the `tokenizer_config.json` beside it.
    pub(in super::super) fn new(json: &[u8], config: Option<&[u8]>) -> Result<File, Error> {
        let mut file = parse(FILE, json)?;
        let config = config.map(|c| parse(config::FILE, c)).transpose()?.unwrap_or_default();
        let found = Found::of(&file);
        if !found.problems.is_empty() {
            return Err(Error::Refused { file: FILE, problems: found.problems });
        }
        let mut problems = Problems::new();
        let mut take = |key: &str| file.get_mut(key).map(Value::take).unwrap_or_default();
        let [mut model, added, normalizer, pre_tokenizer, post_processor, decoder] =
            ["model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"]
                .map(&mut take);
        let (ids, model) = read_model(&mut model, &mut problems);
        let mut checked = File {
            ids,
            model,
            added: vec![],
            places: HashMap::new(),
            normalizer,
            pre_tokenizer,
            post_processor,
            decoder,
            clean_up: false,
            roles: Roles::default(),
            notes: found.unknown.iter().map(|path| Note::unknown(FILE, path)).collect(),
        };
        checked.add(&added, &mut problems);
        checked.check_strips(&mut problems);
        checked.check_processor(&mut problems);
        checked.check_decoder(&mut problems);
        if !problems.is_empty() {
            return Err(Error::Refused { file: FILE, problems });
        }
        config::apply(&mut checked, &config)?;
        Ok(checked)
    }

    /// The model's name in the file.
    #[cfg(feature = "tokenizers")]
    pub(in super::super) fn kind(&self) -> &'static str {
        match &self.model {
            Model::Bpe(_) => "BPE",
            Model::WordPiece { .. } => "WordPiece",
            Model::WordLevel { .. } => "WordLevel",
            Model::Unigram { .. } => "Unigram",
        }
    }

    /// One more than the largest id.
    pub(in super::super) fn size(&self) -> usize {
        let pieces = match &self.model {
            Model::Unigram { pieces, .. } => pieces.len(),
            _ => self.ids.values().max().map_or(0, |id| *id as usize + 1),
        };
        let added = self.added.iter().map(|token| token.id as usize + 1).max();
        pieces.max(added.unwrap_or(0))
    }

    /// The id that a token has, if it is one.
    pub(in super::super) fn id(&self, text: &str) -> Option<u32> {
        let added = self.places.get(text).and_then(|at| self.added.get(*at)).map(|token| token.id);
        added.or_else(|| self.ids.get(text).copied())
    }

    /// The id that tokenizers gives the next token with a text of its own.
    ///
    /// Source: `AddedVocabulary::add_tokens`, tokenizers/src/tokenizer/added_vocabulary.rs@v0.23.2.
    pub(in super::super) fn next_id(&self) -> u32 {
        let size = match &self.model {
            Model::Unigram { pieces, .. } => pieces.len(),
            _ => self.ids.len(),
        };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        match self.added.iter().map(|token| token.id).max() {
            Some(last) if last >= size || size == 0 => last.saturating_add(1),
            _ => size,
        }
    }

    /// The text and the kind of each id.
    pub(in super::super) fn texts(&self) -> (Vec<&[u8]>, Vec<i32>) {
        let mut texts: Vec<&[u8]> = vec![b""; self.size()];
        let mut types = vec![kinds::NORMAL; texts.len()];
        let added = self.added.iter().map(|token| (&token.content, &token.id));
        for (text, id) in self.ids.iter().chain(added) {
            if let Some(slot) = texts.get_mut(*id as usize) {
                *slot = text.as_bytes();
            }
        }
        for token in self.added.iter().filter(|token| token.special) {
            if let Some(kind) = types.get_mut(token.id as usize) {
                *kind = kinds::CONTROL;
            }
        }
        (texts, types)
    }

    /// Added tokens that the model does not have: it makes none of them.
    pub(in super::super) fn outside(&self) -> HashSet<u32> {
        let outside = self.added.iter().filter(|token| !self.ids.contains_key(token.content.as_str()));
        outside.map(|token| token.id).collect()
    }

    /// The added token with a text.
    pub(in super::super) fn added_mut(&mut self, text: &str) -> Option<&mut Added> {
        let at = *self.places.get(text)?;
        self.added.get_mut(at)
    }

    /// Adds a token with a text of its own.
    pub(in super::super) fn push(&mut self, token: Added) {
        self.places.insert(token.content.clone(), self.added.len());
        self.added.push(token);
    }

    fn add(&mut self, added: &Value, problems: &mut Problems) {
        let mut next = self.next_id();
        for (i, token) in added.as_array().into_iter().flatten().enumerate() {
            let token = Added::read(token);
            let mut problem = |said: String| problems.push((format!("added_tokens[{i}]"), said));
            if token.content.is_empty() {
                problem("the token has no text".to_owned());
                continue;
            }
            if self.places.contains_key(&token.content) {
                problem(format!("`{}` is there twice", token.content));
                continue;
            }
            let id = self.ids.get(&token.content).copied().unwrap_or_else(|| {
                next = next.saturating_add(1);
                next - 1
            });
            if id != token.id {
                let said =
                    format!("`{}` has the id {}, and the library gives it {id}", token.content, token.id);
                problem(said);
            }
            self.push(token);
        }
        problems.truncate(20);
    }

    /// Spaces that one token takes in after it are gone where another begins and ends: tokenizers panics there.
    fn check_strips(&self, problems: &mut Problems) {
        let spaces = |token: &&Added| token.lstrip && token.content.chars().all(char::is_whitespace);
        if let Some(token) = self.added.iter().find(spaces).filter(|_| self.added.iter().any(|t| t.rstrip)) {
            let said = format!("{:?} is spaces, with `lstrip` beside tokens with `rstrip`", token.content);
            problems.push(("added_tokens".to_owned(), said));
        }
    }

    fn check_processor(&self, problems: &mut Problems) {
        let mut adding = 0;
        for step in steps(&self.post_processor, "processors") {
            adding += usize::from(step["type"] != "ByteLevel");
            if step["type"] != "TemplateProcessing" {
                continue;
            }
            let mut problem =
                |said: String| problems.push(("post_processor.special_tokens".to_owned(), said));
            let specials = &step["special_tokens"];
            for piece in ["single", "pair"].iter().filter_map(|key| step[*key].as_array()).flatten() {
                let name = piece["SpecialToken"]["id"].as_str();
                if let Some(name) = name.filter(|name| !specials[*name].is_object()) {
                    problem(format!("the template names `{name}`, which is not there"));
                }
            }
            for (name, token) in specials.as_object().into_iter().flatten() {
                let ids = token["ids"].as_array().filter(|ids| ids.iter().all(super::fields::is_id));
                let texts = token["tokens"].as_array().filter(|t| t.iter().all(Value::is_string));
                let same = ids.zip(texts).is_some_and(|(ids, texts)| ids.len() == texts.len());
                if !same || token["id"] != name.as_str() {
                    problem(format!("`{name}` has not its own name, and ids and as many tokens"));
                }
            }
        }
        let (before, after) = super::frame::of(&self.post_processor).unwrap_or_default();
        let size = self.size();
        if let Some(id) = before.iter().chain(&after).find(|id| **id as usize >= size) {
            problems.push(("post_processor".to_owned(), format!("no token has the id {id}")));
        }
        if adding > 1 {
            problems.push(("post_processor".to_owned(), "several steps that add tokens".to_owned()));
        }
    }

    fn check_decoder(&self, problems: &mut Problems) {
        let inner = self.decoder["type"] == "Sequence";
        if inner && steps(&self.decoder, "decoders").iter().any(|step| step["type"] == "BPEDecoder") {
            // It counts on at least one token, and steps before it may leave none.
            problems.push(("decoder".to_owned(), "`BPEDecoder` after other steps".to_owned()));
        }
    }
}

impl Added {
    /// A token whose fields were checked.
    pub(in super::super) fn read(token: &Value) -> Added {
        let flag = |name: &str| token[name] == true;
        Added {
            id: token["id"].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
            content: token["content"].as_str().unwrap_or_default().to_owned(),
            single_word: flag("single_word"),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            normalized: flag("normalized"),
            special: flag("special"),
        }
    }
}

/// Returns a component's steps, with nested sequences flattened; empty if there is no component.
pub(in super::super) fn steps<'a>(component: &'a Value, inner: &str) -> Vec<&'a Value> {
    match component[inner].as_array() {
        Some(list) if component["type"] == "Sequence" => list.iter().flat_map(|s| steps(s, inner)).collect(),
        _ if component.is_null() => vec![],
        _ => vec![component],
    }
}

fn parse(what: &'static str, json: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(json).map_err(|e| Error::malformed(what, e.to_string()))
}

fn read_model(model: &mut Value, problems: &mut Problems) -> (HashMap<String, u32>, Model) {
    let text = |key: &str| model[key].as_str().unwrap_or_default().to_owned();
    let read = match model["type"].as_str() {
        Some("WordPiece") => Model::WordPiece {
            unk: text("unk_token"),
            prefix: text("continuing_subword_prefix"),
            longest: model["max_input_chars_per_word"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or(0),
        },
        Some("WordLevel") => Model::WordLevel { unk: text("unk_token") },
        Some("Unigram") => {
            let pieces = read_pieces(&model["vocab"], problems);
            let ids = pieces.iter().zip(0u32..).map(|((text, _), id)| (text.clone(), id)).collect();
            let unk = model["unk_id"].as_u64().and_then(|id| usize::try_from(id).ok());
            let unk = unk.filter(|unk| *unk < pieces.len()).unwrap_or_else(|| {
                // Without it the library fails at the first character that no piece has.
                let said = format!("wanted an id below {}, found {}", pieces.len(), short(&model["unk_id"]));
                problems.push(("model.unk_id".to_owned(), said));
                0
            });
            return (ids, Model::Unigram { pieces, unk, byte_fallback: model["byte_fallback"] == true });
        }
        _ => {
            let flag = |key: &str| model[key] == true;
            Model::Bpe(Bpe {
                merges: read_merges(&model["merges"], problems),
                unk: model["unk_token"].as_str().map(str::to_owned),
                prefix: text("continuing_subword_prefix"),
                suffix: text("end_of_word_suffix"),
                fuse_unk: flag("fuse_unk"),
                byte_fallback: flag("byte_fallback"),
                ignore_merges: flag("ignore_merges"),
                twice: false,
            })
        }
    };
    let ids = read_vocab(model["vocab"].take(), problems);
    let mut read = read;
    match &mut read {
        Model::Bpe(bpe) => bpe.check(&ids, problems),
        Model::WordPiece { unk, .. } | Model::WordLevel { unk } if !ids.contains_key(unk.as_str()) => {
            problems.push(("model.unk_token".to_owned(), format!("`{unk}` is no token of the model")));
        }
        _ => {}
    }
    (ids, read)
}

/// Ids may have gaps, but not such that a table of tokens is mostly gaps.
fn read_vocab(vocab: Value, problems: &mut Problems) -> HashMap<String, u32> {
    let Value::Object(vocab) = vocab else { return HashMap::new() };
    let limit = vocab.len().saturating_mul(2).saturating_add(1 << 16);
    let mut ids = HashMap::with_capacity(vocab.len());
    let mut taken = vec![false; limit];
    for (text, id) in vocab {
        let slot = id.as_u64().and_then(|id| usize::try_from(id).ok());
        match slot.and_then(|id| taken.get_mut(id).map(|taken| (id, taken))) {
            Some((id, taken @ false)) => {
                *taken = true;
                ids.insert(text, u32::try_from(id).unwrap_or(u32::MAX));
            }
            Some((id, _)) => {
                problems
                    .push(("model.vocab".to_owned(), format!("`{text}` and another token have the id {id}")));
            }
            None => {
                let said = format!("`{text}` has the id {id}, wanted one below {limit}");
                problems.push(("model.vocab".to_owned(), said));
            }
        }
        if problems.len() >= 20 {
            break;
        }
    }
    ids
}

fn read_pieces(vocab: &Value, problems: &mut Problems) -> Vec<(String, f64)> {
    let mut pieces = Vec::new();
    for (i, piece) in vocab.as_array().into_iter().flatten().enumerate() {
        match piece.as_array().map(Vec::as_slice) {
            // An empty piece would be found again and again.
            Some([Value::String(text), score]) if !text.is_empty() && score.is_number() => {
                pieces.push((text.clone(), score.as_f64().unwrap_or(0.0)));
            }
            _ => {
                problems.push((format!("model.vocab[{i}]"), "wanted a text and its score".to_owned()));
                break;
            }
        }
    }
    pieces
}

/// Files have merges as `left right`, or as pairs.
fn read_merges(merges: &Value, problems: &mut Problems) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let list = merges.as_array().map_or(&[][..], Vec::as_slice);
    let strings = list.first().is_some_and(Value::is_string);
    for (i, merge) in list.iter().enumerate() {
        let pair = match merge {
            Value::String(text) if strings && text.starts_with("#version") => continue,
            Value::String(text) if strings => text.split_once(' ').filter(|(_, right)| !right.contains(' ')),
            Value::Array(pair) if !strings => match &pair[..] {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        };
        let Some((left, right)) = pair else {
            problems.push((format!("model.merges[{i}]"), "wanted a pair of tokens".to_owned()));
            break;
        };
        pairs.push((left.to_owned(), right.to_owned()));
    }
    pairs
}

impl Bpe {
    fn check(&mut self, ids: &HashMap<String, u32>, problems: &mut Problems) {
        let mut joined = String::new();
        let mut pairs = hashbrown::HashSet::with_capacity(self.merges.len());
        for (i, (left, right)) in self.merges.iter().enumerate() {
            let rest = right.get(self.prefix.len()..).unwrap_or_default();
            joined.clear();
            joined.push_str(left);
            joined.push_str(rest);
            let missing = [left.as_str(), right, &joined].into_iter().find(|text| !ids.contains_key(*text));
            if let Some(text) = missing {
                let said = format!("`{left}` and `{right}` need `{text}`, which is no token");
                problems.push((format!("model.merges[{i}]"), said));
            } else if right.get(self.prefix.len()..).is_none() {
                problems
                    .push((format!("model.merges[{i}]"), format!("`{right}` is shorter than the prefix")));
            }
            if problems.len() >= 20 {
                return;
            }
            self.twice |= !pairs.insert((ids.get(left.as_str()), ids.get(right.as_str())));
        }
        let unreached = || self.has_all_bytes(ids);
        if let Some(unk) = self.unk.as_ref().filter(|unk| !ids.contains_key(unk.as_str()) && !unreached()) {
            problems.push(("model.unk_token".to_owned(), format!("`{unk}` is no token of the model")));
        }
    }

    /// Whether every byte has a token, as GPT-2 spells bytes or as SentencePiece does: no character is unknown then.
    pub(in super::super) fn has_all_bytes(&self, ids: &HashMap<String, u32>) -> bool {
        self.byte_fallback && (0..=255u8).all(|byte| ids.contains_key(format!("<0x{byte:02X}>").as_str()))
            || has_byte_letters(ids)
    }
}

/// Whether each of the 256 characters that stand for bytes is a token.
pub(in super::super) fn has_byte_letters(ids: &HashMap<String, u32>) -> bool {
    let table = super::super::store::ByteTable::new();
    (0..=255u8).all(|byte| ids.contains_key(&*table.char(byte).encode_utf8(&mut [0; 4])))
}

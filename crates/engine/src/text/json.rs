//! `tokenizer.json` of Hugging Face's tokenizers library: read, and written from a [`Vocabulary`].
//!
//! Every field has a verdict ([`fields`], [`config`]). A file in a shape of known models is read by our own BPE
//! ([`fast`]) or WordPiece ([`wordpiece`]), which start fast and are proven equal to the library; any other file is read by the library itself
//! (`reference`, behind the feature `tokenizers`). Features that cannot be read exactly are rejected by name.
#![cfg_attr(
    not(feature = "tokenizers"),
    allow(dead_code, reason = "the whole file is checked; some of it only the library uses")
)]

mod added;
mod config;
mod fast;
mod fields;
mod file;
mod frame;
pub(super) mod patterns;
mod spaces;
mod to_gguf;
mod wordpiece;
mod write;

use serde_json::Value;

use super::{Error, Tokenizer, TokenizerLoss, Vocabulary, VocabularyBuf};

pub(super) use fast::Fast;
pub(super) use file::File;
pub(super) use file::steps;
#[cfg(feature = "tokenizers")]
pub(super) use file::{Added, FILE, Model};
pub(super) use frame::PairFrame;
#[cfg(feature = "tokenizers")]
pub(super) use frame::of as frame_of;
pub(super) use wordpiece::WordPiece;

/// The regex of `Split` in Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regex of `Split` in Qwen 2.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regexes of `Split`, and what GGUF calls them.
const SPLITS: &[(&str, &str)] = &[(LLAMA3, "llama-bpe"), (QWEN2, "qwen2")];

impl Tokenizer {
    /// Creates the tokenizer of a `tokenizer.json`; `config` is the `tokenizer_config.json` beside it.
    ///
    /// It gives the same tokens as the library `tokenizers`.
    ///
    /// # Errors
    /// [`Error::Malformed`] if one of them is not JSON; [`Error::Refused`] with every field that is wrong or not
    /// supported.
    pub fn from_json(json: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, Error> {
        Tokenizer::of_file(File::new(json, config)?)
    }

    /// The same, with texts that are made lower case before anything else is done with them, as sentence-transformers has it
    /// (`do_lower_case`).
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`].
    pub fn from_json_in_lower_case(json: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, Error> {
        let mut file = File::new(json, config)?;
        let mut all: Vec<Value> = steps(&file.normalizer, "normalizers").into_iter().cloned().collect();
        if all.iter().all(|step| step["type"] != "Lowercase") {
            all.insert(0, serde_json::json!({ "type": "Lowercase" }));
            file.normalizer = serde_json::json!({ "type": "Sequence", "normalizers": all });
        }
        Tokenizer::of_file(file)
    }

    fn of_file(mut file: File) -> Result<Tokenizer, Error> {
        let notes = std::mem::take(&mut file.notes);
        let tokenizer = match Fast::new(&file)? {
            Ok(fast) => Tokenizer::fast(fast),
            Err(reasons) => match WordPiece::new(&file)? {
                Ok(bert) => Tokenizer::bert(bert),
                Err(of_bert) if of_bert.is_empty() => Tokenizer::reference(&file, reasons)?,
                Err(reasons) => Tokenizer::reference(&file, reasons)?,
            },
        };
        let roles = (file.roles.bos, file.roles.eos);
        let tokenizer = tokenizer.with_roles(roles, frame::of(&file.post_processor), notes);
        Ok(tokenizer.with_pair(frame::of_pair(&file.post_processor)))
    }
}

impl VocabularyBuf {
    /// Reads a `tokenizer.json` as GGUF's vocabulary, with the losses that it cannot express; `config` is the
    /// `tokenizer_config.json` beside it, which names the tokens with roles.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`], and [`Error::Refused`] for fields that GGUF cannot express.
    pub fn from_json(
        json: &[u8],
        config: Option<&[u8]>,
    ) -> Result<(VocabularyBuf, Vec<TokenizerLoss>), Error> {
        File::new(json, config)?.to_vocabulary()
    }

    /// The id of a token.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.tokens.iter().position(|t| t == text).and_then(|at| u32::try_from(at).ok())
    }

    /// The tokens with a role, as a `tokenizer_config.json` names them; `first` opens a text where it names none.
    pub(super) fn name_roles(&mut self, config: &Value, first: Option<&str>) {
        let named = |key: &str| config[key].as_str().or_else(|| config[key]["content"].as_str());
        let id = |text: Option<&str>| text.and_then(|text| self.id(text));
        let bos = id(named("bos_token").or(first));
        let (eos, pad, unk) = (id(named("eos_token")), id(named("pad_token")), id(named("unk_token")));
        (self.bos, self.eos, self.pad) = (bos.or(self.bos), eos.or(self.eos), pad.or(self.pad));
        if self.unk.is_none() {
            self.unk = unk.filter(|_| self.model == "llama");
        }
    }
}

fn unsupported(what: &'static str, found: &str, supported: &str) -> Error {
    Error::Unsupported { what, found: found.to_owned(), supported: supported.to_owned() }
}

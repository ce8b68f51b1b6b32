//! Tokenizers that none of our shapes covers, run by the library that their files are written for.
//!
//! The file was checked before: input that makes the library panic or loop is rejected there. Its parts are handed over
//! one by one, because its own reader panics on some files.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::models::{bpe, unigram, wordlevel, wordpiece};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper,
    PostProcessorWrapper, PreTokenizerWrapper, Tokenizer,
};

use super::cleaned;
use super::json::patterns::{Pace, STEPS, pace};
use super::json::{Added, FILE, File, Model, frame_of, steps};
use super::precompiled;
use super::{EncodeOptions, Error, SpecialText};

/// A tokenizer of the library `tokenizers`.
pub(super) struct Reference {
    /// Whether special tokens are text is a setting of it.
    tokenizer: Mutex<Tokenizer>,
    spellings: Vec<String>,
    pace: Pace,
    clean_up: bool,
    /// Ids before and after a text; `None` if the text does not stand once.
    around: Option<(Vec<u32>, Vec<u32>)>,
}

impl Reference {
    /// True if `other` was made of the same tokenizer.json.
    pub(super) fn is_like(&self, other: &Reference) -> bool {
        let text = |of: &Reference| {
            let tokenizer = of.tokenizer.lock().unwrap_or_else(PoisonError::into_inner);
            tokenizer.to_string(false).ok()
        };
        self.clean_up == other.clean_up && text(self).is_some_and(|own| text(other) == Some(own))
    }

    pub(super) fn new(file: &File) -> Result<Reference, Error> {
        let normalizers = steps(&file.normalizer, "normalizers");
        let tables = normalizers.iter().filter(|step| step["type"] == "Precompiled");
        let problems = tables.filter_map(|step| precompiled::check(step).err());
        let problems: Vec<(String, String)> =
            problems.map(|problem| ("normalizer.precompiled_charsmap".to_owned(), problem)).collect();
        if !problems.is_empty() {
            return Err(Error::Refused { file: FILE, problems });
        }
        let tokenizer = guarded(|| build(file))?;
        for token in &file.added {
            let id = tokenizer.token_to_id(&token.content);
            if id != Some(token.id) {
                let problem =
                    format!("`{}` has the id {}, and the library gives {id:?}", token.content, token.id);
                return Err(Error::malformed("added_tokens", problem));
            }
        }
        let problems = guarded(|| same_once_normalized(file, &tokenizer))?;
        if !problems.is_empty() {
            return Err(Error::Refused { file: FILE, problems });
        }
        let mut spellings = vec![String::new(); file.size()];
        let mut spell = |id: u32, text: &str| {
            if let Some(slot) = spellings.get_mut(id as usize) {
                text.clone_into(slot);
            }
        };
        if let Model::Unigram { pieces, .. } = &file.model {
            pieces.iter().zip(0..).for_each(|((text, _), id)| spell(id, text));
        }
        file.ids.iter().for_each(|(text, id)| spell(*id, text));
        file.added.iter().for_each(|token| spell(token.id, &token.content));
        let cutters = steps(&file.pre_tokenizer, "pretokenizers");
        let of = |step: &&Value| match step["type"].as_str() {
            Some("ByteLevel") if step["use_regex"] != false => Pace::Spaces,
            _ => pace(&step["pattern"]),
        };
        let pace = normalizers.iter().chain(&cutters).map(of).max().unwrap_or_default();
        let around = frame_of(&file.post_processor);
        Ok(Reference { tokenizer: Mutex::new(tokenizer), spellings, pace, clean_up: file.clean_up, around })
    }

    /// Ids before and after a text.
    pub(super) fn around(&self) -> Option<&(Vec<u32>, Vec<u32>)> {
        self.around.as_ref()
    }

    pub(super) fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, Error> {
        let run = match self.pace {
            Pace::Whole => 0,
            Pace::Spaces => longest_run(text, char::is_whitespace),
            Pace::Steps => text.len(),
        };
        if run > STEPS {
            let problem = format!("{run} bytes without a word to cut, wanted at most {STEPS}");
            return Err(Error::malformed("text", problem));
        }
        let mut tokenizer = self.tokenizer.lock().unwrap_or_else(PoisonError::into_inner);
        tokenizer.set_encode_special_tokens(!options.parse_special);
        let encoding = guarded(|| tokenizer.encode_fast(text, options.add_special))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, tokens: &[u32], special: SpecialText) -> Result<String, Error> {
        if tokens.is_empty() {
            return Ok(String::new());
        }
        let tokenizer = self.tokenizer.lock().unwrap_or_else(PoisonError::into_inner);
        let text = guarded(|| tokenizer.decode(tokens, special == SpecialText::Hidden))?;
        Ok(if self.clean_up { cleaned(&text) } else { text })
    }

    /// How the vocabulary spells a token.
    pub(super) fn spelling(&self, token: u32) -> Option<&str> {
        self.spellings.get(token as usize).map(String::as_str)
    }

    pub(super) fn id(&self, spelling: &str) -> Option<u32> {
        let tokenizer = self.tokenizer.lock().unwrap_or_else(PoisonError::into_inner);
        tokenizer.token_to_id(spelling)
    }

    pub(super) fn len(&self) -> usize {
        self.spellings.len()
    }
}

/// Runs the library, whose errors are of any type, and which may panic: it has 26,000 lines that read untrusted input.
/// Input known to make it panic is rejected before.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| Error::malformed(FILE, e.to_string())),
        Err(_) => Err(Error::malformed(FILE, "the library `tokenizers` panics")),
    }
}

fn build(file: &File) -> tokenizers::Result<Tokenizer> {
    let ids = || file.ids.iter().map(|(text, id)| (text.clone(), *id)).collect::<bpe::Vocab>();
    let model: ModelWrapper = match &file.model {
        Model::Bpe(model) => {
            let mut builder = bpe::BPE::builder()
                .vocab_and_merges(ids(), model.merges.clone())
                // It would keep words for each thread for ever.
                .cache_capacity(0)
                .fuse_unk(model.fuse_unk)
                .byte_fallback(model.byte_fallback)
                .ignore_merges(model.ignore_merges);
            if let Some(unk) = &model.unk {
                builder = builder.unk_token(unk.clone());
            }
            if !model.prefix.is_empty() {
                builder = builder.continuing_subword_prefix(model.prefix.clone());
            }
            if !model.suffix.is_empty() {
                builder = builder.end_of_word_suffix(model.suffix.clone());
            }
            builder.build()?.into()
        }
        Model::WordPiece { unk, prefix, longest } => wordpiece::WordPiece::builder()
            .vocab(ids())
            .unk_token(unk.clone())
            .continuing_subword_prefix(prefix.clone())
            .max_input_chars_per_word(*longest)
            .build()?
            .into(),
        Model::WordLevel { unk } => {
            wordlevel::WordLevel::builder().vocab(ids()).unk_token(unk.clone()).build()?.into()
        }
        Model::Unigram { pieces, unk, byte_fallback } => {
            unigram::Unigram::from(pieces.clone(), Some(*unk), *byte_fallback)?.into()
        }
    };
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_normalizer(component::<NormalizerWrapper>(&file.normalizer)?)?;
    tokenizer.with_pre_tokenizer(component::<PreTokenizerWrapper>(&file.pre_tokenizer)?);
    tokenizer.with_post_processor(component::<PostProcessorWrapper>(&file.post_processor)?);
    tokenizer.with_decoder(component::<DecoderWrapper>(&file.decoder)?);
    tokenizer.add_tokens(file.added.iter().map(|token| AddedToken {
        content: token.content.clone(),
        single_word: token.single_word,
        lstrip: token.lstrip,
        rstrip: token.rstrip,
        normalized: token.normalized,
        special: token.special,
    }))?;
    Ok(tokenizer)
}

/// Finds added tokens that the normalizer makes equal. The library matches one of them, and the order of a hash table
/// decides which, anew in each process (`refresh_added_tokens`, tokenizers/src/tokenizer/added_vocabulary.rs@v0.23.2).
fn same_once_normalized(file: &File, tokenizer: &Tokenizer) -> tokenizers::Result<Vec<(String, String)>> {
    let Some(normalizer) = tokenizer.get_normalizer() else { return Ok(vec![]) };
    let (mut first, mut problems) = (HashMap::new(), vec![]);
    for (i, token) in file.added.iter().enumerate().filter(|(_, token)| token.normalized) {
        let mut text = NormalizedString::from(token.content.as_str());
        normalizer.normalize(&mut text)?;
        let other: &Added = first.entry(text.get().to_owned()).or_insert(token);
        if other.id != token.id {
            let said = format!(
                "the normalizer makes `{}` and `{}` the same, and which is found is left to chance",
                other.content, token.content
            );
            problems.push((format!("added_tokens[{i}].content"), said));
        }
    }
    Ok(problems)
}

fn component<T: DeserializeOwned>(value: &Value) -> tokenizers::Result<Option<T>> {
    if value.is_null() { Ok(None) } else { Ok(Some(T::deserialize(value)?)) }
}

/// Bytes of the longest run of characters that `is`.
fn longest_run(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.split(|c| !is(c)).map(str::len).max().unwrap_or(0)
}

//! A file's description of its tokenizer, not yet checked.

/// A tokenizer as GGUF metadata holds it (`tokenizer.ggml.*`), borrowed and unchecked.
///
/// Source: gguf.md@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>, section "Tokenizer", and
/// `llama_vocab::impl::load` in src/llama-vocab.cpp there, which also gives each default below.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary<'a> {
    /// `model`: `llama` (SentencePiece, merges by score), `gpt2` (byte-level BPE) or `gemma4`
    /// (BPE over characters, with byte fallback).
    pub model: &'a str,
    /// `pre`: how a `gpt2` model cuts text before it merges. Missing means `default`.
    pub pre: Option<&'a str>,
    /// `tokens`: the text of each token, indexed by its id.
    pub tokens: Vec<&'a [u8]>,
    /// `scores`: one per token; a `llama` model merges the highest first.
    pub scores: Option<Vec<f32>>,
    /// `token_type`: one per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Option<Vec<i32>>,
    /// `merges`: `left right`, best first.
    pub merges: Vec<&'a [u8]>,
    /// `bos_token_id`: opens a sequence. A `llama` model without it has 1.
    pub bos: Option<u32>,
    /// `eos_token_id`: ends a sequence. A `llama` model without it has 2.
    pub eos: Option<u32>,
    /// `eot_token_id`: ends a turn. Without it, it is looked for by name.
    pub eot: Option<u32>,
    /// `eom_token_id`: ends a message. Without it, it is looked for by name.
    pub eom: Option<u32>,
    /// `unknown_token_id`: stands for what has no token. A `llama` model without it has 0.
    pub unk: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `add_bos_token`: whether a text opens with [`bos`](Self::bos). Missing: as the model's kind does.
    pub add_bos: Option<bool>,
    /// `add_eos_token`: whether a text ends with [`eos`](Self::eos). Missing: no.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`: whether a `llama` model puts a space before a text. Missing: yes.
    pub add_space_prefix: Option<bool>,
}

/// An owned vocabulary, read from a file of another kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VocabularyBuf {
    /// As [`Vocabulary::model`].
    pub model: String,
    /// As [`Vocabulary::pre`].
    pub pre: Option<String>,
    /// As [`Vocabulary::tokens`].
    pub tokens: Vec<String>,
    /// As [`Vocabulary::scores`].
    pub scores: Option<Vec<f32>>,
    /// As [`Vocabulary::types`].
    pub types: Option<Vec<i32>>,
    /// As [`Vocabulary::merges`].
    pub merges: Vec<String>,
    /// As [`Vocabulary::bos`].
    pub bos: Option<u32>,
    /// As [`Vocabulary::eos`].
    pub eos: Option<u32>,
    /// As [`Vocabulary::unk`].
    pub unk: Option<u32>,
    /// As [`Vocabulary::pad`].
    pub pad: Option<u32>,
    /// As [`Vocabulary::add_bos`].
    pub add_bos: Option<bool>,
    /// As [`Vocabulary::add_eos`].
    pub add_eos: Option<bool>,
    /// As [`Vocabulary::add_space_prefix`].
    pub add_space_prefix: Option<bool>,
}

impl VocabularyBuf {
    /// Borrows it as a [`Vocabulary`].
    pub fn borrow(&self) -> Vocabulary<'_> {
        Vocabulary {
            model: &self.model,
            pre: self.pre.as_deref(),
            tokens: self.tokens.iter().map(String::as_bytes).collect(),
            scores: self.scores.clone(),
            types: self.types.clone(),
            merges: self.merges.iter().map(String::as_bytes).collect(),
            bos: self.bos,
            eos: self.eos,
            eot: None,
            eom: None,
            unk: self.unk,
            pad: self.pad,
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            add_space_prefix: self.add_space_prefix,
        }
    }
}

/// Values of `tokenizer.ggml.token_type`.
pub(super) mod kinds {
    pub(crate) const NORMAL: i32 = 1;
    pub(crate) const UNKNOWN: i32 = 2;
    pub(crate) const CONTROL: i32 = 3;
    pub(crate) const USER_DEFINED: i32 = 4;
    pub(crate) const UNUSED: i32 = 5;
    pub(crate) const BYTE: i32 = 6;
}

//! A file's description of its tokenizer, not yet checked.

/// A tokenizer as GGUF metadata holds it (`tokenizer.ggml.*`), borrowed and unchecked.
///
/// Source: gguf.md@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>, section "Tokenizer", and
/// `llama_vocab::impl::load` in src/llama-vocab.cpp there, which also gives each default below.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary<'a> {
    /// `model`: `llama` (SentencePiece, merges by score), `gpt2` (byte-level BPE), `gemma4`
    /// (BPE over characters, with byte fallback), `bert` (the longest pieces of words) or `t5` (the best pieces by scores).
    pub model: &'a str,
    /// `pre`: how a `gpt2` model cuts text before it merges. Missing means `default`.
    pub pre: Option<&'a str>,
    /// `tokens`: the text of each token, indexed by its id.
    pub tokens: Vec<&'a [u8]>,
    /// `scores`: one per token; a `llama` model merges the highest first, a `t5` model takes those of the highest sum.
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
    /// `seperator_token_id`, spelled so: ends a text of a `bert` model. Without it, 102.
    pub sep: Option<u32>,
    /// `cls_token_id`.
    pub cls: Option<u32>,
    /// `mask_token_id`.
    pub mask: Option<u32>,
    /// `unknown_token_id`: stands for what has no token. A `llama` model without it has 0.
    pub unk: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `add_bos_token`: whether a text opens with [`bos`](Self::bos). Missing: as the model's kind does.
    pub add_bos: Option<bool>,
    /// `add_eos_token`: whether a text ends with [`eos`](Self::eos). Missing: no.
    pub add_eos: Option<bool>,
    /// `add_sep_token`: whether two texts have two tokens between them, and not one. Missing: no.
    pub add_sep: Option<bool>,
    /// `add_space_prefix`: whether a space is put before a text. Missing: of a `llama` model yes, of a `t5` model no.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`: whether a `t5` model makes one space of several, and none of those around a text. Missing: no.
    pub remove_extra_whitespaces: Option<bool>,
    /// `precompiled_charsmap`: what a `t5` model replaces before all else, as SentencePiece has it.
    pub charsmap: Option<Vec<u8>>,
    /// `normalizer.lowercase`: whether a `bert` model makes a text lower case. Missing: yes.
    pub lowercase: Option<bool>,
    /// `normalizer.strip_accents`: whether it takes accents away. Missing: if it makes texts lower case.
    pub strip_accents: Option<bool>,
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
    /// As [`Vocabulary::sep`].
    pub sep: Option<u32>,
    /// As [`Vocabulary::cls`].
    pub cls: Option<u32>,
    /// As [`Vocabulary::mask`].
    pub mask: Option<u32>,
    /// As [`Vocabulary::unk`].
    pub unk: Option<u32>,
    /// As [`Vocabulary::pad`].
    pub pad: Option<u32>,
    /// As [`Vocabulary::add_bos`].
    pub add_bos: Option<bool>,
    /// As [`Vocabulary::add_eos`].
    pub add_eos: Option<bool>,
    /// As [`Vocabulary::add_sep`].
    pub add_sep: Option<bool>,
    /// As [`Vocabulary::add_space_prefix`].
    pub add_space_prefix: Option<bool>,
    /// As [`Vocabulary::remove_extra_whitespaces`].
    pub remove_extra_whitespaces: Option<bool>,
    /// As [`Vocabulary::charsmap`].
    pub charsmap: Option<Vec<u8>>,
    /// As [`Vocabulary::lowercase`].
    pub lowercase: Option<bool>,
    /// As [`Vocabulary::strip_accents`].
    pub strip_accents: Option<bool>,
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
            sep: self.sep,
            cls: self.cls,
            mask: self.mask,
            unk: self.unk,
            pad: self.pad,
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            add_sep: self.add_sep,
            add_space_prefix: self.add_space_prefix,
            remove_extra_whitespaces: self.remove_extra_whitespaces,
            charsmap: self.charsmap.clone(),
            lowercase: self.lowercase,
            strip_accents: self.strip_accents,
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

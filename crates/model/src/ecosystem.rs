//! The ecosystems that write checkpoints.

use std::fmt;

/// An ecosystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialectName {
    /// llama.cpp's GGUF.
    Gguf,
    /// Hugging Face transformers.
    Hf,
    /// CTranslate2.
    Ctranslate2,
    /// OpenAI's own files: PyTorch's, and those of whisper.cpp.
    Openai,
}

impl fmt::Display for DialectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DialectName::Gguf => "gguf",
            DialectName::Hf => "hf",
            DialectName::Ctranslate2 => "ctranslate2",
            DialectName::Openai => "openai",
        })
    }
}

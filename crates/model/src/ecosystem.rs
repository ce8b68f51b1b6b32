//! The ecosystems that write checkpoints.

use std::fmt;

/// An ecosystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectName {
    /// llama.cpp's GGUF.
    Gguf,
    /// Hugging Face transformers.
    Hf,
}

impl fmt::Display for DialectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DialectName::Gguf => "gguf",
            DialectName::Hf => "hf",
        })
    }
}

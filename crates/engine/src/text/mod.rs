//! Text to tokens and back: tokenizer, streamed text, chat template.
//!
//! [`Tokenizer`] is made from a plain [`Vocabulary`] (what GGUF metadata holds) or from a
//! `tokenizer.json`; nothing here knows about checkpoints. [`TextStream`] turns generated tokens into
//! text that is always whole UTF-8, and [`ChatTemplate`] writes a conversation as the model's prompt.

mod bpe;
mod chat;
mod error;
mod json;
mod limits;
mod pretokenize;
mod sentencepiece;
mod special;
mod spm;
mod store;
mod stream;
mod tojson;
mod tokenizer;
mod vocabulary;

pub use chat::{ChatTemplate, Message};
pub use error::Error;
pub use stream::TextStream;
pub use tokenizer::{EncodeOptions, SpecialText, Tokenizer};
pub use vocabulary::{Vocabulary, VocabularyBuf};

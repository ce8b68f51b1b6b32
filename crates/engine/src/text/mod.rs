//! Text to tokens and back: tokenizer, streamed text, chat template.
//!
//! [`Tokenizer`] is made from a plain [`Vocabulary`] (what GGUF metadata holds) or from a
//! `tokenizer.json`; nothing here knows about checkpoints. [`TokenStream`] turns generated tokens into
//! text that is always whole UTF-8, and [`ChatTemplate`] writes a conversation as the model's prompt.

mod bert;
mod bpe;
mod built;
mod calls;
mod carried;
mod chat;
mod cleanup;
mod error;
mod indent;
mod json;
mod limits;
mod options;
mod own;
#[cfg(feature = "tokenizers")]
mod precompiled;
mod pretokenize;
mod ranks;
#[cfg(feature = "tokenizers")]
mod reference;
mod reply;
mod sentencepiece;
mod special;
mod speech;
mod spm;
mod stop;
mod store;
mod stream;
mod table;
mod tojson;
mod tokenizer;
mod vocabulary;

use cleanup::cleaned;

pub use built::BUILT;
pub use calls::{Call, CallSyntax};
#[cfg(feature = "grammar")]
pub use calls::{CallGrammar, ToolChoice};
pub use carried::{
    chat_template, hf_template, hf_vocabulary, open_tokenizer, tokenizer, tokenizer_files,
    tokenizer_in_lower_case, vocabulary,
};
pub use chat::{CallForm, ChatTemplate, Conversation, Message};
pub use error::{Error, Note, TokenizerLoss};
pub use options::{EncodeOptions, SpecialText};
pub use reply::{Part, ReplyReader, ReplySyntax};
pub use speech::{LANGUAGES, bytes_of_text, ctranslate2_tokens, speech_tokens, speech_vocabulary};
pub use stop::StopStrings;
pub use stream::{TextStream, TokenStream};
pub use tokenizer::{TextPair, Tokenizer};
pub use vocabulary::{Vocabulary, VocabularyBuf};

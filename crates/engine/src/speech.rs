//! From sound to text, as Whisper does it: window by window, with times.
//!
//! A [`Transcriber`] takes the spectrogram of a sound in windows of what its model hears at once. Each window's tokens are decoded under
//! the rules of times, first at temperature 0, and again at higher ones while the result looks wrong. The last time in a window says
//! where the next one begins.
//!
//! Source: openai/whisper@v20250625, whisper/transcribe.py, whisper/decoding.py, whisper/timing.py, whisper/tokenizer.py.

mod decode;
mod markers;
mod rules;
mod settings;
mod window;
mod words;

pub use crate::text::LANGUAGES;
pub use decode::DecodeOptions;
pub use markers::{Markers, language_name};
pub use window::{Frames, Progress, Segment, Spectrogram, SpeechOptions, Task, Transcriber, Transcript};
pub use words::Word;

/// Seconds of a step of times.
pub const TIME_STEP: f64 = 0.02;

/// An error of transcribing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeechError {
    /// The vocabulary lacks tokens that steer a model of speech.
    #[error("the tokenizer has no {}: it is none of a model that transcribes", names(missing))]
    Markers {
        /// Their spellings.
        missing: Vec<String>,
    },
    /// The model was trained on spectrograms that are made otherwise.
    #[error("`{file}` describes another spectrogram than is made here{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    FrontEnd {
        /// The name of the file.
        file: &'static str,
        /// Each key, with what is wanted and found.
        problems: Vec<String>,
    },
    /// The files of a model disagree about a token.
    #[error("`{key}` says {said} for `{token}`, and the tokenizer {found}")]
    Marker {
        /// The key of the settings.
        key: String,
        /// The token's spelling.
        token: String,
        /// The number that the settings have for it.
        said: u64,
        /// The number that the tokenizer has for it.
        found: u32,
    },
    /// A list of tokens has one that the vocabulary lacks.
    #[error("`{key}` lists {found}, and the vocabulary has {vocab} tokens")]
    Token {
        /// The key of the settings.
        key: &'static str,
        /// The value in the list.
        found: String,
        /// Tokens in the vocabulary.
        vocab: u64,
    },
    /// A head that times are read from is not there.
    #[error(
        "`alignment_heads` names head {head} of layer {layer}, and the model has {heads} heads in each of {layers} layers"
    )]
    AlignmentHead {
        /// The layer.
        layer: u64,
        /// The head.
        head: u64,
        /// Layers of the decoder.
        layers: usize,
        /// Heads of a layer.
        heads: usize,
    },
    /// Times of words are wanted, and nothing says which heads have them.
    #[error(
        "the model's files do not say which heads follow the sound (`alignment_heads`), which times of words need"
    )]
    NoAlignmentHeads,
    /// A language that the model does not know.
    #[error("the model does not know the language `{name}`")]
    Language {
        /// The language that was asked for.
        name: String,
        /// The nearest that it knows.
        near: Option<String>,
    },
    /// A model of one language is to translate, or to tell languages apart.
    #[error("the model knows English alone: it cannot {what}")]
    EnglishOnly {
        /// The task: `translate`.
        what: &'static str,
    },
    /// The model hears windows of a length that no time stands for.
    #[error("the model hears {frames} frames at once, and has {times} tokens for times")]
    Times {
        /// Frames of a window.
        frames: usize,
        /// Tokens for times.
        times: usize,
    },
}

impl SpeechError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            SpeechError::Language { near: Some(near), .. } => Some(format!("the nearest is `{near}`")),
            SpeechError::EnglishOnly { .. } => Some("use a model for several languages".to_owned()),
            _ => None,
        }
    }

    /// Whether the caller asked for what the model cannot do.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            SpeechError::Language { .. } | SpeechError::EnglishOnly { .. } | SpeechError::NoAlignmentHeads
        )
    }
}

fn names(missing: &[String]) -> String {
    missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

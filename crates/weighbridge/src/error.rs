//! Any error of the pipeline.

use std::fmt;

#[cfg(feature = "engine")]
use tensor::Bytes;
use tensor::Diagnostics;

/// Any error of the pipeline: that of the step that failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint cannot be opened.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// It cannot be planned as asked.
    #[error(transparent)]
    Plan(#[from] planner::Error),
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] load::Error),
    /// The checkpoint differs from a manifest, or the manifest cannot be used.
    #[error(transparent)]
    Check(check::Error),
    /// It cannot be converted or compared as asked.
    #[cfg(feature = "convert")]
    #[error(transparent)]
    Convert(convert::Error),
    /// A copy of loaded parameters cannot be read or written.
    #[cfg(feature = "store")]
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Nothing runs this layout.
    #[cfg(feature = "engine")]
    #[error("the layout `{layout}` cannot be run")]
    NotRunnable {
        /// The layout.
        layout: &'static str,
    },
    /// The engine does not run this model.
    #[cfg(feature = "engine")]
    #[error(
        "`{path}`: models of the family `{family}` are loaded and converted, but this one is not run: {why}"
    )]
    NotRun {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// The obstacle.
        why: String,
    },
    /// The model is an encoder, which gives no logits.
    #[cfg(feature = "engine")]
    #[error("`{path}`: the model is an encoder: it makes vectors of texts, and continues none")]
    Encoder {
        /// The checkpoint.
        path: String,
    },
    /// The model has no audio encoder.
    #[cfg(feature = "speech")]
    #[error("`{path}`: the model does not transcribe: it has no audio encoder")]
    NoEar {
        /// The checkpoint.
        path: String,
    },
    /// The model transcribes sounds.
    #[cfg(feature = "engine")]
    #[error("`{path}`: the model transcribes sounds: it continues no texts")]
    Hears {
        /// The checkpoint.
        path: String,
    },
    /// The file has other filters for sound than are used here.
    #[cfg(feature = "speech")]
    #[error("`{path}`: the model's filters make another spectrogram than is made here: {what}")]
    Filters {
        /// The checkpoint.
        path: String,
        /// The first that differs, wanted and found.
        what: String,
    },
    /// A sound cannot be read.
    #[cfg(feature = "speech")]
    #[error(transparent)]
    Sound(#[from] audio::Error),
    /// What a directory says about making vectors cannot be followed.
    #[cfg(feature = "engine")]
    #[error("`{path}` cannot be followed{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Recipe {
        /// The directory.
        path: String,
        /// The problems of all its files.
        problems: Vec<crate::embedder::Remark>,
    },
    /// A prompt that the model does not have.
    #[cfg(feature = "engine")]
    #[error("the model has no prompt `{name}`")]
    NoPrompt {
        /// The name.
        name: String,
        /// The prompts that it has.
        known: Vec<String>,
    },
    /// The model does not fit into memory.
    #[cfg(feature = "engine")]
    #[error(
        "`{path}` needs {} of memory: {} for parameters, {} for the KV cache of {}{positions} positions, {} of buffers; {}",
        Bytes(parameters.saturating_add(*buffers).saturating_add(*cache)),
        Bytes(*parameters),
        Bytes(*cache),
        if *sessions == 1 { String::new() } else { format!("{sessions} sessions of ") },
        Bytes(*buffers),
        if *is_limit { format!("the limit is {}", Bytes(*available)) } else { format!("{} are available", Bytes(*available)) }
    )]
    Memory {
        /// The checkpoint.
        path: String,
        /// Bytes of parameters that have memory of their own. Of those that stay in mapped files, the largest layer is counted.
        parameters: u64,
        /// Bytes of buffers, at least.
        buffers: u64,
        /// Bytes of keys and values.
        cache: u64,
        /// Their positions, for each session.
        positions: u64,
        /// The number of sessions.
        sessions: u64,
        /// Positions that would fit, for each session; 0 if none would.
        fewer: u64,
        /// Bytes that are available.
        available: u64,
        /// Whether the caller set the limit.
        is_limit: bool,
    },
    /// The checkpoint has no tokenizer, or a broken one, and a text was to be read.
    #[cfg(feature = "engine")]
    #[error("{}", .0.problems())]
    Tokenizer(Diagnostics),
    /// Two models have other tokens for a text.
    #[cfg(feature = "engine")]
    #[error(
        "the tokenizer of `{path}` gives other tokens for this text, from token {at} on, so the models cannot be compared"
    )]
    OtherTokens {
        /// The checkpoint of the second.
        path: String,
        /// The place of the first token that differs, from 0.
        at: usize,
    },
    /// A text is too short to calibrate with and to measure on.
    #[cfg(feature = "convert")]
    #[error("`{name}` has {found} tokens, and at least {wanted} are needed")]
    ShortText {
        /// The text.
        name: String,
        /// Its tokens.
        found: usize,
        /// Tokens that are needed.
        wanted: usize,
    },
    /// The caller ended it.
    #[cfg(feature = "convert")]
    #[error("interrupted: {}", match written {
        None => "nothing was written".to_owned(),
        Some(place) => format!("`{place}` is complete; what it lost was not measured"),
    })]
    Interrupted {
        /// The result, if it is complete.
        written: Option<checkpoint::Location>,
    },
    /// Running failed, or a checkpoint's tokenizer or chat template cannot be read.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(engine::Error),
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl From<check::Error> for Error {
    fn from(error: check::Error) -> Error {
        match error {
            check::Error::Checkpoint(e) => e.into(),
            check::Error::Plan(e) => e.into(),
            check::Error::Load(e) => e.into(),
            other => Error::Check(other),
        }
    }
}

#[cfg(feature = "convert")]
impl From<convert::Error> for Error {
    fn from(error: convert::Error) -> Error {
        match error {
            convert::Error::Checkpoint(e) => e.into(),
            convert::Error::Plan(e) => e.into(),
            convert::Error::Load(e) => e.into(),
            convert::Error::Check(e) => e.into(),
            convert::Error::Engine(e) => e.into(),
            other => Error::Convert(other),
        }
    }
}

#[cfg(feature = "engine")]
impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Error {
        match error {
            engine::Error::Checkpoint(e) => e.into(),
            other => Error::Engine(other),
        }
    }
}

/// An adapter that cannot be used cannot be planned with.
impl From<lora::Error> for Error {
    fn from(error: lora::Error) -> Error {
        Error::Plan(error.into())
    }
}

/// Rules that mean nothing cannot be planned with.
impl From<planner::RulesProblems> for Error {
    fn from(problems: planner::RulesProblems) -> Error {
        Error::Plan(problems.into())
    }
}

impl Error {
    /// Returns each problem with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        match self {
            Error::Checkpoint(e) => e.diagnostics(),
            Error::Plan(e) => e.diagnostics(),
            Error::Load(e) => e.diagnostics(),
            Error::Check(e) => e.diagnostics(),
            #[cfg(feature = "convert")]
            Error::Convert(e) => e.diagnostics(),
            #[cfg(feature = "store")]
            Error::Store(e) => e.diagnostics(),
            #[cfg(feature = "engine")]
            Error::Engine(e) => e.diagnostics(),
            #[cfg(feature = "engine")]
            Error::NotRunnable { .. } => {
                Diagnostics::of(self, Some("use it to plan or to convert".to_owned()))
            }
            #[cfg(feature = "engine")]
            Error::NotRun { .. } | Error::Recipe { .. } | Error::OtherTokens { .. } => {
                Diagnostics::of(self, None)
            }
            #[cfg(feature = "engine")]
            Error::Tokenizer(problems) => problems.clone(),
            #[cfg(feature = "convert")]
            Error::ShortText { .. } => Diagnostics::of(self, Some("use a longer text".to_owned())),
            #[cfg(feature = "convert")]
            Error::Interrupted { .. } => Diagnostics::of(self, None),
            #[cfg(feature = "engine")]
            Error::Encoder { .. } => {
                Diagnostics::of(self, Some("make vectors with it, as an `Embedder` does".to_owned()))
            }
            #[cfg(feature = "engine")]
            Error::Hears { .. } => {
                Diagnostics::of(self, Some("transcribe with it, as a `Transcriber` does".to_owned()))
            }
            #[cfg(feature = "speech")]
            Error::NoEar { .. } | Error::Filters { .. } => Diagnostics::of(self, None),
            #[cfg(feature = "speech")]
            Error::Sound(e) => Diagnostics::of(self, e.hint().map(str::to_owned)),
            #[cfg(feature = "engine")]
            Error::NoPrompt { known, .. } => {
                let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                Diagnostics::of(self, Some(format!("it has {}", known.join(", "))))
            }
            #[cfg(feature = "engine")]
            Error::Memory { fewer, .. } => {
                let hint = match fewer {
                    0 => "encode the parameters in fewer bits".to_owned(),
                    n => format!("ask for at most {n} positions"),
                };
                Diagnostics::of(self, Some(hint))
            }
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }

    /// Whether no family claims the checkpoint, which can be looked at and taken as it is stored all the same.
    pub fn is_unknown_model(&self) -> bool {
        matches!(self, Error::Plan(e) if e.is_unknown_model())
    }

    /// Whether the caller asked for something impossible: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        match self {
            Error::Checkpoint(e) => matches!(e, checkpoint::Error::Misuse(_)),
            Error::Plan(e) => e.is_misuse(),
            Error::Load(e) => matches!(e, load::Error::LittleMemory { .. }),
            Error::Check(e) => e.is_misuse(),
            #[cfg(feature = "convert")]
            Error::Convert(e) => e.is_misuse(),
            #[cfg(feature = "store")]
            Error::Store(_) => false,
            #[cfg(feature = "engine")]
            Error::NotRunnable { .. } => true,
            #[cfg(feature = "engine")]
            Error::NoPrompt { .. } | Error::OtherTokens { .. } => true,
            #[cfg(feature = "convert")]
            Error::ShortText { .. } => true,
            #[cfg(feature = "convert")]
            Error::Interrupted { .. } => false,
            #[cfg(feature = "engine")]
            Error::NotRun { .. }
            | Error::Encoder { .. }
            | Error::Hears { .. }
            | Error::Recipe { .. }
            | Error::Tokenizer(_)
            | Error::Memory { .. } => false,
            #[cfg(feature = "speech")]
            Error::NoEar { .. } | Error::Filters { .. } | Error::Sound(_) => false,
            #[cfg(feature = "engine")]
            Error::Engine(e) => e.is_misuse(),
        }
    }
}

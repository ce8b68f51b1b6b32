//! Errors of running a model.

use std::fmt;

use tensor::{Bytes, Diagnostic, Diagnostics};

use crate::draft::VocabularyDifference;
use crate::eval::RowProblem;
use crate::{KvKind, SavedProblem};

/// Errors of running a model.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layout gave other names than the engine runs.
    #[error("`{name}` was not loaded, and the engine needs it")]
    NotLoaded {
        /// The runtime parameter.
        name: String,
    },
    /// A module does not declare its computation, or declares one that does not fit its place.
    #[error("`{path}` does not say what it computes")]
    Unsaid {
        /// The module.
        path: String,
    },
    /// The matrices of experts share what they are stored with.
    #[error("the matrices of `{path}` cannot be told apart: a block of `{scheme}` belongs to several")]
    OneBlock {
        /// The module.
        path: String,
        /// Their scheme.
        scheme: String,
    },
    /// The layout takes entries as they are stored, whatever they hold.
    #[error("the loaded weights do not say the row order of q and k, which the engine needs")]
    NoRopeOrder,
    /// An update ended on the way: the weights in memory belong to two models.
    #[error("an update was interrupted: the weights are a mix of two models")]
    Torn,
    /// A size does not fit this machine.
    #[error("the model does not fit this machine's address space")]
    TooLarge,
    /// Memory runs out for the state of a session.
    #[error("no memory for a session of {capacity} positions")]
    CacheTooLarge {
        /// Positions asked for.
        capacity: usize,
    },
    /// As many requests wait as may.
    #[error("{waiting} requests are waiting already")]
    TooManyRequests {
        /// Requests that wait.
        waiting: usize,
    },
    /// An encoder is to give logits.
    #[error("the model is an encoder: it gives vectors, not logits")]
    NoLogits,
    /// A model without a head for it is to score texts.
    #[error("the model has no head that scores texts")]
    NoScores,
    /// A spectrogram has another number of frames than the model hears at once.
    #[error("a spectrogram of {found} frames, and the model hears {wanted} at once")]
    Frames {
        /// Frames that the model hears.
        wanted: usize,
        /// Frames of the spectrogram.
        found: usize,
    },
    /// An error of transcribing.
    #[cfg(feature = "speech")]
    #[error(transparent)]
    Speech(#[from] crate::speech::SpeechError),
    /// A model without an audio encoder is to listen.
    #[error("the model has no audio encoder: it hears nothing")]
    NoEar,
    /// A model that transcribes has nothing to transcribe.
    #[error("the model transcribes sound, and its session has heard none")]
    NothingHeard,
    /// Nothing to run.
    #[error("no tokens to run")]
    NoTokens,
    /// A token that the vocabulary lacks.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// The session has too little room.
    #[error("the context is full: {wanted} positions wanted, room for {capacity}")]
    ContextFull {
        /// Positions wanted.
        wanted: usize,
        /// Positions there is room for.
        capacity: usize,
    },
    /// A session rotates keys otherwise than the one that a snapshot was taken of: frequencies depend on how many positions
    /// there is room for.
    #[error(
        "the snapshot is of a session with other rotary frequencies than this one with room for {capacity} positions"
    )]
    OtherTurns {
        /// Positions there is room for.
        capacity: usize,
    },
    /// A text is too short to be scored.
    #[error("the text has {found} tokens, and {wanted} are needed: two chunks")]
    ShortText {
        /// Its tokens.
        found: usize,
        /// Tokens of two chunks.
        wanted: usize,
    },
    /// Rows of tasks are wrong.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Rows {
        /// Each problem, in the order of the files and their rows.
        problems: Vec<RowProblem>,
    },
    /// Models of different vocabularies are compared.
    #[error("the model has a vocabulary of {model} tokens, and the reference one of {reference}")]
    OtherVocabulary {
        /// Tokens in the vocabulary of the model.
        model: usize,
        /// Tokens in the vocabulary of the reference.
        reference: usize,
    },
    /// A draft means something else by its tokens than the model that it guesses for.
    #[error("the draft has another vocabulary: {0}")]
    DraftVocabulary(Box<VocabularyDifference>),
    /// A snapshot of a session that keeps keys and values in another form.
    #[error("the snapshot has keys and values in {found}, not in {wanted} as the session")]
    OtherKind {
        /// The form that the session keeps.
        wanted: KvKind,
        /// The form in the snapshot.
        found: KvKind,
    },
    /// A budget of keys and values that the observed queries alone would fill.
    #[error(
        "{wanted} positions cannot be kept of a prompt: {} are its last ones, and more than these are needed",
        crate::OBSERVED
    )]
    KvBudget {
        /// Positions wanted.
        wanted: usize,
    },
    /// A budget for a model that has no use for one.
    #[error("a budget changes nothing: no layer of this model looks at all positions")]
    NoKvBudget,
    /// A session gets a budget that has positions already.
    #[error("the session has positions already, of which no queries were kept")]
    LateKvBudget,
    /// A session is saved with the tokens of another.
    #[error("the session has {wanted} positions, and is to be saved with {found} tokens")]
    SavedTokens {
        /// Positions of the session.
        wanted: usize,
        /// Tokens.
        found: usize,
    },
    /// A session that hears is to be saved.
    #[error("a session that hears cannot be saved: a file keeps no sound")]
    SavedSound,
    /// A file does not have what a session goes on from.
    #[error("`{path}`: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Saved {
        /// The file.
        path: String,
        /// All that is wrong.
        problems: Vec<SavedProblem>,
    },
    /// A session, or a snapshot, of another model.
    #[error("the session belongs to another model")]
    OtherModel,
    /// An adapter that is kept apart changes more than products.
    #[error("an adapter beside the weights cannot change {}", params.join(", "))]
    NotApart {
        /// The parameters.
        params: Vec<String>,
    },
    /// A session gets an adapter that has positions already, or a snapshot of a session with another.
    #[error("the session has positions of another adapter")]
    OtherAdapter,
    /// More positions than a learned table holds.
    #[error("a context of {wanted} is too long: the model was trained for {learned} positions")]
    Positions {
        /// Positions wanted.
        wanted: usize,
        /// Positions learned.
        learned: usize,
    },
    /// A matrix that the processor cannot multiply.
    #[error("no kernel multiplies matrices of {scheme}")]
    NoKernel {
        /// Its scheme.
        scheme: String,
    },
    /// The largest layer is larger than what may be in memory.
    #[error("one layer has {} of weights, and {} may be in memory", Bytes(*.wanted), Bytes(*.limit))]
    LayerTooLarge {
        /// Bytes of the largest layer.
        wanted: u64,
        /// Bytes of weights that may be in memory.
        limit: u64,
    },
    /// The tokenizer or the chat template is wrong.
    #[error("`{path}`: {source}")]
    Text {
        /// The checkpoint.
        path: String,
        /// The error of the tokenizer or template.
        source: crate::text::Error,
    },
    /// A file of a tokenizer cannot be read.
    #[error("cannot read `{path}`: {source}")]
    TextIo {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The checkpoint has no tokenizer.
    #[error("`{path}` has no tokenizer: looked for {looked_for}")]
    NoTokenizer {
        /// The checkpoint.
        path: String,
        /// Where it was looked for.
        looked_for: &'static str,
        /// A way to fix it.
        hint: &'static str,
    },
    /// The sampling defaults cannot be read.
    #[error("`{path}`: {what}")]
    Sampling {
        /// The checkpoint.
        path: String,
        /// The problem.
        what: String,
    },
    /// A file beside the weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The sampler could not choose.
    #[error(transparent)]
    Sampler(#[from] crate::sampler::Error),
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Whether the caller asked for something impossible: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        #[cfg(feature = "speech")]
        if let Error::Speech(error) = self {
            return error.is_misuse();
        }
        matches!(
            self,
            Error::CacheTooLarge { .. }
                | Error::ContextFull { .. }
                | Error::Positions { .. }
                | Error::KvBudget { .. }
                | Error::NoTokens
                | Error::ShortText { .. }
                | Error::OtherVocabulary { .. }
                | Error::DraftVocabulary(_)
                | Error::Token { .. }
                | Error::Sampler(crate::sampler::Error::Constraint { .. })
        )
    }

    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::ShortText { .. } => "use a longer text, or shorter chunks",
            Error::LayerTooLarge { .. } => "allow more memory, or ask for fewer positions",
            Error::DraftVocabulary(_) => "use a smaller model of the same family as the draft",
            Error::Torn => "update all of the weights, or load them again",
            Error::TooManyRequests { .. } => "ask again later",
            Error::CacheTooLarge { .. } | Error::Positions { .. } => "ask for fewer positions",
            Error::ContextFull { .. } => "ask for more positions",
            Error::NotApart { .. } => "merge the adapter into the weights",
            Error::OtherAdapter => "begin with an empty session",
            Error::NoKernel { .. } => "the reference backend decodes them row by row",
            Error::NoTokenizer { hint, .. } => hint,
            Error::Text { source, .. } => return Diagnostics::of(self, source.hints()),
            Error::Sampler(error) => return Diagnostics::of(self, error.hints()),
            Error::Checkpoint(error) => return error.diagnostics(),
            #[cfg(feature = "speech")]
            Error::Speech(error) => return Diagnostics::of(self, error.hint()),
            Error::Rows { problems } => {
                return problems.iter().map(|problem| Diagnostic::new(problem.to_string())).collect();
            }
            Error::Saved { path, problems } => {
                let one = |problem: &SavedProblem| Diagnostic::new(format!("`{path}`: {problem}"));
                let mut all: Vec<Diagnostic> = problems.iter().map(one).collect();
                let hint = problems.first().map(|problem| problem.hint().to_owned());
                all = match all.pop() {
                    Some(last) => all.into_iter().chain([last.with_hint(hint)]).collect(),
                    None => all,
                };
                return all.into_iter().collect();
            }
            _ => return Diagnostics::of(self, None),
        };
        Diagnostics::of(self, Some(hint.to_owned()))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

//! `transcribe`: the document of `--json`.

use serde::Serialize;

use super::Real;

/// The document that `weighbridge transcribe --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Transcribe<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// Its family.
    pub(crate) family: &'a str,
    /// The backend that ran it.
    pub(crate) backend: String,
    /// The transcript of each sound, in the order of the command line.
    pub(crate) transcripts: Vec<Transcript>,
    /// Seconds until the model was loaded.
    pub(crate) load_seconds: f64,
    /// Seconds for the transcripts.
    pub(crate) seconds: f64,
    /// Seconds of sound that one second transcribes.
    pub(crate) speed: Real,
}

/// The transcript of one sound.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Transcript {
    /// The path of the sound.
    pub(crate) sound: String,
    /// Its length in seconds.
    pub(crate) duration: f64,
    /// Seconds of it that are silence because the file is damaged there.
    pub(crate) damaged: f64,
    /// The fault at which the sound ended before its file did.
    pub(crate) ended: Option<String>,
    /// The code of the language; null for a sound of no length.
    pub(crate) language: Option<&'static str>,
    /// The probability of the language, if the model was asked for it.
    pub(crate) language_probability: Option<f32>,
    /// The text of all segments.
    pub(crate) text: String,
    /// Its segments, in the order of their times.
    pub(crate) segments: Vec<Segment>,
}

/// A part of a transcript.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Segment {
    /// Seconds from the start of the sound.
    pub(crate) start: f64,
    /// The same.
    pub(crate) end: f64,
    /// Its text.
    pub(crate) text: String,
    /// Its tokens, times included.
    pub(crate) tokens: Vec<u32>,
    /// The temperature that its window was decoded at.
    pub(crate) temperature: f32,
    /// The mean logarithm of the probabilities of its window's tokens.
    pub(crate) avg_logprob: f32,
    /// How many times smaller zlib makes its window's text.
    pub(crate) compression_ratio: f32,
    /// The probability that its window is silent.
    pub(crate) no_speech_prob: f32,
    /// Its words, with `--words`.
    pub(crate) words: Option<Vec<Word>>,
}

/// A word of a segment.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Word {
    /// Seconds from the start of the sound.
    pub(crate) start: f64,
    /// The same.
    pub(crate) end: f64,
    /// Its text, with the space before it and its punctuation.
    pub(crate) word: String,
    /// The mean probability of its tokens.
    pub(crate) probability: f32,
}

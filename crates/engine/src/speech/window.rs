//! A whole sound, window by window.
//!
//! Source: openai/whisper@v20250625, whisper/transcribe.py.

use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::sampler::random::Pcg32;
use crate::text::{EncodeOptions, SpecialText, Tokenizer};
use crate::{Error, Heard, KvKind, Runner};

use super::decode::{DecodeOptions, Decoded, Decoder, Prompt};
use super::rules::{Rules, log_softmax};
use super::words::Aligner;
use super::{Markers, SpeechError, Word};

/// Frames of a second.
const FRAMES: f64 = 100.0;
/// Frames of a step of times.
const STEP_FRAMES: usize = 2;

/// The language of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// In the language of the speech.
    #[default]
    Transcribe,
    /// In English.
    Translate,
}

/// How a sound is transcribed.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechOptions {
    /// The code or English name of the language; `None`: the likeliest of the first window.
    pub language: Option<String>,
    /// The language of the transcript.
    pub task: Task,
    /// How tokens are chosen.
    pub decode: DecodeOptions,
    /// The temperatures that a window is decoded at, until its text looks right.
    pub temperatures: Vec<f32>,
    /// A text that zlib makes smaller by more than this repeats itself: it is decoded again.
    pub compression_limit: Option<f32>,
    /// A text whose mean logarithm of probabilities is lower is decoded again.
    pub log_probability_limit: Option<f32>,
    /// A window that is silent with a higher probability, and whose text is unlikely, has none.
    pub no_speech_limit: Option<f32>,
    /// Whether each window continues the text of those before.
    pub continues: bool,
    /// A text before the first window: names and words that may come.
    pub prompt: Option<String>,
    /// Whether the model writes times: without them, each window is one segment.
    pub times: bool,
    /// Whether each word has its times.
    pub words: bool,
    /// Of what is drawn at higher temperatures.
    pub seed: u64,
}

impl Default for SpeechOptions {
    fn default() -> SpeechOptions {
        SpeechOptions {
            language: None,
            task: Task::Transcribe,
            decode: DecodeOptions::default(),
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_limit: Some(2.4),
            log_probability_limit: Some(-1.0),
            no_speech_limit: Some(0.6),
            continues: true,
            prompt: None,
            times: true,
            words: false,
            seed: 0,
        }
    }
}

/// A part of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Seconds from the start of the sound.
    pub start: f64,
    /// The same.
    pub end: f64,
    /// Its text, with the space before it.
    pub text: String,
    /// Its tokens, times included.
    pub tokens: Vec<u32>,
    /// The temperature that its window was decoded at.
    pub temperature: f32,
    /// The mean logarithm of the probabilities of its window's tokens.
    pub mean_log_probability: f32,
    /// How much smaller zlib makes its window's text.
    pub compression: f32,
    /// The probability that its window is silent.
    pub no_speech: f32,
    /// Its words, if they are wanted.
    pub words: Vec<Word>,
}

/// A whole transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The code of the language; `None` of a model of English alone.
    pub language: Option<&'static str>,
    /// The probability of the language, if the model was asked for it.
    pub language_probability: Option<f32>,
    /// Its segments, in the order of their times.
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// The text of all segments.
    pub fn text(&self) -> String {
        self.segments.iter().map(|segment| &*segment.text).collect()
    }
}

/// The log-mel spectrogram of a sound: `[frames, mels]`, 100 frames of a second.
#[derive(Clone, Copy)]
pub struct Spectrogram<'a> {
    /// The values, frame by frame.
    pub values: &'a [f32],
    /// Mel bands.
    pub mels: usize,
}

impl fmt::Debug for Spectrogram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectrogram").field("frames", &self.frames()).finish_non_exhaustive()
    }
}

impl Spectrogram<'_> {
    /// The number of frames.
    pub fn frames(&self) -> usize {
        self.values.len() / self.mels.max(1)
    }
}

/// The frames of a sound, which may be made as they are wanted.
pub trait Frames {
    /// Mel bands.
    fn mels(&self) -> usize;

    /// Copies the frames from `first` on to `out`, `[frames, mels]`, and returns how many there are: fewer than `out` holds only where the
    /// sound ends. Frames before `first` are not wanted again.
    fn copy(&mut self, first: usize, out: &mut [f32]) -> usize;
}

impl Frames for Spectrogram<'_> {
    fn mels(&self) -> usize {
        self.mels
    }

    fn copy(&mut self, first: usize, out: &mut [f32]) -> usize {
        let from = first.saturating_mul(self.mels).min(self.values.len());
        let len = (self.values.len() - from).min(out.len());
        out[..len].copy_from_slice(&self.values[from..from + len]);
        len / self.mels.max(1)
    }
}

/// News while a sound is transcribed.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The language, and its probability.
    Language(&'static str, f32),
    /// A segment is complete.
    Segment(&'a Segment),
    /// All before this time is done: seconds from the start.
    Done(f64),
}

/// Transcribes sounds.
#[derive(Debug)]
pub struct Transcriber {
    markers: Markers,
    /// Tokens that never come in a text.
    suppressed: Vec<u32>,
    /// Tokens that begin no text.
    suppressed_first: Vec<u32>,
    /// Layers of the decoder, and heads of them, that look at what is being said.
    heads: Vec<(usize, usize)>,
    /// The first time in a window is no later than this, in steps.
    latest_first: Option<u32>,
    decoder: Decoder,
    kind: KvKind,
}

impl Transcriber {
    /// A transcriber for models with `markers`: `suppressed` tokens never come in a text, and `suppressed_first` begin none. `heads` are
    /// the layers and heads that times of words are read from. Keys and values are kept as `kind` says.
    pub fn new(
        markers: Markers,
        suppressed: Vec<u32>,
        suppressed_first: Vec<u32>,
        heads: Vec<(usize, usize)>,
        kind: KvKind,
    ) -> Transcriber {
        let latest_first = Some(50);
        let decoder = Decoder::new(kind);
        Transcriber { markers, suppressed, suppressed_first, heads, latest_first, decoder, kind }
    }

    /// The same, where the first time in a window is no later than `steps` steps of [`TIME_STEP`]; `None`: at any time.
    #[must_use]
    pub fn with_latest_first(self, steps: Option<u32>) -> Transcriber {
        Transcriber { latest_first: steps, ..self }
    }

    /// The tokens that steer the model.
    pub fn markers(&self) -> &Markers {
        &self.markers
    }

    /// The probability of each language, the likeliest first.
    ///
    /// # Errors
    /// If the model knows English alone, or does not hear.
    pub fn languages(&mut self, runner: &mut Runner, mel: &[f32]) -> Result<Vec<(&'static str, f32)>, Error> {
        let heard = runner.hear(mel, self.kind)?;
        self.languages_of(runner, &heard)
    }

    fn languages_of(
        &mut self,
        runner: &mut Runner,
        heard: &Heard,
    ) -> Result<Vec<(&'static str, f32)>, Error> {
        if !self.markers.is_multilingual() {
            return Err(SpeechError::EnglishOnly { what: "tell languages apart" }.into());
        }
        let logits = self.decoder.first_logits(runner, heard, self.markers.start)?;
        let known = self.markers.languages.iter().filter(|(_, token)| (*token as usize) < logits.len());
        let known: Vec<(&'static str, u32)> = known.copied().collect();
        let mut of_each: Vec<f32> = known.iter().map(|(_, token)| logits[*token as usize]).collect();
        log_softmax(&mut of_each);
        let mut all: Vec<(&'static str, f32)> =
            known.iter().zip(of_each).map(|((code, _), log)| (*code, log.exp())).collect();
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        Ok(all)
    }

    /// Transcribes `sound`, and calls `each` with what is done; it may end the work, and what is done is returned.
    ///
    /// # Errors
    /// If the options do not fit the model, or memory runs out.
    pub fn run(
        &mut self,
        runner: &mut Runner,
        tokenizer: &Tokenizer,
        sound: &mut dyn Frames,
        options: &SpeechOptions,
        each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Transcript, Error> {
        let Some((window, mels)) = runner.model().hears() else { return Err(Error::NoEar) };
        assert!(mels == sound.mels(), "a spectrogram of {} bands, and the model has {mels}", sound.mels());
        if options.words && self.heads.is_empty() {
            return Err(SpeechError::NoAlignmentHeads.into());
        }
        let mut transcript = Transcript::default();
        let mut mel = vec![0f32; window * mels];
        // The first window may have been heard for its language: what was heard, and how many frames.
        let mut first = None;
        let (before, language) =
            self.start_tokens(runner, sound, options, &mut mel, &mut transcript, &mut first)?;
        if let (Some(code), Some(probability)) = (transcript.language, transcript.language_probability)
            && each(Progress::Language(code, probability)).is_break()
        {
            return Ok(transcript);
        }
        let prompt = options
            .prompt
            .as_deref()
            .map(|prompt| tokenizer.encode(&format!(" {}", prompt.trim()), EncodeOptions::default()));
        let path = || "the prompt".to_owned();
        let mut said =
            prompt.transpose().map_err(|source| Error::Text { path: path(), source })?.unwrap_or_default();
        let (mut forgotten, mut word_end) = (0, 0.0);
        let mut random = Pcg32::new(options.seed);
        let mut seek = 0;
        loop {
            let (heard, size) = match first.take() {
                Some(first) => first,
                None => {
                    let size = fill(&mut mel, sound, seek);
                    if size == 0 {
                        break;
                    }
                    (runner.hear(&mel, self.kind)?, size)
                }
            };
            let end = seek + size;
            let offset = seek as f64 / FRAMES;
            let decoded =
                self.decoded(runner, tokenizer, &heard, &said[forgotten..], &before, options, &mut random)?;
            if is_silent(&decoded.0, options) {
                seek += size;
                if each(Progress::Done(seek as f64 / FRAMES)).is_break() {
                    break;
                }
                continue;
            }
            let (mut segments, mut step) = self.segments(tokenizer, &decoded, seek, size);
            if options.words {
                let aligner = Aligner {
                    heard: &heard,
                    tokenizer,
                    markers: &self.markers,
                    heads: &self.heads,
                    kind: self.kind,
                    language,
                };
                aligner.run(runner, &before, size / STEP_FRAMES, offset, word_end, &mut segments)?;
                let last =
                    segments.iter().rev().find_map(|segment| segment.words.last()).map(|word| word.end);
                // Where the last time ended in mid-sentence, the next window begins after its last word.
                if let Some(last) =
                    last.filter(|last| !ends_alone(&decoded.0.tokens, &self.markers) && *last > offset)
                {
                    step = frames_of(last).saturating_sub(seek);
                }
                word_end = last.unwrap_or(word_end);
            }
            let mut broken = false;
            for segment in segments {
                if segment.end - segment.start == 0.0 || segment.text.trim().is_empty() {
                    continue;
                }
                said.extend(&segment.tokens);
                broken |= each(Progress::Segment(&segment)).is_break();
                transcript.segments.push(segment);
            }
            if !options.continues || decoded.0.temperature > 0.5 {
                forgotten = said.len();
            }
            // A window that goes nowhere would be heard for ever.
            seek += if step == 0 { size } else { step };
            if broken || each(Progress::Done(seek.min(end) as f64 / FRAMES)).is_break() {
                break;
            }
        }
        Ok(transcript)
    }

    /// The tokens that begin each window's transcript, and the code of the language.
    fn start_tokens(
        &mut self,
        runner: &mut Runner,
        sound: &mut dyn Frames,
        options: &SpeechOptions,
        mel: &mut [f32],
        transcript: &mut Transcript,
        first: &mut Option<(Heard, usize)>,
    ) -> Result<(Vec<u32>, Option<&'static str>), Error> {
        let mut before = vec![self.markers.start];
        let is_english = |name: &String| ["en", "english"].contains(&&*name.to_lowercase());
        if !self.markers.is_multilingual() {
            if options.task == Task::Translate {
                return Err(SpeechError::EnglishOnly { what: "translate" }.into());
            }
            if options.language.as_ref().is_some_and(|name| !is_english(name)) {
                return Err(SpeechError::EnglishOnly { what: "transcribe another language" }.into());
            }
            transcript.language = Some("en");
            if !options.times {
                before.push(self.markers.no_times);
            }
            return Ok((before, Some("en")));
        }
        let (code, token) = match &options.language {
            Some(name) => self.markers.language(name)?,
            None => {
                let size = fill(mel, sound, 0);
                let heard = runner.hear(mel, self.kind)?;
                let all = self.languages_of(runner, &heard)?;
                *first = (size > 0).then_some((heard, size));
                let Some((code, probability)) = all.first() else { return Err(Error::NoEar) };
                transcript.language_probability = Some(*probability);
                self.markers.language(code)?
            }
        };
        transcript.language = Some(code);
        before.push(token);
        before.extend(match options.task {
            Task::Transcribe => self.markers.transcribe,
            Task::Translate => self.markers.translate,
        });
        if !options.times {
            before.push(self.markers.no_times);
        }
        Ok((before, Some(code)))
    }

    /// The tokens of a window and how small zlib makes their text, at the first temperature at which it looks right.
    #[allow(clippy::too_many_arguments, reason = "a window, what is before it, and how it is decoded")]
    fn decoded(
        &mut self,
        runner: &mut Runner,
        tokenizer: &Tokenizer,
        heard: &Heard,
        said: &[u32],
        before: &[u32],
        options: &SpeechOptions,
        random: &mut Pcg32,
    ) -> Result<(Decoded, f32), Error> {
        let positions = runner.model().learned_positions().unwrap_or_default();
        let most = (positions / 2).saturating_sub(1);
        let mut prompt = vec![];
        if !said.is_empty() {
            prompt.push(self.markers.previous);
            prompt.extend(&said[said.len().saturating_sub(most)..]);
        }
        let start = prompt.len();
        prompt.extend(before);
        let rules = Rules {
            markers: &self.markers,
            suppressed: &self.suppressed,
            suppressed_first: &self.suppressed_first,
            times: options.times,
            latest_first: self.latest_first,
        };
        let prompt = Prompt { tokens: &prompt, start };
        let mut last = None;
        for temperature in &options.temperatures {
            let decoded = self.decoder.run(
                runner,
                heard,
                &prompt,
                &rules,
                &options.decode,
                (*temperature, &mut *random),
            )?;
            let text = self.text(tokenizer, &decoded.tokens);
            let compression = compression(text.trim());
            let unlikely =
                options.log_probability_limit.is_some_and(|limit| decoded.mean_log_probability < limit);
            let repeats = options.compression_limit.is_some_and(|limit| compression > limit);
            let silent = options.no_speech_limit.is_some_and(|limit| decoded.no_speech > limit) && unlikely;
            let again = (unlikely || repeats) && !silent;
            last = Some((decoded, compression));
            if !again {
                break;
            }
        }
        last.ok_or(Error::NoTokens)
    }

    fn text(&self, tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let text = tokens.iter().filter(|token| **token < self.markers.end);
        let bytes: Vec<u8> =
            text.flat_map(|token| tokenizer.token_bytes(*token, SpecialText::Hidden).into_owned()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The segments of a window of `size` frames from `seek` on, and the frames after which the next window begins.
    fn segments(
        &self,
        tokenizer: &Tokenizer,
        (decoded, compression): &(Decoded, f32),
        seek: usize,
        size: usize,
    ) -> (Vec<Segment>, usize) {
        let first = self.markers.first_time;
        let tokens = &decoded.tokens;
        let segment = |start: f64, end: f64, tokens: &[u32]| Segment {
            start,
            end,
            text: self.text(tokenizer, tokens),
            tokens: tokens.to_vec(),
            temperature: decoded.temperature,
            mean_log_probability: decoded.mean_log_probability,
            compression: *compression,
            no_speech: decoded.no_speech,
            words: vec![],
        };
        // Times are of 2 frames each: sums of whole frames are exact.
        let seconds = |token: u32| (seek + (token - first) as usize * STEP_FRAMES) as f64 / FRAMES;
        let is_time = |token: u32| token >= first;
        let pairs = (1..tokens.len()).filter(|n| is_time(tokens[*n - 1]) && is_time(tokens[*n]));
        let mut cuts: Vec<usize> = pairs.collect();
        if cuts.is_empty() {
            let last =
                tokens.iter().rev().copied().find(|token| is_time(*token)).filter(|token| *token != first);
            let end = last.map_or((seek + size) as f64 / FRAMES, seconds);
            return (vec![segment(seek as f64 / FRAMES, end, tokens)], size);
        }
        let alone = ends_alone(tokens, &self.markers);
        if alone {
            cuts.push(tokens.len());
        }
        let (mut segments, mut from) = (vec![], 0);
        for cut in cuts {
            let part = &tokens[from..cut];
            if let (Some(start), Some(end)) = (part.first(), part.last()) {
                segments.push(segment(seconds(*start), seconds(*end), part));
            }
            from = cut;
        }
        // After a single time nothing is said in this window; else what follows the last pair is heard again.
        let step = if alone { size } else { (tokens[from - 1] - first) as usize * STEP_FRAMES };
        (segments, step)
    }
}

/// Whether the last token is a time, and the one before it none.
fn ends_alone(tokens: &[u32], markers: &Markers) -> bool {
    matches!(tokens, [.., before, last] if *before < markers.first_time && *last >= markers.first_time)
}

/// Whether a window has no speech.
fn is_silent(decoded: &Decoded, options: &SpeechOptions) -> bool {
    let likely = options.log_probability_limit.is_some_and(|limit| decoded.mean_log_probability > limit);
    options.no_speech_limit.is_some_and(|limit| decoded.no_speech > limit) && !likely
}

/// The frames of some seconds.
#[expect(clippy::cast_sign_loss, reason = "saturates")]
fn frames_of(seconds: f64) -> usize {
    (seconds * FRAMES).round() as usize
}

/// Puts `size` frames of `sound`, from `first` on, into `mel`; what is left is 0.
fn fill(mel: &mut [f32], sound: &mut dyn Frames, first: usize) -> usize {
    let size = sound.copy(first, mel);
    mel[size * sound.mels()..].fill(0.0);
    size
}

/// How many times smaller zlib makes a text: more of one that repeats itself.
fn compression(text: &str) -> f32 {
    let mut encoder = ZlibEncoder::new(vec![], Compression::default());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    // Nothing fails in memory.
    packed.map_or(0.0, |packed| text.len() as f32 / packed.len().max(1) as f32)
}

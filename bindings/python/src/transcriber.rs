//! Speech to text.

use std::fs::File;
use std::io::{Cursor, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use weighbridge::transcriber::{self, DecodeOptions, Heard, Progress, Sound, SpeechOptions, Task};

use crate::error::{Failure, Result, value_error};
use crate::plan::Encode;
use crate::runtime::start_options;
use crate::waiting;

/// A model that transcribes sounds.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Transcriber {
    inner: Mutex<weighbridge::Transcriber>,
    languages: Vec<&'static str>,
}

/// A sound to transcribe.
#[derive(FromPyObject)]
pub(crate) enum Given {
    /// A file's bytes.
    Bytes(PyBackedBytes),
    /// A file.
    Path(PathBuf),
    /// Samples at 16 kHz, of one channel.
    Samples(PyBuffer<f32>),
}

#[pymethods]
impl Transcriber {
    #[new]
    #[pyo3(signature = (path, *, threads=None, encode=None, preset=None, memory=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        encode: Option<Encode>,
        preset: Option<&str>,
        memory: Option<u64>,
    ) -> PyResult<Transcriber> {
        let options = start_options(threads, None, encode, preset, None, memory)?;
        let opened = py.detach(|| -> Result<_> { Ok(weighbridge::Transcriber::open(path, &options)?) })?;
        Ok(Transcriber { languages: opened.languages().collect(), inner: Mutex::new(opened) })
    }

    /// The languages that it knows, by code; empty for a model of English alone.
    #[getter]
    fn languages(&self) -> Vec<&'static str> {
        self.languages.clone()
    }

    /// Transcribes `sound`: a file, a file's bytes, or samples of one channel at 16 kHz as a buffer of f32.
    ///
    /// The language is the likeliest of the first window if none is given. With `translate` the text is English, with `words` each word has
    /// its times. `each` is called with each segment as soon as it is complete.
    #[pyo3(signature = (
        sound, *, language=None, translate=false, words=false, prompt=None, context=true, times=true, beams=5, best_of=5,
        temperatures=None, seed=0, each=None
    ))]
    #[expect(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "Python names them")]
    fn transcribe(
        &self,
        py: Python<'_>,
        sound: Given,
        language: Option<String>,
        translate: bool,
        words: bool,
        prompt: Option<String>,
        context: bool,
        times: bool,
        beams: usize,
        best_of: usize,
        temperatures: Option<Vec<f32>>,
        seed: u64,
        each: Option<Py<PyAny>>,
    ) -> PyResult<Transcript> {
        if !(1..=32).contains(&beams) || !(1..=32).contains(&best_of) {
            return Err(value_error("wanted 1 to 32 texts at once (`beams`, `best_of`)"));
        }
        if words && !times {
            return Err(value_error("words have times only where the model writes some (`times`)"));
        }
        let mut options = SpeechOptions {
            language,
            task: if translate { Task::Translate } else { Task::Transcribe },
            decode: DecodeOptions { beams, best_of, ..DecodeOptions::default() },
            continues: context,
            prompt,
            times,
            words,
            seed,
            ..SpeechOptions::default()
        };
        if let Some(temperatures) = temperatures {
            if temperatures.is_empty() || temperatures.iter().any(|t| !(0.0..=2.0).contains(t)) {
                return Err(value_error("wanted temperatures from 0 to 2, one at least"));
            }
            options.temperatures = temperatures;
        }
        let sound = Opened::of(py, sound)?;
        let (stop, ready) = (AtomicBool::new(false), Mutex::new(vec![]));
        let work = || -> Result<(Heard, transcriber::Transcript)> {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let mut goes_on = |_| !stop.load(Ordering::Relaxed);
            let heard = match sound {
                Opened::Sound(sound) => inner.ear().hear(sound, &mut goes_on)?,
                Opened::Samples(samples) => inner.hear_samples(&samples)?,
            };
            let mut told = |progress: Progress<'_>| {
                if let Progress::Segment(segment) = progress {
                    ready.lock().unwrap_or_else(PoisonError::into_inner).push(segment.clone());
                }
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let transcript = inner.transcribe_heard(&heard, &options, &mut told)?;
            Ok((heard, transcript))
        };
        let look = || {
            let segments = std::mem::take(&mut *ready.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(each) = &each {
                for segment in segments {
                    each.call1(py, (Segment::of(segment),))?;
                }
            }
            Ok(())
        };
        let (heard, transcript) = waiting::run(py, &stop, look, work)?;
        let text = transcript.text().trim().to_owned();
        Ok(Transcript {
            text,
            language: transcript.language,
            language_probability: transcript.language_probability,
            duration: heard.seconds,
            damaged: heard.damaged,
            ended: heard.ended.map(|fault| fault.to_string()),
            segments: transcript.segments.into_iter().map(Segment::of).collect(),
        })
    }

    fn __repr__(&self) -> String {
        let languages = self.languages.len().max(1);
        format!("<weighbridge.Transcriber of {}>", weighbridge::tensor::counted(languages, "language"))
    }
}

/// A sound that is read without the interpreter.
enum Opened {
    Sound(Sound),
    Samples(Vec<f32>),
}

impl Opened {
    fn of(py: Python<'_>, given: Given) -> PyResult<Opened> {
        let source: Box<dyn Read + Send> = match given {
            Given::Samples(buffer) if buffer.dimensions() != 1 => {
                let what = format!("wanted samples of one channel, found {:?}", buffer.shape());
                return Err(value_error(what));
            }
            Given::Samples(buffer) => return Ok(Opened::Samples(buffer.to_vec(py)?)),
            Given::Bytes(bytes) => Box::new(Cursor::new(bytes)),
            Given::Path(path) => Box::new(File::open(path)?),
        };
        Ok(Opened::Sound(Sound::open(source).map_err(Failure::from)?))
    }
}

/// A whole transcript.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Transcript {
    /// The text of all segments.
    text: String,
    /// The code of the language; `None` of a model of English alone.
    language: Option<&'static str>,
    /// The probability of the language, if the model was asked for it.
    language_probability: Option<f32>,
    /// Length of the sound in seconds.
    duration: f64,
    /// Seconds of it that are silence because the file is damaged there.
    damaged: f64,
    /// The fault at which the sound ended before its file did.
    ended: Option<String>,
    /// Its segments, in the order of their times.
    segments: Vec<Segment>,
}

#[pymethods]
impl Transcript {
    fn __str__(&self) -> String {
        self.text.clone()
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Transcript of {:.1} s: {:?}>", self.duration, self.text)
    }
}

/// A part of a transcript, named as faster-whisper names it.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
pub(crate) struct Segment {
    /// Seconds from the start of the sound.
    start: f64,
    /// The same.
    end: f64,
    /// Its text, with the space before it.
    text: String,
    /// Its tokens, times included.
    tokens: Vec<u32>,
    /// The temperature that its window was decoded at.
    temperature: f32,
    /// The mean logarithm of the probabilities of its window's tokens.
    avg_logprob: f32,
    /// How much smaller zlib makes its window's text.
    compression_ratio: f32,
    /// The probability that its window is silent.
    no_speech_prob: f32,
    /// Its words, if they are wanted.
    words: Vec<Word>,
}

impl Segment {
    fn of(segment: transcriber::Segment) -> Segment {
        let word = |word: transcriber::Word| Word {
            start: word.start,
            end: word.end,
            word: word.text,
            probability: word.probability,
        };
        Segment {
            start: segment.start,
            end: segment.end,
            text: segment.text,
            tokens: segment.tokens,
            temperature: segment.temperature,
            avg_logprob: segment.mean_log_probability,
            compression_ratio: segment.compression,
            no_speech_prob: segment.no_speech,
            words: segment.words.into_iter().map(word).collect(),
        }
    }
}

#[pymethods]
impl Segment {
    fn __repr__(&self) -> String {
        format!("Segment(start={:.2}, end={:.2}, text={:?})", self.start, self.end, self.text)
    }
}

/// A word and its times.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
#[expect(clippy::struct_field_names, reason = "faster-whisper calls it so")]
pub(crate) struct Word {
    /// Seconds from the start of the sound.
    start: f64,
    /// The same.
    end: f64,
    /// The word, with the space before it.
    word: String,
    /// Its probability.
    probability: f32,
}

#[pymethods]
impl Word {
    fn __repr__(&self) -> String {
        let Word { start, end, word, probability } = self;
        format!("Word(start={start:.2}, end={end:.2}, word={word:?}, probability={probability:.3})")
    }
}

//! Speech to text, with times.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weighbridge::transcriber::{SpeechOptions, Sound, Transcriber};
//! use weighbridge::RuntimeOptions;
//!
//! let mut transcriber = Transcriber::open("whisper-base/", &RuntimeOptions::default())?;
//! let sound = Sound::open(Box::new(std::fs::File::open("talk.flac")?))?;
//! let transcript = transcriber.transcribe(sound, &SpeechOptions::default())?;
//! for segment in &transcript.segments {
//!     println!("{:.2} to {:.2}:{}", segment.start, segment.end, segment.text);
//! }
//! # Ok(())
//! # }
//! ```

mod subtitles;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use audio::{FrontEnd, LogMel, Resampler};
use checkpoint::{Checkpoint, Metadata};
use engine::text::Tokenizer;
use engine::{Runner, speech};
use load::LoadReport;
use model::Model;
use planner::{LayoutKind, describe};

pub use audio::{Format as SoundFormat, Sound};
pub use engine::speech::{
    DecodeOptions, LANGUAGES, Progress, Segment, SpeechOptions, Task, Transcript, Word, language_name,
};

pub use subtitles::{Subtitles, clock};

use crate::Error;
use crate::start::{Kept, RuntimeOptions, Started, Starting, architecture};

/// Seconds that a model hears at once; the sound is silent for as long after its end.
const WINDOW: usize = 30;

/// Transcribes sounds: a model with its tokenizer and front end.
pub struct Transcriber {
    checkpoint: Checkpoint,
    model: Model,
    report: LoadReport,
    layout: LayoutKind,
    runner: Runner,
    tokenizer: Arc<Tokenizer>,
    speech: speech::Transcriber,
    front: FrontEnd,
    kept: Kept,
}

impl fmt::Debug for Transcriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcriber").field("checkpoint", self.checkpoint.location()).finish_non_exhaustive()
    }
}

/// Hears sounds for a [`Transcriber`], on any thread.
#[derive(Clone, Copy, Debug)]
pub struct Ear {
    front: FrontEnd,
}

/// The spectrogram of a sound, and what there is to say about it.
#[derive(Default)]
pub struct Heard {
    /// `[frames, mels]`, 100 frames of a second.
    pub mel: Vec<f32>,
    /// Length of the sound in seconds.
    pub seconds: f64,
    /// Seconds of it that are silence because the file is damaged there.
    pub damaged: f64,
    /// The fault at which the sound ended before its file did.
    pub ended: Option<audio::Error>,
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").field("seconds", &self.seconds).finish_non_exhaustive()
    }
}

impl Transcriber {
    /// Opens, plans and loads the model at `path`.
    ///
    /// # Errors
    /// Whatever is wrong with the checkpoint, all of it at once; if it does not transcribe; what the machine cannot give.
    pub fn open(path: impl AsRef<Path>, options: &RuntimeOptions) -> Result<Transcriber, Error> {
        Transcriber::start(checkpoint::open_with(path, &options.open)?, options)
    }

    /// Plans and loads a checkpoint that is open.
    ///
    /// # Errors
    /// As [`Transcriber::open`].
    pub fn start(checkpoint: Checkpoint, options: &RuntimeOptions) -> Result<Transcriber, Error> {
        let model = describe(&checkpoint)?;
        let arch = architecture(&checkpoint, &model)?;
        let Some(mels) = arch.audio_encoder().map(|encoder| encoder.mels) else {
            return Err(Error::NoEar { path: checkpoint.location().to_string() });
        };
        let front = FrontEnd::whisper(usize::try_from(mels).unwrap_or(usize::MAX));
        check_filters(&checkpoint, front)?;
        let started = Starting::new(&checkpoint, &model, &arch, options).start()?;
        let Started { loaded, layout, isa, pool, tokenizer, kept } = started;
        let tokenizer = tokenizer?;
        let speech = speech::Transcriber::of(&checkpoint, &arch, &tokenizer, options.kv_kind())?;
        let shared = Arc::new(engine::Model::new(&loaded, arch)?);
        let runner = Runner::new(&shared, options.backend_of(pool, isa, &shared)?)?;
        let report = loaded.report().clone();
        Ok(Transcriber { checkpoint, model, report, layout, runner, tokenizer, speech, front, kept })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The costs of loading.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The layout that the slots have.
    pub fn layout(&self) -> LayoutKind {
        self.layout
    }

    /// The backend's name.
    pub fn backend(&self) -> String {
        self.runner.backend()
    }

    /// Whether the parameters lie in a copy that an earlier start has left.
    pub fn is_from_cache(&self) -> bool {
        self.kept.is_used()
    }

    /// Bytes of the copy that will be built beside what follows; `None` if an earlier process began it.
    pub fn first_copy(&self) -> Option<u64> {
        self.kept.first_bytes()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The languages that the model knows, by code; empty for one of English alone.
    pub fn languages(&self) -> impl Iterator<Item = &'static str> {
        self.speech.markers().languages.iter().map(|(code, _)| *code)
    }

    /// Transcribes a whole sound.
    ///
    /// # Errors
    /// If the sound cannot be read to its end, or the options do not fit the model.
    pub fn transcribe(&mut self, sound: Sound, options: &SpeechOptions) -> Result<Transcript, Error> {
        let heard = self.hear(sound)?;
        if let Some(error) = heard.ended {
            return Err(error.into());
        }
        self.transcribe_heard(&heard, options, &mut |_| ControlFlow::Continue(()))
    }

    /// Hears sounds, on any thread.
    pub fn ear(&self) -> Ear {
        Ear { front: self.front }
    }

    /// Reads a sound to its end. One whose file ends too early or is damaged is heard as far as it goes, and
    /// [`Heard::ended`] says so.
    ///
    /// # Errors
    /// If nothing of it can be read.
    pub fn hear(&self, sound: Sound) -> Result<Heard, Error> {
        self.ear().hear(sound, &mut |_| true)
    }

    /// The spectrogram of samples at 16 kHz, of one channel.
    ///
    /// # Errors
    /// If a sample is not finite.
    pub fn hear_samples(&self, samples: &[f32]) -> Result<Heard, Error> {
        self.ear().hear_samples(samples)
    }

    /// Transcribes what was heard, and calls `each` with what is done; it may end the work, and what is done is returned.
    ///
    /// # Errors
    /// If the options do not fit the model, or memory runs out.
    pub fn transcribe_heard(
        &mut self,
        heard: &Heard,
        options: &SpeechOptions,
        each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Transcript, Error> {
        let mut sound = speech::Spectrogram { values: &heard.mel, mels: self.front.mels };
        self.run(&mut sound, options, each)
    }

    /// Transcribes a sound while it comes: each window as soon as it is there, or the sound ends. `sound` says afterwards how it ended.
    ///
    /// Quiet parts are raised to a level below the loudest one of all that was heard so far, and not of the whole sound, so that the text
    /// may differ from that of [`Transcriber::transcribe`].
    ///
    /// # Errors
    /// As [`Transcriber::transcribe_heard`].
    pub fn transcribe_live(
        &mut self,
        sound: &mut Live,
        options: &SpeechOptions,
        each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Transcript, Error> {
        self.run(sound, options, each)
    }

    fn run(
        &mut self,
        sound: &mut dyn speech::Frames,
        options: &SpeechOptions,
        each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Transcript, Error> {
        let kept = &mut self.kept;
        let mut each = |progress: Progress<'_>| {
            let is_text = matches!(progress, Progress::Segment(_) | Progress::Done(_));
            let flow = each(progress);
            if is_text {
                kept.leave();
            }
            flow
        };
        Ok(self.speech.run(&mut self.runner, &self.tokenizer, sound, options, &mut each)?)
    }
}

/// A sound that is heard as it is wanted. Memory does not grow with its length.
pub struct Live(Hearing);

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("first", &self.0.first).finish_non_exhaustive()
    }
}

impl Live {
    /// What there is to say about the sound, without its frames.
    pub fn into_heard(self) -> Heard {
        Heard { mel: vec![], ..self.0.into_heard() }
    }
}

impl speech::Frames for Live {
    fn mels(&self) -> usize {
        self.0.mel.front().mels
    }

    fn copy(&mut self, first: usize, out: &mut [f32]) -> usize {
        let (mels, hearing) = (self.mels(), &mut self.0);
        while hearing.frames.len() < (first - hearing.first) * mels + out.len() && hearing.step(&mut |_| true)
        {
        }
        let past = (first - hearing.first).min(hearing.frames.len() / mels);
        hearing.frames.drain(..past * mels);
        hearing.first += past;
        let there = &hearing.frames[..hearing.frames.len().min(out.len())];
        let out = &mut out[..there.len()];
        out.copy_from_slice(there);
        audio::scale(out, hearing.maximum.max(hearing.mel.maximum()));
        out.len() / mels
    }
}

/// A sound on its way to frames.
struct Hearing {
    sound: Sound,
    resampler: Resampler,
    mel: LogMel,
    /// `[frames, mels]`, not scaled.
    frames: Vec<f32>,
    /// The number of the first of them.
    first: usize,
    block: Vec<f32>,
    samples: Vec<f32>,
    /// Samples at 16 kHz so far.
    count: usize,
    /// The greatest value of all frames, once the sound has ended.
    maximum: f32,
    /// The fault at which it ended.
    fault: Option<audio::Error>,
    has_ended: bool,
}

impl Hearing {
    fn new(sound: Sound, front: FrontEnd) -> Result<Hearing, Error> {
        let (resampler, mel) = (Resampler::new(sound.rate(), front.rate)?, LogMel::new(front)?);
        Ok(Hearing {
            sound,
            resampler,
            mel,
            frames: vec![],
            first: 0,
            block: vec![],
            samples: vec![],
            count: 0,
            maximum: f32::NEG_INFINITY,
            fault: None,
            has_ended: false,
        })
    }

    /// Hears the next block, and returns whether there may be more. `goes_on` gets the seconds that were read; if it says false, the sound
    /// ends there.
    fn step(&mut self, goes_on: &mut dyn FnMut(f64) -> bool) -> bool {
        if self.has_ended {
            return false;
        }
        let more = self.sound.read(&mut self.block);
        self.resampler.push(&self.block, &mut self.samples);
        let more = more.unwrap_or_else(|error| {
            self.fault = Some(error);
            false
        });
        self.has_ended = !(more && goes_on(self.sound.read_seconds()));
        if self.has_ended {
            self.resampler.finish(&mut self.samples);
        }
        self.mel.push(&self.samples, &mut self.frames);
        self.count += self.samples.len();
        self.block.clear();
        self.samples.clear();
        if self.has_ended {
            let front = self.mel.front();
            self.maximum = self.mel.finish(WINDOW * front.rate as usize, &mut self.frames);
            // The silence after the sound counted for its last frame and for the maximum.
            let of_sound = (self.count / front.hop).saturating_sub(self.first);
            self.frames.truncate(of_sound * front.mels);
        }
        !self.has_ended
    }

    fn into_heard(self) -> Heard {
        Heard {
            mel: self.frames,
            seconds: self.count as f64 / f64::from(self.mel.front().rate),
            damaged: self.sound.damaged_seconds(),
            ended: self.fault,
        }
    }
}

impl Ear {
    /// Reads a sound to its end. One whose file ends too early or is damaged is heard as far as it goes, and
    /// [`Heard::ended`] says so.
    ///
    /// `goes_on` gets the seconds that were read, after each block; if it says false, the sound ends there.
    ///
    /// # Errors
    /// If nothing of it can be read.
    pub fn hear(&self, sound: Sound, goes_on: &mut dyn FnMut(f64) -> bool) -> Result<Heard, Error> {
        let mut hearing = Hearing::new(sound, self.front)?;
        while hearing.step(goes_on) {}
        let (maximum, count) = (hearing.maximum, hearing.count);
        let mut heard = hearing.into_heard();
        audio::scale(&mut heard.mel, maximum);
        match heard.ended.take_if(|_| count == 0) {
            Some(error) => Err(error.into()),
            None => Ok(heard),
        }
    }

    /// Hears a sound as it is wanted.
    ///
    /// # Errors
    /// If its rate is none that can be changed to the model's.
    pub fn live(&self, sound: Sound) -> Result<Live, Error> {
        Ok(Live(Hearing::new(sound, self.front)?))
    }

    /// The spectrogram of samples at 16 kHz, of one channel.
    ///
    /// # Errors
    /// If a sample is not finite.
    pub fn hear_samples(&self, samples: &[f32]) -> Result<Heard, Error> {
        if let Some(at) = samples.iter().position(|x| !x.is_finite()) {
            let what = format!("sample {at} is {}", samples[at]);
            return Err(audio::Error::Misuse { what }.into());
        }
        let mut mel = LogMel::new(self.front)?;
        let mut heard = Heard::default();
        mel.push(samples, &mut heard.mel);
        self.finish(mel, samples.len(), &mut heard);
        Ok(heard)
    }

    fn finish(&self, mut mel: LogMel, count: usize, heard: &mut Heard) {
        let maximum = mel.finish(WINDOW * self.front.rate as usize, &mut heard.mel);
        audio::scale(&mut heard.mel, maximum);
        // The silence after the sound counted for its last frame and for the maximum.
        heard.mel.truncate(count / self.front.hop * self.front.mels);
        heard.seconds = count as f64 / f64::from(self.front.rate);
    }
}

/// Whether the filters that a file of whisper.cpp holds are those that spectrograms are made with here.
fn check_filters(checkpoint: &Checkpoint, front: FrontEnd) -> Result<(), Error> {
    let Metadata::Openai(openai) = checkpoint.metadata() else { return Ok(()) };
    let Some(filters) = openai.filters() else { return Ok(()) };
    let mel = LogMel::new(front)?;
    let bins = usize::try_from(filters.frequencies).unwrap_or(usize::MAX).max(1);
    let bands = filters.factors.chunks(bins).enumerate();
    let mut factors =
        bands.flat_map(|(band, factors)| factors.iter().enumerate().map(move |(bin, x)| (band, bin, *x)));
    let other = factors.find(|(band, bin, found)| (f64::from(*found) - mel.factor(*band, *bin)).abs() > 1e-6);
    let path = || checkpoint.location().to_string();
    if filters.bands != front.mels as u64 || bins != front.fft / 2 + 1 {
        let what = format!(
            "{} bands of {bins} frequencies, wanted {} of {}",
            filters.bands,
            front.mels,
            front.fft / 2 + 1
        );
        return Err(Error::Filters { path: path(), what });
    }
    match other {
        Some((band, bin, found)) => {
            let wanted = mel.factor(band, bin);
            let what = format!("{found} for frequency {bin} in band {band}, wanted {wanted}");
            Err(Error::Filters { path: path(), what })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use engine::speech::Frames as _;

    /// A wav of 16-bit samples at 22.05 kHz: noise that is loudest at its start.
    fn noise(seconds: usize) -> Sound {
        let mut state = 1u32;
        let samples = (0..seconds * 22_050).map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [_, _, low, high] = state.to_le_bytes();
            i16::from_le_bytes([low, high]) / if i < 2_000 { 1 } else { 10 }
        });
        let data: Vec<u8> = samples.flat_map(|sample: i16| sample.to_le_bytes()).collect();
        let mut wav = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        for number in [22_050u32, 44_100] {
            wav.extend(number.to_le_bytes());
        }
        wav.extend(b"\x02\0\x10\0data\xff\xff\xff\xff");
        wav.extend(data);
        Sound::open(Box::new(Cursor::new(wav))).unwrap()
    }

    #[test]
    fn frames_are_the_same_as_they_come_and_of_the_whole() {
        let ear = Ear { front: FrontEnd::whisper(80) };
        let wanted = ear.hear(noise(75), &mut |_| true).unwrap();
        assert_eq!(wanted.mel.len(), 7_500 * 80);
        let mut live = ear.live(noise(75)).unwrap();
        let mut window = vec![0.0; 3_000 * 80];
        for (first, there) in
            [(0, 3_000), (0, 3_000), (2_713, 3_000), (5_000, 2_500), (7_499, 1), (7_500, 0), (9_000, 0)]
        {
            assert_eq!(live.copy(first, &mut window), there, "{first}");
            let same = window[..there * 80].iter().zip(wanted.mel.iter().skip(first * 80));
            assert!(same.clone().all(|(a, b)| a.to_bits() == b.to_bits()), "{first}");
            // What is past is not kept.
            assert!(live.0.frames.len() <= 3_100 * 80, "{first}: {}", live.0.frames.len());
        }
        let heard = live.into_heard();
        assert!((heard.seconds - wanted.seconds).abs() < 1e-9 && heard.mel.is_empty());
    }
}

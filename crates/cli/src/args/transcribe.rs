//! `transcribe`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::RuntimeOptions;
use weighbridge::transcriber::{DecodeOptions, SpeechOptions, Task};

use super::KvArg;
use super::engine::StartArgs;
use super::number::whole;
use crate::failure::Failure;

/// `transcribe`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The text is that of Whisper's reference: windows of 30 seconds, each after the text of those before, decoded at temperature 0, \
    and at higher ones while a text repeats itself or is unlikely. wav, flac, ogg (Vorbis) and mp3 are read, of any rate and number of \
    channels; others are converted first, as by `ffmpeg -i talk.m4a talk.wav`.\n\n\
    Examples:\n  \
    weighbridge transcribe whisper-base/ talk.flac                          the text\n  \
    weighbridge transcribe whisper-base/ talk.mp3 --format srt -o talk.srt  subtitles\n  \
    weighbridge transcribe whisper-base/ talk.wav --words --json            each word with its times\n  \
    ffmpeg -i talk.m4a -f wav - | weighbridge transcribe whisper-base/ -    from a pipe\n  \
    arecord -f cd | weighbridge transcribe whisper-base/ - --live           while it is said"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct TranscribeArgs {
    /// A checkpoint of Whisper
    pub(crate) path: PathBuf,
    /// Sound files; `-` reads standard input
    #[arg(required = true, value_name = "SOUND")]
    pub(crate) sounds: Vec<PathBuf>,
    /// The language, by its name or code [default: the likeliest of the first 30 seconds]
    #[arg(long, short, value_name = "LANGUAGE")]
    language: Option<String>,
    /// Write English, whatever the language is
    #[arg(long)]
    translate: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = FormArg::Text)]
    format: FormArg,
    /// Transcribe while the sound comes, as from a microphone: each 30 seconds as soon as they are there. The text may differ from that of
    /// the whole sound, since the loudest part of it is not known yet
    #[arg(long)]
    pub(crate) live: bool,
    /// Find the times of each word. Subtitles have a cue for each then
    #[arg(long)]
    words: bool,
    /// Write to FILE
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the transcript of DIR/NAME.wav to NAME.txt in this directory; srt and vtt have these endings
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,
    /// A text before the sound: names and words that may come
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Transcribe each window without the text of those before it: slips are not carried on
    #[arg(long)]
    no_context: bool,
    /// Take one segment a window, without times from the model
    #[arg(long, conflicts_with = "words")]
    no_times: bool,
    /// Texts that are kept at each step of the search; 1 takes the likeliest token
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole(1u16, Some(32u16)))]
    beams: u16,
    /// Texts that are sampled at temperatures above 0, of which the likeliest is taken
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole(1u16, Some(32u16)))]
    best_of: u16,
    /// The temperatures that a window is decoded at, until its text looks right
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "0,0.2,0.4,0.6,0.8,1", value_parser = temperature)]
    temperature: Vec<f32>,
    /// Of what is sampled
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How keys and values are kept [default: f16; f32 for the reference backend]
    #[arg(long, value_enum)]
    kv: Option<KvArg>,
    #[command(flatten)]
    start: StartArgs,
    /// Print one JSON document when done: segments, words, and what they took
    #[arg(long, conflicts_with_all = ["format", "out_dir"])]
    pub(crate) json: bool,
}

/// The form of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    /// A line for each segment
    #[value(alias = "txt")]
    Text,
    /// Subtitles of SubRip
    Srt,
    /// Subtitles of WebVTT
    Vtt,
}

impl FormArg {
    /// The ending of such a file.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            FormArg::Text => "txt",
            FormArg::Srt => "srt",
            FormArg::Vtt => "vtt",
        }
    }
}

impl TranscribeArgs {
    /// How the model is started.
    pub(crate) fn runtime(&self) -> Result<RuntimeOptions, Failure> {
        Ok(RuntimeOptions { kv: self.kv.map(KvArg::kind), ..self.start.options()? })
    }

    /// How sounds are transcribed.
    pub(crate) fn options(&self) -> SpeechOptions {
        SpeechOptions {
            language: self.language.clone(),
            task: if self.translate { Task::Translate } else { Task::Transcribe },
            decode: DecodeOptions {
                beams: self.beams.into(),
                best_of: self.best_of.into(),
                ..DecodeOptions::default()
            },
            temperatures: self.temperature.clone(),
            continues: !self.no_context,
            prompt: self.prompt.clone(),
            times: !self.no_times,
            words: self.words,
            seed: self.seed,
            ..SpeechOptions::default()
        }
    }

    /// The form of the output.
    pub(crate) fn form(&self) -> FormArg {
        self.format
    }
}

/// A temperature.
fn temperature(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        Ok(t) if (0.0..=5.0).contains(&t) => Ok(t),
        _ => Err("wanted numbers from 0 to 5, as 0,0.2,0.4".to_owned()),
    }
}

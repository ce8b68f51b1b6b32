//! `/v1/audio/transcriptions` and `/v1/audio/translations`: the text of speech, in OpenAI's shapes.
//!
//! Source: openai-python 3.57, `openai/types/audio/transcription*.py`.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use weighbridge::transcriber::Task as SpeechTask;
use weighbridge::transcriber::{Segment, SpeechOptions, Subtitles, Transcript, language_name};

use crate::fields::Fields;
use crate::form::form;
use crate::refusal::Refusal;
use crate::speech::{Hearing, News, Sounds};
use crate::stream::{Events, Flow, Kind, streamed};

pub(crate) async fn transcribe(sounds: State<Arc<Sounds>>, request: Request) -> Result<Response, Refusal> {
    answer(sounds, request, false).await
}

pub(crate) async fn translate(sounds: State<Arc<Sounds>>, request: Request) -> Result<Response, Refusal> {
    answer(sounds, request, true).await
}

async fn answer(
    State(sounds): State<Arc<Sounds>>,
    request: Request,
    is_translated: bool,
) -> Result<Response, Refusal> {
    // Before the body is read: what waits is in memory.
    let place = sounds.places(1)?;
    let mut form = form(&sounds, request, sounds.options.sound, &sounds.memory).await?;
    let asked = Asked::read(&mut form.fields, &sounds, is_translated);
    form.fields.end()?;
    asked.model.as_deref().map_or(Ok(()), |name| sounds.is_served(name))?;
    let Asked { file, shape, stream, options, .. } = asked;
    let hearing = sounds.hear(file, form.memory, place, options).await?;
    if stream {
        return Ok(streamed(
            hearing.news,
            Told { text: String::new(), seconds: hearing.seconds },
            Kind::Events,
        ));
    }
    let Hearing { seconds, mut news } = hearing;
    let transcript = loop {
        match news.recv().await {
            Some(News::Said(_)) => {}
            Some(News::Ended(transcript)) => break transcript,
            Some(News::Failed(why)) => return Err(why),
            None => return Err(Refusal::failed("the engine has ended")),
        }
    };
    Ok(shape.response(transcript, seconds, is_translated))
}

/// A request.
pub(crate) struct Asked {
    model: Option<String>,
    file: Bytes,
    shape: Shape,
    stream: bool,
    options: SpeechOptions,
}

/// The form of a transcript.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Json,
    Text,
    Subtitles(Subtitles),
    Verbose { segments: bool, words: bool },
}

impl Asked {
    pub(crate) fn read(fields: &mut Fields, sounds: &Sounds, is_translated: bool) -> Asked {
        let file = fields.file("file");
        fields.needed("file", file.as_slice(), "wanted a sound file (wav, flac, ogg or mp3)");
        let stream = fields.flag("stream").unwrap_or(false);
        let mut shape = shape(fields);
        let times = fields.texts(TIMES, 2, 16);
        if let Some(times) = times {
            let has = |name: &str| times.iter().any(|time| time == name);
            if times.iter().any(|time| time != "segment" && time != "word") {
                fields.problem(TIMES, "wanted `segment` or `word`, or both");
            }
            if let Shape::Verbose { segments, words } = &mut shape {
                (*segments, *words) = (has("segment"), has("word"));
            } else {
                fields.problem(TIMES, "only with `response_format`: `verbose_json`");
            }
        }
        if stream && !matches!(shape, Shape::Json | Shape::Text) {
            fields.problem("stream", "only with `response_format`: `json` or `text`");
        }
        let language = fields.text("language");
        if let Some(name) = language.as_deref().filter(|name| !sounds.knows(name)) {
            let shown: String = name.chars().take(60).collect();
            fields.problem(
                "language",
                &format!("the model does not know the language `{shown}`: wanted a code such as `en`"),
            );
        }
        if is_translated && sounds.languages.is_empty() {
            fields.problem("model", "the model knows English alone: it cannot translate");
        }
        let temperature = fields.number("temperature", "a number from 0 to 1", |x| (0.0..=1.0).contains(&x));
        let usual = SpeechOptions::default();
        fields.only("include[]", &[json!([])], "is not supported here");
        fields.only("chunking_strategy", &[json!("auto")], "wanted `auto`: the model's own windows");
        let options = SpeechOptions {
            // A model of English alone has no name for it.
            language: language.filter(|_| !sounds.languages.is_empty()),
            task: if is_translated { SpeechTask::Translate } else { SpeechTask::Transcribe },
            // At 0, higher ones are tried where the text looks wrong.
            temperatures: temperature.filter(|t| *t > 0.0).map_or(usual.temperatures.clone(), |t| vec![t]),
            prompt: fields.text("prompt").filter(|prompt| !prompt.is_empty()),
            words: matches!(shape, Shape::Verbose { words: true, .. }),
            seed: fields.whole("seed", i64::MIN, i64::MAX).map_or(0, i64::cast_unsigned),
            ..usual
        };
        Asked { model: fields.text("model"), file: file.unwrap_or_default(), shape, stream, options }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const SRT: &str = "application/x-subrip; charset=utf-8";
const VTT: &str = "text/vtt; charset=utf-8";
/// The content types of transcripts that are not JSON.
pub(crate) const KINDS: [&str; 3] = [TEXT, SRT, VTT];

const TIMES: &str = "timestamp_granularities[]";

fn shape(fields: &mut Fields) -> Shape {
    match fields.text("response_format").as_deref() {
        None | Some("json") => Shape::Json,
        Some("text") => Shape::Text,
        Some("srt") => Shape::Subtitles(Subtitles::Srt),
        Some("vtt") => Shape::Subtitles(Subtitles::Vtt),
        Some("verbose_json") => Shape::Verbose { segments: true, words: false },
        Some(_) => {
            fields.problem("response_format", "wanted `json`, `text`, `srt`, `verbose_json` or `vtt`");
            Shape::Json
        }
    }
}

impl Shape {
    fn response(self, transcript: Transcript, seconds: f64, is_translated: bool) -> Response {
        let text = || transcript.text().trim().to_owned();
        let plain = |kind, text: String| {
            ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
        };
        match self {
            Shape::Json => {
                axum::Json(Transcribed::Json(Spoken { text: text(), usage: Duration::of(seconds) }))
                    .into_response()
            }
            Shape::Text => plain(TEXT, text() + "\n"),
            Shape::Subtitles(form) => {
                let mut all = form.head().to_owned();
                for (i, Segment { start, end, text, .. }) in transcript.segments.iter().enumerate() {
                    all.push_str(&form.cue(i + 1, *start, *end, text));
                }
                let kind = if form == Subtitles::Srt { SRT } else { VTT };
                plain(kind, all)
            }
            Shape::Verbose { segments, words } => {
                let text = text();
                let code = transcript.language.unwrap_or("en");
                let word = |word: &weighbridge::transcriber::Word| VerboseWord {
                    word: word.text.trim().to_owned(),
                    start: word.start,
                    end: word.end,
                };
                let all_words =
                    || transcript.segments.iter().flat_map(|segment| &segment.words).map(word).collect();
                let words = words.then(all_words);
                axum::Json(Transcribed::Verbose(VerboseTranscript {
                    task: if is_translated { "translate" } else { "transcribe" },
                    language: language_name(code).unwrap_or(code).to_lowercase(),
                    duration: seconds,
                    text,
                    words,
                    segments: segments.then(|| {
                        transcript.segments.into_iter().enumerate().map(VerboseSegment::of).collect()
                    }),
                    usage: Duration::of(seconds),
                }))
                .into_response()
            }
        }
    }
}

/// A transcript as a stream of events.
struct Told {
    text: String,
    seconds: f64,
}

impl Flow for Told {
    type News = News;

    fn take(&mut self, news: Option<News>, events: &mut Events) -> ControlFlow<()> {
        let why = match news {
            Some(News::Said(segment)) => {
                // The text before has no space at its end.
                let delta = if self.text.is_empty() { segment.text.trim_start() } else { &segment.text };
                self.text.push_str(delta);
                events.add(&json!({"type": "transcript.text.delta", "delta": delta}));
                return ControlFlow::Continue(());
            }
            Some(News::Ended(_)) => {
                let usage = Duration::of(self.seconds);
                events.add(&json!({"type": "transcript.text.done", "text": self.text, "usage": usage}));
                events.text("[DONE]");
                return ControlFlow::Break(());
            }
            Some(News::Failed(why)) => why,
            None => Refusal::failed("the engine has ended"),
        };
        events.add(&why.body());
        ControlFlow::Break(())
    }
}

/// A transcript in JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Transcribed {
    Json(Spoken),
    Verbose(VerboseTranscript),
}

/// `response_format` `json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Spoken {
    text: String,
    usage: Duration,
}

/// The length of the sound, in seconds.
#[derive(Debug, Serialize, JsonSchema)]
struct Duration {
    #[serde(rename = "type")]
    kind: &'static str,
    seconds: u64,
}

impl Duration {
    fn of(seconds: f64) -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let seconds = seconds.ceil() as u64;
        Duration { kind: "duration", seconds }
    }
}

/// A transcript with times: `response_format` `verbose_json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerboseTranscript {
    task: &'static str,
    /// The English name of the language, in lower case.
    language: String,
    /// Seconds.
    duration: f64,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<Vec<VerboseWord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<VerboseSegment>>,
    usage: Duration,
}

#[derive(Debug, Serialize, JsonSchema)]
struct VerboseWord {
    word: String,
    start: f64,
    end: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct VerboseSegment {
    id: usize,
    /// Where its window begins, in frames of 10 ms; here where it begins itself.
    seek: u64,
    start: f64,
    end: f64,
    text: String,
    tokens: Vec<u32>,
    temperature: f32,
    avg_logprob: f32,
    compression_ratio: f32,
    no_speech_prob: f32,
}

impl VerboseSegment {
    fn of((id, segment): (usize, Segment)) -> VerboseSegment {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let seek = (segment.start * 100.0) as u64;
        VerboseSegment {
            id,
            seek,
            start: segment.start,
            end: segment.end,
            text: segment.text,
            tokens: segment.tokens,
            temperature: segment.temperature,
            avg_logprob: segment.mean_log_probability,
            compression_ratio: segment.compression,
            no_speech_prob: segment.no_speech,
        }
    }
}

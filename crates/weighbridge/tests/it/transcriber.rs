//! A real Whisper: transcripts, times of segments and words are those of OpenAI's own program, in whatever form the model comes.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use weighbridge::convert::OutputFormat;
use weighbridge::planner::{Encoding, Preset};
use weighbridge::transcriber::{
    DecodeOptions, Progress, Sound, SpeechOptions, Task, Transcriber, Transcript,
};
use weighbridge::{Error, Runtime, RuntimeOptions};

use crate::golden;

fn model() -> std::path::PathBuf {
    testkit::model("whisper-base")
}

fn sound(name: &str) -> Sound {
    let file = File::open(testkit::golden("whisper").join(name)).unwrap();
    Sound::open(Box::new(file)).unwrap()
}

fn facts() -> Value {
    serde_json::from_slice(&std::fs::read(testkit::golden("whisper").join("said.json")).unwrap()).unwrap()
}

fn options() -> RuntimeOptions {
    RuntimeOptions { threads: Some(2), ..RuntimeOptions::default() }
}

/// Whether two numbers are as near as `most`.
fn near(a: f64, b: &Value, most: f64) -> bool {
    (a - b.as_f64().unwrap()).abs() <= most
}

fn same(found: &Transcript, wanted: &Value, words: bool, what: &str) {
    let wanted = wanted.as_array().unwrap();
    let texts: Vec<&str> = found.segments.iter().map(|s| &*s.text).collect();
    assert_eq!(texts, wanted.iter().map(|s| s["text"].as_str().unwrap()).collect::<Vec<_>>(), "{what}");
    for (found, wanted) in found.segments.iter().zip(wanted) {
        let tokens: Vec<u32> = serde_json::from_value(wanted["tokens"].clone()).unwrap();
        assert_eq!(found.tokens, tokens, "{what}");
        assert!(near(found.mean_log_probability.into(), &wanted["avg_logprob"], 0.01), "{what}: {found:?}");
        // Another implementation of zlib.
        assert!(near(found.compression.into(), &wanted["compression_ratio"], 0.05), "{what}: {found:?}");
        assert!(near(found.no_speech.into(), &wanted["no_speech_prob"], 0.01), "{what}: {found:?}");
        assert!(near(found.temperature.into(), &wanted["temperature"], 0.0), "{what}: {found:?}");
        if !words {
            continue;
        }
        // Words begin and end where a path through attention turns; a step is 0.02 s.
        assert!(
            near(found.start, &wanted["start"], 0.08) && near(found.end, &wanted["end"], 0.08),
            "{what}: {found:?} {wanted}"
        );
        let wanted = wanted["words"].as_array().unwrap();
        assert_eq!(found.words.len(), wanted.len(), "{what}");
        for (word, wanted) in found.words.iter().zip(wanted) {
            assert_eq!(word.text, wanted[0].as_str().unwrap(), "{what}");
            assert!(
                near(word.start, &wanted[1], 0.08) && near(word.end, &wanted[2], 0.08),
                "{what}: {word:?}"
            );
            assert!(near(word.probability.into(), &wanted[3], 0.02), "{what}: {word:?} {wanted}");
        }
    }
}

#[test]
fn transcripts_are_those_of_the_reference() {
    let facts = facts();
    let mut transcriber = Transcriber::open(model(), &options()).unwrap();
    assert_eq!(transcriber.languages().count(), 99);
    for said in facts["sounds"].as_array().unwrap() {
        let (file, language) = (said["file"].as_str().unwrap(), said["language"].as_str().unwrap());
        let heard = transcriber.hear(sound(file)).unwrap();
        for (task, name) in [(Task::Transcribe, "transcribe"), (Task::Translate, "translate")] {
            for beams in [1, 5] {
                let options = SpeechOptions {
                    language: Some(language.to_owned()),
                    task,
                    decode: DecodeOptions { beams, ..DecodeOptions::default() },
                    words: task == Task::Transcribe,
                    ..SpeechOptions::default()
                };
                let mut seen = vec![];
                let found = transcriber.transcribe_heard(&heard, &options, &mut |news| {
                    if let Progress::Segment(segment) = news {
                        seen.push(segment.clone());
                    }
                    ControlFlow::Continue(())
                });
                let found = found.unwrap();
                assert_eq!((found.language, &seen), (Some(language), &found.segments));
                let wanted = &said["transcripts"][format!("{name}-{beams}")];
                same(&found, wanted, options.words, &format!("{file}, {name}, {beams} beams"));
            }
        }
    }
    // Without being told, it hears the language. The reference hears the silence after the sound then, and leaves it out where it
    // transcribes; this hears both the same, as faster-whisper does, and so once.
    let found = transcriber.transcribe(sound("said-en.flac"), &SpeechOptions::default()).unwrap();
    assert_eq!(found.language, Some("en"));
    assert!(near(found.language_probability.unwrap().into(), &facts["sounds"][0]["probability"], 0.06));
}

/// The text of `said-en.flac` with all that is greedy.
fn said(model: &Path, options: &RuntimeOptions) -> Transcript {
    let options_of = SpeechOptions {
        language: Some("English".to_owned()),
        decode: DecodeOptions { beams: 1, ..DecodeOptions::default() },
        ..SpeechOptions::default()
    };
    Transcriber::open(model, options).unwrap().transcribe(sound("said-en.flac"), &options_of).unwrap()
}

#[test]
fn eight_bits_say_the_same() {
    let wanted = &facts()["sounds"][0]["transcripts"]["transcribe-1"];
    let encoding = Encoding { preset: Preset::named("q8_0"), ..Encoding::default() };
    let found = said(&model(), &RuntimeOptions { encoding, ..options() });
    let texts: Vec<&str> = found.segments.iter().map(|s| &*s.text).collect();
    assert_eq!(
        texts,
        wanted.as_array().unwrap().iter().map(|s| s["text"].as_str().unwrap()).collect::<Vec<_>>()
    );
}

#[test]
fn what_has_no_speech_in_it_has_no_text_or_little() {
    let mut transcriber = Transcriber::open(model(), &options()).unwrap();
    let greedy = SpeechOptions {
        language: Some("en".to_owned()),
        decode: DecodeOptions { beams: 1, ..DecodeOptions::default() },
        temperatures: vec![0.0],
        ..SpeechOptions::default()
    };
    let mut run = |samples: &[f32]| {
        let heard = transcriber.hear_samples(samples)?;
        transcriber.transcribe_heard(&heard, &greedy, &mut |_| ControlFlow::Continue(()))
    };
    for silence in [vec![], vec![0.0; 100], vec![0.0; 16_000 * 3]] {
        assert_eq!(run(&silence).unwrap().segments, [], "{} samples", silence.len());
    }
    // Noise is no speech; whatever is found ends where it ends.
    let mut random = testkit::Rng(7);
    let noise: Vec<f32> = (0..16_000 * 4).map(|_| (random.below(1000) as f32 / 1000.0 - 0.5) * 0.2).collect();
    for segment in run(&noise).unwrap().segments {
        assert!(segment.start >= 0.0 && segment.end <= 30.0, "{segment:?}");
    }
    let error = run(&[0.0, f32::NAN]).unwrap_err();
    assert!(matches!(error, Error::Sound(_)), "{error}");
    assert_eq!(error.to_string(), "sample 1 is NaN");
}

#[test]
fn a_model_of_speech_and_one_of_text_are_told_apart() {
    let Err(error) = Runtime::start(model(), &options()) else { panic!("wanted an error") };
    assert!(matches!(error, Error::Hears { .. }), "{error}");
    assert_eq!(error.hints(), ["transcribe with it, as a `Transcriber` does"]);
    let Err(error) = Transcriber::open(golden().join("llama-tiny"), &options()) else {
        panic!("wanted an error")
    };
    assert!(matches!(error, Error::NoEar { .. }), "{error}");
    let mut transcriber = Transcriber::open(model(), &options()).unwrap();
    let wrong = SpeechOptions { language: Some("Germam".to_owned()), ..SpeechOptions::default() };
    let error = transcriber.transcribe(sound("said-en.flac"), &wrong).unwrap_err();
    assert_eq!(error.to_string(), "the model does not know the language `Germam`");
    assert_eq!(error.hints(), ["the nearest is `german`"]);
}

#[test]
fn a_directory_of_transformers_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let hf = dir.path().join("hf");
    crate::forms::to_hf_losing(&[], &model(), &hf);
    let wanted = &facts()["sounds"][0]["transcripts"]["transcribe-1"];
    same(&said(&hf, &options()), wanted, false, "hf");
    // A spectrogram of other bands would be heard as something else.
    let file = hf.join("preprocessor_config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["hop_length"] = 80.into();
    json["feature_size"] = 128.into();
    std::fs::write(&file, json.to_string()).unwrap();
    let Err(error) = Transcriber::open(&hf, &options()) else { panic!("wanted an error") };
    let wanted = "`preprocessor_config.json` describes another spectrogram than is made here\n  \
                  `feature_size`: wanted 80, found 128\n  `hop_length`: wanted 160, found 80";
    assert_eq!(error.to_string(), wanted);
    // And tokens of other numbers would be taken for others.
    std::fs::remove_file(&file).unwrap();
    let file = hf.join("generation_config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["no_timestamps_token_id"] = 50_362.into();
    std::fs::write(&file, json.to_string()).unwrap();
    let Err(error) = Transcriber::open(&hf, &options()) else { panic!("wanted an error") };
    let wanted = "`no_timestamps_token_id` says 50362 for `<|notimestamps|>`, and the tokenizer 50363";
    assert_eq!(error.to_string(), wanted);
}

/// A file of whisper.cpp has no tokenizer.json and no lists of suppressed tokens: what is made of it has both.
#[test]
fn every_form_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = &facts()["sounds"][0]["transcripts"]["transcribe-1"];
    let [ggml, hf, ct2] = ["ggml.bin", "hf", "ct2"].map(|name| dir.path().join(name));
    for (from, to, format) in [
        (&model(), &ggml, OutputFormat::Ggml),
        (&ggml, &hf, OutputFormat::Hf),
        (&ggml, &ct2, OutputFormat::Ctranslate2),
    ] {
        crate::forms::convert(from, to, format, ("", &[]));
        same(&said(to, &options()), wanted, false, format.name());
    }
    let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let (config, source) = (read(&ct2.join("config.json")), read(&model().join("config.json")));
    for key in ["lang_ids", "suppress_ids", "suppress_ids_begin"] {
        assert_eq!(config[key], source[key], "{key}");
    }
    assert_eq!(read(&ct2.join("vocabulary.json")), read(&model().join("vocabulary.json")));
}

/// What is said comes before the sound ends, and is what is said of the whole sound.
#[test]
fn a_sound_is_transcribed_while_it_comes() {
    let mut transcriber = Transcriber::open(model(), &options()).unwrap();
    let options = SpeechOptions { language: Some("en".to_owned()), ..SpeechOptions::default() };
    let wanted = transcriber.transcribe(sound("said-en.flac"), &options).unwrap();
    let mut live = transcriber.ear().live(sound("said-en.flac")).unwrap();
    let mut each = |_: Progress<'_>| ControlFlow::Continue(());
    let found = transcriber.transcribe_live(&mut live, &options, &mut each).unwrap();
    assert_eq!(found, wanted);
    let heard = live.into_heard();
    assert!(heard.mel.is_empty() && heard.ended.is_none() && heard.seconds > 5.0, "{heard:?}");
}

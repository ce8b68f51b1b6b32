//! `transcribe`, as a user sees it.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::{failure, stdout, weighbridge};

const TEXT: &str = "The quick brown fox jump over the lazy dog.\n\
    It was a bright cold day in April, and the clocks were striking 13.\n";

/// The model, and a sound.
fn model_and_sound() -> (String, String) {
    let sound = testkit::golden("whisper").join("said-en.flac");
    (testkit::model("whisper-base").display().to_string(), sound.display().to_string())
}

#[test]
fn what_is_said_is_written_in_every_form() {
    let (model, sound) = model_and_sound();
    let greedy = ["--language", "en", "--beams", "1", "--temperature", "0"];
    let text = weighbridge(["transcribe", &model, &sound].into_iter().chain(greedy));
    assert_eq!(stdout(&text), TEXT);

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display().to_string();
    let files = ["transcribe", &model, &sound, "--format", "srt", "--out-dir", &out];
    assert_eq!(stdout(&weighbridge(files.into_iter().chain(greedy))), "");
    let subtitles = std::fs::read_to_string(dir.path().join("said-en.srt")).unwrap();
    assert!(subtitles.starts_with("1\n00:00:00,000 --> 00:00:03,"), "{subtitles}");
    assert!(subtitles.ends_with("striking 13.\n\n"), "{subtitles}");
    let said = failure(&files, dir.path());
    assert!(said.contains("exists; --force replaces it"), "{said}");

    // From a pipe, in the other form of subtitles, a cue for each word.
    let piped = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["transcribe", &model, "-", "--format", "vtt", "--words"])
        .args(greedy)
        .env("WEIGHBRIDGE_CACHE", crate::NO_CACHE)
        .stdin(File::open(&sound).unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(piped.starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:00."), "{piped}");
    assert_eq!(piped.matches("-->").count(), TEXT.split_whitespace().count(), "{piped}");
}

#[test]
fn what_cannot_be_transcribed_is_named() {
    let (model, sound) = model_and_sound();
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("talk.m4a");
    std::fs::write(&none, b"\0\0\0\x20ftypM4A \0\0\0\0").unwrap();
    let none = none.display().to_string();
    let said = failure(&["transcribe", &model, &none], dir.path());
    assert!(said.contains("cannot read") && said.contains("hint: convert it first: `ffmpeg"), "{said}");
    let said = failure(&["transcribe", &model, &sound, &sound, "--format", "srt"], dir.path());
    assert!(said.contains("give --out-dir DIR") && said.contains("exit code 2"), "{said}");
    let said = failure(&["transcribe", &model, &sound, "-l", "klingon"], dir.path());
    assert!(said.contains("the model does not know the language `klingon`"), "{said}");
    let text = testkit::golden("models/llama-tiny").display().to_string();
    let said = failure(&["transcribe", &text, &sound], dir.path());
    assert!(said.contains("the model does not transcribe: it has no audio encoder"), "{said}");
    let said = failure(&["run", &model, "-p", "hello"], dir.path());
    assert!(said.contains("the model transcribes sounds: it continues no texts"), "{said}");
    assert!(said.contains("weighbridge transcribe"), "{said}");
}

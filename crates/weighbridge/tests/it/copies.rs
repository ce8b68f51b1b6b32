//! Models that transcribe, embed and rank start from the copy that an earlier start has left, and give the same.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weighbridge::embedder::EmbedOptions;
use weighbridge::runtime::CacheMode;
use weighbridge::store::Cache;
use weighbridge::transcriber::{Sound, SpeechOptions};
use weighbridge::{Embedder, Reranker, RuntimeOptions, Transcriber};

/// The model called `name`, left alone for as long as one must be that has a copy: it may have been fetched right now.
fn settled(name: &str) -> PathBuf {
    let path = testkit::model(name);
    std::thread::sleep(Duration::from_millis(2100));
    path
}

fn options(dir: &tempfile::TempDir) -> RuntimeOptions {
    let cache = CacheMode::Write(Cache::new(dir.path().join("ready")));
    RuntimeOptions { threads: Some(2), cache, ..RuntimeOptions::default() }
}

/// Starts again until the copy, which is built beside, is used.
fn again<T>(start: impl Fn() -> T, is_from_cache: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let started = start();
        if is_from_cache(&started) {
            return started;
        }
        assert!(began.elapsed() < Duration::from_mins(2), "there is no copy");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn vectors_are_those_of_a_model_that_was_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let model = settled("minilm");
    let start = || Embedder::open(&model, &options(&dir)).unwrap();
    let texts = ["a cat", "The cat sat on the mat, and nobody knew why.", "Ein Kätzchen"];
    let mut first = start();
    assert!(!first.is_from_cache() && first.first_copy().is_some_and(|bytes| bytes > 1 << 20));
    let wanted = first.embed(&texts, &EmbedOptions::default()).unwrap();
    let mut second = again(start, Embedder::is_from_cache);
    assert_eq!(second.first_copy(), None);
    assert_eq!(second.embed(&texts, &EmbedOptions::default()).unwrap(), wanted);
}

#[test]
fn scores_are_those_of_a_model_that_was_loaded() {
    let dir = tempfile::tempdir().unwrap();
    // Left alone since the checkout, which was before this was compiled.
    let start = || Reranker::open(testkit::golden("embed/rerank/bert"), &options(&dir)).unwrap();
    let texts = ["Jane Austen wrote Emma.", "A cat sits on the mat."];
    let wanted = start().rank("who wrote Emma?", &texts).unwrap();
    let mut second = again(start, Reranker::is_from_cache);
    assert_eq!(second.rank("who wrote Emma?", &texts).unwrap(), wanted);
}

#[test]
fn what_is_said_is_that_of_a_model_that_was_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let model = settled("whisper-base");
    let start = || Transcriber::open(&model, &options(&dir)).unwrap();
    let sound = || {
        let file = File::open(testkit::golden("whisper").join("said-en.flac")).unwrap();
        Sound::open(Box::new(file)).unwrap()
    };
    let said = |transcriber: &mut Transcriber| {
        let english = SpeechOptions { language: Some("en".to_owned()), ..SpeechOptions::default() };
        transcriber.transcribe(sound(), &english).unwrap()
    };
    let wanted = said(&mut start());
    let mut second = again(start, Transcriber::is_from_cache);
    assert_eq!(said(&mut second), wanted);
}

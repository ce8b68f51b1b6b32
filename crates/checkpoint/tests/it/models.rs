//! The real models, and how long it takes to open them.

use std::time::Duration;

use checkpoint::{Io, OpenOptions};
use testkit::model;

use crate::timed;

#[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
fn opens_within(name: &str, limit: Duration) {
    let path = model(name);
    for io in [Io::Mmap, Io::Pread] {
        let options = OpenOptions::with_io(io);
        // The first run warms the page cache; the best of the others is the least disturbed.
        let opened = (0..8).map(|_| timed(|| checkpoint::open_with(&path, &options)));
        let times = opened.map(|(checkpoint, took)| checkpoint.map(|_| took).expect("sound"));
        let best = times.skip(1).min().expect("seven runs");
        println!("{name} {io:?}: {best:?}");
        // Only what is shipped has to be fast, and not under emulation.
        let limit = if cfg!(debug_assertions) || cfg!(not(target_arch = "x86_64")) {
            Duration::from_secs(2)
        } else {
            limit
        };
        assert!(best < limit, "{name} {io:?}: {best:?}");
    }
}

#[test]
fn smollm2_opens_within_5_ms() {
    opens_within("smollm2", Duration::from_millis(5));
}

#[test]
fn gemma3_opens_within_15_ms() {
    opens_within("gemma3", Duration::from_millis(15));
}

#[test]
fn tokens_of_gemma3_are_read_on_demand() {
    let checkpoint = checkpoint::open(model("gemma3")).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    let mut tokens = metadata.strs("tokenizer.ggml.tokens").expect("strings").expect("there");
    assert_eq!(tokens.nth(2).expect("there").expect("UTF-8"), "<bos>");
    assert_eq!(3 + tokens.flatten().count(), 262_144);
    assert_eq!(metadata.f32s("tokenizer.ggml.scores").expect("f32").expect("there").len(), 262_144);
}

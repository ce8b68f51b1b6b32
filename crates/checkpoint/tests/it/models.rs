//! The real models, and how long it takes to open them.

use std::path::PathBuf;
use std::time::Duration;

use checkpoint::{Io, OpenOptions};

use crate::timed;

/// The folder of a model that `cargo xtask models` fetches.
pub(crate) fn folder(name: &str) -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let root = set("WEIGHBRIDGE_MODELS").or_else(|| Some(cache()?.join("weighbridge/models")));
    let root = root.expect("a home directory");
    let path = root.join(name);
    assert!(path.is_dir(), "`{}` is not there: run `cargo xtask models {name}`", path.display());
    path
}

/// The file of a model that is one GGUF file.
pub(crate) fn model(name: &str) -> PathBuf {
    folder(name).join(format!("{name}.gguf"))
}

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
        // Only what is shipped has to be fast.
        let limit = if cfg!(debug_assertions) { Duration::from_secs(2) } else { limit };
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
    let checkpoint = checkpoint::open(&model("gemma3")).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    let mut tokens = metadata.strs("tokenizer.ggml.tokens").expect("strings").expect("there");
    assert_eq!(tokens.nth(2).expect("there").expect("UTF-8"), "<bos>");
    assert_eq!(3 + tokens.flatten().count(), 262_144);
    assert_eq!(metadata.f32s("tokenizer.ggml.scores").expect("f32").expect("there").len(), 262_144);
}

//! What each fuzz target does with its bytes. Anything but a panic is fine: an error, or a checkpoint that keeps its
//! promises. cargo-fuzz calls these, and so do the tests of the workspace, for a bounded time.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audio::{FrontEnd, LogMel, Resampler, Sound};
use checkpoint::{Checkpoint, Io, Name, OpenOptions};
use weighbridge::LayoutKind;
use weighbridge::convert::Imatrix;
use weighbridge::engine::text::{ChatTemplate, EncodeOptions, SpecialText, Tokenizer};
use weighbridge::planner::EncodeRule;
use weighbridge::storage::Memory;

use crate::sound::{assert_dense, assert_sound};

/// A target: what it is called, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("gguf", gguf),
    ("safetensors", safetensors),
    ("index", index),
    ("config", config),
    ("pytorch", pytorch),
    ("npy", npy),
    ("npz", npz),
    ("squish", squish),
    ("ctranslate2", ctranslate2),
    ("ggml", ggml),
    ("audio", audio),
    ("tokenizer", tokenizer),
    ("template", template),
    ("rules", rules),
    ("imatrix", imatrix),
];

/// A GGUF file: opened, described, planned, and its tokenizer made.
pub fn gguf(bytes: &[u8]) {
    file("x.gguf", bytes, |checkpoint| {
        dense(checkpoint);
        if let Ok(tokenizer) = weighbridge::engine::text::tokenizer(checkpoint) {
            there_and_back(&tokenizer);
        }
        let _ = weighbridge::engine::text::chat_template(checkpoint);
    });
}

/// A safetensors file.
pub fn safetensors(bytes: &[u8]) {
    file("x.safetensors", bytes, dense);
}

/// `model.safetensors.index.json` beside two parts.
pub fn index(bytes: &[u8]) {
    let part = |name: &str| {
        let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat()
    };
    directory(&[
        ("config.json", b"{}"),
        ("model-00001-of-00002.safetensors", &part("a")),
        ("model-00002-of-00002.safetensors", &part("b")),
        ("model.safetensors.index.json", bytes),
    ]);
}

/// `config.json` beside the weights of a quantised module.
pub fn config(bytes: &[u8]) {
    let header = concat!(
        r#"{"l.weight":{"dtype":"U32","shape":[8,32],"data_offsets":[0,1024]},"#,
        r#""l.scales":{"dtype":"F16","shape":[8,4],"data_offsets":[1024,1088]},"#,
        r#""l.biases":{"dtype":"F16","shape":[8,4],"data_offsets":[1088,1152]}}"#
    );
    let weights = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 1152]].concat();
    directory(&[("config.json", bytes), ("model.safetensors", &weights)]);
}

/// A PyTorch file: a zip archive, or a pickle of before that.
pub fn pytorch(bytes: &[u8]) {
    file("x.pt", bytes, whole);
}

/// A numpy array.
pub fn npy(bytes: &[u8]) {
    file("x.npy", bytes, dense);
}

/// An archive of numpy arrays.
pub fn npz(bytes: &[u8]) {
    file("x.npz", bytes, dense);
}

/// The manifest of a directory that squish wrote.
pub fn squish(bytes: &[u8]) {
    directory(&[("manifest.json", bytes), ("tensors/.manifest_ready", b""), ("tensors/a__shape.npy", b"")]);
}

/// CTranslate2's `model.bin`.
pub fn ctranslate2(bytes: &[u8]) {
    file("model.bin", bytes, whole);
}

/// A file of whisper.cpp, whose tokens become a tokenizer.
pub fn ggml(bytes: &[u8]) {
    file("ggml-x.bin", bytes, |checkpoint| {
        whole(checkpoint);
        let _ = weighbridge::engine::text::tokenizer(checkpoint);
    });
}

/// A sound, as far as its first minute: decoded, brought to 16 kHz, and made a spectrogram.
pub fn audio(bytes: &[u8]) {
    let front = FrontEnd::whisper(80);
    let Ok(mut sound) = Sound::open(Box::new(Cursor::new(bytes.to_vec()))) else { return };
    let Ok(mut resampler) = Resampler::new(sound.rate(), front.rate) else { return };
    let mut mel = LogMel::new(front).expect("a front end of ours");
    let (mut block, mut samples, mut frames, mut count) = (vec![], vec![], vec![], 0);
    let minute = 60 * front.rate as usize;
    while count < minute && sound.read(&mut block).unwrap_or(false) {
        assert!(block.iter().all(|x| x.is_finite()), "a sample that is no number");
        resampler.push(&block, &mut samples);
        mel.push(&samples, &mut frames);
        count += samples.len();
        block.clear();
        samples.clear();
    }
    mel.finish(0, &mut frames);
    assert!(frames.iter().all(|x| x.is_finite()), "a frame that is no number");
}

/// `tokenizer.json`.
pub fn tokenizer(bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json(bytes, None) {
        there_and_back(&tokenizer);
    }
}

/// A chat template, compiled. What it takes to run one is bounded by the process that runs it.
pub fn template(bytes: &[u8]) {
    let _ = ChatTemplate::new(&String::from_utf8_lossy(bytes));
}

/// `PATTERN=SCHEME`, and a name that may match.
pub fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (rule, name) = text.split_once('\n').unwrap_or((&text, "layers.0.ffn.up.weight"));
    if let Ok(rule) = rule.parse::<EncodeRule>() {
        let _ = rule.matches(name);
        let again = rule.to_string().parse::<EncodeRule>().map(|r| r.to_string());
        assert_eq!(again.ok(), Some(rule.to_string()));
    }
}

/// An importance matrix, of either form.
pub fn imatrix(bytes: &[u8]) {
    in_directory(&[("x.dat", bytes)], |dir| {
        if let Ok(imatrix) = Imatrix::open(dir.join("x.dat")) {
            let _ = imatrix.get("blk.0.ffn_up.weight");
        }
    });
}

/// Opens a file mapped, read and in memory, which must agree.
fn file(name: &str, bytes: &[u8], look: impl Fn(&Checkpoint)) {
    open(&[(name, bytes)], name, look);
}

fn directory(files: &[(&str, &[u8])]) {
    open(files, "", whole);
}

fn open(files: &[(&str, &[u8])], name: &str, look: impl Fn(&Checkpoint)) {
    let named = |name: &str| Name::parse(name).expect("ours are names");
    in_directory(files, |dir| {
        let path = if name.is_empty() { dir.to_owned() } else { dir.join(name) };
        let [mapped, read] =
            [Io::Mmap, Io::Pread].map(|io| checkpoint::open_with(&path, &OpenOptions::with_io(io)));
        let memory = files.iter().fold(Memory::new(dir.display().to_string()), |memory, (name, bytes)| {
            memory.with(named(name), bytes.to_vec())
        });
        let memory = checkpoint::open_from(Arc::new(memory), &named(name), &OpenOptions::default());
        match (mapped, read, memory) {
            (Ok(mapped), Ok(read), Ok(memory)) => {
                assert_sound(&mapped);
                assert_eq!(mapped.entries(), read.entries());
                assert_eq!(mapped.entries(), memory.entries());
                look(&mapped);
            }
            (Err(mapped), Err(read), Err(memory)) => {
                assert_eq!(mapped.to_string(), read.to_string());
                assert_eq!(mapped.to_string(), memory.to_string());
                assert!(read.to_string().len() < 20_000, "a long message");
            }
            (mapped, read, memory) => {
                panic!("mapped: {:?}, read: {:?}, memory: {:?}", mapped.err(), read.err(), memory.err())
            }
        }
    });
}

/// The same, of a format without ties and strides.
fn dense(checkpoint: &Checkpoint) {
    assert_dense(checkpoint);
    whole(checkpoint);
}

/// All that can be said without reading data.
fn whole(checkpoint: &Checkpoint) {
    let _ = checkpoint.ties();
    let _ = weighbridge::planner::plan_as_stored(checkpoint);
    if let Ok(model) = weighbridge::describe(checkpoint) {
        let _ = weighbridge::plan(checkpoint, &model, LayoutKind::Canonical);
    }
}

fn there_and_back(tokenizer: &Tokenizer) {
    for (add_special, parse_special) in [(true, true), (false, false)] {
        let options = EncodeOptions { add_special, parse_special };
        for text in ["", "Hello, wörld!\n  12", "<|im_start|>", " <s> \u{301}İſ<0x41>  "] {
            // The library may refuse a text.
            let Ok(tokens) = tokenizer.encode(text, options) else { continue };
            assert!(tokens.iter().all(|t| (*t as usize) < tokenizer.vocab_size()));
            for special in [SpecialText::Hidden, SpecialText::Shown] {
                let _ = tokenizer.decode(&tokens, special);
                let mut stream = tokenizer.stream(special);
                for token in &tokens {
                    let _ = stream.push(*token);
                }
                let _ = stream.finish();
            }
        }
    }
}

/// Makes files in a directory that is gone after `work`: in memory, where the system has such a place.
fn in_directory(files: &[(&str, &[u8])], work: impl FnOnce(&Path)) {
    struct Gone<'a>(&'a Path);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0);
        }
    }
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = place.join(format!("weighbridge-fuzz-{}-{number}", std::process::id()));
    let _gone = Gone(&dir);
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&dir)).expect("directories are made");
        fs::write(path, bytes).expect("a file is written");
    }
    work(&dir);
}

//! Random tokenizers give what the library from Python gives, or are refused.
//!
//! `golden/tokenizer/random_tokenizers.py` made them, and the digests; it says what goes into these.

use std::collections::BTreeMap;
use std::io::Read;
use testkit::Rng;

use serde_json::Value;
use weighbridge_engine::text::{EncodeOptions, Error, SpecialText, Tokenizer};

use crate::models;

const TEXTS: u64 = 300;

/// The lines of a file of `golden/tokenizer`.
fn lines(name: &str) -> Vec<Value> {
    let golden = testkit::golden("tokenizer");
    let file = std::fs::File::open(golden.join(name)).unwrap();
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn fragments() -> Vec<String> {
    let path = testkit::golden("tokenizer/fragments.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn text(seed: u64, i: u64, fragments: &[String], contents: &[&str]) -> String {
    let mut rng = Rng(seed * 1000 + i);
    let mut out = String::new();
    for _ in 0..rng.below(9) {
        match rng.below(16) {
            0..3 if !contents.is_empty() => out.push_str(contents[rng.index(contents.len())]),
            3 => {
                let c = u32::try_from(rng.below(0x0011_0000 - 0x800)).unwrap();
                out.push(char::from_u32(if c < 0xD800 { c } else { c + 0x800 }).unwrap());
            }
            4 => out.extend(std::iter::repeat_n(' ', 1 + rng.index(3))),
            _ => out.push_str(&fragments[rng.index(fragments.len())]),
        }
    }
    out
}

/// FNV-1a, 64 bits.
struct Digest(u64);

impl Digest {
    fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn ids(&mut self, ids: &[u32]) {
        self.bytes(ids.iter().chain(&[u32::MAX]).flat_map(|id| id.to_le_bytes()));
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.bytes().chain([0xFF]));
    }
}

/// The first field that the file is refused for, without indices.
fn reason(error: &Error) -> String {
    let parts = match error {
        Error::Refused { problems, .. } => problems,
        Error::NeedsLibrary { .. } => return "needs the library".to_owned(),
        other => return other.to_string(),
    };
    parts[0].0.chars().filter(|c| !c.is_ascii_digit()).collect()
}

const ADDED: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };
const BARE: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const TEXT: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

fn digest(tokenizer: &Tokenizer, texts: &[String]) -> Result<u64, Error> {
    let mut digest = Digest(0xCBF2_9CE4_8422_2325);
    for text in texts {
        let ids = tokenizer.encode(text, ADDED)?;
        digest.ids(&ids);
        digest.ids(&tokenizer.encode(text, BARE)?);
        digest.ids(&tokenizer.encode(text, TEXT)?);
        digest.text(&tokenizer.decode(&ids, SpecialText::Hidden)?);
        digest.text(&tokenizer.decode(&ids, SpecialText::Shown)?);
    }
    Ok(digest.0)
}

fn texts(case: &Value, fragments: &[String]) -> Vec<String> {
    let added = case["file"]["added_tokens"].as_array().unwrap();
    let contents: Vec<&str> = added.iter().map(|token| token["content"].as_str().unwrap()).collect();
    let seed = case["seed"].as_u64().unwrap();
    (0..TEXTS).map(|i| text(seed, i, fragments, &contents)).collect()
}

#[test]
fn they_are_equal_or_refused() {
    let fragments = fragments();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    let cases = lines("random/tokenizers.jsonl.zst");
    for case in &cases {
        let wanted = case["digest"].as_str();
        let said = match Tokenizer::from_json(case["file"].to_string().as_bytes(), None) {
            Err(error) => format!("refused: {}", reason(&error)),
            Ok(tokenizer) => {
                let by = if tokenizer.name().starts_with("tokenizers") { "the library" } else { "ours" };
                match digest(&tokenizer, &texts(case, &fragments)) {
                    Err(error) => format!("refused for a text: {error}"),
                    Ok(found) if wanted == Some(&format!("{found:016x}")) => format!("equal: by {by}"),
                    Ok(_) => {
                        wrong.push((case["seed"].as_u64().unwrap(), by, wanted.is_some()));
                        format!("wrong: by {by}")
                    }
                }
            }
        };
        *counts.entry(said).or_default() += 1;
    }
    println!("{} tokenizers, {TEXTS} texts each: {counts:#?}", cases.len());
    assert!(wrong.is_empty(), "seed, by whom, whether the reference takes it: {wrong:?}");
    assert!(counts["equal: by ours"] * 6 > u32::try_from(cases.len()).unwrap());
}

#[test]
fn their_ids_are_those_of_the_full_lists() {
    let fragments = fragments();
    let cases = lines("random/tokenizers.jsonl.zst");
    let full = lines("random/full.jsonl.zst");
    let mut compared = 0;
    for list in &full {
        let case = cases.iter().find(|case| case["seed"] == list["seed"]).unwrap();
        let Ok(tokenizer) = Tokenizer::from_json(case["file"].to_string().as_bytes(), None) else { continue };
        for (text, wanted) in texts(case, &fragments).iter().zip(list["ids"].as_array().unwrap()) {
            let ids = serde_json::to_value(tokenizer.encode(text, ADDED).unwrap()).unwrap();
            assert_eq!(&ids, wanted, "seed {}: {text:?}", list["seed"]);
        }
        compared += 1;
    }
    println!("{compared} of {} compared in full", full.len());
    assert!(compared * 5 > full.len());
}

/// Shapes that our own BPE and WordPiece take.
const OURS: [&str; 8] = ["gpt2", "smollm2", "llama3", "gemma2", "gemma3", "llama2", "mistral-spm", "bert"];

#[test]
fn shapes_of_known_models_are_taken_and_equal() {
    let fragments = fragments();
    let cases = lines("shapes.jsonl.zst");
    let mut ours = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let tokenizer = match Tokenizer::from_json(case["file"].to_string().as_bytes(), None) {
            Err(Error::NeedsLibrary { .. }) if !cfg!(feature = "tokenizers") => continue,
            read => read.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        if !tokenizer.name().starts_with("tokenizers") {
            ours.push(name);
        }
        let found = digest(&tokenizer, &texts(case, &fragments)).unwrap();
        assert_eq!(format!("{found:016x}"), case["digest"].as_str().unwrap(), "{name}");
    }
    assert_eq!(ours, OURS);
    assert_eq!(cases.len(), 19);
}

#[test]
fn streams_give_the_text_that_decoding_gives() {
    let fragments = fragments();
    for case in lines("shapes.jsonl.zst") {
        let name = case["name"].as_str().unwrap();
        let Ok(tokenizer) = Tokenizer::from_json(case["file"].to_string().as_bytes(), None) else { continue };
        for text in texts(&case, &fragments) {
            let ids = tokenizer.encode(&text, BARE).unwrap();
            let mut stream = tokenizer.stream(SpecialText::Hidden);
            let mut streamed: String = ids.iter().map(|id| stream.push(*id).to_owned()).collect();
            streamed.push_str(stream.finish());
            let whole = tokenizer.decode(&ids, SpecialText::Hidden).unwrap();
            // A stream goes on where a text began, so that it keeps the space before the first word. Of bytes that are
            // no character it tells how many were cut short, where decoding tells how many there are.
            let plain = |text: &str| text.trim_start().replace('\u{FFFD}', "");
            assert_eq!(plain(&streamed), plain(&whole), "{name}: {text:?}");
        }
    }
}

/// Vocabularies of llama.cpp, and one cut as `dbrx` does.
const WRITTEN: [&str; 9] =
    ["gpt-2", "starcoder", "refact", "command-r", "llama-bpe", "qwen2", "llama-spm", "dbrx", "smaug-bpe"];

/// A tokenizer.json that we write from a GGUF vocabulary gives the same tokens in Python. `golden/tokenizer/written.py`
/// runs this test to get the files.
#[test]
fn what_is_written_gives_the_same_tokens_in_python() {
    // Python's library takes it for an s, and llama.cpp does not.
    let fragments: Vec<String> = fragments().into_iter().filter(|f| !f.contains('ſ')).collect();
    let texts: Vec<String> = (0..TEXTS).map(|i| text(7, i, &fragments, &[])).collect();
    let dir = std::env::var_os("WEIGHBRIDGE_WRITTEN").map(std::path::PathBuf::from);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizer/written.json");
    let golden: Value =
        std::fs::read(golden).map_or(Value::Null, |json| serde_json::from_slice(&json).unwrap());
    for name in WRITTEN {
        let from = if matches!(name, "dbrx" | "smaug-bpe") { "llama-bpe" } else { name };
        let gguf = models::path("ggml-vocabs", &format!("ggml-vocab-{from}.gguf"));
        let gguf = checkpoint::open(&gguf).unwrap();
        let mut vocabulary = models::vocabulary(gguf.metadata().gguf().unwrap());
        vocabulary.pre = if name == from { vocabulary.pre } else { Some(name) };
        if let Some(dir) = &dir {
            std::fs::write(dir.join(name), vocabulary.to_tokenizer_json().unwrap()).unwrap();
            continue;
        }
        let own = Tokenizer::from_vocabulary(&vocabulary).unwrap();
        let mut digest = Digest(0xCBF2_9CE4_8422_2325);
        for text in &texts {
            for options in [ADDED, BARE, TEXT] {
                digest.ids(&own.encode(text, options).unwrap());
            }
        }
        assert_eq!(golden[name], format!("{:016x}", digest.0), "{name}");
    }
}

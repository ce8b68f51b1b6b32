//! Tokens are llama.cpp's.

use std::time::Duration;

use serde_json::Value;
use weighbridge_engine::text::{EncodeOptions, Error, SpecialText, Tokenizer, Vocabulary};

use crate::models;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

/// The cases beside a vocabulary of llama.cpp: texts with a line between, and a line of ids for each.
///
/// Source: `read_tests`, tests/test-tokenizer-0.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>.
fn vocabulary_cases(name: &str) {
    let file = |suffix: &str| models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf{suffix}"));
    let tokenizer = models::tokenizer(&checkpoint::open(file("")).unwrap());
    let texts = std::fs::read_to_string(file(".inp")).unwrap();
    let tokens = std::fs::read_to_string(file(".out")).unwrap();
    let line = "\n__ggml_vocab_test__\n";
    let texts: Vec<_> = texts.strip_suffix(line).unwrap_or(&texts).split(line).collect();
    let tokens: Vec<_> = tokens.lines().collect();
    assert_eq!(texts.len(), tokens.len());
    assert!(texts.len() >= 46);
    for (text, tokens) in texts.into_iter().zip(tokens) {
        let wanted: Vec<u32> = tokens.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), wanted, "{name}: {text:?}");
        assert_eq!(tokenizer.decode(&wanted, SpecialText::Shown).unwrap(), text, "{name}");
    }
}

#[test]
fn gpt2_cases() {
    vocabulary_cases("gpt-2");
}

#[test]
fn llama_spm_cases() {
    vocabulary_cases("llama-spm");
}

#[test]
fn starcoder_cases() {
    vocabulary_cases("starcoder");
}

#[test]
fn refact_cases() {
    vocabulary_cases("refact");
}

#[test]
fn llama_bpe_cases() {
    vocabulary_cases("llama-bpe");
}

#[test]
fn qwen2_cases() {
    vocabulary_cases("qwen2");
}

#[test]
fn qwen35_cases() {
    vocabulary_cases("qwen35");
}

#[test]
fn falcon_cases() {
    vocabulary_cases("falcon");
}

#[test]
fn command_r_cases() {
    vocabulary_cases("command-r");
}

#[test]
fn deepseek_coder_cases() {
    vocabulary_cases("deepseek-coder");
}

#[test]
fn phi3_cases() {
    vocabulary_cases("phi-3");
}

#[test]
fn gemma4_cases() {
    vocabulary_cases("gemma-4");
}

/// Reads the output of `golden/tokenizer/tokens.py`.
fn golden(name: &str) -> Vec<Value> {
    let path = testkit::golden("tokenizer").join(name);
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() > 70);
    cases
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// `loses`: the one text that llama.cpp does not give back either.
fn model_cases(name: &str, loses: &[&str]) {
    let tokenizer = models::tokenizer(&models::open(name));
    for case in golden(&format!("{name}.json")) {
        let text = case["text"].as_str().unwrap();
        let (plain, prompt) = (ids(&case["plain"]), ids(&case["prompt"]));
        assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), plain, "{name}, plain: {text:?}");
        assert_eq!(tokenizer.encode(text, PROMPT).unwrap(), prompt, "{name}, prompt: {text:?}");
        let given_back = tokenizer.decode(&plain, SpecialText::Shown).unwrap() == text;
        assert_eq!(given_back, !loses.contains(&text), "{name}: {text:?}");
        let mut stream = tokenizer.stream(SpecialText::Shown);
        let mut streamed = String::new();
        for token in &plain {
            streamed.push_str(stream.push(*token));
        }
        streamed.push_str(stream.finish());
        assert_eq!(streamed, tokenizer.decode(&plain, SpecialText::Shown).unwrap(), "{name}: {text:?}");
    }
}

#[test]
fn smollm2_cases() {
    model_cases("smollm2", &[]);
}

#[test]
fn gemma3_cases() {
    // U+2581 is how its vocabulary spells a space.
    model_cases("gemma3", &["\u{2581}under\u{2581}\u{2581}score \u{2581} x"]);
}

#[test]
fn smollm2_has_its_roles() {
    let tokenizer = models::tokenizer(&models::open("smollm2"));
    assert_eq!(tokenizer.name(), "bpe smollm");
    assert_eq!(tokenizer.vocab_size(), 49_152);
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()), (Some(1), Some(2), false));
    let ends = tokenizer.end_of_generation().iter().filter_map(|id| tokenizer.token_spelling(*id));
    assert_eq!(ends.collect::<Vec<_>>(), ["<|endoftext|>", "<|im_end|>", "<reponame>"]);
    assert!(tokenizer.is_end_of_generation(2) && !tokenizer.is_end_of_generation(1));
    assert_eq!(tokenizer.token_bytes(1, SpecialText::Hidden), &b""[..]);
    assert_eq!(tokenizer.token_bytes(1, SpecialText::Shown), &b"<|im_start|>"[..]);
    assert_eq!(tokenizer.token_bytes(49_152, SpecialText::Shown), &b""[..]);
    let prompt = tokenizer.encode("<|im_start|>user\nHi<|im_end|>", PROMPT).unwrap();
    assert_eq!(tokenizer.decode(&prompt, SpecialText::Hidden).unwrap(), "user\nHi");
}

#[test]
fn gemma3_has_its_roles() {
    let tokenizer = models::tokenizer(&models::open("gemma3"));
    assert_eq!((tokenizer.name(), tokenizer.vocab_size()), ("spm", 262_144));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()), (Some(2), Some(1), true));
    let end_of_turn = tokenizer.token_id("<end_of_turn>").unwrap();
    assert!(tokenizer.is_end_of_generation(end_of_turn));
    assert_eq!(tokenizer.encode("", PROMPT).unwrap(), [2]);
    assert_eq!(tokenizer.encode("", PLAIN).unwrap(), [0; 0]);
}

/// The CPU time of this thread: other processes do not count.
fn cpu_time() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap()
}

fn starts_within(name: &str, limit: Duration) {
    let checkpoint = models::open(name);
    let vocabulary = models::vocabulary(checkpoint.metadata().gguf().unwrap());
    let limit = if cfg!(debug_assertions) { limit * 20 } else { limit };
    let mut times = (0..200).map(|_| {
        let start = cpu_time();
        Tokenizer::from_vocabulary(&vocabulary).unwrap();
        cpu_time().saturating_sub(start)
    });
    // Neighbours can make any run slow, and none fast.
    assert!(times.any(|time| time < limit), "{name}: no run took less than {limit:?}");
}

#[test]
fn smollm2_starts_within_25_ms() {
    starts_within("smollm2", Duration::from_millis(25));
}

#[test]
fn gemma3_starts_within_120_ms() {
    starts_within("gemma3", Duration::from_millis(120));
}

/// A small BPE vocabulary, as a file could hold it.
fn small() -> Vocabulary<'static> {
    Vocabulary {
        model: "gpt2",
        pre: Some("gpt-2"),
        tokens: vec![b"<s>", b"a", b"b", b"ab", b"abb"],
        types: Some(vec![3, 1, 1, 1, 1]),
        merges: vec![b"a b", b"ab b"],
        bos: Some(0),
        ..Vocabulary::default()
    }
}

fn said(vocabulary: &Vocabulary<'_>) -> String {
    Tokenizer::from_vocabulary(vocabulary).map_or_else(|error| format!("{error:?}"), |_| String::new())
}

#[test]
fn merges_go_by_rank_then_from_the_left() {
    let tokenizer = Tokenizer::from_vocabulary(&small()).unwrap();
    assert_eq!(tokenizer.encode("abbab", PLAIN).unwrap(), [4, 3]);
    // A byte without a token is passed over.
    assert_eq!(tokenizer.encode("a?b", PLAIN).unwrap(), [1, 2]);
    let swapped =
        Vocabulary { tokens: vec![b"a", b"aa"], types: None, merges: vec![b"a a"], bos: None, ..small() };
    let tokenizer = Tokenizer::from_vocabulary(&swapped).unwrap();
    assert_eq!(tokenizer.encode("aaaaa", PLAIN).unwrap(), [1, 1, 0]);
}

#[test]
fn spm_merges_by_score_and_falls_back_to_bytes() {
    let spm = Vocabulary {
        model: "llama",
        tokens: vec![b"<unk>", b"<s>", b"</s>", b"a", b"aa", b"aaa", "\u{2581}".as_bytes(), b"<0xC3>"],
        types: Some(vec![2, 3, 3, 1, 1, 1, 1, 6]),
        scores: Some(vec![0.0, 0.0, 0.0, -1.0, -3.0, -2.0, -4.0, 0.0]),
        ..Vocabulary::default()
    };
    let tokenizer = Tokenizer::from_vocabulary(&spm).unwrap();
    assert_eq!(tokenizer.encode("aaaa", PLAIN).unwrap(), [6, 5, 3]);
    // U+00E9 is C3 A9, and A9 has no token.
    assert_eq!(tokenizer.encode("é", PROMPT).unwrap(), [1, 6, 7, 0]);
    assert_eq!(tokenizer.encode("a</s>a", PROMPT).unwrap(), [1, 6, 3, 2, 6, 3]);
    let bare = Vocabulary { add_space_prefix: Some(false), add_bos: Some(false), ..spm.clone() };
    let tokenizer = Tokenizer::from_vocabulary(&bare).unwrap();
    assert_eq!(tokenizer.encode("aaaa", PROMPT).unwrap(), [5, 3]);
    let nan = Vocabulary { scores: Some([f32::NAN].repeat(8)), ..spm.clone() };
    assert_eq!(said(&nan), "`tokenizer.ggml.scores`: the score of token 0 is NaN");
    let short = Vocabulary { scores: Some(vec![0.0]), ..spm.clone() };
    assert_eq!(said(&short), "`tokenizer.ggml.scores`: 1 scores for 8 tokens");
    let none = Vocabulary { scores: None, ..spm };
    assert_eq!(said(&none), "`tokenizer.ggml.scores`: missing, and a `llama` vocabulary needs it");
}

#[test]
fn what_a_file_cannot_mean_is_refused() {
    assert_eq!(said(&small()), "");
    assert_eq!(
        said(&Vocabulary { merges: vec![b"a c"], ..small() }),
        "`tokenizer.ggml.merges`: merge 0 (`a` and `c`) needs `ac`, which is no token"
    );
    assert_eq!(
        said(&Vocabulary { merges: vec![b"a b", b"ab"], ..small() }),
        "`tokenizer.ggml.merges`: merge 1 is not two tokens with a space between"
    );
    assert_eq!(
        said(&Vocabulary { eos: Some(5), ..small() }),
        "`tokenizer.ggml.eos_token_id`: 5, and there are 5 tokens"
    );
    assert_eq!(
        said(&Vocabulary { add_eos: Some(true), ..small() }),
        "`tokenizer.ggml.add_eos_token`: true, and no such token is named"
    );
    assert_eq!(
        said(&Vocabulary { model: "rwkv", ..small() }),
        "tokenizer model `rwkv` is not supported\nhint: supported are llama, gpt2, gemma4, bert, t5"
    );
    assert_eq!(
        said(&Vocabulary { model: "t5", ..small() }),
        "`tokenizer.ggml.scores`: wanted one for each token"
    );
    let pre = Tokenizer::from_vocabulary(&Vocabulary { pre: Some("superbpe"), ..small() });
    let Err(Error::Unsupported { found, supported, .. }) = pre else { panic!("{pre:?}") };
    assert_eq!(found, "superbpe");
    assert!(supported.contains("smollm"));
}

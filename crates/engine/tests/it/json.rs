//! A tokenizer.json gives the tokens that the GGUF of the same vocabulary gives.

use serde_json::{Value, json};
use weighbridge_engine::text::{EncodeOptions, SpecialText, Tokenizer};

use crate::models;

/// The vocabulary of smollm2 as Hugging Face writes it. Source: HuggingFaceTB/SmolLM2-135M-Instruct, whose
/// pre-tokenizer is this.
fn smollm2(pairs: bool) -> Value {
    let checkpoint = models::open("smollm2");
    let vocabulary = models::vocabulary(checkpoint.metadata().gguf().unwrap());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let types = vocabulary.types.unwrap();
    let vocab: serde_json::Map<String, Value> =
        vocabulary.tokens.iter().zip(0..).map(|(t, id)| (text(t), json!(id))).collect();
    let added: Vec<Value> = (vocabulary.tokens.iter().zip(&types).zip(0..))
        .filter(|((_, kind), _)| **kind == 3)
        .map(|((t, _), id)| json!({"id": id, "content": text(t), "special": true}))
        .collect();
    let merges: Vec<Value> = vocabulary
        .merges
        .iter()
        .map(|m| {
            let merge = text(m);
            let (left, right) = merge.split_once(' ').unwrap();
            if pairs { json!([left, right]) } else { json!(merge) }
        })
        .collect();
    json!({
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "post_processor": null,
        "model": {"type": "BPE", "unk_token": "<|endoftext|>", "byte_fallback": false, "vocab": vocab, "merges": merges},
    })
}

fn read(file: &Value) -> Result<Tokenizer, String> {
    let config = json!({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}});
    Tokenizer::from_json(file.to_string().as_bytes(), Some(config.to_string().as_bytes()))
        .map_err(|e| e.to_string())
}

#[test]
fn it_gives_the_tokens_of_the_gguf() {
    let gguf = models::tokenizer(&models::open("smollm2"));
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/../tokenizer/smollm2.json");
    let cases = std::fs::read_to_string(cases).unwrap();
    for pairs in [false, true] {
        let json = read(&smollm2(pairs)).unwrap();
        assert_eq!((json.bos(), json.eos(), json.vocab_size()), (gguf.bos(), gguf.eos(), gguf.vocab_size()));
        assert_eq!(json.end_of_generation(), gguf.end_of_generation());
        // The golden file itself is a long text of every kind.
        for text in cases.lines().chain(["<|im_start|>user\nYear 2024<|im_end|>", ""]) {
            for parse_special in [false, true] {
                let options = EncodeOptions { add_special: true, parse_special };
                assert_eq!(json.encode(text, options), gguf.encode(text, options), "{text:?}");
            }
        }
    }
}

#[test]
fn a_template_that_begins_with_a_token_adds_it() {
    let mut file = smollm2(true);
    file["post_processor"] = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel"},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}]},
    ]});
    let options = EncodeOptions { add_special: true, parse_special: false };
    assert_eq!(read(&file).unwrap().encode("x", options)[0], 1);
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut file = json!({
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
        });
        assert!(read(&file).is_ok());
        change(&mut file);
        read(&file).err().unwrap_or_default()
    };
    for (change, said) in [
        (&(|f: &mut Value| f["model"]["type"] = json!("Unigram")) as &dyn Fn(&mut Value), "`Unigram`"),
        (&|f| f["pre_tokenizer"] = json!({"type": "Metaspace"}), "Metaspace"),
        (&|f| f["pre_tokenizer"]["add_prefix_space"] = json!(true), "ByteLevel"),
        (&|f| f["normalizer"] = json!({"type": "Lowercase"}), "Lowercase"),
        (&|f| f["model"]["vocab"]["b"] = json!(0), "id 0"),
        (&|f| f["model"]["vocab"]["b"] = json!(-1), "id -1"),
        (&|f| f["model"]["vocab"]["b"] = json!(1u64 << 40), "id 1099511627776"),
        (&|f| f["model"]["merges"] = json!([["a"]]), "merge 0"),
        (&|f| f["model"]["merges"] = json!(["a c"]), "`ac`"),
        (&|f| f["added_tokens"] = json!([{"id": 1, "content": "x"}]), "`x` has the id of `b`"),
        (&|f| f["added_tokens"] = json!([{"content": "x"}]), "no id"),
        (&|f| f["model"]["vocab"] = json!([]), "wanted an object"),
    ] {
        let message = refused(change);
        assert!(message.contains(said), "{said}: {message}");
    }
    assert!(Tokenizer::from_json(b"{", None).is_err());
    assert!(Tokenizer::from_json(b"[]", None).is_err());
}

/// What is written for a vocabulary of llama.cpp is read as a tokenizer that gives the same tokens.
fn written_and_read(gguf: &checkpoint::Checkpoint, texts: &str) {
    let vocabulary = models::vocabulary(gguf.metadata().gguf().unwrap());
    let json = vocabulary.to_tokenizer_json().unwrap();
    let config = vocabulary.to_tokenizer_config(None, 1024).unwrap().to_string();
    let read = Tokenizer::from_json(&json, Some(config.as_bytes())).unwrap();
    let own = models::tokenizer(gguf);
    assert_eq!((read.bos(), read.eos(), read.adds_bos()), (own.bos(), own.eos(), own.adds_bos()));
    assert_eq!(read.vocab_size(), own.vocab_size());
    assert!(texts.lines().count() >= 40);
    for text in
        texts.lines().chain([texts, "", " ", "  two", "Hé 🦙 ok\n\n\tx", "<s>[INST] a</s>", "<|im_end|>"])
    {
        for parse_special in [false, true] {
            let options = EncodeOptions { add_special: true, parse_special };
            let tokens = own.encode(text, options);
            assert_eq!(read.encode(text, options), tokens, "{text:?}");
            for shown in [SpecialText::Hidden, SpecialText::Shown] {
                assert_eq!(read.decode(&tokens, shown), own.decode(&tokens, shown), "{text:?}");
            }
        }
    }
}

#[test]
fn what_is_written_of_a_vocabulary_gives_its_tokens() {
    for name in ["gpt-2", "llama-spm", "starcoder", "refact", "llama-bpe", "qwen2", "command-r"] {
        let file = |suffix: &str| models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf{suffix}"));
        let texts = std::fs::read_to_string(file(".inp")).unwrap();
        written_and_read(&checkpoint::open(&file("")).unwrap(), &texts);
    }
    let texts = std::fs::read_to_string(models::path("ggml-vocabs", "ggml-vocab-gpt-2.gguf.inp")).unwrap();
    for name in ["smollm2", "gemma3", "gpt2-124m"] {
        written_and_read(&models::open(name), &texts);
    }
}

#[test]
fn a_way_of_cutting_that_no_file_has_is_not_written() {
    for name in ["falcon", "deepseek-coder", "qwen35"] {
        let gguf =
            checkpoint::open(&models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf"))).unwrap();
        let told = models::vocabulary(gguf.metadata().gguf().unwrap()).to_tokenizer_json().unwrap_err();
        assert!(told.to_string().starts_with("way of cutting text in a tokenizer.json"), "{told}");
    }
}

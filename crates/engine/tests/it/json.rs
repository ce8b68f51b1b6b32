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
        .map(|((t, _), id)| {
            json!({"id": id, "content": text(t), "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
        })
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
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
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
                assert_eq!(
                    json.encode(text, options).unwrap(),
                    gguf.encode(text, options).unwrap(),
                    "{text:?}"
                );
            }
        }
    }
}

#[test]
fn a_template_that_begins_with_a_token_adds_it() {
    let mut file = smollm2(true);
    file["post_processor"] = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
        {"type": "TemplateProcessing", "pair": [],
         "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}},
    ]});
    let options = EncodeOptions { add_special: true, parse_special: false };
    assert_eq!(read(&file).unwrap().encode("x", options).unwrap()[0], 1);
}

/// A small file over bytes.
fn small() -> Value {
    let letters = (33..127).chain(161..173).chain(174..256).chain(256..324);
    let letters = letters.map(|c| char::from_u32(c).unwrap().to_string());
    let texts = letters.chain(["ab".to_owned(), "Ġa".to_owned()]);
    let vocab: serde_json::Map<String, Value> = texts.zip(0..).map(|(text, id)| (text, json!(id))).collect();
    json!({
        "version": "1.0",
        "added_tokens": [{"id": 258, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ["Ġ", "a"]]},
    })
}

fn changed(change: impl Fn(&mut Value)) -> Result<Tokenizer, weighbridge_engine::text::Error> {
    let mut file = small();
    change(&mut file);
    Tokenizer::from_json(file.to_string().as_bytes(), None)
}

#[test]
fn what_is_wrong_or_not_supported_is_refused_by_name() {
    assert_eq!(changed(|_| ()).unwrap().name(), "bpe gpt-2");
    for (change, said) in [
        (
            &(|f: &mut Value| f["model"]["type"] = json!("Foo")) as &dyn Fn(&mut Value),
            "`model.type`: `Foo` is not supported",
        ),
        (&|f| f["version"] = json!("2.0"), "`version`: only version `1.0` is known"),
        (&|f| f["pre_tokenizer"] = json!({"type": "Foo"}), "`pre_tokenizer.type`: `Foo` is not supported"),
        (&|f| f["pre_tokenizer"]["add_prefix_space"] = json!(1), "wanted true or false, found `1`"),
        (&|f| f["pre_tokenizer"] = json!({"type": "ByteLevel"}), "`pre_tokenizer.add_prefix_space`: missing"),
        (&|f| f["normalizer"] = json!({"type": "Foo"}), "`normalizer.type`: `Foo` is not supported"),
        (
            &|f| f["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": ""}),
            "`normalizer.precompiled_charsmap`: it ends before its tree does",
        ),
        (&|f| f["normalizer"] = json!([]), "`normalizer`: wanted an object or null, found an array"),
        (&|f| f["model"]["dropout"] = json!(0.1), "`model.dropout`"),
        (&|f| f["model"]["vocab"]["b"] = json!(0), "have the id 0"),
        (&|f| f["model"]["vocab"]["b"] = json!(-1), "the id -1"),
        (&|f| f["model"]["vocab"]["b"] = json!(1u64 << 40), "the id 1099511627776"),
        (&|f| f["model"]["merges"] = json!([["a"]]), "`model.merges[0]`: wanted a pair"),
        (&|f| f["model"]["merges"] = json!(["a b c"]), "`model.merges[0]`: wanted a pair"),
        (&|f| f["model"]["merges"] = json!(["a c"]), "need `ac`, which is no token"),
        (&|f| f["model"]["continuing_subword_prefix"] = json!("##"), "`b` and"),
        (&|f| f["model"]["vocab"] = json!([]), "`model.vocab`: wanted an object"),
        (&|f| f["added_tokens"][0]["id"] = json!(7), "`<e>` has the id 7, and the library gives it 258"),
        (&|f| f["added_tokens"][0]["content"] = json!(""), "has no text"),
        (&|f| f["added_tokens"] = json!([{"content": "x"}]), "`added_tokens[0].id`: missing, wanted an id"),
        (
            &|f| f["decoder"] = json!({"type": "Strip", "content": " ", "start": 1, "stop": 2}),
            "`decoder.stop`",
        ),
        (
            &|f| {
                f["post_processor"] = json!({"type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"SpecialToken": {"id": "x", "type_id": 0}}]});
            },
            "the template names `x`",
        ),
        (
            &|f| {
                f["post_processor"] = json!({"type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"Sequence": {"id": "B", "type_id": 0}}]});
            },
            "`post_processor.single`: the piece",
        ),
        (
            &|f| {
                f["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated",
            "invert": false});
            },
            "`pre_tokenizer.pattern`: the regex `\\w+` is not supported",
        ),
    ] {
        // A prefix makes another token of `b`.
        let said = said.replace("`b` and", "need `a`");
        let message = changed(change).map_or_else(|e| e.to_string(), |_| "taken".to_owned());
        assert!(
            message.contains(said.as_str()) || said == "need `a`" && message.contains("model.merges"),
            "{said}: {message}"
        );
    }
    let both = changed(|f| {
        f["version"] = json!(1);
        f["decoder"] = json!({"type": "Foo"});
    });
    assert_eq!(both.unwrap_err().to_string().lines().count(), 3);
    assert!(Tokenizer::from_json(b"{", None).is_err());
    assert!(Tokenizer::from_json(b"[]", None).is_err());
}

#[test]
fn what_no_shape_of_ours_has_goes_to_the_library() {
    for (change, part) in [
        (
            &(|f: &mut Value| f["normalizer"] = json!({"type": "NFC"})) as &dyn Fn(&mut Value),
            "`normalizer`: NFC",
        ),
        (&|f| f["added_tokens"][0]["lstrip"] = json!(true), "`added_tokens.lstrip`: `<e>` has it"),
        (&|f| f["added_tokens"][0]["rstrip"] = json!(true), "`added_tokens.rstrip`"),
        (&|f| f["added_tokens"][0]["single_word"] = json!(true), "`added_tokens.single_word`"),
        (&|f| f["pre_tokenizer"]["add_prefix_space"] = json!(true), "`pre_tokenizer`: ByteLevel"),
        (&|f| f["decoder"] = json!(null), "`decoder`: none"),
        (
            &|f| f["model"]["merges"] = json!([["a", "b"], ["a", "b"]]),
            "`model.merges`: a pair that is merged twice",
        ),
        (&|f| f["model"]["end_of_word_suffix"] = json!("</w>"), "`model.end_of_word_suffix`"),
        (
            &|f| f["model"] = json!({"type": "WordLevel", "unk_token": "a", "vocab": f["model"]["vocab"]}),
            "`model.type`: another model than BPE",
        ),
    ] {
        match changed(change) {
            Ok(tokenizer) => assert!(tokenizer.name().starts_with("tokenizers "), "{part}: {tokenizer:?}"),
            Err(error) => {
                let wanted = if cfg!(feature = "tokenizers") { "no error" } else { part };
                assert!(error.to_string().contains(wanted), "{part}: {error}");
                assert_eq!(error.hints(), ["build with the feature `tokenizers`"]);
            }
        }
    }
}

#[test]
fn what_is_not_known_is_noted() {
    let mut file = small();
    file["foo"] = json!(1);
    file["model"]["bar"] = json!(1);
    let config =
        json!({"baz": 1, "eos_token": "<e>", "bos_token": "nope", "add_eos_token": true, "legacy": false});
    let read =
        Tokenizer::from_json(file.to_string().as_bytes(), Some(config.to_string().as_bytes())).unwrap();
    let notes: Vec<String> =
        read.notes().iter().map(|n| format!("{} {}: {}", n.file, n.field, n.why)).collect();
    assert_eq!(
        notes,
        [
            "tokenizer.json foo: what it does is not known",
            "tokenizer.json model.bar: what it does is not known",
            "tokenizer_config.json baz: what it does is not known",
            "tokenizer_config.json bos_token: `nope` is no token",
            "tokenizer_config.json add_eos_token: true, and the post-processor adds none; transformers goes by the latter",
        ]
    );
    assert_eq!((read.bos(), read.eos(), read.adds_bos()), (None, Some(258), false));
}

#[test]
fn a_configuration_is_followed_as_transformers_does() {
    let with = |config: Value| {
        Tokenizer::from_json(small().to_string().as_bytes(), Some(config.to_string().as_bytes()))
            .map_err(|e| e.to_string())
    };
    let prompt = EncodeOptions { add_special: true, parse_special: true };
    // A token with a role is special, and found whole.
    let eos = with(json!({"eos_token": "ab"})).unwrap();
    assert_eq!(eos.decode(&[256], SpecialText::Hidden).unwrap(), "");
    // An added token of the configuration.
    let more = with(json!({"added_tokens_decoder": {"259": {"content": "xyz", "special": true}}})).unwrap();
    assert_eq!(more.encode("xyz", prompt).unwrap(), [259]);
    assert_eq!(more.vocab_size(), 260);
    for (config, said) in [
        (json!({"added_tokens_decoder": {"300": {"content": "xyz"}}}), "`xyz` has no id in tokenizer.json"),
        (
            json!({"added_tokens_decoder": {"3": {"content": "<e>"}}}),
            "`<e>` has the id 258 in tokenizer.json",
        ),
        (json!({"split_special_tokens": true}), "`split_special_tokens`: only false is supported"),
        (json!([]), "wanted an object"),
    ] {
        let message = with(config).unwrap_err();
        assert!(message.contains(said), "{said}: {message}");
    }
}

/// The file written for a vocabulary of llama.cpp reads as a tokenizer that gives the same tokens.
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
            let tokens = own.encode(text, options).unwrap();
            assert_eq!(read.encode(text, options).unwrap(), tokens, "{text:?}");
            // Where special tokens are shown, the library keeps the space after the first.
            let hidden = |t: &Tokenizer| t.decode(&tokens, SpecialText::Hidden).unwrap();
            assert_eq!(hidden(&read), hidden(&own), "{text:?}");
        }
    }
}

#[test]
fn what_is_written_of_a_vocabulary_gives_its_tokens() {
    for name in ["gpt-2", "llama-spm", "starcoder", "refact", "llama-bpe", "qwen2", "command-r"] {
        let file = |suffix: &str| models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf{suffix}"));
        let texts = std::fs::read_to_string(file(".inp")).unwrap();
        written_and_read(&checkpoint::open(file("")).unwrap(), &texts);
    }
    let texts = std::fs::read_to_string(models::path("ggml-vocabs", "ggml-vocab-gpt-2.gguf.inp")).unwrap();
    for name in ["smollm2", "gemma3", "gpt2-124m"] {
        written_and_read(&models::open(name), &texts);
    }
}

#[test]
fn a_way_of_cutting_that_no_file_has_is_not_written() {
    for name in ["falcon", "deepseek-coder", "qwen35"] {
        let gguf = checkpoint::open(models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf"))).unwrap();
        let told = models::vocabulary(gguf.metadata().gguf().unwrap()).to_tokenizer_json().unwrap_err();
        assert!(told.to_string().starts_with("way of cutting text in a tokenizer.json"), "{told}");
    }
}

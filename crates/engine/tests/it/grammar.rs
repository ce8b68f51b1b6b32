//! Only tokens that the grammar allows come, whatever the logits say.

use std::sync::Arc;
use std::sync::mpsc;

use serde_json::{Value, json};
use testkit::Rng;
use weighbridge_engine::grammar::{Error, Grammar, Source};
use weighbridge_engine::sampler::{Constraint, Sampler, SamplerOptions, Xtc};
use weighbridge_engine::text::{EncodeOptions, SpecialText, Tokenizer, tokenizer};

fn smollm2() -> Arc<Tokenizer> {
    Arc::new(tokenizer(&checkpoint::open(testkit::model("smollm2")).unwrap()).unwrap())
}

/// Compiles a grammar that the library has no warnings about.
fn compile(tokenizer: &Arc<Tokenizer>, source: Source) -> Grammar {
    let warn = |warnings: &[String]| panic!("{warnings:?}");
    Grammar::compile(source, tokenizer, tokenizer.end_of_generation(), tokenizer.vocab_size(), warn).unwrap()
}

fn is_allowed(bits: &[u32], token: u32) -> bool {
    bits.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// A text of random logits, and its length in tokens.
fn text(sampler: &mut Sampler, tokenizer: &Tokenizer, rng: &mut Rng) -> (String, usize) {
    sampler.begin(&[1, 2, 3]);
    let (mut text, mut count) = (vec![], 0);
    loop {
        let logits: Vec<f32> = (0..tokenizer.vocab_size()).map(|_| rng.float() * 10.0).collect();
        let token = sampler.sample(&logits).unwrap();
        sampler.accept(token);
        if tokenizer.is_end_of_generation(token) {
            return (String::from_utf8(text).unwrap(), count);
        }
        text.extend_from_slice(&tokenizer.token_bytes(token, SpecialText::Shown));
        count += 1;
        assert!(count < 500, "{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn random_logits_give_json_that_the_schema_describes() {
    let tokenizer = smollm2();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 12 },
            "kind": { "enum": ["a b", "é", null] },
            "count": { "type": "integer", "minimum": -3, "maximum": 120 },
            "list": { "type": "array", "items": { "type": "boolean" }, "minItems": 1, "maxItems": 3 },
        },
        "required": ["name", "kind", "count", "list"],
        "additionalProperties": false,
    });
    for (seed, options) in [
        (
            1,
            SamplerOptions {
                temperature: 1.5,
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                ..SamplerOptions::default()
            },
        ),
        (2, SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }),
        (3, SamplerOptions { xtc: Xtc { probability: 1.0, threshold: 0.0 }, ..SamplerOptions::default() }),
    ] {
        let (mut sampler, mut rng) = (Sampler::new(&options, tokenizer.vocab_size()).unwrap(), Rng(seed));
        sampler.constrain(Box::new(compile(&tokenizer, Source::JsonSchema(schema.clone()))));
        for _ in 0..6 {
            let (text, _) = text(&mut sampler, &tokenizer, &mut rng);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.as_object().unwrap().len(), 4, "{text}");
            assert!(value["name"].as_str().unwrap().chars().count() <= 12, "{text}");
            assert!([json!("a b"), json!("é"), Value::Null].contains(&value["kind"]), "{text}");
            // JSON has -0, which is no integer to serde_json.
            let count = value["count"].as_f64().unwrap();
            assert!((-3.0..=120.0).contains(&count) && count.fract().abs() < 1e-9, "{text}");
            let list = value["list"].as_array().unwrap();
            assert!((1..=3).contains(&list.len()) && list.iter().all(Value::is_boolean), "{text}");
        }
    }
}

#[test]
fn the_tokens_that_are_allowed_are_those_that_the_language_continues_with() {
    let tokenizer = smollm2();
    // Every text of the language, by hand.
    let mut language = vec![];
    for stem in ["aa", "ab", "ba", "bb"] {
        for end in ["", "\n", " the end", "é!"] {
            language.push(format!("{stem}{end}").into_bytes());
        }
    }
    let source = "start: /[ab]{2}/ END?\nEND: \"\\n\" | \" the end\" | \"é!\"\n";
    let mut grammar = compile(&tokenizer, Source::Lark(source.to_owned()));
    let mut rng = Rng(5);
    for _ in 0..8 {
        grammar.begin();
        let mut text: Vec<u8> = vec![];
        loop {
            let ends = language.contains(&text);
            let allowed = grammar.allowed().unwrap().to_vec();
            let mut found = vec![];
            for token in 0..u32::try_from(tokenizer.vocab_size()).unwrap() {
                let bytes = tokenizer.token_bytes(token, SpecialText::Hidden);
                let longer = [&text[..], &bytes].concat();
                let wanted = if tokenizer.is_end_of_generation(token) {
                    ends
                } else {
                    !bytes.is_empty() && language.iter().any(|whole| whole.starts_with(&longer))
                };
                assert_eq!(
                    is_allowed(&allowed, token),
                    wanted,
                    "{token} after {:?}",
                    String::from_utf8_lossy(&text)
                );
                found.extend(wanted.then_some(token));
            }
            let token = found[rng.index(found.len())];
            grammar.accept(token);
            if tokenizer.is_end_of_generation(token) {
                break;
            }
            text.extend_from_slice(&tokenizer.token_bytes(token, SpecialText::Hidden));
        }
    }
}

#[test]
fn a_token_that_is_not_allowed_ends_it_with_an_error() {
    let tokenizer = smollm2();
    let mut grammar = compile(&tokenizer, Source::Lark("start: \"yes\" | \"no\"".to_owned()));
    assert!(grammar.allowed().is_ok());
    grammar.accept(tokenizer.encode("maybe", EncodeOptions::default()).unwrap()[0]);
    assert!(grammar.allowed().is_err());
}

#[test]
fn what_is_wrong_is_said() {
    let tokenizer = smollm2();
    let vocab = tokenizer.vocab_size();
    let error = |source| compile(&tokenizer, source).allowed().map(<[u32]>::len).unwrap_err();
    assert!(error(Source::Lark("start: \"yes".to_owned())).contains("yes"), "where it is");
    assert!(error(Source::Lark("start: nowhere".to_owned())).contains("nowhere"));
    assert!(
        error(Source::JsonSchema(json!({"type": "number", "minimum": 5, "maximum": 3})))
            .contains("Unsatisfiable")
    );
    assert!(error(Source::JsonSchema(json!({"type": "nothing"}))).contains("nothing"));
    let lark = Source::Lark("start: \"yes\"".to_owned());
    assert_eq!(Grammar::compile(lark, &tokenizer, &[], vocab, |_| ()).unwrap_err(), Error::NoEnd);
    // The library's warnings are passed on.
    let (said, heard) = mpsc::channel();
    let one_of = json!({"x-guidance": {"coerce_one_of": true}, "oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]});
    let warn = move |warnings: &[String]| said.send(warnings.join("\n")).unwrap();
    let ends = tokenizer.end_of_generation();
    let mut grammar = Grammar::compile(Source::JsonSchema(one_of), &tokenizer, ends, vocab, warn).unwrap();
    grammar.allowed().unwrap();
    assert!(heard.recv().unwrap().contains("oneOf"));
}

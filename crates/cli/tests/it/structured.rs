//! Answers that keep to a schema or a grammar, of a real model.

use std::process::Output;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::model;

use crate::{stdout, weighbridge};

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn answers_keep_to_the_schema_however_hot_the_model_is() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "minLength": 1, "maxLength": 20 },
            "population": { "type": "integer", "minimum": 0, "maximum": 40_000_000 },
            "continent": { "enum": ["Africa", "America", "Asia", "Europe", "Oceania"] },
            "rivers": { "type": "array", "items": { "type": "string", "maxLength": 10 }, "maxItems": 2 },
        },
        "required": ["city", "population", "continent", "rivers"],
        "additionalProperties": false,
    });
    let (mut compiler, mut compiled) = (Compiler::new(), Schemas::new());
    compiler.add_resource("schema:city", schema.clone()).unwrap();
    let index = compiler.compile("schema:city", &mut compiled).unwrap();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("city.json");
    std::fs::write(&file, schema.to_string()).unwrap();
    let smollm2 = model("smollm2");
    let mut answers = vec![];
    for (temperature, seed) in [("0", "1"), ("1.5", "1"), ("1.5", "2"), ("5", "3")] {
        let out = weighbridge([
            "run",
            smollm2.to_str().unwrap(),
            "-p",
            "Name a city.",
            "-n",
            "300",
            "--min-p",
            "0",
            "--top-p",
            "1",
            "--top-k",
            "0",
            "--temperature",
            temperature,
            "--seed",
            seed,
            "--json-schema",
            file.to_str().unwrap(),
        ]);
        assert!(out.status.success(), "{}", stderr(&out));
        let answer = stdout(&out);
        let value: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
        compiled.validate(&value, index).unwrap_or_else(|e| panic!("{e}: {answer}"));
        answers.push(answer);
    }
    answers.dedup();
    assert_eq!(answers.len(), 4, "{answers:?}");
}

#[test]
fn an_answer_is_a_text_of_the_grammar() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (smollm2, yes) =
        (model("smollm2"), at("yes.lark", "start: (\"yes\" | \"no\") \", \" /[0-9]{2}/ \"%\""));
    let run = |more: &[&str]| {
        let run =
            ["run", smollm2.to_str().unwrap(), "-p", "Is it raining?", "--temperature", "2", "--seed", "5"];
        weighbridge([&run[..], more].concat())
    };
    let answer = stdout(&run(&["--grammar", &yes, "--raw"]));
    let number = answer.strip_prefix("yes, ").or_else(|| answer.strip_prefix("no, ")).unwrap();
    assert!(number.len() == 3 && number[..2].parse::<u8>().is_ok() && number.ends_with('%'), "{answer}");
    let (gbnf, open) = (at("a.gbnf", "root ::= \"a\""), at("open.lark", "start: \"a"));
    for (more, code, wanted) in [
        (&["--grammar", &gbnf][..], 2, "in GBNF, wanted Lark"),
        (&["--grammar", &open], 2, "the grammar does not compile"),
        (&["--grammar", "nowhere.lark"], 1, "cannot read `nowhere.lark`"),
        (&["--json-schema", "{"], 2, "the schema is not JSON"),
        (&["--json-schema", "{\"type\": \"thing\"}"], 2, "thing"),
        (&["--json-schema", "{}", "--grammar", &yes], 2, "cannot be used with"),
    ] {
        let out = run(more);
        assert_eq!(out.status.code(), Some(code), "{more:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(wanted), "{more:?}: {}", stderr(&out));
    }
}

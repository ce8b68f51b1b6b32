//! `rerank`, as a user sees it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::Value;

use crate::{failure, stdout, weighbridge};

/// Numbers and texts of the lines.
fn ranked(lines: &str) -> Vec<(usize, String)> {
    let one = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!((0.0..=1.0).contains(&line["score"].as_f64().unwrap()), "{line}");
        (usize::try_from(line["index"].as_u64().unwrap()).unwrap(), line["text"].as_str().unwrap().to_owned())
    };
    lines.lines().map(one).collect()
}

#[test]
fn texts_come_the_best_first() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/rerank.json")).unwrap()).unwrap();
    let texts: Vec<&str> = golden["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let scores: Vec<f64> = serde_json::from_value(golden["models"]["bert"]["query"].clone()).unwrap();
    let mut wanted: Vec<(usize, String)> =
        (0..).zip(&texts).map(|(n, text)| (n, (*text).to_owned())).collect();
    wanted.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]));

    let dir = tempfile::tempdir().unwrap();
    let (model, query) = (testkit::golden("embed/rerank/bert").display().to_string(), "who wrote Emma?");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("texts.txt"), texts.join("\n") + "\n").unwrap();
    assert_eq!(ranked(&stdout(&weighbridge(["rerank", &model, query, &path("texts.txt")]))), wanted);
    let rows: Vec<String> = texts.iter().map(|text| serde_json::json!({"body": text}).to_string()).collect();
    std::fs::write(path("texts.jsonl"), rows.join("\n")).unwrap();
    let best = ["rerank", &model, query, &path("texts.jsonl"), "--field", "body", "--top", "2"];
    assert_eq!(ranked(&stdout(&weighbridge(best))), wanted[..2]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["rerank", &model, query])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all((texts.join("\n") + "\n").as_bytes()).unwrap();
    let piped = child.wait_with_output().unwrap();
    assert_eq!(ranked(&String::from_utf8(piped.stdout).unwrap()), wanted);
}

#[test]
fn a_model_that_scores_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = testkit::golden("embed/tiny").display().to_string();
    let said = failure(&["rerank", &tiny, "a cat"], dir.path()).replace(&tiny, "MODEL");
    assert_snapshot!(said, @"
    error: `MODEL` cannot be followed
      `config.json`: the model scores no texts: its class is no `…ForSequenceClassification`
    exit code 1
    ");
}

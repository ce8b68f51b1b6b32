//! `embed`, as a user sees it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use serde_json::Value;

use crate::{stdout, weighbridge};

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn tiny() -> String {
    testkit::golden("embed/tiny").display().to_string()
}

fn vectors(lines: &str) -> Vec<Vec<f32>> {
    let vector = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["vector"].as_array().unwrap().iter().map(|x| x.to_string().parse().unwrap()).collect()
    };
    lines.lines().map(vector).collect()
}

#[test]
fn texts_come_from_anywhere_and_vectors_go_in_their_order() {
    let (dir, tiny) = (tempfile::tempdir().unwrap(), tiny());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let texts = ["the cat", "a long text, reading the long text", "dogs"];
    let wanted = vectors(&stdout(&weighbridge(["embed", &tiny, texts[0], texts[1], texts[2]])));
    assert_eq!((wanted.len(), wanted[0].len()), (3, 16));

    std::fs::write(path("texts.txt"), texts.join("\n")).unwrap();
    assert_eq!(vectors(&stdout(&weighbridge(["embed", &tiny, "-f", &path("texts.txt")]))), wanted);
    let rows: Vec<String> = texts.iter().map(|text| serde_json::json!({"body": text}).to_string()).collect();
    std::fs::write(path("texts.jsonl"), rows.join("\n\n")).unwrap();
    let field = ["embed", &tiny, "-f", &path("texts.jsonl"), "--field", "body"];
    assert_eq!(vectors(&stdout(&weighbridge(field))), wanted);
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["embed", &tiny])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(texts.join("\n").as_bytes()).unwrap();
    let piped = child.wait_with_output().unwrap();
    assert_eq!(vectors(&String::from_utf8(piped.stdout).unwrap()), wanted);

    let bytes: Vec<u8> = wanted.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    for name in ["v.npy", "v.safetensors", "v.jsonl"] {
        let out = path(name);
        let said = stdout(&weighbridge(["embed", &tiny, "-f", &path("texts.txt"), "-o", &out]));
        assert!(said.contains("3 vectors of 16 numbers, "), "{said}");
        let written = std::fs::read(&out).unwrap();
        if name == "v.jsonl" {
            assert_eq!(vectors(&String::from_utf8(written).unwrap()), wanted);
        } else {
            assert!(written.ends_with(&bytes), "{name}");
        }
        let again = weighbridge(["embed", &tiny, "x", "-o", &out]);
        assert!(stderr(&again).contains("exists\nhint: `--force` replaces it"), "{}", stderr(&again));
    }
}

#[test]
fn what_is_wrong_is_said_with_a_way_out() {
    let (dir, tiny) = (tempfile::tempdir().unwrap(), tiny());
    let path = dir.path().join("texts.jsonl");
    std::fs::write(&path, "{\"body\": \"x\"}\n").unwrap();
    let shown = |output: &Output| {
        stderr(output).replace(&dir.path().display().to_string(), "DIR").replace(&tiny, "tiny")
    };
    let run = |args: &[&str]| shown(&weighbridge([&["embed", &*tiny][..], args].concat()));
    assert_snapshot!(run(&["-f", &path.display().to_string()]), @r"
    error: `DIR/texts.jsonl`, line 1: no field `text`
    hint: `--field NAME` names the field of the text
    ");
    assert_snapshot!(run(&["x", "--prompt", "quest"]), @r"
    error: the model has no prompt `quest`
    hint: it has `document`, `query`, `titled`
    ");
    let wrong = weighbridge(["embed", &format!("{tiny}x"), "a"]);
    assert!(stderr(&wrong).ends_with("/tiny`?\n"), "{}", stderr(&wrong));
    assert_snapshot!(run(&["x", "-o", "vectors.bin"]), @r"
    error: `vectors.bin` ends neither with .jsonl nor with .npy or .safetensors
    ");
    assert_snapshot!(run(&["x", "--max-tokens", "2"]), @r"
    error: `tiny`: 2 tokens leave no room for a text: the model adds 2
    hint: allow more tokens
    ");
    assert_snapshot!(run(&["x", "--max-tokens", "65"]), @r"
    error: a context of 65 is too long: the model was trained for 64 positions
    hint: ask for fewer positions (`--ctx`)
    ");
    let text = "reading the long text reading the long text reading the long text";
    assert_snapshot!(run(&[text]), @r"
    1 text was cut at 20 tokens (`--max-tokens`)
    ");
    assert_snapshot!(shown(&weighbridge(["run", &tiny, "-p", "x"])), @r"
    error: `tiny`: the model is an encoder: it makes vectors of texts, and continues none
    hint: make vectors with it, as an `Embedder` does (`weighbridge embed`)
    ");
}

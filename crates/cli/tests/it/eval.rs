//! Texts are predicted as llama.cpp's llama-perplexity finds it (golden/eval.py), and tasks answered with the words of the command.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::door::fed;
use super::{golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn holmes() -> String {
    path(&testkit::golden("eval").join("holmes.txt")).to_owned()
}

/// The document that `eval` prints, with the exit code that is wanted.
fn eval(code: i32, args: &[&str]) -> Value {
    let output = weighbridge([&["eval"], args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn value(of: &Value) -> f64 {
    of["value"].as_f64().unwrap()
}

/// Kernels round otherwise than llama.cpp's, so the figures are near, not equal.
fn near(name: &str, found: &Value, wanted: &Value, share: f64) {
    let (found, wanted) = (value(found), wanted[0].as_f64().unwrap());
    assert!((found / wanted - 1.0).abs() < share, "{name}: wanted {wanted}, found {found}");
}

#[test]
fn smollm2_is_as_llama_perplexity_finds_it() {
    let dir = TempDir::new().unwrap();
    let (source, small) = (model("smollm2"), dir.path().join("small.gguf"));
    let args = ["convert", path(&source), path(&small), "--preset", "q4_0", "--allow-requantize"];
    assert!(weighbridge(args).status.success());
    let text = holmes();
    let wanted = fs::read(testkit::golden("eval").join("llama-perplexity.json")).unwrap();
    let wanted: Value = serde_json::from_slice(&wanted).unwrap();
    let found = eval(0, &[path(&small), "-f", &text, "--chunks", "8", "--against", path(&source)]);
    let found = &found["text"];
    assert_eq!((&found["chunks"], &found["chunk_tokens"]), (&8.into(), &512.into()));
    assert_eq!(found["tokens"], 8 * 255);
    let against = &found["against"];
    near("perplexity of the source", &against["perplexity"], &wanted["perplexity"], 0.005);
    let error = against["perplexity"]["standard_error"].as_f64().unwrap();
    assert!((error / wanted["perplexity"][1].as_f64().unwrap() - 1.0).abs() < 0.01, "{error}");
    let wanted = &wanted["q4_0"];
    near("perplexity", &found["perplexity"], &wanted["perplexity"], 0.005);
    near("ratio", &against["ratio"], &wanted["ratio"], 0.005);
    near("top 1", &against["top1"], &wanted["top1"], 0.03);
    near("divergence", &against["kl"], &wanted["kl"], 0.03);
    for (name, share) in [("kl_median", 0.05), ("kl_99", 0.15)] {
        let (found, wanted) = (against[name].as_f64().unwrap(), wanted[name][0].as_f64().unwrap());
        assert!((found / wanted - 1.0).abs() < share, "{name}: wanted {wanted}, found {found}");
    }
}

#[test]
fn a_model_is_as_near_to_itself_as_can_be() {
    let (smollm2, text) = (model("smollm2"), holmes());
    let args = [path(&smollm2), "-f", &text, "--chunks", "1", "--ctx", "64", "--against", path(&smollm2)];
    let whole = eval(0, &args);
    assert_eq!((&whole["passed"], &whole["against"]), (&true.into(), &path(&smollm2).into()));
    let found = &whole["text"];
    let against = &found["against"];
    assert_eq!(found["perplexity"], against["perplexity"]);
    assert_eq!((value(&against["ratio"]), value(&against["kl"])), (1.0, 0.0));
    assert_eq!((value(&against["top1"]), value(&against["top5"])), (1.0, 1.0));
    assert_eq!(found["tokens"], 31);
    // Another number of threads, and another backend.
    let other = eval(0, &[&args[..7], &["-t", "1"]].concat());
    assert_eq!(found["perplexity"], other["text"]["perplexity"]);
    let reference = eval(0, &[&args[..7], &["--backend", "reference"]].concat());
    let (found, reference) = (value(&found["perplexity"]), value(&reference["text"]["perplexity"]));
    assert!((found / reference - 1.0).abs() < 0.02, "{found}, {reference}");
}

#[test]
fn gates_are_kept_or_missed() {
    let dir = TempDir::new().unwrap();
    let (gates, smollm2) = (dir.path().join("gates.toml"), model("smollm2"));
    let text = holmes();
    let args = [path(&smollm2), "-f", &text, "--chunks", "1", "--ctx", "64", "--gate", path(&gates)];
    fs::write(&gates, "perplexity = 1000").unwrap();
    assert_eq!(eval(0, &args)["gates"][0]["passed"], true);
    fs::write(&gates, "perplexity = 1.5").unwrap();
    let missed = eval(1, &args);
    assert_eq!((&missed["passed"], &missed["gates"][0]["limit"]), (&false.into(), &1.5.into()));
    let shown = weighbridge([&["eval"], &args[..]].concat());
    assert_eq!(shown.status.code(), Some(1));
    assert!(stdout(&shown).contains("gate perplexity: MISSED"), "{}", stdout(&shown));
    fs::write(&gates, "kl = 0.1").unwrap();
    let refused = eval(1, &args);
    assert_eq!(refused["hint"], "add `--against MODEL`");

    let args = [path(&smollm2), "-f", &text, "--chunks", "1", "--ctx", "64", "--gate", "default"];
    let refused = eval(1, &args);
    assert!(refused["error"].as_str().unwrap().starts_with("the default gate: `ratio` needs another model"));
    let itself = eval(0, &[&args[..], &["--against", path(&smollm2)]].concat());
    let names: Vec<&str> =
        itself["gates"].as_array().unwrap().iter().map(|gate| gate["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ratio", "kl", "top1"]);
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let dir = TempDir::new().unwrap();
    let (short, binary) = (dir.path().join("short.txt"), dir.path().join("binary"));
    fs::write(&short, "It was a dark and stormy night.").unwrap();
    fs::write(&binary, [0xFF, 0xFE]).unwrap();
    let (smollm2, tiny) = (model("smollm2"), golden().join("llama-tiny"));
    let text = holmes();
    for (code, says, args) in [
        (2, "and 1024 are needed", &[path(&smollm2), "-f", path(&short)][..]),
        (1, "is not UTF-8", &[path(&smollm2), "-f", path(&binary)]),
        (1, "cannot read", &[path(&smollm2), "-f", "/nowhere/text"]),
        (2, "at least 16 tokens", &[path(&smollm2), "-f", &text, "--ctx", "8"]),
        (1, "has no tokenizer", &[path(&tiny), "-f", &text]),
        (1, "has no tokenizer", &[path(&smollm2), "-f", &text, "--against", path(&tiny)]),
    ] {
        let error = eval(code, args);
        assert!(error["error"].as_str().unwrap().contains(says), "{args:?}: {error}");
    }
    // The text comes through a pipe, too.
    let args = ["--chunks", "1", "--ctx", "16", "-f", "-"];
    assert!(
        fed(&[&["eval", path(&smollm2)], &args[..]].concat(), &fs::read_to_string(&text).unwrap())
            .status
            .success()
    );
}

fn task(name: &str) -> String {
    path(&testkit::golden("tasks").join(format!("{name}.jsonl"))).to_owned()
}

#[test]
fn tasks_are_answered_beside_a_text_and_another_model() {
    let (smollm2, text, [arc, mmlu]) = (model("smollm2"), holmes(), ["arc", "mmlu"].map(task));
    let of_tasks = [path(&smollm2), "--task", &arc, "--task", &mmlu];
    let shown = weighbridge([&["eval"], &of_tasks[..], &["--ctx", "40"]].concat());
    assert!(shown.status.success() && shown.stderr.is_empty());
    let lines = stdout(&shown);
    for (line, says) in lines.lines().skip(1).zip([
        "arc.jsonl (ARC, 12 questions): acc 58.33 ± 29.13 %, acc_norm 41.67 ± 29.13 %, 1 question cut to the context",
        "mmlu.jsonl (MMLU, 12 questions): acc 25.00 ± 25.59 %, 12 questions cut to the context",
    ]) {
        assert!(line.ends_with(says), "{line}");
    }
    assert!(lines.lines().count() == 4 && lines.contains("\n  memory: "), "{lines}");

    let dir = TempDir::new().unwrap();
    let gates = dir.path().join("gates.toml");
    fs::write(&gates, "perplexity = 1000\n[task.arc]\nacc_norm = 0.4\nsame = 1\n[task.mmlu]\nacc = 0.9\n")
        .unwrap();
    let more =
        ["-f", &text, "--chunks", "1", "--ctx", "256", "--against", path(&smollm2), "--gate", path(&gates)];
    let found = eval(1, &[&of_tasks[..], &more].concat());
    assert_eq!(found["text"]["chunks"], 1);
    let [arc, mmlu] = [0, 1].map(|n| &found["tasks"][n]);
    assert_eq!((&arc["name"], &arc["kind"], &arc["questions"]), (&"arc".into(), &"arc".into(), &12.into()));
    assert_eq!((&mmlu["truncated"], &mmlu["acc_norm"]), (&0.into(), &Value::Null));
    for name in ["acc", "acc_norm"] {
        assert_eq!(arc[name], arc["against"][name]);
    }
    assert_eq!((value(&arc["against"]["same"]), value(&arc["against"]["same_norm"])), (1.0, 1.0));
    let gate = |n: usize| {
        (found["gates"][n]["name"].as_str().unwrap(), found["gates"][n]["passed"].as_bool().unwrap())
    };
    let judged = [
        ("perplexity", true),
        ("task.arc.acc_norm", true),
        ("task.arc.same", true),
        ("task.mmlu.acc", false),
    ];
    assert_eq!([0, 1, 2, 3].map(gate), judged);
}

#[test]
fn rows_that_are_wrong_are_named_before_the_model_is_loaded() {
    let dir = TempDir::new().unwrap();
    let (rows, long) = (dir.path().join("rows.jsonl"), dir.path().join("long.jsonl"));
    let arc = fs::read_to_string(task("arc")).unwrap();
    let first = arc.lines().next().unwrap();
    fs::write(&rows, format!("{first}\n{}\n{{", first.replace("\"B\"}", "\"E\"}"))).unwrap();
    let error = eval(1, &["/nowhere/model.gguf", "--task", path(&rows)]);
    let said: Vec<&str> =
        error["problems"].as_array().unwrap().iter().map(|p| p["problem"].as_str().unwrap()).collect();
    let at = |line: usize, what: &str| format!("`{}:{line}`: {what}", rows.display());
    assert_eq!(
        said,
        [
            at(2, "`answerKey` is \"E\": wanted one of A, B, C, D"),
            at(3, "the row is not JSON, from column 1")
        ]
    );
    // What only a tokenizer finds.
    fs::write(&long, first.replace("the moon", &"moon ".repeat(9))).unwrap();
    let error = eval(1, &[path(&model("smollm2")), "--task", path(&long), "--ctx", "8"]);
    let wanted = format!("`{}:1`: choice 1 has 10 tokens, and the model 8 positions", long.display());
    assert_eq!(error["error"], wanted);

    // Unknown fields have no effect, and each is named once.
    fs::write(&rows, first.replace("{\"id\"", "{\"level\": 3, \"id\"")).unwrap();
    let output = weighbridge(["eval", path(&model("smollm2")), "--task", path(&rows)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, format!("`{}:1`: the field `level` is unknown, and has no effect\n", rows.display()));
    assert!(stdout(&output).contains("1 question"), "{}", stdout(&output));
}

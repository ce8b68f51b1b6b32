//! What the commands print when all is well.

use insta::assert_snapshot;
use serde_json::Value;

use crate::{golden, model, stdout, weighbridge};

fn path(of: &std::path::Path) -> &str {
    of.to_str().unwrap()
}

#[test]
fn inspect_shows_a_real_model() {
    let file = model("smollm2");
    let output = weighbridge(["inspect", path(&file)]);
    assert!(output.status.success());
    assert_snapshot!(stdout(&output).replace(path(&file), "smollm2.gguf"));
}

#[test]
fn inspect_json_lists_every_tensor() {
    for (name, tensors) in [("smollm2", 272), ("gemma3", 236)] {
        let output = weighbridge(["inspect", path(&model(name)), "--json"]);
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(facts["tensors"].as_array().unwrap().len(), tensors, "{name}");
        assert_eq!(facts["fits"], true);
    }
    let output = weighbridge(["inspect", path(&golden().join("gpt2-tiny")), "--json"]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&facts["format"], &facts["family"]), (&"hf".into(), &"gpt2".into()));
}

#[test]
fn plan_explains_a_fused_parameter() {
    let output = weighbridge([
        "plan",
        path(&model("smollm2")),
        "--layout",
        "canonical",
        "--explain",
        "layers.3.attention.q.weight",
    ]);
    assert_snapshot!(stdout(&output));
}

#[test]
fn plan_sums_up() {
    let file = model("gemma3");
    let output = weighbridge(["plan", path(&file), "--layout", "in-place"]);
    assert_snapshot!(stdout(&output).replace(path(&file), "gemma3.gguf"));
}

/// `--raw`: stdout is the continuation and nothing else.
#[test]
fn run_raw_prints_the_continuation_alone() {
    let args = ["-p", "def fibonacci(n):", "--raw", "--temperature", "0", "-n", "32", "--threads", "2"];
    let file = model("gemma3");
    let output = weighbridge(["run", path(&file)].iter().chain(&args));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let want = "\n    if n == 0:\n        return 0\n    elif n == 1:\n        return 1\n    elif n == ";
    assert_eq!(stdout(&output), want);
}

#[test]
fn run_answers_by_the_chat_template() {
    let args = ["-p", "What is the capital of France?", "--temperature", "0", "-n", "24", "--threads", "2"];
    let output = weighbridge(["run", path(&model("smollm2"))].iter().chain(&args));
    assert!(stdout(&output).contains("Paris"), "{}", stdout(&output));
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let once = |seed: &str| {
        let args = ["-p", "Once", "--raw", "--seed", seed, "-n", "12", "--threads", "2"];
        stdout(&weighbridge(["run", path(&model("smollm2"))].iter().chain(&args)))
    };
    assert_eq!(once("5"), once("5"));
    assert_ne!(once("5"), once("6"));
}

#[test]
fn bench_prints_medians() {
    let args = ["--prefill", "16", "--decode", "4", "--repeat", "2", "--json"];
    let output = weighbridge(["bench", path(&model("smollm2"))].iter().chain(&args));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
        assert!(facts[field].as_f64().unwrap() > 0.0, "{facts}");
    }
}

#[test]
fn chat_takes_commands_from_a_pipe() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["run", path(&model("smollm2")), "--temperature", "0", "-n", "8", "--threads", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"/help\nHello!\n/stats\nAnd again?\n/quit\nnever read\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(stdout(&output).lines().filter(|l| !l.trim().is_empty()).count(), 2, "{}", stdout(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/quit") && said.contains("tokens/s") && said.contains("positions"), "{said}");
}

#[test]
fn completions_and_the_manual_come_from_the_arguments() {
    assert!(stdout(&weighbridge(["completions", "bash"])).contains("--min-p"));
    assert!(stdout(&weighbridge(["man"])).contains(".TH weighbridge"));
}

//! What the commands print when all is well.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{failure, golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

#[test]
fn inspect_shows_a_real_model() {
    let file = model("smollm2");
    let output = weighbridge(["inspect", path(&file)]);
    assert!(output.status.success());
    assert_snapshot!(stdout(&output).replace(path(&file), "smollm2.gguf"), @"
    smollm2.gguf
      gguf v3, 272 tensors, 134.5M parameters, 92.1 MiB (5.74 bits a weight)
      matches `llama`: all 272 tensors found, 1 parameter tied
      KV cache: 22.5 MiB for 1,000 positions; for all 8192 180 MiB, in int8 111 MiB, in int4 66.1 MiB

    configuration
      layers           30         `llama.block_count`
      hidden           576        `llama.embedding_length`
      heads            9          `llama.attention.head_count`
      kv_heads         3          `llama.attention.head_count_kv`
      head_dim         64         default: hidden / heads
      ffn              1536       `llama.feed_forward_length`
      vocab            49152      `llama.vocab_size`
      context          8192       `llama.context_length`
      norm_eps         1e-5       `llama.attention.layer_norm_rms_epsilon`
      rope_theta       100000     `llama.rope.freq_base`
      rope_scaling     none       default: no key
      attention_scale  0.125      default: 1 / sqrt(head_dim)
      tied             as stored  default: an absent output matrix is the token embedding
      activation       silu       default: the family's

    tensors
            token_embd.weight           [49152, 576]  q8_0  28.7 MiB
      30 ×  blk.{n}.attn_norm.weight    [576]         f32   67.5 KiB
      30 ×  blk.{n}.ffn_down.weight     [576, 1536]   q4_1  15.8 MiB
      30 ×  blk.{n}.ffn_gate.weight     [1536, 576]   q4_1  15.8 MiB
      30 ×  blk.{n}.ffn_up.weight       [1536, 576]   q4_1  15.8 MiB
      30 ×  blk.{n}.ffn_norm.weight     [576]         f32   67.5 KiB
      30 ×  blk.{n}.attn_k.weight       [192, 576]    q4_1   2.0 MiB
      30 ×  blk.{n}.attn_output.weight  [576, 576]    q4_1   5.9 MiB
      30 ×  blk.{n}.attn_q.weight       [576, 576]    q4_1   5.9 MiB
      30 ×  blk.{n}.attn_v.weight       [192, 576]    q4_1   2.0 MiB
            output_norm.weight          [576]         f32    2.2 KiB
    ");
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
    assert_snapshot!(stdout(&output), @"
    layers.3.attention.q.weight [576, 576] q4_1
      = merge(0; merge(1; permute([0, 2, 1, 3]; split(1, 2; split(0, 64; blk.3.attn_q.weight)))))
      all <- blk.3.attn_q.weight, reordered
      blocks: 202 KiB, 1 piece
        0 <- blk.3.attn_q.weight at 0: 9 × 2 × 32 × 360 bytes
    ");
}

#[test]
fn plan_sums_up() {
    let file = model("gemma3");
    let output = weighbridge(["plan", path(&file), "--layout", "in-place"]);
    assert_snapshot!(stdout(&output).replace(path(&file), "gemma3.gguf"), @"
    gemma3.gguf matches gemma3
      236 tensors → 237 parameters, in-place layout
      237 parameters (1 tied), all 236 tensors used
      uses 235 MiB of the files
      235 MiB in memory: 235 MiB can be mapped, 0 B copied
      memory: 0 B for parameters, 235 MiB mapped
      KV cache: 15.2 MiB for 1,000 positions; for all 32768 108 MiB, in int8 67.5 MiB, in int4 43.5 MiB
    ");
}

/// Linear attention keeps as much of a short text as of a long one.
#[test]
fn plan_tells_the_state_that_does_not_grow() {
    let output = weighbridge(["plan", path(&golden().join("qwen35-tiny")), "--layout", "in-place"]);
    let line =
        "KV cache: 300 KiB for 1,000 positions, 44.0 KiB of it however many they are; for all 256 108 KiB";
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
}

/// No family is asked: the names are the file's, and a bare safetensors file will do.
#[test]
fn plan_as_stored_needs_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bare.safetensors");
    std::fs::copy(golden().join("llama-tiny/model.safetensors"), &file).unwrap();
    let output = weighbridge(["plan", path(&file), "--layout", "source"]);
    assert_snapshot!(stdout(&output).replace(path(&file), "bare.safetensors"), @"
    bare.safetensors as stored
      21 tensors → 21 parameters, source layout
      21 parameters, all 21 tensors used
      uses 305 KiB of the files
      305 KiB in memory: 305 KiB can be mapped, 0 B copied
      memory: 0 B for parameters, 305 KiB mapped
    ");
    let name = "model.layers.1.self_attn.v_proj.weight";
    let output = weighbridge(["plan", path(&file), "--layout", "source", "--explain", name]);
    assert_snapshot!(stdout(&output), @"
    model.layers.1.self_attn.v_proj.weight [32, 64] f32
      all <- model.layers.1.self_attn.v_proj.weight
      data: 8.0 KiB, one run of model.layers.1.self_attn.v_proj.weight at byte 0: can be mapped
    ");
    let output = weighbridge(["run", path(&golden().join("llama-tiny")), "--layout", "source", "-p", "x"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `--raw`: stdout is the continuation and nothing else.
/// Ids need no tokenizer, which this model does not have.
#[test]
fn ids_are_continued_with_ids() {
    let facts = std::fs::read(golden().join("microformer.json")).unwrap();
    let facts: Value = serde_json::from_slice(&facts).unwrap();
    let list = |key: &str| -> String {
        let ids = facts[key].as_array().unwrap().iter();
        ids.map(ToString::to_string).collect::<Vec<_>>().join(",")
    };
    let microformer = model("gpt2-microformer");
    let args = ["--ids", &list("prompt"), "--temperature", "0", "-n", "16"];
    let output = weighbridge(["run", path(&microformer)].iter().chain(&args));
    assert_eq!(stdout(&output), list("ids") + "\n");

    let output = weighbridge(["run", path(&microformer), "-p", "hello"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.ends_with("hint: `--ids` takes token ids, and needs no tokenizer\n"), "{error}");
    let output = weighbridge(["run", path(&microformer), "--ids", "5,9669"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("9669"), "{error}");
}

/// A part of the prompt is kept; the text behind it is another than with all of it, and the same each time.
#[test]
fn a_budget_for_the_prompt_is_kept() {
    let ids: Vec<_> = (0..200).map(|i| (i * 37 % 128).to_string()).collect();
    let (tiny, ids) = (golden().join("llama-tiny"), ids.join(","));
    let said = |more: &[&str]| {
        let args = ["run", path(&tiny), "--ids", &ids, "--temperature", "0", "-n", "24"];
        stdout(&weighbridge(args.iter().chain(more)))
    };
    let whole = said(&[]);
    assert_eq!(said(&["--kv-budget", "200"]), whole);
    let kept = said(&["--kv-budget", "70"]);
    assert_ne!(kept, whole);
    // The first token is chosen before anything is left out.
    assert_eq!(kept.split(',').next(), whole.split(',').next());
    assert_eq!(said(&["--kv-budget", "70", "--threads", "3", "--prompt-lookup"]), kept);

    let refused = |args: &[&str]| failure(args, Path::new("/"));
    assert_snapshot!(refused(&["run", path(&tiny), "--ids", "1", "--kv-budget", "64"]), @"
    error: invalid value '64' for '--kv-budget <N>': wanted a whole number, 65 or more

    For more information, try '--help'.
    exit code 2");
    let embedder = testkit::golden("embed").join("gguf/bert");
    assert_snapshot!(refused(&["serve", path(&embedder), "--kv-budget", "100", "--port", "0"]), @"
    error: --kv-budget does nothing for this model, which is for vectors
    exit code 2");
}

/// A prompt is kept in a file; what begins so goes on from there, with the same text.
#[test]
fn a_prompt_is_run_once_and_kept_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt");
    let ids = |last: u32| {
        let ids: Vec<_> = (0..150).map(|i| i * 37 % 90).chain([last, 9]).map(|id| id.to_string()).collect();
        ids.join(",")
    };
    for model in ["llama-tiny", "qwen35-tiny"] {
        let tiny = golden().join(model);
        let run = |ids: &str, more: &[&str]| -> Value {
            let args = ["run", path(&tiny), "--ids", ids, "--temperature", "0", "-n", "12", "--json"];
            let output = weighbridge(args.iter().chain(more));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let cache = ["--prompt-cache", path(&file)];
        let [one, other] = [ids(5), ids(6)];
        let counts =
            |said: &Value| [&said["cached_tokens"], &said["prompt_tokens"]].map(|n| n.as_u64().unwrap());
        let first = run(&one, &cache);
        assert_eq!(counts(&first), [0, 152], "{model}");
        let kept = std::fs::read(&file).unwrap();
        let again = run(&one, &cache);
        assert_eq!(counts(&again), [151, 1], "{model}");
        // Linear attention goes on from all of the file or from nothing.
        let different = run(&other, &cache);
        assert_eq!(counts(&different), if model == "llama-tiny" { [150, 2] } else { [0, 152] }, "{model}");
        for (said, ids) in [(&first, &one), (&again, &one), (&different, &other)] {
            assert_eq!(said["ids"], run(ids, &[])["ids"], "{model}");
        }
        if model == "llama-tiny" {
            let budget = [&cache[..], &["--kv-budget", "80"]].concat();
            let thinned = run(&one, &budget);
            assert_eq!(counts(&thinned), [88, 64]);
            assert_eq!(thinned["ids"], run(&one, &["--kv-budget", "80"])["ids"]);
        }
        assert!(std::fs::read(&file).unwrap() == kept, "{model}");
        std::fs::remove_file(&file).unwrap();
    }

    let tiny = golden().join("llama-tiny");
    let said = |args: &[&str]| {
        let all = [&["run", path(&tiny), "--ids", "1,2,3", "-n", "1"], args].concat();
        let said = failure(&all, dir.path());
        // One line says how long loading took.
        said.lines().filter(|line| !line.starts_with("loaded ")).collect::<Vec<_>>().join("\n")
    };
    assert!(
        weighbridge(["run", path(&tiny), "--ids", "1,2,3", "-n", "1", "--prompt-cache", path(&file)])
            .status
            .success()
    );
    assert_snapshot!(said(&["--kv", "int8", "--prompt-cache", path(&file)]), @"
    error: `prompt`: it is of another form of keys and values: wanted int8, found f16
    hint: a saved session is of one model, prepared in one way: run its text again, and save that to another file
    exit code 1");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(dir.path().join("cut"), &whole[..whole.len() / 2]).unwrap();
    assert_snapshot!(said(&["--prompt-cache", path(&dir.path().join("cut"))]), @"
    error: `cut`: it is damaged: the file is cut short: 12668 of 25336 bytes are missing, 3 of 4 tensors are incomplete, the first is `layers.0.pages` (at byte 12668)
    hint: if a session was saved to it, run its text again, and save that to another file
    exit code 1");
    // Nothing of a prompt of one token is kept, and a note says so.
    let unkept = dir.path().join("unkept");
    let output = weighbridge(["run", path(&tiny), "--ids", "1", "-n", "1", "--prompt-cache", path(&unkept)]);
    assert!(output.status.success() && !unkept.exists());
    let noted = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(noted.contains("is not written: all but the last token of a prompt is kept"), "{noted}");
    let nowhere = dir.path().join("nowhere").join("prompt");
    assert_snapshot!(said(&["--prompt-cache", path(&nowhere)]), @"
    error: there is no directory `nowhere`
    exit code 2");
    // Where nothing can be written, the answer comes, and then the error.
    let args = ["run", path(&tiny), "--ids", "1,2,3", "-n", "4", "--temperature", "0"];
    let unwritten = weighbridge(args.iter().chain(&["--prompt-cache", "/proc/prompt"]));
    assert_eq!(stdout(&unwritten), stdout(&weighbridge(args)));
    let error = String::from_utf8_lossy(&unwritten.stderr).into_owned();
    assert!(
        !unwritten.status.success() && error.contains("error: cannot ") && error.contains("/proc/"),
        "{error}"
    );
    std::fs::write(dir.path().join("text"), "a text").unwrap();
    assert_snapshot!(said(&["--prompt-cache", path(&dir.path().join("text"))]), @"
    error: `text`: it is no saved session
    hint: give the path of a file that a session was saved to
    exit code 1");
}

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
    let args =
        ["-p", "What is the capital of France?", "--temperature", "0", "-n", "24", "--backend", "reference"];
    let output = weighbridge(["run", path(&model("smollm2"))].iter().chain(&args));
    // Without the rounding of activations, by which it says something else.
    assert_eq!(stdout(&output), "The capital of France is Paris.");
}

#[test]
fn run_says_the_same_with_a_draft() {
    let (smollm2, gemma3, tiny) = (model("smollm2"), model("gemma3"), golden().join("llama-tiny"));
    let answer = |model: &Path, more: &[&str]| {
        let args = ["--json", "--seed", "3", "-n", "24", "--threads", "2", "--ctx", "128"];
        let output = weighbridge(["run", path(model)].iter().chain(&args).chain(more));
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"))
    };
    for temperature in ["0", "1"] {
        let args = ["-p", "Count to ten.", "--temperature", temperature];
        let alone = answer(&smollm2, &args);
        let drafted = answer(&smollm2, &[&args[..], &["--draft", path(&smollm2)]].concat());
        assert_eq!(alone["ids"], drafted["ids"]);
        let counts = ["guessed_tokens", "right_guesses"].map(|key| drafted[key].as_u64().unwrap());
        assert!(counts[0] > 5 && counts[1] > 0 && counts[1] <= counts[0], "{counts:?}");
        assert_eq!(alone["guessed_tokens"], 0);
        // At temperature 0 a model guesses itself.
        assert_eq!(counts[0] == counts[1], temperature == "0", "{counts:?}");
    }
    let ids = ["--ids", "3,4,5,6", "--temperature", "1"];
    let drafted = answer(&tiny, &[&ids[..], &["--draft", path(&golden().join("gemma3-tiny"))]].concat());
    assert_eq!(answer(&tiny, &ids)["ids"], drafted["ids"]);

    let refused = |args: &[&str]| failure(&[&["run", path(&smollm2)], args].concat(), Path::new("/"));
    assert_snapshot!(refused(&["-p", "Hi", "--draft", path(&gemma3)]), @"
    error: the draft has another vocabulary: the model has 49152 tokens, the draft 262144; token 0 is `<|endoftext|>` in the model and `<pad>` in the draft
    hint: use a smaller model of the same family as the draft
    exit code 2");
    let both = refused(&["-p", "Hi", "--prompt-lookup", "--draft", path(&smollm2)]);
    assert!(
        both.contains("'--prompt-lookup' cannot be used with") && both.ends_with("exit code 2"),
        "{both}"
    );
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
    // 30 layers, three positions, 3 heads of 64; the weights as they are stored, but for padding.
    assert_eq!(facts["cache_bytes_per_token"], 30 * 3 * 2 * 3 * 64 * 2);
    assert!(
        (90_000_000..110_000_000).contains(&facts["weight_bytes_per_token"].as_u64().unwrap()),
        "{facts}"
    );
    for field in
        ["read_bytes_per_second", "decode_share_of_read", "products_per_second", "products_share_of_prefill"]
    {
        assert!(facts["ceiling"][field].as_f64().unwrap() > 0.0, "{facts}");
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

/// Ctrl-C ends the answer, not the program's manners.
#[test]
fn an_interrupt_ends_the_answer_cleanly() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["run", path(&model("smollm2")), "-p", "Once", "--raw", "-n", "4000", "--threads", "2"])
        .args(["--temperature", "1.5", "--seed", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    // What there was of it is printed; the exit code is that of a shell after SIGINT.
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("tokens/s"), "{said}");
}

#[test]
fn completions_and_the_manual_come_from_the_arguments() {
    assert!(stdout(&weighbridge(["completions", "bash"])).contains("--min-p"));
    assert!(stdout(&weighbridge(["man"])).contains(".TH weighbridge"));
}

#[test]
fn inspect_lists_ties_and_what_a_pickle_holds_besides() {
    let file = golden().join("../pytorch/views.pt");
    let shown = stdout(&weighbridge(["inspect", path(&file)]));
    assert!(shown.ends_with("\none tensor under several names\n  base = tied\n"), "{shown}");
    let file = golden().join("../pytorch/training.pt");
    let shown = stdout(&weighbridge(["inspect", path(&file)]));
    let (_, ignored) = shown.split_once("\nignored\n").unwrap();
    assert_snapshot!(ignored, @"
    hyper_parameters: argparse.Namespace
    space: types.SimpleNamespace
    average: __main__.Config, 8 tensors
    ");
    let facts: Value =
        serde_json::from_slice(&weighbridge(["inspect", path(&file), "--json"]).stdout).unwrap();
    assert_eq!(facts["ignored"][2]["class"], "__main__.Config");
}

#[test]
fn what_tune_found_is_used_and_can_be_left_out() {
    use std::process::Command;
    let cache = tempfile::tempdir().unwrap();
    let file = model("smollm2");
    let weighbridge = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        command.env("WEIGHBRIDGE_CACHE", cache.path().join("new")).args(args).output().unwrap()
    };
    let tune = |args: &[&str]| -> Value {
        serde_json::from_str(&stdout(&weighbridge(&[&["tune", "--json", "--threads", "2"], args].concat())))
            .unwrap()
    };
    let written = cache.path().join("new/tune.json");
    assert_eq!(tune(&["--dry-run"])["written"], Value::Null);
    assert!(!written.exists());
    let found = tune(&[]);
    if found["bytes"].is_null() {
        // Nothing to choose with these instructions.
        return assert!(!written.exists());
    }
    assert_eq!(found["written"], path(&written));
    let text = std::fs::read_to_string(&written).unwrap();
    let all: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let (key, ways) = all.iter().next().unwrap();
    assert!(key.ends_with("threads 2"), "{text}");
    assert!(["bytes", "others"].iter().all(|of| ways[of] == found[of]["best"]), "{text}");

    let run = |more: &[&str]| {
        let args = ["run", path(&file), "--ids", "1", "-n", "2", "--temperature", "0", "--threads", "2"];
        weighbridge(&[&args, more].concat())
    };
    let tokens = run(&[]);
    assert!(tokens.status.success());
    std::fs::write(&written, text.replace("\"streams\": ", "\"streams\": 7")).unwrap();
    let refused = run(&[]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("tune.json") && said.contains("`streams` of 1 or 2") && said.contains("--no-tune"),
        "{said}"
    );
    assert_eq!(run(&["--no-tune"]).stdout, tokens.stdout);
    tune(&[]);
    assert_eq!(run(&[]).stdout, tokens.stdout);

    // A folder that cannot be made is named.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    let refused = command.env("WEIGHBRIDGE_CACHE", written.join("below")).arg("tune").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("tune.json/below") && said.contains("--dry-run"),
        "{said}"
    );
}

//! Command lines that users of similar programs type, and the answers they get.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

use crate::{golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn tiny() -> String {
    path(&golden().join("llama-tiny")).to_owned()
}

/// Runs the binary on `input`.
pub(super) fn fed(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn prompts_come_from_arguments_files_and_pipes() {
    let dir = TempDir::new().unwrap();
    let (file, text) = (dir.path().join("prompt.txt"), "The capital of France is");
    fs::write(&file, text).unwrap();
    let smollm2 = model("smollm2");
    let base = ["run", "--raw", "-n", "6", "--temperature", "0", "--threads", "2", "-m", path(&smollm2)];
    let answer = |more: &[&str], input: &str| stdout(&fed(&[&base, more].concat(), input));
    let wanted = answer(&["-p", text], "");
    assert!(wanted.starts_with(" Paris"), "{wanted}");
    assert_eq!(answer(&["-p", "-"], text), wanted);
    assert_eq!(answer(&["-f", path(&file)], ""), wanted);
    assert_eq!(answer(&["-f", "-"], text), wanted);
    // Nothing is nothing.
    let none = weighbridge(["run", path(&smollm2), "--raw", "-p", text, "-n", "0"]);
    assert!(none.status.success() && none.stdout.is_empty(), "{}", stdout(&none));
    let missing = weighbridge(["run", path(&smollm2), "-f", "/nowhere/prompt.txt"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot read `/nowhere/prompt.txt`"), "{}", stderr(&missing));
}

#[test]
fn minus_one_goes_on_until_the_context_is_full() {
    let args = ["run", "--ids", "1,2,3", "-n", "-1", "--ctx", "20", "--temperature", "0", "--json"];
    let output = weighbridge(args.into_iter().map(str::to_owned).chain([tiny()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(facts["stop"] == "context_full" || facts["stop"] == "end_of_text", "{facts}");
    assert_eq!(weighbridge(["run", &tiny(), "--ids", "1", "-n", "-2"]).status.code(), Some(2));
}

#[test]
fn a_system_message_that_nothing_can_say_is_refused() {
    let gemma3 = model("gemma3");
    let output = weighbridge(["run", path(&gemma3), "--system", "You are terse.", "-p", "hi", "-n", "4"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(stderr(&output).contains("no chat template"), "{}", stderr(&output));
}

#[test]
fn a_chat_forgets_saves_and_joins_lines() {
    let dir = TempDir::new().unwrap();
    let (smollm2, file) = (model("smollm2"), dir.path().join("chat.json"));
    let args = ["run", path(&smollm2), "--temperature", "0", "-n", "4", "--threads", "2"];
    let input = format!("one\n/clear\nfirst \\\nsecond\n/save {0}\n/save {0}\n/nothing\n", path(&file));
    let output = fed(&args, &input);
    assert!(output.status.success());
    let saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let messages = saved["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "{saved}");
    assert_eq!(messages[0]["content"], "first \nsecond");
    let said = stderr(&output);
    assert!(said.contains("could not save to"), "what is there stays: {said}");
    assert!(said.contains("no command `/nothing`"), "{said}");
    assert!(said.contains("stopped after 4 tokens"), "{said}");
}

#[test]
fn a_full_context_drops_the_oldest_and_says_so() {
    let smollm2 = model("smollm2");
    let args = ["run", path(&smollm2), "--temperature", "0", "-n", "16", "--ctx", "160", "--threads", "2"];
    let input = "Tell me of the sea.\n".repeat(6);
    let output = fed(&args, &input);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("the context is full: dropped the oldest "), "{said}");
    let long = fed(&args, &format!("{}\nHi.\n", "word ".repeat(400)));
    assert!(stderr(&long).contains("it was not sent"), "{}", stderr(&long));
    assert!(!stdout(&long).trim().is_empty(), "the next question is answered");
}

#[test]
fn manifests_are_given_with_a_space_or_without() {
    let dir = TempDir::new().unwrap();
    let (file, manifest) = (dir.path().join("m.gguf"), dir.path().join("other.json"));
    fs::copy(golden().join("llama-tiny/model.gguf"), &file).unwrap();
    let ran = |args: &[&str]| {
        let output = weighbridge(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    let (file, manifest) = (path(&file), path(&manifest));
    ran(&["check", file, "--write-manifest", manifest]);
    ran(&["check", file, "--verify", manifest]);
    ran(&["check", "--verify", manifest, file]);
    ran(&["load", file, "--verify", manifest]);
    ran(&["check", "--write-manifest", file]);
    for args in [&["check", "--verify", file][..], &["check", file, "--verify"], &["load", "--verify", file]]
    {
        ran(args);
    }
    assert_eq!(weighbridge(["check"]).status.code(), Some(2));
}

#[test]
fn presets_are_taken_in_any_case_and_listed() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("o.gguf");
    let output = weighbridge(["convert", &tiny(), path(&out), "--preset", "Q8_0"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let wrong = stderr(&weighbridge(["convert", &tiny(), path(&out), "--preset", "q9"]));
    assert!(wrong.contains("q4_k_m") && wrong.contains("mlx-4bit"), "{wrong}");
    let help = stdout(&weighbridge(["convert", "--help"]));
    for name in ["q2_k_s", "q3_k_m", "iq4_xs", "mlx-6bit", "mixed_3_6", "fp8-block", "bf16"] {
        assert!(help.contains(name), "{name}");
        for shell in ["bash", "zsh", "fish"] {
            assert!(stdout(&weighbridge(["completions", shell])).contains(name), "{shell}: {name}");
        }
        assert!(stdout(&weighbridge(["man", "convert"])).replace('\\', "").contains(name), "{name}");
    }
    // As llama-quantize says it.
    let output = weighbridge(["convert", &tiny(), path(&out), "--preset", "Q4_K", "--force"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// The command accepts what its hints name.
#[test]
fn hints_work_when_they_are_followed() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let convert = |more: &[&str]| weighbridge([&["convert", &*tiny(), path(&out)], more].concat());
    let refused = stderr(&convert(&["--to", "hf", "--encode", "*=q4_k"]));
    let hints: Vec<&str> = refused.lines().filter_map(|line| line.strip_prefix("hint: `")).collect();
    let schemes: std::collections::BTreeSet<&str> =
        hints.iter().filter_map(|hint| hint.strip_suffix("` would fit")).collect();
    assert!(!schemes.is_empty(), "{refused}");
    for scheme in schemes {
        let pattern = if scheme.starts_with("f8") { "*norm*" } else { "*.mlp.*" };
        let output = convert(&["--to", "hf", "--encode", &format!("{pattern}={scheme}"), "--force"]);
        assert!(output.status.success(), "{scheme}: {}", stderr(&output));
        assert!(weighbridge(["check", "--deep", path(&out)]).status.success());
        assert!(weighbridge(["diff", &*tiny(), path(&out), "--layout", "source"]).status.code() == Some(1));
    }
    fs::remove_dir_all(&out).unwrap();
    // What fits by its shape, and is not of the format.
    let refused = stderr(&convert(&["--to", "hf", "--encode", "*.mlp.*=q4_0"]));
    assert!(refused.contains("hf cannot store it") && refused.contains("would fit"), "{refused}");
    let refused = convert(&["--to", "mlx", "--preset", "q4_k_m"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = stderr(&refused);
    assert!(text.contains("presets for mlx: `mixed_4_6`, the nearest; also `mlx-4bit`, "), "{text}");
    for name in ["mixed_4_6", "mlx-4bit"] {
        let output = convert(&["--to", "mlx", "--preset", name, "--force"]);
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
    // Whatever preset a format refuses, it takes those that the hint names.
    for (to, preset) in [("hf", "q8_0"), ("mlx", "fp8-block"), ("gguf", "int8")] {
        fs::remove_dir_all(&out).unwrap();
        let refused = stderr(&convert(&["--to", to, "--preset", preset, "--force"]));
        let hint = refused.split_once("hint: presets for ").map(|(_, hint)| hint.lines().next().unwrap());
        let names: Vec<&str> = hint.unwrap().split('`').skip(1).step_by(2).collect();
        assert!(names.len() > 1, "{refused}");
        for name in names {
            let output = convert(&["--to", to, "--preset", name, "--force"]);
            assert!(output.status.success(), "{to}, {name}: {}", stderr(&output));
        }
    }
}

#[test]
fn what_would_mean_nothing_is_refused() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("o.gguf");
    for args in [
        &["plan", &*tiny(), "--ep", "2"][..],
        &["plan", &*tiny(), "--layout", "vllm", "--tp", "2", "--ep", "2"],
        &["convert", &*tiny(), path(&out), "--split-max-size", "1"],
        &["convert", &*tiny(), path(&out), "--to", "hf", "--max-shard-size", "5"],
    ] {
        let output = weighbridge(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    }
    let ep = stderr(&weighbridge(["plan", &*tiny(), "--ep", "2"]));
    assert!(ep.contains("this `llama` model has no experts to distribute to 2 groups"), "{ep}");
}

#[test]
fn paths_that_are_not_there_say_what_is_taken() {
    let dir = TempDir::new().unwrap();
    let run = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        stderr(&command.current_dir(dir.path()).args(["inspect", path]).output().unwrap())
    };
    assert_snapshot!(run("nothing"), @"
    error: cannot open `nothing`: No such file or directory (os error 2)
    hint: wanted a GGUF, safetensors, PyTorch, .npz or .npy file, or a model directory (Hugging Face, MLX, .npy files)
    ");
    assert_snapshot!(run("org/name"), @"
    error: cannot open `org/name`: No such file or directory (os error 2)
    hint: there is no directory `org`
    hint: `hf:org/name` is the model of that name on the Hugging Face Hub
    ");
}

#[test]
fn a_limit_on_files_is_an_error_and_nothing_is_left() {
    let dir = TempDir::new().unwrap();
    let script = "ulimit -f 100; exec \"$0\" \"$@\"";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_weighbridge"), "convert", &tiny()])
        .arg(dir.path().join("o.gguf"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
    assert!(!dir.path().join("o.gguf").exists());
}

#[test]
fn infinities_that_were_allowed_are_counted() {
    let dir = TempDir::new().unwrap();
    let (source, out) = (dir.path().join("a.safetensors"), dir.path().join("o.safetensors"));
    let header = r#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1.0f32, 1e6, -1e9, 2.0].iter().flat_map(|x| x.to_le_bytes()));
    fs::write(&source, bytes).unwrap();
    let args = ["convert", path(&source), path(&out), "--encode", "*=f16", "--allow-overflow"];
    let said = stdout(&weighbridge(args));
    assert!(said.contains("2 values became infinite, allowed by `--allow-overflow`"), "{said}");
}

#[test]
fn positions_that_are_learned_are_not_rotated() {
    let file = path(&golden().join("gpt2-tiny")).to_owned();
    let shown = stdout(&weighbridge(["inspect", &file]));
    assert!(shown.contains("attention_scale") && !shown.contains("rope_"), "{shown}");
    assert!(stdout(&weighbridge(["inspect", &tiny()])).contains("rope_theta"));
}

#[test]
fn nothing_but_a_checkpoint_is_replaced() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let convert = || weighbridge(["convert", &*tiny(), path(&out), "--to", "hf", "--force"]);
    assert!(convert().status.success());
    assert!(convert().status.success());
    fs::write(out.join("README.md"), "mine").unwrap();
    fs::write(out.join("optimizer.pt"), "mine").unwrap();
    let refused = convert();
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.contains("holds `README.md` and `optimizer.pt`, which no conversion writes"), "{said}");
    assert_eq!(fs::read(out.join("README.md")).unwrap(), b"mine");
}

/// A prompt is a prompt.
#[test]
fn json_that_is_a_value_asks_for_nothing() {
    let output = weighbridge(["run", "/nowhere/x.gguf", "-p", "--json"]);
    assert!(output.stdout.is_empty() && stderr(&output).starts_with("error: "), "{output:?}");
}

#[test]
fn tables_fit_narrow_terminals() {
    let manifest = model("smollm2");
    for args in [
        &["inspect", path(&manifest)][..],
        &["quants"],
        &["plan", path(&manifest), "--layout", "vllm", "--tp", "3", "--all-ranks"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        let shown = stdout(&command.args(args).env("COLUMNS", "50").output().unwrap());
        // Sentences are wrapped by the terminal; rows of tables are ours.
        let rows = shown.lines().filter(|line| line.starts_with("      "));
        let long: Vec<&str> = rows.filter(|line| line.chars().count() > 50).collect();
        assert!(long.is_empty(), "{args:?}: {long:#?}");
    }
}

/// The same model as a GGUF file at `file`.
fn tiny_gguf(file: &Path) {
    assert!(weighbridge(["convert", &*tiny(), path(file)]).status.success());
}

/// What each command line says on stderr, and its exit code.
fn refused(cases: &[(&[&str], i32, &str)]) {
    for (args, code, says) in cases {
        let output = weighbridge(*args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}\n{said}");
        assert!(said.contains(says), "{args:?}: wanted `{says}` in\n{said}");
        assert!(said.lines().all(|line| line.trim() != "tip:"), "{args:?}\n{said}");
    }
}

#[test]
fn a_source_is_never_its_own_destination() {
    let dir = TempDir::new().unwrap();
    let (file, link) = (dir.path().join("m.gguf"), dir.path().join("link.gguf"));
    tiny_gguf(&file);
    let bytes = fs::read(&file).unwrap();
    let same = "the source and the destination are the same";
    refused(&[(&["convert", path(&file), path(&file), "--force", "--encode", "*=f32"], 2, same)]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&file, &link).unwrap();
        refused(&[
            (&["convert", path(&file), path(&link), "--force"], 2, same),
            (&["convert", path(&link), path(&file), "--force"], 2, same),
        ]);
    }
    // Parts of the same name would be removed as those of an older result.
    let parts = dir.path().join("parts.gguf");
    let split = weighbridge(["convert", path(&file), path(&parts), "--split-max-tensors", "8"]);
    let first = dir.path().join("parts-00001-of-00002.gguf");
    let said = String::from_utf8_lossy(&split.stdout).into_owned();
    assert!(said.contains("parts-00001-of-") && !said.contains("parts.gguf"), "{said}");
    let first = if first.exists() { first } else { dir.path().join("parts-00001-of-00003.gguf") };
    refused(&[(&["convert", path(&first), path(&parts), "--split-max-size", "1G", "--force"], 2, same)]);
    assert_eq!(fs::read(&file).unwrap(), bytes);
    // A directory that is its own destination, too.
    let hf = dir.path().join("hf");
    assert!(weighbridge(["convert", path(&file), path(&hf), "--to", "hf"]).status.success());
    let weights = fs::read(hf.join("model.safetensors")).unwrap();
    refused(&[
        (&["convert", path(&hf), path(&hf), "--to", "hf", "--force"], 2, same),
        (&["convert", path(&hf.join("model.safetensors")), path(&hf), "--to", "npy-dir", "--force"], 2, same),
    ]);
    assert_eq!(fs::read(hf.join("model.safetensors")).unwrap(), weights);
}

#[test]
fn words_of_other_programs_are_understood() {
    let m = tiny();
    refused(&[
        (&["chat", &m], 2, "`weighbridge run MODEL` starts a chat"),
        (&["quantize", "a", "b", "q5_k_m"], 2, "--preset q5_k_m` does that"),
        (&["server", &m], 2, "`weighbridge serve MODEL`"),
        (&["serve", &m, "--max-model-len", "2048"], 2, "`--ctx` reserves positions for each request"),
        (&["info", &m], 2, "`weighbridge inspect PATH`"),
        (&["run", &m, "Why is the sky blue?"], 2, "give the prompt with `-p`"),
        (&["run", &m, "-c", "2048"], 2, "`--ctx` reserves positions"),
        (&["run", &m, "-ngl", "99"], 2, "nothing runs on a GPU"),
        (&["run", &m, "--temp", "0"], 2, "tip: `--temperature` does that"),
        (&["run", &m, "--temperature", "-1"], 2, "wanted a number, 0 or more"),
        (&["run", &m, "--mirostat", "1"], 2, "wanted 0 or 2"),
        (&["run", &m, "--logit-bias", "5"], 2, "such as 15043+1.5"),
        (&["run", &m, "--dry-sequence-breaker", "\\d"], 2, "where there is a backslash"),
        (&["run", &m, "--ids", "1", "--dry-multiplier", "1"], 2, "`--dry-sequence-breaker none`"),
        (&["run", &m, "--ids", "1", "--top-p", "0", "--typical", "0"], 2, "`top-p` must be above 0"),
        (&["run", &m, "--ids", "1", "--logit-bias", "99999+1"], 2, "`token of a logit bias` must be below"),
        (&["run", &m, "-n", "x"], 2, "wanted a whole number, -1 or more"),
        (&["run", &m, "--seed", "x"], 2, "wanted a whole number, 0 or more"),
        (&["run", &m, "--ids", "1,x"], 2, "wanted a whole number, 0 or more"),
        (&["run", &m, "-t", "0"], 2, "wanted a whole number from 1 to 1024"),
        (&["eval", &m, "text.txt"], 2, "give the text with `-f`"),
        (&["help", "chat"], 2, "`weighbridge run MODEL` starts a chat"),
        (&["convert", &m, "out.gguf", "q4_k_m"], 2, "tip: `--preset q4_k_m`"),
        (&["convert", &m, "q4_k_m"], 2, "OUT.gguf --preset q4_k_m`"),
        (&["convert", &m, "out.gguf", "--outtype", "f16"], 2, "`--preset` or `--encode`"),
        (&["convert", &m, "z.gguf", "--to", "hf"], 2, "name a directory, without an extension"),
        (&["convert", &m, "z.npz", "--to", "gguf"], 2, "name it `z.gguf`"),
    ]);
    let help = stdout(&weighbridge(["run", "--help"]));
    let sampling = help.split_once("Sampling:").map_or("", |(_, rest)| rest);
    assert!(sampling.contains("--temperature") && !sampling.contains("--json "), "{help}");
}

#[test]
fn what_is_missing_is_said_of_what_it_is() {
    let dir = TempDir::new().unwrap();
    let m = tiny();
    let copy = dir.path().join("model.gguf");
    tiny_gguf(&copy);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let exists = at("there.svg");
    fs::write(&exists, "mine").unwrap();
    refused(&[
        (&["convert", &m, &at("none/x.gguf")], 2, "there is no such directory\nhint: create it first"),
        (&["convert", &m, &at("x.gguf"), "--imatrix", &at("none")], 1, "cannot read the importance matrix"),
        (&["plan", &m, "--svg", &at("none/x.svg")], 2, "there is no such directory"),
        (&["plan", &m, "--svg", &exists], 2, "already exists"),
        (&["plan", &m, "--svg", &at("x.png")], 2, "x.svg`"),
        (&["run", &m, "-f", &at("none.txt")], 1, "cannot read"),
        (&["run", &m, "--ids", "1,999999"], 2, "the model has no token 999999"),
        (&["check", &m, "--verify", &at("none.json")], 1, "`weighbridge check --write-manifest` makes one"),
        (&["inspect", &at("model")], 1, "model.gguf`?"),
        (&["inspect", "ftp://host/a/b"], 1, "URLs of `ftp:` are not read"),
        (&["plan", path(&copy), "--explain", "blk.0.attn_q.weight"], 2, "the nearest is `layers.0."),
    ]);
    assert_eq!(fs::read_to_string(&exists).unwrap(), "mine");
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_loaded() {
    let smollm2 = model("smollm2");
    let run =
        |more: &[&str]| weighbridge([&["run", path(&smollm2), "-p", "Say hello.", "-n", "4"], more].concat());
    let refused = run(&["--memory", "90MB", "--layout", "packed"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("for the KV cache of 4096 positions") && said.contains("the limit is 85.8 MiB"),
        "{said}"
    );
    assert!(said.contains("hint: encode the parameters in fewer bits, as with `--preset q4_k_m`"), "{said}");
    // The hint about positions works when it is followed, and one position more does not.
    let said = stderr(&run(&["--memory", "90MB"]));
    let hint = said.split("ask for at most ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let fewer: u32 = hint.split(' ').next().unwrap().parse().unwrap();
    assert!(hint.contains("(`--ctx`)"), "{said}");
    let fits = run(&["--memory", "90MB", "--ctx", &fewer.to_string()]);
    assert!(fits.status.success(), "{}", stderr(&fits));
    let more = run(&["--memory", "90MB", "--ctx", &(fewer + 1).to_string()]);
    assert_eq!(more.status.code(), Some(1), "{}", stderr(&more));
    assert!(stderr(&fits).contains(" of weights stay in memory, "), "{}", stderr(&fits));
    // Buffers are smaller where that is enough, and the answer is the same.
    let temperature = ["--temperature", "0", "--ctx", "512"];
    let free = run(&temperature);
    let tight = run(&[&temperature[..], &["--memory", "121MB"]].concat());
    assert!(tight.status.success(), "{}", stderr(&tight));
    assert_eq!(stdout(&free), stdout(&tight));
    // What the machine has.
    let huge = run(&["--ctx", "4000000000"]);
    let said = stderr(&huge);
    assert_eq!(huge.status.code(), Some(1), "{said}");
    #[cfg(target_os = "linux")]
    assert!(said.contains("are available") && said.contains("`--memory SIZE` sets another limit"), "{said}");
}

#[test]
fn a_conversion_keeps_within_its_memory() {
    let (dir, smollm2) = (TempDir::new().unwrap(), model("smollm2"));
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let convert = |to: &str, memory: &[&str]| {
        weighbridge([&["convert", path(&smollm2), to, "--encode", "*=f16", "--json"], memory].concat())
    };
    let refused = convert(&out("a.gguf"), &["--memory", "1MB"]);
    let error: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    let hint = error["hint"].as_str().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error["error"].as_str().unwrap().starts_with("`token_embd.weight` needs 54.0 MiB"), "{error}");
    assert!(!dir.path().join("a.gguf").exists());
    // As little as the hint says is enough; a byte less is not.
    let least: u64 = hint.trim_start_matches("allow at least ").split(' ').next().unwrap().parse().unwrap();
    assert_eq!(convert(&out("a.gguf"), &["--memory", &(least - 1).to_string()]).status.code(), Some(1));
    let tight = convert(&out("a.gguf"), &["--memory", &least.to_string()]);
    assert!(tight.status.success(), "{}", stdout(&tight));
    let report: serde_json::Value = serde_json::from_slice(&tight.stdout).unwrap();
    assert!(report["peak_memory"].as_u64().unwrap() <= least, "{} of {least}", report["peak_memory"]);
    assert!(convert(&out("b.gguf"), &[]).status.success());
    assert!(fs::read(out("a.gguf")).unwrap() == fs::read(out("b.gguf")).unwrap());
}

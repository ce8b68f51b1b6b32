//! `cargo xtask full`: checks that take too long for every change. The results go into `docs/full-run.md`.
//!
//! A step that needs a program that was not named is reported as not run, and one that was never run is in the report too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::bench::machine;
use crate::test::run_tests;
use crate::workspace::{self, Build};

const REPORT: &str = "docs/full-run.md";

/// The programs of others, and how long to go on.
pub(crate) struct Options {
    /// A Python with torch, transformers, safetensors, gguf and tokenizers.
    pub(crate) python: Option<PathBuf>,
    /// A built `llama-completion`.
    pub(crate) llama_completion: Option<PathBuf>,
    /// A Python with mlx-lm.
    pub(crate) mlx_python: Option<PathBuf>,
    /// A source tree of llama.cpp.
    pub(crate) llama_cpp: Option<PathBuf>,
    /// `golden/models/llama_oracle.cpp`, built against its library.
    pub(crate) llama_oracle: Option<PathBuf>,
    /// A Python with openai, anthropic, ollama, httpx, schemathesis, langchain-openai, pytest, requests, filelock, and what
    /// `golden/serve_lm_eval.py` names.
    pub(crate) serve_python: Option<PathBuf>,
    /// A folder whose `node_modules` has playwright-core and axe-core.
    pub(crate) page_modules: Option<PathBuf>,
    /// A Python with huggingface_hub, moto[server], boto3, gcp-storage-emulator, google-cloud-storage and azure-storage-blob.
    pub(crate) remote_python: Option<PathBuf>,
    /// The program `azurite-blob` of npm's azurite.
    pub(crate) azurite: Option<PathBuf>,
    /// Parts of the names of the steps to run; none means all.
    pub(crate) only: Vec<String>,
    /// Changed inputs of each fuzz target.
    pub(crate) fuzz_runs: u64,
    /// How often each kind of work is killed.
    pub(crate) kills: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            python: None,
            llama_completion: None,
            mlx_python: None,
            llama_cpp: None,
            llama_oracle: None,
            serve_python: None,
            page_modules: None,
            remote_python: None,
            azurite: None,
            only: Vec::new(),
            fuzz_runs: 200_000,
            kills: 200,
        }
    }
}

/// How a step ended.
enum Outcome {
    Passed(String),
    Failed(String),
    NotRun(String),
}

/// Runs the steps and fails if one does. The report is written after each: what is not run keeps its line.
pub(crate) fn run(options: &Options) -> Result<()> {
    let is_wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()));
    if let Some(part) = options.only.iter().find(|part| !steps().iter().any(|(name, _)| name.contains(*part)))
    {
        let names: Vec<_> = steps().iter().map(|(name, _)| format!("`{name}`")).collect();
        bail!("no step's name has `{part}` in it\nhint: they are {}", names.join(", "));
    }
    let path = workspace::root().join(REPORT);
    let mut failed = Vec::new();
    for (name, work) in steps().into_iter().filter(|(name, _)| is_wanted(name)) {
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = work(options).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let (word, said) = match outcome {
            Outcome::Passed(said) => ("passed", said),
            Outcome::NotRun(said) => ("not run", said),
            Outcome::Failed(said) => {
                failed.push(name);
                ("failed", said)
            }
        };
        eprintln!("{name}: {word}, {said}");
        let said = said.replace('\n', " ").replace('|', "\\|");
        let line = format!("| {name} | {word} | {said} | {} | {} |", started.elapsed().as_secs(), stamp()?);
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        std::fs::write(&path, report(&before, name, &line))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    println!("\nwrote {REPORT}");
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

type Step = (&'static str, fn(&Options) -> Result<Outcome>);

fn steps() -> [Step; 12] {
    [
        ("fuzz targets", fuzz),
        ("conversions, compressions and cache builds, killed and continued", kills),
        ("models of the thread pool", models),
        ("crates, built as they are packaged", packages),
        ("what others read", interchange),
        ("clients of `serve`, faults of theirs, and many of them", serve),
        ("the pages of `serve`, in Chromium", page),
        ("buckets of three clouds, and the hub with its own package", remote),
        ("the Python package, with torch and transformers", wheel),
        ("models of candle, with our weights", candle),
        ("modules of burn, with our weights", burn),
        ("each configuration, by llama.cpp and transformers", judge),
    ]
}

fn fuzz(options: &Options) -> Result<Outcome> {
    let runs = options.fuzz_runs.to_string();
    let arguments = ["--package", "weighbridge", "--test", "fuzz"];
    tests(&arguments, ("WEIGHBRIDGE_FUZZ_RUNS", &runs), &format!("{runs} changed inputs of each"))
}

fn kills(options: &Options) -> Result<Outcome> {
    let kills = options.kills.to_string();
    let arguments = ["--package", "weighbridge-cli", "--test", "it", "kill"];
    tests(&arguments, ("WEIGHBRIDGE_KILLS", &kills), &format!("{kills} kills of each"))
}

/// By loom: every way in which threads can meet, within its bounds.
fn models(_: &Options) -> Result<Outcome> {
    let arguments = ["--package", "weighbridge-load", "--lib", "models"];
    tests(&arguments, ("RUSTFLAGS", "--cfg loom"), "every interleaving within the bounds of each model")
}

fn packages(_: &Options) -> Result<Outcome> {
    let mut command = workspace::cargo();
    let others = [
        "--exclude",
        "xtask",
        "--exclude",
        "weighbridge-testkit",
        "--exclude",
        "weighbridge-python",
        "--exclude",
        "weighbridge-c",
    ];
    command.args(["package", "--workspace", "--locked"]).args(others);
    workspace::step(&mut command)?;
    Ok(Outcome::Passed("each builds from its package alone".to_owned()))
}

fn tests(arguments: &[&str], (key, value): (&str, &str), what: &str) -> Result<Outcome> {
    let mut command = workspace::cargo();
    command.args(["test", "--release", "--locked"]).args(arguments).env(key, value);
    let (passed, failed) = run_tests(&mut command)?;
    let said = format!("{what}; {passed} tests passed, {failed} failed");
    // A filter that matches nothing must not pass.
    Ok(if failed == 0 && passed > 0 { Outcome::Passed(said) } else { Outcome::Failed(said) })
}

fn interchange(options: &Options) -> Result<Outcome> {
    let (Some(python), Some(llama), Some(mlx)) =
        (&options.python, &options.llama_completion, &options.mlx_python)
    else {
        let wants = "`golden/interchange.py` needs `--python`, `--llama-completion` and `--mlx-python`";
        return Ok(Outcome::NotRun(wants.to_owned()));
    };
    let program = workspace::build_weighbridge(Build::Release)?;
    for name in ["smollm2", "gemma3"] {
        testkit::fetch(testkit::find(name)?, testkit::Check::Stamp)?;
    }
    let models = testkit::cache_folder();
    let mut command = Command::new(python);
    command.arg("golden/interchange.py").current_dir(workspace::root());
    for (name, path) in [
        ("--weighbridge", program.as_path()),
        ("--models", &models),
        ("--llama-completion", llama),
        ("--mlx-python", mlx),
    ] {
        command.arg(name).arg(path);
    }
    workspace::step(&mut command)?;
    Ok(Outcome::Passed("transformers, llama.cpp, mlx-lm, gguf-py and safetensors".to_owned()))
}

/// Clients of others, faults of theirs, and many of them at once.
fn serve(options: &Options) -> Result<Outcome> {
    let (Some(python), Some(sources)) = (&options.serve_python, &options.llama_cpp) else {
        let wants =
            "`golden/serve_openai.py` and the scripts beside it need `--serve-python` and `--llama-cpp`";
        return Ok(Outcome::NotRun(wants.to_owned()));
    };
    let program = workspace::build_weighbridge(Build::Release)?;
    let model = testkit::model("smollm2");
    let (embedder, reranker) = (testkit::model("minilm"), testkit::golden("embed/rerank/bert"));
    let (seconds, template) =
        (PathBuf::from("60"), sources.join("models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"));
    for (script, with) in [
        ("openai", vec![&model]),
        ("anthropic", vec![&model]),
        ("ollama", vec![&model, &embedder]),
        ("langchain", vec![&model, &embedder, &template]),
        ("lm_eval", vec![&model]),
        ("vectors", vec![&embedder, &reranker]),
        ("schemathesis", vec![&seconds, &model, &embedder, &reranker]),
        ("faults", vec![&model]),
        ("load", vec![&model]),
    ] {
        let mut command = Command::new(python);
        command.arg(format!("golden/serve_{script}.py")).arg(&program).args(with);
        workspace::step(command.current_dir(workspace::root()))?;
    }
    let mut tests = Command::new(python);
    tests.arg("golden/serve_llama_tests.py").arg("--weighbridge").arg(&program);
    tests.arg("--llama-cpp").arg(sources).arg("--generator").arg(&model).arg("--encoder").arg(&embedder);
    workspace::step(tests.current_dir(workspace::root()))?;
    let what = "the clients of OpenAI, Anthropic, Ollama, LangChain and lm-eval, the tests of llama.cpp's server, what /openapi.json says, 10,000 malformed requests and other faults, 64 \
                streams for five minutes";
    Ok(Outcome::Passed(what.to_owned()))
}

fn page(options: &Options) -> Result<Outcome> {
    let Some(modules) = &options.page_modules else {
        return Ok(Outcome::NotRun("`golden/page/check.mjs` needs `--page-modules`".to_owned()));
    };
    let program = workspace::build_weighbridge(Build::Release)?;
    let model = testkit::model("smollm2");
    let mut command = Command::new("node");
    command.arg("golden/page/check.mjs").args([&program, &model, modules]).current_dir(workspace::root());
    workspace::step(&mut command)?;
    Ok(Outcome::Passed(
        "chats by mouse and keyboard, refusals, hostile answers, axe-core at three widths".to_owned(),
    ))
}

fn remote(options: &Options) -> Result<Outcome> {
    let (Some(python), Some(azurite)) = (&options.remote_python, &options.azurite) else {
        let wants = "`golden/remote.py`, `golden/remote_write.py` and `golden/hub.py` need `--remote-python` and `--azurite`";
        return Ok(Outcome::NotRun(wants.to_owned()));
    };
    let program = workspace::build_weighbridge(Build::Release)?;
    let model = testkit::golden("models/llama-tiny");
    let mut servers = Command::new(python);
    servers.arg("golden/remote.py").args([&program, &model.join("model.gguf"), &model, azurite]);
    workspace::step(servers.current_dir(workspace::root()))?;
    let mut written = Command::new(python);
    written.arg("golden/remote_write.py").args([&program, &testkit::model("smollm2"), azurite]);
    workspace::step(written.current_dir(workspace::root()))?;
    let mut hub = Command::new(python);
    hub.arg("golden/hub.py").arg(&program);
    workspace::step(hub.current_dir(workspace::root()))?;
    Ok(Outcome::Passed(
        "moto behind delays and resets, an emulator of Google, azurite, read and written; huggingface_hub"
            .to_owned(),
    ))
}

fn wheel(options: &Options) -> Result<Outcome> {
    let Some(python) = &options.python else {
        return Ok(Outcome::NotRun(
            "the tests of torch and transformers need `--python`, with pytest".to_owned(),
        ));
    };
    crate::wheel::run(Some(python))?;
    Ok(Outcome::Passed("every test of the wheel".to_owned()))
}

fn candle(_: &Options) -> Result<Outcome> {
    binding("candle")
}

fn burn(_: &Options) -> Result<Outcome> {
    binding("burn")
}

/// The formatting, lints and tests of a binding that is a workspace of its own.
fn binding(name: &str) -> Result<Outcome> {
    let folder = workspace::root().join("bindings").join(name);
    let target = workspace::target_dir()?;
    let cargo = |arguments: &[&str]| {
        let mut command = workspace::cargo();
        command.args(arguments).current_dir(&folder).env("CARGO_TARGET_DIR", &target);
        command
    };
    workspace::step(&mut cargo(&["fmt", "--check"]))?;
    workspace::step(&mut cargo(&[
        "clippy",
        "--all-targets",
        "--release",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    let (passed, failed) = run_tests(&mut cargo(&["test", "--release", "--locked"]))?;
    let said = format!("{passed} tests passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { Outcome::Passed(said) } else { Outcome::Failed(said) })
}

fn judge(options: &Options) -> Result<Outcome> {
    let (Some(python), Some(sources), Some(oracle)) =
        (&options.python, &options.llama_cpp, &options.llama_oracle)
    else {
        let wants = "`golden/config/judge.py` needs `--python`, `--llama-cpp` and `--llama-oracle`";
        return Ok(Outcome::NotRun(wants.to_owned()));
    };
    let program = workspace::build_weighbridge(Build::Release)?;
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--locked", "--package", "weighbridge", "--example", "logits"]);
    workspace::step(&mut build)?;
    let logits = program.with_file_name("examples").join("logits");
    let mut command = Command::new(python);
    command.arg("golden/config/judge.py").current_dir(workspace::root());
    for (name, path) in
        [("--llama-cpp", sources), ("--oracle", oracle), ("--weighbridge", &program), ("--logits", &logits)]
    {
        command.arg(name).arg(path);
    }
    workspace::step(&mut command)?;
    // The judgements are in golden/config/judged now, and these tests use them.
    let mut command = workspace::cargo();
    command.args(["test", "--release", "--locked", "--package", "weighbridge", "--test", "it", "judged"]);
    let (passed, failed) = run_tests(&mut command)?;
    let said = format!("docs/fidelity-gguf.md; {passed} tests passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { Outcome::Passed(said) } else { Outcome::Failed(said) })
}

/// The page with a new line for one step: others keep the line that they have.
fn report(before: &str, step: &str, line: &str) -> String {
    let mut page = "# Full runs\n\n\
         `cargo xtask full` wrote this page. It runs what takes too long for every change; all else is in\n\
         `cargo xtask test`. Each line is the last run of a step.\n\n\
         | what | result | how much | seconds | when | commit | machine |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (name, _) in steps() {
        let start = format!("| {name} | ");
        let kept = before.lines().find(|line| line.starts_with(&start));
        let never = format!("{start}never run | | | | | |");
        page.push_str(if name == step { line } else { kept.unwrap_or(&never) });
        page.push('\n');
    }
    page
}

/// When, of which commit and where: the last columns of a line.
fn stamp() -> Result<String> {
    let git = |arguments: &[&str]| said(Command::new("git").args(arguments).current_dir(workspace::root()));
    let date = said(Command::new("date").arg("+%F"))?;
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", ".", &format!(":!{REPORT}")])?;
    let changed = if changed.is_empty() { "" } else { ", changed" };
    Ok(format!("{date} | {commit}{changed} | {}", machine()))
}

/// The first line that a program prints.
fn said(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_run_keeps_its_line() {
        let names = steps().map(|(name, _)| name);
        let lines = names.map(|name| format!("| {name} | passed |"));
        let first = report("", names[0], &lines[0]);
        assert!(first.contains(&lines[0]));
        assert_eq!(first.matches("never run").count(), names.len() - 1);
        let second = report(&first, names[1], &lines[1]);
        assert!(second.contains(&lines[0]) && second.contains(&lines[1]));
        let again = report(&second, names[0], "| new |");
        assert!(again.contains("| new |") && !again.contains(&lines[0]));
    }
}

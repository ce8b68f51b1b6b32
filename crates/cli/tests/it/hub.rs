//! `pull` and `list`, against a hub on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http::{Answer, Faults, FileServer};

use crate::golden;

const TOKEN: &str = "hf_very_secret_token";

/// Digests, by the program that everybody trusts; files of 10,000 bytes or more are large.
fn etag(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    let (program, bytes) = if bytes.len() >= 10_000 {
        ("sha256sum", bytes.to_vec())
    } else {
        ("sha1sum", [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat())
    };
    fs::write(&file, bytes).unwrap();
    let output = Command::new(program).arg(&file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// The commit of the repository.
const COMMIT: &str = "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0";

/// A hub with the repository `o/n`.
struct Hub {
    server: FileServer,
    dir: TempDir,
}

impl Hub {
    fn new(files: &[(&str, Vec<u8>)]) -> Hub {
        let server = FileServer::start();
        let siblings: Vec<Value> = files
            .iter()
            .map(|(name, bytes)| {
                let (etag, size) = (etag(bytes), bytes.len());
                let head = format!("X-Repo-Commit: {COMMIT}\r\n");
                server.put_with(&format!("o/n/resolve/{COMMIT}/{name}"), bytes.clone(), &etag, &head);
                match etag.len() {
                    64 => json!({"rfilename": name, "size": size, "lfs": {"sha256": etag, "size": size}}),
                    _ => json!({"rfilename": name, "size": size, "blobId": etag}),
                }
            })
            .collect();
        let list = json!({"sha": COMMIT, "siblings": siblings}).to_string();
        server.put("api/models/o/n/revision/main", list.into_bytes());
        let hub = Hub { server, dir: tempfile::tempdir().unwrap() };
        hub.pause(0);
        hub
    }

    /// Waits before each answer.
    fn pause(&self, milliseconds: u64) {
        let missing =
            Answer { status: "401 Unauthorized", headers: "X-Error-Code: RepoNotFound\r\n", body: "" };
        let delay = Duration::from_millis(milliseconds);
        self.server.fail(Faults { delay, missing: Some(missing), ..Faults::default() });
    }

    /// How often bytes of files were asked for since this was last asked.
    fn asked_for_bytes(&self) -> usize {
        let is_file = |head: &String| head.starts_with("GET ") && head.contains("/resolve/");
        self.server.asked().iter().filter(|head| is_file(head)).count()
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.dir.path(), args);
        command.env("HF_ENDPOINT", self.server.url("").trim_end_matches('/'));
        command
    }

    /// Stdout, stderr and the exit code, without paths that differ.
    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let said = said(&output);
        assert!(!said.contains(TOKEN), "{said}");
        let said = said.replace(&self.dir.path().display().to_string(), "DIR");
        let said = said.replace(&self.server.address().to_string(), "HUB");
        // Speeds differ.
        match (said.find("downloaded, "), said.find(" GB/s")) {
            (Some(from), Some(to)) => format!("{}… {}", &said[..from + 12], &said[to + 1..]),
            _ => said,
        }
    }
}

/// A command whose home and cache are in `dir`.
fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    let of_others = [
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    for name in of_others.into_iter().chain([
        "HF_TOKEN_PATH",
        "HF_ENDPOINT",
        "HUGGINGFACE_HUB_CACHE",
        "OLLAMA_MODELS",
    ]) {
        command.env_remove(name);
    }
    command.env("HOME", dir).env("HF_HUB_CACHE", dir.join("cache")).env("HF_TOKEN", TOKEN).args(args);
    command
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!("{}{}exit code {}", text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn tiny() -> Vec<(&'static str, Vec<u8>)> {
    let read = |name: &str| fs::read(golden().join("llama-tiny").join(name)).unwrap();
    vec![
        ("config.json", read("config.json")),
        ("model.safetensors", read("model.safetensors")),
        ("m.onnx", vec![0; 20_000]),
    ]
}

#[test]
fn a_model_is_pulled_listed_and_opened() {
    let hub = Hub::new(&tiny());
    assert_snapshot!(hub.run(&["pull", "o/n"]), @"
    DIR/cache/models--o--n/snapshots/c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0
    commit c0c0c0c0c0c0: 2 files, 308 KiB downloaded, … GB/s
    exit code 0
    ");
    assert_snapshot!(hub.run(&["pull", "hf:o/n@main"]), @"
    DIR/cache/models--o--n/snapshots/c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0
    commit c0c0c0c0c0c0: 2 files, 308 KiB, all in the cache
    exit code 0
    ");
    assert_snapshot!(hub.run(&["pull", "o/n", "--offline"]), @"
    DIR/cache/models--o--n/snapshots/c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0
    from the cache (offline): commit c0c0c0c0c0c0, 2 files, 308 KiB
    exit code 0
    ");
    assert_snapshot!(hub.run(&["list"]), @"
      model   from  weights         size  revision  path
      hf:o/n  hub   safetensors  308 KiB  main      DIR/cache/models--o--n/snapshots/c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0
    1 model; the hub's cache is `DIR/cache`
    exit code 0
    ");
    let output = hub.command(&["pull", "o/n", "--json"]).output().unwrap();
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = facts["pulled"][0]["path"].as_str().unwrap().to_owned();
    let listed = hub.command(&["list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["models"][0]["path"], path.as_str());
    assert_eq!(listed["models"][0]["revisions"], serde_json::json!(["main"]));
    let opened = hub.command(&["plan", &path]).output().unwrap();
    assert!(opened.status.success(), "{}", said(&opened));
    // The network is gone.
    let output = hub.command(&["pull", "o/n"]).env("HF_ENDPOINT", "http://127.0.0.1:1").output().unwrap();
    let said = said(&output);
    assert!(said.starts_with(&path) && said.contains("from the cache (cannot reach 127.0.0.1:1: "), "{said}");
    assert!(said.ends_with("exit code 0"), "{said}");
}

/// A name of the hub is a path: `inspect` reads headers from the hub, and what loads the model pulls it, once.
#[test]
fn a_name_of_the_hub_is_a_path() {
    let hub = Hub::new(&tiny());
    let looked = hub.run(&["inspect", "hf:o/n"]);
    assert!(looked.contains("hf:o/n") && looked.contains("matches `llama`"), "{looked}");
    assert!(hub.asked_for_bytes() > 0 && !hub.cache().join("models--o--n").exists());

    let loaded = hub.run(&["load", "hf:o/n"]);
    assert!(loaded.contains("2 files, 308 KiB downloaded") && loaded.ends_with("exit code 0"), "{loaded}");
    hub.asked_for_bytes();
    let again = hub.run(&["load", "hf:o/n@main"]);
    assert!(!again.contains("commit") && again.ends_with("exit code 0"), "{again}");
    assert!(hub.run(&["plan", "hf:o/n"]).ends_with("exit code 0"));
    assert_eq!(hub.asked_for_bytes(), 0, "all of it is in the cache");

    let missing = hub.run(&["inspect", "hf:o/other"]);
    assert_snapshot!(missing, @"
    error: no repository `o/other` at HUB
    hint: check the name, and that the token may read this repository
    exit code 1
    ");
    assert_eq!(hub.run(&["load", "hf:o/other"]), missing);
    let offline = hub.command(&["plan", "hf:o/n"]).env("HF_HUB_OFFLINE", "1").output().unwrap();
    assert!(offline.status.success(), "{}", said(&offline));
}

#[test]
fn what_cannot_be_pulled() {
    let hub = Hub::new(&[("m-Q4_0.gguf", vec![1; 20_000]), ("m-Q8_0.gguf", vec![2; 40_000])]);
    assert_snapshot!(hub.run(&["pull", "o/n"]), @"
    error: `o/n` has 2 models: choose one
      19.5 KiB  hf:o/n/Q4_0
      39.1 KiB  hf:o/n/Q8_0
    hint: use one of these names
    exit code 1
    ");
    assert_snapshot!(hub.run(&["pull", "o/n/Q5_0", "o/n/Q4_0"]), @"
    error: `o/n` has no model in `Q5_0`
      19.5 KiB  hf:o/n/Q4_0
      39.1 KiB  hf:o/n/Q8_0
    hint: use one of these names
    exit code 1
    ");
    assert_snapshot!(hub.run(&["pull", "o/other"]), @"
    error: no repository `o/other` at HUB
    hint: check the name, and that the token may read this repository
    exit code 1
    ");
    assert_snapshot!(hub.run(&["pull", "o/n/m-Q4_1.gguf"]), @"
    error: `o/n` has no file `m-Q4_1.gguf`
    hint: did you mean `m-Q4_0.gguf`?
    exit code 1
    ");
    assert_snapshot!(hub.run(&["pull", "o/n/Q4_0", "--offline"]), @"
    error: `hf:o/n/Q4_0` is not in the cache `DIR/cache`: it has no revision `main`
    hint: pull it once while the hub can be reached
    exit code 1
    ");
    assert_snapshot!(hub.run(&["pull", "o/n@a", "--revision", "b"]), @"
    error: `hf:o/n@a` names no model: wanted one revision, found `a` and `b`
    hint: a name is `hf:owner/name`, then `@revision`, then `/file` or `/quantisation`, as in `hf:owner/name@main/Q4_K_M`
    exit code 2
    ");
    assert_snapshot!(hub.run(&["pull", "hf:"]), @"
    error: `hf:` names no model: wanted an owner and a name of ASCII letters, digits, `-`, `_` and `.`, without `--` and `..`, found an empty one
    hint: a name is `hf:owner/name`, then `@revision`, then `/file` or `/quantisation`, as in `hf:owner/name@main/Q4_K_M`
    exit code 2
    ");
    assert!(!hub.cache().join("models--o--n").exists());
}

/// Killed in the middle, again and again: what has arrived is not read again, and the file is right.
#[cfg(unix)]
#[test]
fn a_pull_that_is_killed_continues() {
    let mut random = testkit::Rng(5);
    let weights: Vec<u8> = (0..8 << 20).flat_map(|_| random.next().to_le_bytes()).collect();
    let hub = Hub::new(&[("m.gguf", weights.clone())]);
    hub.pause(300);
    let journal =
        hub.cache().join("models--o--n/blobs").join(format!("{}.weighbridge.pieces", etag(&weights)));
    let pieces = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count().saturating_sub(1));
    let mut before = 0;
    for _ in 0..2 {
        let mut child =
            hub.command(&["pull", "o/n"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while pieces() <= before && started.elapsed() < Duration::from_mins(2) {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = pieces();
        assert!(now > before, "{before} pieces, then {now}");
        before = now;
    }
    assert!(before < 8, "it was killed too late: {before} pieces");
    // What the processes that were killed have asked for is answered by then.
    while hub.server.connections() > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    hub.asked_for_bytes();
    hub.pause(0);
    let output = hub.command(&["pull", "o/n", "--json"]).output().unwrap();
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["pulled"][0]["bytes_downloaded"], (8 - before) * (8 << 20));
    assert_eq!(hub.asked_for_bytes(), 8 - before);
    let path = facts["pulled"][0]["path"].as_str().unwrap();
    assert!(fs::read(path).unwrap() == weights);
    let left: Vec<_> = fs::read_dir(journal.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1);
}

/// A model of Ollama and one of LM Studio, which the other commands open.
#[test]
fn models_of_other_programs_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, bytes: &[u8]| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let model = fs::read(golden().join("llama-tiny/model.gguf")).unwrap();
    write(".ollama/models/blobs/sha256-ab", &model);
    let manifest = br#"{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab", "size": 1}]}"#;
    write(".ollama/models/manifests/registry.ollama.ai/library/tiny/1b", manifest);
    write(".lmstudio/models/owner/tiny-GGUF/tiny-F32.gguf", &model);
    let listed = said(&command(dir.path(), &["list"]).output().unwrap());
    assert_snapshot!(listed.replace(&dir.path().display().to_string(), "DIR"), @"
      model                from       weights      size  revision  path
      tiny:1b              Ollama     gguf      307 KiB            DIR/.ollama/models/blobs/sha256-ab
      owner/tiny-GGUF/F32  LM Studio  gguf F32  307 KiB            DIR/.lmstudio/models/owner/tiny-GGUF/tiny-F32.gguf
    2 models; the hub's cache is `DIR/cache`
    exit code 0
    ");
    let listed = command(dir.path(), &["list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    for model in listed["models"].as_array().unwrap() {
        let plan = command(dir.path(), &["plan", model["path"].as_str().unwrap()]).output().unwrap();
        assert!(plan.status.success(), "{}", said(&plan));
    }
}

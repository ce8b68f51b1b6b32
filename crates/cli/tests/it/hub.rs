//! `pull` and `list`, against a hub on this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

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

/// A hub with the repository `o/n`.
struct Hub {
    address: String,
    state: Arc<State>,
    dir: TempDir,
}

/// The digest and the bytes of a file.
type File = (String, Arc<Vec<u8>>);

#[derive(Default)]
struct State {
    /// Files with their digests.
    files: Mutex<BTreeMap<String, File>>,
    /// Milliseconds before each answer with bytes.
    pause: AtomicU64,
    asked_for_bytes: AtomicUsize,
    /// Connections that are open.
    open: AtomicUsize,
}

impl Hub {
    fn new(files: &[(&str, Vec<u8>)]) -> Hub {
        let state = Arc::new(State::default());
        for (name, bytes) in files {
            state.files.lock().unwrap().insert((*name).to_owned(), (etag(bytes), Arc::new(bytes.clone())));
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let of_thread = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = of_thread.clone();
                // A client that was killed is no fault of the test.
                state.open.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    drop(state.answer(stream));
                    state.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Hub { address, state, dir: tempfile::tempdir().unwrap() }
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.dir.path(), args);
        command.env("HF_ENDPOINT", format!("http://{}", self.address));
        command
    }

    /// Stdout, stderr and the exit code, without paths that differ.
    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let said = said(&output);
        assert!(!said.contains(TOKEN), "{said}");
        let said = said.replace(&self.dir.path().display().to_string(), "DIR").replace(&self.address, "HUB");
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

impl State {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut request, mut range) = (String::new(), None);
        reader.read_line(&mut request)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(found) = line.to_ascii_lowercase().trim().strip_prefix("range: bytes=") {
                let (from, to) = found.split_once('-').unwrap();
                range = Some((from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap()));
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, headers, body) = self.respond(method, path, range);
        let mut out = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}");
        if !headers.contains("Content-Length") {
            write!(out, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        let mut stream = stream;
        stream.write_all(format!("{out}\r\n").as_bytes())?;
        stream.write_all(&body)
    }

    fn respond(&self, method: &str, path: &str, range: Option<(usize, usize)>) -> (u16, String, Vec<u8>) {
        let commit = "c0".repeat(20);
        let files = self.files.lock().unwrap().clone();
        if path == "/api/models/o/n/revision/main?blobs=true" {
            let file = |(name, (etag, bytes)): (&String, &File)| match etag.len() {
                64 => format!(
                    r#"{{"rfilename": "{name}", "size": {0}, "lfs": {{"sha256": "{etag}", "size": {0}}}}}"#,
                    bytes.len()
                ),
                _ => format!(r#"{{"rfilename": "{name}", "size": {}, "blobId": "{etag}"}}"#, bytes.len()),
            };
            let list: Vec<String> = files.iter().map(file).collect();
            return (
                200,
                String::new(),
                format!(r#"{{"sha": "{commit}", "siblings": [{}]}}"#, list.join(",")).into_bytes(),
            );
        }
        let file = path.strip_prefix(&format!("/o/n/resolve/{commit}/")).and_then(|name| files.get(name));
        let Some((etag, bytes)) = file else {
            return (401, "X-Error-Code: RepoNotFound\r\n".to_owned(), vec![]);
        };
        let headers = format!("ETag: \"{etag}\"\r\nX-Repo-Commit: {commit}\r\n");
        if method == "HEAD" {
            return (200, format!("{headers}Content-Length: {}\r\n", bytes.len()), vec![]);
        }
        self.asked_for_bytes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(self.pause.load(Ordering::Relaxed)));
        match range {
            None => (200, headers, bytes.to_vec()),
            Some((from, to)) => {
                let to = to.min(bytes.len() - 1);
                let range = format!("Content-Range: bytes {from}-{to}/{}\r\n", bytes.len());
                (206, headers + &range, bytes[from..=to].to_vec())
            }
        }
    }
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
    let asked = || hub.state.asked_for_bytes.swap(0, Ordering::Relaxed);
    let looked = hub.run(&["inspect", "hf:o/n"]);
    assert!(looked.contains("hf:o/n") && looked.contains("matches `llama`"), "{looked}");
    assert!(asked() > 0 && !hub.cache().join("models--o--n").exists());

    let loaded = hub.run(&["load", "hf:o/n"]);
    assert!(loaded.contains("2 files, 308 KiB downloaded") && loaded.ends_with("exit code 0"), "{loaded}");
    asked();
    let again = hub.run(&["load", "hf:o/n@main"]);
    assert!(!again.contains("commit") && again.ends_with("exit code 0"), "{again}");
    assert!(hub.run(&["plan", "hf:o/n"]).ends_with("exit code 0"));
    assert_eq!(asked(), 0, "all of it is in the cache");

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
    hub.state.pause.store(300, Ordering::Relaxed);
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
    while hub.state.open.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    hub.state.asked_for_bytes.store(0, Ordering::Relaxed);
    hub.state.pause.store(0, Ordering::Relaxed);
    let output = hub.command(&["pull", "o/n", "--json"]).output().unwrap();
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["pulled"][0]["bytes_downloaded"], (8 - before) * (8 << 20));
    assert_eq!(hub.state.asked_for_bytes.load(Ordering::Relaxed), 8 - before);
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

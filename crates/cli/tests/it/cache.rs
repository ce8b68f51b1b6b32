//! `--cache` and `weighbridge cache`: killed, out of space, looked after.
#![cfg(unix)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use insta::assert_snapshot;
use serde_json::Value;
use testkit::model;

fn at(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.env("WEIGHBRIDGE_CACHE", cache).args(args).output().unwrap()
}

fn json(cache: &Path, args: &[&str]) -> Value {
    let output = at(cache, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The tokens of an answer, and what was said beside it.
fn answer(cache: &Path, path: &str, tokens: &str, mode: &str) -> (String, String) {
    let ids = ["run", path, "--ids", "504,2365,282", "--temperature", "0", "-n", tokens, "--cache", mode];
    let output = at(cache, &ids);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(output.status.success(), "{said}");
    (text(output.stdout), said)
}

/// A model that was not written to within the last two seconds: a younger one has no copy yet.
fn settled() -> PathBuf {
    let path = model("smollm2");
    let changed = std::fs::metadata(&path).unwrap().ctime();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    while now() < changed + 3 {
        std::thread::sleep(Duration::from_millis(100));
    }
    path
}

fn state(cache: &Path, path: &str) -> String {
    json(cache, &["cache", "status", path])["runtime_ready"]["state"].as_str().unwrap().to_owned()
}

/// Runs until there is a copy.
fn until_ready(cache: &Path, path: &str, wanted: &str) {
    let began = Instant::now();
    while state(cache, path) != "ready" {
        assert_eq!(answer(cache, path, "100", "write").0, wanted);
        assert!(began.elapsed() < Duration::from_mins(2), "{}", state(cache, path));
    }
}

#[test]
fn a_copy_is_built_beside_and_gives_the_same_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let smollm2 = settled();
    let path = smollm2.to_str().unwrap();
    let (wanted, said) = answer(dir.path(), path, "100", "off");
    assert!(said.contains("re-encoded") || said.contains("mapped"), "{said}");
    assert_eq!(state(dir.path(), path), "absent");
    let (first, said) = answer(dir.path(), path, "100", "write");
    // Where the kernels have no interleaved rows, all stays in the file's own map.
    let status = json(dir.path(), &["cache", "status", path]);
    let is_packed = status["runtime_ready"]["bytes"].as_u64() > Some(16 << 20);
    assert_eq!((first, said.contains("keeping a copy of")), (wanted.clone(), is_packed), "{said}");
    until_ready(dir.path(), path, &wanted);
    let (second, said) = answer(dir.path(), path, "100", "read");
    assert_eq!(second, wanted);
    assert!(!said.contains("re-encoded") && !said.contains("keeping"), "{said}");
    let list = json(dir.path(), &["cache", "list"]);
    assert_eq!(list["entries"][0]["source"], path);
    assert_eq!(json(dir.path(), &["cache", "verify"])["removed"], Value::Array(vec![]));
    let cleared = json(dir.path(), &["cache", "clear"]);
    assert_eq!((cleared["removed"].as_array().unwrap().len(), &cleared["bytes"]), (1, &Value::from(0)));
    assert_eq!(std::fs::read_dir(dir.path().join("ready")).unwrap().count(), 0);
}

#[test]
fn a_build_that_is_killed_is_continued_and_no_other_weight_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let smollm2 = settled();
    let path = smollm2.to_str().unwrap();
    let (wanted, _) = answer(dir.path(), path, "100", "off");
    let kills = crate::resume::kills(12);
    let mut states = std::collections::BTreeMap::new();
    for kill in 0..kills {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
            .env("WEIGHBRIDGE_CACHE", dir.path())
            .args([
                "run",
                path,
                "--ids",
                "504,2365,282",
                "--temperature",
                "0",
                "-n",
                "2000",
                "--cache",
                "write",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Points spread over what a build takes: some hundred milliseconds.
        std::thread::sleep(Duration::from_millis(30 + u64::from(kill * 7919 % 600)));
        child.kill().unwrap();
        child.wait().unwrap();
        let state = state(dir.path(), path);
        assert_eq!(answer(dir.path(), path, "100", "read").0, wanted, "after kill {kill}: {state}");
        // Every other copy is built from where the kill before has left it.
        if state == "ready" || kill % 4 == 3 {
            at(dir.path(), &["cache", "clear"]);
        }
        *states.entry(state).or_insert(0) += 1;
    }
    println!("{states:?}");
    until_ready(dir.path(), path, &wanted);
    assert_eq!(answer(dir.path(), path, "100", "read").0, wanted);
}

#[test]
fn where_there_is_no_space_the_answer_comes_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let smollm2 = settled();
    let path = smollm2.to_str().unwrap();
    let (wanted, _) = answer(dir.path(), path, "100", "off");
    // Files of at most 8 MiB (1 KiB blocks in bash, 512 bytes in others).
    let script = "ulimit -f 8192; exec \"$@\"";
    let output = Command::new("bash")
        .env("WEIGHBRIDGE_CACHE", dir.path())
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_weighbridge")])
        .args(["run", path, "--ids", "504,2365,282", "--temperature", "0", "-n", "100", "--cache", "write"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    assert_ne!(state(dir.path(), path), "ready");
    assert_eq!(answer(dir.path(), path, "100", "read").0, wanted);
}

#[test]
fn load_builds_the_copy_that_run_uses() {
    let dir = tempfile::tempdir().unwrap();
    let smollm2 = settled();
    let path = smollm2.to_str().unwrap();
    let (wanted, _) = answer(dir.path(), path, "20", "off");
    let layout = json(dir.path(), &["cache", "status", path])["runtime_ready"]["layout"].clone();
    let load =
        |mode| json(dir.path(), &["load", path, "--layout", layout.as_str().unwrap(), "--cache", mode]);
    let first = load("write");
    assert_eq!(state(dir.path(), path), "ready");
    let second = load("read");
    let number = |report: &Value, key: &str| report[key].as_u64().unwrap();
    let moved = |report: &Value| number(report, "bytes_copied") + number(report, "bytes_encoded");
    assert_eq!((moved(&second), number(&second, "bytes_owned")), (0, 0));
    assert_eq!(number(&second, "bytes_borrowed"), number(&first, "bytes_borrowed") + moved(&first));
    assert_eq!(answer(dir.path(), path, "20", "read").0, wanted);
    // Where there is no room, it says so.
    let output = Command::new("bash")
        .env("WEIGHBRIDGE_CACHE", dir.path().join("other"))
        .args(["-c", "ulimit -f 1024; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_weighbridge")])
        .args(["load", path, "--layout", layout.as_str().unwrap(), "--cache", "write"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if moved(&first) > 0 {
        assert!(output.status.code() == Some(1) && said.contains("cannot write"), "{said}");
    }
}

/// `cache status` of a tiny model, with its folders and keys cut out.
fn status(cache: &Path, path: &Path) -> String {
    let output = at(cache, &["cache", "status", path.to_str().unwrap(), "--layout", "canonical"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = path.parent().unwrap().to_str().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace(cache.to_str().unwrap(), "CACHE").replace(folder, "DIR");
    let is_digit = |c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase();
    let words = text.split_inclusive([' ', '/', '.', '\n']).map(|word| {
        let key = word.trim_end_matches([' ', '/', '.', '\n']);
        if key.len() >= 12 && key.chars().all(is_digit) { word.replace(key, "KEY") } else { word.to_owned() }
    });
    words.collect()
}

#[test]
fn status_shows_the_tiers_and_what_the_next_start_uses() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, source, small) =
        (dir.path().join("cache"), dir.path().join("model.gguf"), dir.path().join("small.gguf"));
    std::fs::copy(testkit::golden("models/llama-tiny/model.gguf"), &source).unwrap();
    assert_snapshot!(status(&cache, &source), @"
    tier           source
    source         DIR/model.gguf: gguf, 1 file, 307 KiB; 32.00 bits a weight (f32 21)
    compressed     none: `weighbridge compress` makes one
    runtime-ready  none: the model's files are not in a file system, or changed less than two seconds ago
    next start     loads the model's files
    ");
    let convert = ["convert", source.to_str().unwrap(), small.to_str().unwrap(), "--preset", "q8_0"];
    assert!(at(&cache, &convert).status.success());
    std::thread::sleep(Duration::from_millis(2100));
    assert_snapshot!(status(&cache, &source), @"
    tier           source
    source         DIR/model.gguf: gguf, 1 file, 307 KiB; 32.00 bits a weight (f32 21)
    compressed     none: `weighbridge compress` makes one
    runtime-ready  none; canonical, it would take 52.0 KiB
    next start     loads the model's files
    ");
    assert_snapshot!(status(&cache, &small), @"
    tier           compressed
    source         none here: these files are compressed
    compressed     DIR/small.gguf: gguf, 1 file, 84.0 KiB; 8.60 bits a weight (q8_0 16, f32 5)
    runtime-ready  none; canonical, it would take 16.8 KiB
    next start     loads the model's files
    ");
    let load = || {
        let load = ["load", small.to_str().unwrap(), "--layout", "canonical", "--cache", "write"];
        assert!(at(&cache, &load).status.success());
    };
    load();
    assert_snapshot!(status(&cache, &small), @"
    tier           runtime-ready
    source         none here: these files are compressed
    compressed     DIR/small.gguf: gguf, 1 file, 84.0 KiB; 8.60 bits a weight (q8_0 16, f32 5)
    runtime-ready  ready; canonical, 16.8 KiB
                   CACHE/ready/KEY.safetensors
    next start     maps the copy
    ");
    // Without its record the copy is unfinished; with another time it has to be verified.
    let file = |extension: &str| {
        let entries = std::fs::read_dir(cache.join("ready")).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.extension().is_some_and(|e| e == extension)).unwrap()
    };
    std::fs::File::open(file("safetensors")).unwrap().set_modified(UNIX_EPOCH).unwrap();
    assert_snapshot!(status(&cache, &small), @"
    tier           compressed
    source         none here: these files are compressed
    compressed     DIR/small.gguf: gguf, 1 file, 84.0 KiB; 8.60 bits a weight (q8_0 16, f32 5)
    runtime-ready  to be verified: its file has changed since it was verified; canonical, 16.8 KiB
                   CACHE/ready/KEY.safetensors
    next start     reads the copy whole, and maps it if the digest matches
    ");
    std::fs::remove_file(file("json")).unwrap();
    assert_snapshot!(status(&cache, &small), @"
    tier           compressed
    source         none here: these files are compressed
    compressed     DIR/small.gguf: gguf, 1 file, 84.0 KiB; 8.60 bits a weight (q8_0 16, f32 5)
    runtime-ready  unfinished: the process that built it has ended; canonical, 16.8 KiB of 16.8 KiB on the disk
                   CACHE/ready/KEY.safetensors
    next start     loads the model's files; `run` continues the copy
    ");
    load();
    let bytes = std::fs::read(&small).unwrap();
    std::fs::write(&small, bytes).unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    assert_snapshot!(status(&cache, &small), @"
    tier           compressed
    source         none here: these files are compressed
    compressed     DIR/small.gguf: gguf, 1 file, 84.0 KiB; 8.60 bits a weight (q8_0 16, f32 5)
    runtime-ready  none; canonical, it would take 16.8 KiB
    next start     loads the model's files
    not used       KEY (16.8 KiB): stale, the model's files have changed since it was built
    ");
    let document = json(&cache, &["cache", "status", small.to_str().unwrap(), "--layout", "canonical"]);
    assert_eq!(
        (&document["tier"], &document["next_start"], &document["others"][0]["why"]),
        (&Value::from("compressed"), &Value::from("loads_files"), &Value::from("files_changed"))
    );
    let off = at(&cache, &["cache", "status", small.to_str().unwrap(), "--cache", "off"]);
    assert!(String::from_utf8(off.stdout).unwrap().contains("next start     loads the model's files"));
}

#[test]
fn the_tokenizer_lies_beside_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let smollm2 = settled();
    let path = smollm2.to_str().unwrap();
    let ask = |mode: &str| {
        let prompt = "  na\u{ef}ve \u{1f469}\u{200d}\u{1f467} 1234\n<|im_end|>";
        let args =
            ["run", path, "-p", prompt, "--raw", "--temperature", "0", "-n", "20", "--json", "--cache", mode];
        let output = at(dir.path(), &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["text"].clone(), answer["ids"].clone(), answer["prompt_tokens"].clone())
    };
    let wanted = ask("off");
    let layout = json(dir.path(), &["cache", "status", path])["runtime_ready"]["layout"].clone();
    json(dir.path(), &["load", path, "--layout", layout.as_str().unwrap(), "--cache", "write"]);
    let form = || {
        let entries = std::fs::read_dir(dir.path().join("ready")).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "tokenizer"))
    };
    assert_eq!((ask("read"), form()), (wanted.clone(), None), "only `write` writes");
    let written = || {
        let began = Instant::now();
        while form().is_none() {
            assert_eq!(ask("write"), wanted);
            assert!(began.elapsed() < Duration::from_mins(1));
        }
        form().unwrap()
    };
    let path_of_form = written();
    let bytes = std::fs::read(&path_of_form).unwrap();
    assert_eq!(ask("read"), wanted);
    let flip = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        std::fs::write(&path_of_form, bytes).unwrap();
    };
    for at in [0, 9, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        flip(at);
        assert_eq!((ask("read"), form()), (wanted.clone(), None), "byte {at}");
        written();
    }
    assert!(std::fs::read(&path_of_form).unwrap() == bytes, "the same tokenizer, the same bytes");
    flip(bytes.len() / 2);
    let verified = at(dir.path(), &["cache", "verify"]);
    assert_eq!(verified.status.code(), Some(1), "{}", String::from_utf8_lossy(&verified.stdout));
    assert_eq!((form(), state(dir.path(), path).as_str()), (None, "absent"));
}

#[test]
fn the_copies_of_all_ranks_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let model = dir.path().join("model.gguf");
    std::fs::copy(testkit::golden("models/llama-tiny/model.gguf"), &model).unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    let path = model.to_str().unwrap();
    let load = |rank: &str, mode: &str| {
        let mesh = ["load", path, "--layout", "vllm", "--tp", "2", "--rank", rank, "--cache", mode];
        let report = json(&cache, &mesh);
        report["bytes_owned"].as_u64().unwrap()
    };
    let owned = [load("0", "off"), load("1", "off")];
    assert!(owned.iter().all(|bytes| *bytes > 0));
    assert_eq!(load("0", "write"), owned[0]);
    let ranks = |key: &str| json(&cache, &["cache", "list"])["entries"][0]["ranks"][key].clone();
    assert_eq!((ranks("ready"), ranks("of")), (Value::from(1), Value::from(2)));
    assert_eq!([load("0", "read"), load("1", "read")], owned, "half a set is not used");
    let list = String::from_utf8(at(&cache, &["cache", "list"]).stdout).unwrap();
    assert!(list.contains("unfinished, 1 of 2 ranks") && list.contains("1 copy"), "{list}");
    assert!(
        status(&cache, &model).contains(": for the ranks of a mesh; unfinished, 1 of 2 ranks"),
        "{}",
        status(&cache, &model)
    );
    assert_eq!(load("1", "write"), owned[1]);
    assert_eq!([load("0", "read"), load("1", "read")], [0, 0], "each maps its own");
    assert!(status(&cache, &model).contains("; ready, 2 of 2 ranks"), "{}", status(&cache, &model));
    let list = json(&cache, &["cache", "list"]);
    assert_eq!(
        (list["entries"].as_array().unwrap().len(), &list["entries"][0]["source"]),
        (1, &Value::from(path))
    );
    assert_eq!(json(&cache, &["cache", "verify"])["removed"], Value::Array(vec![]));
    // One bit of one rank: verify removes all.
    let copy = std::fs::read_dir(cache.join("ready")).unwrap().map(|entry| entry.unwrap().path());
    let copy = copy.into_iter().find(|path| path.extension().is_some_and(|e| e == "safetensors")).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(&copy, bytes).unwrap();
    assert_eq!(at(&cache, &["cache", "verify"]).status.code(), Some(1));
    assert_eq!(std::fs::read_dir(cache.join("ready")).unwrap().count(), 0);
}

#[test]
fn mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let output = at(dir.path(), args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["cache", "verify", "abc"]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("no copy has a key that begins with `abc`") && text.contains("cache list"),
        "{text}"
    );
    let tiny = testkit::golden("models/llama-tiny/model.gguf");
    let (code, text) =
        said(&["run", tiny.to_str().unwrap(), "--ids", "1", "--io", "pread", "--cache", "read"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("`--cache` maps files, and `--io` says not to"), "{text}");
    let (code, text) = said(&["cache", "prune"]);
    assert!(code == Some(2) && text.contains("--max-size"), "{text}");
    let nowhere = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        command.env_clear().args(args).output().unwrap()
    };
    let output = nowhere(&["cache", "list"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("there is no cache directory") && text.contains("WEIGHBRIDGE_CACHE"), "{text}");
    // A run needs none.
    assert!(nowhere(&["run", tiny.to_str().unwrap(), "--ids", "1", "-n", "1"]).status.success());
}

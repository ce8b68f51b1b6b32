//! Checkpoints of servers, wherever a path is taken.

use std::process::Command;

use serde_json::Value;
use testkit::http::{Faults, FileServer};
use testkit::model;

use crate::files::hf_directory;
use crate::weighbridge;

/// A server with smollm2 as `dir/smollm2.gguf`.
fn served() -> FileServer {
    let server = FileServer::start();
    server.put_file("dir/smollm2.gguf", model("smollm2"));
    server
}

fn good(args: &[&str]) -> String {
    let out = weighbridge(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn bad(args: &[&str]) -> String {
    let out = weighbridge(args);
    assert_eq!(out.status.code(), Some(1), "{args:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn a_model_of_a_server_is_inspected_by_its_header() {
    let server = served();
    let (url, path) = (server.url("dir/smollm2.gguf"), model("smollm2"));
    let text = good(&["inspect", &url]);
    let counts = server.counts();
    assert!(counts.bytes < 4 << 20, "{counts:?}: the file has 94 MiB");
    let local = good(&["inspect", path.to_str().unwrap()]);
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), local.lines().skip(1).collect::<Vec<_>>());
    assert!(text.starts_with(&url), "{text}");
}

#[test]
fn what_a_server_has_is_loaded_run_and_converted_as_a_file_is() {
    let server = served();
    server.fail(Faults { breaks: 50, busy: 50, ..Faults::default() });
    let (url, path) = (server.url("dir/smollm2.gguf"), model("smollm2"));
    let path = path.to_str().unwrap();
    let run = |from| {
        good(&[
            "run",
            from,
            "-p",
            "The capital of France is",
            "--raw",
            "-n",
            "8",
            "--temperature",
            "0",
            "--cache",
            "off",
        ])
    };
    assert_eq!(run(&url), run(path));

    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    good(&["convert", &url, &out("a"), "--to", "hf"]);
    good(&["convert", path, &out("b"), "--to", "hf"]);
    good(&["diff", &out("a"), &out("b")]);
    good(&["diff", &url, path]);
    good(&["check", &url]);
}

#[test]
fn a_rank_reads_its_share() {
    let server = FileServer::start();
    let folder = tempfile::tempdir().unwrap();
    good(&[
        "convert",
        model("smollm2").to_str().unwrap(),
        folder.path().join("hf").to_str().unwrap(),
        "--to",
        "hf",
    ]);
    for file in std::fs::read_dir(folder.path().join("hf")).unwrap() {
        let file = file.unwrap();
        server.put_file(&format!("model/{}", file.file_name().to_str().unwrap()), file.path());
    }
    let whole = std::fs::metadata(folder.path().join("hf/model.safetensors")).unwrap().len();
    let load = |share: &[&str]| {
        server.counts();
        let url = server.url("model/");
        let args = [&["load", &url, "--layout", "vllm", "--json"], share].concat();
        let report: Value = serde_json::from_str(&good(&args)).unwrap();
        assert_eq!(report["io"], "http");
        (
            report["bytes_needed"].as_u64().unwrap(),
            report["bytes_read"].as_u64().unwrap(),
            server.counts().bytes,
        )
    };
    let headers = 4 << 20;
    for share in [&["--pp", "2", "--rank", "0"][..], &["--pp", "2", "--rank", "1"]] {
        let (needed, read, sent) = load(share);
        assert!(needed < whole * 3 / 4, "{share:?}: {needed} of {whole}");
        assert!(
            read <= needed + needed / 50 && sent <= read + headers,
            "{share:?}: {read} read, {sent} sent of {needed}"
        );
    }
}

#[test]
fn a_file_that_is_replaced_ends_the_load_by_name() {
    let folder = tempfile::tempdir().unwrap();
    hf_directory(folder.path(), |_| {});
    let server = FileServer::start();
    for name in ["config.json", "model.safetensors"] {
        server.put_file(&format!("model/{name}"), folder.path().join(name));
    }
    server.fail(Faults { delay: std::time::Duration::from_millis(100), ..Faults::default() });
    let url = server.url("model/");
    let loads = std::thread::spawn(move || bad(&["load", &url, "--layout", "source"]));
    // Its header is read; then another version comes.
    while !server.asked().iter().any(|head| head.contains("/model/model.safetensors")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(150));
    server.put_file("model/model.safetensors", folder.path().join("model.safetensors"));
    let text = loads.join().unwrap();
    assert!(
        text.contains("model.safetensors") && (text.contains("changed") || text.contains("another version")),
        "{text}"
    );
}

#[test]
fn errors_name_the_url_and_what_helps() {
    let server = served();
    for (url, said) in [
        (server.url("dir/smollm.gguf"), "wanted a URL of https"),
        (server.url("nowhere/"), "wanted"),
        ("http://127.0.0.1:1/a.gguf".to_owned(), "refused"),
        ("ftp://host/a.gguf".to_owned(), "URLs of `ftp:` are not read"),
        ("https://".to_owned(), "it is no URL"),
    ] {
        let text = bad(&["inspect", &url]);
        let shown = url.trim_end_matches('/');
        assert!(text.contains(said) && text.contains(shown) && !text.contains("panicked"), "{url}: {text}");
    }
}

#[test]
fn results_are_written_to_this_machine_or_to_a_bucket() {
    let server = served();
    let (url, path) = (server.url("dir/smollm2.gguf"), model("smollm2"));
    let (url, path) = (&*url, path.to_str().unwrap());
    let out = "s3://bucket/out.gguf";
    for args in [
        &["convert", path, "https://host/out.gguf"][..],
        &["convert", path, "hf:o/n", "--to", "hf"],
        &["compress", path, out, "--target", "4bit"],
        &["calibrate", path, "-f", path, "-o", out],
        &["inspect", path, "--html", "https://host/x.html"],
        &["plan", path, "--svg", "https://host/x.svg"],
        &["check", url, "--write-manifest"],
        &["check", url, "--verify"],
    ] {
        let out = weighbridge(args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("wanted a path") || text.contains("name its FILE"), "{args:?}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("m.json");
    let manifest = manifest.to_str().unwrap();
    good(&["check", url, "--write-manifest", manifest]);
    good(&["check", path, "--verify", manifest]);
}

#[test]
fn a_secret_of_a_url_is_never_said() {
    let server = served();
    let url = server.url("dir/smollm2.gguf?sig=hunter2").replace("http://", "http://me:hunter3@");
    let path = model("smollm2");
    let path = path.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let also = format!("x.={url}");
    for args in [
        &["inspect", &url][..],
        &["inspect", &url, "--json"],
        &["inspect", path, "--also", &url],
        &["inspect", path, "--also", &also],
        &["plan", &url],
        &["plan", &url, "--json"],
        &["plan", &url, "--all-ranks", "--tp", "2"],
        &["load", &url],
        &["load", &url, "--json"],
        &["convert", &url, &out("a.npz"), "--json"],
        &["convert", &url, &out("b.npz")],
        &["diff", &url, path, "--json"],
        &["diff", &url, path],
        &["check", &url, "--json"],
        &["check", &url, "--verify"],
        &["check", &url, "--verify", &out("none.json")],
        &["bench", &url, "--prefill", "2", "--decode", "1", "--cache", "off", "--json"],
        &["tokenize", &url, "Hello"],
        &["run", &url, "-p", "x", "-n", "1", "--cache", "off", "--json"],
        &["inspect", "https://me:hunter/3@host/a"],
    ] {
        let output = weighbridge(args);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!text.contains("hunter") && !text.contains("panicked"), "{args:?}: {text}");
    }
}

/// The server stands for S3: `bucket/key` is the path of an object.
#[test]
fn a_bucket_is_read_with_the_credentials_that_there_are() {
    let server = served();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let config = file("config", "[profile mine]\nregion = eu-north-7\n");
    let credentials = file(
        "credentials",
        "[default]\naws_access_key_id = OTHER\n[mine]\naws_access_key_id = MYKEY\naws_secret_access_key = x\naws_session_token = MYTOKEN\n",
    );
    let inspect = |more: &[(&str, &str)]| {
        server.asked();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        command.args(["inspect", "s3://dir/smollm2.gguf"]);
        for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("AWS_")) {
            command.env_remove(key);
        }
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_ENDPOINT_URL", server.url("").trim_end_matches('/'));
        command.env("AWS_CONFIG_FILE", &config).env("AWS_SHARED_CREDENTIALS_FILE", &credentials);
        let output = command.envs(more.iter().copied()).output().unwrap();
        let heads = server.asked();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), heads)
    };
    let (code, text, heads) = inspect(&[("AWS_PROFILE", "mine")]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        heads.iter().all(|head| head.contains("Credential=MYKEY/") && head.contains("/eu-north-7/s3/")),
        "{heads:?}"
    );
    assert!(heads.iter().all(|head| head.contains("MYTOKEN")), "{heads:?}");

    let keys = [("AWS_ACCESS_KEY_ID", "ENVKEY"), ("AWS_SECRET_ACCESS_KEY", "y"), ("AWS_PROFILE", "mine")];
    let (code, text, heads) = inspect(&keys);
    assert!(
        code == Some(0) && heads.iter().all(|head| head.contains("Credential=ENVKEY/")),
        "{text} {heads:?}"
    );

    let (code, text, heads) = inspect(&[("AWS_PROFILE", "nobody"), ("AWS_SKIP_SIGNATURE", "true")]);
    assert!(code == Some(0) && heads.iter().all(|head| !head.contains("Credential=")), "{text} {heads:?}");

    let (code, text, heads) = inspect(&[("AWS_PROFILE", "nobody")]);
    assert!(code == Some(1) && text.contains("there are no credentials") && heads.is_empty(), "{text}");
}

//! `serve --engine vllm`: what the other engine is started with.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// A program that stands for Python, which has the package if `has_package`, and says what it is to run.
fn python(folder: &std::path::Path, has_package: bool) -> String {
    let path = folder.join("python");
    let found = i32::from(!has_package);
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -c ] && exit {found}\necho \"$@\"\necho \"key $VLLM_API_KEY\"\nexit 7\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn serve(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.env_remove("WEIGHBRIDGE_API_KEY").args(["serve", "m.gguf", "--engine", "vllm"]).args(args);
    command.output().unwrap()
}

#[test]
fn the_program_becomes_the_other_engine() {
    let folder = tempfile::tempdir().unwrap();
    let python = python(folder.path(), true);
    let out = serve(&[
        "--python",
        &python,
        "--port",
        "81",
        "--alias",
        "a",
        "--alias",
        "b",
        "--ctx",
        "512",
        "--api-key",
        "k",
        "--",
        "--tensor-parallel-size",
        "2",
    ]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(
        text,
        "-m weighbridge.serve_vllm m.gguf --host 127.0.0.1 --port 81 --served-model-name a b --max-model-len 512 \
         --tensor-parallel-size 2\nkey k\n"
    );
    assert_eq!(out.status.code(), Some(7), "as it ends");
}

#[test]
fn what_the_other_engine_cannot_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let with = python(folder.path(), true);
    for (args, code, wanted) in [
        (&["--python", &*with, "--parallel", "2"][..], 2, "--parallel"),
        (&["--python", &with, "--memory", "1GiB"], 2, "--memory"),
        (&["--python", &with, "--quiet"], 2, "--quiet is not for vLLM"),
        #[cfg(unix)]
        (&["--python", &with, "--socket", "s.sock"], 2, "--socket is not for vLLM"),
        (&["--python", &with, "--api-key", "a", "--api-key", "b"], 2, "one API key, and there are 2"),
        (&["--python", "/nowhere/python"], 1, "`--python` names the Python"),
    ] {
        let out = serve(args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(code) && text.contains(wanted), "{args:?}: {text}");
    }
    let without = python(folder.path(), false);
    let out = serve(&["--python", &without]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("does not have the package weighbridge") && text.contains("pip install"), "{text}");
    // Its own options are for it alone.
    let out = crate::weighbridge(["serve", "m.gguf", "--", "--tensor-parallel-size", "2"]);
    assert_eq!(out.status.code(), Some(2));
}

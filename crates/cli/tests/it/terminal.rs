//! What is printed on terminals of several widths, without colour, and where nobody reads it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use testkit::model;

use crate::golden;

/// A terminal of some columns: its own side, and the side of a program.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&own).unwrap();
    unlockpt(&own).unwrap();
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&own, size).unwrap();
    let path = ptsname(&own, Vec::new()).unwrap();
    let program = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (File::from(own), program)
}

/// Runs a command on a terminal. Returns what stands there, lines ended as files end them.
fn shown(columns: u16, env: &[(&str, &str)], args: &[&str]) -> String {
    let (mut own, program) = terminal(columns);
    let side = || Stdio::from(program.try_clone().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.args(args).stdin(side()).stdout(side()).stderr(side());
    command
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env("TERM", "xterm-256color")
        .envs(env.iter().copied());
    let mut child = command.spawn().unwrap();
    // The last program's side is closed when the child ends: then reading fails, which is the end.
    drop((command, program));
    let mut bytes = vec![];
    let _ = own.read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

/// Commands with tables, by name.
fn tables() -> Vec<Vec<String>> {
    let (smollm2, gemma3) = (model("smollm2"), model("gemma3"));
    let (smollm2, gemma3) = (smollm2.to_str().unwrap(), gemma3.to_str().unwrap());
    let golden = |name: &str| golden().join(name).to_str().unwrap().to_owned();
    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    vec![
        owned(&["inspect", smollm2]),
        owned(&["inspect", gemma3, "--tensors"]),
        owned(&["quants"]),
        owned(&["plan", smollm2, "--layout", "vllm", "--tp", "3", "--all-ranks"]),
        owned(&["diff", &golden("llama-tiny"), &golden("llama-tiny/model.gguf")]),
        owned(&["check", &golden("llama-tiny")]),
    ]
}

/// `text` without escapes.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn rows_fit_the_terminal() {
    for args in tables() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for columns in [50, 80, 200] {
            let text = plain(&shown(columns, &[], &args));
            assert!(!text.is_empty() && !text.contains("error:"), "{args:?}: {text}");
            // Rows have two spaces between cells; the terminal wraps sentences.
            let is_row = |line: &&str| line.trim_start().contains("  ");
            let long: Vec<&str> =
                text.lines().filter(is_row).filter(|line| line.chars().count() > columns.into()).collect();
            assert!(long.is_empty(), "{args:?} on {columns} columns: {long:#?}");
        }
    }
}

#[test]
fn colour_is_for_those_who_want_it() {
    let smollm2 = model("smollm2");
    let inspect = ["inspect", smollm2.to_str().unwrap()];
    let wrong = ["plan", "/nowhere/x.gguf"];
    let help = ["--help"];
    for args in [&inspect[..], &wrong, &help] {
        let coloured = shown(80, &[], args);
        assert!(coloured.contains("\x1b["), "{args:?}: {coloured}");
        for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            // Some libraries paint wherever the variable CI is set.
            for ci in ["", "true"] {
                let text = shown(80, &[(name, value), ("CI", ci)], args);
                assert!(!text.contains('\x1b'), "{name}={value} CI={ci} {args:?}: {text:?}");
                assert_eq!(text, plain(&coloured), "{name}={value} CI={ci} {args:?}");
            }
        }
    }
}

/// `| head` ends a command, and is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let tiny = golden().join("llama-tiny");
    let tiny = tiny.to_str().unwrap();
    let smollm2 = model("smollm2");
    let smollm2 = smollm2.to_str().unwrap();
    for args in [
        &["inspect", smollm2, "--tensors"][..],
        &["inspect", smollm2, "--json"],
        &["plan", tiny],
        &["plan", tiny, "--json"],
        &["plan", tiny, "--explain", "output.weight"],
        &["plan", tiny, "--layout", "vllm", "--tp", "2", "--all-ranks"],
        &["load", tiny],
        &["check", tiny],
        &["diff", tiny, tiny],
        &["tokenize", smollm2, "Hello, world"],
        &["quants"],
        &["quants", "--json"],
        &["tune", "--dry-run"],
        &["run", tiny, "--ids", "1,2,3", "-n", "2"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["convert", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            Command::new(env!("CARGO_BIN_EXE_weighbridge")).args(args).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("error") && !said.contains("panicked"), "{args:?}: {said}");
    }
}

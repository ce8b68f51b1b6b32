//! Conversions that are killed, interrupted or run out of room: what was there stays whole, and the same command
//! continues and gives the same bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{golden, model, weighbridge};

/// Every file of a directory and what is in it.
type Tree = BTreeMap<String, Vec<u8>>;

fn tree(dir: &Path) -> Tree {
    let mut files = Tree::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}

/// What was there, restored: files that are linked, not copied.
fn restore(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn converted(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How many times to kill: more when asked for.
pub(crate) fn kills(usual: u32) -> u32 {
    std::env::var("WEIGHBRIDGE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Converts smollm2 with `flags` over what it gives with `old`, killed at `kills` moments spread over the time and
/// the tensors that it takes; gives how often the next run had something to continue.
fn killed(kills: u32, old: &[&str], flags: &[&str]) -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let (old_dir, new_dir, here) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("here"));
    let source = model("smollm2");
    let args = |folder: &Path, flags: &[&str]| {
        let mut args = vec!["convert".to_owned(), source.to_str().unwrap().to_owned()];
        args.push(folder.join("x.gguf").to_str().unwrap().to_owned());
        args.extend(
            ["--json", "--sync-every", "4MB", "--threads", "2", "--allow-requantize"].map(str::to_owned),
        );
        args.extend(flags.iter().map(|f| (*f).to_owned()));
        args
    };
    std::fs::create_dir(&old_dir).unwrap();
    std::fs::create_dir(&new_dir).unwrap();
    converted(&weighbridge(args(&old_dir, old)));
    let started = Instant::now();
    converted(&weighbridge(args(&new_dir, flags)));
    let takes = started.elapsed();
    let (before, after) = (tree(&old_dir), tree(&new_dir));
    assert!(before != after);

    let command = args(&here, &[flags, &["--force"]].concat());
    let mut seed = 0x5eed_u64;
    let mut continued = 0;
    for kill in 0..kills {
        restore(&old_dir, &here);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (f64::from(kill) + (seed >> 40) as f64 / f64::from(1 << 24)) / f64::from(kills);
        let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
            .args(&command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if kill % 2 == 0 {
            std::thread::sleep(takes.mul_f64(part));
        } else {
            // The first tensor takes half of the time: these are spread over the tensors.
            let journal = here.join(".x.gguf.partial/journal");
            let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
            while lines() as f64 <= part * 272.0 && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let found = tree(&here);
        // What was there stays whole until the new is; while parts get the names of old ones there is no first.
        let whole = has_all(&found, &before) || has_all(&found, &after);
        let headless = found.len() > 1 && found.keys().all(|name| !name.contains("-00001-of-"));
        assert!(whole || headless, "kill {kill}: {:?}", found.keys());
        let report = converted(&weighbridge(&command));
        continued += u32::from(report["continued"].as_u64() > Some(0));
        assert!(tree(&here) == after, "after kill {kill}");
        assert_eq!(std::fs::read_dir(&here).unwrap().count(), after.len(), "nothing else is left");
        assert_eq!(report["parameters"], 134_515_008);
        assert!(report["difference"]["cosine"].as_f64() > Some(0.9), "measured of all: {report}");
    }
    continued
}

/// Whether all of `wanted` is there, whatever else is.
fn has_all(found: &Tree, wanted: &Tree) -> bool {
    wanted.iter().all(|(name, content)| found.get(name) == Some(content))
}

#[test]
fn a_conversion_that_is_killed_is_continued() {
    let kills = kills(20);
    let continued = killed(kills, &["--encode", "*=q4_0"], &["--encode", "*=q4_1"]);
    assert!(continued >= kills / 4, "continued {continued} of {kills} times");
}

/// As many parts as before, under the same names; and more of them.
#[test]
fn parts_whose_conversion_is_killed_are_continued() {
    let kills = kills(6);
    for split in [["--split-max-tensors", "100"], ["--split-max-size", "40MB"]] {
        let flags = |encode| [&split[..], &["--encode", encode]].concat();
        let continued = killed(kills, &flags("*=q4_0"), &flags("*=q4_1"));
        assert!(continued >= 1, "continued {continued} of {kills} times");
    }
}

/// Ctrl-C keeps what is worth it, and says so.
#[test]
fn a_conversion_that_is_interrupted_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (model("smollm2"), dir.path().join("x.gguf"));
    let (from, to) = (source.to_str().unwrap(), target.to_str().unwrap());
    let args = ["convert", from, to, "--encode", "*=q5_1", "--allow-requantize", "--sync-every", "1MB"];
    let child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = dir.path().join(".x.gguf.partial/journal");
    let started = Instant::now();
    while std::fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() < 3) || !journal.exists() {
        assert!(started.elapsed() < Duration::from_mins(1), "something is durable");
        std::thread::sleep(Duration::from_millis(1));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("error: interrupted: ") && text.contains(" of 272 tensors are kept in `"),
        "{text}"
    );
    assert!(text.ends_with("hint: the same command continues there\n"), "{text}");
    assert!(!target.exists());
    let again = weighbridge(args);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(text.contains("\n  continued at tensor ") && text.contains(" of 272\n"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The binary where no file may be over 64 KiB, as on a disk that fills up: writing fails half-way.
fn cramped(args: &[&str]) -> Output {
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let binary = env!("CARGO_BIN_EXE_weighbridge");
    Command::new("sh").args(["-c", script, binary]).args(args).output().unwrap()
}

#[test]
fn a_disk_that_fills_up_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (golden().join("llama-tiny/model.gguf"), dir.path().join("x.npz"));
    let args = ["convert", source.to_str().unwrap(), target.to_str().unwrap()];
    let failed = |args: &[&str]| {
        let output = cramped(args);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).replace(dir.path().to_str().unwrap(), "DIR")
    };
    insta::assert_snapshot!(failed(&args), @"error: cannot write `DIR/x.npz`: File too large (os error 27)");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    std::fs::write(&target, "precious").unwrap();
    let often = [&args[..], &["--force", "--sync-every", "10KB"]].concat();
    insta::assert_snapshot!(failed(&often), @"
    error: cannot write `DIR/x.npz`: File too large (os error 27)
    hint: the tensors before are kept in `DIR/.x.npz.partial`: the same again continues there, once the cause is removed
    ");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    let report = converted(&weighbridge(often.iter().chain(&["--json"])));
    assert!(report["continued"].as_u64() > Some(0), "{report}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let whole = dir.path().join("whole.npz");
    converted(&weighbridge(["convert", args[1], whole.to_str().unwrap(), "--json"]));
    assert!(std::fs::read(&target).unwrap() == std::fs::read(&whole).unwrap());
}

//! Broken checkpoints: the program ends with an error that names the
//! file, within 256 MiB of memory and 2 seconds, and never by a panic or a signal.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::corpus::models::{Absurd, absurd};
use testkit::corpus::{Blame, Case, corpus};

/// Address space of a run in KiB: it bounds what is allocated, mapped and in memory, the program of 20 MiB included.
const MEMORY: u32 = (256 + 24) << 10;
/// CPU time of a run in seconds. The kernel ends what takes longer with a signal.
const CPU: u32 = 2;
/// Time after which a run hangs, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a run ended.
struct Run {
    /// The exit code; `None` after a signal.
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program under limits: `args`, `path`, and what follows that.
fn limited(args: &[&str], path: &Path, last: Option<&str>) -> Run {
    let script = format!("ulimit -v {MEMORY}; ulimit -t {CPU}; ulimit -c 0; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_weighbridge")])
        .args(args)
        .arg(path)
        .args(last)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    // What it says fits into the pipes: an error is at most 10 kB.
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    let mut run = Run { code: status.code(), stdout: String::new(), stderr: String::new() };
    child.stdout.unwrap().read_to_string(&mut run.stdout).unwrap();
    child.stderr.unwrap().read_to_string(&mut run.stderr).unwrap();
    run
}

/// What is wrong with how the program takes `case`, if anything.
fn judge(case: &Case) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = case.make(dir.path());
    let mut runs =
        vec![&["inspect", "--tensors", "--io", "mmap"][..], &["inspect", "--tensors", "--io", "pread"]];
    if path.is_dir() {
        runs.push(&["plan"]);
    }
    let mut wrong = Vec::new();
    let mut said = Vec::new();
    for args in runs {
        let run = limited(args, &path, None);
        let home = dir.path().display().to_string();
        let mut check = |fine: bool, what: &str| {
            if !fine {
                let (family, name) = (case.family, &case.name);
                let said = run.stderr.replace(&home, "DIR");
                let code = run.code.map_or("a signal".to_owned(), |c| format!("exit code {c}"));
                wrong.push(format!("{family}, {name}: {args:?}: {what}: {code}\n    {}{said}", run.stdout));
            }
        };
        let code = if case.blame == Blame::Misuse { 2 } else { 1 };
        check(run.code == Some(code), &format!("wanted exit code {code}"));
        check(run.stdout.is_empty(), "wanted nothing on stdout");
        check(run.stderr.starts_with("error: "), "wanted `error:` first");
        check(!run.stderr.contains("panicked"), "wanted no panic");
        check(run.stderr.len() < 10_000, "wanted a short message");
        check(run.stderr.contains(&home), "wanted the path");
        check(!case.says.is_empty(), "wanted a fragment of the message");
        check(run.stderr.replace(&home, "DIR").contains(&case.says), &format!("wanted `{}`", case.says));
        if case.blame == Blame::Malformed {
            check(says_where(&run.stderr), "wanted a byte, a tensor, a key or a file");
        }
        said.push(run.stderr);
    }
    if said.windows(2).any(|pair| pair[0] != pair[1]) {
        wrong.push(format!("{}, {}: said in several ways:\n{}", case.family, case.name, said.join("")));
    }
    wrong
}

/// Whether a message says what it is about: a place in the file, or the file of a directory as a whole.
fn says_where(stderr: &str) -> bool {
    let places = [
        "(at byte ",
        "tensor `",
        "key `",
        "the file is empty",
        "length in bytes of ",
        "wanted a regular file",
        "leads out of the directory",
        "is no name of a file in the directory",
    ];
    places.iter().any(|place| stderr.contains(place))
}

/// What is wrong with how the program takes `model`, if anything.
fn judge_model(model: &Absurd) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    for (path, made) in &model.made {
        made.make(dir.path(), path);
    }
    let path = dir.path().join(model.path);
    let out = dir.path().join("out.safetensors").display().to_string();
    let runs = [
        &["inspect"][..],
        &["plan"],
        &["check", "--deep", "--threads", "1"],
        &["run", "--prompt", "ab", "--threads", "1", "-n", "2"],
        &["convert", "--layout", "canonical", "--threads", "1"],
    ];
    let mut wrong = Vec::new();
    for args in runs {
        let last = (args[0] == "convert").then_some(out.as_str());
        let run = limited(args, &path, last);
        let refused = model.refuse.contains(&args[0]);
        let mut check = |fine: bool, what: &str| {
            if !fine {
                let (family, name) = (model.family, &model.name);
                let code = run.code.map_or("a signal".to_owned(), |c| format!("exit code {c}"));
                wrong.push(format!(
                    "{family}, {name}: {args:?}: {what}: {code}\n    {}{}",
                    run.stdout, run.stderr
                ));
            }
        };
        check(!run.stderr.contains("panicked"), "wanted no panic");
        if refused {
            check(run.code == Some(1), "wanted exit code 1");
            check(run.stdout.is_empty(), "wanted nothing on stdout");
            // What `run` says of loading goes before.
            let error = run.stderr.find("error: ").map_or("", |at| &run.stderr[at..]);
            check(error.len() < 10_000, "wanted a short message");
            check(error.contains(&*path.display().to_string()), "wanted the path");
            check(error.contains(model.says), &format!("wanted `{}`", model.says));
            check(!error.contains('\u{1b}'), "wanted no control characters");
        } else {
            check(run.code == Some(0), "wanted exit code 0");
        }
    }
    wrong
}

/// What `judge` finds wrong with any of `cases`, two at a time.
fn judge_all<T: Sync>(cases: &[T], judge: impl Fn(&T) -> Vec<String> + Sync) {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(judge(case));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn the_program_refuses_every_broken_checkpoint_in_little_time_and_memory() {
    judge_all(&corpus(), judge);
}

#[test]
fn the_program_takes_no_harm_from_absurd_models() {
    judge_all(&absurd(), judge_model);
}

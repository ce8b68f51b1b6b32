//! Broken checkpoints, and ones that change while they are read: the program ends with an error that names the
//! file, within 256 MiB of memory and 2 seconds, and never by a panic or a signal.

#[path = "../../../checkpoint/tests/corpus/mod.rs"]
#[allow(dead_code, reason = "the library's tests use more of what makes files")]
mod corpus;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corpus::{Blame, Case, corpus};

/// Address space of a run in KiB: it bounds what is allocated, mapped and in memory.
const MEMORY: u32 = 256 << 10;
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

/// Runs the program under limits.
fn limited(args: &[&str], path: &Path) -> Run {
    let script = format!("ulimit -v {MEMORY}; ulimit -t {CPU}; ulimit -c 0; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_weighbridge")])
        .args(args)
        .arg(path)
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
        let run = limited(args, &path);
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

#[test]
fn the_program_refuses_every_broken_checkpoint_in_little_time_and_memory() {
    let cases = corpus();
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

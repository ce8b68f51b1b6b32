//! Files that are shortened, replaced or removed while the program is at work on them: what is lost is an error
//! that names the file; what was opened stays what it was.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{golden, model};
use testkit::corpus::build::{Gguf, safetensors};

/// Time after which a program hangs, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(1);

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Cut to that many bytes.
    Cut(u64),
    /// Another file, of ones, is renamed to its path.
    Replaced,
    Unlinked,
}

impl Fate {
    fn befalls(self, path: &Path) {
        match self {
            Fate::Cut(len) => File::options().write(true).open(path).unwrap().set_len(len).unwrap(),
            Fate::Replaced => {
                let other = path.with_extension("other");
                fs::write(&other, vec![0xff; 1 << 20]).unwrap();
                fs::rename(other, path).unwrap();
            }
            Fate::Unlinked => fs::remove_file(path).unwrap(),
        }
    }
}

/// The program at work.
struct Running(Child);

/// How it ended.
#[derive(Debug)]
struct Ended {
    /// The exit code; `None` after a signal.
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Running {
    fn start(args: &[&str]) -> Running {
        let child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string()).join(name)
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops it as soon as `until` holds, lets `act` work, and lets it go on.
    fn interrupt(&mut self, until: impl Fn(&Running) -> bool, act: impl FnOnce()) {
        let start = Instant::now();
        while !until(self) {
            if let Some(status) = self.0.try_wait().unwrap() {
                panic!("{status} before it came to that: {}", text(self.0.stderr.take()));
            }
            assert!(start.elapsed() < PATIENCE, "it did not come to that");
        }
        self.send(Signal::STOP);
        while !self.stopped() {
            assert!(start.elapsed() < PATIENCE, "it was done before it was stopped");
        }
        act();
        self.send(Signal::CONT);
    }

    /// From proc(5): the state after the name in parentheses.
    fn stopped(&self) -> bool {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// From proc(5): the time that its threads have run in user mode, in ticks of 10 ms.
    fn worked(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap_or_default();
        let ticks = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(11)?.parse::<u64>().ok());
        Duration::from_millis(10 * ticks.unwrap_or(0))
    }

    fn has_mapped(&self, path: &Path) -> bool {
        let maps = fs::read_to_string(self.proc("maps")).unwrap_or_default();
        maps.lines().any(|line| line.ends_with(path.to_str().unwrap()))
    }

    /// Whether it has read that many bytes by calls.
    fn has_read(&self, bytes: u64) -> bool {
        let io = fs::read_to_string(self.proc("io")).unwrap_or_default();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok());
        read.is_some_and(|read| read > bytes)
    }

    fn end(mut self) -> Ended {
        drop(self.0.stdin.take());
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        let reader = thread::spawn(move || text(err));
        let stdout = text(out);
        let status = self.0.wait().unwrap();
        Ended { code: status.code(), stdout, stderr: reader.join().unwrap() }
    }
}

fn text(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_string(&mut text).unwrap();
    }
    text
}

impl Ended {
    #[track_caller]
    fn failed_about(&self, path: &Path) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.stderr.contains(path.to_str().unwrap()), "{self:?}");
        assert!(self.stderr.contains("error: ") && !self.stderr.contains("panicked"), "{self:?}");
    }

    /// A fault on a page that was mapped.
    #[track_caller]
    fn faulted_on(&self, path: &Path) {
        self.failed_about(path);
        let said = format!(
            "error: `{}` was shortened by another program while it was mapped, or its disk failed\n\
             hint: `--io pread` reads a file without mapping it\n",
            path.display()
        );
        assert!(self.stderr.ends_with(&said), "{self:?}");
    }
}

/// A chat that waits for its question.
struct Chat {
    dir: TempDir,
    path: PathBuf,
    running: Running,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
}

impl Chat {
    /// With a copy of a real model, whose weights lie where the file was mapped, or read, to.
    fn start(io: &str) -> Chat {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        fs::copy(model("smollm2"), &path).unwrap();
        let file = path.to_str().unwrap();
        let args = ["run", file, "--io", io, "--layout", "in-place", "--temperature", "0", "-n", "6"];
        let mut running = Running::start(&[&args[..], &["--threads", "2"]].concat());
        let stdin = running.0.stdin.take().unwrap();
        let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("/help") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "no prompt");
        }
        assert_eq!(running.has_mapped(&path), io == "mmap");
        Chat { dir, path, running, stdin, stderr }
    }

    /// Asks, after `fate` befell the file.
    fn ask(mut self, fate: Option<Fate>) -> (Ended, PathBuf, TempDir) {
        if let Some(fate) = fate {
            fate.befalls(&self.path);
        }
        // It may be gone by then.
        let _ = self.stdin.write_all(b"What is gravity?\n");
        drop(self.stdin);
        let mut said = String::new();
        let mut ended = self.running.end();
        self.stderr.read_to_string(&mut said).unwrap();
        ended.stderr = said;
        (ended, self.path, self.dir)
    }

    /// That the answer is as if nothing had happened.
    fn answers_after(io: &str, fate: Fate) {
        let (undisturbed, ..) = Chat::start(io).ask(None);
        assert!(undisturbed.code == Some(0) && undisturbed.stdout.len() > 6, "{undisturbed:?}");
        let (ended, ..) = Chat::start(io).ask(Some(fate));
        assert_eq!((ended.code, &ended.stdout), (Some(0), &undisturbed.stdout), "{ended:?}");
    }
}

#[test]
fn a_mapped_model_that_is_cut_ends_a_chat_by_name() {
    for len in [0, 1 << 20, 50 << 20] {
        let (ended, path, _dir) = Chat::start("mmap").ask(Some(Fate::Cut(len)));
        ended.faulted_on(&path);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_mapped_model_that_is_replaced_answers_as_before() {
    Chat::answers_after("mmap", Fate::Replaced);
}

#[test]
fn a_mapped_model_that_is_removed_answers_as_before() {
    Chat::answers_after("mmap", Fate::Unlinked);
}

#[test]
fn a_model_that_was_read_answers_whatever_becomes_of_its_file() {
    for fate in [Fate::Cut(0), Fate::Replaced, Fate::Unlinked] {
        Chat::answers_after("pread", fate);
    }
}

#[test]
fn a_part_of_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden().join("llama-tiny").join(name), dir.path().join(name)).unwrap();
    }
    let path = dir.path().join("model.safetensors");
    let args =
        ["bench", dir.path().to_str().unwrap(), "--io", "mmap", "--layout", "in-place", "--decode", "4000"];
    let mut running = Running::start(&[&args[..], &["--ctx", "4096", "--repeat", "10000"]].concat());
    // A cut before all is loaded is an error of the load: this is about what stays in the map.
    let runs = |r: &Running| r.has_mapped(&path) && r.worked() > Duration::from_millis(300);
    running.interrupt(runs, || Fate::Cut(4096).befalls(&path));
    running.end().faulted_on(&path);
}

#[test]
fn a_header_that_is_cut_while_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let file = (0..300_000).fold(Gguf::new(), |g, i| g.f32(&format!("layers.{i}.up.weight"), &[1, 2]));
    let content = file.build();
    for io in ["mmap", "pread"] {
        fs::write(&path, &content).unwrap();
        let mut running = Running::start(&["inspect", path.to_str().unwrap(), "--io", io]);
        let begun = |r: &Running| if io == "mmap" { r.has_mapped(&path) } else { r.has_read(16 << 10) };
        running.interrupt(begun, || Fate::Cut(4096).befalls(&path));
        let ended = running.end();
        assert_eq!(ended.stdout, "", "{ended:?}");
        if io == "mmap" {
            ended.faulted_on(&path);
        } else {
            ended.failed_about(&path);
        }
    }
}

/// A file of one tensor of f32 zeros, of that many MiB.
fn zeros(dir: &Path, mebibytes: u64) -> PathBuf {
    let path = dir.join("x.safetensors");
    let bytes = mebibytes << 20;
    let header = format!(
        r#"{{"a":{{"dtype":"F32","shape":[{},1048576],"data_offsets":[0,{bytes}]}}}}"#,
        mebibytes / 4
    );
    let header = safetensors(header, 0);
    fs::write(&path, &header).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(header.len() as u64 + bytes).unwrap();
    path
}

#[test]
fn values_that_are_checked_while_their_file_moves() {
    for (fate, mebibytes) in
        [(Fate::Cut(1 << 20), 32 << 10), (Fate::Replaced, 1 << 10), (Fate::Unlinked, 1 << 10)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = zeros(dir.path(), mebibytes);
        let mut running = Running::start(&["check", path.to_str().unwrap(), "--deep"]);
        running.interrupt(|r| r.has_read(8 << 20), || fate.befalls(&path));
        let ended = running.end();
        match fate {
            Fate::Cut(_) => ended.failed_about(&path),
            _ => assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{fate:?}: {ended:?}"),
        }
    }
}

#[test]
fn what_is_converted_while_its_file_moves() {
    for (fate, mebibytes) in [(Fate::Cut(1 << 20), 4 << 10), (Fate::Replaced, 256), (Fate::Unlinked, 256)] {
        let dir = tempfile::tempdir().unwrap();
        let path = zeros(dir.path(), mebibytes);
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let to = out.join("y.safetensors");
        // Half as much is written, and a disk without room for it is refused before anything is read.
        let args = ["convert", path.to_str().unwrap(), to.to_str().unwrap(), "--encode", "*=f16"];
        let mut running = Running::start(&args);
        running.interrupt(|r| r.has_read(8 << 20), || fate.befalls(&path));
        let ended = running.end();
        if let Fate::Cut(_) = fate {
            ended.failed_about(&path);
            let left: Vec<_> = fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{left:?}");
        } else {
            assert_eq!(ended.code, Some(0), "{fate:?}: {ended:?}");
            let written = fs::read(&to).unwrap();
            let data = &written[written.len() - (usize::try_from(mebibytes).unwrap() << 19)..];
            assert!(data.iter().all(|b| *b == 0), "{fate:?}");
        }
    }
}

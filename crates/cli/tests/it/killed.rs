//! `compress`, killed at any moment, without room, beside another, from a source that changes: the result is whole or not there,
//! and the same command continues and gives the same bytes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Rng, model};
use weighbridge::checkpoint::{Draft, Outgoing, Value as Pair};
use weighbridge::{Dtype, Scheme, Shape};

use crate::resume::kills;

/// Layers of the model, and its tensors.
const LAYERS: u32 = 6;
const TENSORS: u32 = 9 * LAYERS + 2;

/// Time after which a program hangs, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(5);

/// A small model with the tokenizer of smollm2: `small.gguf`, and `small`, a directory with its weights in several files; and a text.
pub(crate) struct Small(TempDir);

impl Small {
    pub(crate) fn get() -> &'static Small {
        static SMALL: OnceLock<Small> = OnceLock::new();
        SMALL.get_or_init(Small::make)
    }

    fn make() -> Small {
        let small = Small(tempfile::tempdir().unwrap());
        let like = weighbridge::open(model("smollm2")).unwrap();
        let own = [
            ("llama.block_count", LAYERS),
            ("llama.embedding_length", 64),
            ("llama.feed_forward_length", 256),
            ("llama.attention.head_count", 4),
            ("llama.attention.head_count_kv", 2),
            ("llama.rope.dimension_count", 16),
        ];
        let theirs = like.metadata().gguf().unwrap().iter();
        let mut pairs: Vec<(&str, Pair<'_>)> =
            theirs.filter(|(key, _)| own.iter().all(|(own, _)| own != key)).collect();
        pairs.extend(own.map(|(key, n)| (key, Pair::U32(n))));
        let vocab = like.entries().iter().find(|e| e.name == "token_embd.weight").unwrap().shape[0];
        let mut tensors = vec![];
        let mut add = |name: String, shape: &[u64]| {
            let dtype = if shape.len() == 1 { Dtype::F32 } else { Dtype::BF16 };
            tensors.push(Outgoing { name, shape: Shape::from(shape.to_vec()), scheme: Scheme::plain(dtype) });
        };
        add("token_embd.weight".to_owned(), &[vocab, 64]);
        for n in 0..LAYERS {
            let at = |name: &str| format!("blk.{n}.{name}.weight");
            add(at("attn_norm"), &[64]);
            add(at("attn_q"), &[64, 64]);
            add(at("attn_k"), &[32, 64]);
            add(at("attn_v"), &[32, 64]);
            add(at("attn_output"), &[64, 64]);
            add(at("ffn_norm"), &[64]);
            add(at("ffn_gate"), &[256, 64]);
            add(at("ffn_up"), &[256, 64]);
            add(at("ffn_down"), &[64, 256]);
        }
        add("output_norm.weight".to_owned(), &[64]);
        assert_eq!(tensors.len(), TENSORS as usize);
        let mut random = Rng(18);
        let mut writer = Draft::gguf(tensors.clone(), &pairs).unwrap().create(&small.gguf(), false).unwrap();
        for tensor in tensors {
            let n = tensor.shape.elements().unwrap();
            // Sums of four are nearly as weights are: many small ones, few large ones.
            let mut value = || 0.05 * (0..4).map(|_| random.float()).sum::<f32>();
            let bytes: Vec<u8> = if tensor.shape.len() == 1 {
                (0..n).flat_map(|_| (1.0 + value()).to_le_bytes()).collect()
            } else {
                (0..n).flat_map(|_| <[u8; 2]>::try_from(&value().to_le_bytes()[2..]).unwrap()).collect()
            };
            writer.tensor(&[&bytes]).unwrap();
        }
        writer.finish().unwrap();
        let (from, to) = (small.gguf(), small.shards());
        let args = ["convert", path(&from), path(&to), "--to", "hf", "--max-shard-size", "300KB"];
        done(&crate::weighbridge(args));
        let stories = fs::read_to_string(testkit::golden("eval").join("holmes.txt")).unwrap();
        fs::write(small.text(), &stories[..stories.floor_char_boundary(18_000)]).unwrap();
        let (text, to) = (small.text(), small.imatrix());
        let args = ["calibrate", path(&from), "-f", path(&text), "-o", path(&to), "--chunks", "2"];
        done(&crate::weighbridge([&args[..], &["--no-sensitivity"]].concat()));
        small
    }

    /// Which inputs are strong.
    pub(crate) fn imatrix(&self) -> PathBuf {
        self.0.path().join("small.imatrix.gguf")
    }

    pub(crate) fn gguf(&self) -> PathBuf {
        self.0.path().join("small.gguf")
    }

    fn shards(&self) -> PathBuf {
        self.0.path().join("small")
    }

    pub(crate) fn text(&self) -> PathBuf {
        self.0.path().join("text.txt")
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn done(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

/// Its output; with `--json`, errors are on standard output.
fn said(output: &Output) -> String {
    let [err, out] = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{err}{out}")
}

/// A file, or all files below a directory by path, with their content; empty if nothing is there.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn tree(path: &Path) -> Tree {
    fn add(path: &Path, inner: &Path, to: &mut Tree) {
        if !path.is_dir() {
            to.extend(fs::read(path).ok().map(|content| (inner.to_owned(), content)));
            return;
        }
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            add(&entry.path(), &inner.join(entry.file_name()), to);
        }
    }
    let mut found = Tree::new();
    add(path, Path::new(""), &mut found);
    found
}

/// Is the source at `to` again: the same files, by other names.
fn link(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
        }
    } else {
        fs::hard_link(from, to).unwrap();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).stderr(Stdio::null()).status();
    sent.unwrap();
}

/// A way of compressing the small model, and how it ends if nothing disturbs it.
struct Case {
    dir: TempDir,
    source: PathBuf,
    name: String,
    flags: Vec<String>,
    /// Something is at the destination before.
    before: Option<PathBuf>,
    /// The destination afterwards.
    after: Tree,
    takes: Duration,
    /// Continued, begun again, and complete when it was killed.
    counts: [u32; 3],
}

/// When it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After a share of the time that it takes.
    Time(f64),
    /// When that many lines are in the journal.
    Lines(u32),
    /// When the result has its name.
    Placed,
    /// When a file of the source is gone.
    Going,
}

impl Case {
    /// Compresses `source` to `name`; over another result, if it is to `--force`.
    fn new(source: &Path, name: &str, flags: &[&str]) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let before =
            dir.path().join("before").with_extension(Path::new(name).extension().unwrap_or_default());
        let to = if before.extension().is_some() { "gguf" } else { "mlx" };
        let always = ["--json", "--sync-every", "10KB", "--threads", "2"];
        let mut case = Case {
            dir,
            source: source.to_owned(),
            name: name.to_owned(),
            flags: always.iter().chain(flags).map(|flag| (*flag).to_owned()).collect(),
            before: None,
            after: Tree::new(),
            takes: Duration::ZERO,
            counts: [0; 3],
        };
        if case.has("--force") {
            done(&crate::weighbridge(["convert", path(source), path(&before), "--to", to]));
            case.before = Some(before);
        }
        case.restore();
        let began = Instant::now();
        done(&case.run());
        case.takes = began.elapsed();
        case.after = tree(&case.to());
        assert!(!case.after.is_empty() && case.old() != case.after);
        case.ended();
        case
    }

    /// The directory in which all happens.
    fn here(&self) -> PathBuf {
        self.dir.path().join("here")
    }

    fn from(&self) -> PathBuf {
        self.here().join("source").with_extension(self.source.extension().unwrap_or_default())
    }

    fn to(&self) -> PathBuf {
        self.here().join(&self.name)
    }

    fn partial(&self) -> PathBuf {
        self.here().join(format!(".{}.partial", self.name))
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|has| has == flag)
    }

    fn restore(&self) {
        let _ = fs::remove_dir_all(self.here());
        fs::create_dir(self.here()).unwrap();
        link(&self.source, &self.from());
        if let Some(before) = &self.before {
            link(before, &self.to());
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        command.arg("compress").args([self.from(), self.to()]).args(&self.flags);
        command.env("WEIGHBRIDGE_CACHE", crate::NO_CACHE);
        command
    }

    fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    fn start(&self) -> Child {
        self.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The content of the directory, besides the source.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.here()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("source")).collect()
    }

    /// Waits for `moment`, or until the program has ended.
    fn wait(&self, child: &mut Child, moment: Moment) {
        let began = Instant::now();
        let number = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.ino());
        let (was, files) = (number(&self.to()), tree(&self.from()).len());
        let journal = self.partial().join("journal");
        let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        let is_reached = || match moment {
            Moment::Time(share) => began.elapsed() >= self.takes.mul_f64(share),
            Moment::Lines(n) => lines() >= n as usize,
            Moment::Placed => number(&self.to()).is_some_and(|now| was != Some(now)),
            Moment::Going => files > count(&self.from()),
        };
        while !is_reached() && child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "{moment:?} does not come");
            if !matches!(moment, Moment::Placed | Moment::Going) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// The destination before.
    fn old(&self) -> Tree {
        self.before.as_ref().map(|before| tree(before)).unwrap_or_default()
    }

    /// The source as it is at the end.
    fn rest(&self) -> Tree {
        let mut rest = tree(&self.source);
        let is_weights =
            |name: &Path| name == Path::new("") || name.extension() == Some(OsStr::new("safetensors"));
        rest.retain(|name, _| !(self.has("--delete-source") && is_weights(name)));
        rest
    }

    /// Checks what is there after it was ended: the result is whole or not there, and if it is not, the source is whole.
    fn is_sound(&self, when: &str) {
        let (source, found, result) = (tree(&self.source), tree(&self.from()), tree(&self.to()));
        assert!(result == self.after || result == self.old(), "{when}: {:?}", result.keys());
        assert!(found.iter().all(|(name, content)| source.get(name) == Some(content)), "{when}");
        let goes = self.has("--delete-source") && result == self.after;
        assert!(found == source || goes, "{when}: {:?}", found.keys());
        let known = [self.to(), self.partial()];
        let others: Vec<String> =
            self.names().into_iter().filter(|name| !known.contains(&self.here().join(name))).collect();
        assert!(others.is_empty(), "{when}: {others:?}");
    }

    /// Returns true if it has ended and left nothing else.
    fn is_over(&self) -> bool {
        tree(&self.to()) == self.after && self.names() == [&*self.name] && tree(&self.from()) == self.rest()
    }

    fn ended(&self) {
        let (to, from) = (tree(&self.to()), tree(&self.from()));
        assert!(self.is_over(), "{:?}, {:?}, {:?}", self.names(), to.keys(), from.keys());
    }

    /// Ends it by `name` at `moment`, of what is there now.
    fn end_at(&mut self, name: &str, moment: Moment) {
        let mut child = self.start();
        self.wait(&mut child, moment);
        signal(&child, name);
        let said = said(&child.wait_with_output().unwrap());
        assert!(!said.contains("panicked"), "{said}");
        self.is_sound(&format!("{name} at {moment:?}"));
    }

    /// The same command again: it ends as if nothing had happened.
    fn continues(&mut self, what: &str) {
        // If it was killed when all was done, the same command is one too many.
        let was_over = self.is_over();
        let output = self.run();
        assert!(output.status.success() || was_over, "{what}: {}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let continued = report["continued"].as_u64().filter(|_| !was_over).unwrap_or(u64::from(TENSORS));
        let place = if continued >= u64::from(TENSORS) { 2 } else { usize::from(continued == 0) };
        self.counts[place] += 1;
        self.ended();
    }

    /// Kill number `n` of a sequence.
    fn killed(&mut self, n: u32, random: &mut Rng) {
        self.restore();
        for again in 0..=u32::from(n % 3 == 2) {
            let share = (random.next() >> 40) as f64 / f64::from(1 << 24);
            let moment = match n % 4 {
                0 | 1 => Moment::Time(share),
                // A line for the head, and one for each tensor.
                2 => Moment::Lines(2 + u32::try_from(random.below(u64::from(TENSORS))).unwrap()),
                _ if self.has("--delete-source") && n % 8 == 3 => Moment::Going,
                _ if again == 0 => Moment::Placed,
                _ => Moment::Time(share),
            };
            let name = ["-KILL", "-KILL", "-KILL", "-TERM", "-INT"][(n % 5) as usize];
            self.end_at(name, moment);
        }
        self.continues(&format!("kill {n}"));
    }
}

fn count(path: &Path) -> usize {
    if path.is_dir() { fs::read_dir(path).unwrap().count() } else { usize::from(path.exists()) }
}

/// The ways of compressing that are killed, each with its share of the kills.
fn cases() -> Vec<(u32, Case)> {
    let small = Small::get();
    let (gguf, shards, held, imatrix) = (small.gguf(), small.shards(), small.text(), small.imatrix());
    let mlx = ["--to", "mlx", "--target", "5", "--max-shard-size", "200KB"];
    let text = ["--text", path(&held), "--imatrix", path(&imatrix), "--gptq", "--awq"];
    vec![
        (6, Case::new(&gguf, "x.gguf", &["--target", "4.7"])),
        (6, Case::new(&shards, "x", &[&mlx[..], &["--delete-source"]].concat())),
        (4, Case::new(&shards, "x", &[&mlx[..], &["--force"]].concat())),
        (3, Case::new(&gguf, "x.gguf", &["--target", "4bit", "--delete-source", "--force"])),
        (1, Case::new(&gguf, "x", &[&mlx[..], &text].concat())),
    ]
}

#[test]
fn a_compression_that_is_killed_is_whole_or_not_there_and_is_continued() {
    let mut cases = cases();
    let all = kills(10);
    let mut random = Rng(5);
    let turn: Vec<usize> =
        cases.iter().enumerate().flat_map(|(i, (share, _))| (0..*share).map(move |_| i)).collect();
    for kill in 0..all {
        let n = random.index(turn.len());
        cases[turn[n]].1.killed(kill, &mut random);
    }
    for (_, case) in &cases {
        println!("{:?}: [continued, begun again, complete] {:?}", case.flags, case.counts);
    }
    let continued: u32 = cases.iter().map(|(_, case)| case.counts[0]).sum();
    assert!(continued >= all / 10, "continued {continued} of {all} times");
}

/// A limit on the length of files, as on a disk that fills up: wherever writing fails, the source and what was there stay, and the same
/// command continues with more room.
#[test]
fn a_disk_that_is_full_ends_a_compression_and_keeps_all() {
    let small = Small::get();
    let shards = ["--to", "mlx", "--target", "5", "--max-shard-size", "200KB", "--delete-source"];
    for mut case in [
        Case::new(&small.gguf(), "x.gguf", &["--target", "4.7", "--delete-source", "--force"]),
        Case::new(&small.shards(), "x", &shards),
    ] {
        let largest = case.after.values().map(Vec::len).max().unwrap() / 1024;
        for blocks in [0, largest / 4, largest * 9 / 10] {
            case.restore();
            let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
            let program = case.command();
            let mut command = Command::new("bash");
            command.args(["-c", &script]).arg(program.get_program()).args(program.get_args());
            let output = command.env("WEIGHBRIDGE_CACHE", crate::NO_CACHE).output().unwrap();
            let said = said(&output);
            assert!(output.status.code() == Some(1) && said.contains("File too large"), "{blocks}: {said}");
            case.is_sound(&said);
            assert!(tree(&case.to()) == case.old(), "{blocks}");
            case.continues("with room");
        }
    }
}

/// One of two writes, or both do, one after the other; what is there is of one.
#[test]
fn two_compressions_to_one_place_are_not_mixed() {
    let small = Small::get();
    for flags in [&["--target", "4.7"][..], &["--target", "4.7", "--force"]] {
        let case = Case::new(&small.gguf(), "x.gguf", flags);
        for share in [0.0, 0.5, 0.9, 1.0] {
            case.restore();
            let mut first = case.start();
            case.wait(&mut first, Moment::Time(share));
            let ended = [case.start(), first].map(|child| child.wait_with_output().unwrap());
            for output in &ended {
                let said = said(output);
                let refused =
                    ["another process is writing there", "exists", "something has come to be there"];
                let refused = refused.iter().any(|why| said.contains(why));
                assert!(output.status.success() || refused, "{share}: {said}");
            }
            assert!(ended.iter().any(|output| output.status.success()), "{share}");
            case.ended();
        }
    }
}

/// The fate of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It is written to.
    Written,
    /// Another file of the same length and time takes its place.
    Replaced,
}

impl Fate {
    fn befalls(self, path: &Path) {
        let was = fs::metadata(path).unwrap().modified().unwrap();
        let mut bytes = fs::read(path).unwrap();
        // In the last matrix of the last layer.
        let at = bytes.len() - 4096;
        bytes[at..at + 512].rotate_left(64);
        match self {
            Fate::Written => fs::write(path, bytes).unwrap(),
            Fate::Replaced => {
                let other = path.with_extension("other");
                fs::write(&other, bytes).unwrap();
                fs::File::options().write(true).open(&other).unwrap().set_modified(was).unwrap();
                fs::rename(other, path).unwrap();
            }
        }
    }
}

impl Case {
    /// A source of its own, which may change.
    fn unlink(&self) {
        let bytes = fs::read(self.from()).unwrap();
        fs::remove_file(self.from()).unwrap();
        fs::write(self.from(), bytes).unwrap();
    }

    /// The result of the source as it is now, by a command that nothing disturbs.
    fn of_now(&self) -> Tree {
        let to = self.dir.path().join("now.gguf");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
        let flags = self.flags.iter().filter(|flag| *flag != "--delete-source");
        done(&command.arg("compress").args([self.from(), to.clone()]).args(flags).output().unwrap());
        let made = tree(&to);
        fs::remove_file(&to).unwrap();
        made
    }
}

#[test]
fn a_source_that_changes_is_never_mixed_with_what_it_was() {
    let small = Small::get();
    let mut case = Case::new(&small.gguf(), "x.gguf", &["--target", "4.7", "--delete-source"]);
    for fate in [Fate::Written, Fate::Replaced] {
        // Between a command that was killed and the next. On a busy machine it may be done before the signal comes.
        for _ in 0..20 {
            case.restore();
            case.unlink();
            case.end_at("-KILL", Moment::Lines(TENSORS / 2));
            if !case.to().exists() {
                break;
            }
        }
        fate.befalls(&case.from());
        let wanted = case.of_now();
        assert!(wanted != case.after);
        done(&case.run());
        assert!(tree(&case.to()) == wanted, "{fate:?}");
        assert_eq!((case.names(), case.from().exists()), (vec![case.name.clone()], false));

        // While it is at work.
        let child = (0..20).find_map(|_| {
            case.restore();
            case.unlink();
            let mut child = case.start();
            case.wait(&mut child, Moment::Lines(3));
            signal(&child, "-STOP");
            let lines = fs::read_to_string(case.partial().join("journal"))
                .map_or(u32::MAX, |text| u32::try_from(text.lines().count()).unwrap());
            if lines < TENSORS {
                return Some(child);
            }
            signal(&child, "-CONT");
            child.wait().unwrap();
            None
        });
        let child = child.expect("it is always done before it is stopped");
        fate.befalls(&case.from());
        let changed = fs::read(case.from()).unwrap();
        signal(&child, "-CONT");
        let output = child.wait_with_output().unwrap();
        let said = said(&output);
        assert!(!output.status.success() && said.contains(path(&case.from())), "{fate:?}: {said}");
        // The file that is there now was never read.
        assert!(fs::read(case.from()).unwrap() == changed, "{fate:?}");
        match fate {
            Fate::Written => {
                assert!(said.contains("has changed since it was opened"), "{said}");
                assert!(case.names().is_empty(), "{:?}", case.names());
            }
            // An open file stays as it was.
            Fate::Replaced => {
                assert!(said.contains("it is not the file that was read"), "{said}");
                assert!(tree(&case.to()) == case.after && case.names() == [&*case.name]);
            }
        }
    }
}

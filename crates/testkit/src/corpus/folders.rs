//! Directories: indices that lie, links that lead out, what is no file, parts that do not fit.

use super::Blame::{self, Io, Malformed, Mismatch, Misuse, Unsupported};
use super::Case;
use super::Made::{self, File, Folder, Link, Long, Pipe};
use super::archives::{array, npy};
use super::build::{Gguf, kind, safetensors};

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// A file of f32 tensors of four elements each.
fn shard(tensors: &[&str]) -> Made {
    let info = |(i, name): (usize, &&str)| {
        format!(r#""{name}":{{"dtype":"F32","shape":[4],"data_offsets":[{},{}]}}"#, 16 * i, 16 * i + 16)
    };
    let infos: Vec<_> = tensors.iter().enumerate().map(info).collect();
    File(safetensors(format!("{{{}}}", infos.join(",")), 16 * tensors.len()))
}

fn text(content: impl Into<String>) -> Made {
    File(content.into().into_bytes())
}

/// An index of these tensors and files, as JSON strings.
fn index(map: &[(&str, &str)]) -> Made {
    let pairs: Vec<_> = map.iter().map(|(tensor, file)| format!(r#""{tensor}":"{file}""#)).collect();
    text(format!(r#"{{"metadata":{{"total_size":64}},"weight_map":{{{}}}}}"#, pairs.join(",")))
}

/// What is wrong, what is made or (`None`) missing at which paths, whose fault it is, and what the error must say.
type Change = (&'static str, Vec<(&'static str, Option<Made>)>, Blame, &'static str);

/// A case in the directory `m`, where `sound` is what is there, and `changes` are made: what is put in place of a
/// file or beside it, or taken away.
fn changed(family: &'static str, sound: Vec<(&str, Made)>, (name, changes, blame, says): Change) -> Case {
    let mut made: Vec<(String, Made)> = sound.into_iter().map(|(n, m)| (format!("m/{n}"), m)).collect();
    for (at, change) in changes {
        let at = format!("m/{at}");
        made.retain(|(n, _)| *n != at);
        made.extend(change.map(|change| (at, change)));
    }
    Case { family, name: name.to_owned(), made, path: "m".to_owned(), blame, says: says.to_owned() }
}

fn put(at: &'static str, made: Made) -> Vec<(&'static str, Option<Made>)> {
    vec![(at, Some(made))]
}

/// Two shards and their index.
pub(super) fn indices() -> Vec<Case> {
    let sound = || {
        vec![
            (CONFIG, text("{}")),
            (INDEX, index(&[("a", ONE), ("b", ONE), ("c", TWO)])),
            (ONE, shard(&["a", "b"])),
            (TWO, shard(&["c"])),
        ]
    };
    let to = |file: &str| put(INDEX, index(&[("a", ONE), ("b", ONE), ("c", file)]));
    let no_name = "is no name of a file in the directory";
    let json = |content: &str| put(INDEX, text(content));
    let deep = r#"{"weight_map":"#.to_owned() + &"[".repeat(100_000);
    let cases: Vec<Change> = vec![
        ("up", to("../x.safetensors"), Malformed, no_name),
        ("up inside", to("sub/../x.safetensors"), Malformed, no_name),
        ("absolute", to("/etc/passwd"), Malformed, no_name),
        ("backslash", to(r"..\\x"), Malformed, no_name),
        ("NUL", to(r"x\u0000.safetensors"), Malformed, no_name),
        ("nothing", to(""), Malformed, no_name),
        ("itself", to("."), Malformed, no_name),
        ("up below", to("sub/deep/../../../x.safetensors"), Malformed, no_name),
        ("a backslash below", to(r"sub/..\\x"), Malformed, no_name),
        ("no name below", to("sub//x.safetensors"), Malformed, no_name),
        ("a directory as a shard", to("sub/"), Malformed, no_name),
        ("gone below", to("sub/x.safetensors"), Mismatch, "`sub/x.safetensors` is missing"),
        ("below a file", to("config.json/x"), Mismatch, "`config.json/x` is missing"),
        ("a long name below", to(&format!("sub/{}", "x".repeat(5000))), Mismatch, "is missing"),
        (
            "another case",
            to("MODEL-00002-of-00002.safetensors"),
            Mismatch,
            "`MODEL-00002-of-00002.safetensors` is missing",
        ),
        ("the index as a shard", to(INDEX), Unsupported, "the content is JSON"),
        ("a long name", to(&"x".repeat(5000)), Mismatch, "is missing"),
        ("control characters", to(r"\u001b[31m"), Mismatch, r"`\u{1b}[31m` is missing"),
        ("no shard", vec![(TWO, None)], Mismatch, "`model-00002-of-00002.safetensors` is missing"),
        ("an empty shard", put(TWO, text("")), Malformed, "the file is empty"),
        ("a shard of something else", put(TWO, text("<!DOCTYPE html>")), Unsupported, "the content is HTML"),
        (
            "a shard cut short",
            put(TWO, File(safetensors(r#"{"c":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#, 15))),
            Malformed,
            "the first is `c`",
        ),
        ("one tensor in two", put(TWO, shard(&["c", "a"])), Mismatch, "tensor `a`: is in `model-00001"),
        (
            "a tensor that is not listed",
            put(TWO, shard(&["c", "d"])),
            Mismatch,
            "tensor `d`: is in `model-00002-of-00002.safetensors`, but not in the index",
        ),
        (
            "a tensor that is nowhere",
            put(TWO, shard(&[])),
            Mismatch,
            "tensor `c`: wanted it in `model-00002-of-00002.safetensors` as the index says, found it nowhere",
        ),
        (
            "a tensor in the other",
            vec![(ONE, Some(shard(&["a"]))), (TWO, Some(shard(&["b", "c"])))],
            Mismatch,
            "tensor `b`: wanted it in `model-00001",
        ),
        (
            "a link out",
            put(TWO, Link("/etc/hostname")),
            Malformed,
            "leads out of the directory, to `/etc/hostname`",
        ),
        ("a link up", put(TWO, Link("../other.safetensors")), Io, "No such file"),
        (
            "a link to a device",
            put(TWO, Link("/dev/zero")),
            Malformed,
            "leads out of the directory, to `/dev/zero`",
        ),
        ("a link to itself", put(TWO, Link(TWO)), Io, "symbolic links"),
        ("a pipe", put(TWO, Pipe), Malformed, "wanted a regular file, found a named pipe"),
        ("a folder", put(TWO, Folder), Malformed, "wanted a regular file, found a directory"),
        ("the index a pipe", put(INDEX, Pipe), Malformed, "wanted a regular file, found a named pipe"),
        ("the index a link out", put(INDEX, Link("/etc/hostname")), Malformed, "leads out of the directory"),
        ("no JSON", json("weights"), Malformed, "the index: expected value"),
        ("deep", json(&deep), Malformed, "the index: "),
        ("map of numbers", json(r#"{"weight_map":{"a":1}}"#), Malformed, "expected a string"),
        ("map of maps", json(r#"{"weight_map":{"a":{"file":"x"}}}"#), Malformed, "expected a string"),
        ("map of null", json(r#"{"weight_map":null}"#), Malformed, "expected a map of strings"),
        ("no map", json(r#"{"metadata":{"total_size":1}}"#), Malformed, "missing field `weight_map`"),
        ("two maps", json(r#"{"weight_map":{},"weight_map":{}}"#), Malformed, "duplicate field `weight_map`"),
        (
            "one tensor twice",
            json(r#"{"weight_map":{"a":"x","a":"y"}}"#),
            Malformed,
            "tensor `a`: is there twice",
        ),
        (
            "an index of 100 MB",
            put(INDEX, Long(b"{".to_vec(), 100_000_001)),
            Malformed,
            "length in bytes of 100000001, over",
        ),
    ];
    cases.into_iter().map(|case| changed("index.json", sound(), case)).collect()
}

/// One file of weights, and what lies beside it.
pub(super) fn models() -> Vec<Case> {
    let sound = || vec![(CONFIG, text("{}")), (WEIGHTS, shard(&["a"]))];
    let config = |content: &str| put(CONFIG, text(content));
    let deep = "[".repeat(100_000);
    let cases: Vec<Change> = vec![
        ("an empty config", config(""), Malformed, "not JSON"),
        ("a config of text", config("model_type: llama"), Malformed, "not JSON: expected value"),
        ("a config that is a number", config("1"), Malformed, "wanted a JSON object, found a number"),
        ("a config that goes on", config("{} {}"), Malformed, "not JSON: trailing characters"),
        ("a config that is cut", config(r#"{"a":[1,2"#), Malformed, "not JSON: EOF"),
        (
            "a config that is not UTF-8",
            put(CONFIG, File(b"{\"a\":\"\xff\"}".to_vec())),
            Malformed,
            "not JSON: ",
        ),
        ("a deep config", config(&deep), Malformed, "not JSON: recursion limit exceeded"),
        (
            "a config of 16 MiB",
            put(CONFIG, Long(b"{".to_vec(), (16 << 20) + 1)),
            Malformed,
            "length in bytes of 16777217",
        ),
        (
            "a config that is a pipe",
            put(CONFIG, Pipe),
            Malformed,
            "wanted a regular file, found a named pipe",
        ),
        (
            "a config that is a directory",
            put(CONFIG, Folder),
            Malformed,
            "wanted a regular file, found a directory",
        ),
        (
            "a config that is a device",
            put(CONFIG, Link("/dev/zero")),
            Malformed,
            "leads out of the directory, to `/dev/zero`",
        ),
        (
            "a config out of the directory",
            put(CONFIG, Link("/proc/version")),
            Malformed,
            "leads out of the directory",
        ),
        ("a config that is a loop", put(CONFIG, Link(CONFIG)), Io, "symbolic links"),
        (
            "a config by a folder out",
            vec![("d", Some(Link("/etc"))), (CONFIG, Some(Link("d/passwd")))],
            Malformed,
            "leads out of the directory, to `/etc/passwd`",
        ),
        (
            "a tokenizer out of the directory",
            put("tokenizer.json", Link("/etc/passwd")),
            Malformed,
            "leads out of the directory",
        ),
        ("a tokenizer that is a pipe", put("tokenizer.json", Pipe), Malformed, "wanted a regular file"),
        ("a template that is a pipe", put("chat_template.jinja", Pipe), Malformed, "wanted a regular file"),
        (
            "weights that are a pipe",
            put(WEIGHTS, Pipe),
            Malformed,
            "wanted a regular file, found a named pipe",
        ),
        (
            "weights that are a directory",
            put(WEIGHTS, Folder),
            Malformed,
            "wanted a regular file, found a directory",
        ),
        (
            "weights that are a device",
            put(WEIGHTS, Link("/dev/zero")),
            Malformed,
            "leads out of the directory",
        ),
        (
            "weights out of the directory",
            vec![("../out", Some(shard(&["a"]))), (WEIGHTS, Some(Link("../out")))],
            Malformed,
            "leads out of the directory, to `DIR/out`",
        ),
        ("weights that are nowhere", put(WEIGHTS, Link("gone")), Io, "No such file"),
        ("weights that are empty", put(WEIGHTS, text("")), Malformed, "the file is empty"),
        (
            "weights that are GGUF",
            put(WEIGHTS, File(Gguf::new().f32("a", &[4]).build())),
            Mismatch,
            "is named as safetensors, but holds gguf",
        ),
        (
            "no weights",
            vec![(WEIGHTS, None)],
            Mismatch,
            "wanted `model.safetensors` or `pytorch_model.bin` beside `config.json`",
        ),
        ("no config", vec![(CONFIG, None)], Mismatch, "wanted a `config.json` beside the safetensors file"),
        (
            "nothing",
            vec![(CONFIG, None), (WEIGHTS, None), (".hidden", Some(text("")))],
            Mismatch,
            "wanted one GGUF file, safetensors or PyTorch weights",
        ),
        (
            "a part alone",
            vec![(WEIGHTS, None), (TWO, Some(shard(&["a"])))],
            Mismatch,
            "`model-00001-of-00002.safetensors` is missing",
        ),
        (
            "a part of 4 billion",
            vec![(WEIGHTS, None), ("model-00001-of-4294967295.safetensors", Some(shard(&["a"])))],
            Mismatch,
            "is missing",
        ),
    ];
    cases.into_iter().map(|case| changed("directories", sound(), case)).collect()
}

/// A path that is no file, and one that is not there.
pub(super) fn paths() -> Vec<Case> {
    let case = |name: &str, made: Made, blame, says: &str| Case {
        family: "paths",
        name: name.to_owned(),
        made: vec![("x.gguf".to_owned(), made)],
        path: "x.gguf".to_owned(),
        blame,
        says: says.to_owned(),
    };
    let sparse = |header: Gguf| Long(header.header(), 128 << 20);
    vec![
        case("a pipe", Pipe, Misuse, "wanted a regular file, found a named pipe"),
        case("a device", Link("/dev/zero"), Misuse, "wanted a regular file, found a device"),
        case("an empty device", Link("/dev/null"), Misuse, "wanted a regular file, found a device"),
        case("a file of no length", Link("/proc/self/environ"), Malformed, "the file is empty"),
        case("a loop", Link("x.gguf"), Io, "symbolic links"),
        case("nowhere", Link("gone"), Io, "No such file"),
        case("an empty folder", Folder, Mismatch, "found an empty directory"),
        case("zeros", Long(vec![], 128 << 20), Malformed, "wanted the magic `GGUF`"),
        case(
            "2^20 tensors of nothing",
            sparse(Gguf::new().with(|g| g.tensor_count = Some(1 << 20))),
            Malformed,
            "the tensor name is empty",
        ),
        case(
            "2^22 pairs of nothing",
            sparse(Gguf::new().with(|g| g.pair_count = Some(1 << 22))),
            Malformed,
            "the key is empty",
        ),
        case(
            "an array of 2^25 texts of nothing",
            sparse(Gguf::new().pair("k", kind::ARRAY, super::build::array(kind::STR, 1 << 25, []))),
            Malformed,
            "the file ends inside an array of strings",
        ),
    ]
}

/// Parts of a GGUF model in three files.
pub(super) fn splits() -> Vec<Case> {
    let u16 = |g: Gguf, key: &str, value: u16| g.pair(key, kind::U16, value.to_le_bytes());
    let part = |no: u16, count: u16, total: u32, tensors: &[&str]| {
        let g = u16(u16(Gguf::new(), "split.no", no), "split.count", count);
        let g = g.pair("split.tensors.count", kind::I32, total.to_le_bytes());
        File(tensors.iter().fold(g, |g, name| g.f32(name, &[8])).build())
    };
    let names = ["x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "x-00003-of-00003.gguf"];
    let [one, two, three] = names;
    let sound =
        || vec![(one, part(0, 3, 3, &["a"])), (two, part(1, 3, 3, &["b"])), (three, part(2, 3, 3, &["c"]))];
    let cases: Vec<Change> = vec![
        ("no first part", vec![(one, None)], Mismatch, "`x-00001-of-00003.gguf` is missing"),
        ("no last part", vec![(three, None)], Mismatch, "`x-00003-of-00003.gguf` is missing"),
        (
            "swapped",
            vec![(one, Some(part(1, 3, 3, &["b"]))), (two, Some(part(0, 3, 3, &["a"])))],
            Mismatch,
            "key `split.no`",
        ),
        ("number past the count", put(three, part(9, 3, 3, &["c"])), Mismatch, "key `split.no`"),
        (
            "count 0",
            put(two, part(1, 0, 3, &["b"])),
            Mismatch,
            "key `split.count`: wanted 3, as the name says",
        ),
        (
            "count 65535",
            put(two, part(1, 65535, 3, &["b"])),
            Mismatch,
            "wanted 3, as the name says, found 65535",
        ),
        (
            "one tensor in two",
            put(two, part(1, 3, 3, &["a"])),
            Mismatch,
            "tensor `a`: is in `x-00001-of-00003.gguf` and in",
        ),
        (
            "wrong total",
            put(one, part(0, 3, 9, &["a"])),
            Mismatch,
            "key `split.tensors.count`: wanted 9 tensors, found 3",
        ),
        ("negative total", put(one, part(0, 3, u32::MAX, &["a"])), Mismatch, "key `split.tensors.count`"),
        (
            "a part without keys",
            put(two, File(Gguf::new().f32("b", &[8]).build())),
            Mismatch,
            "key `split.count`",
        ),
        ("a part of something else", put(two, text("<html>")), Unsupported, "the content is HTML"),
        ("an empty part", put(two, text("")), Malformed, "the file is empty"),
        ("a part cut short", put(two, File(b"GGUF\x03\0\0\0".to_vec())), Malformed, "the file ends inside"),
        ("a part that is a pipe", put(two, Pipe), Malformed, "wanted a regular file, found a named pipe"),
        ("a part that leads out", put(two, Link("/etc/hostname")), Malformed, "leads out of the directory"),
        (
            "a part that is a directory",
            put(two, Folder),
            Malformed,
            "wanted a regular file, found a directory",
        ),
    ];
    let mut cases: Vec<Case> = cases.into_iter().map(|case| changed("splits", sound(), case)).collect();
    // Opened by one of its parts.
    let mut by_part = changed(
        "splits",
        sound(),
        ("no second part", vec![(two, None)], Mismatch, "`x-00002-of-00003.gguf` is missing"),
    );
    by_part.path = format!("m/{three}");
    cases.push(by_part);
    cases
}

/// Directories of Squish, and of arrays.
pub(super) fn squish() -> Vec<Case> {
    const MANIFEST: &str = "manifest.json";
    const SHAPE: &str = "tensors/a__shape.npy";
    const CODES: &str = "tensors/a__q.npy";
    const SCALES: &str = "tensors/a__s.npy";
    let ints = |axes: &[i64]| {
        let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", axes.len());
        let data: Vec<u8> = axes.iter().flat_map(|n| n.to_le_bytes()).collect();
        File([npy(&header, 0), data].concat())
    };
    let codes = |descr: &str, shape: &str, bytes| {
        File(npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), bytes))
    };
    let sound = || {
        vec![
            (MANIFEST, text(r#"{"a": "a"}"#)),
            ("tensors/.manifest_ready", text("")),
            (SHAPE, ints(&[2, 128])),
            (CODES, codes("|i1", "(2, 128)", 256)),
            (SCALES, File(array("(2, 2)", 16))),
        ]
    };
    let manifest = |content: &str| put(MANIFEST, text(content));
    let cases: Vec<Change> = vec![
        ("no JSON", manifest("a: a"), Malformed, "the manifest: "),
        ("deep", manifest(&r#"{"a":"#.repeat(100_000)), Malformed, "the manifest: "),
        ("up", manifest(r#"{"a": "../a"}"#), Malformed, "tensor `a`: `../a` is no name of a file"),
        ("absolute", manifest(r#"{"a": "/etc/passwd"}"#), Malformed, "`/etc/passwd` is no name of a file"),
        ("a key of nothing", manifest(r#"{"a": "b"}"#), Mismatch, "`b__*.npy` is missing"),
        ("no shape", vec![(SHAPE, None)], Mismatch, "`a__shape.npy` is missing"),
        ("no scales", vec![(SCALES, None)], Unsupported, "is held in `__q.npy`, which is not read"),
        (
            "a negative shape",
            put(SHAPE, ints(&[-2, 128])),
            Malformed,
            "wanted axes that are not negative, found -2",
        ),
        ("a shape that wraps", put(SHAPE, ints(&[i64::MAX, i64::MAX])), Mismatch, "tensor `a`: "),
        ("a shape of zeros", put(SHAPE, ints(&[0, 0])), Mismatch, "tensor `a`: "),
        (
            "a shape of 2^40 axes",
            put(SHAPE, codes("<i8", "(1099511627776,)", 0)),
            Malformed,
            "needs 8796093022208 bytes",
        ),
        (
            "a shape of 65 axes",
            put(SHAPE, ints(&[1; 65])),
            Malformed,
            "wanted a shape: i64, at most 64 of them",
        ),
        ("a shape of floats", put(SHAPE, File(array("(2,)", 8))), Malformed, "wanted a shape: i64"),
        (
            "scales of another shape",
            put(SCALES, File(array("(3, 2)", 24))),
            Mismatch,
            "tensor `a`: `__s` is [3, 2] f32, for shape [2, 128]",
        ),
        (
            "codes of another type",
            put(CODES, codes("|u1", "(2, 128)", 256)),
            Mismatch,
            "tensor `a`: `__q` is [2, 128] u8",
        ),
        ("codes that are a pipe", put(CODES, Pipe), Malformed, "wanted a regular file, found a named pipe"),
        ("codes that lead out", put(CODES, Link("/etc/hostname")), Malformed, "leads out of the directory"),
        ("codes that are empty", put(CODES, text("")), Malformed, "the file is empty"),
    ];
    cases.into_iter().map(|case| changed("squish", sound(), case)).collect()
}

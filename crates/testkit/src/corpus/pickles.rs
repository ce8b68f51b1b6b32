//! Pickles made to hurt, in the files of torch: nothing of them is run, and each is refused in words that say where.

use super::Blame::{self, Malformed, Unsupported};
use super::pickle::{Pickle, legacy, zip};
use super::{Case, case};

/// A pickle, whose fault it is, and what the error must say.
type InZip = (&'static str, Pickle, Blame, &'static str);

fn p() -> Pickle {
    Pickle::new()
}

/// All of them.
pub(super) fn pickles() -> Vec<Case> {
    let tables = [
        ("the stack and the memo", stack()),
        ("lengths of pickles", lengths()),
        ("tensors of pickles", tensors()),
        ("persistent ids", persistent_ids()),
        ("values that grow", growth()),
        ("names of tensors", names()),
    ];
    let mut all = Vec::new();
    for (family, table) in tables {
        all.extend(
            table
                .into_iter()
                .map(|(name, pickle, blame, says)| case(family, "pt", name, zip(&pickle), blame, says)),
        );
    }
    all.extend(opcodes());
    all.extend(globals());
    all.extend(old_files());
    all
}

fn stack() -> Vec<InZip> {
    vec![
        ("nothing", p().op(b"."), Malformed, "the stack is empty"),
        ("no end", p().op(b"}"), Malformed, "ends inside the pickle"),
        ("no bytes", Pickle::default(), Malformed, "ends inside the pickle"),
        ("tuple of too few", p().op(b"N\x87."), Malformed, "`TUPLE3` wants a value, but the stack is empty"),
        ("short call", p().op(b")R."), Malformed, "`REDUCE` wants a value"),
        ("no mark", p().op(b"Nt."), Malformed, "no mark to go back to"),
        ("past a mark", p().op(b"N(\x85t."), Malformed, "the stack is empty"),
        ("past a mark with a put", p().op(b"N(q\0t."), Malformed, "the stack is empty"),
        ("dangling memo", p().op(b"h\x07."), Malformed, "nothing was kept under number 7"),
        ("dangling long memo", p().op(b"j\xff\xff\xff\xff."), Malformed, "under number 4294967295"),
        ("a key alone", p().op(b"}(Nu."), Malformed, "a key without a value"),
        ("append to a dict", p().op(b"}Na."), Malformed, "wanted a list to append to, found a dictionary"),
        (
            "items of a list",
            p().op(b"](NNu."),
            Malformed,
            "wanted a dictionary to set items of, found a list",
        ),
        ("items of a number", p().op(b"K\x01NNs."), Malformed, "found an integer"),
        ("state of None", p().op(b"N}b."), Malformed, "wanted an object to give a state, found None"),
        ("call of a number", p().op(b"K\x01)R."), Malformed, "wanted a class to call, found an integer"),
        ("call without a tuple", p().global("a", "b").op(b"NR."), Malformed, "wanted a tuple of arguments"),
    ]
}

fn lengths() -> Vec<InZip> {
    vec![
        (
            "text",
            p().op(b"X\xff\xff\xff\xff"),
            Malformed,
            "ends inside text: 4294967295 bytes wanted, 0 left",
        ),
        ("long text", p().op(b"\x8d").op(&u64::MAX.to_le_bytes()), Malformed, "ends inside text"),
        ("bytes", p().op(b"B\xff\xff\xff\x7f."), Malformed, "ends inside bytes"),
        ("number", p().op(b"\x8b\xff\xff\xff\xff."), Malformed, "ends inside a number"),
        ("frame", p().op(b"\x95").op(&u64::MAX.to_le_bytes()), Malformed, "ends inside a frame"),
        ("line", p().op(b"ctorch"), Malformed, "ends inside a line"),
        ("long line", p().op(b"c").repeat(100_000, b"a"), Malformed, "a line of over 4096 bytes"),
        ("digits", p().op(b"L12x4L\n."), Malformed, "not written in digits"),
        ("protocol", Pickle(b"\x80\x06N.".to_vec()), Unsupported, "protocol 6 of pickle"),
    ]
}

fn tensors() -> Vec<InZip> {
    let tensor =
        |offset, shape: &[i64], strides: &[i64]| Pickle::dict("w", |p| p.tensor(4, offset, shape, strides));
    let arguments = |what: fn(Pickle) -> Pickle| {
        Pickle::dict("w", |p| what(p.global("torch._utils", "_rebuild_tensor_v2").op(b"(")).op(b"tR"))
    };
    let huge = i64::MAX;
    vec![
        (
            "offset",
            tensor(1, &[2, 2], &[2, 1]),
            Malformed,
            "[2, 2] f32 from element 1 on ends at byte 20 of its storage, which has 16",
        ),
        ("shape", tensor(0, &[3, 2], &[2, 1]), Malformed, "ends at byte 24"),
        ("stride", tensor(0, &[2, 2], &[3, 1]), Malformed, "ends at byte 20"),
        (
            "negative stride",
            tensor(3, &[4], &[-1]),
            Malformed,
            "the strides of a tensor holds -1, which is negative",
        ),
        ("negative offset", tensor(-1, &[1], &[1]), Malformed, "the offset of a tensor holds -1"),
        ("negative size", tensor(0, &[-2, 2], &[2, 1]), Malformed, "the size of a tensor holds -2"),
        ("stride that wraps", tensor(0, &[3, 2], &[huge, 1]), Malformed, "overflows"),
        ("offset that wraps", tensor(huge, &[1], &[1]), Malformed, "overflows"),
        ("size that wraps", tensor(0, &[huge, huge], &[0, 0]), Malformed, "overflows"),
        ("size that wraps beside 0", tensor(0, &[huge, huge, 0], &[0, 0, 0]), Malformed, "overflows"),
        (
            "all the memory",
            tensor(0, &[1 << 40], &[0]),
            Malformed,
            "a tensor that repeats its elements of 4398046511104, over",
        ),
        ("axes and strides", tensor(0, &[2, 2], &[1]), Malformed, "a tensor of 2 axes has 1 strides"),
        ("many axes", tensor(0, &[1; 65], &[1; 65]), Malformed, "65 axes, over the limit of 64"),
        ("of nothing", arguments(|p| p), Malformed, "a tensor is made of 0 values, wanted at least 4"),
        (
            "short tuple",
            arguments(|p| p.storage("FloatStorage", "0", 4).int(0).ints(&[1])),
            Malformed,
            "of 3 values",
        ),
        ("of None", arguments(|p| p.op(b"NNNN")), Malformed, "a tensor is made of None, wanted a storage"),
        (
            "size of text",
            arguments(|p| p.storage("FloatStorage", "0", 4).int(0).text("x").ints(&[1])),
            Malformed,
            "the size of a tensor is text",
        ),
        (
            "sizes of text",
            arguments(|p| p.storage("FloatStorage", "0", 4).int(0).text("x").op(b"\x85").ints(&[1])),
            Malformed,
            "holds text, wanted an integer",
        ),
        (
            "no record",
            Pickle::dict("w", |p| {
                p.global("torch._utils", "_rebuild_tensor_v2")
                    .op(b"(")
                    .storage("FloatStorage", "../1", 4)
                    .int(0)
                    .ints(&[1])
                    .ints(&[1])
                    .op(b"tR")
            }),
            Malformed,
            "tensor `w`: its storage `../1` is not in the file",
        ),
        (
            "longer than its record",
            Pickle::dict("w", |p| p.tensor(5, 0, &[5], &[1])),
            Malformed,
            "its storage `0` has 16 bytes in the file, wanted 20",
        ),
        (
            "shorter than its record",
            Pickle::dict("w", |p| p.tensor(3, 0, &[3], &[1])),
            Malformed,
            "its storage `0` has 16 bytes in the file, wanted 12",
        ),
        ("storage that wraps", Pickle::dict("w", |p| p.tensor(huge, 0, &[1], &[1])), Malformed, "overflows"),
        (
            "negative storage",
            Pickle::dict("w", |p| p.tensor(-4, 0, &[1], &[1])),
            Malformed,
            "a storage holds -4",
        ),
        (
            "no dtype",
            Pickle::dict("w", |p| {
                p.global("torch._utils", "_rebuild_tensor_v3")
                    .op(b"(")
                    .storage("FloatStorage", "0", 4)
                    .int(0)
                    .ints(&[1])
                    .ints(&[1])
                    .op(b"tR")
            }),
            Malformed,
            "of 4 values, wanted at least 7",
        ),
        (
            "maker of itself",
            Pickle::dict("w", |p| {
                p.global("torch._tensor", "_rebuild_from_type_v2").op(b"q\x01(h\x01N)Nt").op(b"R")
            }),
            Malformed,
            "made by its own maker",
        ),
    ]
}

fn persistent_ids() -> Vec<InZip> {
    let id = |what: fn(Pickle) -> Pickle| what(p()).op(b"Q.");
    vec![
        ("a number", id(|p| p.int(1)), Malformed, "a persistent id is an integer, wanted a tuple"),
        ("nothing", id(|p| p.op(b")")), Malformed, "says nothing"),
        ("another thing", id(|p| p.text("file").op(b"\x85")), Malformed, "a persistent id of a `file`"),
        ("short", id(|p| p.text("storage").op(b"\x85")), Malformed, "a storage is made of 1 values"),
        (
            "of a class",
            id(|p| p.op(b"(").text("storage").global("my", "Storage").text("0").text("cpu").int(4).op(b"t")),
            Malformed,
            "a storage is of my.Storage",
        ),
        (
            "key",
            id(|p| {
                p.op(b"(").text("storage").global("torch", "FloatStorage").int(0).text("cpu").int(4).op(b"t")
            }),
            Malformed,
            "the key of a storage is an integer",
        ),
        (
            "part",
            id(|p| {
                p.op(b"(")
                    .text("storage")
                    .global("torch", "FloatStorage")
                    .text("0")
                    .text("cpu")
                    .int(4)
                    .op(b"(")
                    .text("1")
                    .int(3)
                    .int(2)
                    .op(b"tt")
            }),
            Malformed,
            "a part of 2 elements from 3 on leaves its storage of 4",
        ),
    ]
}

/// Opcodes that torch does not write, each as the second.
fn opcodes() -> impl Iterator<Item = Case> {
    let opcodes: [(&str, u8); 16] = [
        ("FLOAT", b'F'),
        ("STRING", b'S'),
        ("UNICODE", b'V'),
        ("LIST", b'l'),
        ("DICT", b'd'),
        ("GET", b'g'),
        ("PUT", b'p'),
        ("PERSID", b'P'),
        ("DUP", b'2'),
        ("INST", b'i'),
        ("OBJ", b'o'),
        ("EXT1", 0x82),
        ("EXT2", 0x83),
        ("EXT4", 0x84),
        ("NEXT_BUFFER", 0x97),
        ("READONLY_BUFFER", 0x98),
    ];
    opcodes.into_iter().map(|(name, code)| {
        let says = format!("uses the opcode `{name}`, which torch does not write (at byte ");
        let file = zip(&p().op(b"N").op(&[code]).op(b"1\n1\n."));
        case("opcodes", "pt", name, file, Unsupported, &says)
    })
}

/// Names that no checkpoint needs, called beside a tensor where nobody looks, and named by strings as protocol 4 does,
/// in zip archives and in older files.
fn globals() -> Vec<Case> {
    let names = [
        ("os", "system"),
        ("posix", "system"),
        ("nt", "system"),
        ("os.path", "join"),
        ("subprocess", "Popen"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("__builtin__", "apply"),
        ("builtins", "str.__class__"),
        ("sys", "modules"),
        ("runpy", "run_path"),
        ("socket", "create_connection"),
        ("importlib", "import_module"),
        ("operator", "attrgetter"),
        ("torch.storage", "_load_from_bytes"),
        ("torch.hub", "load"),
    ];
    let keys = p().op(b"]").text("0").op(b"a.");
    let storage = [&4u64.to_le_bytes()[..], &[0; 16]].concat();
    let mut all = Vec::new();
    for (module, name) in names {
        let says = format!(
            "the pickle names `{module}.{name}`, which no checkpoint needs: it was not run (at byte "
        );
        let call =
            Pickle::dict("w", |p| p.fine().op(b"s").text("x").global(module, name).text("id").op(b"\x85R"));
        let strings = Pickle::dict("w", |p| p.text(module).text(name).op(b"\x93"));
        let files = [
            ("called", zip(&call)),
            ("named", zip(&strings)),
            ("called, in an old file", legacy(&call, &keys, &storage)),
        ];
        for (how, file) in files {
            all.push(case("globals", "pt", &format!("{module}.{name} {how}"), file, Malformed, &says));
        }
    }
    // A payload, and then a stream that breaks: what came first was not run either.
    let broken = Pickle::dict("w", |p| p.global("os", "system").text("id").op(b"\x85R").op(b"t"));
    all.push(case("globals", "pt", "a payload and no end", zip(&broken), Malformed, "names `os.system`"));
    all
}

fn growth() -> Vec<InZip> {
    // Every level holds the one below twice: 2^100 ways to the bottom.
    let doubled =
        |bottom: fn(Pickle) -> Pickle| bottom(p()).op(b"q\x01").repeat(100, b"h\x01\x86q\x01").op(b".");
    let long = "k".repeat(5000);
    vec![
        ("bomb without a tensor", doubled(|p| p.op(b"N")), Unsupported, "holds no tensors"),
        ("bomb of a tensor", doubled(Pickle::fine), Malformed, "number of tensors of 65537, over"),
        ("itself", p().op(b"]q\x01h\x01a."), Malformed, "`0` contains itself"),
        ("a circle", p().op(b"}q\x01").text("a").op(b"]q\x02(h\x01h\x02es."), Malformed, "contains itself"),
        (
            "an object in itself",
            p().global("a", "B").op(b")\x81q\x01h\x01b."),
            Unsupported,
            "holds no tensors",
        ),
        (
            "deep tuples",
            p().op(b"]").repeat(1_000_000, b"\x85").op(b"."),
            Malformed,
            "depth of containers in one another",
        ),
        (
            "deep lists",
            p().repeat(1_000_000, b"]").repeat(999_999, b"a").op(b"."),
            Malformed,
            "depth of containers in one another",
        ),
        (
            "deep in an object",
            p().global("a", "B").op(b")R]").repeat(1_000_000, b"\x85").op(b"b."),
            Unsupported,
            "holds no tensors",
        ),
        ("a long name", Pickle::dict(&long, Pickle::fine), Malformed, "length of a name in bytes of 5000"),
        (
            "names that are not text",
            p().op(b"}X\x02\0\0\0\xff\xfe").fine().op(b"s."),
            Malformed,
            "is not UTF-8",
        ),
    ]
}

fn names() -> Vec<InZip> {
    vec![
        (
            "one key twice",
            p().op(b"}(").text("w").fine().text("w").fine().op(b"u."),
            Malformed,
            "tensor `w`: is there twice, first at byte ",
        ),
        (
            "two ways to one name",
            p().op(b"}(").text("a.b").fine().text("a").op(b"}").text("b").fine().op(b"su."),
            Malformed,
            "tensor `a.b`: is there twice",
        ),
        ("no name", Pickle::dict("", Pickle::fine), Malformed, "the tensor name is empty"),
        ("NUL", Pickle::dict("a\0b", Pickle::fine), Malformed, "NUL"),
    ]
}

/// Files of before torch 1.6: the storages follow the pickles.
fn old_files() -> Vec<Case> {
    let keys = |keys: &[&str]| keys.iter().fold(p().op(b"]"), |p, k| p.text(k).op(b"a")).op(b".");
    let storage = |elements: u64, bytes: usize| [&elements.to_le_bytes()[..], &vec![0; bytes]].concat();
    let fine = storage(4, 16);
    let object = Pickle::dict("w", Pickle::fine);
    let old = |keys: &Pickle, storages: &[u8]| legacy(&object, keys, storages);
    let of = |object: Pickle| legacy(&object, &keys(&["0"]), &fine);
    let cases = vec![
        ("no keys", old(&keys(&[]), &[]), "its storage `0` is not in the file"),
        ("keys of None", old(&p().op(b"N."), &fine), "wanted a list of storages, found None"),
        ("a key of None", old(&p().op(b"]Na."), &fine), "the key of a storage is None"),
        (
            "another key",
            old(&keys(&["0", "1"]), &fine),
            "key `1`: the pickle is broken: a storage that no tensor is made of",
        ),
        ("twice", old(&keys(&["0", "0"]), &[fine.clone(), fine.clone()].concat()), "listed twice"),
        ("short", old(&keys(&["0"]), &storage(4, 15)), "ends inside a storage: 16 bytes wanted, 15 left"),
        ("without a length", old(&keys(&["0"]), &[0; 7]), "ends inside the length of a storage"),
        ("long", old(&keys(&["0"]), &storage(4, 17)), "1 bytes after the last tensor"),
        (
            "fewer elements",
            old(&keys(&["0"]), &storage(3, 12)),
            "its storage `0` has 12 bytes in the file, wanted 16",
        ),
        ("a length that wraps", old(&keys(&["0"]), &storage(u64::MAX, 16)), "ends inside a storage"),
        ("a dangling memo", of(p().op(b"h\x07.")), "nothing was kept under number 7"),
        ("an empty stack", of(p().op(b".")), "the stack is empty"),
        (
            "itself",
            of(Pickle::dict("w", |p| p.fine().op(b"s").text("x").op(b"]q\x01h\x01a"))),
            "`x.0` contains itself",
        ),
        (
            "a negative stride",
            of(Pickle::dict("w", |p| p.tensor(4, 3, &[4], &[-1]))),
            "the strides of a tensor holds -1, which is negative",
        ),
        (
            "more elements than its storage",
            of(Pickle::dict("w", |p| p.tensor(4, 0, &[5], &[1]))),
            "ends at byte 20 of its storage, which has 16",
        ),
    ];
    cases
        .into_iter()
        .map(|(name, file, says)| case("old files", "bin", name, file, Malformed, says))
        .collect()
}

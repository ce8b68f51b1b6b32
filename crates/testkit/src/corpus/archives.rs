//! Zip archives byte by byte, npz files and the numpy arrays in them.

use super::Blame::{Malformed, Unsupported};
use super::OneFile;

/// A member of an archive. Every field can be set to a lie.
#[derive(Debug, Clone)]
pub struct Member {
    name: Vec<u8>,
    /// Instead of the name, in the member's own header.
    local: Option<Vec<u8>>,
    data: Vec<u8>,
    method: u16,
    flags: u16,
    /// Instead of the true length, as compressed and as uncompressed, in the directory.
    sizes: Option<(u32, u32)>,
    /// Instead of the true place of its header, in the directory.
    offset: Option<u32>,
    /// The extra field in the directory.
    extra: Vec<u8>,
}

impl Member {
    /// A stored member.
    pub fn new(name: impl AsRef<[u8]>, data: impl Into<Vec<u8>>) -> Member {
        Member {
            name: name.as_ref().to_vec(),
            local: None,
            data: data.into(),
            method: 0,
            flags: 0,
            sizes: None,
            offset: None,
            extra: Vec::new(),
        }
    }

    /// The same with one change.
    pub fn with(mut self, change: impl FnOnce(&mut Member)) -> Member {
        change(&mut self);
        self
    }
}

/// What the end of an archive says, where that is not the truth.
#[derive(Default)]
struct End {
    count: Option<u16>,
    size: Option<u32>,
    offset: Option<u32>,
    comment: Option<u16>,
}

/// An archive. Source: APPNOTE.TXT 6.3.10, 4.3.7, 4.3.12 and 4.3.16.
pub fn archive(members: &[Member]) -> Vec<u8> {
    archive_with(members, &End::default())
}

fn archive_with(members: &[Member], end: &End) -> Vec<u8> {
    let small = |n: usize| u16::try_from(n).expect("short").to_le_bytes();
    let long = |n: usize| u32::try_from(n).expect("short");
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for m in members {
        let at = m.offset.unwrap_or(long(out.len()));
        let local = m.local.as_ref().unwrap_or(&m.name);
        let (packed, plain) = m.sizes.unwrap_or((long(m.data.len()), long(m.data.len())));
        let common = |packed: u32, plain: u32, name: &[u8], extra: usize| {
            let start = [20u16.to_le_bytes(), m.flags.to_le_bytes(), m.method.to_le_bytes(), [0; 2], [33, 0]];
            let sizes = [crc(&m.data).to_le_bytes(), packed.to_le_bytes(), plain.to_le_bytes()];
            [&start.concat()[..], &sizes.concat(), &small(name.len()), &small(extra)].concat()
        };
        out.extend(b"PK\x03\x04");
        out.extend(common(long(m.data.len()), long(m.data.len()), local, 0));
        out.extend(local);
        out.extend(&m.data);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(common(packed, plain, &m.name, m.extra.len()));
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(&m.name);
        directory.extend(&m.extra);
    }
    let at = long(out.len());
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    let count = end.count.map_or(small(members.len()), u16::to_le_bytes);
    out.extend([count, count].concat());
    out.extend(end.size.unwrap_or(long(directory.len())).to_le_bytes());
    out.extend(end.offset.unwrap_or(at).to_le_bytes());
    out.extend(end.comment.unwrap_or(0).to_le_bytes());
    out
}

/// CRC-32 of ISO 3309, bit by bit.
fn crc(data: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
    !data.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// An array file whose header is `text`.
pub fn npy(text: &str, data: usize) -> Vec<u8> {
    let text = format!("{text}\n");
    let len = u16::try_from(text.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes(), &vec![7; data]].concat()
}

/// An array of f32 zeros, as numpy writes it.
pub fn array(shape: &str, data: usize) -> Vec<u8> {
    npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

pub(super) fn arrays() -> Vec<OneFile> {
    let of = |descr: &str| npy(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}"), 8);
    let raw = |version: u8, rest: &[u8]| [b"\x93NUMPY", &[version, 0][..], rest].concat();
    vec![
        ("magic alone", b"\x93NUMPY".to_vec(), Malformed, "ends inside the header of an array"),
        ("no length", raw(1, &[9]), Malformed, "10 bytes wanted, 9 left"),
        ("no long length", raw(2, &[9, 0, 0]), Malformed, "12 bytes wanted, 11 left"),
        ("version 0", raw(0, &[0; 100]), Unsupported, "version 0 of the array format"),
        ("version 9", raw(9, &[0; 100]), Unsupported, "version 9 of the array format"),
        ("header past the end", raw(1, &[9, 0]), Malformed, "19 bytes wanted, 10 left"),
        (
            "header of 64 KiB",
            raw(1, &[0xff, 0xff]),
            Malformed,
            "header length in bytes of 65545, over the limit of 16384",
        ),
        (
            "header of 4 GiB",
            raw(2, &[0xff; 4]),
            Malformed,
            "header length in bytes of 4294967307, over the limit of 16384",
        ),
        ("header not UTF-8", raw(3, &[2, 0, 0, 0, 0xff, 0xfe]), Malformed, "is not UTF-8"),
        ("empty header", npy("", 0), Malformed, "wanted a header with `descr`, `fortran_order` and `shape`"),
        ("an expression", npy("__import__('os').system('id')", 0), Malformed, "found `__import__"),
        (
            "an expression as shape",
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2**60,), }", 0),
            Malformed,
            "`shape`, found `{'descr': '<f4', ",
        ),
        (
            "a call as order",
            npy("{'descr': '<f4', 'fortran_order': exit(), 'shape': (2,), }", 8),
            Malformed,
            "`shape`, found `{'descr': '<f4', ",
        ),
        ("an open dictionary", npy("{'descr': '<f4', ", 0), Malformed, "wanted a header with"),
        ("an open string", npy("{'descr': '<f4}", 0), Malformed, "wanted a header with"),
        ("nested to no end", npy(&"{".repeat(16_000), 0), Malformed, "wanted a header with"),
        ("big-endian, of no meaning", of("'>V2'"), Unsupported, "has type `>V2`"),
        ("objects", of("'|O'"), Unsupported, "has type `|O`"),
        ("text", of("'<U2'"), Unsupported, "has type `<U2`"),
        ("dates", of("'<M8[ns]'"), Unsupported, "has type `<M8[ns]`"),
        ("records", of("[('a', '<f4'), ('b', '<i4')]"), Malformed, "wanted a header with"),
        ("no type", of("''"), Unsupported, "has type ``"),
        ("a shape that wraps", array("(4294967296, 4294967296)", 0), Malformed, "overflows"),
        ("a shape that wraps beside 0", array("(4294967296, 4294967296, 0)", 0), Malformed, "overflows"),
        ("bytes that wrap", array("(4611686018427387904,)", 0), Malformed, "overflows"),
        ("an axis of 2^64", array("(18446744073709551616,)", 0), Malformed, "wanted a header with"),
        ("a negative axis", array("(-1,)", 4), Malformed, "wanted a header with"),
        ("no data", array("(2, 3)", 0), Malformed, "[2, 3] f32 needs 24 bytes, the header gives 0"),
        ("trailing data", array("(2,)", 9), Malformed, "[2] f32 needs 8 bytes, the header gives 9"),
        (
            "65 axes",
            array(&format!("({})", "1,".repeat(65)), 4),
            Malformed,
            "number of dimensions of 65, over the limit of 64",
        ),
    ]
}

pub(super) fn archives() -> Vec<OneFile> {
    let a = || Member::new("a.npy", array("(4,)", 16));
    let b = || Member::new("b.npy", array("(4,)", 16));
    let whole = || archive(&[a(), b()]);
    let ending = |end: End| archive_with(&[a(), b()], &end);
    let zip64 = |plain: u64, packed: u64| {
        let field =
            [&1u16.to_le_bytes()[..], &16u16.to_le_bytes(), &plain.to_le_bytes(), &packed.to_le_bytes()];
        archive(&[a().with(|m| (m.extra, m.sizes) = (field.concat(), Some((u32::MAX, u32::MAX)))), b()])
    };
    let broken = "the zip archive is broken";
    vec![
        (
            "no directory",
            b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.npy".to_vec(),
            Malformed,
            broken,
        ),
        ("half of it", whole()[..200].to_vec(), Malformed, broken),
        ("compressed", archive(&[a().with(|m| m.method = 8)]), Unsupported, "tensor `a`: is compressed"),
        ("of a method of the future", archive(&[a().with(|m| m.method = 99)]), Unsupported, "is compressed"),
        ("encrypted", archive(&[a().with(|m| m.flags = 1)]), Unsupported, "is compressed"),
        (
            "a bomb",
            archive(&[a().with(|m| (m.method, m.sizes) = (8, Some((10, u32::MAX - 1)))), b()]),
            Unsupported,
            "tensor `a`: is compressed",
        ),
        ("one name twice", archive(&[a(), a()]), Malformed, broken),
        (
            "another name in its own header",
            archive(&[a().with(|m| m.local = Some(b"c.npy".to_vec()))]),
            Malformed,
            "`a.npy` has another name in its own header",
        ),
        (
            "two in one place",
            archive(&[
                a(),
                a().with(|m| {
                    (m.name, m.local, m.offset) = (b"b.npy".to_vec(), Some(b"a.npy".to_vec()), Some(0));
                }),
            ]),
            Malformed,
            "`b.npy` has another name in its own header",
        ),
        (
            "overlapping",
            archive(&[a().with(|m| m.sizes = Some((200, 200))), b()]),
            Malformed,
            "`b.npy` overlaps `a.npy`",
        ),
        (
            "past the end",
            archive(&[a().with(|m| m.sizes = Some((1 << 30, 1 << 30)))]),
            Malformed,
            "key `a.npy`: the file ends inside a member of the archive: 1073741824 bytes wanted",
        ),
        ("a header past the end", archive(&[a().with(|m| m.offset = Some(1 << 30))]), Malformed, broken),
        ("a header that is none", archive(&[a().with(|m| m.offset = Some(1))]), Malformed, broken),
        ("zip64 sizes of 2^64−1", zip64(u64::MAX, u64::MAX), Malformed, "overflows u64"),
        ("zip64 sizes of 2^63", zip64(1 << 63, 1 << 63), Malformed, "ends inside a member of the archive"),
        (
            "zip64 sizes without their field",
            archive(&[a().with(|m| m.sizes = Some((u32::MAX, u32::MAX)))]),
            Malformed,
            "4294967295 bytes wanted",
        ),
        ("fewer members than are said", ending(End { count: Some(3), ..End::default() }), Malformed, broken),
        ("65534 members", ending(End { count: Some(65534), ..End::default() }), Malformed, broken),
        (
            "a directory past the end",
            ending(End { offset: Some(u32::MAX - 1), ..End::default() }),
            Malformed,
            broken,
        ),
        ("a directory elsewhere", ending(End { offset: Some(7), ..End::default() }), Malformed, broken),
        ("a comment past the end", ending(End { comment: Some(9), ..End::default() }), Malformed, broken),
        (
            "what is no array",
            archive(&[a(), Member::new("notes.txt", *b"hello")]),
            Unsupported,
            "holds `notes.txt`, which is no array",
        ),
        (
            "no name",
            archive(&[a(), Member::new(".npy", array("(4,)", 16))]),
            Malformed,
            "the tensor name is empty",
        ),
        (
            "NUL in a name",
            archive(&[a(), Member::new("b\0.npy", array("(4,)", 16))]),
            Malformed,
            "has a NUL character",
        ),
        (
            "an array that is cut",
            archive(&[a(), Member::new("b.npy", array("(4,)", 15))]),
            Malformed,
            "tensor `b`: [4] f32 needs 16 bytes, the header gives 15",
        ),
        (
            "an array of nothing",
            archive(&[a(), Member::new("b.npy", [])]),
            Malformed,
            "tensor `b`: wanted an array that starts with",
        ),
        (
            "objects",
            archive(&[
                a(),
                Member::new("b.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8)),
            ]),
            Unsupported,
            "tensor `b`: has type `|O`",
        ),
    ]
}

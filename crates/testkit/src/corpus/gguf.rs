//! GGUF. The names in capitals are those of llama.cpp's tests/test-gguf.cpp@0c1e57098.

use super::Blame::{Malformed, Mismatch, Unsupported};
use super::OneFile;
use super::build::{F32, Gguf, Q4_0, array, kind, string};

fn gguf() -> Gguf {
    Gguf::new().str("general.architecture", "llama")
}

/// A sound file with one tensor.
pub fn one() -> Gguf {
    gguf().f32("a.weight", &[2, 4])
}

pub(super) fn openings() -> Vec<OneFile> {
    vec![
        ("no bytes", vec![], Malformed, "the file is empty"),
        ("three bytes", b"GGU".to_vec(), Malformed, "4 bytes wanted, 3 left"),
        ("magic alone", b"GGUF".to_vec(), Malformed, "4 bytes wanted, 0 left"),
        ("HEADER_BAD_MAGIC", one().with(|g| g.magic = *b"FUGG").build(), Malformed, "found `FUGG`"),
        ("HEADER_BAD_VERSION_0", one().with(|g| g.version = 0).build(), Malformed, "found version 0"),
        // Counts are half as long there, and one tensor is not what they are followed by.
        (
            "HEADER_BAD_VERSION_1",
            one().with(|g| g.version = 1).build(),
            Malformed,
            "tensor `\\0`: number of dimensions",
        ),
        ("HEADER_BAD_VERSION_FUTURE", one().with(|g| g.version = 4).build(), Unsupported, "newer than 3"),
        (
            "big-endian",
            one().with(|g| g.version = 3u32.swap_bytes()).build(),
            Malformed,
            "says it has 72057594037927936 ",
        ),
        (
            "HEADER_BAD_N_TENSORS",
            one().with(|g| g.tensor_count = Some(u64::MAX)).build(),
            Malformed,
            "says it has 18446744073709551615 tensors",
        ),
        (
            "HEADER_BAD_N_KV",
            one().with(|g| g.pair_count = Some(u64::MAX)).build(),
            Malformed,
            "says it has 18446744073709551615 key-value pairs",
        ),
        (
            "count that wraps an allocation",
            one().with(|g| g.pair_count = Some(1 << 58)).build(),
            Malformed,
            "hold at most",
        ),
        (
            "one tensor too many",
            one().with(|g| g.tensor_count = Some(2)).build(),
            Malformed,
            // What follows is padding and data: a tensor of no name, and so on.
            "tensor ``: the tensor name is empty",
        ),
        (
            "one tensor too few leaves trailing bytes, one pair too few does not parse",
            one().u32("k", 1).with(|g| g.pair_count = Some(1)).build(),
            Malformed,
            "tensor `k`",
        ),
    ]
}

pub(super) fn pairs() -> Vec<OneFile> {
    let raw = |kind, value: &[u8]| gguf().pair("key", kind, value).build();
    vec![
        (
            "KV_BAD_KEY_SIZE",
            gguf().u32("key", 1).with(|g| g.pairs[1].key_len = Some(u64::MAX)).build(),
            Malformed,
            "string length in bytes of 18446744073709551615",
        ),
        (
            "key past the end",
            gguf().u32("key", 1).with(|g| g.pairs[1].key_len = Some(1000)).build(),
            Malformed,
            "inside a key: 1000 bytes wanted",
        ),
        ("key over 65535", gguf().u32(&"k".repeat(65536), 1).build(), Malformed, "over the limit of 65535"),
        ("KV_EMPTY_KEY", gguf().u32("", 1).build(), Malformed, "the key is empty"),
        ("key not UTF-8", gguf().pair(b"k\xff", kind::U8, [1]).build(), Malformed, "the key is not UTF-8"),
        ("key with NUL", gguf().u32("k\0", 1).build(), Malformed, "has a NUL character"),
        (
            "KV_DUPLICATE_KEY",
            gguf().u32("key", 1).u32("key", 1).build(),
            Malformed,
            "key `key`: is there twice",
        ),
        ("KV_BAD_TYPE", raw(13, &[0; 8]), Malformed, "wanted a value type from 0 to 12, found 13"),
        ("value type −1", raw(u32::MAX, &[0; 8]), Malformed, "found -1"),
        ("value missing", raw(kind::U64, &[0; 7]), Malformed, "key `key`: the file ends inside a value"),
        (
            "string past the end",
            raw(kind::STR, &[9, 0, 0, 0, 0, 0, 0, 0]),
            Malformed,
            "9 bytes wanted, 0 left",
        ),
        (
            "string of 2^64−1",
            raw(kind::STR, &[255; 8]),
            Malformed,
            "string length in bytes of 18446744073709551615, over the limit of 1073741824",
        ),
        (
            "array of 2^40 bytes",
            raw(kind::ARRAY, &array(kind::U8, 1 << 40, [])),
            Malformed,
            "number of elements of 1099511627776",
        ),
        (
            "array past the end",
            raw(kind::ARRAY, &array(kind::F32, 1 << 30, [0; 64])),
            Malformed,
            "inside an array: 4294967296 bytes wanted, 64 left",
        ),
        (
            "array of strings past the end",
            raw(kind::ARRAY, &array(kind::STR, 3, string("a"))),
            Malformed,
            "inside an array of strings",
        ),
        (
            "array of strings, one too long",
            raw(kind::ARRAY, &array(kind::STR, 1, u64::MAX.to_le_bytes())),
            Malformed,
            "string length in bytes of",
        ),
        (
            "array of arrays",
            raw(kind::ARRAY, &array(kind::ARRAY, 1, array(kind::U8, 1, [1]))),
            Unsupported,
            "an array of arrays",
        ),
        ("array of no type", raw(kind::ARRAY, &array(99, 0, [])), Malformed, "found 99"),
        ("array header cut", raw(kind::ARRAY, &[4, 0, 0, 0]), Malformed, "8 bytes wanted, 0 left"),
        ("KV_BAD_ALIGN 0", gguf().u32("general.alignment", 0).build(), Malformed, "power of two, found 0"),
        ("KV_BAD_ALIGN 13", gguf().u32("general.alignment", 13).build(), Malformed, "power of two, found 13"),
        (
            "KV_WRONG_TYPE_ALIGN",
            gguf().pair("general.alignment", kind::U64, 32u64.to_le_bytes()).build(),
            Malformed,
            "wanted type u32, found u64 32",
        ),
        (
            "alignment as array",
            gguf().pair("general.alignment", kind::ARRAY, array(kind::U32, 1, [32, 0, 0, 0])).build(),
            Malformed,
            "wanted type u32, found arr [u32; 1]",
        ),
        (
            "part of a split",
            one().u32("split.count", 3).u32("split.no", 0).build(),
            Mismatch,
            "wanted a name as `NAME-00001-of-00003.gguf`",
        ),
    ]
}

pub(super) fn tensors() -> Vec<OneFile> {
    let dims = |dims: &[u64]| one().with(|g| g.tensors[0].dims = dims.to_vec()).build();
    let typed = |kind| one().with(|g| g.tensors[0].kind = kind).build();
    let two = || one().f32("b.weight", &[8]);
    let removed = "which was removed from the format";
    vec![
        (
            "TENSORS_BAD_NAME_SIZE",
            gguf().f32(&"n".repeat(64), &[4]).build(),
            Malformed,
            "name length in bytes of 64, over the limit of 63",
        ),
        ("tensor without a name", gguf().f32("", &[4]).build(), Malformed, "the tensor name is empty"),
        (
            "name not UTF-8",
            gguf().tensor(b"\xfe", &[4], F32, 16).build(),
            Malformed,
            "tensor name is not UTF-8",
        ),
        ("name with NUL", gguf().f32("a\0b", &[4]).build(), Malformed, "tensor `a\\0b`: the name has a NUL"),
        (
            "TENSORS_DUPLICATE_NAME",
            one().f32("a.weight", &[8]).build(),
            Malformed,
            "tensor `a.weight`: is there twice",
        ),
        ("TENSORS_BAD_N_DIMS 5", dims(&[1; 5]), Malformed, "number of dimensions of 5, over the limit of 4"),
        (
            "n_dims 2^32−1",
            one().with(|g| g.tensors[0].rank = Some(u32::MAX)).build(),
            Malformed,
            "number of dimensions of 4294967295",
        ),
        (
            "TENSORS_BAD_SHAPE −1",
            dims(&[u64::MAX]),
            Malformed,
            "the size of [18446744073709551615] overflows",
        ),
        ("TENSORS_NE_TOO_BIG", dims(&[1 << 32, 1 << 32]), Malformed, "overflows"),
        ("product that wraps to 0", dims(&[1 << 32, 1 << 32, 0]), Malformed, "overflows"),
        ("product that wraps before the 0", dims(&[0, 1 << 32, 1 << 32]), Malformed, "overflows"),
        ("TENSORS_NBYTES_TOO_BIG", dims(&[1 << 62]), Malformed, "overflows"),
        (
            "TENSORS_NBYTES_PAD_WRAP",
            dims(&[4, 1_073_741_823, 1_073_741_825]),
            Malformed,
            "the size of [1073741825, 1073741823, 4] overflows",
        ),
        (
            "DATA_MEM_SIZE_OVERFLOW",
            gguf()
                .tensor("a", &[0x7fff_ffff_ffff_ffc0], 24, 0)
                .tensor("b", &[0x7fff_ffff_ffff_ffc0], 24, 0)
                .tensor("c", &[0x7fff_ffff_ffff_ffc0], 24, 0)
                .with(|g| {
                    g.tensors[1].offset = Some(0x7fff_ffff_ffff_ffc0);
                    g.tensors[2].offset = Some(0xffff_ffff_ffff_ff80);
                })
                .build(),
            Malformed,
            "tensor `c`: the size of [9223372036854775744] overflows",
        ),
        ("type 43", typed(43), Unsupported, "has type 43, which is newer than 42"),
        ("type 1000", typed(1000), Malformed, "wanted a tensor type from 0 to 42, found 1000"),
        ("TENSORS_BAD_TYPE −1", typed(u32::MAX), Malformed, "found -1"),
        ("Q4_2", typed(4), Unsupported, "has type 4 (Q4_2), which was removed"),
        ("Q4_3", typed(5), Unsupported, removed),
        ("Q4_0_4_4", typed(31), Unsupported, removed),
        ("Q4_0_4_8", typed(32), Unsupported, removed),
        ("Q4_0_8_8", typed(33), Unsupported, removed),
        ("IQ4_NL_4_4", typed(36), Unsupported, removed),
        ("IQ4_NL_4_8", typed(37), Unsupported, removed),
        ("IQ4_NL_8_8", typed(38), Unsupported, removed),
        (
            "a row that cuts a block",
            gguf().tensor("a", &[2, 33], Q4_0, 36).build(),
            Malformed,
            "[2, 33] q4_0: axis 1 has 33 elements, not a multiple of the 32",
        ),
        (
            "blocks without an axis",
            gguf().tensor("a", &[], Q4_0, 18).build(),
            Malformed,
            "needs at least 1 axes",
        ),
        (
            "TENSORS_BAD_OFFSET",
            one().with(|g| g.tensors[0].offset = Some(32)).build(),
            Malformed,
            "data starts at offset 32, wanted 0: 32 bytes belong to no tensor",
        ),
        (
            "overlap",
            two().with(|g| g.tensors[1].offset = Some(0)).build(),
            Malformed,
            "data starts at offset 0, wanted 32: 32 bytes overlap",
        ),
        (
            "reordered",
            two().with(|g| (g.tensors[0].offset, g.tensors[1].offset) = (Some(32), Some(0))).build(),
            Malformed,
            "2 problems",
        ),
        (
            "TENSORS_INCONSISTENT_ALIGN",
            gguf().align(64).f32("a", &[8]).f32("b", &[8]).with(|g| g.alignment = 32).build(),
            Malformed,
            "tensor `b`: data starts at offset 32, wanted 64",
        ),
        (
            "offset 2^64−1",
            one().with(|g| g.tensors[0].offset = Some(u64::MAX)).build(),
            Malformed,
            "tensor `a.weight`",
        ),
        (
            "DATA_NOT_ENOUGH_DATA",
            {
                let mut f = one().build();
                f.pop();
                f
            },
            Malformed,
            "1 of 160 bytes are missing, 1 of 1 tensors are incomplete, the first is `a.weight`",
        ),
        ("no data section", one().header(), Malformed, "the file is cut short"),
        (
            "a tensor larger than any disk",
            gguf().tensor("a", &[1 << 60], 24, 0).build(),
            Malformed,
            "1152921504606846976 of ",
        ),
    ]
}

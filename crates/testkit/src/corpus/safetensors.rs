//! safetensors, also where the reference implementation is lax.

use super::Blame::{Malformed, Unsupported};
use super::OneFile;
use super::build::safetensors;

pub(super) fn openings() -> Vec<OneFile> {
    let long = |n: u64| [&n.to_le_bytes()[..], b"{}"].concat();
    vec![
        ("no bytes", vec![], Malformed, "the file is empty"),
        ("seven bytes", vec![0; 7], Malformed, "8 bytes wanted, 7 left"),
        ("length 0", 0u64.to_le_bytes().to_vec(), Malformed, "starts with `{`, found nothing"),
        ("length past the end", long(3), Malformed, "inside the header: 3 bytes wanted, 2 left"),
        ("length 10^8 + 1", long(100_000_001), Malformed, "over the limit of 100000000"),
        ("length 2^64−1", long(u64::MAX), Malformed, "header length in bytes of 18446744073709551615"),
        ("white space first", safetensors(b" {}", 0), Malformed, "found byte 0x20"),
        ("new line last", safetensors(b"{}\n", 0), Malformed, "found byte 0x0a"),
        ("NUL last", safetensors(b"{}\0", 0), Malformed, "found byte 0x00"),
        ("two documents", safetensors(b"{}{}", 0), Malformed, "the header: trailing characters"),
        ("an array", safetensors(b"[]", 0), Malformed, "found byte 0x5b"),
        ("not UTF-8", safetensors(b"{\"\xff\":1}", 0), Malformed, "the header: "),
        ("open string", safetensors(b"{\"a}", 0), Malformed, "the header: EOF while parsing"),
        ("lone surrogate", safetensors(br#"{"\ud800":1}"#, 0), Malformed, "the header: "),
        (
            "deep nesting",
            safetensors([b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat(), 0),
            Malformed,
            "the header: unknown field `a`",
        ),
        (
            "deep arrays",
            safetensors([&b"{\"a\":{\"shape\":"[..], &b"[".repeat(100_000), b"}}"].concat(), 0),
            Malformed,
            "the header: ",
        ),
        ("data after an empty header", safetensors(b"{}", 1), Malformed, "1 bytes after the last tensor"),
    ]
}

pub(super) fn headers() -> Vec<OneFile> {
    let a = |fields: &str| safetensors(format!("{{\"a\":{{{fields}}}}}"), 4);
    let body = |text: &str| safetensors(text, 4);
    let sound = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let with = |more: &str| body(&format!("{{\"a\":{sound},{more}}}"));
    vec![
        (
            "tensor twice",
            with(&format!("\"a\":{sound}")),
            Malformed,
            "tensor `a`: is there twice, first at byte 9",
        ),
        (
            "tensor twice, escaped",
            with(&format!("\"\\u0061\":{sound}")),
            Malformed,
            "tensor `a`: is there twice",
        ),
        ("no name", body(&format!("{{\"\":{sound}}}")), Malformed, "the tensor name is empty"),
        ("NUL in a name", body(&format!("{{\"a\\u0000\":{sound}}}")), Malformed, "has a NUL character"),
        ("a number for a tensor", body(r#"{"a":1}"#), Malformed, "the header: invalid type"),
        (
            "an array for a tensor",
            body(r#"{"a":["F32",[1],[0,4]]}"#),
            Malformed,
            "the header: invalid type: sequence",
        ),
        ("no dtype", a(r#""shape":[1],"data_offsets":[0,4]"#), Malformed, "missing field `dtype`"),
        ("no shape", a(r#""dtype":"F32","data_offsets":[0,4]"#), Malformed, "missing field `shape`"),
        ("no offsets", a(r#""dtype":"F32","shape":[1]"#), Malformed, "missing field `data_offsets`"),
        (
            "field twice",
            a(r#""dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]"#),
            Malformed,
            "duplicate field `dtype`",
        ),
        (
            "unknown field",
            a(r#""dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]"#),
            Malformed,
            "unknown field `strides`",
        ),
        ("unknown dtype", a(r#""dtype":"F33","shape":[1],"data_offsets":[0,4]"#), Malformed, "found `F33`"),
        (
            "lower-case dtype",
            a(r#""dtype":"f32","shape":[1],"data_offsets":[0,4]"#),
            Malformed,
            "found `f32`",
        ),
        ("F4", a(r#""dtype":"F4","shape":[8],"data_offsets":[0,4]"#), Unsupported, "has type `F4`"),
        (
            "F6_E2M3",
            a(r#""dtype":"F6_E2M3","shape":[8],"data_offsets":[0,4]"#),
            Unsupported,
            "has type `F6_E2M3`",
        ),
        (
            "F6_E3M2",
            a(r#""dtype":"F6_E3M2","shape":[8],"data_offsets":[0,4]"#),
            Unsupported,
            "has type `F6_E3M2`",
        ),
        (
            "negative dimension",
            a(r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#),
            Malformed,
            "the header: invalid",
        ),
        (
            "float dimension",
            a(r#""dtype":"F32","shape":[1.0],"data_offsets":[0,4]"#),
            Malformed,
            "the header: invalid",
        ),
        (
            "dimension 2^64",
            a(r#""dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]"#),
            Malformed,
            "the header: ",
        ),
        (
            "three offsets",
            a(r#""dtype":"F32","shape":[1],"data_offsets":[0,2,4]"#),
            Malformed,
            "the header: ",
        ),
        ("one offset", a(r#""dtype":"F32","shape":[1],"data_offsets":[0]"#), Malformed, "the header: "),
        (
            "offsets reversed",
            a(r#""dtype":"F32","shape":[1],"data_offsets":[4,0]"#),
            Malformed,
            "wanted offsets in order, found [4, 0]",
        ),
        (
            "too few bytes",
            a(r#""dtype":"F32","shape":[2],"data_offsets":[0,4]"#),
            Malformed,
            "[2] f32 needs 8 bytes, the header gives 4",
        ),
        (
            "too many bytes",
            a(r#""dtype":"F16","shape":[1],"data_offsets":[0,4]"#),
            Malformed,
            "[1] f16 needs 2 bytes, the header gives 4",
        ),
        (
            "product that wraps",
            a(r#""dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]"#),
            Malformed,
            "overflows",
        ),
        (
            "product that wraps to 0",
            a(r#""dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,4]"#),
            Malformed,
            "overflows",
        ),
        (
            "0 and a product that wraps",
            a(r#""dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,4]"#),
            Malformed,
            "overflows",
        ),
        (
            "65 dimensions",
            a(&format!(r#""dtype":"F32","shape":[{}1],"data_offsets":[0,4]"#, "1,".repeat(64))),
            Malformed,
            "number of dimensions of 65, over the limit of 64",
        ),
        (
            "hole first",
            safetensors(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8),
            Malformed,
            "4 bytes belong to no tensor",
        ),
        (
            "hole between",
            safetensors(
                r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#,
                12,
            ),
            Malformed,
            "tensor `b`: data starts at offset 8, wanted 4",
        ),
        (
            "overlap",
            safetensors(
                r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}"#,
                6,
            ),
            Malformed,
            "tensor `b`: data starts at offset 2, wanted 4: 2 bytes overlap",
        ),
        (
            "same bytes twice",
            with(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#),
            Malformed,
            "4 bytes overlap",
        ),
        (
            "data past the end",
            a(r#""dtype":"F32","shape":[2],"data_offsets":[0,8]"#),
            Malformed,
            "the first is `a`",
        ),
        (
            "end at 2^64−1",
            a(r#""dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]"#),
            Malformed,
            "belong to no tensor",
        ),
        (
            "trailing data",
            safetensors(format!("{{\"a\":{sound}}}"), 9),
            Malformed,
            "5 bytes after the last tensor",
        ),
        ("metadata null", with(r#""__metadata__":null"#), Malformed, "expected a map of strings"),
        ("metadata of numbers", with(r#""__metadata__":{"a":1}"#), Malformed, "expected a string"),
        ("metadata as array", with(r#""__metadata__":["a"]"#), Malformed, "expected a map of strings"),
        (
            "metadata twice",
            with(r#""__metadata__":{},"__metadata__":{}"#),
            Malformed,
            "`__metadata__` is there twice",
        ),
        (
            "metadata key twice",
            with(r#""__metadata__":{"k":"1","k":"2"}"#),
            Malformed,
            "key `k`: is there twice",
        ),
    ]
}

//! whisper.cpp's files: one that its script wrote, and broken ones.

use std::fs;
use std::path::PathBuf;

use checkpoint::{Error, Metadata};
use insta::assert_snapshot;

use crate::{Dir, open_both, plane};

fn golden() -> PathBuf {
    testkit::golden("whisper/ggml.bin")
}

#[test]
fn every_tensor_is_what_the_script_wrote() {
    let found = open_both(&golden()).expect("sound");
    let wanted = open_both(&testkit::golden("whisper/openai.pt")).expect("sound");
    let (Metadata::Openai(sizes), Metadata::Openai(dims)) = (found.metadata(), wanted.metadata()) else {
        panic!("{:?}", found.metadata());
    };
    for (name, value) in dims.dims() {
        assert_eq!(sizes.dim(name), Some(value), "{name}");
    }
    let filters = sizes.filters().expect("filters");
    assert_eq!((filters.bands, filters.frequencies, filters.factors.len()), (8, 201, 8 * 201));
    assert_eq!((sizes.tokens().len(), &sizes.tokens()[3][..]), (40, &b"t3"[..]));
    assert_eq!(found.entries().len(), wanted.entries().len());
    for want in wanted.entries() {
        let have = want.name.strip_prefix("model_state_dict.").and_then(|name| found.entry(name));
        let have = have.unwrap_or_else(|| panic!("{}", want.name));
        assert_eq!((&have.shape, &have.scheme), (&want.shape, &want.scheme), "{}", want.name);
        assert_eq!(plane(&found, &have.planes[0]).unwrap(), plane(&wanted, &want.planes[0]).unwrap());
    }
}

/// A file of two bands, two frequencies, a token, and what follows.
fn built(bands: i32, tokens: i32, rest: &[&[u8]]) -> Vec<u8> {
    let numbers = [64, 20, 16, 4, 2, 12, 16, 2, 1, 2, 0, bands, 2];
    let mut file = b"lmgg".to_vec();
    file.extend(numbers.iter().flat_map(|n: &i32| n.to_le_bytes()));
    file.extend([0; 16]);
    file.extend(tokens.to_le_bytes());
    file.extend([&1u32.to_le_bytes()[..], b"t"].concat());
    file.extend(rest.concat());
    file
}

fn tensor(axes: &[i32], name: &str, id: i32, data: &[u8]) -> Vec<u8> {
    let len = |n: usize| i32::try_from(n).expect("small");
    let head = [len(axes.len()), len(name.len()), id];
    let mut tensor: Vec<u8> = head.iter().chain(axes).flat_map(|n| n.to_le_bytes()).collect();
    tensor.extend(name.as_bytes());
    tensor.extend(data);
    tensor
}

#[test]
fn blocks_are_those_of_gguf() {
    let dir = Dir::new();
    let types =
        [("f16", 1, 64), ("q4_0", 2, 18), ("q4_1", 3, 20), ("q5_0", 6, 22), ("q5_1", 7, 24), ("q8_0", 8, 34)];
    let tensors: Vec<Vec<u8>> =
        types.iter().map(|(name, id, bytes)| tensor(&[32, 2], name, *id, &vec![0; 2 * bytes])).collect();
    let tensors: Vec<&[u8]> = tensors.iter().map(Vec::as_slice).collect();
    let found = open_both(&dir.file("x", built(2, 1, &tensors))).expect("sound");
    for ((name, _, bytes), entry) in types.iter().zip(found.entries()) {
        assert_eq!((&*entry.name, &*entry.scheme.name, &entry.shape[..]), (*name, *name, &[2, 32][..]));
        assert_eq!(entry.byte_len(), 2 * *bytes as u64);
    }
}

#[test]
fn what_is_broken_is_said() {
    let dir = Dir::new();
    let sound = tensor(&[2, 1], "a", 0, &[0; 8]);
    assert_eq!(open_both(&dir.file("x", built(2, 1, &[&sound]))).expect("sound").entries().len(), 1);
    let cases = [
        built(3, 1, &[&sound]),
        built(-1, 1, &[&sound]),
        built(2, -1, &[&sound]),
        built(2, i32::MAX, &[&sound]),
        built(2, 1, &[&sound, &sound]),
        built(2, 1, &[&sound, b"junk"]),
        built(2, 1, &[&tensor(&[2, 1, 1, 1, 1], "a", 0, &[0; 8])]),
        built(2, 1, &[&tensor(&[i32::MAX, i32::MAX, i32::MAX], "a", 0, &[0; 8])]),
        built(2, 1, &[&tensor(&[2, -1], "a", 0, &[0; 8])]),
        built(2, 1, &[&tensor(&[2, 9], "a", 0, &[0; 8])]),
        built(2, 1, &[&tensor(&[2, 1], "a", 4, &[0; 8])]),
        built(2, 1, &[&tensor(&[2, 1], "a", 99, &[0; 8])]),
        built(2, 1, &[&tensor(&[33], "a", 2, &[0; 18])]),
        built(2, 1, &[&tensor(&[2, 1], "", 0, &[0; 8])]),
    ];
    let lines: Vec<String> = cases
        .into_iter()
        .map(|case| dir.text(&open_both(&dir.file("x.bin", case)).expect_err("broken")))
        .collect();
    assert_snapshot!(lines.join("\n"), @"
    malformed `DIR/x.bin`: 2 problems
      wanted as many mel bands as `n_mels`, found 3 (at byte 48)
      says it has 628 tokens, but the 26 bytes that are left hold at most 6 (at byte 80)
    malformed `DIR/x.bin`: wanted a size that is not negative, found -1 (at byte 48)
    malformed `DIR/x.bin`: wanted a size that is not negative, found -1 (at byte 72)
    malformed `DIR/x.bin`: says it has 2147483647 tokens, but the 34 bytes that are left hold at most 8 (at byte 72)
    malformed `DIR/x.bin`: tensor `a`: is there twice, first at byte 81 (at byte 110)
    malformed `DIR/x.bin`: 4 bytes after the last tensor that no tensor uses (at byte 110)
    malformed `DIR/x.bin`: number of dimensions of 5, over the limit of 4 (at byte 81)
    malformed `DIR/x.bin`: tensor `a`: the size of [2147483647, 2147483647, 2147483647] overflows (at byte 89)
    malformed `DIR/x.bin`: wanted a size that is not negative, found -1 (at byte 97)
    malformed `DIR/x.bin`: tensor `a`: the file ends inside the data of a tensor: 72 bytes wanted, 8 left (at byte 102)
    hint: the download may be incomplete: download the file again
    unsupported `DIR/x.bin`: tensor `a`: has type 4 (Q4_2), which was removed from the format: quantise the model again from its original weights (at byte 89)
    unsupported `DIR/x.bin`: tensor `a`: has type 99, which is newer than 42, the last that is known (at byte 89)
    malformed `DIR/x.bin`: tensor `a`: [33] q4_0: axis 0 has 33 elements, not a multiple of the 32 that a block packs (at byte 89)
    malformed `DIR/x.bin`: tensor ``: the tensor name is empty (at byte 81)
    ");
}

/// Other programs' files of this magic are still rejected by name.
#[test]
fn files_of_other_programs_are_told_apart() {
    let dir = Dir::new();
    let mut llama = b"lmgg".to_vec();
    llama.extend([32_000, 4096, 256, 32, 32, 128, 2i32].iter().flat_map(|n| n.to_le_bytes()));
    llama.extend([0; 64]);
    let error = dir.text(&open_both(&dir.file("x.bin", llama)).expect_err("another program's"));
    assert!(error.contains("a ggml file of before GGUF"), "{error}");
}

/// Cut anywhere, any byte another: an error or a list, never a panic.
#[test]
fn no_damage_makes_it_panic() {
    let dir = Dir::new();
    let whole = fs::read(golden()).unwrap();
    let head = 4 + 13 * 4 + 8 * 201 * 4;
    for cut in (1..whole.len()).filter(|n| (*n > head && *n < head + 600) || n % 41 == 0) {
        // Between two tensors nothing is missing: the model says then what is.
        let _ = checkpoint::open(dir.file("x", &whole[..cut]));
    }
    for at in (0..64).chain(head..head + 700) {
        for to in [0, 1, 0x7f, 0xff] {
            let mut file = whole.clone();
            file[at] = to;
            let opened = checkpoint::open(dir.file("x", &file));
            assert!(!matches!(opened, Err(Error::Io { .. })), "byte {at}");
        }
    }
}

//! GGUF files whose numbers are written otherwise: version 1, and big-endian ones; and such without tensors.

use checkpoint::{Draft, Value};
use insta::assert_snapshot;

use crate::build::{Gguf, kind};
use testkit::golden;

use crate::golden::{listing, pair, tensors};
use crate::{Dir, open_both};

/// A length and bytes, as version 1 has them.
fn string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).expect("short").to_le_bytes()[..], text.as_bytes()].concat()
}

/// A file of version 1: a key of each form, and two tensors, the second of 32 bytes.
fn version_1() -> Vec<u8> {
    let key = |name: &str, kind: u32, value: &[u8]| [&string(name)[..], &kind.to_le_bytes(), value].concat();
    let texts: Vec<u8> = ["a", "", "ü"].iter().flat_map(|t| string(t)).collect();
    let array = [&kind::STR.to_le_bytes()[..], &3u32.to_le_bytes(), &texts].concat();
    let numbers =
        [&kind::I32.to_le_bytes()[..], &2u32.to_le_bytes(), &[1, 0, 0, 0, 255, 255, 255, 255]].concat();
    let tensor = |name: &str, dims: [u32; 2], offset: u64| {
        let dims = dims.map(u32::to_le_bytes).concat();
        [&string(name)[..], &2u32.to_le_bytes(), &dims, &0u32.to_le_bytes(), &offset.to_le_bytes()].concat()
    };
    let mut file = [
        &b"GGUF"[..],
        &1u32.to_le_bytes(),
        &2u32.to_le_bytes(),
        &4u32.to_le_bytes(),
        &key("general.architecture", kind::STR, &string("llama")),
        &key("llama.block_count", kind::U32, &[1, 0, 0, 0]),
        &key("words", kind::ARRAY, &array),
        &key("numbers", kind::ARRAY, &numbers),
        &tensor("a", [3, 2], 0),
        &tensor("b", [8, 1], 32),
    ]
    .concat();
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend([1; 32]);
    file.extend([2; 32]);
    file
}

#[test]
fn version_1_counts_in_four_bytes() {
    let dir = Dir::new();
    let checkpoint = open_both(&dir.file("x.gguf", version_1())).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    assert_eq!((metadata.version(), metadata.big_endian(), metadata.len()), (1, false, 4));
    assert_eq!(metadata.str("general.architecture").expect("a text"), Some("llama"));
    assert_eq!(metadata.u64("llama.block_count").expect("a number"), Some(1));
    let words: Result<Vec<_>, _> = metadata.strs("words").expect("strings").expect("there").collect();
    assert_eq!(words.expect("UTF-8"), ["a", "", "ü"]);
    assert_eq!(metadata.i32s("numbers").expect("numbers").expect("there").collect::<Vec<_>>(), [1, -1]);
    let shapes: Vec<_> = checkpoint.entries().iter().map(|e| format!("{} {}", e.name, e.shape)).collect();
    assert_eq!(shapes, ["a [2, 3]", "b [1, 8]"]);
    let b = &checkpoint.entries()[1].planes[0];
    let mut bytes = [0; 32];
    checkpoint.file(b.file).source.read_at(b.bytes.start, &mut bytes).expect("inside");
    assert_eq!(bytes, [2; 32]);
}

#[test]
fn version_1_cut_anywhere_is_refused() {
    let (dir, whole) = (Dir::new(), version_1());
    for len in 0..whole.len() {
        assert!(open_both(&dir.file("x.gguf", &whole[..len])).is_err(), "{len}");
    }
}

#[test]
fn big_endian_files_say_what_gguf_py_reads_in_them() {
    let checkpoint = open_both(&golden("gguf/big-endian.gguf")).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    let listing = listing("gguf/big-endian.json");
    let pairs: serde_json::Value = metadata.iter().map(|(key, value)| pair(key, value)).collect();
    assert_eq!(pairs, listing["pairs"]);
    assert_eq!((metadata.version(), metadata.big_endian()), (3, true));
    assert_eq!(metadata.data_start(), listing["data_offset"]);
    // Tensors have the listed places and shapes, and a scheme that cannot be mistaken for another.
    let mut wanted = listing["tensors"].clone();
    for tensor in wanted.as_array_mut().expect("an array") {
        if tensor[1] != "i8" {
            tensor[1] = format!("{}.be", tensor[1].as_str().expect("a name")).into();
        }
    }
    assert_eq!(tensors(&checkpoint), wanted);
    let f64s = metadata.get("many.f64");
    let Some(Value::Array(array)) = f64s else { panic!("{f64s:?}") };
    assert_eq!(array.values().collect::<Vec<_>>(), [Value::F64(0.1), Value::F64(0.1)]);
}

#[test]
fn metadata_is_written_as_version_3_has_it() {
    let dir = Dir::new();
    let old = dir.file("old.gguf", version_1());
    for path in [old, golden("gguf/big-endian.gguf")] {
        let source = checkpoint::open(&path).expect("sound");
        let metadata = source.metadata().gguf().expect("gguf");
        let pairs: Vec<_> = metadata.iter().collect();
        let writer = Draft::gguf(vec![], &pairs).expect("fits").create(&dir.path("new.gguf"), true);
        writer.expect("made").finish().expect("written");
        let again = open_both(&dir.path("new.gguf")).expect("sound");
        let again = again.metadata().gguf().expect("gguf");
        let values = |m: &checkpoint::GgufMetadata| -> Vec<String> {
            let all = |v: Value<'_>| match v {
                Value::Array(array) => format!("{:?}", array.values().collect::<Vec<_>>()),
                other => format!("{other:?}"),
            };
            m.iter().map(|(key, value)| format!("{key} {}", all(value))).collect()
        };
        assert_eq!(values(again), values(metadata));
        assert_eq!((again.version(), again.big_endian()), (3, false));
    }
}

#[test]
fn blocks_of_a_big_endian_file_are_listed() {
    let mut file = std::fs::read(golden("gguf/big-endian.gguf")).expect("the file is in git");
    // The first tensor, [2, 3] f32, becomes [32, 3] q4_0... of another type id, which does not fit its shape.
    let at = file.windows(9).position(|w| w == b"f4.weight").expect("there") + 9 + 4 + 16;
    assert_eq!(file[at..at + 4], [0; 4]);
    file[at + 3] = 2;
    let dir = Dir::new();
    dir.file("x.gguf", file);
    assert_snapshot!(dir.error("x.gguf"), @"malformed `DIR/x.gguf`: tensor `f4.weight`: [2, 3] q4_0.be: axis 1 has 3 elements, not a multiple of the 32 that a block packs (at byte 978)");
}

#[test]
fn a_vocabulary_alone_is_a_checkpoint_without_tensors() {
    let dir = Dir::new();
    let file = Gguf::new().str("general.architecture", "llama").strs("tokenizer.ggml.tokens", &["<s>", "a"]);
    for content in [file.build(), [file.build(), vec![0; 7]].concat()] {
        let checkpoint = open_both(&dir.file("v.gguf", content)).expect("sound");
        assert_eq!((checkpoint.entries().len(), checkpoint.files().len()), (0, 1));
        let tokens = checkpoint.metadata().gguf().expect("gguf").strings("tokenizer.ggml.tokens");
        assert_eq!(tokens.expect("strings").expect("there").count(), 2);
    }
}

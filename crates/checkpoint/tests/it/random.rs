//! Random damage and random soundness.

use proptest::prelude::*;

use crate::build::{F32, Gguf, Q4_0, array, kind, safetensors};
use crate::{Dir, open_both};
use testkit::sound::{assert_dense, assert_sound};

fn sound_gguf() -> Gguf {
    Gguf::new()
        .str("general.architecture", "llama")
        .u32("general.alignment", 32)
        .pair("a", kind::ARRAY, array(kind::I32, 3, [1; 12]))
        .strs("tokens", &["", "a", "bc"])
        .tensor("blk.0.q", &[2, 32], Q4_0, 36)
        .f32("blk.0.norm", &[8])
        .f32("scalar", &[])
}

fn sound_safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}"#;
    safetensors(header, 16)
}

/// Bytes to be flipped: where, and with what.
fn damage(len: usize) -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0..len, 1..=255u8), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_gguf_opens_soundly_or_not_at_all(flips in damage(sound_gguf().header().len())) {
        let mut file = sound_gguf().build();
        for (at, with) in flips {
            file[at] ^= with;
        }
        let dir = Dir::new();
        if let Ok(checkpoint) = open_both(&dir.file("x.gguf", file)) {
            assert_sound(&checkpoint);
            assert_dense(&checkpoint);
        }
    }

    #[test]
    fn a_damaged_safetensors_opens_soundly_or_not_at_all(flips in damage(sound_safetensors().len())) {
        let mut file = sound_safetensors();
        for (at, with) in flips {
            file[at] ^= with;
        }
        let dir = Dir::new();
        if let Ok(checkpoint) = open_both(&dir.file("x.safetensors", file)) {
            assert_sound(&checkpoint);
            assert_dense(&checkpoint);
        }
    }

    #[test]
    fn noise_after_the_magic_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200), counts in (0..4u64, 0..4u64)) {
        let start = Gguf::new().with(|g| (g.tensor_count, g.pair_count) = (Some(counts.0), Some(counts.1)));
        let dir = Dir::new();
        if let Ok(checkpoint) = open_both(&dir.file("x.gguf", [start.header(), noise].concat())) {
            assert_sound(&checkpoint);
            assert_dense(&checkpoint);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sound_gguf_comes_back_as_it_was_written(
        tensors in prop::collection::vec((prop::collection::vec(0..5u64, 0..4), any::<bool>()), 0..12),
        alignment in prop::sample::select(vec![1u32, 8, 32, 64, 4096]),
        texts in prop::collection::vec("\\PC{0,12}", 0..6),
    ) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut file = Gguf::new().strs("texts", &texts).align(alignment);
        let mut wanted = Vec::new();
        for (i, (lead, quantised)) in tensors.into_iter().enumerate() {
            let name = format!("layers.{i}.weight");
            let shape = if quantised { [lead, vec![64]].concat() } else { lead };
            let elements: u64 = shape.iter().product();
            let (kind, bytes) = if quantised { (Q4_0, elements / 32 * 18) } else { (F32, elements * 4) };
            file = file.tensor(&name, &shape, kind, bytes);
            wanted.push((name, shape, if quantised { "q4_0" } else { "f32" }));
        }
        let dir = Dir::new();
        let checkpoint = open_both(&dir.file("x.gguf", file.build())).expect("sound");
        assert_sound(&checkpoint);
            assert_dense(&checkpoint);
        let found: Vec<_> = checkpoint.entries().iter()
            .map(|e| (e.name.clone(), e.shape.to_vec(), e.scheme.name.as_ref())).collect();
        prop_assert_eq!(found, wanted.iter().map(|(n, s, k)| (n.clone(), s.clone(), *k)).collect::<Vec<_>>());
        // Each tensor was filled with its number.
        for (entry, fill) in checkpoint.entries().iter().zip(1u8..) {
            let plane = &entry.planes[0];
            let mut bytes = vec![0; usize::try_from(entry.byte_len()).expect("small")];
            checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).expect("inside");
            prop_assert!(bytes.iter().all(|b| *b == fill));
        }
        let metadata = checkpoint.metadata().gguf().expect("gguf");
        prop_assert_eq!(metadata.alignment(), u64::from(alignment));
        let found: Result<Vec<_>, _> = metadata.strs("texts").expect("strings").expect("there").collect();
        prop_assert_eq!(found.expect("UTF-8"), texts);
    }
}

//! Size: large headers open fast, and hostile numbers cost nothing.

use std::time::Duration;

use checkpoint::{Io, OpenOptions};

use crate::build::{Gguf, array, kind};
use crate::{Dir, timed};

/// CPU time that opening any of these files may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });

/// Returns the result of `work` and the time it took, and prints the time.
#[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
fn told<T>(what: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    let (result, took) = timed(work);
    println!("{what}: {took:?}");
    (result, took)
}

fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (result, took) = told(what, work);
    assert!(took < PATIENCE, "{what} took {took:?}");
    result
}

#[test]
fn half_a_million_tensors() {
    let dir = Dir::new();
    let held = testkit::fixture::many_tensors(dir.0.path()).expect("made");
    assert_eq!((held.tensors, held.files), (1_000_000, 2));
    for name in ["many.gguf", "many.safetensors"] {
        for io in [Io::Mmap, Io::Pread] {
            let options = OpenOptions::with_io(io);
            let open = || checkpoint::open_with(dir.path(name), &options);
            let checkpoint = told(&format!("500,000 tensors of {name} by {io:?}"), open).0.expect("sound");
            assert_eq!(checkpoint.entries().len() as u64, testkit::fixture::MANY);
            let bytes: u64 = checkpoint.entries().iter().map(tensor::TensorEntry::byte_len).sum();
            assert_eq!(bytes, held.bytes / 2);
            let last = checkpoint.entry("model.layers.1666.mlp.experts.66.w1.weight").expect("there");
            assert_eq!(last.shape, [4, 4].into());
        }
    }
}

/// The counts of each dtype equal those on Hugging Face for deepseek-ai/DeepSeek-V3.
#[test]
fn deepseek_v3() {
    let dir = Dir::new();
    let held = testkit::fixture::deepseek_v3(dir.0.path()).expect("made");
    assert_eq!((held.tensors, held.files), (91_991, 163));
    let (fp8, bf16, f32) = (680_571_043_840, 3_918_786_560, 41_555_600);
    assert_eq!(held.bytes, fp8 + 2 * bf16 + 4 * f32);
    for io in [Io::Mmap, Io::Pread] {
        let options = OpenOptions::with_io(io);
        let open = || checkpoint::open_with(dir.0.path(), &options);
        let checkpoint = told(&format!("DeepSeek-V3 by {io:?}"), open).0.expect("sound");
        // 45,808 matrices and their factors are one entry each.
        assert_eq!((checkpoint.entries().len(), checkpoint.files().len()), (91_991 - 45_808, 163));
        let bytes: u64 = checkpoint.entries().iter().map(tensor::TensorEntry::byte_len).sum();
        assert_eq!(bytes, held.bytes);
        let of = |name: &str| {
            let entry = checkpoint.entry(name).expect(name);
            (entry.shape.to_vec(), entry.planes.len())
        };
        assert_eq!(of("model.layers.61.self_attn.kv_a_proj_with_mqa.weight"), (vec![576, 7168], 2));
        assert_eq!(of("model.layers.3.mlp.experts.255.down_proj.weight"), (vec![7168, 2048], 2));
        assert_eq!(of("model.layers.60.mlp.gate.e_score_correction_bias"), (vec![256], 1));
    }
}

#[test]
fn two_hundred_thousand_keys() {
    let file = (0..200_000).fold(Gguf::new(), |g, i| g.u32(&format!("general.key.{i}"), i));
    let dir = Dir::new();
    let path = dir.file("x.gguf", file.build());
    let checkpoint = in_time("200,000 keys", || checkpoint::open(&path)).expect("sound");
    assert_eq!(checkpoint.metadata().gguf().unwrap().u64("general.key.199999").unwrap(), Some(199_999));
}

#[test]
fn a_sparse_terabyte_of_lies_costs_nothing() {
    // The file is long enough for the counts to be possible, so only the items themselves can be wrong.
    let lies = [
        Gguf::new().with(|g| g.tensor_count = Some(u64::from(u32::MAX))),
        Gguf::new().with(|g| g.pair_count = Some(u64::from(u32::MAX))),
        Gguf::new().with(|g| g.tensor_count = Some(1 << 34)),
        Gguf::new().pair("k", kind::ARRAY, array(kind::F64, 1 << 30, [])),
        Gguf::new().pair("k", kind::STR, (1u64 << 30).to_le_bytes()),
    ];
    for lie in lies {
        let dir = Dir::new();
        let path = dir.file("x.gguf", lie.header());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        for io in [Io::Mmap, Io::Pread] {
            let options = OpenOptions::with_io(io);
            let error = in_time("a lie", || checkpoint::open_with(&path, &options)).expect_err("lies");
            assert!(error.to_string().len() < 10_000);
        }
    }
}

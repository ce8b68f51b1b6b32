//! Size: large headers open fast, and hostile numbers cost nothing.

use std::time::Duration;

use checkpoint::{Io, OpenOptions};

use crate::build::{Gguf, array, kind};
use crate::{Dir, timed};

/// CPU time that opening any of these files may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });

#[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (result, took) = timed(work);
    println!("{what}: {took:?}");
    assert!(took < PATIENCE, "{what} took {took:?}");
    result
}

#[test]
fn half_a_million_tensors() {
    const COUNT: u32 = 500_000;
    let file =
        (0..COUNT).fold(Gguf::new(), |g, i| g.f32(&format!("layers.{i}.mlp.experts.up.weight"), &[1, 2]));
    let dir = Dir::new();
    let path = dir.file("x.gguf", file.build());
    for io in [Io::Mmap, Io::Pread] {
        let options = OpenOptions::with_io(io);
        let checkpoint =
            in_time("500,000 tensors of GGUF", || checkpoint::open_with(&path, &options)).expect("sound");
        assert_eq!(checkpoint.entries().len(), COUNT as usize);
        assert!(checkpoint.entry("layers.499999.mlp.experts.up.weight").is_some());
    }
}

#[test]
fn two_hundred_thousand_tensors_of_safetensors() {
    const COUNT: usize = 200_000;
    let tensors: Vec<_> = (0..COUNT)
        .map(|i| {
            let (from, to) = (8 * i, 8 * i + 8);
            format!(r#""layers.{i}.up.weight":{{"dtype":"F32","shape":[1,2],"data_offsets":[{from},{to}]}}"#)
        })
        .collect();
    let file = crate::build::safetensors(format!("{{{}}}", tensors.join(",")), 8 * COUNT);
    let dir = Dir::new();
    let path = dir.file("x.safetensors", file);
    let checkpoint = in_time("200,000 tensors of safetensors", || checkpoint::open(&path)).expect("sound");
    assert_eq!(checkpoint.entries().len(), COUNT);
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

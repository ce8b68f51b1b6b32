//! Checkpoints in memory, planned and loaded: their bytes equal those from files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, Draft, Io, Outgoing};
use load::Loaded;
use storage::{Memory, Name, Storage};
use tensor::TensorEntry;
use weighbridge::engine::text::EncodeOptions;
use weighbridge::planner::plan_as_stored;
use weighbridge::{
    LayoutKind, OpenOptions, Pool, Runtime, RuntimeOptions, describe, load, open, open_from, open_with, plan,
};

use crate::golden;

/// Reads all files of `dir`, of any name.
fn read(dir: &Path) -> Memory {
    fn add(dir: &Path, at: &Name, memory: &mut Memory) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = at.join(path.file_name().unwrap().to_str().unwrap()).unwrap();
            if path.is_dir() {
                add(&path, &name, memory);
            } else {
                memory.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut memory = Memory::new("memory");
    add(dir, &Name::ROOT, &mut memory);
    memory
}

/// The planes of every parameter, by name.
fn planes(loaded: &Loaded) -> Vec<(String, Vec<Vec<u8>>)> {
    let names = loaded.names().map(str::to_owned);
    let bytes = |name: &str| -> Vec<Vec<u8>> {
        loaded.get(name).unwrap().slots().iter().map(|slot| slot.bytes().to_vec()).collect()
    };
    let mut all: Vec<_> = names.map(|name| (name.clone(), bytes(&name))).collect();
    all.sort();
    all
}

fn loaded(checkpoint: &Checkpoint, layout: Option<LayoutKind>, owned: bool) -> Loaded {
    let plan = match layout {
        Some(layout) => plan(checkpoint, &describe(checkpoint).unwrap(), layout).unwrap(),
        None => plan_as_stored(checkpoint).unwrap(),
    };
    let options = load::Options { owned, ..load::Options::default() };
    plan.load_with(&mut Pool::new(2), options).unwrap()
}

/// Checks that the checkpoint `at` in `dir` loads the same from files, mapped and read, and from memory.
fn same(dir: &Path, at: &str, layouts: &[Option<LayoutKind>]) {
    let memory: Arc<dyn Storage> = Arc::new(read(dir));
    let name = Name::parse(at).unwrap();
    let in_memory = open_from(memory, &name, &OpenOptions::default()).unwrap();
    let read = open_with(dir.join(at), &OpenOptions::with_io(Io::Pread)).unwrap();
    let mapped = open(dir.join(at)).unwrap();
    for layout in layouts {
        for owned in [false, true] {
            let wanted = planes(&loaded(&read, *layout, owned));
            assert!(!wanted.is_empty());
            assert!(wanted == planes(&loaded(&in_memory, *layout, owned)), "{at} {layout:?} owned: {owned}");
            assert!(wanted == planes(&loaded(&mapped, *layout, owned)), "{at} {layout:?} owned: {owned}");
        }
    }
    let digest = |c: &Checkpoint| plan_as_stored(c).unwrap().digest();
    assert_eq!(digest(&in_memory), digest(&mapped), "{at}");
}

const MODEL: [Option<LayoutKind>; 4] =
    [None, Some(LayoutKind::Canonical), Some(LayoutKind::InPlace), Some(LayoutKind::Packed { rows: 16 })];

fn write(source: &Checkpoint, entries: &[&TensorEntry], draft: Draft, path: &Path) {
    let mut writer = draft.create(path, false).unwrap();
    for entry in entries {
        let plane = &entry.planes[0];
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap()];
        source.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).unwrap();
        writer.tensor(&[&bytes]).unwrap();
    }
    writer.finish().unwrap();
}

fn outgoing(entries: &[&TensorEntry]) -> Vec<Outgoing> {
    let one = |e: &&TensorEntry| Outgoing {
        name: e.name.clone(),
        shape: e.shape.clone(),
        scheme: e.scheme.clone(),
    };
    entries.iter().map(one).collect()
}

#[test]
fn a_gguf_and_a_directory_of_hf() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(golden().join("llama-tiny/model.gguf"), dir.path().join("x.gguf")).unwrap();
    same(dir.path(), "x.gguf", &MODEL);
    same(&golden().join("gpt2-tiny"), "", &[Some(LayoutKind::Canonical)]);
}

#[test]
fn shards_in_subfolders() {
    let whole = open(golden().join("llama-tiny/model.safetensors")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("m/a/b")).unwrap();
    fs::copy(golden().join("llama-tiny/config.json"), dir.path().join("m/config.json")).unwrap();
    let mut map = serde_json::Map::new();
    for (no, file) in ["a/1.safetensors", "a/b/1.safetensors", "2.safetensors"].iter().enumerate() {
        let entries: Vec<_> = whole.entries().iter().skip(no).step_by(3).collect();
        map.extend(entries.iter().map(|e| (e.name.clone(), (*file).into())));
        let draft = Draft::safetensors(outgoing(&entries)).unwrap();
        write(&whole, &entries, draft, &dir.path().join("m").join(file));
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    fs::write(dir.path().join("m/model.safetensors.index.json"), index).unwrap();
    same(dir.path(), "m", &MODEL);
    same(&dir.path().join("m"), "model.safetensors.index.json", &[Some(LayoutKind::Canonical)]);
}

#[test]
fn parts_of_a_gguf() {
    let whole = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for no in 0..2u16 {
        let entries: Vec<_> = whole.entries().iter().skip(no.into()).step_by(2).collect();
        let total = u32::try_from(whole.entries().len()).unwrap();
        let mut pairs: Vec<(&str, checkpoint::Value<'_>)> = vec![
            ("split.no", checkpoint::Value::U16(no)),
            ("split.count", checkpoint::Value::U16(2)),
            ("split.tensors.count", checkpoint::Value::U32(total)),
        ];
        if no == 0 {
            pairs.extend(whole.metadata().gguf().unwrap().iter());
        }
        let path = dir.path().join(format!("x-{:05}-of-00002.gguf", no + 1));
        write(&whole, &entries, Draft::gguf(outgoing(&entries), &pairs).unwrap(), &path);
    }
    same(dir.path(), "", &MODEL);
    same(dir.path(), "x-00002-of-00002.gguf", &[Some(LayoutKind::InPlace)]);
}

#[test]
fn arrays_and_pickles() {
    let golden = golden().join("..");
    for (file, at) in [
        ("npz/arrays.npz", "arrays.npz"),
        ("pytorch/dtypes.pt", "dtypes.pt"),
        ("pytorch/views.pt", "views.pt"),
        ("pytorch/legacy2.bin", "legacy2.bin"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(golden.join(file), dir.path().join(at)).unwrap();
        same(dir.path(), at, &[None]);
    }
}

#[test]
fn what_is_in_memory_is_lent() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(golden().join("llama-tiny/model.gguf"), dir.path().join("x.gguf")).unwrap();
    let memory: Arc<dyn Storage> = Arc::new(read(dir.path()));
    let checkpoint = open_from(memory, &Name::parse("x.gguf").unwrap(), &OpenOptions::default()).unwrap();
    let loaded = loaded(&checkpoint, None, false);
    assert_eq!((loaded.report().bytes_copied, loaded.report().bytes_read), (0, 0));
}

/// The model runs, tokenizer and all, without a file.
#[test]
fn a_model_in_memory_runs() {
    let path = testkit::model("smollm2");
    let said = |runtime: &mut Runtime| {
        let tokens = runtime
            .tokenizer()
            .unwrap()
            .encode("The capital of France is", EncodeOptions::default())
            .unwrap();
        runtime.forward(&tokens).unwrap().to_vec()
    };
    let options = RuntimeOptions { threads: Some(2), ..RuntimeOptions::default() };
    let wanted = said(&mut Runtime::start(&path, &options).unwrap());
    let name = Name::parse("model.gguf").unwrap();
    let memory = Memory::new("memory").with(name.clone(), fs::read(path).unwrap());
    let checkpoint = open_from(Arc::new(memory), &name, &OpenOptions::default()).unwrap();
    assert_eq!(said(&mut Runtime::start_from(checkpoint, &options).unwrap()), wanted);
}

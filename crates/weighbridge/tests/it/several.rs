//! Models in several files compute what they compute in one.

use std::fs;
use std::path::Path;

use checkpoint::{Checkpoint, Draft, Io, Outgoing, Value};
use tensor::TensorEntry;
use weighbridge::{OpenOptions, Runtime, RuntimeOptions};

use crate::golden;

const PARTS: usize = 3;

/// The entries of part `no`, dealt out like cards: no layer is in one file.
fn dealt(source: &Checkpoint, no: usize) -> Vec<&TensorEntry> {
    source.entries().iter().skip(no).step_by(PARTS).collect()
}

fn outgoing(entries: &[&TensorEntry]) -> Vec<Outgoing> {
    let one = |e: &&TensorEntry| Outgoing {
        name: e.name.clone(),
        shape: e.shape.clone(),
        scheme: e.scheme.clone(),
    };
    entries.iter().map(one).collect()
}

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

/// The logits of a short text at its last position.
fn logits(path: &Path, io: Io) -> Vec<f32> {
    let options =
        RuntimeOptions { open: OpenOptions::with_io(io), threads: Some(2), ..RuntimeOptions::default() };
    let mut logits = vec![];
    Runtime::start(path, &options)
        .unwrap()
        .forward_each(&[1, 2, 3, 4, 5], |row| logits = row.to_vec())
        .unwrap();
    logits
}

#[test]
fn shards_of_a_directory() {
    for model in ["llama-tiny", "gpt2-tiny", "gemma3-tiny"] {
        let source = golden().join(model);
        let whole = checkpoint::open(&source).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::copy(source.join("config.json"), dir.path().join("config.json")).unwrap();
        let mut map = serde_json::Map::new();
        for no in 0..PARTS {
            let (name, entries) =
                (format!("model-{:05}-of-{PARTS:05}.safetensors", no + 1), dealt(&whole, no));
            map.extend(entries.iter().map(|e| (e.name.clone(), name.clone().into())));
            write(&whole, &entries, Draft::safetensors(outgoing(&entries)).unwrap(), &dir.path().join(name));
        }
        let wanted = logits(&source, Io::Mmap);
        // Without an index first: the names tell.
        assert_eq!(logits(dir.path(), Io::Mmap), wanted, "{model}");
        let index = serde_json::json!({ "metadata": {}, "weight_map": map });
        fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        for io in [Io::Mmap, Io::Pread] {
            assert_eq!(logits(dir.path(), io), wanted, "{model} {io:?}");
        }
    }
}

#[test]
fn parts_of_a_gguf() {
    let source = golden().join("llama-tiny/model.gguf");
    let whole = checkpoint::open(&source).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let total = u32::try_from(whole.entries().len()).unwrap();
    let part = |no: usize| dir.path().join(format!("x-{:05}-of-{PARTS:05}.gguf", no + 1));
    for no in 0..PARTS {
        let entries = dealt(&whole, no);
        let mut pairs: Vec<(&str, Value<'_>)> = vec![
            ("split.no", Value::U16(u16::try_from(no).unwrap())),
            ("split.count", Value::U16(3)),
            ("split.tensors.count", Value::U32(total)),
        ];
        if no == 0 {
            pairs.extend(whole.metadata().gguf().unwrap().iter());
        }
        write(&whole, &entries, Draft::gguf(outgoing(&entries), &pairs).unwrap(), &part(no));
    }
    let wanted = logits(&source, Io::Mmap);
    for io in [Io::Mmap, Io::Pread] {
        assert_eq!(logits(dir.path(), io), wanted);
        assert_eq!(logits(&part(2), io), wanted);
    }

    // Written again it is one file, and says so.
    let joined = dir.path().join("joined.gguf");
    let (options, mut each) =
        (weighbridge::convert::ConvertOptions::default(), |_: &weighbridge::convert::Progress<'_>| {
            std::ops::ControlFlow::Continue(())
        });
    let split = checkpoint::open(part(1)).unwrap();
    let conversion = weighbridge::convert::Conversion::new(
        &split,
        weighbridge::LayoutKind::Source,
        weighbridge::convert::OutputFormat::Gguf,
        &options,
    );
    conversion.unwrap().run(&joined, &mut weighbridge::Pool::new(1), &mut each).unwrap();
    let joined = checkpoint::open(&joined).unwrap();
    let keys = |c: &Checkpoint| c.metadata().gguf().unwrap().keys().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((joined.entries().len(), keys(&joined)), (whole.entries().len(), keys(&whole)));
}

/// A directory of squish whose arrays are compressed, with a configuration put beside them.
#[test]
fn compressed_arrays_of_squish() {
    let model = golden().join("llama-tiny");
    let whole = checkpoint::open(model.join("model.safetensors")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::copy(model.join("config.json"), dir.path().join("config.json")).unwrap();
    let arrays = dir.path().join("tensors");
    fs::create_dir(&arrays).unwrap();
    let mut manifest = serde_json::Map::new();
    for entry in whole.entries() {
        let key = entry.name.replace('.', "__");
        let plain = dir.path().join("array.npz");
        write(&whole, &[entry], Draft::npz(outgoing(&[entry])).unwrap(), &plain);
        // A member of the npz is an npy file.
        let npz = fs::read(&plain).unwrap();
        let start = npz.windows(6).position(|w| w == b"\x93NUMPY").unwrap();
        let written = checkpoint::open(&plain).unwrap();
        let end = usize::try_from(written.entries()[0].planes[0].bytes.end).unwrap();
        let packed =
            ruzstd::encoding::compress_to_vec(&npz[start..end], ruzstd::encoding::CompressionLevel::Fastest);
        fs::write(arrays.join(format!("{key}__pt.npy.zst")), packed).unwrap();
        fs::remove_file(&plain).unwrap();
        manifest.insert(entry.name.clone(), key.into());
    }
    fs::write(dir.path().join("manifest.json"), serde_json::Value::from(manifest).to_string()).unwrap();
    let wanted = logits(&model, Io::Mmap);
    for io in [Io::Mmap, Io::Pread] {
        assert_eq!(logits(dir.path(), io), wanted, "{io:?}");
    }
}

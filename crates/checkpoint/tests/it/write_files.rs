//! Checkpoints of several files: cut as the reference implementations cut, read back whole, in place at once or not
//! at all.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::path::Path;

use checkpoint::{Checkpoint, Draft, Flavour, Held, Identity, Outgoing, Removal, Split, Value};
use insta::assert_snapshot;
use tensor::{Dtype, Scheme};

use testkit::golden;

use crate::write::{bytes, files, outgoing, pairs};
use crate::{Dir, open_both};

/// Writes all tensors of `source`, and gives what is read back, the same.
fn write(source: &Checkpoint, draft: Draft, path: &Path, overwrite: bool, opens: &Path) -> Checkpoint {
    let mut writer = draft.create(path, overwrite).unwrap();
    for entry in source.entries() {
        let planes = bytes(source, entry);
        writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    }
    writer.finish().unwrap();
    let again = open_both(opens).unwrap();
    assert_eq!(again.entries().len(), source.entries().len());
    for entry in source.entries() {
        let found = again.entry(&entry.name).unwrap();
        assert_eq!((&found.shape, &found.scheme), (&entry.shape, &entry.scheme), "{}", entry.name);
        assert_eq!(bytes(&again, found), bytes(source, entry), "{}", entry.name);
    }
    again
}

fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = std::fs::read_dir(dir).unwrap().map(name).collect();
    names.sort_unstable();
    names
}

fn hf(source: &Checkpoint, flavour: Flavour, most: Option<u64>) -> Draft {
    Draft::directory(outgoing(source), files(source), flavour, most).unwrap()
}

/// golden/shards/make.py says what transformers would write.
#[test]
fn shards_are_those_of_transformers() {
    let dir = Dir::new();
    for name in ["config.json", "model.safetensors"] {
        dir.file(&format!("in/{name}"), std::fs::read(golden("models/llama-tiny").join(name)).unwrap());
    }
    let source = &checkpoint::open(dir.path("in")).unwrap();
    let out = dir.path("out");
    let again = write(source, hf(source, Flavour::Hf, Some(40_000)), &out, false, &out);
    assert_eq!(again.files().len(), 11);
    let index = std::fs::read_to_string(out.join("model.safetensors.index.json")).unwrap();
    assert_eq!(index, std::fs::read_to_string(golden("shards/index.json")).unwrap());
    // The same again, over the old: the same bytes, and nothing else.
    let all =
        |dir: &Path| -> Vec<_> { names(dir).iter().map(|n| std::fs::read(dir.join(n)).unwrap()).collect() };
    let before = all(&out);
    write(source, hf(source, Flavour::Hf, Some(40_000)), &out, true, &out);
    assert_eq!(all(&out), before);
    assert_eq!(names(&dir.path("")), ["in", "out"]);
    // Fewer over more leaves none of the more.
    write(source, hf(source, Flavour::Hf, Some(200_000)), &out, true, &out);
    assert_eq!(
        names(&out),
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ]
    );
    write(source, hf(source, Flavour::Hf, None), &out, true, &out);
    assert_eq!(names(&out), ["config.json", "model.safetensors"]);
}

/// mlx-lm always writes an index.
#[test]
fn shards_of_mlx_have_planes_together_and_an_index_always() {
    let dir = Dir::new();
    for name in ["config.json", "model.safetensors"] {
        dir.file(&format!("in/{name}"), std::fs::read(golden("models/llama-tiny").join(name)).unwrap());
    }
    let source = checkpoint::open(dir.path("in")).unwrap();
    let scheme = quant::scheme("mlx-affine:b4,g32,f32").unwrap();
    let mut tensors = outgoing(&source);
    for tensor in tensors.iter_mut().filter(|t| t.shape.len() == 2) {
        tensor.scheme = scheme.clone();
    }
    let planes = |t: &Outgoing| -> Vec<Vec<u8>> {
        let plane = |p| vec![1; usize::try_from(t.scheme.plane_bytes(p, &t.shape).unwrap()).unwrap()];
        t.scheme.planes.iter().map(plane).collect()
    };
    for (most, count) in [(None, 1), (Some(6000), 12)] {
        let draft = Draft::directory(tensors.clone(), files(&source), Flavour::Mlx, most).unwrap();
        let out = dir.path(&format!("out{count}"));
        let mut writer = draft.create(&out, false).unwrap();
        for tensor in &tensors {
            let planes = planes(tensor);
            writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        }
        writer.finish().unwrap();
        let again = open_both(&out).unwrap();
        assert_eq!((again.files().len(), again.entries().len()), (count, tensors.len()));
        for entry in again.entries() {
            assert!(entry.planes.iter().all(|p| p.file == entry.planes[0].file), "{}", entry.name);
        }
        let index = std::fs::read_to_string(out.join("model.safetensors.index.json")).unwrap();
        assert!(index.starts_with("{\n    \"metadata\": {\n        \"total_size\": 59648,\n"), "{index}");
        assert!(index.contains("\"total_parameters\": 78144\n    },\n    \"weight_map\": {\n"), "{index}");
        assert!(index.contains("\"model.embed_tokens.scales\""), "{index}");
    }
}

/// golden/split/make.py: byte for byte what llama-gguf-split writes.
#[test]
fn gguf_is_split_as_llama_gguf_split_does() {
    let dir = Dir::new();
    let wanted: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden("split/parts.json")).unwrap()).unwrap();
    let llama = golden("models/llama-tiny/model.gguf");
    let smollm = testkit::model("smollm2");
    for (case, path, split) in
        [("tensors", llama, Split::Tensors(8)), ("size", smollm, Split::Bytes(40_000_000))]
    {
        let source = checkpoint::open(&path).unwrap();
        let metadata = source.metadata().gguf().unwrap();
        let draft = Draft::gguf_split(outgoing(&source), &pairs(metadata), split).unwrap();
        std::fs::create_dir(dir.path(case)).unwrap();
        let out = dir.path(case).join("x.gguf");
        let again = write(&source, draft, &out, false, &dir.path(case));
        let parts = wanted[case]["parts"].as_object().unwrap();
        assert_eq!(names(&dir.path(case)), parts.keys().cloned().collect::<Vec<_>>());
        assert_eq!(again.files().len(), parts.len());
        for (name, digest) in parts {
            let found = blake3::hash(&std::fs::read(dir.path(case).join(name)).unwrap());
            assert_eq!(found.to_hex().as_str(), digest, "{case} {name}");
        }
    }
}

fn tiny() -> Checkpoint {
    checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap()
}

fn split(source: &Checkpoint, tensors: u64) -> Draft {
    let metadata = source.metadata().gguf().unwrap();
    Draft::gguf_split(outgoing(source), &pairs(metadata), Split::Tensors(tensors)).unwrap()
}

/// Whatever stood for the checkpoint before, afterwards only the new one does.
#[test]
fn parts_of_an_older_split_do_not_stay() {
    let dir = Dir::new();
    let source = tiny();
    let out = dir.file("m/x.gguf", "precious");
    dir.file("m/x-y.gguf", "other");
    let refused = split(&source, 8).create(&out, false).err().unwrap();
    assert_snapshot!(dir.text(&refused), @"
    `DIR/m/x.gguf`: already exists
    hint: remove it, or name another destination
    ");
    let part = |no: u32, of: u32| dir.path(&format!("m/x-{no:05}-of-{of:05}.gguf"));
    write(&source, split(&source, 8), &out, true, &part(1, 3));
    let three = ["x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "x-00003-of-00003.gguf", "x-y.gguf"];
    assert_eq!(names(&dir.path("m")), three);
    let refused = split(&source, 8).create(&out, false).err().unwrap();
    assert!(dir.text(&refused).starts_with("`DIR/m/x-00001-of-00003.gguf`: already exists"));
    assert!(split(&source, 12).create(&out, false).is_err(), "another count is the same checkpoint");
    write(&source, split(&source, 8), &out, true, &part(1, 3));
    assert_eq!(names(&dir.path("m")), three);
    write(&source, split(&source, 12), &out, true, &part(2, 2));
    assert_eq!(names(&dir.path("m")), ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "x-y.gguf"]);
    write(&source, split(&source, 21), &out, true, &out);
    assert_eq!(names(&dir.path("m")), ["x-y.gguf", "x.gguf"]);
    assert!(open_both(&out).unwrap().metadata().gguf().unwrap().get("split.count").is_none());
}

/// Someone who makes one of the parts meanwhile keeps it, and gets none of ours.
#[test]
fn parts_come_all_or_none() {
    let dir = Dir::new();
    let source = tiny();
    let mut writer = split(&source, 8).create(&dir.path("x.gguf"), false).unwrap();
    for entry in source.entries() {
        writer.tensor(&[&bytes(&source, entry)[0]]).unwrap();
    }
    dir.file("x-00003-of-00003.gguf", "mine");
    let error = writer.finish().unwrap_err();
    assert_snapshot!(dir.text(&error), @"
    `DIR/x-00003-of-00003.gguf`: something has come to be there meanwhile
    hint: what was written is complete, in `DIR/.x.gguf.partial`: the same again only gives the names
    ");
    assert_eq!(std::fs::read(dir.path("x-00003-of-00003.gguf")).unwrap(), b"mine");
    assert_eq!(names(&dir.path("")), [".x.gguf.partial", "x-00003-of-00003.gguf"]);
    // Once that is gone, what is complete only needs its names.
    std::fs::remove_file(dir.path("x-00003-of-00003.gguf")).unwrap();
    let mut writer = split(&source, 8).create(&dir.path("x.gguf"), false).unwrap();
    source.entries().iter().for_each(|_| assert!(writer.again().unwrap().is_some()));
    writer.finish().unwrap();
    assert_eq!(open_both(&dir.path("x-00001-of-00003.gguf")).unwrap().entries().len(), 21);
}

#[test]
fn alignment_is_said_in_every_part() {
    let dir = Dir::new();
    let metadata = [("general.architecture", Value::Str(b"none")), ("general.alignment", Value::U32(256))];
    let one =
        |name: &str| Outgoing { name: name.into(), shape: [3].into(), scheme: Scheme::plain(Dtype::F32) };
    let draft = Draft::gguf_split(vec![one("a"), one("b")], &metadata, Split::Bytes(1)).unwrap();
    let mut writer = draft.create(&dir.path("x.gguf"), false).unwrap();
    writer.tensor(&[&[1; 12]]).unwrap();
    writer.tensor(&[&[2; 12]]).unwrap();
    writer.finish().unwrap();
    let again = open_both(&dir.path("x-00002-of-00002.gguf")).unwrap();
    assert_eq!(again.entries().len(), 2);
    assert!(again.entries().iter().all(|e| e.planes[0].bytes.start == 256));
}

/// Names that no file system takes, or that are one to it, are told apart by the manifest.
#[test]
fn any_name_can_be_an_array() {
    let dir = Dir::new();
    let long = "n".repeat(300);
    let all = ["a.b", "A.b", "a__b", "../../x", "a/b", "ü\n", &long, "con", "__pt"];
    let tensors: Vec<Outgoing> = (0..)
        .zip(all)
        .map(|(i, name)| Outgoing {
            name: name.to_owned(),
            shape: if i == 0 { [].into() } else { [i, 1].into() },
            scheme: Scheme::plain(if i % 2 == 0 { Dtype::U8 } else { Dtype::BF16 }),
        })
        .collect();
    let out = dir.path("out");
    for overwrite in [false, true] {
        let mut writer = Draft::npy_dir(tensors.clone(), None).unwrap().create(&out, overwrite).unwrap();
        for (i, tensor) in tensors.iter().enumerate() {
            let bytes = tensor.scheme.byte_len(&tensor.shape).unwrap();
            writer.tensor(&[&vec![u8::try_from(i).unwrap(); usize::try_from(bytes).unwrap()]]).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(names(&out), ["manifest.json", "tensors"]);
        assert_eq!(names(&out.join("tensors")).len(), tensors.len() + 1);
    }
    let again = open_both(&out).unwrap();
    assert_eq!(again.entries().len(), tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let found = again.entry(&tensor.name).unwrap();
        assert_eq!((&found.shape, &found.scheme), (&tensor.shape, &tensor.scheme));
        assert!(bytes(&again, found)[0].iter().all(|b| usize::from(*b) == i));
    }
    // A directory with others in it is not replaced, nor one with deeper ones.
    dir.file("out/tensors/deep/file", "precious");
    let refused = Draft::npy_dir(tensors, None).unwrap().create(&out, true).err().unwrap();
    assert_snapshot!(dir.text(&refused), @"
    `DIR/out`: the directory there holds `tensors/deep`, which no conversion writes
    hint: move it, or name another destination: files that may be yours are never removed
    ");
}

/// An HF directory keeps what makes it a model.
#[test]
fn arrays_of_a_model_are_a_model() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny")).unwrap();
    let metadata = source.metadata().hf();
    let draft = Draft::npy_dir(outgoing(&source), Some(files(&source))).unwrap();
    let again = write(&source, draft, &dir.path("out"), false, &dir.path("out"));
    assert_eq!(again.metadata().hf().unwrap().config(), metadata.unwrap().config());
}

/// A complete result at `x.npz`, and files that it was made from: `a`, `b` and `c`.
fn complete(dir: &Dir) -> (Held, Vec<(std::path::PathBuf, Identity)>) {
    let files = ["a", "b", "c"].map(|name| {
        dir.file(name, name);
        let file = std::fs::File::open(dir.path(name)).unwrap();
        (dir.path(name), Identity::now(&file).unwrap())
    });
    let writer = Draft::npz(vec![]).unwrap().create(&dir.path("x.npz"), true).unwrap();
    (writer.finish_and_hold().unwrap(), files.to_vec())
}

#[test]
fn files_of_a_source_go_together() {
    let dir = Dir::new();
    let (held, files) = complete(&dir);
    let busy = Removal::pending(&dir.path("x.npz")).unwrap_err();
    assert_snapshot!(dir.text(&busy), @"`DIR/.x.npz.partial`: another process is writing there");
    held.remove(&files, serde_json::Value::Null).unwrap();
    assert_eq!(names(&dir.path("")), ["x.npz"]);

    // One is another now: all stay, and nothing is left to continue.
    let (held, files) = complete(&dir);
    dir.file("other", "b");
    std::fs::rename(dir.path("other"), dir.path("b")).unwrap();
    let error = held.remove(&files, serde_json::Value::Null).unwrap_err();
    assert_snapshot!(dir.text(&error), @"`DIR/b`: it is not the file that was read, so it is not removed");
    assert_eq!(names(&dir.path("")), ["a", "b", "c", "x.npz"]);
}

/// As if the process was ended between two files: the second cannot be removed, for it is a directory.
#[test]
fn a_removal_that_was_broken_off_is_continued() {
    let broken_off = |dir: &Dir| {
        let (held, mut files) = complete(dir);
        std::fs::remove_file(dir.path("b")).unwrap();
        std::fs::create_dir(dir.path("b")).unwrap();
        files[1].1 = Identity::now(&std::fs::File::open(dir.path("b")).unwrap()).unwrap();
        assert!(held.remove(&files, serde_json::json!({"of": "x"})).is_err());
        std::fs::remove_dir(dir.path("b")).unwrap();
        assert_eq!(names(&dir.path("")), [".x.npz.partial", "c", "x.npz"]);
    };
    let dir = Dir::new();
    broken_off(&dir);
    let pending = || Removal::pending(&dir.path("x.npz")).unwrap();
    assert_eq!(pending().unwrap().note(), &serde_json::json!({"of": "x"}));
    pending().unwrap().finish().unwrap();
    assert_eq!(names(&dir.path("")), ["x.npz"]);
    assert!(pending().is_none());

    // The result is no longer there: what is left of its source stays.
    broken_off(&dir);
    std::fs::rename(dir.path("x.npz"), dir.path("y.npz")).unwrap();
    let error = pending().unwrap().finish().unwrap_err();
    assert_snapshot!(dir.text(&error), @"
    `DIR/x.npz`: the result is no longer there as it was written, so no more of what it was made from is removed
    hint: to keep what is left, remove `DIR/.x.npz.partial`
    ");
    assert_eq!(names(&dir.path("")), [".x.npz.partial", "c", "y.npz"]);
    std::fs::rename(dir.path("y.npz"), dir.path("x.npz")).unwrap();
    pending().unwrap().finish().unwrap();
    assert_eq!(names(&dir.path("")), ["x.npz"]);

    // A record that was cut short removes nothing.
    broken_off(&dir);
    let journal = dir.path(".x.npz.partial/journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, &text[..text.len() - 2]).unwrap();
    assert!(pending().is_none());
}

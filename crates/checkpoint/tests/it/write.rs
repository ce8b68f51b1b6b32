//! Written files read back byte for byte, and no partial file is ever visible.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::path::Path;

use checkpoint::{Checkpoint, Draft, Error, Flavour, GgufMetadata, Outgoing, Value};
use insta::assert_snapshot;

use testkit::golden;

use crate::{Dir, open_both, plane};

/// All tensors of a checkpoint, as they are written.
pub(crate) fn outgoing(checkpoint: &Checkpoint) -> Vec<Outgoing> {
    let one = |e: &tensor::TensorEntry| Outgoing {
        name: e.name.clone(),
        shape: e.shape.clone(),
        scheme: e.scheme.clone(),
    };
    checkpoint.entries().iter().map(one).collect()
}

pub(crate) fn bytes(checkpoint: &Checkpoint, entry: &tensor::TensorEntry) -> Vec<Vec<u8>> {
    entry.planes.iter().map(|p| plane(checkpoint, p).unwrap()).collect()
}

/// Writes every tensor of `source` to `path`, and checks that they are read back the same.
fn copy(source: &Checkpoint, draft: Draft, path: &Path) -> Checkpoint {
    let most = draft.bytes();
    assert_eq!(draft.tensors(), outgoing(source));
    let mut writer = draft.create(path, false).unwrap();
    for entry in source.entries() {
        let planes = bytes(source, entry);
        writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        assert!(!path.exists(), "nothing is there before all of it is");
    }
    let len = writer.finish().unwrap();
    let again = open_both(path).unwrap();
    assert_eq!(again.files()[0].len, len);
    assert!(len <= most && most <= len + 4096 + 512 * source.entries().len() as u64, "{len} of {most}");
    assert_eq!(again.entries().len(), source.entries().len());
    for entry in source.entries() {
        let found = again.entry(&entry.name).unwrap();
        assert_eq!((&found.shape, &found.scheme), (&entry.shape, &entry.scheme), "{}", entry.name);
        assert_eq!(bytes(&again, found), bytes(source, entry), "{}", entry.name);
        let dtype = found.scheme.dtype().map_or(1, tensor::Dtype::bytes);
        assert!(found.planes[0].bytes.start.is_multiple_of(dtype), "{} is aligned", entry.name);
    }
    let names = |c: &Path| std::fs::read_dir(c.parent().unwrap()).unwrap().count();
    assert_eq!(names(path), 1, "no temporary file is left");
    again
}

pub(crate) fn pairs(metadata: &GgufMetadata) -> Vec<(&str, Value<'_>)> {
    metadata.iter().collect()
}

/// gguf-py wrote these, so what we write must be what it wrote.
#[test]
fn gguf_is_written_as_gguf_py_writes_it() {
    for name in ["gguf/every-type.gguf", "models/llama-tiny/model.gguf", "models/gpt2-tiny/model.gguf"] {
        let dir = Dir::new();
        let source = checkpoint::open(golden(name)).unwrap();
        let draft = Draft::gguf(outgoing(&source), &pairs(source.metadata().gguf().unwrap())).unwrap();
        copy(&source, draft, &dir.path("copy.gguf"));
        let (wanted, found) =
            (std::fs::read(golden(name)).unwrap(), std::fs::read(dir.path("copy.gguf")).unwrap());
        assert_eq!(wanted.len(), found.len(), "{name}");
        let differs = wanted.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}");
    }
}

#[test]
fn gguf_keeps_its_alignment_and_its_metadata_in_order() {
    let dir = Dir::new();
    let file = crate::build::Gguf::new()
        .str("general.architecture", "none")
        .strs("some.words", &["a", "", "ü"])
        .align(256)
        .u32("last", 7)
        .f32("a", &[3])
        .f32("b", &[5, 2])
        .build();
    let source = checkpoint::open(dir.file("in/source.gguf", file)).unwrap();
    let draft = Draft::gguf(outgoing(&source), &pairs(source.metadata().gguf().unwrap())).unwrap();
    std::fs::create_dir(dir.path("out")).unwrap();
    let copy = copy(&source, draft, &dir.path("out/copy.gguf"));
    let (a, b) = (source.metadata().gguf().unwrap(), copy.metadata().gguf().unwrap());
    assert_eq!(pairs(a), pairs(b));
    assert_eq!((b.alignment(), b.data_start() % 256), (256, 0));
}

#[test]
fn safetensors_are_written_with_every_dtype() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("safetensors/every-dtype.safetensors")).unwrap();
    copy(&source, Draft::safetensors(outgoing(&source)).unwrap(), &dir.path("copy.safetensors"));
}

pub(crate) fn files(source: &Checkpoint) -> checkpoint::HfFiles {
    source.metadata().hf().unwrap().files().unwrap()
}

#[test]
fn an_hf_directory_keeps_its_configuration_and_its_tokenizer() {
    let dir = Dir::new();
    let model = golden("models/llama-tiny");
    for name in ["config.json", "model.safetensors"] {
        dir.file(&format!("in/{name}"), std::fs::read(model.join(name)).unwrap());
    }
    dir.file("in/tokenizer.json", "{}");
    dir.file("in/merges.txt", "a b");
    dir.file("in/modeling_evil.py", "boom");
    std::fs::create_dir(dir.path("out")).unwrap();
    let source = checkpoint::open(dir.path("in")).unwrap();
    for (flavour, format) in [(Flavour::Hf, "pt"), (Flavour::Mlx, "mlx")] {
        let path = dir.path("out").join(format);
        let draft = Draft::directory(outgoing(&source), files(&source), flavour, None).unwrap();
        let again = copy(&source, draft, &path);
        let hf = again.metadata().hf().unwrap();
        assert_eq!(hf.config(), source.metadata().hf().unwrap().config());
        assert_eq!(hf.safetensors()[0], ("format".to_owned(), format.to_owned()));
        let mut names: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        // mlx-lm always writes an index.
        names.retain(|name| flavour == Flavour::Hf || name != "model.safetensors.index.json");
        assert_eq!(names, ["config.json", "merges.txt", "model.safetensors", "tokenizer.json"]);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_directory_without_a_configuration_is_no_source_of_one() {
    let dir = Dir::new();
    let file = std::fs::read(golden("models/llama-tiny/model.safetensors")).unwrap();
    let source = checkpoint::open(dir.file("bare.safetensors", file)).unwrap();
    let error = source.metadata().hf().unwrap().files().unwrap_err();
    assert_snapshot!(dir.text(&error), @"
    `DIR`: wanted a `config.json` beside the weights of the source, found none
    hint: write a `.safetensors` or an `.npz` file, which need none
    ");
}

#[test]
fn a_format_names_all_that_it_cannot_hold() {
    let source = checkpoint::open(golden("gguf/every-type.gguf")).unwrap();
    let mut tensors = outgoing(&source);
    tensors.push(Outgoing { name: "x".into(), ..tensors[0].clone() });
    assert_snapshot!(Draft::npz(tensors).err().unwrap().diagnostics(), @"
    `npz`: 27 problems
      tensor `q4_0.weight`: cannot store q4_0, wanted a numpy dtype
      tensor `q4_1.weight`: cannot store q4_1, wanted a numpy dtype
      tensor `q5_0.weight`: cannot store q5_0, wanted a numpy dtype
      tensor `q5_1.weight`: cannot store q5_1, wanted a numpy dtype
      tensor `q8_0.weight`: cannot store q8_0, wanted a numpy dtype
      tensor `q8_1.weight`: cannot store q8_1, wanted a numpy dtype
      tensor `q2_k.weight`: cannot store q2_k, wanted a numpy dtype
      tensor `q3_k.weight`: cannot store q3_k, wanted a numpy dtype
      tensor `q4_k.weight`: cannot store q4_k, wanted a numpy dtype
      tensor `q5_k.weight`: cannot store q5_k, wanted a numpy dtype
      tensor `q6_k.weight`: cannot store q6_k, wanted a numpy dtype
      tensor `q8_k.weight`: cannot store q8_k, wanted a numpy dtype
      tensor `iq2_xxs.weight`: cannot store iq2_xxs, wanted a numpy dtype
      tensor `iq2_xs.weight`: cannot store iq2_xs, wanted a numpy dtype
      tensor `iq3_xxs.weight`: cannot store iq3_xxs, wanted a numpy dtype
      tensor `iq1_s.weight`: cannot store iq1_s, wanted a numpy dtype
      tensor `iq4_nl.weight`: cannot store iq4_nl, wanted a numpy dtype
      tensor `iq3_s.weight`: cannot store iq3_s, wanted a numpy dtype
      tensor `iq2_s.weight`: cannot store iq2_s, wanted a numpy dtype
      tensor `iq4_xs.weight`: cannot store iq4_xs, wanted a numpy dtype
      and 7 more
    hint: write another format, or encode them as f32, f16 or bf16
    ");
    let source = checkpoint::open(golden("safetensors/every-dtype.safetensors")).unwrap();
    let mut tensors = outgoing(&source);
    tensors.push(Outgoing {
        name: "n".repeat(64),
        shape: [2].into(),
        scheme: tensor::Scheme::plain(tensor::Dtype::F32),
    });
    tensors.push(Outgoing { name: "deep".into(), shape: [1; 5].into(), ..tensors[0].clone() });
    assert_snapshot!(Draft::gguf(tensors.clone(), &[]).err().unwrap().diagnostics(), @"
    `gguf`: 12 problems
      tensor `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn`: name length in bytes of 64, over the limit of 63
      tensor `uint64`: cannot store u64 (as in 3 more), wanted a ggml type
      tensor `complex64`: cannot store c64 (as in 2 more), wanted a ggml type
      tensor `uint32`: cannot store u32 (as in 2 more), wanted a ggml type
      tensor `uint16`: cannot store u16 (as in 2 more), wanted a ggml type
      tensor `float8_e5m2fnuz`: cannot store f8_e5m2fnuz (as in 2 more), wanted a ggml type
      tensor `float8_e4m3fnuz`: cannot store f8_e4m3fnuz (as in 2 more), wanted a ggml type
      tensor `float8_e8m0fnu`: cannot store f8_e8m0 (as in 2 more), wanted a ggml type
      tensor `float8_e4m3fn`: cannot store f8_e4m3 (as in 2 more), wanted a ggml type
      tensor `float8_e5m2`: cannot store f8_e5m2 (as in 2 more), wanted a ggml type
      tensor `uint8`: cannot store u8 (as in 2 more), wanted a ggml type
      tensor `bool`: cannot store bool (as in 2 more), wanted a ggml type
    hint: write another format, or encode them as f32, f16 or bf16
    ");
    tensors.truncate(1);
    tensors.push(tensors[0].clone());
    assert_snapshot!(Draft::safetensors(tensors).err().unwrap(), @"`safetensors`: tensor `uint64`: the name would be there twice");
}

fn small() -> Draft {
    let scheme = tensor::Scheme::plain(tensor::Dtype::U8);
    Draft::safetensors(vec![Outgoing { name: "a".into(), shape: [3].into(), scheme }]).unwrap()
}

fn create(path: &Path, overwrite: bool) -> Result<(), Error> {
    let mut writer = small().create(path, overwrite)?;
    writer.tensor(&[b"abc"])?;
    writer.finish().map(|_| ())
}

#[test]
fn what_is_there_is_only_replaced_when_asked_for_and_when_done() {
    let dir = Dir::new();
    let path = dir.file("a.safetensors", "precious");
    assert_snapshot!(dir.text(&create(&path, false).unwrap_err()), @"
    `DIR/a.safetensors`: already exists
    hint: remove it, or name another destination
    ");
    let writer = small().create(&path, true).unwrap();
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "the temporary file is gone");
    create(&path, true).unwrap();
    assert_eq!(checkpoint::open(&path).unwrap().entries()[0].name, "a");
    // A file that appears during the write is not lost either.
    let late = dir.path("late.safetensors");
    let mut writer = small().create(&late, false).unwrap();
    writer.tensor(&[b"abc"]).unwrap();
    std::fs::write(&late, "mine").unwrap();
    assert_snapshot!(dir.text(&writer.finish().unwrap_err()), @"
    `DIR/late.safetensors`: something has come to be there meanwhile
    hint: what was written is complete, in `DIR/.late.safetensors.partial`: the same again only gives the names
    ");
    assert_eq!(std::fs::read(&late).unwrap(), b"mine");
}

#[test]
fn only_a_model_is_replaced_by_a_directory() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny")).unwrap();
    let write = |name: &str| {
        let draft = Draft::directory(outgoing(&source), files(&source), Flavour::Hf, None).unwrap();
        let mut writer = draft.create(&dir.path(name), true)?;
        for entry in source.entries() {
            let planes = bytes(&source, entry);
            writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        }
        writer.finish()
    };
    write("model").unwrap();
    // Files of another conversion are replaced with it; any other file may be the user's only copy.
    dir.file("model/model-00001-of-00002.safetensors", "old");
    write("model").unwrap();
    assert!(!dir.path("model/model-00001-of-00002.safetensors").exists());
    assert!(dir.path("model/config.json").exists());
    for name in
        ["README.md", "optimizer.pt", "notes/", "a.py", "training_args.bin", "adapter_model.safetensors"]
    {
        let path = dir.path("model").join(name);
        let _ =
            if name.ends_with('/') { std::fs::create_dir(&path) } else { std::fs::write(&path, "precious") };
        let refused = dir.text(&write("model").unwrap_err());
        assert!(refused.contains(name.trim_end_matches('/')), "{refused}");
        assert!(path.exists());
        let _ = if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
    }
    // A file that appears during the write stays too, and the result is not lost.
    let begin = || {
        let draft = Draft::directory(outgoing(&source), files(&source), Flavour::Hf, None).unwrap();
        draft.create(&dir.path("model"), true)
    };
    let finish = |mut writer: checkpoint::Writer| {
        for entry in source.entries() {
            let planes = bytes(&source, entry);
            writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        }
        writer.finish()
    };
    let writer = begin().unwrap();
    dir.file("model/late.txt", "precious");
    let refused = dir.text(&finish(writer).unwrap_err());
    assert!(refused.contains("holds `late.txt`") && refused.contains("only gives the names"), "{refused}");
    assert_eq!(std::fs::read(dir.path("model/late.txt")).unwrap(), b"precious");
    std::fs::remove_file(dir.path("model/late.txt")).unwrap();
    finish(begin().unwrap()).unwrap();
    assert!(!dir.path(".model.partial").exists());
    for name in ["b", "a", "c", "d"] {
        dir.file(&format!("model/{name}"), "precious");
    }
    assert_snapshot!(dir.text(&write("model").unwrap_err()), @"
    `DIR/model`: the directory there holds `a`, `b`, `c` and 1 more, which no conversion writes
    hint: move it, or name another destination: files that may be yours are never removed
    ");
    for name in ["b", "a", "c", "d"] {
        std::fs::remove_file(dir.path("model").join(name)).unwrap();
    }
    dir.file("home/notes.txt", "precious");
    assert_snapshot!(dir.text(&write("home").unwrap_err()), @"`DIR/home`: the directory there is no model, so it is not replaced");
    dir.file("model/deeper/file", "precious");
    assert_snapshot!(dir.text(&write("model").unwrap_err()), @"
    `DIR/model`: the directory there holds `deeper`, which no conversion writes
    hint: move it, or name another destination: files that may be yours are never removed
    ");
    dir.file("file", "precious");
    assert_snapshot!(dir.text(&write("file").unwrap_err()), @"`DIR/file`: a file is there, where a directory is to be");
    std::fs::create_dir(dir.path("empty")).unwrap();
    write("empty").unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir.path(""))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["empty", "file", "home", "model"]);
}

#[test]
fn a_disk_that_is_too_small_is_known_before() {
    let dir = Dir::new();
    let scheme = tensor::Scheme::plain(tensor::Dtype::U8);
    let large = Outgoing { name: "a".into(), shape: [1 << 60].into(), scheme };
    let error = Draft::safetensors(vec![large]).unwrap().create(&dir.path("a"), false).err().unwrap();
    let text = dir.text(&error);
    assert!(
        text.starts_with("cannot write `DIR/a`: 11529215") && text.contains(" bytes are needed, "),
        "{text}"
    );
}

//! Directories: the files looked for, rejected directories, and paths that must not lead out of them.

use std::os::unix::fs::symlink;

use checkpoint::{Error, Fault};
use insta::assert_snapshot;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::build::{Gguf, safetensors};
use crate::{Dir, open_both};

const HEADER: &str =
    r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]}}"#;

fn weights() -> Vec<u8> {
    safetensors(HEADER, 16)
}

fn gguf() -> Vec<u8> {
    Gguf::new().f32("a", &[4]).build()
}

/// `DIR/m` with a `config.json` and `model.safetensors`.
fn model() -> Dir {
    let dir = Dir::new();
    dir.file("m/config.json", r#"{"model_type":"llama"}"#);
    dir.file("m/model.safetensors", weights());
    dir
}

#[test]
fn a_model_directory() {
    let dir = model();
    dir.file("m/tokenizer.json", "{}");
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_eq!((checkpoint.format().name(), checkpoint.location()), ("hf", &dir.path("m").into()));
    let entry = checkpoint.entry("a").expect("there");
    assert_eq!((entry.shape.to_string(), entry.scheme.name.as_ref()), ("[2, 4]".to_owned(), "bf16"));
    assert_eq!(entry.planes[0].bytes, 8 + HEADER.len() as u64..8 + HEADER.len() as u64 + 16);
    let metadata = checkpoint.metadata().hf().expect("hf");
    assert!(checkpoint.metadata().gguf().is_none());
    assert_eq!(metadata.config().expect("there")["model_type"], "llama");
    assert_eq!(metadata.safetensors(), [("format".to_owned(), "pt".to_owned())]);
    assert_eq!(metadata.tokenizer().expect("there").read().expect("readable"), b"{}");
    assert!(metadata.tokenizer_config().is_none() && metadata.chat_template().is_none());
    assert!(metadata.generation_config().is_none());
    assert_eq!(metadata.dir(), &dir.path("m").into());
    assert_eq!(checkpoint.files()[0].location, dir.path("m/model.safetensors").into());
}

#[test]
fn a_safetensors_file_uses_the_config_beside_it_or_none() {
    let dir = model();
    let file = dir.path("m/model.safetensors");
    let checkpoint = open_both(&file).expect("sound");
    assert_eq!(checkpoint.format().name(), "hf");
    assert_eq!(checkpoint.metadata().hf().and_then(|m| m.config()).expect("there")["model_type"], "llama");
    std::fs::remove_file(dir.path("m/config.json")).unwrap();
    let checkpoint = open_both(&file).expect("sound");
    assert_eq!(checkpoint.format().name(), "safetensors");
    assert!(checkpoint.metadata().hf().expect("hf").config().is_none());
}

#[test]
fn one_safetensors_file_of_another_name_is_the_weights() {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file("m/adapter.safetensors", weights());
    assert_eq!(
        open_both(&dir.path("m")).expect("sound").files()[0].location,
        dir.path("m/adapter.safetensors").into()
    );
    dir.file("m/other.safetensors", weights());
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: tensor `a`: is in `adapter.safetensors` and in `other.safetensors`
    hint: if these are different models, open one of the files by its own path
    ");
    dir.file("m/model.safetensors", weights());
    assert_eq!(
        open_both(&dir.path("m")).expect("sound").files()[0].location,
        dir.path("m/model.safetensors").into()
    );
}

#[test]
fn files_of_several_ranks_are_no_one_model() {
    let dir = Dir::new();
    for rank in 0..3 {
        dir.file(&format!("m/model-rank-{rank}-part-0.safetensors"), weights());
        dir.file(&format!("s/model-pp-{}-tp-{}-part-0.safetensors", rank / 2, rank % 2), weights());
    }
    dir.file("m/config.json", "{}");
    assert_snapshot!(dir.error("m"), @"
    unsupported `DIR/m`: holds what each of 3 ranks of vLLM has of a model, under the same names
    hint: open the file of one rank: `DIR/m/model-rank-0-part-0.safetensors`; or, to load the model, what it was made from
    ");
    assert!(open_both(&dir.path("m/model-rank-1-part-0.safetensors")).is_ok());
    dir.file("s/config.json", "{}");
    assert_snapshot!(dir.error("s"), @"
    unsupported `DIR/s`: holds what each of 2 ranks of vLLM in each of 2 stages has of a model, under the same names
    hint: open the file of one rank: `DIR/s/model-pp-0-tp-0-part-0.safetensors`; or, to load the model, what it was made from
    ");
}

#[test]
fn one_gguf_in_a_directory() {
    let dir = Dir::new();
    dir.file("m/model.Q4_0.gguf", gguf());
    dir.file("m/README.md", "");
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_eq!((checkpoint.format().name(), checkpoint.location()), ("gguf", &dir.path("m").into()));
    // A config.json alone changes nothing, safetensors with it do.
    dir.file("m/config.json", "{}");
    assert_eq!(open_both(&dir.path("m")).expect("sound").format().name(), "gguf");
    dir.file("m/model.safetensors", weights());
    assert_eq!(open_both(&dir.path("m")).expect("sound").format().name(), "hf");
}

#[test]
fn two_ggufs_in_a_directory() {
    let dir = Dir::new();
    dir.file("m/a.gguf", gguf());
    dir.file("m/b.gguf", gguf());
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: wanted one GGUF file in the directory, found `a.gguf`, `b.gguf`
    hint: name the file itself: `DIR/m/a.gguf`
    ");
}

#[test]
fn a_directory_without_config() {
    let dir = Dir::new();
    dir.file("m/model.safetensors", weights());
    dir.file("m/tokenizer.json", "{}");
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: wanted a `config.json` beside the safetensors file, found `model.safetensors`, `tokenizer.json`
    hint: copy the model's `config.json` here, or open `DIR/m/model.safetensors` itself for its tensors alone
    ");
}

#[test]
fn a_directory_of_something_else() {
    let dir = Dir::new();
    (0..12).for_each(|i| drop(dir.file(&format!("m/photo{i:02}.jpg"), "")));
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: wanted one GGUF file, safetensors or PyTorch weights (MLX too) with their `config.json`, or .npy files, found `photo00.jpg`, `photo01.jpg`, `photo02.jpg`, `photo03.jpg`, `photo04.jpg`, `photo05.jpg`, `photo06.jpg`, `photo07.jpg` and 4 more
    hint: name the directory that holds the model's files
    ");
}

#[test]
fn an_empty_directory() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("m")).unwrap();
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: wanted one GGUF file, safetensors or PyTorch weights (MLX too) with their `config.json`, or .npy files, found an empty directory
    hint: name the directory that holds the model's files
    ");
}

#[test]
fn a_config_without_weights() {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    assert_snapshot!(dir.error("m"), @"mismatch in `DIR/m`: wanted `model.safetensors` or `pytorch_model.bin` beside `config.json`, found `config.json`");
    dir.file("m/training_args.bin", "PK\x03\x04");
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: wanted `model.safetensors` or `pytorch_model.bin` beside `config.json`, found `config.json`, `training_args.bin`
    hint: name the file itself: `DIR/m/training_args.bin`
    ");
}

#[test]
fn a_bad_config() {
    let dir = model();
    dir.file("m/config.json", "{\n  \"a\": 1,\n  \"b\" 2\n}");
    let syntax = dir.error("m");
    dir.file("m/config.json", "[]");
    let array = dir.error("m");
    dir.file("m/config.json", "{\"a\":".repeat(200));
    let deep = dir.error("m");
    std::fs::File::create(dir.path("m/config.json")).unwrap().set_len((16 << 20) + 1).unwrap();
    assert_snapshot!([syntax, array, deep, dir.error("m")].join("\n"), @"
    malformed `DIR/m/config.json`: not JSON: expected `:` (at byte 18)
    malformed `DIR/m/config.json`: wanted a JSON object, found an array (at byte 0)
    malformed `DIR/m/config.json`: not JSON: recursion limit exceeded (at byte 635)
    malformed `DIR/m/config.json`: length in bytes of 16777217, over the limit of 16777216
    ");
}

#[test]
fn weights_that_are_something_else() {
    let dir = model();
    dir.file("m/model.safetensors", b"version https://git-lfs.github.com/spec/v1\n");
    let pointer = dir.error("m");
    dir.file("m/model.safetensors", gguf());
    let gguf = dir.error("m");
    dir.file("m/model.safetensors", b"");
    assert_snapshot!([pointer, gguf, dir.error("m")].join("\n"), @"
    unsupported `DIR/m/model.safetensors`: the content is a Git LFS pointer, not the file it stands for
    hint: fetch the content: `git lfs pull` in the clone, or download the file from its page
    mismatch in `DIR/m/model.safetensors`: is named as safetensors, but holds gguf
    hint: rename the file to what it holds
    malformed `DIR/m/model.safetensors`: the file is empty
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn links_out_of_the_directory_are_refused() {
    for member in ["config.json", "model.safetensors", "tokenizer.json"] {
        let dir = model();
        let outside =
            dir.file("outside", if member == "model.safetensors" { weights() } else { b"{}".to_vec() });
        let _ = std::fs::remove_file(dir.path("m").join(member));
        symlink(&outside, dir.path("m").join(member)).unwrap();
        let error = checkpoint::open(dir.path("m")).expect_err("leads out");
        assert!(matches!(error.problems()[0].fault, Fault::Outside { .. }), "{error}");
        // A path that the caller names is the caller's choice.
        if member == "model.safetensors" {
            assert_snapshot!(dir.text(&error), @"
    malformed `DIR/m`: `model.safetensors` leads out of the directory, to `DIR/outside`
    hint: copy the file into the directory
    ");
            symlink(&outside, dir.path("mine.safetensors")).unwrap();
            assert!(open_both(&dir.path("mine.safetensors")).is_ok());
        }
    }
}

#[test]
fn links_inside_the_directory_and_inside_a_hub_cache_are_followed() {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file("m/weights/real", weights());
    symlink("weights/real", dir.path("m/model.safetensors")).unwrap();
    assert!(open_both(&dir.path("m")).is_ok());

    let hub = "hub/models--org--name";
    let snapshot = format!("{hub}/snapshots/0123");
    dir.file(&format!("{hub}/blobs/aa"), "{\"model_type\":\"llama\"}");
    dir.file(&format!("{hub}/blobs/bb"), weights());
    std::fs::create_dir_all(dir.path(&snapshot)).unwrap();
    symlink("../../blobs/aa", dir.path(&format!("{snapshot}/config.json"))).unwrap();
    symlink("../../blobs/bb", dir.path(&format!("{snapshot}/model.safetensors"))).unwrap();
    let checkpoint = open_both(&dir.path(&snapshot)).expect("sound");
    assert_eq!(checkpoint.files()[0].location, dir.path(&format!("{snapshot}/model.safetensors")).into());
    assert!(open_both(&dir.path(&format!("{snapshot}/model.safetensors"))).is_ok());

    // The cache of another model is out of bounds.
    dir.file("hub/models--org--other/blobs/cc", weights());
    std::fs::remove_file(dir.path(&format!("{snapshot}/model.safetensors"))).unwrap();
    symlink("../../../models--org--other/blobs/cc", dir.path(&format!("{snapshot}/model.safetensors")))
        .unwrap();
    let error = checkpoint::open(dir.path(&snapshot)).expect_err("leads out");
    assert!(matches!(error.problems()[0].fault, Fault::Outside { .. }), "{error}");
}

#[test]
fn a_broken_link_and_a_loop_are_errors() {
    let dir = model();
    symlink("nowhere", dir.path("m/tokenizer.json")).unwrap();
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Io { .. })));
    std::fs::remove_file(dir.path("m/tokenizer.json")).unwrap();
    symlink("tokenizer.json", dir.path("m/tokenizer.json")).unwrap();
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Io { .. })));
}

#[test]
fn pipes_and_devices_do_not_block() {
    let pipe = |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe is made");
    let dir = model();
    pipe(dir.path("x.gguf"));
    let named = dir.error("x.gguf");
    std::fs::remove_file(dir.path("m/model.safetensors")).unwrap();
    pipe(dir.path("m/model.safetensors"));
    let member = dir.error("m");
    let device = checkpoint::open("/dev/zero").expect_err("a device");
    assert!(matches!(device, Error::Misuse(_)));
    assert_snapshot!([named, member, device.to_string()].join("\n"), @"
    `DIR/x.gguf`: wanted a regular file, found a named pipe
    malformed `DIR/m/model.safetensors`: wanted a regular file, found a named pipe
    `/dev/zero`: wanted a regular file, found a device
    ");
}

#[test]
fn a_directory_as_a_member() {
    let dir = model();
    std::fs::create_dir(dir.path("m/tokenizer.json")).unwrap();
    assert_snapshot!(dir.error("m"), @"malformed `DIR/m/tokenizer.json`: wanted a regular file, found a directory");
}

#[test]
fn a_path_that_is_not_there() {
    let dir = Dir::new();
    dir.file("smollm2.gguf", gguf());
    let near = dir.error("smolm2.gguf");
    let far = dir.error("zzz");
    assert_snapshot!([near, far, dir.error("nowhere/x.gguf")].join("\n"), @"
    cannot open `DIR/smolm2.gguf`: No such file or directory (os error 2)
    hint: did you mean `DIR/smollm2.gguf`?
    cannot open `DIR/zzz`: No such file or directory (os error 2)
    cannot open `DIR/nowhere/x.gguf`: No such file or directory (os error 2)
    hint: there is no directory `DIR/nowhere`
    ");
}

#[test]
fn a_member_that_grows_or_is_over_the_limit_is_not_read() {
    let dir = model();
    let path = dir.file("m/tokenizer.json", "{}");
    let checkpoint = checkpoint::open(dir.path("m")).expect("sound");
    let member = checkpoint.metadata().hf().and_then(|m| m.tokenizer()).expect("there");
    std::fs::File::create(&path).unwrap().set_len((256 << 20) + 1).unwrap();
    assert!(matches!(member.read(), Err(Error::Changed { .. })));
    let long = checkpoint::open(dir.path("m")).expect("sound");
    let long = long.metadata().hf().and_then(|m| m.tokenizer()).expect("there");
    assert!(matches!(long.read(), Err(Error::Malformed(_))));
    std::fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(member.read().is_err());
}

//! `docs/tasks.md`: what people type, what they are answered, and the exit code. Every command in it is run.

use std::fs;
use std::path::Path;

use testkit::model;
use trycmd::TestCases;

use crate::files::hf_directory;
use crate::golden;

/// Makes the files that the tasks are about in `folder`.
fn files(folder: &Path) {
    let dir = |name: &str| {
        let dir = folder.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    };
    fs::copy(model("smollm2"), folder.join("smollm2.gguf")).unwrap();
    let whole = fs::read(model("smollm2")).unwrap();
    fs::write(folder.join("cut.gguf"), &whole[..1_000_000]).unwrap();
    fs::write(folder.join("question.txt"), "Say hello.").unwrap();
    let gpt2 = dir("gpt2");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden().join("gpt2-tiny").join(file), gpt2.join(file)).unwrap();
    }
    let adapter = dir("adapter");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(testkit::golden("lora").join("gpt2").join(file), adapter.join(file)).unwrap();
    }
    let llama = dir("llama");
    hf_directory(&llama, |_| ());
    fs::copy(llama.join("model.safetensors"), folder.join("bare.safetensors")).unwrap();
    hf_directory(&dir("broken"), |tensors| {
        for (name, shape, _) in tensors {
            match name.as_str() {
                "model.norm.weight" => "surprise".clone_into(name),
                "model.layers.1.mlp.up_proj.weight" => shape.reverse(),
                _ => {}
            }
        }
    });
    hf_directory(&dir("renamed"), |tensors| {
        for (name, ..) in tensors {
            *name = name.replace("model.layers.", "blocks.");
        }
    });
    let rule = "rule = [{ from = \"blocks.{rest..}\", to = \"model.layers.{rest..}\" }]\n";
    fs::write(folder.join("mine.toml"), rule).unwrap();
    hf_directory(&dir("nan"), |tensors| {
        let norm = tensors.iter_mut().find(|(name, ..)| name == "model.norm.weight").unwrap();
        norm.2[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let odd = dir("odd");
    hf_directory(&odd, |_| ());
    let config = fs::read_to_string(odd.join("config.json")).unwrap();
    fs::write(odd.join("config.json"), config.replacen('{', "{ \"secret_sauce\": 7,", 1)).unwrap();
}

/// `TRYCMD=dump` in the environment writes what is answered now into the folder `dump`.
#[test]
fn the_tasks_of_the_documentation() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks.md");
    // The processor decides which kernels are listed.
    let tasks =
        fs::read_to_string(tasks).unwrap().replace("run on scalar avx2 avx512vnni", "run on scalar[..]");
    fs::write(dir.path().join("tasks.md"), tasks).unwrap();
    let folder = dir.path().join("tasks.in");
    fs::create_dir(&folder).unwrap();
    files(&folder);
    TestCases::new()
        .register_bin("weighbridge", Path::new(env!("CARGO_BIN_EXE_weighbridge")))
        .env("HOME", dir.path().to_str().unwrap())
        .env("COLUMNS", "120")
        .env("WEIGHBRIDGE_CPU", "scalar")
        .case(dir.path().join("tasks.md"))
        .run();
}

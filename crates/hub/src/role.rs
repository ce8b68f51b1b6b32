//! What a file of a model directory is, by its name.

/// The most bytes of a file that counts as small: a tokenizer.json with a large vocabulary has a third of this.
const SMALL: u64 = 128 << 20;

/// A format of weights that a directory holds.
pub(crate) struct Format {
    /// The index of weights in several files.
    pub(crate) index: &'static str,
    /// The file of weights in one.
    pub(crate) single: &'static str,
    extensions: &'static [&'static str],
    /// Files with these beginnings are no weights.
    not: &'static [&'static str],
}

pub(crate) const SAFETENSORS: Format = Format {
    index: "model.safetensors.index.json",
    single: "model.safetensors",
    extensions: &[".safetensors"],
    not: &[],
};

pub(crate) const PYTORCH: Format = Format {
    index: "pytorch_model.bin.index.json",
    single: "pytorch_model.bin",
    extensions: &[".bin", ".pt", ".pth"],
    not: &["training_args", "optimizer", "scheduler", "rng_state", "scaler"],
};

impl Format {
    pub(crate) fn has(&self, path: &str) -> bool {
        self.extensions.iter().any(|end| path.ends_with(end))
            && !self.not.iter().any(|start| path.starts_with(start))
    }

    pub(crate) fn is_index(&self, path: &str) -> bool {
        path.strip_suffix(".index.json").is_some_and(|path| self.has(path))
    }
}

/// Whether it is a folder of a module of sentence-transformers: a number, then a name.
pub(crate) fn is_module(folder: &str) -> bool {
    folder.split_once('_').is_some_and(|(number, _)| number.parse::<u8>().is_ok())
}

/// Whether it is a small file that describes the model, its tokenizer or its modules.
pub(crate) fn is_companion(path: &str, size: Option<u64>) -> bool {
    const EXTENSIONS: &[&str] = &[".json", ".txt", ".model", ".jinja", ".tiktoken"];
    // Folders of other formats, and of states of training.
    const OTHERS: &[&str] =
        &["original", "onnx", "openvino", "coreml", "flax", "tf", "rust", "runs", "gguf", "mlx"];
    let folder = path.split_once('/').map(|(folder, _)| folder.to_ascii_lowercase());
    let is_other = folder.is_some_and(|folder| {
        OTHERS.contains(&folder.as_str()) || folder.starts_with("checkpoint-") || folder.starts_with('.')
    });
    EXTENSIONS.iter().any(|end| path.ends_with(end))
        && !path.ends_with(".index.json")
        && !path.starts_with('.')
        && !is_other
        && size.is_none_or(|size| size <= SMALL)
}

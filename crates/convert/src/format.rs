//! The formats that can be written: names, encodings, and what each refuses.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, Flavour, Metadata};
use model::{DialectName, Model};
use planner::encoding::fits;
use planner::{LayoutKind, describe};
use tensor::{Diagnostic, Scheme, Shape};

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// numpy arrays in one file: plain dtypes.
    Npz,
    /// One safetensors file: plain dtypes.
    Safetensors,
    /// An ONNX model of initializers without nodes, and a file with their data: plain dtypes.
    Onnx,
    /// GGUF.
    Gguf,
    /// A directory as transformers reads it.
    Hf,
    /// A directory as mlx-lm reads it.
    Mlx,
    /// numpy arrays, a file each, in a directory: plain dtypes.
    NpyDir,
    /// A directory as CTranslate2 and faster-whisper read it: Whisper.
    Ctranslate2,
    /// A file of whisper.cpp, `ggml-….bin`: Whisper.
    Ggml,
}

impl OutputFormat {
    /// Every format.
    pub const ALL: &[OutputFormat] = &[
        OutputFormat::Gguf,
        OutputFormat::Hf,
        OutputFormat::Mlx,
        OutputFormat::Safetensors,
        OutputFormat::Npz,
        OutputFormat::NpyDir,
        OutputFormat::Onnx,
        OutputFormat::Ctranslate2,
        OutputFormat::Ggml,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Npz => "npz",
            OutputFormat::Safetensors => "safetensors",
            OutputFormat::Onnx => "onnx",
            OutputFormat::Gguf => "gguf",
            OutputFormat::Hf => "hf",
            OutputFormat::Mlx => "mlx",
            OutputFormat::NpyDir => "npy-dir",
            OutputFormat::Ctranslate2 => "ctranslate2",
            OutputFormat::Ggml => "ggml",
        }
    }

    /// Whether it is a directory of files.
    pub fn is_directory(self) -> bool {
        matches!(
            self,
            OutputFormat::Hf | OutputFormat::Mlx | OutputFormat::NpyDir | OutputFormat::Ctranslate2
        )
    }

    /// The format that a path's extension stands for, or a name such as `ggml-base.bin`.
    pub fn of_path(path: impl AsRef<Path>) -> Option<OutputFormat> {
        let path = path.as_ref();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("ggml-") && name.ends_with(".bin") {
            return Some(OutputFormat::Ggml);
        }
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        let files = [OutputFormat::Npz, OutputFormat::Safetensors, OutputFormat::Onnx, OutputFormat::Gguf];
        files.into_iter().find(|f| f.name() == extension)
    }

    /// The layout that its readers want, if they want one.
    pub(crate) fn layout(self) -> Option<LayoutKind> {
        match self {
            OutputFormat::Gguf => Some(LayoutKind::Named(DialectName::Gguf)),
            OutputFormat::Hf => Some(LayoutKind::Named(DialectName::Hf)),
            OutputFormat::Mlx => Some(LayoutKind::Mlx),
            OutputFormat::Ctranslate2 => Some(LayoutKind::Named(DialectName::Ctranslate2)),
            OutputFormat::Ggml => Some(LayoutKind::Named(DialectName::Openai)),
            OutputFormat::Npz | OutputFormat::Safetensors | OutputFormat::Onnx | OutputFormat::NpyDir => None,
        }
    }

    /// The layout in which [`compress`](crate::compress) writes it: that of its readers. squish's are names of transformers.
    pub fn compressed_layout(self) -> LayoutKind {
        match self {
            OutputFormat::NpyDir => LayoutKind::Named(DialectName::Hf),
            _ => LayoutKind::Source,
        }
    }

    /// Whether it can hold tensors of a scheme.
    pub(crate) fn holds(self, scheme: &Scheme, shape: &Shape) -> bool {
        let parts = || quant::codec(&scheme.name).is_some_and(|codec| !codec.parts(shape).is_empty());
        match self {
            OutputFormat::Gguf => checkpoint::gguf_holds(scheme),
            OutputFormat::Ctranslate2 => checkpoint::ctranslate2_holds(scheme),
            OutputFormat::Ggml => checkpoint::ggml_holds(scheme),
            OutputFormat::Hf | OutputFormat::Mlx => {
                scheme.dtype().is_some() || (parts() && !is_of_one_reader(scheme))
            }
            OutputFormat::NpyDir => {
                scheme.dtype().is_some()
                    || (of_squish(scheme) && shape.len() > 1 && fits(scheme, shape).is_ok())
            }
            OutputFormat::Npz | OutputFormat::Safetensors | OutputFormat::Onnx => scheme.dtype().is_some(),
        }
    }

    /// What it has for tensors of `scheme`, which it does not hold: the same codes, with scales of another dtype.
    pub(crate) fn like(self, scheme: &Scheme, shape: &Shape) -> Option<Arc<Scheme>> {
        let (family, params) = scheme.name.split_once(':')?;
        let name = match (self, family) {
            // In 16 bits, as mlx-lm has them.
            (OutputFormat::Mlx, "squish-q4a") => format!("mlx-affine:b4,{params},f16"),
            (OutputFormat::NpyDir, "mlx-affine") => {
                let group = params.strip_prefix("b4,")?.split_once(',')?.0;
                format!("squish-q4a:{group}")
            }
            _ => return None,
        };
        let like = quant::scheme(&name)?;
        (fits(&like, shape).is_ok() && self.takes(&like, shape)).then_some(like)
    }

    /// Whether tensors may be encoded in a scheme for it: one that its readers know.
    pub(crate) fn takes(self, scheme: &Scheme, shape: &Shape) -> bool {
        let says = match self {
            OutputFormat::Hf => Flavour::Hf.says(scheme),
            OutputFormat::Mlx => Flavour::Mlx.says(scheme),
            _ => true,
        };
        says && self.holds(scheme, shape)
    }

    /// The reason why it cannot be written from `checkpoint` in `layout`, if there is one.
    pub(crate) fn refuses(self, checkpoint: &Checkpoint, layout: LayoutKind) -> Option<Diagnostic> {
        let others = "npz and safetensors take any tensors under any names";
        let (what, hint) = match (self.layout(), layout) {
            (_, LayoutKind::InPlace | LayoutKind::Packed { .. }) => (
                format!("the layout `{}` is only for this machine: no other program reads it", layout.name()),
                "source, canonical, hf or gguf".to_owned(),
            ),
            (
                Some(home),
                LayoutKind::Canonical
                | LayoutKind::Modules
                | LayoutKind::Of(_)
                | LayoutKind::Named(_)
                | LayoutKind::Mlx,
            ) if layout != home && !(layout == vllm::LAYOUT && self == OutputFormat::Hf) => (
                format!(
                    "{} has its own tensor names, so the layout `{}` cannot be written to it",
                    self.name(),
                    layout.name()
                ),
                format!("name no layout; {others}"),
            ),
            (Some(_), _) if dialect_of(checkpoint).is_none() => (
                format!(
                    "{} files name their model, and `{}` is {}, which does not",
                    self.name(),
                    checkpoint.location(),
                    checkpoint.format()
                ),
                others.to_owned(),
            ),
            _ => return None,
        };
        Some(Diagnostic::new(what).with_hint(hint))
    }
}

/// Whether a scheme is one that only squish or CTranslate2 reads.
pub(crate) fn is_of_one_reader(scheme: &Scheme) -> bool {
    of_squish(scheme) || scheme.name.starts_with("ctranslate2-")
}

/// Whether a scheme is an encoding of squish.
pub(crate) fn of_squish(scheme: &Scheme) -> bool {
    scheme.name.starts_with("squish-")
}

/// Returns the ecosystem whose keys describe a checkpoint's model.
fn dialect_of(checkpoint: &Checkpoint) -> Option<DialectName> {
    match checkpoint.metadata() {
        Metadata::Gguf(_) => Some(DialectName::Gguf),
        Metadata::Hf(hf) => hf.config().map(|_| DialectName::Hf),
        // Of other specifications of CTranslate2, no family is known.
        Metadata::Ctranslate2(_) | Metadata::Openai(_) => {
            Model::claimed(checkpoint.metadata()).map(|(_, dialect)| dialect)
        }
        _ => None,
    }
}

/// Returns the layout of the checkpoint's own files. If the model is unknown, nothing tells mlx-lm's names from those
/// of transformers, and either is written as stored.
pub(crate) fn own_layout(checkpoint: &Checkpoint, format: OutputFormat) -> Option<LayoutKind> {
    let dialect = dialect_of(checkpoint)?;
    // Files of these are written anew from what they say, whatever form it is in.
    if matches!(format, OutputFormat::Ctranslate2 | OutputFormat::Ggml) {
        return None;
    }
    if dialect != DialectName::Hf {
        return Some(LayoutKind::Named(dialect));
    }
    let names = checkpoint.entries().iter().map(|entry| entry.name.as_str());
    let is_mlx = match describe(checkpoint) {
        Ok(model) if model.differs_in_mlx() => model.is_named_as_mlx(names),
        _ => format == OutputFormat::Mlx,
    };
    Some(if is_mlx { LayoutKind::Mlx } else { LayoutKind::Named(dialect) })
}

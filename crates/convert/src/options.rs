//! Options of a conversion.

use std::fmt;
use std::sync::Arc;

use checkpoint::Split;
use model::Mesh;
use planner::{Adapter, EncodeRule, LayoutKind, Preset};
use tensor::Diagnostic;

use crate::{Feedbacks, Imatrix, OutputFormat, Scaling};

/// How to convert.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct ConvertOptions<'a> {
    /// How the source is read: rules, and what may be absent.
    pub adapter: Adapter,
    /// Rules for encoding, the first that matches wins.
    pub rules: Vec<EncodeRule>,
    /// For what no rule matches.
    pub preset: Option<&'static Preset>,
    /// How much columns matter.
    pub imatrix: Option<&'a Imatrix>,
    /// How the errors of columns make each other good; takes the place of how much they matter.
    pub compensation: Option<&'a dyn Feedbacks>,
    /// By how much columns are multiplied before they are encoded, and norms divided.
    pub scaling: Option<&'a Scaling>,
    /// Finite values may become infinite in a cast.
    pub allow_overflow: bool,
    /// Quantised weights may be quantised again to another encoding, which loses more than quantising floats once.
    pub allow_requantize: bool,
    /// Keys of the configuration that may be lost, where the format cannot say them.
    pub allow_loss: Vec<String>,
    /// Replaces an existing destination.
    pub overwrite: bool,
    /// Bytes of tensors in a file of an HF or MLX directory [default: as much as transformers or mlx-lm writes].
    pub max_shard: Option<u64>,
    /// A directory of arrays: each is compressed with zstd where that makes it smaller.
    pub zstd: bool,
    /// GGUF is cut into several files.
    pub split: Option<Split>,
    /// Tensors of GGUF begin at multiples of this many bytes, a power of two from 8 on [default: as the source's do, or 32].
    pub alignment: Option<u32>,
    /// The ranks that share the model: each gets files of its own.
    pub mesh: Mesh,
    /// Bytes after which the result so far is made durable, and kept if the conversion is interrupted
    /// [default: 256 MiB].
    pub sync_every: Option<u64>,
    /// Limits the bytes of one tensor, in its old form and its new one, and of all buffers together. What is not possible
    /// within it is refused before anything is written.
    pub memory: Option<u64>,
    /// `LoRA` adapters that are merged.
    pub loras: Vec<Arc<lora::Adapter>>,
}

impl fmt::Debug for ConvertOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvertOptions").finish_non_exhaustive()
    }
}

impl ConvertOptions<'_> {
    /// The reason why `format` cannot honour them, if there is one.
    pub(crate) fn refuses(&self, format: OutputFormat, layout: LayoutKind) -> Option<Diagnostic> {
        let name = format.name();
        if self.mesh.is_many() && (format != OutputFormat::Hf || layout != vllm::LAYOUT) {
            let what = format!("{name} in the layout `{}` cannot be split across ranks", layout.name());
            let hint = "use the format hf in the layout vllm, which vLLM's ranks load".to_owned();
            return Some(Diagnostic::new(what).with_hint(hint));
        }
        let what = if self.max_shard.is_some() && !matches!(format, OutputFormat::Hf | OutputFormat::Mlx) {
            format!("{name} is not sharded: only hf and mlx directories are")
        } else if self.zstd && format != OutputFormat::NpyDir {
            format!("{name} is not compressed with zstd: only npy-dir is")
        } else if self.split.is_some() && format != OutputFormat::Gguf {
            format!("{name} is not split into files: only gguf is")
        } else {
            match self.alignment {
                Some(_) if format != OutputFormat::Gguf => {
                    format!("{name} has no alignment to choose: only gguf has")
                }
                Some(n) if !n.is_power_of_two() || n < 8 => {
                    format!("gguf cannot be aligned to {n} bytes: wanted a power of two from 8 on")
                }
                _ => return None,
            }
        };
        Some(Diagnostic::new(what))
    }
}

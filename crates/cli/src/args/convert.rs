//! `convert`.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::convert::{OutputFormat, Split};
use weighbridge::planner::Preset;

use super::number::whole;
use super::size::file_size;
use super::{AdapterArgs, AlsoArgs, EncodingArgs, LayoutArg, LoraArgs, MeshArgs, StrictArgs, size};

/// The engine whose ranks hold the files.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FromArg {
    /// `model-rank-R-part-P.safetensors`, as `--layout vllm` writes them
    Vllm,
}

/// `convert`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "`--encode PATTERN=SCHEME` matches whole tensor names; `*` matches any characters. Only floats are \
    encoded. `convert SRC OUT.npz --encode '*=f32'` decodes any file, whatever its architecture.\n\n\
    A SIZE is in bytes, or has a unit: 500MB, 2GiB; K, M, G and T alone are decimal.\n\n\
    Until the conversion is complete, its output is in `.DESTINATION.partial`. If it was killed or interrupted, or if it \
    failed, run the same command again: if the source is unchanged, it continues and writes the same bytes. To discard \
    it, remove that directory. In a bucket it holds a journal of the parts that were sent.\n\n\
    Examples:\n  \
    weighbridge convert model.gguf small.gguf --preset q4_k_m         as llama-quantize chooses\n  \
    weighbridge convert model/ half/ --to hf --encode '*=bf16' --max-shard-size 5GB\n  \
    weighbridge convert big.gguf parts.gguf --split-max-size 2G       parts-00001-of-00007.gguf …\n  \
    weighbridge convert model.gguf arrays/ --to npy-dir --encode '*=f32'\n  \
    weighbridge convert whisper-base/ ggml-base.bin --preset q5_0     for whisper.cpp\n  \
    weighbridge convert s3://bucket/model/ s3://bucket/small.gguf --preset q4_k_m"
)]
pub(crate) struct ConvertArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    pub(crate) source: PathBuf,
    /// The file or directory to write, or its URL in a bucket (s3, gs, az). It appears when it is complete
    #[arg(value_parser = super::written_or_bucket())]
    pub(crate) destination: PathBuf,
    /// The format to write [default: by the extension of DESTINATION]
    #[arg(long, value_enum)]
    to: Option<FormatArg>,
    /// The names and shapes to write [default: those of the format; for npz, safetensors, onnx and npy-dir, those of the source]
    #[arg(long, value_enum, default_value_t = LayoutArg::Source, hide_default_value = true)]
    pub(crate) layout: LayoutArg,
    /// Join a source that holds one file or more for each rank of ENGINE. Repeat `--whole-experts` and `--experts` as
    /// they were when it was written; the number of ranks is in the file names
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = ["tp", "pp", "ep"])]
    pub(crate) from: Option<FromArg>,
    #[command(flatten)]
    pub(crate) also: AlsoArgs,
    #[command(flatten)]
    pub(crate) mesh: MeshArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    /// Weight rounding errors by the importance matrix in FILE, made by llama.cpp's llama-imatrix
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// Allow casts that turn finite values into infinities
    #[arg(long)]
    pub(crate) allow_overflow: bool,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// GGUF: the most tensor bytes in a file. DESTINATION.gguf becomes DESTINATION-00001-of-00003.gguf and so on
    #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "split_max_tensors")]
    split_max_size: Option<u64>,
    /// GGUF: the most tensors in a file
    #[arg(long, value_name = "N", value_parser = whole(1u64, None))]
    split_max_tensors: Option<u64>,
    /// GGUF: align tensors to this many bytes, a power of two, at least 8 [default: as in the source, or 32]
    #[arg(long, value_name = "BYTES")]
    pub(crate) alignment: Option<u32>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) lora: LoraArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of every command that writes a checkpoint.
#[derive(ClapArgs)]
pub(crate) struct WriteArgs {
    /// Allow quantised weights to be quantised again in another encoding, which loses more
    #[arg(long)]
    pub(crate) allow_requantize: bool,
    /// Allow configuration keys to be lost that the format cannot store. Repeat it, or separate keys with commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub(crate) allow_loss: Vec<String>,
    /// hf and mlx: the most tensor bytes in a file [default: 50GB for hf and 5GiB for mlx, as in transformers and
    /// mlx-lm]
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub(crate) max_shard_size: Option<u64>,
    /// npy-dir: compress each array with zstd where that makes it smaller (.npy.zst). Every start decompresses them
    #[arg(long)]
    pub(crate) zstd: bool,
    /// Limit the tensor that is being converted, in its old and new form, and all buffers together to SIZE [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Flush to disk after each SIZE written. A command that is interrupted loses at most that much [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) sync_every: Option<u64>,
    /// Replace an existing destination
    #[arg(long)]
    pub(crate) force: bool,
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
}

/// A format to write by name.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum FormatArg {
    /// One archive of numpy arrays, plain dtypes only
    Npz,
    /// One safetensors file, plain dtypes only
    Safetensors,
    /// The weights as initializers of an ONNX graph without nodes, and DESTINATION.data with their values, plain dtypes only
    Onnx,
    /// GGUF, with the configuration and the tokenizer
    Gguf,
    /// A directory for Hugging Face transformers
    Hf,
    /// A directory for mlx-lm
    Mlx,
    /// A directory of .npy files, with the encodings of squish
    NpyDir,
    /// A directory that CTranslate2 and faster-whisper read: Whisper
    Ctranslate2,
    /// A file that whisper.cpp reads, ggml-NAME.bin: Whisper
    Ggml,
}

impl ConvertArgs {
    /// Where GGUF is cut.
    pub(crate) fn split(&self) -> Option<Split> {
        self.split_max_size.map(Split::Bytes).or(self.split_max_tensors.map(Split::Tensors))
    }

    /// The format: as asked for, or as the destination's extension says.
    pub(crate) fn format(&self) -> Result<OutputFormat, String> {
        const FORMATS: &str = "npz, safetensors, onnx, gguf, hf, mlx, npy-dir, ctranslate2 or ggml";
        format(self.to, &self.source, &self.destination, FORMATS)
    }
}

/// The format that is asked for, or else that of the destination's extension; `formats` lists those that there are.
pub(super) fn format(
    to: Option<FormatArg>,
    source: &Path,
    destination: &Path,
    formats: &str,
) -> Result<OutputFormat, String> {
    let shown = destination.display();
    let by_name = OutputFormat::of_path(destination);
    let asked = match to {
        None => {
            return by_name.ok_or_else(|| match shown.to_string() {
                name if Preset::named(&name).is_some() => {
                    format!(
                        "no destination is given\nhint: `weighbridge convert {} OUT.gguf --preset {name}`",
                        crate::style::shown(source)
                    )
                }
                name => format!("the name of `{name}` does not say its format\nhint: add `--to` {formats}"),
            });
        }
        Some(FormatArg::Npz) => OutputFormat::Npz,
        Some(FormatArg::Safetensors) => OutputFormat::Safetensors,
        Some(FormatArg::Onnx) => OutputFormat::Onnx,
        Some(FormatArg::Gguf) => OutputFormat::Gguf,
        Some(FormatArg::Hf) => OutputFormat::Hf,
        Some(FormatArg::Mlx) => OutputFormat::Mlx,
        Some(FormatArg::NpyDir) => OutputFormat::NpyDir,
        Some(FormatArg::Ctranslate2) => OutputFormat::Ctranslate2,
        Some(FormatArg::Ggml) => OutputFormat::Ggml,
    };
    match by_name {
        Some(named) if named != asked => Err(format!(
            "`--to {}` does not write `{shown}`, which has the extension of {}\nhint: {}",
            asked.name(),
            named.name(),
            if asked.is_directory() {
                "name a directory, without an extension".to_owned()
            } else {
                let name = match asked {
                    OutputFormat::Ggml => destination.with_extension("bin"),
                    _ => destination.with_extension(asked.name()),
                };
                format!("name it `{}`", name.display())
            }
        )),
        _ => Ok(asked),
    }
}

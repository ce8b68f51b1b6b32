//! `convert`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::convert::{OutputFormat, Split};

use super::size::file_size;
use super::{AdapterArgs, AlsoArgs, EncodingArgs, LayoutArg, MeshArgs, StrictArgs, size};

/// Whose ranks hold the files.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FromArg {
    /// `model-rank-R-part-P.safetensors`, as `--layout vllm` writes them
    Vllm,
}

/// `convert`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "A rule is PATTERN=SCHEME, where the pattern is for whole names and `*` is any run of \
    characters. Only tensors of floats are encoded. `convert SRC OUT.npz --encode '*=f32'` decodes any file, whatever \
    its architecture.\n\n\
    A SIZE is in bytes, or has a unit: 500MB, 2GiB; K, M, G and T alone are decimal.\n\n\
    What is being written is in `.DESTINATION.partial` until all of it is. A conversion that was killed, interrupted \
    or failed is continued by the same command, if the source is unchanged, and gives the same bytes. To give it up, \
    remove that directory.\n\n\
    Examples:\n  \
    weighbridge convert model.gguf small.gguf --preset q4_k_m         as llama-quantize chooses\n  \
    weighbridge convert model/ half/ --to hf --encode '*=bf16' --max-shard-size 5GB\n  \
    weighbridge convert big.gguf parts.gguf --split-max-size 2G       parts-00001-of-00007.gguf …\n  \
    weighbridge convert model.gguf arrays/ --to npy-dir --encode '*=f32'"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct ConvertArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
    pub(crate) source: PathBuf,
    /// The file or directory to write; nothing is there before all of it is
    pub(crate) destination: PathBuf,
    /// The format to write [default: what the destination's extension says]
    #[arg(long, value_enum)]
    to: Option<FormatArg>,
    /// Whose names and shapes [default: those of the format; of the source for npz and safetensors]
    #[arg(long, value_enum, default_value_t = LayoutArg::Source, hide_default_value = true)]
    pub(crate) layout: LayoutArg,
    /// The source is a directory of files that ranks hold, and is put together again; how experts were dealt must be said
    /// (`--whole-experts`, `--experts`), the number of ranks not
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = ["tp", "pp", "ep"])]
    pub(crate) from: Option<FromArg>,
    #[command(flatten)]
    pub(crate) also: AlsoArgs,
    #[command(flatten)]
    pub(crate) mesh: MeshArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    /// How much columns matter: a file that llama.cpp's llama-imatrix made
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// Let finite values become infinite in a cast
    #[arg(long)]
    pub(crate) allow_overflow: bool,
    /// Let weights that are quantised already be quantised again in another encoding, which loses more
    #[arg(long)]
    pub(crate) allow_requantize: bool,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Let a key of the configuration be lost that the format cannot say; several: repeat, or separate with commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub(crate) allow_loss: Vec<String>,
    /// Of an hf or mlx directory: bytes of tensors in a file [default: 50GB for hf, 5GiB for mlx, as transformers
    /// and mlx-lm have it]
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub(crate) max_shard_size: Option<u64>,
    /// Of GGUF: bytes of tensors in a file; DESTINATION.gguf becomes DESTINATION-00001-of-00003.gguf and so on
    #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "split_max_tensors")]
    split_max_size: Option<u64>,
    /// Of GGUF: tensors in a file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    split_max_tensors: Option<u64>,
    /// Of GGUF: where tensors begin, in bytes, a power of two from 8 on [default: as in the source, or 32]
    #[arg(long, value_name = "BYTES")]
    pub(crate) alignment: Option<u32>,
    /// Make the result durable each time this many bytes are written, so that no more is lost if you interrupt it; a
    /// shorter result is not kept [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) sync_every: Option<u64>,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    /// Replace what is at the destination
    #[arg(long)]
    pub(crate) force: bool,
    /// Threads [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A format to write by name.
#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    /// numpy arrays: plain dtypes
    Npz,
    /// One safetensors file: plain dtypes
    Safetensors,
    /// GGUF: one file with the model's numbers and its tokenizer
    Gguf,
    /// A directory as transformers reads it
    Hf,
    /// A directory as mlx-lm reads it
    Mlx,
    /// A directory of numpy arrays: plain dtypes
    NpyDir,
}

impl ConvertArgs {
    /// Where GGUF is cut.
    pub(crate) fn split(&self) -> Option<Split> {
        self.split_max_size.map(Split::Bytes).or(self.split_max_tensors.map(Split::Tensors))
    }

    /// The format: as asked for, or as the destination's extension says.
    pub(crate) fn format(&self) -> Result<OutputFormat, String> {
        match self.to {
            Some(FormatArg::Npz) => Ok(OutputFormat::Npz),
            Some(FormatArg::Safetensors) => Ok(OutputFormat::Safetensors),
            Some(FormatArg::Gguf) => Ok(OutputFormat::Gguf),
            Some(FormatArg::Hf) => Ok(OutputFormat::Hf),
            Some(FormatArg::Mlx) => Ok(OutputFormat::Mlx),
            Some(FormatArg::NpyDir) => Ok(OutputFormat::NpyDir),
            None => OutputFormat::of_path(&self.destination).ok_or_else(|| {
                format!(
                    "the name of `{}` does not say its format\nhint: say it: --to npz, safetensors, gguf, hf, mlx or npy-dir",
                    self.destination.display()
                )
            }),
        }
    }
}

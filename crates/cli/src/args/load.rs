//! `load`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::check::with_manifest;
use super::number::whole;
use super::size::size;
use super::{AdapterArgs, CacheArg, EncodingArgs, LayoutArg, LoraArgs, OpenArgs, RankArgs};

/// `load`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "`load` measures loading and shows that it works; it keeps nothing, unless `--cache write` has it keep a copy that \
    the next start maps. The time runs from before the \
    files are opened until every parameter is in memory. It excludes process start and the release of memory.\n\n\
    `--memory` limits buffers, which hold what is read before it is moved or re-encoded. Bytes that are read straight \
    into a parameter need no buffer. The parameters themselves are not counted.\n\n\
    Examples:\n  \
    weighbridge load model.gguf                             as `run` does\n  \
    weighbridge load model/ --layout source --owned         any checkpoint, all of it copied\n  \
    weighbridge load model/ --owned --memory 64MiB --json   with bounded buffers\n  \
    weighbridge load model/ --encode 'layers.*=q8_0'        re-encoded while it loads\n  \
    weighbridge load model/ --layout vllm --tp 4 --rank 2   one rank's share; with --cache write, one copy of a set of four\n  \
    weighbridge load model.gguf --verify                    against the manifest beside it"
)]
#[expect(
    clippy::option_option,
    reason = "a flag that may be given, and may have a value, as clap derives it"
)]
pub(crate) struct LoadArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    #[arg(required_unless_present = "verify")]
    path: Option<PathBuf>,
    /// The layout of the parameters in memory
    #[arg(long, value_enum, default_value_t = LayoutArg::Packed)]
    pub(crate) layout: LayoutArg,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    #[command(flatten)]
    pub(crate) lora: LoraArgs,
    #[command(flatten)]
    pub(crate) share: RankArgs,
    /// Copy all parameters into memory; none stay in the map
    #[arg(long)]
    pub(crate) owned: bool,
    /// Limit the buffers of all threads together to SIZE [default: no limit, which takes a few MiB a thread]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Check the tensors against the manifest FILE while they are read [default: the manifest beside PATH]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) verify: Option<Option<PathBuf>>,
    /// Copies of loaded weights: use one that is there, or also build it, after the measured load [default: off]
    #[arg(long, value_enum, conflicts_with_all = ["owned", "verify"])]
    pub(crate) cache: Option<CacheArg>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LoadArgs {
    /// The checkpoint, and the manifest to hold it against.
    pub(crate) fn paths(&self) -> Result<(PathBuf, Option<PathBuf>), String> {
        with_manifest(self.path.as_deref(), self.verify.as_ref())
    }
}

//! `load`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::check::with_manifest;
use super::size::size;
use super::{AdapterArgs, EncodingArgs, LayoutArg, OpenArgs, RankArgs};

/// `load`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Nothing is kept: this measures loading, and shows that it works. Seconds count from before the \
    files are opened until every parameter is in its place; starting the process and letting the memory go are not in \
    them.\n\n\
    `--memory` limits buffers: what is read before it can be moved or re-encoded. What goes straight into its place \
    needs none, and the places themselves are not counted.\n\n\
    Examples:\n  \
    weighbridge load model.gguf                             as `run` does\n  \
    weighbridge load model/ --layout source --owned         any checkpoint, into memory of its own\n  \
    weighbridge load model/ --owned --memory 64MiB --json   in bounded memory\n  \
    weighbridge load model/ --encode 'layers.*=q8_0'        encoded on the way: docs/encoding.md\n  \
    weighbridge load model/ --layout vllm --tp 4 --rank 2   one rank's share\n  \
    weighbridge load model.gguf --verify                    against what `check --write-manifest` wrote"
)]
#[expect(
    clippy::option_option,
    reason = "a flag that may be given, and may have a value, as clap derives it"
)]
pub(crate) struct LoadArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
    #[arg(required_unless_present = "verify")]
    path: Option<PathBuf>,
    /// How the runtime wants the parameters
    #[arg(long, value_enum, default_value_t = LayoutArg::Packed)]
    pub(crate) layout: LayoutArg,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    #[command(flatten)]
    pub(crate) share: RankArgs,
    /// Copy everything into memory of its own: nothing stays in a map
    #[arg(long)]
    pub(crate) owned: bool,
    /// Buffers take at most SIZE, all threads together [default: some MiB a thread]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Compare the tensors with what the manifest FILE says they are, as they are read [default: the one beside PATH]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) verify: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Threads [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
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

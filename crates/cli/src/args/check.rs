//! `check`, and manifests.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use weighbridge::check::Manifest;
use weighbridge::storage::shown;

use super::AlsoArgs;
use super::number::whole;

/// `check`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Without options, `check` reads headers and checks sizes, ranges, shapes, names and overlaps. A \
    manifest lists the name, shape, encoding and BLAKE3 hash of each tensor, not of files, so that it still holds after \
    you move the tensors to another format or to other shards. Without FILE it is `PATH.weighbridge.json`, or \
    `weighbridge-manifest.json` in a directory.\n\n\
    Exit codes: 0 if all is good, 1 if something is wrong with the checkpoint, 2 if the command line is wrong.\n\n\
    Examples:\n  \
    weighbridge check model.gguf                             headers only\n  \
    weighbridge check model/ --deep                          NaN, infinities, broken scales\n  \
    weighbridge check model.gguf --write-manifest            after a good download\n  \
    weighbridge check model.gguf --verify                    after a copy, after years\n  \
    weighbridge check copy/ --verify model.weighbridge.json  with a manifest from elsewhere"
)]
#[expect(
    clippy::option_option,
    reason = "a flag that may be given, and may have a value, as clap derives it"
)]
pub(crate) struct CheckArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    #[arg(required_unless_present_any = ["verify", "write_manifest"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) also: AlsoArgs,
    /// Read all values, and report those that are not finite and scales that cannot be right
    #[arg(long)]
    pub(crate) deep: bool,
    /// If all is good, write a manifest to FILE [default: beside PATH]
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = super::written())]
    pub(crate) write_manifest: Option<Option<PathBuf>>,
    /// Check the tensors against the manifest FILE [default: the manifest beside PATH]
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "write_manifest")]
    pub(crate) verify: Option<Option<PathBuf>>,
    /// Replace an existing manifest
    #[arg(long, requires = "write_manifest")]
    pub(crate) force: bool,
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CheckArgs {
    /// The checkpoint, and the manifest to write or to hold it against.
    pub(crate) fn paths(&self) -> Result<(PathBuf, Option<PathBuf>), String> {
        with_manifest(self.path.as_deref(), self.verify.as_ref().or(self.write_manifest.as_ref()))
    }
}

/// The checkpoint, and the manifest where one is asked for: `--verify A` is about A, `B --verify A` about B.
pub(super) fn with_manifest(
    path: Option<&Path>,
    manifest: Option<&Option<PathBuf>>,
) -> Result<(PathBuf, Option<PathBuf>), String> {
    let named = manifest.and_then(Option::as_ref);
    let (path, file) = match (path, named) {
        (Some(path), file) => (path, file),
        (None, Some(path)) => (path.as_path(), None),
        (None, None) => return Err("wanted the PATH of a checkpoint".to_owned()),
    };
    if manifest.is_some() && file.is_none() && super::is_elsewhere(path) {
        return Err(format!(
            "`{}` has no place beside it for a manifest: name its FILE",
            shown(&path.to_string_lossy())
        ));
    }
    let file = manifest.map(|_| file.cloned().unwrap_or_else(|| Manifest::beside(path)));
    Ok((path.to_owned(), file))
}

//! `cache`, and `--cache`.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use weighbridge::checkpoint::Io;
use weighbridge::runtime::CacheMode;

use super::ModelArgs;
use super::size::size;
use crate::cache;

/// What a start does with copies of loaded weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// Load the model as if there were none
    Off,
    /// Use a copy that is there
    Read,
    /// The same, and build one where there is none
    Write,
}

/// Models with fewer bytes to move load in some 10 ms: they have a copy if somebody asks for one.
const WORTH: u64 = 16 << 20;

impl CacheArg {
    /// The mode that is asked for, or else `usual`. Files that are not to be mapped have no copy that is.
    pub(crate) fn mode(asked: Option<CacheArg>, usual: CacheArg, io: Io) -> Result<CacheMode, String> {
        let mode = asked.unwrap_or(usual);
        let maps = matches!(io, Io::Auto | Io::Mmap);
        if mode == CacheArg::Off || (asked.is_none() && !maps) {
            return Ok(CacheMode::Off);
        }
        if !maps {
            return Err(
                "`--cache` maps files, and `--io` says not to\nhint: leave one of them out".to_owned()
            );
        }
        let cache = match asked {
            Some(_) => cache::must()?,
            None => match cache::copies() {
                Some(cache) => cache.at_least(WORTH),
                None => return Ok(CacheMode::Off),
            },
        };
        Ok(if mode == CacheArg::Read { CacheMode::Read(cache) } else { CacheMode::Write(cache) })
    }
}

/// `cache`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "`run` keeps a copy of the weights as its kernels want them, so that the next start maps that file instead of \
    loading the model. The copies are in `ready` in the cache directory: $WEIGHBRIDGE_CACHE, or weighbridge in $XDG_CACHE_HOME, \
    or ~/.cache/weighbridge. They take at most 20 GiB, or a tenth of the free disk if that is less; those used least \
    recently go first. A copy of a model that has changed is never used.\n\n\
    The tables of the tokenizer lie beside the weights, and go with them.\n\n\
    A copy is used without reading it first if its file has not changed since it was verified. `verify` reads it, and so finds bits \
    that the disk has lost.\n\n\
    Examples:\n  \
    weighbridge cache list                     all copies\n  \
    weighbridge cache status model.gguf        the model's tier, and whether the next `run` has a copy\n  \
    weighbridge cache prune --max-size 4GiB    the least recently used go\n  \
    weighbridge run model.gguf --cache off     without"
)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

/// What to do with the copies.
#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    /// List the copies, the last used first
    List(JsonArgs),
    /// Show the tiers of a model (source, compressed, runtime-ready), and what the next `run` uses
    Status(Box<StatusArgs>),
    /// Read copies whole, and remove those that are not what was built
    Verify(VerifyArgs),
    /// Remove the copies used least recently, until the others fit
    Prune(PruneArgs),
    /// Remove all copies
    Clear(JsonArgs),
}

/// Options of every one.
#[derive(ClapArgs)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cache status`.
#[derive(ClapArgs)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// `cache verify`.
#[derive(ClapArgs)]
pub(crate) struct VerifyArgs {
    /// The copies, by the beginning of their keys [default: all]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// `cache prune`.
#[derive(ClapArgs)]
pub(crate) struct PruneArgs {
    /// The size that all copies together may have
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: u64,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

impl CacheCommand {
    /// Whether it prints JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            CacheCommand::List(args) | CacheCommand::Clear(args) => args.json,
            CacheCommand::Status(args) => args.json.json,
            CacheCommand::Verify(args) => args.json.json,
            CacheCommand::Prune(args) => args.json.json,
        }
    }
}

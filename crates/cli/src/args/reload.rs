//! `reload`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// `reload`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The server must have been started with `--socket FILE`. It reads the files of the model again: replace them first, each by renaming \
    another one over it, or give the server a symbolic link and point that elsewhere.\n\n\
    Answers that are being made end with the old weights, and the next ones have the new. With `--keep` they go on with the new weights from \
    their next token on, and the field `system_fingerprint` of an answer says which made it.\n\n\
    Examples:\n  \
    weighbridge serve policy=latest/ --socket /run/user/1000/policy.sock\n  \
    ln -sfn step-200 latest && weighbridge reload --socket /run/user/1000/policy.sock --keep"
)]
pub(crate) struct ReloadArgs {
    /// The name of the model [default: the only one]
    pub(crate) model: Option<String>,
    /// The socket that the server listens on
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: PathBuf,
    /// Have answers that are being made go on with the new weights
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

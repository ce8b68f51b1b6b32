//! `calibrate`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::ModelArgs;
use super::number::whole;

/// `calibrate`.
#[derive(ClapArgs)]
#[command(
    mut_arg("ctx", |arg| arg.help("Tokens of a chunk, at least 16 [default: 512]").long_help(None::<&str>)),
    after_long_help = "The text is cut into chunks and run. The result is an importance matrix: for each matrix, how strong each of its inputs \
    is, so that `convert --imatrix` and `compress` can place errors where they matter least. It is the file that llama.cpp's \
    llama-imatrix makes, and llama-quantize reads it. The text should be like those that the model will see.\n\n\
    Then each matrix is disturbed in turn, to measure how far that moves the predictions. `compress` uses it to decide which matrices \
    get more bits. `--no-sensitivity` leaves this out, and takes a small part of the time.\n\n\
    Examples:\n  \
    weighbridge calibrate model.gguf -f text.txt -o model.imatrix.gguf\n  \
    weighbridge convert model.gguf small.gguf --preset q4_k_m --imatrix model.imatrix.gguf"
)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text to run, in UTF-8; `-` reads standard input
    #[arg(long, short, value_name = "FILE", visible_alias = "text")]
    pub(crate) file: PathBuf,
    /// The importance matrix to write
    #[arg(long, short, value_name = "FILE.gguf", value_parser = super::written())]
    pub(crate) output: PathBuf,
    /// Chunks to run at most [default: all]
    #[arg(long, value_name = "N", value_parser = whole(1usize, None))]
    pub(crate) chunks: Option<usize>,
    /// Do not measure how much predictions depend on each matrix
    #[arg(long)]
    pub(crate) no_sensitivity: bool,
    /// Tokens to run for each matrix that is disturbed, from the end of the text
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = whole(16usize, None), conflicts_with = "no_sensitivity")]
    pub(crate) sensitivity_tokens: usize,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

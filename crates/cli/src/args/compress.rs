//! `compress`.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::convert::OutputFormat;
use weighbridge::convert::compress::Target;
use weighbridge::planner::Preset;
use weighbridge::tensor::Diagnostic;

use super::convert::{FormatArg, WriteArgs, format};
use super::{AdapterArgs, AlsoArgs, HtmlFileArgs};

/// A format with encodings to choose from.
#[derive(Clone, Copy, ValueEnum)]
enum CompressFormatArg {
    /// GGUF, with the configuration and the tokenizer
    Gguf,
    /// A directory for mlx-lm, with bits for each layer
    Mlx,
    /// A directory for Hugging Face transformers: int8, 4 bits of GPTQ or AWQ, or as stored
    Hf,
    /// A directory of .npy files, as squish reads it
    NpyDir,
}

/// The encoding of a directory for Hugging Face transformers, as its config.json calls it.
#[derive(Clone, Copy, ValueEnum)]
enum QuantMethodArg {
    /// 8 bits, a scale a row (bitsandbytes)
    Int8,
    /// 4 bits, a scale for 128 columns
    Gptq,
    /// 4 bits, a scale and a zero point for 128 columns
    Awq,
}

/// `compress`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Each matrix is encoded in every encoding that the format has for it, and the error of its results is measured. Then \
    each gets the encoding with which the whole fits into the target and loses least. A target is the size of the files (300MB, 2GiB), bits \
    for each weight (4.5), or 2bit to 8bit: as large as if every matrix had the smallest encoding of at least that many bits.\n\n\
    `--imatrix FILE`, made by `weighbridge calibrate`, says how strong the inputs of each matrix are and how much predictions depend on \
    it. `--text FILE` does that on the way: it runs the model on three quarters of the text, and at the end measures on the last quarter \
    what was lost; with both, the text does not have to be calibrated with again. Without either, all inputs and all matrices count alike, which loses more.\n\n\
    `--gptq` chooses the codes of each matrix from left to right, so that each column makes up for the errors of the columns before it, \
    as far as their inputs go together on the text. Files have the same size and form.\n\n\
    `--awq` multiplies the columns of matrices by what makes rounding lose least, and divides the norm before them by the same. It needs \
    `--text` or `--imatrix`, and leaves a norm as it is where nothing is gained.\n\n\
    A policy limits the encodings of each matrix; `--print-policy` prints the one that is used without `--policy`.\n\n\
    Examples:\n  \
    weighbridge compress model/ small.gguf --target 4bit --text text.txt\n  \
    weighbridge compress model.gguf small.gguf --target 300MB --imatrix model.imatrix.gguf\n  \
    weighbridge compress model/ small/ --to hf --target 4bit --gptq --text text.txt\n  \
    weighbridge compress model/ small/ --to mlx --target 3.5 --plan --html choice.html"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct CompressArgs {
    /// A GGUF, safetensors or PyTorch file, or a model directory (Hugging Face, MLX)
    #[arg(required_unless_present = "print_policy")]
    source: Option<PathBuf>,
    /// The file or directory to write. It appears when it is complete
    #[arg(required_unless_present = "print_policy", value_parser = super::written())]
    destination: Option<PathBuf>,
    /// How large the result may be: a size, bits for each weight, or 2bit to 8bit
    #[arg(long, value_name = "TARGET", value_parser = target, required_unless_present = "print_policy")]
    target: Option<Target>,
    /// The format to write [default: by the extension of DESTINATION]
    #[arg(long, value_enum)]
    to: Option<CompressFormatArg>,
    /// The encoding of an hf directory, all of whose matrices have the same [default: int8 if the target allows it, else gptq]
    #[arg(long, value_enum, value_name = "METHOD")]
    quant_method: Option<QuantMethodArg>,
    /// The importance matrix of the source
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// A text, in UTF-8, to calibrate with (unless there is an importance matrix) and to measure the result on
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Choose the codes of each matrix so that errors of columns make each other good on the text, as GPTQ does
    #[arg(long, requires = "text", conflicts_with = "plan")]
    pub(crate) gptq: bool,
    /// Make columns with strong inputs larger before they are encoded, and the norm before them smaller, as AWQ does
    #[arg(long, conflicts_with = "plan")]
    pub(crate) awq: bool,
    /// Limit the encodings of each matrix by the rules in FILE.toml
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) policy: Option<PathBuf>,
    /// Print the policy that is used without `--policy`
    #[arg(long)]
    pub(crate) print_policy: bool,
    /// Print the encoding of each matrix, and write nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// Delete the files with the source's weights, once the result was read back from the disk and compared with them
    #[arg(long, conflicts_with_all = ["plan", "also"])]
    pub(crate) delete_source: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) also: AlsoArgs,
    #[command(flatten)]
    pub(crate) page: HtmlFileArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CompressArgs {
    /// The source, the destination and the target, all of which are required.
    pub(crate) fn what(&self) -> Option<(&PathBuf, &PathBuf, Target)> {
        Some((self.source.as_ref()?, self.destination.as_ref()?, self.target?))
    }

    /// The preset of the encoding that was asked for, if one was.
    pub(crate) fn preset(&self, format: OutputFormat) -> Result<Option<&'static Preset>, String> {
        let Some(method) = self.quant_method else { return Ok(None) };
        if format != OutputFormat::Hf {
            let name = format.name();
            return Err(format!(
                "`--quant-method` is for hf directories, not for {name}\nhint: add `--to hf`"
            ));
        }
        Ok(Preset::named(match method {
            QuantMethodArg::Int8 => "int8",
            QuantMethodArg::Gptq => "gptq-4bit",
            QuantMethodArg::Awq => "awq-4bit",
        }))
    }

    /// The format: as asked for, or as the destination's extension says.
    pub(crate) fn format(&self, source: &Path, destination: &Path) -> Result<OutputFormat, String> {
        let to = self.to.map(|to| match to {
            CompressFormatArg::Gguf => FormatArg::Gguf,
            CompressFormatArg::Mlx => FormatArg::Mlx,
            CompressFormatArg::Hf => FormatArg::Hf,
            CompressFormatArg::NpyDir => FormatArg::NpyDir,
        });
        format(to, source, destination, "gguf, mlx, hf or npy-dir")
    }
}

fn target(text: &str) -> Result<Target, String> {
    text.parse().map_err(|wrong: Diagnostic| wrong.what)
}

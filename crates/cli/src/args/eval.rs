//! `eval`, and `report` of its results.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::number::whole;
use super::{BudgetArgs, HtmlArgs, ModelArgs};

/// `eval`.
#[derive(ClapArgs)]
#[command(
    mut_arg("ctx", |arg| {
        arg.help("Tokens of a chunk, at least 16 [default: 512], and of a question [default: the model's]").long_help(None::<&str>)
    }),
    after_long_help = "The text is cut into chunks of equal length. In each, the tokens of the second half are scored, as \
    llama.cpp's llama-perplexity does it, so that the figures of both can be compared. A smaller perplexity is better; only \
    models with the same tokenizer can be compared by it.\n\n\
    `--task` takes the questions of ARC, HellaSwag, WinoGrande or MMLU, or your own in the same fields, one JSON object a \
    line. Prompts and scores are those of EleutherAI's lm-evaluation-harness without examples: acc is the share of questions \
    whose right choice is the most likely; for acc_norm, the log-likelihood is divided by the characters of the choice.\n\n\
    `--against` runs another model on the same text and tasks, such as the one that this one was converted from. The KL \
    divergence is how far the probabilities of all tokens are from its own, in nats: 0 if nothing has changed.\n\n\
    A gate is a TOML file with limits, of which each may be left out: perplexity, ratio, kl and kl_99 are the most that is \
    allowed, top1 and top5 (shares, from 0 to 1) the least. In the table [task.NAME], of the task in NAME.jsonl, acc, \
    acc_norm and same are the least. `--gate default` has the limits of the measurements that `compress` knows. The exit code is 1 \
    if one is missed.\n\n\
    The figure after ± is the half width of the 95 % confidence interval, with tokens and questions taken as independent.\n\n\
    Examples:\n  \
    weighbridge eval model.gguf -f text.txt                     perplexity\n  \
    weighbridge eval small.gguf -f text.txt --against big.gguf  what was lost\n  \
    weighbridge eval small.gguf -f text.txt --against big.gguf --gate gates.toml\n  \
    weighbridge eval small.gguf -f text.txt --against big.gguf --html small.html\n  \
    weighbridge eval model.gguf --task arc_easy.jsonl --task hellaswag.jsonl"
)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// The text to predict, in UTF-8; `-` reads standard input
    #[arg(long, short, value_name = "FILE", required_unless_present = "task")]
    pub(crate) file: Option<PathBuf>,
    /// Answer the multiple-choice questions in FILE.jsonl: rows of ARC, HellaSwag, WinoGrande or MMLU. Can be repeated
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) task: Vec<PathBuf>,
    /// Compare with another model: predictions of the text, for which it must have the same vocabulary, and answers
    #[arg(long, value_name = "MODEL")]
    pub(crate) against: Option<PathBuf>,
    /// Chunks to score at most [default: all]
    #[arg(long, value_name = "N", requires = "file", value_parser = whole(1usize, None))]
    pub(crate) chunks: Option<usize>,
    /// Fail if the result misses a limit in this file, or one of those that `compress` has measured with
    #[arg(long, value_name = "FILE.toml|default")]
    pub(crate) gate: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) page: HtmlArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `report`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "`report` compares evaluations that were done before, in any order and on any machine: nothing is run again. \
    All must be of the same text, cut into the same chunks, and against the same model if they were compared with one. Sizes are \
    those of the files.\n\n\
    With `--html`, the page has plots of size against KL divergence and perplexity, and of the agreement of each model.\n\n\
    Examples:\n  \
    for m in q2 q4 q8; do weighbridge eval $m.gguf -f text.txt --against f16.gguf --json > $m.json; done\n  \
    weighbridge report q2.json q4.json q8.json\n  \
    weighbridge report q*.json --html sizes.html"
)]
pub(crate) struct ReportArgs {
    /// The output of `weighbridge eval --json`, one file for each model
    #[arg(required = true, value_name = "FILE.json")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) page: HtmlArgs,
}

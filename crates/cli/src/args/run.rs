//! `run`.

use std::path::{Path, PathBuf};

use super::number::whole;
use super::sampling::{SamplerArgs, escaped};
#[cfg(feature = "grammar")]
use super::structure::StructureArgs;
use super::{BudgetArgs, ModelArgs, StrictArgs};
use clap::Args as ClapArgs;
use weighbridge::RuntimeOptions;
use weighbridge::planner::Encoding;

/// `run`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "In a chat, `/help` lists the commands. A line that ends with `\\` continues on the next one; pasted text \
    keeps its lines. When the context is full, `run` drops the oldest questions and answers, and says how many.\n\n\
    Examples:\n  \
    weighbridge run model.gguf                                   chat\n  \
    weighbridge run model.gguf -p 'Why is the sky blue?'         one answer\n  \
    weighbridge run model.gguf -f question.txt --temperature 0   the same answer each time\n  \
    weighbridge run model.gguf -p 'Name a city.' --json-schema city.json       JSON\n  \
    weighbridge run model.gguf -f book-and-question.txt --prompt-cache book    the book is run once\n  \
    weighbridge run model.gguf --raw -p 'Once upon a time' -n -1 a base model continues the text"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// Answer this and exit; without it, chat. `-` reads standard input
    #[arg(long, short, value_name = "TEXT", allow_hyphen_values = true, group = "once")]
    pub(crate) prompt: Option<String>,
    /// Answer the text in FILE and exit. `-` reads standard input
    #[arg(long, short, value_name = "FILE", group = "once")]
    pub(crate) file: Option<PathBuf>,
    /// Run these token ids and print those that follow; needs no tokenizer
    #[arg(long, value_name = "ID,..", value_delimiter = ',', value_parser = whole(0u32, None), conflicts_with_all = ["raw", "system"], group = "once")]
    pub(crate) ids: Option<Vec<u32>>,
    /// Continue the prompt as it is, without a chat template; stdout is the continuation alone
    #[arg(long, requires = "once")]
    pub(crate) raw: bool,
    /// Begin the chat with a system message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Use the chat template in FILE (Jinja) instead of the checkpoint's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "ids"])]
    pub(crate) chat_template: Option<PathBuf>,
    /// Tokens to generate at most; -1 until the model ends or the context is full
    #[arg(short, long = "tokens", value_name = "N", default_value_t = 512, allow_negative_numbers = true,
        value_parser = whole(-1i64, None))]
    n: i64,
    /// End the answer before STRING; `\n` is a line break. May be given many times [default: the model's]
    #[arg(long, value_name = "STRING", value_parser = escaped)]
    pub(crate) stop: Vec<String>,
    /// Keep what the prompt computes in FILE, or begin with what FILE has of it, so that a long text is run once. FILE is of
    /// one model and one `--kv`, and is never replaced
    #[arg(long, value_name = "FILE", requires = "once")]
    pub(crate) prompt_cache: Option<PathBuf>,
    /// Guess that what followed the last tokens before follows them again, and run the guesses together. The answer is the same,
    /// and comes sooner where it repeats much of the prompt
    #[arg(long)]
    pub(crate) prompt_lookup: bool,
    /// Guess tokens with a smaller model of the same vocabulary, and run the guesses together. The answer is the same, and comes
    /// sooner where that model is much faster and often right
    #[arg(long, value_name = "MODEL", conflicts_with = "prompt_lookup")]
    draft: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Print one JSON document when done: the answer, its tokens, what they took
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    /// Give the probability of each token, and the N most likely tokens in its place
    #[arg(long, value_name = "N", value_parser = whole(0usize, None), requires = "json")]
    pub(crate) logprobs: Option<usize>,
    // Last: the heading holds for all that follow.
    #[command(flatten)]
    pub(crate) sampler: SamplerArgs,
    #[cfg(feature = "grammar")]
    #[command(flatten)]
    pub(crate) structure: StructureArgs,
}

impl RunArgs {
    /// The checkpoint of the draft, and its options: those of the model, but for what is about the model's own weights.
    pub(crate) fn draft(&self, model: &RuntimeOptions) -> Option<(&Path, RuntimeOptions)> {
        let (encoding, loras) = (Encoding::default(), vec![]);
        let options = RuntimeOptions { layout: None, encoding, loras, memory: None, ..model.clone() };
        self.draft.as_deref().map(|path| (path, options))
    }

    /// Tokens to generate at most.
    pub(crate) fn tokens(&self) -> usize {
        usize::try_from(self.n).unwrap_or(usize::MAX)
    }
}

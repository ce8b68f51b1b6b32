//! `run`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::sampling::Sampling;

use super::number::{real, whole};
use super::{ModelArgs, StrictArgs};

/// `run`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "In a chat, `/help` lists the commands. A line that ends with `\\` continues on the next one; pasted text \
    keeps its lines. When the context is full, `run` drops the oldest questions and answers, and says how many.\n\n\
    Examples:\n  \
    weighbridge run model.gguf                                   chat\n  \
    weighbridge run model.gguf -p 'Why is the sky blue?'         one answer\n  \
    weighbridge run model.gguf -f question.txt --temperature 0   the same answer each time\n  \
    weighbridge run model.gguf --raw -p 'Once upon a time' -n -1 a base model continues the text"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
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
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Print one JSON document when done: the answer, its tokens, what they took
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    // Last: the heading holds for all that follow.
    #[command(flatten)]
    sampler: SamplerArgs,
}

/// The sampler's flags.
#[derive(ClapArgs)]
#[command(next_help_heading = "Sampling")]
struct SamplerArgs {
    /// 0 always takes the most likely token [default: the model's, or 0.8]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = real(None))]
    temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the model's, or 40]
    #[arg(long, value_name = "K", value_parser = whole(0usize, None))]
    top_k: Option<usize>,
    /// Keep the most likely tokens that together reach this probability [default: the model's, or 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    top_p: Option<f32>,
    /// Keep tokens at least this likely, relative to the most likely [default: the model's, or 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    min_p: Option<f32>,
    /// The same seed gives the same text [default: from the clock]
    #[arg(long, value_name = "N", value_parser = whole(0u64, None))]
    seed: Option<u64>,
}

impl RunArgs {
    /// Tokens to generate at most.
    pub(crate) fn tokens(&self) -> usize {
        usize::try_from(self.n).unwrap_or(usize::MAX)
    }

    /// The sampler's options, as far as they are given; else the model's.
    pub(crate) fn sampler(&self, model: &Sampling) -> SamplerOptions {
        let s = &self.sampler;
        let clock = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |d| d.as_secs() ^ (u64::from(d.subsec_nanos()) << 32))
        };
        let own = model.over(SamplerOptions::default());
        SamplerOptions {
            temperature: s.temperature.unwrap_or(own.temperature),
            top_k: s.top_k.unwrap_or(own.top_k),
            top_p: s.top_p.unwrap_or(own.top_p),
            min_p: s.min_p.unwrap_or(own.min_p),
            seed: s.seed.unwrap_or_else(clock),
        }
    }
}

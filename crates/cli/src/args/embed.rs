//! `embed`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use weighbridge::RuntimeOptions;
use weighbridge::embedder::{EmbedOptions, Prompt};

use super::engine::StartArgs;
use super::number::whole;
use crate::failure::Failure;

/// `embed`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The vectors are those of sentence-transformers: `embed` follows the `modules.json`, the prompts and the maximum length of \
    the directory. Without a `modules.json`, it takes the mean of the vectors of all tokens, or the last token's of a model for causal language. \
    A GGUF file says how to pool.\n\n\
    Without TEXT and --file, each line of standard input is a text. Texts are sorted by length and run together, without padding; \
    vectors come in the order of the texts. The output is a line of JSON for each text, or a FILE.npy or FILE.safetensors with one \
    matrix of a row for each text.\n\n\
    Examples:\n  \
    weighbridge embed model/ 'A cat sits on a mat'                     one vector\n  \
    weighbridge embed model/ -f texts.txt -o vectors.npy               a vector for each line\n  \
    weighbridge embed model/ -f texts.jsonl --field body -o v.jsonl    from a field of JSON lines\n  \
    weighbridge embed model/ --prompt query 'who wrote Emma?'          with a prompt of the model"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct EmbedArgs {
    /// A directory of sentence-transformers, or any checkpoint of a model that runs
    pub(crate) path: PathBuf,
    /// The texts. Without them, the lines of standard input
    pub(crate) text: Vec<String>,
    /// Take each line of FILE as a text; `-` reads standard input. Of a FILE.jsonl, each line is a JSON object
    #[arg(long, short, value_name = "FILE", conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
    /// Read JSON lines, and take the text from this field [default: text, for a FILE.jsonl]
    #[arg(long, value_name = "NAME", conflicts_with = "text")]
    pub(crate) field: Option<String>,
    /// Write the vectors to FILE: JSON lines, or a matrix in f32 by its ending
    #[arg(long, short, value_name = "FILE.jsonl|npy|safetensors", value_parser = super::written())]
    pub(crate) out: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Put the model's prompt of this name before each text [default: the model's default, if it has one]
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Put TEXT before each text; an empty one leaves the model's default prompt out
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt", allow_hyphen_values = true)]
    prompt_text: Option<String>,
    /// Divide each vector by its length, whatever the model says
    #[arg(long)]
    normalize: bool,
    /// Leave out the last division by the length, if the model has one
    #[arg(long, conflicts_with = "normalize")]
    no_normalize: bool,
    #[command(flatten)]
    start: TextsArgs,
    /// Print one JSON document when done: the vectors, and what they took
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a model that reads whole texts is started.
#[derive(ClapArgs)]
pub(crate) struct TextsArgs {
    /// Cut texts (of a reranker: a query and its text together) after this many tokens, with those that the model adds [default: as the model
    /// says]
    #[arg(long, visible_alias = "ctx", value_name = "N", value_parser = whole(1u32, None))]
    max_tokens: Option<u32>,
    #[command(flatten)]
    start: StartArgs,
}

impl TextsArgs {
    /// The options of the library.
    pub(crate) fn runtime(&self) -> Result<RuntimeOptions, Failure> {
        Ok(RuntimeOptions { context: self.max_tokens.map(|n| n as usize), ..self.start.options()? })
    }
}

impl EmbedArgs {
    /// How the model is started.
    pub(crate) fn runtime(&self) -> Result<RuntimeOptions, Failure> {
        self.start.runtime()
    }

    /// How vectors are made.
    pub(crate) fn options(&self) -> EmbedOptions {
        EmbedOptions {
            prompt: match (&self.prompt, &self.prompt_text) {
                (Some(name), _) => Prompt::Named(name.clone()),
                (None, Some(text)) => Prompt::Text(text.clone()),
                (None, None) => Prompt::Default,
            },
            normalize: match (self.normalize, self.no_normalize) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
        }
    }
}

//! `rerank`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use weighbridge::RuntimeOptions;

use super::embed::TextsArgs;
use super::number::whole;
use crate::failure::Failure;

/// `rerank`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The scores are those of a `CrossEncoder` of sentence-transformers, for a model with one label: its logit, after a sigmoid unless \
    config.json names the identity. A query and a text that are too long together are cut, the longer one first.\n\n\
    The output is a line of JSON for each text, the best first: its number, its score and the text.\n\n\
    Examples:\n  \
    weighbridge rerank model/ 'who wrote Emma?' texts.txt              each line is a text\n  \
    weighbridge rerank model/ 'who wrote Emma?' texts.jsonl --top 3    the field `text` of JSON lines\n  \
    grep -h Emma *.txt | weighbridge rerank model/ 'who wrote Emma?'   lines of standard input"
)]
pub(crate) struct RerankArgs {
    /// A checkpoint of a class `…ForSequenceClassification` with one label
    pub(crate) path: PathBuf,
    /// The query that the texts are scored for
    pub(crate) query: String,
    /// Take each line of FILE as a text; without it, or as `-`, standard input. Of a FILE.jsonl, each line is a JSON object
    pub(crate) file: Option<PathBuf>,
    /// Read JSON lines, and take the text from this field [default: text, for a FILE.jsonl]
    #[arg(long, value_name = "NAME")]
    pub(crate) field: Option<String>,
    /// Print the N best texts only
    #[arg(long, value_name = "N", value_parser = whole(1u32, None))]
    pub(crate) top: Option<u32>,
    #[command(flatten)]
    start: TextsArgs,
    /// Print one JSON document: the scores, and what they took
    #[arg(long)]
    pub(crate) json: bool,
}

impl RerankArgs {
    /// How the model is started.
    pub(crate) fn runtime(&self) -> Result<RuntimeOptions, Failure> {
        self.start.runtime()
    }
}

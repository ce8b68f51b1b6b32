//! `serve`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::number::whole;
use super::size::size;
use super::{ModelArgs, StrictArgs};

/// `serve`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The API is OpenAI's: `/v1/chat/completions`, `/v1/completions`, `/v1/models`; and `/tokenize`, `/detokenize` and \
    `/health`. A field of a request that has no effect here is refused by name (docs/serving.md). A browser finds a chat page at `/`.\n\n\
    `--ctx` is for each request. The KV cache of N requests, and of one more for prompts that are kept, is planned before the \
    model is loaded. SIGTERM and Ctrl-C let running requests finish; a second signal does not.\n\n\
    Examples:\n  \
    weighbridge serve model.gguf                               on this machine alone, at http://127.0.0.1:8080\n  \
    weighbridge serve model.gguf --parallel 8 --ctx 8192       eight requests together, of 8192 positions each\n  \
    weighbridge serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --allow-host box.example   for others"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The name of the model in requests and answers. May be given many times [default: the name of the file or directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Vec<String>,
    /// Use the chat template in FILE (Jinja) instead of the checkpoint's
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Requests that run together
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole(1usize, Some(256usize)))]
    pub(crate) parallel: usize,
    /// Requests that wait for a place; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(0usize, Some(65536usize)))]
    pub(crate) queue: usize,
    /// Tokens that a request may generate [default: until its context is full]
    #[arg(long, value_name = "N", value_parser = whole(1usize, None))]
    pub(crate) max_tokens: Option<usize>,
    /// Seconds that a request may take, in the queue and running; 0: any
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = whole(0u64, None))]
    pub(crate) deadline: u64,
    /// The size of a request's body
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size)]
    pub(crate) body_limit: u64,
    /// Seconds that requests may go on after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole(0u64, None))]
    pub(crate) grace: u64,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Who may ask.
#[derive(ClapArgs)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessArgs {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// The port to listen on; 0: a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// A key that requests must have; other users of the machine can see it. May be given many times [default:
    /// $WEIGHBRIDGE_API_KEY]
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Vec<String>,
    /// Keys that requests must have, one on each line of FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// A name of this server in the header `Host`, beside localhost and addresses; `*` takes all. May be given many times
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// An origin whose pages may ask, such as https://chat.example; `*` is all. May be given many times
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors: Vec<String>,
    /// Do not write a line about each request
    #[arg(long)]
    pub(crate) quiet: bool,
}

//! `serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::Task;

use super::number::whole;
use super::size::size;
use super::{BudgetArgs, ModelArgs, StrictArgs};

/// `serve`.
#[derive(ClapArgs)]
#[command(after_long_help = "What the model is for decides what is served:\n  \
    text      /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /api/chat, /api/generate, a chat page at /\n  \
    vectors   /v1/embeddings, /api/embed\n  \
    scores    /v1/rerank\n  \
    speech    /v1/audio/transcriptions, /v1/audio/translations\n\
    /openapi.json lists all paths with their fields. A field that is not listed is refused by name (docs/serving.md).\n\n\
    With several models, the field `model` of a request says which one it is for. Those that have no room beside others (--memory) are \
    loaded when they are asked for, and those used least lately make room.\n\n\
    `--ctx` is for each request. The KV cache of N requests, and of one more for prompts that are kept, is planned before the \
    model is loaded. SIGTERM and Ctrl-C let running requests finish; a second signal does not.\n\n\
    Examples:\n  \
    weighbridge serve model.gguf                               on this machine alone, at http://127.0.0.1:8080\n  \
    weighbridge serve all-MiniLM-L6-v2/                        vectors of texts\n  \
    weighbridge serve chat=model.gguf all-MiniLM-L6-v2/        two models, one of which is called `chat`\n  \
    weighbridge serve a.gguf b.gguf --memory 16GiB --idle 600  two that take turns if both do not fit\n  \
    weighbridge serve model.gguf --parallel 8 --ctx 8192       eight requests together, of 8192 positions each\n  \
    weighbridge serve model.gguf --engine vllm -- --tensor-parallel-size 2   vLLM, on two GPUs\n  \
    weighbridge serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --allow-host box.example   for others")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// More models. Each may be written NAME=PATH
    #[arg(value_name = "PATH", requires = "path")]
    pub(crate) more: Vec<PathBuf>,
    /// Have this engine run the model, with Weighbridge as its loader. What follows `--` are options of its own
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = NOT_FOR_OTHERS)]
    pub(crate) engine: Option<EngineArg>,
    /// The Python that has the engine and the package `weighbridge`
    #[arg(long, value_name = "PROGRAM", default_value = "python3", requires = "engine")]
    pub(crate) python: PathBuf,
    /// Options of the engine
    #[arg(last = true, value_name = "OPTION", requires = "engine")]
    pub(crate) engine_options: Vec<OsString>,
    /// The task of the model, which decides the routes [default: as its files say; a decoder is for text unless it has the
    /// settings of sentence-transformers]
    #[arg(long, value_enum)]
    pub(crate) task: Option<TaskArg>,
    /// The name of the model in requests and answers; `*` takes any name in requests. May be given many times [default: the
    /// name of the file or directory]
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
    /// The size of a form with a sound
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = size)]
    pub(crate) sound_limit: u64,
    /// Seconds that a sound may be long
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = whole(1u64, Some(86_400u64)))]
    pub(crate) sound_seconds: u64,
    /// Seconds after which a model that nobody uses leaves memory, until it is asked for again; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole(0u64, None))]
    pub(crate) idle: u64,
    /// Seconds that requests may go on after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole(0u64, None))]
    pub(crate) grace: u64,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// The options that say how this engine runs a model, or what this server does.
const NOT_FOR_OTHERS: [&str; 26] = [
    "more",
    "backend",
    "layout",
    "encode",
    "preset",
    "lora",
    "threads",
    "no_tune",
    "kv",
    "kv_budget",
    "memory",
    "also",
    "io",
    "cache",
    "task",
    "chat_template",
    "strict",
    "parallel",
    "queue",
    "max_tokens",
    "deadline",
    "body_limit",
    "sound_limit",
    "sound_seconds",
    "idle",
    "grace",
];

/// Another engine.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum EngineArg {
    /// vLLM's server, for machines with GPUs
    Vllm,
}

/// The task of a model.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum TaskArg {
    /// Chats and completions
    Text,
    /// Vectors of texts: /v1/embeddings
    Vectors,
    /// Scores of texts for a query: /v1/rerank
    Scores,
    /// Transcripts: /v1/audio/transcriptions
    Speech,
}

impl TaskArg {
    /// The library's name for it.
    pub(crate) fn task(self) -> Task {
        match self {
            TaskArg::Text => Task::Text,
            TaskArg::Vectors => Task::Vectors,
            TaskArg::Scores => Task::Scores,
            TaskArg::Speech => Task::Speech,
        }
    }
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
    /// Listen on this socket in the file system too, which you alone may open: requests need no key, and `weighbridge reload` uses it
    #[cfg(unix)]
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: Option<PathBuf>,
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

//! The command line.

mod cache;
mod calibrate;
mod check;
mod compress;
mod convert;
mod embed;
mod encoding;
mod engine;
mod eval;
#[cfg(feature = "hub")]
mod hub;
mod load;
mod lora;
mod number;
mod open;
mod page;
#[cfg(all(unix, feature = "serve"))]
mod reload;
mod rerank;
mod run;
mod sampling;
#[cfg(feature = "serve")]
mod serve;
mod size;
#[cfg(feature = "grammar")]
mod structure;
mod tips;
#[cfg(feature = "speech")]
mod transcribe;

use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use weighbridge::engine::{KvKind, OBSERVED};
use weighbridge::model::ExpertPlacement;
use weighbridge::planner::Adapter;
use weighbridge::tensor::Pattern;
use weighbridge::{LayoutKind, Mesh, RuntimeOptions};

pub(crate) use cache::{CacheArg, CacheArgs, CacheCommand, StatusArgs};
pub(crate) use calibrate::CalibrateArgs;
pub(crate) use check::CheckArgs;
pub(crate) use compress::CompressArgs;
pub(crate) use convert::ConvertArgs;
pub(crate) use embed::EmbedArgs;
use encoding::EncodingArgs;
use engine::EngineArgs;
pub(crate) use eval::{EvalArgs, ReportArgs};
#[cfg(feature = "hub")]
pub(crate) use hub::{ListArgs, PullArgs};
pub(crate) use load::LoadArgs;
pub(crate) use lora::LoraArgs;
use number::whole;
pub(crate) use open::{
    AlsoArgs, IoArg, OpenArgs, is_elsewhere, looking, open_options, output, written, written_or_bucket,
};
pub(crate) use page::{HtmlArgs, HtmlFileArgs, SvgArgs};
#[cfg(all(unix, feature = "serve"))]
pub(crate) use reload::ReloadArgs;
pub(crate) use rerank::RerankArgs;
pub(crate) use run::RunArgs;
#[cfg(feature = "serve")]
pub(crate) use serve::{AccessArgs, EngineArg, ServeArgs};
use size::size;
pub(crate) use tips::advised;
#[cfg(feature = "speech")]
pub(crate) use transcribe::{FormArg, TranscribeArgs};

use crate::failure::Failure;

/// Inspect, check, convert, load and run language model checkpoints
#[derive(Parser)]
#[command(
    name = "weighbridge",
    version,
    max_term_width = 100,
    after_long_help = "Examples:\n  \
    weighbridge inspect model.gguf                             what a file holds\n  \
    weighbridge plan model/ --memory 8GiB                      whether it loads, and fits in memory\n  \
    weighbridge run model.gguf -p 'Why is the sky blue?'       one answer; without -p, a chat\n  \
    weighbridge convert model/ model.gguf --preset q8_0        Hugging Face to llama.cpp, quantised\n  \
    weighbridge diff model/ model.gguf                         what the conversion changed"
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what a checkpoint holds: format, configuration, tensors. Reads headers only
    Inspect(InspectArgs),
    /// Show how a checkpoint would load, and every problem that prevents it. Reads headers only
    Plan(PlanArgs),
    /// Load a checkpoint into memory, and report time, reads and memory
    Load(LoadArgs),
    /// Run a model: complete a text, or chat
    Run(Box<RunArgs>),
    /// Serve a model over HTTP, with the APIs of OpenAI and Anthropic
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Have a server read the files of a model anew, through its socket
    #[cfg(all(unix, feature = "serve"))]
    Reload(ReloadArgs),
    /// Make vectors of texts, as sentence-transformers does
    Embed(Box<EmbedArgs>),
    /// Order texts by how well they answer a query, by a model that reads both
    Rerank(Box<RerankArgs>),
    /// Transcribe speech, with times, by a Whisper model
    #[cfg(feature = "speech")]
    Transcribe(Box<TranscribeArgs>),
    /// Measure prefill and decode speed
    Bench(BenchArgs),
    /// Measure how well a model predicts a text and answers questions, and what a conversion cost
    Eval(EvalArgs),
    /// Compare the evaluations of several models: size against perplexity and divergence
    Report(ReportArgs),
    /// Measure what a text drives through each matrix, and how much each matters: an importance matrix
    Calibrate(CalibrateArgs),
    /// Find the fastest way to read weights on this machine, for `run` and `bench`. Takes a second
    Tune(TuneArgs),
    /// Look after the copies of loaded weights that make the next start fast
    Cache(CacheArgs),
    /// Make a model small: choose the encoding of each matrix by what it costs, and write the result
    Compress(CompressArgs),
    /// Write a checkpoint in another format or in other encodings, tensor by tensor
    Convert(ConvertArgs),
    /// Check a checkpoint: its structure, its values, and its bytes against a manifest
    Check(CheckArgs),
    /// Compare two checkpoints of any formats, value by value
    Diff(DiffArgs),
    /// Show the tokens of a text, or the text of tokens
    Tokenize(TokenizeArgs),
    /// List the encodings, with their sizes and what this machine can do with each
    Quants(QuantsArgs),
    /// Download models from the Hugging Face Hub, and print their paths
    #[cfg(feature = "hub")]
    Pull(PullArgs),
    /// List the models on this machine: of the Hugging Face cache, Ollama and LM Studio
    #[cfg(feature = "hub")]
    List(ListArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of weighbridge or of one command
    Man {
        /// The command.
        command: Option<String>,
        /// Write the pages of all commands to DIR
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        all: Option<PathBuf>,
    },
}

impl Command {
    /// Whether it prints JSON, errors included.
    pub(crate) fn json(&self) -> bool {
        match self {
            Command::Inspect(args) => args.json,
            Command::Plan(args) => args.json,
            Command::Load(args) => args.json,
            Command::Run(args) => args.json,
            Command::Embed(args) => args.json,
            Command::Rerank(args) => args.json,
            #[cfg(feature = "speech")]
            Command::Transcribe(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Eval(args) => args.json,
            Command::Calibrate(args) => args.json,
            Command::Tune(args) => args.json,
            Command::Cache(args) => args.command.json(),
            Command::Compress(args) => args.json,
            Command::Convert(args) => args.json,
            Command::Check(args) => args.json,
            Command::Diff(args) => args.json,
            Command::Tokenize(args) => args.json,
            Command::Quants(args) => args.json,
            #[cfg(feature = "hub")]
            Command::Pull(args) => args.json,
            #[cfg(feature = "hub")]
            Command::List(args) => args.json,
            #[cfg(feature = "serve")]
            Command::Serve(_) => false,
            #[cfg(all(unix, feature = "serve"))]
            Command::Reload(args) => args.json,
            Command::Report(_) | Command::Completions { .. } | Command::Man { .. } => false,
        }
    }
}

/// `inspect`.
#[derive(ClapArgs)]
pub(crate) struct InspectArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    pub(crate) path: PathBuf,
    /// List every tensor instead of grouping them
    #[arg(long)]
    pub(crate) tensors: bool,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    #[command(flatten)]
    pub(crate) page: HtmlArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// `plan`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "`plan` reads headers only. The reads, buffers and memory that it shows are those of `load` \
    with the same options. Parameters that need no copy stay in the mapped file. Everything else is read, or copied from \
    the map where separate reads would be too small.\n\n\
    `--memory SIZE` covers parameters, buffers and, in a layout that `run` takes, the KV cache. `load --memory` covers \
    buffers only. A SIZE is in bytes, or has a unit: 500MB, 24GiB.\n\n\
    Examples:\n  \
    weighbridge plan model.gguf                                 how `run` would load it\n  \
    weighbridge plan model/ --layout vllm --tp 4 --all-ranks    what each of four ranks reads and holds\n  \
    weighbridge plan model/ --layout vllm --memory 24GiB        whether it fits, and if not, what does\n  \
    weighbridge plan model.gguf --svg plan.svg                  a picture of what moves where"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct PlanArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    pub(crate) path: PathBuf,
    /// The layout of the parameters in memory
    #[arg(long, value_enum, default_value_t = LayoutArg::Packed)]
    pub(crate) layout: LayoutArg,
    #[command(flatten)]
    pub(crate) share: RankArgs,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Plan every rank, and print what each reads and holds
    #[arg(long, conflicts_with_all = ["rank", "explain"])]
    pub(crate) all_ranks: bool,
    /// Prove that all ranks together use every byte of the checkpoint
    #[arg(long, conflicts_with_all = ["rank", "explain"])]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    #[command(flatten)]
    pub(crate) lora: LoraArgs,
    /// Explain one runtime parameter: its expression, its bytes and where they come from
    #[arg(long, value_name = "PARAM", conflicts_with = "json")]
    pub(crate) explain: Option<String>,
    /// Check whether the model fits in SIZE of memory. If it does not, try mapping the file, smaller buffers and more
    /// ranks. The exit code is 1 if nothing fits on this mesh
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["explain", "all_ranks", "verify"])]
    pub(crate) memory: Option<u64>,
    /// Positions of the KV cache that `--memory` includes [default: the model's, at most 4096]
    #[arg(long, value_name = "POSITIONS", requires = "memory", value_parser = whole(1u32, None))]
    pub(crate) ctx: Option<u32>,
    /// How these positions are kept
    #[arg(long, requires = "memory", value_enum, default_value = "f16")]
    pub(crate) kv: KvArg,
    /// Copy all parameters into memory, as `load --owned` does; none stay in the map
    #[arg(long)]
    pub(crate) owned: bool,
    /// Threads of the load, each with buffers of its own [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) page: SvgArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// What a user says about a checkpoint that it does not say itself.
#[derive(ClapArgs)]
pub(crate) struct AdapterArgs {
    /// Rename and reshape tensors by the rules in FILE.toml before they are matched (docs/rules.md)
    #[arg(long, value_name = "FILE.toml")]
    rules: Option<PathBuf>,
    /// Allow parameters that match PATTERN to be missing. It matches parameter or tensor names; `{word}` matches any
    /// segment. The output lists what is missing
    #[arg(long, value_name = "PATTERN")]
    allow_missing: Vec<String>,
}

impl AdapterArgs {
    /// The library's.
    pub(crate) fn adapter(&self) -> Result<Adapter, weighbridge::Error> {
        Ok(Adapter {
            bindings: None,
            mapping: self.rules.as_deref().map(weighbridge::planner::read_rules).transpose()?,
            allow_missing: self.allow_missing.iter().map(Pattern::new).collect(),
            drops: vec![],
        })
    }
}

/// The ranks that share a model.
#[derive(ClapArgs)]
pub(crate) struct MeshArgs {
    /// Ranks that share each layer (tensor parallel)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = whole(1u64, None))]
    tp: u64,
    /// Stages that share the layers (pipeline parallel)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = whole(1u64, None))]
    pp: u64,
    /// Groups that share the experts (expert parallel)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = whole(1u64, None))]
    ep: u64,
    /// How experts are distributed
    #[arg(long, value_enum, default_value_t = ExpertsArg::Linear)]
    experts: ExpertsArg,
    /// Give each rank whole experts instead of a share of each (vLLM's --enable-expert-parallel)
    #[arg(long)]
    whole_experts: bool,
}

impl MeshArgs {
    pub(crate) fn mesh(&self) -> Mesh {
        let experts = match self.experts {
            ExpertsArg::Linear => ExpertPlacement::Linear,
            ExpertsArg::RoundRobin => ExpertPlacement::RoundRobin,
        };
        Mesh { tp: self.tp, pp: self.pp, ep: self.ep, experts, whole_experts: self.whole_experts }
    }
}

/// One of the ranks that share a model.
#[derive(ClapArgs)]
pub(crate) struct RankArgs {
    #[command(flatten)]
    mesh: MeshArgs,
    /// The rank to plan or load, from 0; tensor-parallel ranks are neighbours
    #[arg(long, value_name = "R", default_value_t = 0, hide_default_value = true, value_parser = whole(0u64, None))]
    pub(crate) rank: u64,
}

impl RankArgs {
    pub(crate) fn mesh(&self) -> Mesh {
        self.mesh.mesh()
    }
}

/// How experts are distributed among groups of ranks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExpertsArg {
    /// Consecutive experts on the same group
    Linear,
    /// Consecutive experts on different groups, in turn
    RoundRobin,
}

/// A layout by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LayoutArg {
    /// The names, shapes and encodings of the file. Works for any architecture; cannot be run
    Source,
    /// Canonical names, shapes and order, with the encodings of the file
    Canonical,
    /// The order of the file, so that as much as possible is mapped and not copied
    InPlace,
    /// The names and shapes of GGUF
    Gguf,
    /// The names and shapes of Hugging Face transformers
    Hf,
    /// The names and shapes of mlx-lm
    Mlx,
    /// The parameters of vLLM's layers: fused, with the encodings of the file, the vocabulary padded to 64
    Vllm,
    /// Canonical names, with the fused parameters of the model family
    Modules,
    /// Fused, with interleaved rows. Runs fastest
    #[value(alias = "native")]
    Packed,
}

impl LayoutArg {
    /// The layout, with as many interleaved rows as this machine's kernels take.
    pub(crate) fn kind(self) -> Result<LayoutKind, String> {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", PossibleValue::get_name);
        weighbridge::layout(name).map_err(|e| e.diagnostics().to_string())
    }
}

/// How to start a model.
#[derive(ClapArgs)]
pub(crate) struct ModelArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    #[arg(required_unless_present = "model")]
    path: Option<PathBuf>,
    /// The model, like PATH
    #[arg(long, short, value_name = "PATH", conflicts_with = "path")]
    model: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Context length: positions to reserve in the KV cache [default: the model's, at most 4096]
    #[arg(long, value_name = "POSITIONS", value_parser = whole(1u32, None))]
    pub(crate) ctx: Option<u32>,
    /// How keys and values are kept in the KV cache [default: f16; f32 for the reference backend]
    #[arg(long, value_enum)]
    kv: Option<KvArg>,
    /// Limit weights, buffers and KV cache together to SIZE. Layers that do not fit are read again for each token [default: what the
    /// system has available]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    #[command(flatten)]
    open: OpenArgs,
    /// Copies of loaded weights that make the next start fast [default: write for `run` and `serve`, read for others]
    #[arg(long, value_enum)]
    cache: Option<CacheArg>,
}

/// How much is kept of a prompt.
#[derive(ClapArgs)]
pub(crate) struct BudgetArgs {
    /// Keep N positions of each prompt (SnapKV): the last 64, and those that these look at most. Answers change. Each token takes less memory
    /// and time after a long prompt. Layers with a window keep their window
    #[arg(long, value_name = "N", value_parser = whole(OBSERVED as u32 + 1, None))]
    kv_budget: Option<u32>,
}

impl BudgetArgs {
    /// The positions that are kept; `None`: all of them.
    pub(crate) fn positions(&self) -> Option<usize> {
        self.kv_budget.map(|n| n as usize)
    }
}

/// A form of keys and values by name.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KvArg {
    /// As they are computed
    F32,
    /// Half of that, rounded to 11 bits
    F16,
    /// The last 128 positions or more in f16, older ones in 8 bits
    Int8,
    /// The last 128 positions or more in f16, older ones in 4 bits
    Int4,
}

impl KvArg {
    /// The form of the library.
    pub(crate) fn kind(self) -> KvKind {
        match self {
            KvArg::F32 => KvKind::F32,
            KvArg::F16 => KvKind::F16,
            KvArg::Int8 => KvKind::Int8,
            KvArg::Int4 => KvKind::Int4,
        }
    }
}

impl ModelArgs {
    /// The checkpoint.
    pub(crate) fn path(&self) -> &Path {
        // One of the two is required.
        self.path.as_deref().or(self.model.as_deref()).unwrap_or(Path::new(""))
    }

    /// True if the command line says how keys and values are kept.
    #[cfg(feature = "serve")]
    pub(crate) fn has_kv(&self) -> bool {
        self.kv.is_some()
    }

    /// The options of the library, with copies used as `usual` unless the command line says how.
    pub(crate) fn options(&self, usual: CacheArg) -> Result<RuntimeOptions, Failure> {
        let open = self.open.options();
        Ok(RuntimeOptions {
            context: self.ctx.map(|n| n as usize),
            kv: self.kv.map(KvArg::kind),
            memory: self.memory,
            cache: CacheArg::mode(self.cache, usual, open.io).map_err(Failure::Usage)?,
            open,
            ..self.engine.options()?
        })
    }
}

/// `tune`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Run nothing else meanwhile. The result holds for this processor, this version and this number of \
    threads. `tune` saves it in `tune.json` in the cache directory: $WEIGHBRIDGE_CACHE, or weighbridge in $XDG_CACHE_HOME, \
    or ~/.cache/weighbridge. It changes speed, never output."
)]
pub(crate) struct TuneArgs {
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
    /// Print the measurements without saving them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tokenize`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Each line shows the id of a token and its text in the vocabulary, with control characters \
    escaped. A tokenizer.json gives the same ids as the library `tokenizers`, and a GGUF file the same ids as llama.cpp. \
    A tokenizer that cannot be followed exactly is an error, which lists every field that prevents it.\n\n\
    Examples:\n  \
    weighbridge tokenize model.gguf 'Hello, world'      ids and pieces\n  \
    weighbridge tokenize model/ - < text.txt            a text from standard input\n  \
    weighbridge tokenize tokenizer.json --json 'Hello'  without a model, as JSON\n  \
    weighbridge tokenize model.gguf --decode 19556,28   the text of ids"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct TokenizeArgs {
    /// A checkpoint with a tokenizer, or a tokenizer.json
    pub(crate) path: PathBuf,
    /// The text, or with --decode the ids. Without it, or with -, standard input
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Print the text of ids, which are separated by commas or spaces
    #[arg(long)]
    pub(crate) decode: bool,
    /// Leave out the special tokens that the model adds around the text, or with --decode all special tokens
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Tokenize the names of special tokens in the text as plain text
    #[arg(long, conflicts_with = "decode")]
    pub(crate) special_as_text: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How to read the file
    #[arg(long, value_enum, default_value_t = IoArg::Auto)]
    pub(crate) io: IoArg,
}

/// How to treat unknown keys.
#[derive(ClapArgs)]
pub(crate) struct StrictArgs {
    /// Fail if the checkpoint has unknown keys, or keys that weighbridge does not follow; otherwise only list them
    #[arg(long)]
    pub(crate) strict: bool,
}

/// `bench`.
#[derive(ClapArgs)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// Prompt tokens
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole(1u32, None))]
    pub(crate) prefill: u32,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(1u32, None))]
    pub(crate) decode: u32,
    /// Positions that are filled before
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0u32, None))]
    pub(crate) depth: u32,
    /// Sequences that are decoded together. The speed is that of all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1u32, Some(256u32)))]
    pub(crate) sequences: u32,
    /// Runs of each, after one to warm up; the output is their median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole(1u32, None))]
    pub(crate) repeat: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `diff`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "If both checkpoints are complete models of one family, `diff` compares parameters by canonical names, \
    so that you can compare GGUF with Hugging Face. Otherwise it compares tensors by their stored names. Errors are those \
    of B against A: the largest, the relative error (the norm of the difference over the norm of A), and the cosine \
    similarity.\n\n\
    Exit codes are those of diff(1) and cmp(1): 0 if both hold the same parameters with the same values, whatever their \
    names and encodings; 1 if they differ; 2 if a file is broken or the command line is wrong. `diff` compares \
    configurations too, but they do not change the exit code.\n\n\
    Examples:\n  \
    weighbridge diff model/ model.gguf         what a conversion did\n  \
    weighbridge diff base.gguf tuned.gguf      which layers training changed most\n  \
    weighbridge diff a.pt b.pt --layout source any two files, by tensor name\n  \
    weighbridge diff a/ b/ --json > diff.json  every parameter\n  \
    weighbridge diff a/ b/ --html diff.html    every parameter as a page, with a chart of the layers"
)]
pub(crate) struct DiffArgs {
    /// A GGUF, safetensors, PyTorch, .npz or .npy file, a model directory (Hugging Face, MLX, .npy files), its URL, or
    /// hf:OWNER/NAME
    pub(crate) a: PathBuf,
    /// The other checkpoint, in any format
    pub(crate) b: PathBuf,
    /// Compare by the names of the files or by canonical names [default: canonical, if both are models of one family]
    #[arg(long, value_enum)]
    layout: Option<DiffLayoutArg>,
    /// List every parameter, and the tensors that it is made from
    #[arg(long)]
    pub(crate) all: bool,
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) page: HtmlArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A layout to compare in, by name.
#[derive(Clone, Copy, ValueEnum)]
enum DiffLayoutArg {
    /// The names and shapes of the files
    Source,
    /// Canonical names, shapes and order
    Canonical,
}

impl DiffArgs {
    /// The layout that is asked for.
    pub(crate) fn layout(&self) -> Option<LayoutKind> {
        self.layout.map(|layout| match layout {
            DiffLayoutArg::Source => LayoutKind::Source,
            DiffLayoutArg::Canonical => LayoutKind::Canonical,
        })
    }
}

/// `quants`.
#[derive(ClapArgs)]
pub(crate) struct QuantsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

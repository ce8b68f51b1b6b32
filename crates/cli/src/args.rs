//! The command line.

mod check;
mod convert;
mod encoding;
mod load;
mod open;
mod page;
mod run;
mod size;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use weighbridge::model::{DialectName, ExpertPlacement};
use weighbridge::planner::Adapter;
use weighbridge::runtime::BackendKind;
use weighbridge::tensor::Pattern;
use weighbridge::{LayoutKind, Mesh, RuntimeOptions};

pub(crate) use check::CheckArgs;
pub(crate) use convert::ConvertArgs;
use encoding::EncodingArgs;
pub(crate) use load::LoadArgs;
pub(crate) use open::{AlsoArgs, IoArg, OpenArgs};
pub(crate) use page::{HtmlArgs, SvgArgs};
pub(crate) use run::RunArgs;
use size::size;

use crate::tuned;

/// Opens any model checkpoint, proves that it fits the model, moves exactly the bytes needed, and runs it.
#[derive(Parser)]
#[command(name = "weighbridge", version, max_term_width = 100)]
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
    /// Show how a checkpoint would be loaded, and everything that is wrong with it. Reads headers only
    Plan(PlanArgs),
    /// Load a checkpoint into memory, and say what that cost
    Load(LoadArgs),
    /// Run a model: complete a text, or chat
    Run(RunArgs),
    /// Measure prefill and decode speed
    Bench(BenchArgs),
    /// Find how this machine reads weights fastest, for `run` and `bench`. Takes a second
    Tune(TuneArgs),
    /// Write a checkpoint in another format or in other encodings, tensor by tensor
    Convert(ConvertArgs),
    /// Check a checkpoint without a model: its structure, its values, its bytes against a manifest
    Check(CheckArgs),
    /// Compare two checkpoints of any formats, value by value
    Diff(DiffArgs),
    /// Show the tokens of a text, or the text of tokens
    Tokenize(TokenizeArgs),
    /// List the encodings: bits, and what can be done with each here
    Quants(QuantsArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, of all or of one command
    Man {
        /// The command.
        command: Option<String>,
        /// Write the pages of all commands into DIR instead
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
            Command::Bench(args) => args.json,
            Command::Tune(args) => args.json,
            Command::Convert(args) => args.json,
            Command::Check(args) => args.json,
            Command::Diff(args) => args.json,
            Command::Tokenize(args) => args.json,
            Command::Quants(args) => args.json,
            Command::Completions { .. } | Command::Man { .. } => false,
        }
    }
}

/// `inspect`.
#[derive(ClapArgs)]
pub(crate) struct InspectArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
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
    after_long_help = "Reads, buffers and memory are those of `load` with the same options; nothing of it is \
    read. A map lends what needs no copy, and runs that lie so near each other that reads would take in all between; all \
    else is read.\n\n\
    A SIZE is in bytes, or has a unit: 500MB, 24GiB. It is of the parameters, the buffers and, in a layout that `run` takes, \
    the keys and values of a sequence together; `load --memory` is of the buffers alone.\n\n\
    Examples:\n  \
    weighbridge plan model.gguf                                 as `run` would load it\n  \
    weighbridge plan model/ --layout vllm --tp 4 --all-ranks    what each of four ranks reads and holds\n  \
    weighbridge plan model/ --layout vllm --memory 24GiB        whether it fits, and what does\n  \
    weighbridge plan model.gguf --svg plan.svg                  a picture of what moves where"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct PlanArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
    pub(crate) path: PathBuf,
    /// How the runtime wants the parameters
    #[arg(long, value_enum, default_value_t = LayoutArg::Packed)]
    pub(crate) layout: LayoutArg,
    #[command(flatten)]
    pub(crate) share: RankArgs,
    #[command(flatten)]
    pub(crate) strict: StrictArgs,
    /// Plan every rank, and print what each of them reads and holds
    #[arg(long, conflicts_with_all = ["rank", "explain"])]
    pub(crate) all_ranks: bool,
    /// Prove that all ranks together use every byte of the checkpoint
    #[arg(long, conflicts_with_all = ["rank", "explain"])]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) adapter: AdapterArgs,
    #[command(flatten)]
    pub(crate) encoding: EncodingArgs,
    /// Explain one runtime parameter: its expression, its bytes and where they come from
    #[arg(long, value_name = "PARAM", conflicts_with = "json")]
    pub(crate) explain: Option<String>,
    /// Say whether the parameters and the buffers together fit into SIZE, and if not, what does: borrowing from the map,
    /// smaller buffers, more ranks. Exit code 1 if nothing does on this mesh
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["explain", "all_ranks", "verify"])]
    pub(crate) memory: Option<u64>,
    /// Positions whose keys and values `--memory` counts, in a layout that `run` takes [default: the model's, at most 4096]
    #[arg(long, value_name = "POSITIONS", requires = "memory", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ctx: Option<u32>,
    /// Plan to copy everything into memory of its own, as `load --owned` does
    #[arg(long)]
    pub(crate) owned: bool,
    /// Threads that the load would have; each has buffers [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
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
    /// Rules for the names and forms of tensors, before anything looks for them: docs/rules.md
    #[arg(long, value_name = "FILE.toml")]
    rules: Option<PathBuf>,
    /// Parameters that may be absent, by their names or those of their entries, where a word in braces stands for any
    /// segment; what is let through is listed
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
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    tp: u64,
    /// Stages that the layers are dealt to (pipeline parallel)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    pp: u64,
    /// Groups that the experts are dealt to (expert parallel)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    ep: u64,
    /// How experts are dealt out
    #[arg(long, value_enum, default_value_t = ExpertsArg::Linear)]
    experts: ExpertsArg,
    /// Ranks that share each layer have whole experts (vLLM's --enable-expert-parallel)
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
    /// Whose share it is, counted from 0; tensor-parallel neighbours are next to each other
    #[arg(long, value_name = "R", default_value_t = 0, hide_default_value = true)]
    pub(crate) rank: u64,
}

impl RankArgs {
    pub(crate) fn mesh(&self) -> Mesh {
        self.mesh.mesh()
    }
}

/// How experts are dealt to groups of ranks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExpertsArg {
    /// Neighbours together
    Linear,
    /// One after the other
    RoundRobin,
}

/// A layout by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LayoutArg {
    /// Names, shapes and encodings of the file: for any architecture, but nothing runs it
    Source,
    /// Canonical names, shapes and order; encodings as stored
    Canonical,
    /// As it lies in the file: borrows all that can be
    InPlace,
    /// Names and shapes of GGUF, whatever the file is
    Gguf,
    /// Names and shapes of transformers, whatever the file is
    Hf,
    /// Names and shapes of mlx-lm, whatever the file is
    Mlx,
    /// As vLLM's layers hold them: fused, encoded as stored, the vocabulary padded to 64
    Vllm,
    /// What the modules of the family hold: canonical names, fused
    Modules,
    /// Fused, rows interleaved: what runs fastest
    #[value(alias = "native")]
    Packed,
}

impl LayoutArg {
    /// The layout, with as many interleaved rows as this machine's kernels take.
    pub(crate) fn kind(self) -> Result<LayoutKind, String> {
        Ok(match self {
            LayoutArg::Source => LayoutKind::Source,
            LayoutArg::Canonical => LayoutKind::Canonical,
            LayoutArg::InPlace => LayoutKind::InPlace,
            LayoutArg::Gguf => LayoutKind::Named(DialectName::Gguf),
            LayoutArg::Hf => LayoutKind::Named(DialectName::Hf),
            LayoutArg::Mlx => LayoutKind::Mlx,
            LayoutArg::Vllm => weighbridge::vllm::LAYOUT,
            LayoutArg::Modules => LayoutKind::Modules,
            LayoutArg::Packed => {
                weighbridge::planner::packed_layout().map_err(|e| e.diagnostics().to_string())?
            }
        })
    }
}

/// How to start a model.
#[derive(ClapArgs)]
pub(crate) struct ModelArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
    #[arg(required_unless_present = "model")]
    path: Option<PathBuf>,
    /// The same as PATH
    #[arg(long, short, value_name = "PATH", conflicts_with = "path")]
    model: Option<PathBuf>,
    /// The backend: `reference` is naive f32, slow and exact
    #[arg(long, value_enum, default_value_t = BackendArg::Cpu)]
    backend: BackendArg,
    /// How the weights are held [default: the fastest for the backend]
    #[arg(long, value_enum)]
    layout: Option<LayoutArg>,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Threads [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Positions to reserve [default: the model's, at most 4096]
    #[arg(long, value_name = "POSITIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ctx: Option<u32>,
    #[command(flatten)]
    open: OpenArgs,
    /// Go without what `weighbridge tune` found
    #[arg(long)]
    no_tune: bool,
}

/// A backend by name.
#[derive(Clone, Copy, ValueEnum)]
enum BackendArg {
    /// SIMD on all threads
    Cpu,
    /// Naive f32 on one thread: the oracle
    Reference,
}

impl ModelArgs {
    /// The checkpoint.
    pub(crate) fn path(&self) -> &Path {
        // One of the two is required.
        self.path.as_deref().or(self.model.as_deref()).unwrap_or(Path::new(""))
    }

    /// The options of the library.
    pub(crate) fn options(&self) -> Result<RuntimeOptions, String> {
        let threads = self.threads.map(usize::from);
        Ok(RuntimeOptions {
            backend: match self.backend {
                BackendArg::Cpu => BackendKind::Cpu,
                BackendArg::Reference => BackendKind::Reference,
            },
            layout: self.layout.map(LayoutArg::kind).transpose()?,
            threads,
            context: self.ctx.map(|n| n as usize),
            encoding: self.encoding.encoding(),
            open: self.open.options(),
            access: if self.no_tune { None } else { tuned::read(threads)? },
        })
    }
}

/// `tune`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The result holds for this processor, this version and this number of threads. It is kept in `tune.json` \
    in the cache folder: $WEIGHBRIDGE_CACHE, or weighbridge in $XDG_CACHE_HOME, or ~/.cache/weighbridge. It changes the \
    speed and no result. Run nothing else meanwhile."
)]
pub(crate) struct TuneArgs {
    /// Threads [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Only show what was measured
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tokenize`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "Each line has the id of a token and how the vocabulary spells it, with control characters \
    escaped. A tokenizer.json gives the ids that the library `tokenizers` gives, a GGUF file those that llama.cpp gives; a \
    file that cannot be followed exactly is refused, with every field that is in the way.\n\n\
    Examples:\n  \
    weighbridge tokenize model.gguf 'Hello, world'      ids and pieces\n  \
    weighbridge tokenize model/ - < text.txt            of a text from standard input\n  \
    weighbridge tokenize tokenizer.json --json 'Hello'  of a file without a model, as JSON\n  \
    weighbridge tokenize model.gguf --decode 19556,28   the text of ids"
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, as clap derives them")]
pub(crate) struct TokenizeArgs {
    /// A checkpoint with a tokenizer, or a tokenizer.json
    pub(crate) path: PathBuf,
    /// The text, or with --decode the ids; - or nothing reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Take ids, with commas or spaces between, and print their text
    #[arg(long)]
    pub(crate) decode: bool,
    /// Leave out special tokens: those around the text that the model adds, or with --decode all
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Take special tokens that are written in the text for text
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
    /// Refuse keys of the checkpoint that are unknown, or whose values are not followed; else they are listed
    #[arg(long)]
    pub(crate) strict: bool,
}

/// `bench`.
#[derive(ClapArgs)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Prompt tokens
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prefill: u32,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) decode: u32,
    /// Runs of each, after one to warm up; medians are printed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `diff`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "If one family claims both and both have all that it wants, parameters are compared by canonical \
    names, in canonical order, so that GGUF can be held against HF; else by names as stored. Errors are those of B \
    against A: the largest, the length of the difference in lengths of A (relative), the cosine of the angle.\n\n\
    Exit code, as of diff(1) and cmp(1): 0 if both hold the same parameters with the same values, whatever their names \
    and encodings; 1 if they differ; 2 if that cannot be told, since a file is broken or the command line is wrong. \
    Configurations are compared too, but do not count.\n\n\
    Examples:\n  \
    weighbridge diff model/ model.gguf         what a conversion did\n  \
    weighbridge diff base.gguf tuned.gguf      which layers a training changed, the most first\n  \
    weighbridge diff a.pt b.pt --layout source any two files, name by name\n  \
    weighbridge diff a/ b/ --json > diff.json  every parameter\n  \
    weighbridge diff a/ b/ --html diff.html    every parameter as a page, with a chart of the layers"
)]
pub(crate) struct DiffArgs {
    /// A .gguf, .safetensors, .npz or PyTorch file, or a directory with config.json and weights
    pub(crate) a: PathBuf,
    /// Another, of any format
    pub(crate) b: PathBuf,
    /// Whose names: those of the files, or canonical ones [default: canonical, if a family claims both]
    #[arg(long, value_enum)]
    layout: Option<DiffLayoutArg>,
    /// List each parameter, and the entries that it is made from
    #[arg(long)]
    pub(crate) all: bool,
    /// Threads [default: all]
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=1024))]
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
    /// Names and shapes of the files
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

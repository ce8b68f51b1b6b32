//! `pull` and `list`.

use clap::Args as ClapArgs;

/// `pull`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "A NAME is owner/name, then @revision, then /file or /quantisation. Without a file, `pull` takes the weights \
    of one format, the configuration and the tokenizer. A repository of several GGUF files needs a quantisation; the error lists \
    them. Files go into the cache that the Python package huggingface_hub uses, and every digest is checked (docs/hub.md).\n\n\
    The token is read from $HF_TOKEN, or from the file that `hf auth login` writes. A pull that was interrupted continues when you \
    run it again.\n\n\
    Examples:\n  \
    weighbridge pull Qwen/Qwen3-0.6B                             a model directory\n  \
    weighbridge pull unsloth/Qwen3-0.6B-GGUF/Q4_K_M              one GGUF file\n  \
    weighbridge pull openai-community/gpt2@main/model.safetensors   one file of a branch"
)]
pub(crate) struct PullArgs {
    /// Models of the hub, with or without `hf:` before them
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The branch, tag or commit [default: main]
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
    /// Do not use the network: find the model in the cache
    #[arg(long)]
    pub(crate) offline: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `list`.
#[derive(ClapArgs)]
#[command(
    after_long_help = "The models of the Hugging Face cache, of Ollama ($OLLAMA_MODELS, or ~/.ollama/models) and of LM Studio \
    (~/.lmstudio/models, ~/.cache/lm-studio/models). The other commands take each path.\n\n\
    Examples:\n  \
    weighbridge list           a table\n  \
    weighbridge list --json    for programs"
)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

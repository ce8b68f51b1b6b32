//! Tips for users of other programs: what their words are here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use weighbridge::planner::Preset;

/// What commands of other programs are here.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["chat", "cli"], "`weighbridge run MODEL` starts a chat"),
    (&["generate", "complete", "completion", "ask"], "`weighbridge run MODEL -p 'TEXT'` answers"),
    (&["info", "show", "ls", "dump", "view", "metadata", "tensors"], "`weighbridge inspect PATH` shows it"),
    (&["verify", "validate", "hash", "checksum"], "`weighbridge check PATH` does that"),
    (&["compare", "cmp"], "`weighbridge diff A B` does that"),
    (&["export", "merge", "split", "dequantize"], "`weighbridge convert SOURCE DESTINATION` does that"),
    (&["shard"], "`weighbridge convert SOURCE DESTINATION/ --to hf --layout vllm --tp N` does that"),
    (&["benchmark", "perf"], "`weighbridge bench MODEL` does that"),
    (&["encode", "decode", "tokens"], "`weighbridge tokenize MODEL 'TEXT'` does that"),
    (&["types", "formats", "schemes", "encodings"], "`weighbridge quants` lists the encodings"),
    #[cfg(feature = "hub")]
    (&["download", "get", "fetch"], "`weighbridge pull OWNER/NAME` does that"),
    #[cfg(feature = "hub")]
    (&["models", "ps", "local"], "`weighbridge list` shows the models on this machine"),
    #[cfg(not(feature = "hub"))]
    (
        &["download", "pull", "get", "list"],
        "this build has no hub: it has the feature `hub` when that is compiled in",
    ),
    (&["embedding", "embeddings", "vectors"], "`weighbridge embed MODEL 'TEXT'` does that"),
    (&["reranker", "rank", "score"], "`weighbridge rerank MODEL 'QUERY' FILE` does that"),
    #[cfg(feature = "speech")]
    (&["whisper", "stt", "asr", "speech", "listen"], "`weighbridge transcribe MODEL SOUND` does that"),
    #[cfg(feature = "serve")]
    (&["server", "api", "openai"], "`weighbridge serve MODEL` does that"),
    #[cfg(not(feature = "serve"))]
    (&["serve", "server"], "this build has no server: it has the feature `serve` when that is compiled in"),
];

/// What flags of `run` and `bench` are called here.
const RUN: &[(&[&str], &str)] = &[
    (&["-c", "--ctx-size", "--context", "--max-kv-size"], "`--ctx` reserves positions"),
    (
        &["-ctk", "-ctv", "--cache-type-k", "--cache-type-v", "--kv-bits", "--kv-cache-dtype"],
        "`--kv` chooses f32, f16, int8 or int4",
    ),
    (&["--n-predict", "--predict", "--max-tokens", "--max-new-tokens"], "`-n` limits the tokens"),
    (&["--temp"], "`--temperature` does that"),
    (&["--typical-p"], "`--typical` does that"),
    (&["-s"], "`--seed` or `--system`"),
    (&["--system-prompt", "--sys"], "`--system` does that"),
    (&["-i", "--interactive", "--conversation", "--chat"], "without `-p`, `run` starts a chat"),
    (&["--gpu-layers", "--n-gpu-layers", "--device"], GPU),
    (&["--top_k"], "`--top-k`"),
    (&["--top_p"], "`--top-p`"),
];

/// What flags of `serve` are called here: llama.cpp's and vLLM's.
const SERVE: &[(&[&str], &str)] = &[
    (&["-c", "--ctx-size", "--context", "--max-model-len"], "`--ctx` reserves positions for each request"),
    (&["-np", "--n-parallel", "--max-num-seqs"], "`--parallel` says how many requests run together"),
    (
        &["-ctk", "-ctv", "--cache-type-k", "--cache-type-v", "--kv-cache-dtype"],
        "`--kv` chooses f32, f16, int8 or int4",
    ),
    (&["--served-model-name"], "`--alias` does that"),
    (&["--allowed-origins"], "`--cors` does that"),
    (&["--gpu-layers", "--n-gpu-layers", "--device"], GPU),
];

/// What flags of `convert` are called here.
const CONVERT: &[(&[&str], &str)] = &[
    (
        &["-q", "--quantize", "--outtype", "--qtype", "--ftype", "--quant"],
        "`--preset` or `--encode` choose the encodings",
    ),
    (&["--dtype"], "`--encode '*=bf16'` does that"),
    (&["-o", "--output", "--outfile", "--out", "--mlx-path"], "the destination is the second argument"),
    (&["--hf-path", "--model", "-m"], "the source is the first argument"),
];

const GPU: &str = "nothing runs on a GPU here, so leave it out";

/// The error of a command line, with a tip where it is known what the user probably wants.
pub(crate) fn advised(mut error: clap::Error) -> clap::Error {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let preset = || words.iter().find(|word| Preset::named(word).is_some());
    let command = words.iter().find(|word| !word.starts_with('-')).map(String::as_str);
    let tip = match (
        of(ContextKind::InvalidSubcommand),
        of(ContextKind::InvalidArg),
        of(ContextKind::InvalidValue),
    ) {
        (Some("quantize" | "quantise" | "quant"), ..) => {
            let preset = preset().map_or("q4_k_m", String::as_str);
            Some(format!("`weighbridge convert SOURCE DESTINATION --preset {preset}` does that"))
        }
        (Some(word), ..) => find(COMMANDS, word),
        // `-ngl 99` is `-n gl`.
        (None, _, Some("gl")) => Some(GPU.to_owned()),
        (None, Some(word), None) => match command {
            Some("run") if !word.starts_with('-') => Some("give the prompt with `-p`".to_owned()),
            Some("eval") if !word.starts_with('-') => Some("give the text with `-f`".to_owned()),
            Some("run" | "bench" | "eval") => find(RUN, word),
            Some("serve") => find(SERVE, word),
            Some("convert") if Preset::named(word).is_some() => Some(format!("`--preset {word}`")),
            Some("convert") => find(CONVERT, word),
            _ => None,
        },
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
        for guess in
            [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        {
            error.remove(guess);
        }
    }
    error
}

fn find(table: &[(&[&str], &str)], word: &str) -> Option<String> {
    let (_, tip) = table.iter().find(|(words, _)| words.contains(&word))?;
    Some((*tip).to_owned())
}

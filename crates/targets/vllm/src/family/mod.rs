//! Names of a family's parameters in vLLM: one file and one line of [`FAMILIES`] each.

mod bert;
mod decoder;
mod deepseek_v3;
mod falcon;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_oss;
mod mixtral;
mod olmo2;
mod qwen3moe;
mod starcoder2;
mod whisper;

use model::{Ends, Rule};

use crate::ShardedState;

/// Tables of rules; the first rule for a parameter counts.
pub(crate) type Rules = Vec<&'static [Rule]>;

/// Whether a canonical parameter is there, and not tied to another.
pub(crate) type Own<'a> = &'a dyn Fn(&str) -> bool;

/// A family in vLLM.
pub(crate) struct Names {
    /// The name of each parameter, fused or not, given which canonical parameters are there.
    pub(crate) rules: fn(Own<'_>) -> Rules,
    /// Parameters that stages hold besides their layers; `None` if the family is not run in stages.
    pub(crate) stages: Option<Ends>,
    /// The state that the loader `sharded_state` expects.
    pub(crate) state: ShardedState,
}

/// Every family, by its name here.
static FAMILIES: &[(&str, &Names)] = &[
    ("llama", &decoder::NAMES),
    ("mixtral", &mixtral::NAMES),
    ("falcon", &falcon::NAMES),
    ("gemma2", &gemma2::NAMES),
    ("gemma3", &gemma3::NAMES),
    ("granite", &decoder::NAMES),
    ("gpt2", &gpt2::NAMES),
    ("qwen2", &decoder::NAMES),
    ("qwen3", &decoder::NAMES),
    ("qwen3moe", &qwen3moe::NAMES),
    ("phi3", &decoder::NAMES),
    ("deepseek_v3", &deepseek_v3::NAMES),
    ("gpt-oss", &gpt_oss::NAMES),
    ("bert", &bert::NAMES),
    ("olmo2", &olmo2::NAMES),
    ("starcoder2", &starcoder2::NAMES),
    ("whisper", &whisper::NAMES),
];

/// The names of the family called `name`, if vLLM runs it and they are known.
pub(crate) fn names(name: &str) -> Option<&'static Names> {
    FAMILIES.iter().find(|(family, _)| *family == name).map(|(_, names)| *names)
}

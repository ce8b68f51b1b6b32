//! Families: models that share a block. This crate's are in a table; programs add their own with [`register`].

mod bert;
pub mod blocks;
mod claim;
mod deepseek_v3;
mod distilbert;
mod falcon;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_oss;
mod granite;
mod llama;
mod mixtral;
mod modernbert;
mod mpnet;
mod nomic_bert;
mod olmo2;
mod phi3;
mod qwen;
mod qwen35;
mod qwen3moe;
mod register;
mod roberta;
mod starcoder2;
mod whisper;

use tensor::{RopeOrder, ValueOrder};

use crate::config::{Reader, WithoutEffect};
use crate::dialect::Dialect;
use crate::ecosystem::DialectName;
use crate::module::Module;
use crate::{Config, Description};

pub(crate) use claim::find;
pub(crate) use register::checked;
pub use register::{families, register};

/// A family of models: how its configuration is read and written, which modules it has, and what ecosystems call their
/// parameters. In this crate it is one file and one line in a table; outside, [`register`] adds it.
pub trait Family: Sync {
    /// The name, which no other family has.
    fn name(&self) -> &'static str;
    /// Values of GGUF's `general.architecture` that it claims.
    fn gguf(&self) -> &'static [&'static str];
    /// Values of config.json's `architectures` that it claims, of backbones saved alone too; without those, of `model_type`.
    fn hf(&self) -> &'static [&'static str];
    /// Names of architectures that it claims in other ecosystems than these two: CTranslate2's name of a specification.
    fn elsewhere(&self, _dialect: DialectName) -> &'static [&'static str] {
        &[]
    }
    /// Reads the configuration. Every key that affects results must be read here: its value is used, or checked
    /// ([`Reader::only`]). Defaults are the reference's. Problems go to the reader.
    fn config(&self, reader: &mut Reader) -> Config;
    /// Returns the configuration as an ecosystem writes it, such that [`Family::config`] reads back the same. `own`
    /// says whether a canonical parameter is there and does not share its bytes with an earlier one.
    fn describe(&self, config: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description;
    /// The modules that own the canonical parameters, and say what they compute.
    fn module(&self, config: &Config) -> Box<dyn Module>;
    /// Whether a checkpoint that calls itself by a name of this family is of it. Two families of this crate share a name in
    /// GGUF; a checkpoint of yours for which this is false has no family.
    fn claims(&self, _facts: &Reader) -> bool {
        true
    }
    /// Keys of an ecosystem that do not change what the family computes, and why.
    fn without_effect(&self, _dialect: DialectName) -> &'static WithoutEffect {
        &[]
    }
    /// How an ecosystem names and lays out the parameters; `None`: it has no files of this family. There is a rule for each
    /// parameter that modules own and require. Asked for GGUF and transformers, and for an ecosystem in which the family
    /// claims names [elsewhere](Family::elsewhere).
    fn dialect(&self, name: DialectName) -> Option<Dialect>;
    /// The order in which an ecosystem's files have the rows of q and k.
    fn rope_order(&self, _dialect: DialectName) -> RopeOrder {
        RopeOrder::Half
    }
    /// The order in which an ecosystem's files have the heads of values of linear attention.
    fn value_order(&self, _dialect: DialectName) -> ValueOrder {
        ValueOrder::Grouped
    }
}

/// The names and layout of `family` in `dialect`; `None` if the ecosystem has no files of it.
pub(crate) fn dialect(family: &dyn Family, name: DialectName) -> Option<Dialect> {
    let usual = matches!(name, DialectName::Gguf | DialectName::Hf);
    if usual || !family.elsewhere(name).is_empty() { family.dialect(name) } else { None }
}

/// Every family of this crate.
static FAMILIES: &[&dyn Family] = &[
    // Before Llama, whose name in GGUF it shares.
    &mixtral::Mixtral,
    &llama::Llama,
    &gemma3::Gemma3,
    &gpt2::Gpt2,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen3moe::Qwen3Moe,
    &qwen35::Qwen35,
    &phi3::Phi3,
    &starcoder2::StarCoder2,
    &granite::Granite,
    &olmo2::Olmo2,
    &gemma2::Gemma2,
    &falcon::Falcon,
    &deepseek_v3::DeepseekV3,
    &gpt_oss::GptOss,
    &bert::Bert,
    &roberta::Roberta,
    &distilbert::DistilBert,
    &mpnet::MpNet,
    &modernbert::ModernBert,
    &nomic_bert::NomicBert,
    &whisper::Whisper,
];

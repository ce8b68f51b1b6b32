//! RoBERTa, XLM-RoBERTa and CamemBERT: BERT whose positions count from the number after the padding token's, with a head of
//! other names.
//!
//! Source: transformers `RobertaModel`, `XLMRobertaModel`, `CamembertModel` and their `ForMaskedLM`@v5.23;
//! vllm/model_executor/models/roberta.py, v0.33.0; conversion/bert.py@0c1e57098. llama.cpp has them as `bert`, with the rows of
//! positions that count: a file of that is read as BERT.

use derive::Module;

use tensor::Expr;

use crate::activation::Activation;
use crate::config::describe::Description;
use crate::config::{Config, Field, Keys, OF_TRANSFORMERS, Reader, WithoutEffect};
use crate::dialect::{Dialect, Rule};
use crate::ecosystem::DialectName;
use crate::module::{Linear, Module};
use crate::param::Axis;
use crate::{ConfigProblem, Origin};

use super::Family;
use super::bert::{self, Prediction};
use super::blocks::{Encoder, ScoreHead};

/// The unit that stands for the family in the table.
pub(super) struct Roberta;

/// Classes and `model_type`s, by which a model keeps its name.
const KINDS: [(&str, &str); 3] =
    [("Roberta", "roberta"), ("XLMRoberta", "xlm-roberta"), ("Camembert", "camembert")];

impl Family for Roberta {
    fn name(&self) -> &'static str {
        "roberta"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &[]
    }

    fn hf(&self) -> &'static [&'static str] {
        &[
            "RobertaModel",
            "RobertaForMaskedLM",
            "RobertaForSequenceClassification",
            "XLMRobertaModel",
            "XLMRobertaForMaskedLM",
            "XLMRobertaForSequenceClassification",
            "CamembertModel",
            "CamembertForMaskedLM",
            "CamembertForSequenceClassification",
            "roberta",
            "xlm-roberta",
            "camembert",
        ]
    }

    fn config(&self, r: &mut Reader) -> Config {
        const PADDING: Keys = Keys::new("padding", &[], &["pad_token_id"]);
        let base = bert::config(r);
        let found = r.count(PADDING, 0).unwrap_or(Field::default(1, OF_TRANSFORMERS));
        let most = base.vocab.saturating_sub(1).min(base.context.saturating_sub(2));
        if *found > most {
            let key = match &found.origin {
                Origin::Key(key) => key.clone(),
                Origin::Default(_) => "pad_token_id".to_owned(),
            };
            let wanted = format!("at most {most}, as there are tokens, and positions after it");
            r.problem(ConfigProblem::Invalid { key, wanted, found: found.to_string() });
        }
        let padding = Field { value: Some((*found).min(most)), origin: found.origin };
        Config { padding, ..base }
    }

    fn describe(&self, c: &Config, dialect: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = bert::describe_gguf(c, "bert", Activation::Gelu);
            d.count("bert.context_length", c.context.saturating_sub(before(c)));
            for field in ["family", "context", "padding"] {
                d.take_as_said(field);
            }
            return d;
        }
        let is_of = |(class, kind): &&(&str, &str)| {
            let rest = c.architecture.strip_prefix(class);
            c.architecture == *kind || rest.is_some_and(|rest| rest == "Model" || rest.starts_with("For"))
        };
        let (class, kind) = KINDS.iter().find(is_of).unwrap_or(&KINDS[0]);
        let mut d = bert::describe_hf(c, class, kind);
        d.count("pad_token_id", c.padding.unwrap_or(1));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        Box::new(RobertaModel {
            encoder: bert::encoder(c),
            pooler: Linear::new(hidden, *c.hidden).with_bias().optional(),
            score: ScoreHead::new(c, bert::TANH),
            prediction: Prediction::new(c),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
        })
    }

    fn without_effect(&self, _: DialectName) -> &'static WithoutEffect {
        bert::WITHOUT_EFFECT
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => {
                let mut dialect = bert::gguf();
                dialect.rules.insert(0, GGUF_POSITIONS);
                Dialect { cut: GGUF_CUT, ..dialect }
            }
            _ => Dialect {
                prefix: "roberta.",
                drops: bert::DROPS,
                ..Dialect::new(name, vec![bert::HF_EMBEDDINGS, bert::HF, bert::LM_HEAD, bert::SCORE])
            },
        })
    }
}

/// Rows of the table of positions before the first that a token of a text takes.
fn before(c: &Config) -> u64 {
    c.padding.map_or(0, |padding| padding + 1)
}

static GGUF_POSITIONS: &[Rule] =
    &[Rule::with("position_embedding.weight", "position_embd.weight", |entry, c, _| {
        let (before, hidden) = (before(c), *c.hidden);
        let counted = entry.slice(0, 0..c.context.saturating_sub(before));
        Expr::concat(0, vec![Expr::Zero([before, hidden].into()), counted])
    })];

static GGUF_CUT: &[(&str, &str)] =
    &[("position_embedding.weight", "its first rows are of padding, and llama.cpp's files begin after them")];

#[derive(Module)]
struct RobertaModel {
    #[module(flatten)]
    encoder: Encoder,
    /// The layer that classifies by the first token.
    pooler: Linear,
    score: Option<ScoreHead>,
    prediction: Prediction,
    output: Linear,
}

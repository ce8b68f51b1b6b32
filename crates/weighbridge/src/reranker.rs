//! Scores of texts for a query, as the `CrossEncoder` of sentence-transformers gives them.
//!
//! ```no_run
//! # fn main() -> Result<(), weighbridge::Error> {
//! use weighbridge::{Reranker, RuntimeOptions};
//!
//! let mut reranker = Reranker::open("ms-marco-MiniLM-L6-v2/", &RuntimeOptions::default())?;
//! let ranking = reranker.rank("who wrote Emma?", &["Jane Austen did.", "It is a novel."])?;
//! println!("{:?}", ranking.order());
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, Metadata};
use engine::text::{TextPair, Tokenizer};
use engine::{Sequencer, Typed};
use load::LoadReport;
use model::Model;
use planner::{LayoutKind, describe};

use crate::Error;
use crate::embedder::{Remark, longest};
use crate::start::{Kept, Ready, RuntimeOptions, Starting, architecture};

/// Scores texts for a query: a model that reads both together, and gives one score.
pub struct Reranker {
    checkpoint: Checkpoint,
    model: Model,
    report: LoadReport,
    layout: LayoutKind,
    sequencer: Sequencer,
    tokenizer: Arc<Tokenizer>,
    activation: ScoreActivation,
    notes: Vec<Remark>,
    kept: Kept,
}

/// What is made of the score that a model gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreActivation {
    /// `1 / (1 + exp(-x))`: from 0 to 1.
    Sigmoid,
    /// Nothing.
    Identity,
}

impl ScoreActivation {
    /// Its name in `torch.nn`, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ScoreActivation::Sigmoid => "sigmoid",
            ScoreActivation::Identity => "identity",
        }
    }

    fn of(self, x: f32) -> f32 {
        match self {
            ScoreActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            ScoreActivation::Identity => x,
        }
    }
}

/// The scores of some texts, in the order of the texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    scores: Vec<f32>,
    tokens: Vec<usize>,
    left_out: Vec<usize>,
}

impl Ranking {
    /// The score of each text.
    pub fn scores(&self) -> &[f32] {
        &self.scores
    }

    /// Tokens of each text and the query that the model saw, with those that it adds.
    pub fn tokens(&self) -> &[usize] {
        &self.tokens
    }

    /// Tokens of each text and the query that it did not see, since they are too long.
    pub fn left_out(&self) -> &[usize] {
        &self.left_out
    }

    /// The numbers of the texts, the best first; of equal ones, the first first.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|a, b| self.scores[*b].total_cmp(&self.scores[*a]));
        order
    }
}

impl fmt::Debug for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reranker").field("checkpoint", self.checkpoint.location()).finish_non_exhaustive()
    }
}

impl Reranker {
    /// Opens, plans and loads the model at `path`, of a class `…ForSequenceClassification` with one label.
    ///
    /// Of `options`, `context` limits the tokens of a query with a text.
    ///
    /// # Errors
    /// Whatever is wrong with the checkpoint, and what the machine cannot give; if the model does not give one score.
    pub fn open(path: impl AsRef<Path>, options: &RuntimeOptions) -> Result<Reranker, Error> {
        let (storage, name) = checkpoint::files_at(path.as_ref(), &options.open)?;
        let checkpoint = checkpoint::open_from(storage, &name, &options.open)?;
        let model = describe(&checkpoint)?;
        let arch = architecture(&checkpoint, &model)?;
        let (mut problems, mut notes) = (vec![], vec![]);
        let mut problem = |file: &str, key: &str, what: String| {
            problems.push(Remark { file: file.to_owned(), key: key.to_owned(), what });
        };
        let labels = *model.config().labels;
        if labels != 1 {
            let what = match labels {
                0 => "the model scores no texts: its class is no `…ForSequenceClassification`".to_owned(),
                _ => format!("the model gives {labels} scores, and one is wanted"),
            };
            problem("config.json", "", what);
        }
        let activation = activation(&checkpoint, &mut problem);
        let longest = longest(&checkpoint, &mut notes, None, arch.context(), options, &mut problem)?;
        if !problems.is_empty() {
            return Err(Error::Recipe { path: checkpoint.location().to_string(), problems });
        }
        let started = Starting::new(&checkpoint, &model, &arch, options).start()?;
        let Ready { sequencer, report, layout, tokenizer, kept } =
            Ready::of(started, arch, longest, options)?;
        let tokenizer = tokenizer?;
        Ok(Reranker { checkpoint, model, report, layout, sequencer, tokenizer, activation, notes, kept })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The costs of loading.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The layout that the slots have.
    pub fn layout(&self) -> LayoutKind {
        self.layout
    }

    /// Whether the parameters lie in a copy that an earlier start has left.
    pub fn is_from_cache(&self) -> bool {
        self.kept.is_used()
    }

    /// Bytes of the copy that will be built beside what follows; `None` if an earlier process began it.
    pub fn first_copy(&self) -> Option<u64> {
        self.kept.first_bytes()
    }

    /// The backend's name.
    pub fn backend(&self) -> String {
        self.sequencer.backend()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Tokens of a query with a text at most, with those that the model adds.
    pub fn longest(&self) -> usize {
        self.sequencer.longest()
    }

    /// Positions that the model was trained for.
    pub fn context(&self) -> u64 {
        self.sequencer.model().architecture().context()
    }

    /// What is made of the score that the model gives.
    pub fn activation(&self) -> ScoreActivation {
        self.activation
    }

    /// Settings that are not followed, and what is done where there are none.
    pub fn notes(&self) -> &[Remark] {
        &self.notes
    }

    /// The scores of `texts` for `query`. Texts of about one length run together, and none changes the score of another.
    ///
    /// # Errors
    /// If a text cannot be tokenized, or it is not known how two texts go together.
    pub fn rank(&mut self, query: &str, texts: &[impl AsRef<str>]) -> Result<Ranking, Error> {
        let path = self.checkpoint.location().to_string();
        let wrong = |source| engine::Error::Text { path: path.clone(), source };
        let longest = self.longest();
        let pair = |text: &_| {
            let text: &str = AsRef::as_ref(text);
            self.tokenizer.encode_pair_within(query, text, longest).map_err(wrong)
        };
        let pairs = texts.iter().map(pair).collect::<Result<Vec<TextPair>, engine::Error>>()?;
        self.rank_encoded(&pairs.iter().collect::<Vec<_>>())
    }

    /// The scores of queries with texts whose tokens are known, as [`Tokenizer::encode_pair_within`] gives them.
    ///
    /// # Errors
    /// If there are too many tokens, or one is outside the vocabulary.
    pub fn rank_encoded(&mut self, pairs: &[&TextPair]) -> Result<Ranking, Error> {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|text| std::cmp::Reverse(pairs[*text].tokens.len()));
        let sequence = |text: &usize| Typed { tokens: &pairs[*text].tokens, first: pairs[*text].first };
        let found = self.sequencer.score(&order.iter().map(sequence).collect::<Vec<_>>())?;
        let mut scores = vec![0.0; pairs.len()];
        for (text, score) in order.into_iter().zip(found) {
            scores[text] = self.activation.of(score);
        }
        self.kept.leave();
        Ok(Ranking {
            scores,
            tokens: pairs.iter().map(|pair| pair.tokens.len()).collect(),
            left_out: pairs.iter().map(|pair| pair.left_out).collect(),
        })
    }
}

/// What config.json says about the scores.
///
/// Source: `CrossEncoder.get_default_activation_fn`, sentence_transformers/cross_encoder/model.py of 6.2.
fn activation(checkpoint: &Checkpoint, problem: &mut dyn FnMut(&str, &str, String)) -> ScoreActivation {
    let Metadata::Hf(hf) = checkpoint.metadata() else { return ScoreActivation::Sigmoid };
    let Some(config) = hf.config() else { return ScoreActivation::Sigmoid };
    let keys = ["/sentence_transformers/activation_fn", "/sbert_ce_default_activation_function"];
    let Some((key, said)) = keys.iter().find_map(|key| Some((key, config.pointer(key)?))) else {
        return ScoreActivation::Sigmoid;
    };
    match said.as_str() {
        Some("torch.nn.modules.activation.Sigmoid") => ScoreActivation::Sigmoid,
        Some("torch.nn.modules.linear.Identity") => ScoreActivation::Identity,
        _ => {
            let what = format!("{said} is not supported, only Sigmoid and Identity of `torch.nn.modules`");
            problem("config.json", &key[1..].replace('/', "."), what);
            ScoreActivation::Sigmoid
        }
    }
}

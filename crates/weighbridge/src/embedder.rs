//! Vectors of texts, as sentence-transformers makes them.
//!
//! ```no_run
//! # fn main() -> Result<(), weighbridge::Error> {
//! use weighbridge::{Embedder, RuntimeOptions, embedder::EmbedOptions};
//!
//! let mut embedder = Embedder::open("all-MiniLM-L6-v2/", &RuntimeOptions::default())?;
//! let vectors = embedder.embed(&["a cat", "a kitten"], &EmbedOptions::default())?;
//! println!("{} numbers each, {:?}", vectors.width(), vectors.row(0));
//! # Ok(())
//! # }
//! ```

mod dense;
mod pooling;
mod recipe;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, Member, Metadata};
use engine::Sequencer;
use engine::text::{self, Tokenizer};
use load::LoadReport;
use model::Model;
use planner::{LayoutKind, describe};
use serde_json::Value;
use storage::{Name, Storage};

use crate::Error;
use crate::runtime::DEFAULT_CONTEXT;
use crate::start::{Kept, Ready, RuntimeOptions, Starting, architecture};

use dense::Dense;
use pooling::{Pooling, normalize};
use recipe::{Later, Recipe};

pub use pooling::Way;
pub use recipe::{Remark, Similarity};

/// Makes vectors of texts: a model with its tokenizer, and what is done with the vectors of its tokens.
pub struct Embedder {
    checkpoint: Checkpoint,
    model: Model,
    report: LoadReport,
    layout: LayoutKind,
    sequencer: Sequencer,
    tokenizer: Result<Arc<Tokenizer>, engine::Error>,
    recipe: Arc<Recipe>,
    pooling: Pooling,
    later: Vec<Stage>,
    width: usize,
    kept: Kept,
}

/// Makes the tokens that an [`Embedder`] runs of texts. It may do so on any thread.
#[derive(Clone)]
pub struct Encoder {
    path: String,
    tokenizer: Arc<Tokenizer>,
    recipe: Arc<Recipe>,
    includes_prompt: bool,
    longest: usize,
}

/// The tokens of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// All of them, with those that the model adds.
    pub tokens: Vec<u32>,
    /// The number of the first ones that are not pooled, since they belong to a prompt.
    pub skipped: usize,
    /// Tokens that were left out, since the text is too long.
    pub left_out: usize,
}

/// What is done with the vector of a text.
enum Stage {
    Dense(Dense),
    Normalize,
}

/// The text that is put before each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The model's default, if it has one.
    #[default]
    Default,
    /// The model's prompt of this name.
    Named(String),
    /// This one; empty for none.
    Text(String),
}

/// How vectors are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbedOptions {
    /// What is put before each text.
    pub prompt: Prompt,
    /// Whether vectors are divided by their length at the end; `None`: as the model says.
    pub normalize: Option<bool>,
}

/// The vectors of some texts, in the order of the texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    width: usize,
    values: Vec<f32>,
    tokens: Vec<usize>,
    left_out: Vec<usize>,
}

impl Vectors {
    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// All of them: `[texts, width]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The vector of text `text`.
    ///
    /// # Panics
    /// If there is no such text.
    pub fn row(&self, text: usize) -> &[f32] {
        &self.values[text * self.width..][..self.width]
    }

    /// Tokens of text `text` that the model saw, with those that it adds.
    ///
    /// # Panics
    /// If there is no such text.
    pub fn tokens(&self, text: usize) -> usize {
        self.tokens[text]
    }

    /// Tokens of text `text` that it did not see, since the text is too long.
    ///
    /// # Panics
    /// If there is no such text.
    pub fn left_out(&self, text: usize) -> usize {
        self.left_out[text]
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder")
            .field("checkpoint", self.checkpoint.location())
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Encoder {
    /// Tokens of a text at most, with those that the model adds.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The tokens of `texts`, each after `prompt`, in their order.
    ///
    /// # Errors
    /// If the model has no prompt of that name, or a text cannot be tokenized.
    pub fn encode(&self, texts: &[impl AsRef<str>], prompt: &Prompt) -> Result<Vec<Encoded>, Error> {
        let prompt = self.prompt(prompt)?;
        let wrong = |source| engine::Error::Text { path: self.path.clone(), source };
        let mut skipped = 0;
        if !prompt.is_empty() && !self.includes_prompt {
            let (tokens, _) = self.tokenizer.encode_within(prompt, self.longest).map_err(wrong)?;
            let closes = self.tokenizer.around().is_some_and(|(_, after)| !after.is_empty());
            skipped = tokens.len() - usize::from(closes);
        }
        let mut prompted = String::new();
        let mut all = Vec::with_capacity(texts.len());
        for text in texts {
            let mut text = text.as_ref();
            if !prompt.is_empty() {
                prompted.clear();
                prompted.push_str(prompt);
                prompted.push_str(text);
                text = &prompted;
            }
            let (tokens, left_out) = self.tokenizer.encode_within(text, self.longest).map_err(wrong)?;
            all.push(Encoded { tokens, skipped, left_out });
        }
        Ok(all)
    }

    /// The text that `prompt` puts before each.
    fn prompt<'p>(&'p self, prompt: &'p Prompt) -> Result<&'p str, Error> {
        let name = match prompt {
            Prompt::Text(text) => return Ok(text),
            Prompt::Named(name) => name,
            Prompt::Default => match &self.recipe.default_prompt {
                Some(name) => name,
                None => return Ok(""),
            },
        };
        self.recipe.prompts.get(name).map(String::as_str).ok_or_else(|| Error::NoPrompt {
            name: name.clone(),
            known: self.recipe.prompts.keys().cloned().collect(),
        })
    }
}

impl Embedder {
    /// Opens, plans and loads the model at `path`: a directory of sentence-transformers, whose settings are obeyed, or any checkpoint of
    /// a family that runs, encoder or decoder.
    ///
    /// Of `options`, `context` limits the tokens of a text. A model that does not say it has at most
    /// [`DEFAULT_CONTEXT`].
    ///
    /// # Errors
    /// Whatever is wrong with the checkpoint or its settings, all of it at once, and what the machine cannot give.
    pub fn open(path: impl AsRef<Path>, options: &RuntimeOptions) -> Result<Embedder, Error> {
        let path = path.as_ref();
        let (storage, name) = checkpoint::files_at(path, &options.open)?;
        // A file has no settings of sentence-transformers for it alone.
        let recipe = if path.is_dir() { Recipe::read(&storage, &name)? } else { Ok(None) };
        let shown = storage.location(&name).to_string();
        let recipe = recipe.map_err(|problems| Error::Recipe { path: shown.clone(), problems })?;
        let mut folder = name.clone();
        for part in recipe.iter().flat_map(|recipe| recipe.model.split('/')).filter(|part| !part.is_empty()) {
            folder = folder.join(part).map_err(checkpoint::Error::from)?;
        }
        let checkpoint = checkpoint::open_from(Arc::clone(&storage), &folder, &options.open)?;
        Embedder::start(checkpoint, recipe, (&storage, &name), options)
    }

    fn start(
        checkpoint: Checkpoint,
        recipe: Option<Recipe>,
        (storage, dir): (&Arc<dyn Storage>, &Name),
        options: &RuntimeOptions,
    ) -> Result<Embedder, Error> {
        let model = describe(&checkpoint)?;
        let path = checkpoint.location().to_string();
        let arch = architecture(&checkpoint, &model)?;
        if arch.audio_encoder().is_some() {
            return Err(Error::Hears { path });
        }
        let mut recipe = match recipe {
            Some(recipe) => recipe,
            None => plain(&checkpoint, arch.decoder().is_some())?,
        };
        let mut problems = vec![];
        let mut problem = |file: &str, key: &str, what: String| {
            problems.push(Remark { file: file.to_owned(), key: key.to_owned(), what });
        };
        let hidden = usize::try_from(arch.hidden()).unwrap_or(usize::MAX);
        let Some(pooling) = recipe.pooling.clone() else { unreachable!("a recipe has a pooling") };
        if let Some(pooled) = recipe.pooled.filter(|pooled| *pooled != arch.hidden()) {
            problem(
                recipe::MODULES,
                "",
                format!("a pooling of {pooled} elements, and the model has {hidden}"),
            );
        }
        let said = recipe.longest;
        let longest = longest(&checkpoint, &mut recipe.notes, said, arch.context(), options, &mut problem)?;
        let mut width = hidden.saturating_mul(pooling.ways.len());
        for later in &recipe.later {
            if let Later::Dense(dense) = later {
                if dense.input != width {
                    let what = format!("{} elements go in, and {width} come from before", dense.input);
                    problem(&format!("{}/config.json", dense.folder), "in_features", what);
                }
                width = dense.output;
            }
        }
        if !problems.is_empty() {
            return Err(Error::Recipe { path, problems });
        }
        let starting = Starting::new(&checkpoint, &model, &arch, options).in_lower_case(recipe.lower_case);
        let mut started = starting.start()?;
        let mut later = vec![];
        for one in &recipe.later {
            later.push(match one {
                Later::Normalize => Stage::Normalize,
                Later::Dense(settings) => {
                    Stage::Dense(Dense::load(storage, dir, settings, &mut started.pool)?)
                }
            });
        }
        let Ready { sequencer, report, layout, tokenizer, kept } =
            Ready::of(started, arch, longest, options)?;
        Ok(Embedder {
            checkpoint,
            model,
            report,
            layout,
            sequencer,
            tokenizer,
            recipe: Arc::new(recipe),
            pooling,
            later,
            width,
            kept,
        })
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
    ///
    /// # Errors
    /// If the checkpoint has none, or a broken one: texts have no vectors then, but tokens have.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>, &engine::Error> {
        self.tokenizer.as_ref()
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tokens of a text at most, with those that the model adds.
    pub fn longest(&self) -> usize {
        self.sequencer.longest()
    }

    /// Positions that the model was trained for.
    pub fn context(&self) -> u64 {
        self.sequencer.model().architecture().context()
    }

    /// How the vector of a text is made of those of its tokens. Several are joined.
    pub fn pooling(&self) -> &[Way] {
        &self.pooling.ways
    }

    /// Whether vectors are divided by their length at the end.
    pub fn normalizes(&self) -> bool {
        matches!(self.later.last(), Some(Stage::Normalize))
    }

    /// How vectors are compared.
    pub fn similarity(&self) -> Similarity {
        self.recipe.similarity
    }

    /// The names and texts of prompts.
    pub fn prompts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.recipe.prompts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The name of the prompt that texts have unless the caller says otherwise.
    pub fn default_prompt(&self) -> Option<&str> {
        self.recipe.default_prompt.as_deref()
    }

    /// Settings that are not followed, and what is done where there are none.
    pub fn notes(&self) -> &[Remark] {
        &self.recipe.notes
    }

    /// The vectors of token ids as the model leaves them, before pooling: `[tokens, hidden]`.
    ///
    /// # Errors
    /// If there are none or too many, or one is outside the vocabulary.
    pub fn token_vectors(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let mut vectors = vec![];
        self.sequencer.run(&[tokens], &mut |_, found| vectors = found.to_vec())?;
        Ok(vectors)
    }

    /// Makes tokens of texts, on any thread.
    ///
    /// # Errors
    /// If the checkpoint has no tokenizer, or a broken one.
    pub fn encoder(&self) -> Result<Encoder, Error> {
        let Ok(tokenizer) = &self.tokenizer else {
            // The error again, to be handed on.
            let again = text::tokenizer(&self.checkpoint);
            return Err(again.map_or_else(Error::from, |_| engine::Error::NoTokens.into()));
        };
        Ok(Encoder {
            path: self.checkpoint.location().to_string(),
            tokenizer: Arc::clone(tokenizer),
            recipe: Arc::clone(&self.recipe),
            includes_prompt: self.pooling.includes_prompt,
            longest: self.longest(),
        })
    }

    /// Whether the first `elements` of a vector are a vector too, as config.json says of a Matryoshka model: `is_matryoshka`, or
    /// `matryoshka_dimensions` with the numbers.
    ///
    /// Source: `ModelConfig.is_matryoshka`, vllm/config/model.py@v0.11.
    pub fn can_be_cut_to(&self, elements: usize) -> bool {
        let Metadata::Hf(hf) = self.checkpoint.metadata() else { return false };
        let Some(config) = hf.config() else { return false };
        let listed = config["matryoshka_dimensions"].as_array();
        (1..=self.width).contains(&elements)
            && match listed {
                Some(listed) => listed.iter().any(|n| n.as_u64() == Some(elements as u64)),
                None => config["is_matryoshka"].as_bool() == Some(true),
            }
    }

    /// The vectors of `texts`, in their order. Texts of about one length run together.
    ///
    /// # Errors
    /// If the model has no prompt of that name, or a text cannot be tokenized.
    pub fn embed(&mut self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Vectors, Error> {
        let texts = self.encoder()?.encode(texts, &options.prompt)?;
        self.embed_encoded(&texts.iter().collect::<Vec<_>>(), options.normalize)
    }

    /// The vectors of texts whose tokens are known. `normalize` is that of [`EmbedOptions`].
    ///
    /// # Errors
    /// If a text has no tokens or too many, or a token is outside the vocabulary.
    pub fn embed_encoded(&mut self, texts: &[&Encoded], normalized: Option<bool>) -> Result<Vectors, Error> {
        // Long ones first: memory is then touched once.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|text| std::cmp::Reverse(texts[*text].tokens.len()));
        let sequences: Vec<&[u32]> = order.iter().map(|text| &*texts[*text].tokens).collect();
        let Embedder { sequencer, pooling, later, width, .. } = self;
        let (width, hidden) =
            (*width, usize::try_from(sequencer.model().architecture().hidden()).unwrap_or(1));
        let mut values = vec![0f32; texts.len().saturating_mul(width)];
        let (mut vector, mut next) = (vec![], vec![]);
        sequencer.run(&sequences, &mut |n, tokens| {
            vector.clear();
            pooling.run(tokens, hidden, texts[order[n]].skipped, &mut vector);
            let last = later.len().saturating_sub(1);
            for (i, stage) in later.iter().enumerate() {
                match stage {
                    Stage::Dense(dense) => {
                        dense.run(&vector, &mut next);
                        std::mem::swap(&mut vector, &mut next);
                    }
                    Stage::Normalize if i == last && normalized == Some(false) => {}
                    Stage::Normalize => normalize(&mut vector),
                }
            }
            if normalized == Some(true) {
                normalize(&mut vector);
            }
            values[order[n] * width..][..width].copy_from_slice(&vector);
        })?;
        self.kept.leave();
        Ok(Vectors {
            width,
            values,
            tokens: texts.iter().map(|text| text.tokens.len()).collect(),
            left_out: texts.iter().map(|text| text.left_out).collect(),
        })
    }
}

/// Whether `path` is a directory with the settings of sentence-transformers.
pub(crate) fn has_modules(path: &Path) -> bool {
    path.is_dir() && path.join(recipe::MODULES).is_file()
}

/// What is done with a model whose directory does not say it.
fn plain(checkpoint: &Checkpoint, is_decoder: bool) -> Result<Recipe, Error> {
    let mut recipe = Recipe::default();
    let note = |key: &str, what: String| Remark { file: String::new(), key: key.to_owned(), what };
    let is_causal = match checkpoint.metadata() {
        // As `SentenceTransformer._load_default_modules`, sentence_transformers/sentence_transformer/model.py of 6.2, does it.
        Metadata::Hf(hf) => hf.config().is_some_and(|config| {
            config["architectures"][0].as_str().is_some_and(|name| name.ends_with("ForCausalLM"))
        }),
        _ => is_decoder,
    };
    let usual = if is_causal { Way::LastToken } else { Way::Mean };
    let mut ways = vec![usual];
    if let Metadata::Gguf(gguf) = checkpoint.metadata() {
        // llama-embedding does so unless it is told otherwise.
        recipe.later.push(Later::Normalize);
        let arch = gguf.str("general.architecture")?.unwrap_or_default();
        let key = format!("{arch}.pooling_type");
        // `enum llama_pooling_type`, include/llama.h@0c1e57098.
        match gguf.u64(&key)? {
            Some(1) => ways = vec![Way::Mean],
            Some(2) => ways = vec![Way::Cls],
            Some(3) => ways = vec![Way::LastToken],
            Some(found) if found != 0 => {
                let what = format!("{found} is not supported, only 1 (mean), 2 (cls) and 3 (last)");
                let problems =
                    vec![Remark { file: String::new(), key: key.clone(), what: format!("`{key}`: {what}") }];
                return Err(Error::Recipe { path: checkpoint.location().to_string(), problems });
            }
            _ => recipe
                .notes
                .push(note(&key, format!("the file does not say how tokens are pooled: {}", usual.name()))),
        }
    } else {
        let what = format!("there is no `{}`: tokens are pooled by {}", recipe::MODULES, usual.name());
        recipe.notes.push(note("", what));
        if text::chat_template(checkpoint)?.is_some() {
            let what =
                "texts are not put into the model's chat template, as sentence-transformers 6 does it here";
            recipe.notes.push(note("", what.to_owned()));
        }
    }
    recipe.pooling = Some(Pooling { ways, includes_prompt: true });
    Ok(recipe)
}

/// Tokens of a text at most: as the caller says, or the settings (`said`), or else the tokenizer and the model.
pub(crate) fn longest(
    checkpoint: &Checkpoint,
    notes: &mut Vec<Remark>,
    said: Option<u64>,
    context: u64,
    options: &RuntimeOptions,
    problem: &mut dyn FnMut(&str, &str, String),
) -> Result<usize, Error> {
    const CONFIG: &str = "tokenizer_config.json";
    let config = match checkpoint.metadata() {
        Metadata::Hf(hf) => hf.tokenizer_config().map(Member::read).transpose()?,
        _ => None,
    };
    let config = config.map(|config| serde_json::from_slice::<Value>(&config)).transpose();
    let config = config.unwrap_or_else(|e| {
        problem(CONFIG, "", format!("not JSON: {e}"));
        None
    });
    let config = config.unwrap_or_default();
    let side = &config["truncation_side"];
    if !side.is_null() && side != "right" {
        problem(CONFIG, "truncation_side", format!("{side} is not supported, only `right`"));
    }
    let most = &config["model_max_length"];
    if !most.is_null() && !most.is_number() {
        problem(CONFIG, "model_max_length", format!("{most} is no number"));
    }
    if let Some(wanted) = options.context {
        // Rotary models may see more positions than they were trained for. Buffers have as many rows.
        const MOST: usize = 1 << 17;
        let learned = usize::try_from(context).unwrap_or(usize::MAX);
        let fits = wanted <= learned.max(MOST);
        return if fits { Ok(wanted) } else { Err(engine::Error::Positions { wanted, learned }.into()) };
    }
    // Tokenizers without a limit say 1e30.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let own = most.as_f64().map_or(u64::MAX, |n| n as u64);
    let wanted = said.unwrap_or(own).min(context);
    if said.is_none() && wanted > DEFAULT_CONTEXT {
        let what =
            format!("texts are cut at {DEFAULT_CONTEXT} tokens, and the model was trained for {wanted}");
        notes.push(Remark { file: String::new(), key: String::new(), what });
        return Ok(usize::try_from(DEFAULT_CONTEXT).unwrap_or(usize::MAX));
    }
    Ok(usize::try_from(wanted).unwrap_or(usize::MAX))
}

//! What a directory of sentence-transformers says about making vectors: its modules in order, prompts, lengths.
//!
//! Source: sentence-transformers 6.2, `base/model.py`, `base/modules/transformer.py`, `base/modules/dense.py`,
//! `sentence_transformer/modules/pooling.py`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use checkpoint::Error as CheckpointError;
use serde_json::{Map, Value};
use storage::{Name, Storage};

use super::pooling::{Pooling, Way};

/// The list of modules.
pub(super) const MODULES: &str = "modules.json";
/// Settings of the whole.
const SETTINGS: &str = "config_sentence_transformers.json";
/// Settings of the tokenizer and the model, by the name of any of the classes that once wrote it.
const TRANSFORMER: &[&str] = &[
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
/// Settings are at most this long.
const MOST: u64 = 16 << 20;

/// Something about a key of a settings file: a problem, or what is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file, below the model's directory; empty if it is about the whole.
    pub file: String,
    /// The key, empty if it is about the file.
    pub key: String,
    /// What is said about it.
    pub what: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remark { file, key, what } = self;
        match (&**file, &**key) {
            ("", _) => write!(f, "{what}"),
            (_, "") => write!(f, "`{file}`: {what}"),
            _ => write!(f, "`{file}`, `{key}`: {what}"),
        }
    }
}

/// How two vectors of a model are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// The cosine of the angle between them.
    #[default]
    Cosine,
    /// Their product.
    Dot,
    /// Their distance, negated.
    Euclidean,
    /// The sum of the absolute differences, negated.
    Manhattan,
}

impl Similarity {
    const ALL: [Similarity; 4] =
        [Similarity::Cosine, Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan];

    /// The name that settings have for it.
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Cosine => "cosine",
            Similarity::Dot => "dot",
            Similarity::Euclidean => "euclidean",
            Similarity::Manhattan => "manhattan",
        }
    }
}

/// A module after the pooling.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Later {
    /// A matrix, in this folder.
    Dense(DenseSettings),
    /// Divides a vector by its length.
    Normalize,
}

/// The settings of a `Dense` module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DenseSettings {
    pub(super) folder: String,
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) has_bias: bool,
    pub(super) activation: DenseActivation,
    pub(super) has_residual: bool,
}

/// What a `Dense` module applies to its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenseActivation {
    Identity,
    Tanh,
    Sigmoid,
    Relu,
    Gelu,
    Silu,
}

/// Classes of torch that need no arguments.
const ACTIVATIONS: &[(&str, DenseActivation)] = &[
    ("Identity", DenseActivation::Identity),
    ("Tanh", DenseActivation::Tanh),
    ("Sigmoid", DenseActivation::Sigmoid),
    ("ReLU", DenseActivation::Relu),
    ("GELU", DenseActivation::Gelu),
    ("SiLU", DenseActivation::Silu),
];

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recipe {
    /// The folder of the model, below the directory; empty if it is the directory itself.
    pub(super) model: String,
    /// Tokens of a text at most.
    pub(super) longest: Option<u64>,
    /// Texts are made lower case before anything else.
    pub(super) lower_case: bool,
    pub(super) pooling: Option<Pooling>,
    /// The elements of a token's vector, as the pooling has them.
    pub(super) pooled: Option<u64>,
    pub(super) later: Vec<Later>,
    pub(super) prompts: BTreeMap<String, String>,
    pub(super) default_prompt: Option<String>,
    pub(super) similarity: Similarity,
    pub(super) notes: Vec<Remark>,
}

impl Recipe {
    /// Reads the settings in the directory `dir` of `storage`; `None` if it has no `modules.json`.
    ///
    /// # Errors
    /// The problems of all files at once.
    pub(super) fn read(
        storage: &Arc<dyn Storage>,
        dir: &Name,
    ) -> Result<Result<Option<Recipe>, Vec<Remark>>, CheckpointError> {
        let Some(modules) = read(storage, dir, MODULES)? else { return Ok(Ok(None)) };
        let mut reader = Reader { storage, dir, problems: vec![], recipe: Recipe::default() };
        match parse(&modules) {
            Ok(Value::Array(list)) => reader.modules(&list)?,
            Ok(_) => reader.problem(MODULES, "", "wanted a list of modules"),
            Err(why) => reader.problem(MODULES, "", why),
        }
        reader.settings()?;
        let Reader { problems, recipe, .. } = reader;
        Ok(if problems.is_empty() { Ok(Some(recipe)) } else { Err(problems) })
    }
}

struct Reader<'a> {
    storage: &'a Arc<dyn Storage>,
    dir: &'a Name,
    problems: Vec<Remark>,
    recipe: Recipe,
}

/// A settings file, of which each key is taken once. What is left is not known.
struct Settings {
    file: String,
    left: Map<String, Value>,
}

impl Settings {
    /// The value of a key, if it is there and not null.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.left.remove(key).filter(|value| !value.is_null())
    }
}

impl Reader<'_> {
    fn problem(&mut self, file: &str, key: &str, what: impl Into<String>) {
        self.problems.push(Remark { file: file.to_owned(), key: key.to_owned(), what: what.into() });
    }

    fn note(&mut self, file: &str, key: &str, what: impl Into<String>) {
        self.recipe.notes.push(Remark { file: file.to_owned(), key: key.to_owned(), what: what.into() });
    }

    /// The object in `file`; empty if the file is not there or is none.
    fn open(&mut self, file: String) -> Result<Settings, CheckpointError> {
        let left = match read(self.storage, self.dir, &file)?.map(|bytes| parse(&bytes)) {
            None => Map::new(),
            Some(Ok(Value::Object(map))) => map,
            Some(Ok(_)) => {
                self.problem(&file, "", "wanted an object");
                Map::new()
            }
            Some(Err(why)) => {
                self.problem(&file, "", why);
                Map::new()
            }
        };
        Ok(Settings { file, left })
    }

    /// Notes what no key was asked for.
    fn close(&mut self, settings: Settings) {
        for (key, value) in settings.left {
            if !value.is_null() {
                self.note(&settings.file, &key, "what it does is not known");
            }
        }
    }

    fn flag(&mut self, settings: &mut Settings, key: &str, absent: bool) -> bool {
        match settings.take(key) {
            None => absent,
            Some(Value::Bool(flag)) => flag,
            Some(other) => {
                self.problem(&settings.file, key, format!("wanted true or false, found {}", short(&other)));
                absent
            }
        }
    }

    fn text(&mut self, settings: &mut Settings, key: &str) -> Option<String> {
        match settings.take(key)? {
            Value::String(text) => Some(text),
            other => {
                self.problem(&settings.file, key, format!("wanted a string, found {}", short(&other)));
                None
            }
        }
    }

    fn count(&mut self, settings: &mut Settings, key: &str) -> Option<u64> {
        let value = settings.take(key)?;
        let count = value.as_u64().filter(|n| *n > 0);
        if count.is_none() {
            self.problem(&settings.file, key, format!("wanted a count, found {}", short(&value)));
        }
        count
    }

    /// Refuses a value of `key` that is none of `supported`.
    fn only(&mut self, settings: &mut Settings, key: &str, supported: &[Value]) {
        if let Some(value) = settings.take(key)
            && !supported.contains(&value)
        {
            let supported: Vec<String> = supported.iter().map(short).collect();
            let what = format!("{} is not supported, only {}", short(&value), supported.join(", "));
            self.problem(&settings.file, key, what);
        }
    }

    fn modules(&mut self, list: &[Value]) -> Result<(), CheckpointError> {
        let mut has_model = false;
        for (i, module) in list.iter().enumerate() {
            let at = |key: &str| format!("[{i}].{key}");
            let Value::Object(module) = module else {
                self.problem(MODULES, &format!("[{i}]"), "wanted an object");
                continue;
            };
            for (key, value) in module {
                match key.as_str() {
                    // The order of the list is the order of the modules.
                    "idx" | "name" | "path" | "type" => {}
                    "kwargs" if value.as_array().is_some_and(Vec::is_empty) => {}
                    "kwargs" => self.note(MODULES, &at(key), "arguments of calls are not passed on"),
                    _ => self.note(MODULES, &at(key), "what it does is not known"),
                }
            }
            let folder = match module.get("path") {
                None => "",
                Some(Value::String(path)) if path.is_empty() || Name::parse(path.clone()).is_ok() => path,
                Some(other) => {
                    let what = format!("wanted a folder of the model, found {}", short(other));
                    self.problem(MODULES, &at("path"), what);
                    continue;
                }
            };
            let class = module.get("type").and_then(Value::as_str).unwrap_or_default();
            let ours = class.strip_prefix("sentence_transformers.");
            match ours.map(|class| class.rsplit('.').next().unwrap_or(class)) {
                Some("Transformer") if i == 0 => {
                    has_model = true;
                    folder.clone_into(&mut self.recipe.model);
                    self.transformer(folder)?;
                }
                Some("Pooling") if self.recipe.pooling.is_none() && self.recipe.later.is_empty() => {
                    self.pooling(folder)?;
                }
                Some("Dense") if self.recipe.pooling.is_some() => self.dense(folder)?,
                Some("Normalize") if self.recipe.pooling.is_some() => self.normalize(folder)?,
                Some("Transformer" | "Pooling" | "Dense" | "Normalize") => {
                    let what = format!(
                        "`{class}` is not supported here: wanted a Transformer, a Pooling, then others"
                    );
                    self.problem(MODULES, &at("type"), what);
                }
                _ => {
                    let what = format!(
                        "`{class}` is not supported, only Transformer, Pooling, Dense and Normalize of \
                         `sentence_transformers`"
                    );
                    self.problem(MODULES, &at("type"), what);
                }
            }
        }
        if self.problems.is_empty() {
            if !has_model {
                self.problem(MODULES, "", "no Transformer");
            }
            if self.recipe.pooling.is_none() {
                self.problem(MODULES, "", "no Pooling");
            }
        }
        Ok(())
    }

    fn transformer(&mut self, folder: &str) -> Result<(), CheckpointError> {
        for name in TRANSFORMER {
            let file = within(folder, name);
            if read(self.storage, self.dir, &file)?.is_none() {
                continue;
            }
            let mut settings = self.open(file)?;
            self.recipe.longest = self.count(&mut settings, "max_seq_length");
            self.recipe.lower_case = self.flag(&mut settings, "do_lower_case", false);
            self.only(&mut settings, "transformer_task", &["feature-extraction".into()]);
            self.only(&mut settings, "module_output_name", &["token_embeddings".into()]);
            // Padding is not computed, whatever it says.
            settings.take("unpad_inputs");
            for key in ["query_length", "document_length", "query_expansion", "tokenizer_name_or_path"] {
                self.only(&mut settings, key, &[]);
            }
            for key in ["model_args", "tokenizer_args", "config_args", "processing_kwargs"] {
                self.only(&mut settings, key, &[Value::Object(Map::new())]);
            }
            self.modality(&mut settings);
            self.close(settings);
            return Ok(());
        }
        Ok(())
    }

    /// How a model of images and sound takes a text.
    fn modality(&mut self, settings: &mut Settings) {
        let Some(config) = settings.take("modality_config") else { return };
        let text = &config["text"];
        if text["method"] != "forward" || text["method_output_name"] != "last_hidden_state" {
            let what = format!("texts go through {}, wanted `forward`, `last_hidden_state`", short(text));
            self.problem(&settings.file, "modality_config", what);
        }
    }

    fn pooling(&mut self, folder: &str) -> Result<(), CheckpointError> {
        let mut settings = self.open(within(folder, "config.json"))?;
        let (new, old) = (
            self.count(&mut settings, "embedding_dimension"),
            self.count(&mut settings, "word_embedding_dimension"),
        );
        self.recipe.pooled = new.or(old);
        let named = settings.take("pooling_mode");
        let mut ways = vec![];
        for way in Way::ALL {
            if self.flag(&mut settings, way.old_name(), false) && named.is_none() {
                ways.push(way);
            }
        }
        let names = match named {
            None => vec![],
            Some(Value::Array(names)) => names,
            Some(name) => vec![name],
        };
        for name in names {
            match Way::ALL.into_iter().find(|way| name == way.name()) {
                Some(way) => ways.push(way),
                None => {
                    let known: Vec<&str> = Way::ALL.iter().map(|way| way.name()).collect();
                    let what = format!("{} is not supported, only {}", short(&name), known.join(", "));
                    self.problem(&settings.file, "pooling_mode", what);
                }
            }
        }
        if ways.is_empty() {
            ways.push(Way::Mean);
        }
        let includes_prompt = self.flag(&mut settings, "include_prompt", true);
        self.recipe.pooling = Some(Pooling { ways, includes_prompt });
        self.close(settings);
        Ok(())
    }

    fn dense(&mut self, folder: &str) -> Result<(), CheckpointError> {
        let mut settings = self.open(within(folder, "config.json"))?;
        let mut size = |reader: &mut Self, key| {
            let count = reader.count(&mut settings, key).and_then(|n| usize::try_from(n).ok());
            if count.is_none() {
                reader.problem(&settings.file, key, "wanted a count, found none");
            }
            count.unwrap_or(0)
        };
        let (input, output) = (size(self, "in_features"), size(self, "out_features"));
        let has_bias = self.flag(&mut settings, "bias", true);
        let has_residual = self.flag(&mut settings, "use_residual", false);
        // Without one, `Dense` has tanh.
        let class = self.text(&mut settings, "activation_function").unwrap_or("torch.Tanh".to_owned());
        let known = ACTIVATIONS
            .iter()
            .find(|(name, _)| class.starts_with("torch.") && class.rsplit('.').next() == Some(*name));
        if known.is_none() {
            let names: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
            let what = format!("`{class}` is not supported, only {} of `torch`", names.join(", "));
            self.problem(&settings.file, "activation_function", what);
        }
        let activation = known.map_or(DenseActivation::Identity, |(_, activation)| *activation);
        for key in ["module_input_name", "module_output_name"] {
            self.only(&mut settings, key, &["sentence_embedding".into()]);
        }
        let folder = folder.to_owned();
        let dense = DenseSettings { folder, input, output, has_bias, activation, has_residual };
        self.recipe.later.push(Later::Dense(dense));
        self.close(settings);
        Ok(())
    }

    fn normalize(&mut self, folder: &str) -> Result<(), CheckpointError> {
        // Older ones write no settings.
        if !folder.is_empty() {
            let mut settings = self.open(within(folder, "config.json"))?;
            for key in ["module_input_name", "module_output_name"] {
                self.only(&mut settings, key, &["sentence_embedding".into()]);
            }
            self.close(settings);
        }
        self.recipe.later.push(Later::Normalize);
        Ok(())
    }

    fn settings(&mut self) -> Result<(), CheckpointError> {
        let mut settings = self.open(SETTINGS.to_owned())?;
        // Who wrote it.
        settings.take("__version__");
        self.only(&mut settings, "model_type", &["SentenceTransformer".into()]);
        match settings.take("prompts") {
            None => {}
            Some(Value::Object(prompts)) => {
                for (name, prompt) in prompts {
                    match prompt {
                        Value::String(text) => drop(self.recipe.prompts.insert(name, text)),
                        Value::Null => drop(self.recipe.prompts.insert(name, String::new())),
                        other => {
                            let what = format!("wanted a string, found {}", short(&other));
                            self.problem(SETTINGS, &format!("prompts.{name}"), what);
                        }
                    }
                }
            }
            Some(other) => {
                self.problem(SETTINGS, "prompts", format!("wanted an object, found {}", short(&other)));
            }
        }
        // Every model has these two, which are empty unless they are said.
        for name in ["query", "document"] {
            self.recipe.prompts.entry(name.to_owned()).or_default();
        }
        self.recipe.default_prompt = self.text(&mut settings, "default_prompt_name");
        if let Some(name) = self.recipe.default_prompt.clone()
            && !self.recipe.prompts.contains_key(&name)
        {
            let known: Vec<String> = self.recipe.prompts.keys().map(|name| format!("`{name}`")).collect();
            let what = format!("there is no prompt `{name}`, only {}", known.join(", "));
            self.problem(SETTINGS, "default_prompt_name", what);
        }
        if let Some(name) = self.text(&mut settings, "similarity_fn_name") {
            let name = if name == "dot_product" { "dot" } else { &name };
            match Similarity::ALL.into_iter().find(|similarity| similarity.name() == name) {
                Some(similarity) => self.recipe.similarity = similarity,
                None => {
                    let known: Vec<&str> = Similarity::ALL.iter().map(|known| known.name()).collect();
                    let what = format!("`{name}` is not supported, only {}", known.join(", "));
                    self.problem(SETTINGS, "similarity_fn_name", what);
                }
            }
        }
        self.close(settings);
        Ok(())
    }
}

/// `name` in `folder`, which may be empty.
fn within(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The bytes of `file` below `dir`; `None` if it is not there.
pub(super) fn read(
    storage: &Arc<dyn Storage>,
    dir: &Name,
    file: &str,
) -> Result<Option<Vec<u8>>, CheckpointError> {
    let mut name = dir.clone();
    for part in file.split('/') {
        name = name.join(part).map_err(CheckpointError::from)?;
    }
    let io =
        |source| CheckpointError::Io { location: storage.location(&name), doing: "read", source, hint: None };
    let source = match storage.open_small(&name) {
        Ok(source) => source,
        Err(storage::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if source.len() > MOST {
        let what = format!("{} bytes, at most {MOST} are read", source.len());
        return Err(io(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what)));
    }
    let mut bytes = vec![0; usize::try_from(source.len()).unwrap_or(0)];
    source.read_at(0, &mut bytes).map_err(io)?;
    Ok(Some(bytes))
}

fn parse(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))
}

/// A value as it is told, cut short.
fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 80 { format!("`{text}`") } else { "a long value".to_owned() }
}

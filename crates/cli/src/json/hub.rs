//! `pull --json` and `list --json`.

use std::path::Path;

use hub::local::{LocalModel, Store, Weights};
use hub::{HubFile, HubName};
use serde::Serialize;

/// The output of `weighbridge pull --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pull {
    /// The models, in the order of the names.
    pub(crate) pulled: Vec<Pulled>,
}

/// A model that is in the cache now.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pulled {
    /// Its name: `hf:owner/name/Q4_K_M`.
    name: String,
    repository: String,
    /// The branch, tag or commit that was asked for.
    revision: String,
    /// The commit that it was.
    commit: String,
    /// The directory of the model, or its first file.
    path: String,
    files: Vec<File>,
    bytes_downloaded: u64,
    /// The other bytes: in the cache before, or pulled by another process meanwhile.
    bytes_there: u64,
    /// Why the hub was not asked or did not answer; null if it did.
    from_cache: Option<String>,
    seconds: f64,
}

/// A file of the model.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    /// Its path in the repository.
    path: String,
    /// Its size; null if it is not known.
    bytes: Option<u64>,
    /// Its digest, if the hub keeps it as a large file; null for others.
    sha256: Option<String>,
}

impl Pulled {
    pub(crate) fn of(name: &HubName, pulled: &hub::Pulled, seconds: f64) -> Pulled {
        let file =
            |file: &HubFile| File { path: file.path.clone(), bytes: file.size, sha256: file.sha256.clone() };
        Pulled {
            name: name.to_string(),
            repository: name.repo().to_string(),
            revision: name.revision().to_owned(),
            commit: pulled.commit.clone(),
            path: pulled.path.display().to_string(),
            files: pulled.files.iter().map(file).collect(),
            bytes_downloaded: pulled.bytes_downloaded,
            bytes_there: pulled.bytes_there,
            from_cache: pulled.from_cache.clone(),
            seconds,
        }
    }
}

/// The output of `weighbridge list --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct List<'a> {
    /// The folder of the hub's cache.
    cache: String,
    models: Vec<Local<'a>>,
}

/// A model on this machine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Local<'a> {
    /// Where it was found: `hub`, `ollama` or `lm_studio`.
    store: &'static str,
    /// Its name in its store. `pull` takes the names of the hub.
    name: &'a str,
    /// Its commit; null in other stores than the hub's cache.
    commit: Option<&'a str>,
    /// The branches and tags that led to the commit when they were last asked for.
    revisions: &'a [String],
    /// The format of its weights: `gguf`, `safetensors` or `pytorch`.
    weights: &'static str,
    /// The quantisation in the name of its file; null if there is none.
    quant: Option<&'a str>,
    bytes: u64,
    /// Its directory, or its first file.
    path: String,
}

impl<'a> List<'a> {
    pub(crate) fn of(cache: &Path, models: &'a [LocalModel]) -> List<'a> {
        let local = |model: &'a LocalModel| Local {
            store: match model.store {
                Store::Hub => "hub",
                Store::Ollama => "ollama",
                Store::LmStudio => "lm_studio",
            },
            name: &model.name,
            commit: model.commit.as_deref(),
            revisions: &model.revisions,
            weights: weights(model.weights),
            quant: model.quant.as_deref(),
            bytes: model.bytes,
            path: model.path.display().to_string(),
        };
        List { cache: cache.display().to_string(), models: models.iter().map(local).collect() }
    }
}

/// A format of weights by its name.
pub(crate) fn weights(weights: Weights) -> &'static str {
    match weights {
        Weights::Gguf => "gguf",
        Weights::Safetensors => "safetensors",
        Weights::Pytorch => "pytorch",
    }
}

//! Models on this machine: in the hub's cache, in the store of Ollama, in the folders of LM Studio.

mod lm_studio;
mod ollama;

use std::env;
use std::path::{Path, PathBuf};

use crate::cache::{Folder, repositories, there};
use crate::choice::{HubFile, choose};
use crate::quant::{is_model, tag};
use crate::{HubName, Repo};

pub use lm_studio::lm_studio;
pub use ollama::ollama;

/// The program whose store a model is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    /// The cache of the Hugging Face Hub.
    Hub,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
}

/// The format of a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weights {
    /// GGUF.
    Gguf,
    /// Safetensors.
    Safetensors,
    /// PyTorch.
    Pytorch,
}

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalModel {
    /// Where it was found.
    pub store: Store,
    /// What its store calls it: `hf:owner/name/Q4_K_M`, `llama3:8b`, `owner/name`.
    pub name: String,
    /// The commit, in the hub's cache.
    pub commit: Option<String>,
    /// The branches and tags that led to that commit when they were last asked for.
    pub revisions: Vec<String>,
    /// The format of its weights.
    pub weights: Weights,
    /// The quantisation in the name of its file.
    pub quant: Option<String>,
    /// The bytes of its files.
    pub bytes: u64,
    /// Its directory, or its first file.
    pub path: PathBuf,
}

/// The models of the hub's cache in `folder`, by name. Those that are not complete are left out.
pub fn cached(folder: &Path) -> Vec<LocalModel> {
    let mut models = vec![];
    for repo in repositories(folder) {
        let of = Folder::of(folder, &repo);
        for (commit, revisions) in of.commits() {
            let snapshot = of.snapshot(&commit);
            let files = there(&snapshot);
            for found in models_of(&snapshot, &files) {
                let Some(name) = name(&repo, &commit, &revisions, found.part.as_deref()) else { continue };
                models.push(LocalModel {
                    store: Store::Hub,
                    name,
                    commit: Some(commit.clone()),
                    revisions: revisions.clone(),
                    weights: found.weights,
                    quant: found.quant,
                    bytes: found.bytes,
                    path: found.entry.map_or(snapshot.clone(), |entry| snapshot.join(entry)),
                });
            }
        }
    }
    models
}

/// The name that leads to a model: with its revision, if that is not `main`.
fn name(repo: &Repo, commit: &str, revisions: &[String], part: Option<&str>) -> Option<String> {
    let name = HubName::parse(&format!("hf:{repo}")).ok()?;
    let name = match revisions.iter().find(|name| *name == "main").or_else(|| revisions.first()) {
        Some(main) if main == "main" => name,
        revision => name.at(revision.map_or(commit, String::as_str)).ok()?,
    };
    Some(part.map_or(name.clone(), |part| name.with_part(part)).to_string())
}

/// A model of a directory.
struct Found {
    /// What is added to the name of the repository.
    part: Option<String>,
    weights: Weights,
    quant: Option<String>,
    bytes: u64,
    entry: Option<String>,
}

/// The models of `folder`, which has `files`: its own, and those in GGUF files.
fn models_of(folder: &Path, files: &[HubFile]) -> Vec<Found> {
    // The rules of choice are those of a repository; its name does not matter.
    let Ok(repository) = HubName::parse("hf:o/n") else { return vec![] };
    let bytes = |files: &[HubFile]| files.iter().filter_map(|file| file.size).sum();
    let has = |end: &str| files.iter().any(|file| !file.path.contains('/') && file.path.ends_with(end));
    let mut found = vec![];
    let weights = if has(".safetensors") { Some(Weights::Safetensors) } else { None };
    let weights = weights.or_else(|| (has(".bin") || has(".pt") || has(".pth")).then_some(Weights::Pytorch));
    let (gguf, others): (Vec<HubFile>, Vec<HubFile>) =
        files.iter().cloned().partition(|file| file.path.to_ascii_lowercase().ends_with(".gguf"));
    // All files that an index names must be there.
    let own = choose(&repository, &others).and_then(|choice| match &choice.index {
        Some(index) => {
            let text = std::fs::read(folder.join(index)).unwrap_or_default();
            choice.with_shards(&repository, &text, &others)
        }
        None => Ok(choice),
    });
    if let (Some(weights), Ok(_)) = (weights, own) {
        found.push(Found { part: None, weights, quant: None, bytes: bytes(&others), entry: None });
    }
    for file in gguf.iter().filter(|file| is_model(&file.path)) {
        // All parts of a split model lead to the first.
        let Ok(choice) = choose(&repository.with_part(&file.path), &gguf) else { continue };
        let Some(entry) = choice.entry.filter(|entry| *entry == file.path) else { continue };
        let quant = tag(&entry).map(str::to_owned);
        let is_alone = |quant: &String| choose(&repository.with_part(quant), &gguf).is_ok();
        let part = quant.clone().filter(is_alone).unwrap_or_else(|| entry.clone());
        found.push(Found {
            part: Some(part),
            weights: Weights::Gguf,
            quant,
            bytes: bytes(&choice.files),
            entry: Some(entry),
        });
    }
    found
}

/// The home folder, if the environment has one.
fn home() -> Option<PathBuf> {
    env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

//! An adapter that was read.

use std::path::Path;
use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{DialectName, KeyVerdict, Model};
use plan::Resolved;
use tensor::Diagnostic;

use crate::fitted::Fitted;
use crate::gguf::{self, Gguf};
use crate::pair::Pair;
use crate::peft::{self, Peft};
use crate::{Error, Problems};

/// A `LoRA` adapter: the factors of what it changes, in memory as f32.
#[derive(Clone, Debug)]
pub struct Adapter {
    path: String,
    dialect: DialectName,
    /// The family and the ecosystem that a GGUF file says it is for; the text, where no family claims it.
    architecture: Option<Result<&'static str, String>>,
    pairs: Vec<Pair>,
    keys: Vec<KeyVerdict>,
}

impl Adapter {
    /// Reads the adapter at `path`: a PEFT directory, its weights, or a GGUF file. What it changes is multiplied by `scale`
    /// beside its own factor; 1 is the adapter as it was trained.
    ///
    /// # Errors
    /// If a file cannot be read; everything that the adapter says and that is not followed, and all factors that do not go
    /// together.
    pub fn open(path: impl AsRef<Path>, scale: f32) -> Result<Adapter, Error> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let (dialect, architecture, mut pairs, keys, problems) = match source(path)? {
            Source::Peft { dir, weights } => {
                let Peft { pairs, keys, problems } = peft::read(dir, &weights)?;
                (DialectName::Hf, None, pairs, keys, problems)
            }
            Source::Gguf(file) => {
                let metadata = file.metadata();
                let Some(own) = metadata.gguf() else { return Err(nothing(path)) };
                let claimed = Model::claimed(metadata).map(|(family, _)| family);
                let said = own.str(gguf::ARCHITECTURE)?.map(str::to_owned);
                let architecture = claimed.map(Ok).or(said.map(Err));
                let Gguf { pairs, keys, problems } = gguf::read(&file, own)?;
                (DialectName::Gguf, architecture, pairs, keys, problems)
            }
        };
        let unusable = |problems| Error::Unusable { path: shown.clone(), problems };
        Problems::none(problems).map_err(unusable)?;
        if pairs.is_empty() {
            let what = format!("the adapter `{shown}` changes nothing: it has no factors");
            return Err(Error::Malformed { what: Diagnostic::new(what) });
        }
        for pair in &mut pairs {
            pair.scale *= scale;
        }
        Ok(Adapter { path: shown, dialect, architecture, pairs, keys })
    }

    /// Where it was read from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The verdict on each key of its configuration.
    pub fn keys(&self) -> &[KeyVerdict] {
        &self.keys
    }

    /// How many matrices it changes.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether it changes nothing; no adapter that was opened does.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The bytes that its factors take in memory.
    pub fn bytes(&self) -> u64 {
        let values =
            |pair: &Pair| pair.a.len() + pair.b.len() + pair.base.as_ref().map_or(0, |base| base.len());
        self.pairs.iter().map(|pair| 4 * values(pair) as u64).sum()
    }

    /// A digest of all that it changes, as hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for pair in &self.pairs {
            hasher.update(&(pair.name.len() as u64).to_le_bytes());
            hasher.update(pair.name.as_bytes());
            hasher.update(&pair.digest());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Finds the parameters of `model` that it changes; `resolved` are those that its checkpoint has.
    ///
    /// # Errors
    /// Everything that the model has not, or has in another shape.
    pub fn fit(self: &Arc<Self>, model: &Model, resolved: &Resolved) -> Result<Fitted, Error> {
        Fitted::of(self, model, resolved)
    }

    pub(crate) fn dialect(&self) -> DialectName {
        self.dialect
    }

    pub(crate) fn architecture(&self) -> Option<&Result<&'static str, String>> {
        self.architecture.as_ref()
    }

    pub(crate) fn pairs(&self) -> &[Pair] {
        &self.pairs
    }
}

/// What is at a path.
enum Source<'a> {
    Peft { dir: &'a Path, weights: Checkpoint },
    Gguf(Checkpoint),
}

fn source(path: &Path) -> Result<Source<'_>, Error> {
    if path.is_dir() && path.join(peft::CONFIG).exists() {
        return Ok(Source::Peft { dir: path, weights: peft::weights(path)? });
    }
    if path.is_dir() && path.join("config.json").exists() {
        return Err(nothing(path));
    }
    let checkpoint = checkpoint::open(path)?;
    if checkpoint.metadata().gguf().is_some() {
        return Ok(Source::Gguf(checkpoint));
    }
    let dir = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if dir.join(peft::CONFIG).exists() {
        return Ok(Source::Peft { dir, weights: checkpoint });
    }
    Err(nothing(path))
}

fn nothing(path: &Path) -> Error {
    let what = format!(
        "`{}` is no adapter: wanted a directory with `{}`, or a GGUF file of the type `adapter`",
        path.display(),
        peft::CONFIG
    );
    Error::Malformed { what: Diagnostic::new(what) }
}

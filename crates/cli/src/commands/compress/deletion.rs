//! `compress --delete-source`: the source goes once the result was compared with it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weighbridge::Checkpoint;
use weighbridge::checkpoint::{Identity, Removal};

use crate::failure::Failure;
use crate::json;

/// The files that hold the weights of `checkpoint`, each as it was when it was opened.
pub(super) fn weights(checkpoint: &Checkpoint) -> Result<Vec<(PathBuf, Identity)>, Failure> {
    checkpoint.unchanged()?;
    let mut files = vec![];
    for file in checkpoint.files() {
        let Some(path) = file.location.path() else { continue };
        let unknown =
            || format!("`{}` is not deleted: the system does not tell it from others", path.display());
        files.push((path.to_owned(), file.source.identity().ok_or_else(|| Failure::Other(unknown()))?));
    }
    Ok(files)
}

/// The command as it was given. The same, given again, deletes what an interrupted one has left of the source.
pub(super) struct Given {
    words: Vec<String>,
    source: PathBuf,
}

impl Given {
    pub(super) fn now(source: &Path) -> Result<Given, Failure> {
        // The form of its output does not matter.
        let words = std::env::args_os().skip(1).filter(|word| word != "--json");
        let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(Given { words, source: std::path::absolute(source)? })
    }

    /// Adds the output of the command, in both forms.
    pub(super) fn with(&self, text: &str, document: &json::Compress<'_>) -> Result<Value, Failure> {
        let document = serde_json::to_value(document).map_err(std::io::Error::from)?;
        let source = self.source.to_string_lossy();
        Ok(json!({"command": self.words, "source": source, "text": text, "document": document}))
    }

    pub(super) fn is_of(&self, note: &Value) -> bool {
        note["command"] == json!(self.words) && note["source"] == json!(self.source.to_string_lossy())
    }
}

/// Deletes what an interrupted command has left of the source of a complete result, and says what that would have said.
pub(super) fn finish(json: bool, removal: Removal) -> Result<(), Failure> {
    let note = removal.note().clone();
    removal.finish()?;
    if json {
        return Ok(json::print(&note["document"])?);
    }
    let text = note["text"].as_str().unwrap_or_default();
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Another command was deleting its source.
pub(super) fn left_over(destination: &Path, removal: &Removal) -> Failure {
    let words = removal.note()["command"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    Failure::Usage(format!(
        "`{}` is complete, and the command that wrote it did not finish deleting its source\nhint: to finish, give it again: \
         `weighbridge {}`",
        destination.display(),
        words.join(" ")
    ))
}

//! Quantised weights that lie in several tensors, as `config.json` says.

use std::fmt;
use std::path::Path;

use serde_json::Value;
use tensor::TensorEntry;

use super::hf;
use crate::contents::Contents;
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;

/// `contents` of the checkpoint at `path`, with one entry in the place of all that hold one weight together. What is
/// wrong with `config` itself is a problem of that file, beside the weights.
pub(super) fn gathered(path: &Path, config: &Value, contents: Contents) -> Result<Contents, Error> {
    let files = contents.files.clone();
    let read = |entry: &TensorEntry| {
        let unread = |e: &dyn fmt::Display| format!("`{}` cannot be read: {e}", entry.name);
        if entry.strides.is_some() {
            return Err(unread(&"its elements do not lie one after another"));
        }
        let plane = entry.planes.first().ok_or_else(|| unread(&"it has no planes"))?;
        let file = files.get(plane.file.0 as usize).ok_or_else(|| unread(&"it is in no file"))?;
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap_or(0)];
        file.source.read_at(plane.bytes.start, &mut bytes).map_err(|e| unread(&e))?;
        Ok(bytes)
    };
    let Contents { files, entries, by_name, ignored } = contents;
    let before = entries.len();
    let entries = quant::companions::gather(config, entries, &read).map_err(|wrong| {
        let beside = files.first().map(|file| file.path.with_file_name(hf::CONFIG));
        let path = match (&wrong[..], &beside) {
            ([only], Some(config)) if only.module.is_empty() => config,
            _ => path,
        };
        let mut problems = Problems::default();
        for quant::companions::Inconsistent { module, what } in wrong {
            let subject = if module.is_empty() { Subject::Whole } else { Subject::Tensor(module) };
            problems.push(Problem { at: None, subject, fault: Fault::Companions { what } });
        }
        problems.into_error(path)
    })?;
    let same = entries.len() == before;
    let contents = Contents { files, entries, by_name, ignored };
    Ok(if same { contents } else { contents.reindexed() })
}

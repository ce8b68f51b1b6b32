//! Quantised weights that lie in several tensors, as `config.json` says.

use std::path::Path;

use serde_json::Value;
use tensor::TensorEntry;

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::source::ByteSource;

/// `entries` of the file at `path`, with one in the place of all that hold one weight together.
pub(super) fn gathered(
    path: &Path,
    config: &Value,
    entries: Vec<TensorEntry>,
    source: &dyn ByteSource,
) -> Result<Vec<TensorEntry>, Error> {
    let read = |entry: &TensorEntry| {
        let range = entry.planes.first().map_or(0..0, |p| p.bytes.clone());
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        source
            .read_at(range.start, &mut bytes)
            .map_err(|e| format!("`{}` cannot be read: {e}", entry.name))?;
        Ok(bytes)
    };
    quant::companions::gather(config, entries, &read).map_err(|wrong| {
        let mut problems = Problems::default();
        for quant::companions::Inconsistent { module, what } in wrong {
            let subject = if module.is_empty() { Subject::Whole } else { Subject::Tensor(module) };
            problems.push(Problem { at: None, subject, fault: Fault::Companions { what } });
        }
        problems.into_error(path)
    })
}

//! Quantised weights that lie in several tensors, as `config.json` says.

use std::fmt;

use serde_json::Value;
use storage::Location;
use tensor::TensorEntry;

use super::hf;
use crate::contents::Contents;
use crate::convention;
use crate::error::{Error, Problem, Problems, Quoted, Subject};
use crate::fault::Fault;

/// Returns `contents` of the checkpoint at `location`, with one entry for all tensors that together hold one weight.
/// Problems of `config` itself are reported for that file, beside the weights.
pub(crate) fn gathered(location: &Location, config: &Value, contents: Contents) -> Result<Contents, Error> {
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
    let entries = convention::gather(config, entries, &read).map_err(|wrong| {
        let beside = files.first().map(|file| file.location.beside(hf::CONFIG));
        let location = match (&wrong[..], &beside) {
            ([only], Some(config)) if only.module.is_empty() => config,
            _ => location,
        };
        let mut problems = Problems::default();
        for convention::Inconsistent { module, what } in wrong {
            let subject = if module.is_empty() { Subject::Whole } else { Subject::Tensor(module) };
            problems.push(Problem { at: None, subject, fault: Fault::Companions { what } });
        }
        problems.into_error(location)
    })?;
    let same = entries.len() == before;
    if same {
        unread(config, &entries).map_or(Ok(()), |fault| Err(Error::whole(location, fault)))?;
    }
    let contents = Contents { files, entries, by_name, ignored };
    Ok(if same { contents } else { contents.reindexed() })
}

/// `quant_method`s that there is a convention for (crates/checkpoint/src/convention).
const METHODS: [&str; 8] =
    ["awq", "bitnet", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4"];

/// Returns a fault if `entries` are spread over several tensors by a method that no convention here reads. The sign of
/// it is a tensor with a name that only parts of quantised weights have. Weights that such a method left plain are
/// read.
fn unread(config: &Value, entries: &[TensorEntry]) -> Option<Fault> {
    let method = config.pointer("/quantization_config/quant_method")?.as_str()?;
    let is_part = |e: &&TensorEntry| {
        let last = e.name.rsplit('.').next().unwrap_or_default();
        last.contains("scale") || ["qweight", "qzeros", "codes", "codebooks", "absmax"].contains(&last)
    };
    let part = entries.iter().find(is_part).filter(|_| !METHODS.contains(&method))?;
    let what = format!(
        "has weights in parts, such as {}, that are put together as the `quant_method` {} says, which is not read: \
         those that are read are {}",
        Quoted(&part.name),
        Quoted(method),
        METHODS.join(", ")
    );
    Some(Fault::Unsupported { what })
}

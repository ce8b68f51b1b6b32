//! Changes in the metadata of a GGUF file that follow from changes in its tensors.

use std::collections::BTreeMap;

use checkpoint::Value;
use plan::PlannedParam;

use planner::Preset;

use crate::ConvertOptions;

/// ggml.h, `GGML_QNT_VERSION`.
const QUANTISATION_VERSION: u32 = 2;

/// `general.file_type` of a file most of whose values are in a scheme.
///
/// Source: `enum llama_ftype` of include/llama.h, and what src/llama-model-loader.cpp guesses from tensors,
/// llama.cpp@0c1e57098.
static FILE_TYPES: &[(&str, u32)] = &[
    ("f32", 0),
    ("f16", 1),
    ("q4_0", 2),
    ("q4_1", 3),
    ("q8_0", 7),
    ("q5_0", 8),
    ("q5_1", 9),
    ("q2_k", 10),
    ("q3_k", 12),
    ("q4_k", 15),
    ("q5_k", 17),
    ("q6_k", 18),
    ("iq2_xxs", 19),
    ("iq2_xs", 20),
    ("iq3_xxs", 23),
    ("iq1_s", 24),
    ("iq4_nl", 25),
    ("iq3_s", 26),
    ("iq2_s", 28),
    ("iq4_xs", 30),
    ("iq1_m", 31),
    ("bf16", 32),
    ("tq1_0", 36),
    ("tq2_0", 37),
    ("mxfp4", 38),
    ("nvfp4", 39),
    ("q1_0", 40),
    ("q2_0", 41),
];

/// Keys that get another value; new keys come last.
pub(crate) struct Changes {
    numbers: Vec<(&'static str, u32)>,
    texts: Vec<(&'static str, String)>,
}

impl Changes {
    /// Returns the changes that a conversion to `params` makes: none if it only copies, unless the file is `new` as a
    /// GGUF file.
    pub(crate) fn of(params: &[&PlannedParam], options: &ConvertOptions<'_>, new: bool) -> Changes {
        let (mut numbers, mut texts) = (vec![], vec![]);
        let changed = new || params.iter().any(|p| p.scheme != p.moved);
        if changed {
            let file_type = options.preset.and_then(Preset::file_type).or_else(|| most(params));
            numbers.extend(file_type.map(|t| ("general.file_type", t)));
            if new || params.iter().any(|p| p.scheme.dtype().is_none()) {
                numbers.push(("general.quantization_version", QUANTISATION_VERSION));
            }
        }
        numbers.extend(options.alignment.map(|n| ("general.alignment", n)));
        // As tools/quantize/quantize.cpp has them.
        if let Some(imatrix) = options.imatrix.filter(|_| changed) {
            texts.push(("quantize.imatrix.file", imatrix.path().display().to_string()));
            texts.extend(imatrix.dataset().map(|d| ("quantize.imatrix.dataset", d.to_owned())));
            numbers
                .push(("quantize.imatrix.entries_count", u32::try_from(imatrix.len()).unwrap_or(u32::MAX)));
            numbers.extend(imatrix.chunks().map(|n| ("quantize.imatrix.chunks_count", n)));
        }
        Changes { numbers, texts }
    }

    /// Returns the pairs of `source` in order, with the changes. Keys that mark the source as one of several files are
    /// left out, since the result is one file.
    pub(crate) fn pairs<'a>(
        &'a self,
        source: impl Iterator<Item = (&'a str, Value<'a>)>,
    ) -> Vec<(&'a str, Value<'a>)> {
        let numbers = self.numbers.iter().map(|(key, n)| (*key, Value::U32(*n)));
        let texts = self.texts.iter().map(|(key, text)| (*key, Value::Str(text.as_bytes())));
        let mut changes: Vec<(&str, Value<'a>)> = numbers.chain(texts).collect();
        let mut pairs: Vec<(&str, Value<'a>)> =
            source.filter(|(key, _)| !key.starts_with("split.")).collect();
        for (key, value) in &mut pairs {
            if let Some(at) = changes.iter().position(|(changed, _)| changed == key) {
                *value = changes.remove(at).1;
            }
        }
        pairs.extend(changes);
        pairs
    }
}

/// The file type of the scheme that holds most values.
fn most(params: &[&PlannedParam]) -> Option<u32> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for param in params {
        *counts.entry(&param.scheme.name).or_default() += param.shape.elements().unwrap_or_default();
    }
    let (name, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    FILE_TYPES.iter().find(|(scheme, _)| *scheme == name).map(|(_, id)| *id)
}

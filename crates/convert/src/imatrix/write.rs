//! Writes what a calibration found.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use checkpoint::{ArrayBuf, Checkpoint, Draft, Outgoing, ValueBuf, WriteOptions};
use engine::calibrate::Calibration;
use planner::{Adapter, describe};
use tensor::{Dtype, Scheme};

use super::{COUNTS, Imatrix, LOOKUP, SENSITIVITY, SUMS, Sensitivity};
use crate::Error;
use crate::names::Names;

#[expect(clippy::cast_possible_truncation, reason = "sums are taken in f64 and kept in f32")]
fn narrowed(x: f64) -> f32 {
    x as f32
}

/// The tensors of a file, by name.
fn tensors(checkpoint: &Checkpoint, calibration: &Calibration) -> Result<BTreeMap<String, Vec<f32>>, Error> {
    let names = Names::canonical(checkpoint, &describe(checkpoint)?, &Adapter::default())?;
    let mut tensors: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for inputs in &calibration.matrices {
        let name = names.of(&inputs.name);
        let sums = inputs.squares.iter().map(|sum| narrowed(*sum)).collect();
        tensors.insert(format!("{name}{SUMS}"), sums);
        tensors.insert(format!("{name}{COUNTS}"), vec![inputs.rows as f32]);
        if let Some(sensitivity) = inputs.sensitivity {
            let all = tensors.entry(format!("{name}{SENSITIVITY}")).or_insert_with(|| vec![0.0]);
            // Parts that GGUF has in one tensor: it is as sensitive as the most sensitive of them.
            all[0] = all[0].max(narrowed(sensitivity));
        }
    }
    if let Some(sensitivity) = calibration.lookup.sensitivity {
        let name = names.of(&calibration.lookup.name);
        tensors.insert(format!("{name}{LOOKUP}"), vec![narrowed(sensitivity)]);
    }
    Ok(tensors)
}

impl Imatrix {
    /// What a calibration of `checkpoint` found, with `text` as the name of the text.
    ///
    /// # Errors
    /// If the family has no names in GGUF.
    pub fn of(checkpoint: &Checkpoint, calibration: &Calibration, text: &str) -> Result<Imatrix, Error> {
        let tensors = tensors(checkpoint, calibration)?;
        let mut columns = HashMap::new();
        let mut sensitivities: HashMap<String, Sensitivity> = HashMap::new();
        for (name, values) in &tensors {
            let first = values.first().map_or(0.0, |value| f64::from(*value));
            if let Some(name) = name.strip_suffix(SUMS) {
                let count = tensors.get(&format!("{name}{COUNTS}")).and_then(|c| c.first()).copied();
                let count = count.unwrap_or(1.0).max(1.0);
                columns.insert(name.to_owned(), values.iter().map(|sum| sum / count).collect());
            } else if let Some(name) = name.strip_suffix(SENSITIVITY) {
                sensitivities.entry(name.to_owned()).or_default().product = first;
            } else if let Some(name) = name.strip_suffix(LOOKUP) {
                sensitivities.entry(name.to_owned()).or_default().lookup = first;
            }
        }
        let (dataset, chunks) = (Some(text.to_owned()), u32::try_from(calibration.chunks).ok());
        Ok(Imatrix { path: PathBuf::from(text), columns, sensitivities, dataset, chunks })
    }
}

/// Writes what a calibration of `checkpoint` found to `path`, as llama.cpp's llama-imatrix does, with `text` as the name of the text
/// and `length` tokens a chunk. Returns the path.
///
/// # Errors
/// If something is at `path` and may not be replaced; if the file cannot be written, or the family has no names in GGUF.
pub fn write_calibration(
    path: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    calibration: &Calibration,
    (text, length): (&str, usize),
    overwrite: bool,
) -> Result<PathBuf, Error> {
    let tensors = tensors(checkpoint, calibration)?;
    let number = |n: usize| ValueBuf::U32(u32::try_from(n).unwrap_or(u32::MAX));
    let pairs = [
        ("general.type", ValueBuf::Str("imatrix".to_owned())),
        ("imatrix.datasets", ValueBuf::Array(ArrayBuf::strings([text]))),
        ("imatrix.chunk_count", number(calibration.chunks)),
        ("imatrix.chunk_size", number(length)),
    ];
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (*key, value.borrow())).collect();
    let outgoing = tensors.iter().map(|(name, values)| Outgoing {
        name: name.clone(),
        shape: [values.len() as u64].into(),
        scheme: Scheme::plain(Dtype::F32),
    });
    let draft = Draft::gguf(outgoing.collect(), &pairs)?;
    let options = WriteOptions { overwrite, ..WriteOptions::default() };
    let mut writer = draft.create_with(path.as_ref(), &options)?;
    for values in tensors.values() {
        writer.tensor(&[&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()])?;
    }
    writer.finish()?;
    Ok(path.as_ref().to_owned())
}

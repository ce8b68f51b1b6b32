//! Importance matrices, as llama.cpp's llama-imatrix writes them: for each weight, how strongly each of its
//! inputs was driven, so that an encoder can place its errors where they matter least.
//!
//! Source: common/imatrix-loader.cpp and `load_imatrix` of tools/quantize/quantize.cpp, llama.cpp@0c1e57098.
//!
//! Our own have more: `NAME.sensitivity`, by how much predictions diverge, in nats a token, for each unit of the mean square of an
//! error in the results of the weight; and for the table of tokens `NAME.lookup_sensitivity`, the same for an error in a row that is
//! looked up. llama.cpp passes over tensors of other names.

mod write;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, Value};
use load::{Loaded, Pool};
use plan::PlannedParam;

use planner::encoding::Misfits;
use planner::plan_as_stored;

use crate::Error;
use crate::digest::digest;
use crate::names::Names;

/// A file of the old form is at most this long; real ones have some tens of MB.
const MOST: u64 = 4 << 30;

pub use write::write_calibration;

/// Tensors of a file, after the name of the weight.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const SENSITIVITY: &str = ".sensitivity";
const LOOKUP: &str = ".lookup_sensitivity";

/// How much each column of each weight matters, by the names of GGUF.
pub struct Imatrix {
    path: PathBuf,
    columns: HashMap<String, Vec<f32>>,
    sensitivities: HashMap<String, Sensitivity>,
    dataset: Option<String>,
    chunks: Option<u32>,
}

/// By how much predictions diverge if a weight has errors, in nats a token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sensitivity {
    /// For each unit of the mean square of an error in its results.
    pub product: f64,
    /// For each unit of the mean square of an error in a row, if rows are looked up.
    pub lookup: f64,
}

impl fmt::Debug for Imatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imatrix")
            .field("path", &self.path)
            .field("weights", &self.columns.len())
            .finish_non_exhaustive()
    }
}

impl Imatrix {
    /// Reads a file: GGUF with tensors `NAME.in_sum2` and `NAME.counts`, or the `.dat` form of before.
    ///
    /// # Errors
    /// If it cannot be read, or is no importance matrix.
    pub fn open(path: impl AsRef<Path>) -> Result<Imatrix, Error> {
        let path = path.as_ref();
        let wrong = |what| Error::Imatrix { path: path.display().to_string(), what };
        let mut magic = [0; 4];
        let started =
            std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut magic));
        let imatrix = if started.is_ok() && magic != *b"GGUF" {
            let len = std::fs::metadata(path).map_or(u64::MAX, |m| m.len());
            if len > MOST {
                return Err(wrong(format!("{len} bytes are too many")));
            }
            let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
            let columns = old(&bytes)
                .ok_or_else(|| wrong("it is neither GGUF nor llama.cpp's older imatrix format".to_owned()))?;
            Imatrix {
                path: path.to_owned(),
                columns,
                sensitivities: HashMap::new(),
                dataset: None,
                chunks: None,
            }
        } else {
            let checkpoint = checkpoint::open(path)?;
            let loaded = plan_as_stored(&checkpoint)?.load(&mut Pool::new(1))?;
            new(path, &checkpoint, &loaded).map_err(wrong)?
        };
        if imatrix.columns.is_empty() {
            return Err(wrong("it has no tensors".to_owned()));
        }
        match imatrix.columns.iter().find(|(_, c)| c.iter().any(|x| !x.is_finite())) {
            Some((name, _)) => Err(wrong(format!("`{name}` has values that are not finite"))),
            None => Ok(imatrix),
        }
    }

    /// The importance of each column of the weight called `name`; for experts, one after the other.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.columns.get(name).map(Vec::as_slice)
    }

    /// How much predictions depend on the weight called `name`, if that was measured.
    pub fn sensitivity(&self, name: &str) -> Option<Sensitivity> {
        self.sensitivities.get(name).copied()
    }

    /// A digest of all that encoders heed.
    pub(crate) fn digest(&self) -> String {
        digest(self.columns.iter().map(|(name, columns)| (name.as_str(), &columns[..])))
    }

    /// How many weights it is about.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether it is about none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records importance that matches no parameter, or has another length.
    pub(crate) fn check(&self, params: &[&PlannedParam], names: &Names, misfits: &mut Misfits) {
        let mut found = false;
        for (param, columns) in params.iter().filter_map(|p| Some((p, self.get(names.of(&p.name))?))) {
            found = true;
            let wants = param.shape.last().copied().unwrap_or(1);
            let stack = param.shape.split_last_chunk::<2>().map_or(&[][..], |(lead, _)| lead);
            let stacked = stack.iter().try_fold(wants, |n, x| n.checked_mul(*x));
            if Some(columns.len() as u64) != stacked {
                let of: String = stack.iter().map(|n| format!("{n} × ")).collect();
                let what =
                    format!("has {of}{wants} columns, but the importance matrix {} for it", columns.len());
                misfits.param(&param.name, what);
            }
        }
        if !found {
            let path = self.path.display();
            misfits.whole(format!("the importance matrix `{path}` names none of the parameters"));
        }
    }

    /// The text that it was made from, as the file names it.
    pub(crate) fn dataset(&self) -> Option<&str> {
        self.dataset.as_deref()
    }

    /// How many chunks of text it was made from.
    pub(crate) fn chunks(&self) -> Option<u32> {
        self.chunks
    }
}

fn new(path: &Path, checkpoint: &Checkpoint, loaded: &Loaded) -> Result<Imatrix, String> {
    let f32s = |name: &str| {
        let tensor = loaded.get(name).ok_or_else(|| format!("`{name}` is missing"))?;
        if tensor.scheme().name != "f32" {
            return Err(format!("`{name}` is {}, wanted f32", tensor.scheme()));
        }
        Ok(tensor.as_f32())
    };
    let mut columns = HashMap::new();
    for entry in checkpoint.entries() {
        let Some(name) = entry.name.strip_suffix(SUMS) else { continue };
        let (sums, counts) = (f32s(&entry.name)?, f32s(&format!("{name}{COUNTS}"))?);
        if counts.is_empty() || !sums.len().is_multiple_of(counts.len()) || sums.is_empty() {
            return Err(format!("`{name}` has {} sums for {} counts", sums.len(), counts.len()));
        }
        // One count for each expert, or one for all. An expert that was never activated gets importance 1.
        let per = sums.len() / counts.len();
        let mean = |(sum, count): (&[f32], &f32)| {
            let count = count.round();
            sum.iter().map(move |s| if count > 0.0 { s / count } else { 1.0 }).collect::<Vec<f32>>()
        };
        columns.insert(name.to_owned(), sums.chunks_exact(per).zip(counts).flat_map(mean).collect());
    }
    let mut sensitivities: HashMap<String, Sensitivity> = HashMap::new();
    for entry in checkpoint.entries() {
        let (product, lookup) = (entry.name.strip_suffix(SENSITIVITY), entry.name.strip_suffix(LOOKUP));
        let Some(name) = product.or(lookup) else { continue };
        let [value] = f32s(&entry.name)? else {
            return Err(format!("`{}` has {} values, wanted one", entry.name, entry.shape));
        };
        if !value.is_finite() || *value < 0.0 {
            return Err(format!("`{}` is {value}, wanted a number from 0 on", entry.name));
        }
        if product.is_some() && !columns.contains_key(name) {
            return Err(format!("`{}` is of a weight that has no `{SUMS}`", entry.name));
        }
        let of = sensitivities.entry(name.to_owned()).or_default();
        *(if product.is_some() { &mut of.product } else { &mut of.lookup }) = f64::from(*value);
    }
    let metadata = checkpoint.metadata().gguf();
    let dataset = metadata.and_then(|m| m.strings("imatrix.datasets").ok()??.next());
    let dataset = dataset.map(|d| String::from_utf8_lossy(d).into_owned());
    let chunks = metadata.and_then(|m| m.get("imatrix.chunk_count"));
    let chunks = chunks.and_then(|v| if let Value::U32(n) = v { Some(n) } else { None });
    Ok(Imatrix { path: path.to_owned(), columns, sensitivities, dataset, chunks })
}

/// The old form: how many, and for each the length of its name, its name, the number of calls, the number of
/// values, and the values: means of the squares, times the number of calls.
fn old(bytes: &[u8]) -> Option<HashMap<String, Vec<f32>>> {
    let mut rest = bytes;
    let mut take = |n: usize| {
        let (part, after) = rest.split_at_checked(n)?;
        rest = after;
        Some(part)
    };
    let int = |b: &[u8]| usize::try_from(i32::from_le_bytes(*b.first_chunk()?)).ok();
    let mut columns = HashMap::new();
    for _ in 0..int(take(4)?)? {
        let name = take(4).and_then(int).and_then(&mut take)?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let calls = int(take(4)?)?.max(1) as f32;
        let count = int(take(4)?)?;
        let values = take(count.checked_mul(4)?)?.as_chunks::<4>().0;
        columns.insert(name, values.iter().map(|v| f32::from_le_bytes(*v) / calls).collect());
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_form_is_means_times_calls() {
        let mut bytes = vec![];
        for n in [1, 3] {
            bytes.extend(i32::to_le_bytes(n));
        }
        bytes.extend(b"a.b");
        for n in [2, 2] {
            bytes.extend(i32::to_le_bytes(n));
        }
        bytes.extend([3.0f32, 8.0].map(f32::to_le_bytes).concat());
        assert_eq!(old(&bytes), Some(HashMap::from([("a.b".to_owned(), vec![1.5, 4.0])])));
        assert!((0..bytes.len()).all(|n| old(&bytes[..n]).is_none()));
    }
}

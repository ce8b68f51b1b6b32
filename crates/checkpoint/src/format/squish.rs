//! Directories of squish: `manifest.json`, and in `tensors/` arrays that together hold one weight each.
//!
//! Source: squish@b9a44a9f5, squish/convert.py (`process_weights_streaming`, `quantize_tensor`) and
//! squish/quant/compressed_loader.py (`_dequantize_npy_dir`, whose order of preference is kept).
//!
//! `manifest.json` maps the name of a tensor to the start of its files' names. Names of files say what they hold:
//! `__shape` the shape; `__pt` plain values; codes, scales and minima of the schemes `squish-…`. Any of them may
//! be compressed, `….npy.zst`; where both are there, the one that is not is read.

mod write;

use std::sync::Arc;

use tensor::{Dtype, FileId, OUT, PlaneAxis, PlaneData, PlaneSpec, Scheme, Shape, TensorEntry};

use super::hf::{CONFIG, HfMetadata};
use super::npy::{self, Array, SUFFIX, ZSTD};
use super::safetensors::Pairs;
use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File};
use crate::error::{Error, Problem, Problems, Quoted, Subject, a_few};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::members::Members;
pub(crate) use write::form;

/// The squish format.
#[derive(Debug)]
pub(crate) struct Squish;

const NAME: &str = "squish";
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const TENSORS: &str = "tensors";
/// The file in `tensors/` that says that all of them are there.
pub(crate) const READY: &str = ".manifest_ready";
/// The ending of names of files of plain values.
const PLAIN: &str = "__pt";
const SHAPE: &str = "__shape";
/// A manifest is at most this long.
const MAX_MANIFEST: u64 = 100_000_000;
/// More axes than any tensor has.
const MAX_AXES: u64 = 64;

/// A way of storing a weight: suffixes of file names, codes first.
struct Way {
    scheme: &'static str,
    planes: &'static [&'static str],
    /// Elements in a byte of codes.
    packed: u64,
}

/// In the order in which they are looked for: converting leaves the files of before in place.
static WAYS: &[Way] = &[
    Way { scheme: "squish-q4a", planes: &["__q4a", "__s4a", "__z4a"], packed: 2 },
    Way { scheme: "squish-q4", planes: &["__q4", "__s4"], packed: 2 },
    Way { scheme: "", planes: &[PLAIN], packed: 1 },
    Way { scheme: "squish-int8", planes: &["__q", "__s"], packed: 1 },
];

impl Format for Squish {
    fn name(&self) -> &'static str {
        NAME
    }

    fn claims(&self, folder: &Folder) -> bool {
        folder.has(MANIFEST) && folder.has(TENSORS)
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let folder = match found {
            Found::Folder(folder) => folder,
            Found::File(file) => {
                let what = "is one file, where squish has a directory".to_owned();
                return Err(Error::whole(file.location(), Fault::Unsupported { what }));
            }
        };
        let contents = contents(&folder)?;
        // squish does not write a configuration, but a directory with one is a model.
        let config = folder.has(CONFIG).then(|| HfMetadata::read(&folder)).transpose()?;
        let metadata = config.map_or(Metadata::None, Metadata::Hf);
        Ok(Checkpoint::new(folder.location(), FormatName::new(NAME), contents, metadata))
    }
}

fn contents(folder: &Folder) -> Result<Contents, Error> {
    let manifest = manifest(folder)?;
    let tensors = folder.inner(TENSORS)?;
    let mut members = Members::of(&tensors);
    let mut weights = vec![];
    for (name, key) in &manifest {
        weights.extend(weight(&tensors, &mut members, name, key)?);
        if members.problems.enough() {
            break;
        }
    }
    let contents = Contents::join(weights, &mut members.problems);
    members.check()?;
    Ok(contents)
}

/// Names of tensors and the starts of their files' names: plain, and no two the same.
fn manifest(folder: &Folder) -> Result<Vec<(String, String)>, Error> {
    let file = folder.open_small(MANIFEST)?;
    let location = file.location();
    let json = file.read_all(MAX_MANIFEST)?;
    let Pairs { mut list, doubled } = serde_json::from_slice(&json).map_err(|e| {
        let (at, fault) = Fault::json("the manifest", &json, 0, &e);
        Problem { at, subject: Subject::Whole, fault }.of(&location)
    })?;
    let mut problems = Problems::default();
    for name in doubled {
        let (first, at) = Fault::places(&json, &name);
        let fault = Fault::Duplicate { first: first.unwrap_or_default() };
        problems.push(Problem { at, subject: Subject::Tensor(name), fault });
    }
    // Sorted, so that shared files are found, and tensors come in the same order whoever wrote the manifest.
    list.sort_unstable_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    for (name, key) in &list {
        let fault = Fault::of_name(name.as_bytes(), "tensor name")
            .or_else(|| (!Folder::is_plain(key)).then(|| Fault::NotPlain { name: key.clone() }));
        if let Some(fault) = fault {
            problems.push(Problem { at: None, subject: Subject::Tensor(name.clone()), fault });
        }
    }
    for (one, other) in list.iter().zip(list.iter().skip(1)).filter(|(a, b)| a.1 == b.1 && a.0 != b.0) {
        let fault = Fault::Companions { what: format!("has the same files as {}", Quoted(&one.0)) };
        problems.push(Problem { at: None, subject: Subject::Tensor(other.0.clone()), fault });
    }
    problems.check(&location)?;
    Ok(list)
}

/// The tensor `name`, whose files start with `key`; `None` if that is wrong, which `members` keeps.
fn weight(
    folder: &Folder,
    members: &mut Members<'_>,
    name: &str,
    key: &str,
) -> Result<Option<Contents>, Error> {
    let file = |suffix: &str| {
        let plain = format!("{key}{suffix}{SUFFIX}");
        let packed = format!("{plain}{ZSTD}");
        if !folder.has(&plain) && folder.has(&packed) { packed } else { plain }
    };
    let subject = || Subject::Tensor(name.to_owned());
    let found = WAYS.iter().find(|way| way.planes.iter().all(|plane| folder.has(&file(plane))));
    let Some(way) = found else {
        members.problems.push(Problem { at: None, subject: subject(), fault: otherwise(folder, key) });
        return Ok(None);
    };
    let mut arrays = vec![];
    for plane in way.planes {
        let read = if way.scheme.is_empty() { npy::open } else { npy::read };
        arrays.extend(members.open(&file(plane), read)?);
    }
    let shape = match &arrays[..] {
        [(_, only)] if way.scheme.is_empty() && !folder.has(&file(SHAPE)) => Some(only.shape.clone()),
        _ => members.open(&file(SHAPE), shape)?,
    };
    let Some(shape) = shape.filter(|_| arrays.len() == way.planes.len()) else { return Ok(None) };
    match way.scheme(&shape, &arrays) {
        Ok(scheme) => Ok(Some(assembled(name, shape, scheme, arrays))),
        Err(fault) => {
            members.problems.push(Problem { at: None, subject: subject(), fault });
            Ok(None)
        }
    }
}

fn assembled(name: &str, shape: Shape, scheme: Arc<Scheme>, arrays: Vec<(File, Array)>) -> Contents {
    let (files, arrays): (Vec<File>, Vec<Array>) = arrays.into_iter().unzip();
    let strides = arrays.first().and_then(|array| array.strides.clone());
    let planes = (0..).zip(arrays).map(|(i, a)| PlaneData { file: FileId(i), bytes: a.bytes }).collect();
    let entries = vec![TensorEntry { name: name.to_owned(), shape, scheme, planes, strides }];
    Contents { files, entries, ..Contents::default() }.reindexed()
}

impl Way {
    /// The scheme of a tensor of `shape` whose planes are `arrays`, if they fit it.
    fn scheme(&self, shape: &Shape, arrays: &[(File, Array)]) -> Result<Arc<Scheme>, Fault> {
        let wrong = |what: String| Fault::Companions { what };
        let mut arrays = arrays.iter().map(|(_, array)| array).zip(self.planes);
        let Some((codes, codes_name)) = arrays.next() else { return Err(wrong("has no planes".to_owned())) };
        let unlike = || wrong(format!("`{codes_name}` is {}, for shape {shape}", codes.shape));
        if self.scheme.is_empty() {
            // Only the number of elements is sure to be the same: squish reshapes.
            let same = shape.elements() == codes.shape.elements();
            // Elements of another order cannot be reshaped where they lie.
            let same = same && (codes.strides.is_none() || *shape == codes.shape);
            return if same { Ok(Arc::clone(&codes.scheme)) } else { Err(unlike()) };
        }
        // Arrays are matrices: all axes but the last are rows.
        let Some((k, rows)) = shape.split_last() else {
            return Err(Fault::Unsupported {
                what: "is a quantised number, wanted an axis or more".to_owned(),
            });
        };
        let rows = Shape::from(rows.to_vec()).elements().unwrap_or(0);
        let Some((scales, scales_name)) = arrays.clone().next() else { return Err(unlike()) };
        let all = scales.shape.elements().unwrap_or(0);
        if rows == 0 || all == 0 || !all.is_multiple_of(rows) {
            return Err(wrong(format!("`{scales_name}` is {}, for {rows} rows", scales.shape)));
        }
        let groups = all / rows;
        let params =
            if groups == 1 && self.packed == 1 { "row".to_owned() } else { format!("g{}", k / groups) };
        let scheme = quant::scheme(&format!("{}:{params}", self.scheme)).ok_or_else(|| {
            wrong(format!("has {groups} groups in {k} columns, which no `{}` has", self.scheme))
        })?;
        let scheme = if shape.len() == 1 { one_row(&scheme) } else { scheme };
        let fits = |array: &Array, dtype: Dtype, plane: &PlaneSpec| {
            let bytes = array.bytes.end - array.bytes.start;
            array.scheme.dtype() == Some(dtype) && scheme.plane_bytes(plane, shape) == Ok(bytes)
        };
        let dtype = if self.packed == 1 { Dtype::I8 } else { Dtype::U8 };
        let mut specs = scheme.planes.iter();
        let columns = codes.shape.last().and_then(|n| n.checked_mul(self.packed));
        if columns != Some(*k) || !specs.next().is_some_and(|plane| fits(codes, dtype, plane)) {
            return Err(wrong(format!(
                "`{codes_name}` is {} {}, for shape {shape}",
                codes.shape, codes.scheme
            )));
        }
        for ((array, name), plane) in arrays.zip(specs) {
            if !fits(array, Dtype::F32, plane) {
                let Array { shape: found, scheme: held, .. } = array;
                return Err(wrong(format!("`{name}` is {found} {held}, for shape {shape} in `{scheme}`")));
            }
        }
        Ok(scheme)
    }
}

/// `scheme` of a vector, which squish stores as a matrix of one row: the same planes without the axis of rows.
fn one_row(scheme: &Scheme) -> Arc<Scheme> {
    let rows = |axis: &PlaneAxis| matches!(axis, PlaneAxis::Cells { axis: OUT, .. });
    let plane = |plane: &PlaneSpec| {
        let axes: Vec<_> = plane.axes.iter().copied().filter(|axis| !rows(axis)).collect();
        PlaneSpec { axes: axes.into(), ..plane.clone() }
    };
    let planes: Vec<_> = scheme.planes.iter().map(plane).collect();
    Arc::new(Scheme { name: scheme.name.clone(), trailing: 1, planes: planes.into() })
}

/// The shape that a file of whole numbers says.
fn shape(file: OpenFile) -> Result<Shape, Error> {
    let (file, array) = npy::read(file)?;
    let wrong =
        |fault| Problem { at: Some(array.bytes.start), subject: Subject::Whole, fault }.of(&file.location);
    let axes = array.shape.elements().unwrap_or(u64::MAX);
    if array.scheme.dtype() != Some(Dtype::I64) || axes > MAX_AXES {
        let found = format!("{} {}", array.shape, array.scheme);
        return Err(wrong(Fault::Value { wants: "a shape: i64, at most 64 of them", found }));
    }
    let mut bytes = vec![0; usize::try_from(8 * axes).unwrap_or(0)];
    file.source.read_at(array.bytes.start, &mut bytes).map_err(|e| Error::io(&file.location, "read", e))?;
    let axis = |bytes: &[u8; 8]| {
        let axis = i64::from_le_bytes(*bytes);
        u64::try_from(axis)
            .map_err(|_| wrong(Fault::Value { wants: "axes that are not negative", found: axis.to_string() }))
    };
    bytes.as_chunks::<8>().0.iter().map(axis).collect::<Result<Vec<_>, _>>().map(Shape::from)
}

/// Describes the files that are there instead of those of a known way.
fn otherwise(folder: &Folder, key: &str) -> Fault {
    let start = format!("{key}__");
    let suffix = |name: &str| name.strip_prefix(&start).map(|rest| format!("__{rest}"));
    let found: Vec<String> = folder.names().filter_map(suffix).filter(|s| !s.starts_with(SHAPE)).collect();
    if found.is_empty() {
        return Fault::Absent { name: format!("{start}*{SUFFIX}") };
    }
    let names = a_few(found.iter().map(String::as_str));
    Fault::Unsupported { what: format!("is held in {names}, which is not read") }
}

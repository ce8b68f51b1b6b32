//! npy: a numpy array, or a directory of them.
//!
//! Source: numpy/lib/_format_impl.py of numpy 2.4, versions 1.0 to 3.0 of the format. Big-endian arrays have schemes of
//! their own, `f32.be`. Records and objects are rejected. `NAME.npy.zst` is such a file compressed with zstd
//! ([`storage::zstd`]).

pub(crate) mod header;

use std::ops::Range;
use std::sync::Arc;

use storage::zstd::{Broken, Compressed, is_zstd};
use storage::{ByteSource, Location};
use tensor::{FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File};
use crate::error::{Error, Problem, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::members::Members;
use crate::write::{Flat, Outgoing, Refusals};

/// The npy format. A tensor is called as its file is, without the extension.
#[derive(Debug)]
pub(crate) struct Npy;

const NAME: &str = "npy";
/// The suffix that numpy appends to the name of an array.
pub(crate) const SUFFIX: &str = ".npy";
/// The further suffix of a compressed array.
pub(crate) const ZSTD: &str = ".zst";

/// The file of `tensor` alone.
pub(crate) fn form(tensor: &Outgoing) -> Result<Flat, Error> {
    let (mut refused, Outgoing { shape, scheme, .. }) = (Refusals::default(), tensor);
    let head = scheme.dtype().and_then(|dtype| header::build(dtype, shape)).unwrap_or_default();
    if head.is_empty() {
        refused.scheme(tensor);
    }
    let data =
        scheme.byte_len(shape).map_err(|why| refused.push(tensor, Fault::geometry(shape, scheme, why)));
    refused.check(NAME, "a numpy dtype")?;
    let at = head.len() as u64;
    Ok(Flat { head, between: vec![], offsets: vec![vec![at]], len: at.saturating_add(data.unwrap_or(0)) })
}

impl Format for Npy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npy", "zst"]
    }

    fn sniff(&self, head: &[u8]) -> bool {
        head.starts_with(header::MAGIC)
    }

    fn packed(&self, head: &[u8]) -> bool {
        is_zstd(head)
    }

    fn claims(&self, folder: &Folder) -> bool {
        !files(folder).is_empty() && folder.ending(".safetensors").is_empty()
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let (location, contents) = match found {
            Found::File(file) => (file.location(), one(file)?),
            Found::Folder(folder) => (folder.location(), every(&folder)?),
        };
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, Metadata::None))
    }
}

/// The files of `folder` that are arrays by their names, sorted.
fn files(folder: &Folder) -> Vec<&str> {
    folder.names().filter(|n| !n.starts_with('.') && stem(n).is_some()).collect()
}

/// The name of the array in the file `name`, if that is one.
fn stem(name: &str) -> Option<&str> {
    name.strip_suffix(ZSTD).unwrap_or(name).strip_suffix(SUFFIX)
}

fn every(folder: &Folder) -> Result<Contents, Error> {
    let mut members = Members::of(folder);
    let mut arrays = vec![];
    for name in files(folder) {
        arrays.extend(members.open(name, one)?);
    }
    let contents = Contents::join(arrays, &mut members.problems);
    members.check()?;
    Ok(contents)
}

fn one(file: OpenFile) -> Result<Contents, Error> {
    let (file, Array { scheme, shape, bytes, strides }) = open(file)?;
    let full = file.name();
    let name = stem(&full).unwrap_or(&full).to_owned();
    if let Some(fault) = Fault::of_name(name.as_bytes(), "tensor name") {
        return Err(Error::whole(&file.location, fault));
    }
    let planes = vec![PlaneData { file: FileId(0), bytes }];
    let entries = vec![TensorEntry { name, shape, scheme, planes, strides }];
    Ok(Contents { files: vec![file], entries, ..Contents::default() }.reindexed())
}

/// A file that is one array, in row-major order.
pub(super) fn read(file: OpenFile) -> Result<(File, Array), Error> {
    let (file, array) = open(file)?;
    if array.strides.is_none() {
        return Ok((file, array));
    }
    let what = "is in Fortran order: save it after `numpy.ascontiguousarray`".to_owned();
    Err(Error::whole(&file.location, Fault::Unsupported { what }))
}

/// A file that is one array, in either order.
pub(super) fn open(file: OpenFile) -> Result<(File, Array), Error> {
    let location = file.location();
    let source = file.into_source();
    let mut magic = [0; 4];
    if source.read_at(0, &mut magic).is_ok() && is_zstd(&magic) {
        return compressed(source, &location).map_err(|problem| problem.of(&location));
    }
    let array = array(&*source, 0, source.len())
        .map_err(|fault| Problem { at: Some(0), subject: Subject::Whole, fault }.of(&location))?;
    Ok((File::new(location, source), array))
}

/// The array that a compressed file holds. Its source is the content, so that places in it count from its start.
fn compressed(source: Arc<dyn ByteSource>, location: &Location) -> Result<(File, Array), Box<Problem>> {
    let broken =
        |Broken { at, fault }| Problem { at: Some(at), subject: Subject::Whole, fault: Fault::Zstd(fault) };
    let broken = |wrong| Box::new(broken(wrong));
    let compressed = Compressed::open(source).map_err(broken)?;
    let start = compressed.start(usize::try_from(header::MOST).unwrap_or(0)).map_err(broken)?;
    // From here on, problems are in the decompressed content, whose offsets in the file are unknown.
    let wrong = |fault| Box::new(Problem { at: None, subject: Subject::Whole, fault });
    if !start.starts_with(header::MAGIC) {
        let what = "the content is zstd-compressed data that is no array: decompress it first".to_owned();
        return Err(wrong(Fault::Unsupported { what }));
    }
    let (header, data) = header::parse(&start).map_err(wrong)?;
    let bytes = header.bytes().map_err(wrong)?;
    let len =
        data.checked_add(bytes).ok_or_else(|| wrong(Fault::Overflow { shape: header.shape.clone() }))?;
    let source = compressed.into_source(len).map_err(broken)?;
    Ok((File::new(location.to_owned(), Arc::new(source)), Array::at(header, data..len)))
}

/// The contents of the header of an array.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) scheme: Arc<Scheme>,
    /// Slowest axis first.
    pub(super) shape: Shape,
    /// Where its elements lie in the source.
    pub(super) bytes: Range<u64>,
    /// As in [`TensorEntry::strides`].
    pub(super) strides: Option<Vec<u64>>,
}

/// The array in the `len` bytes of `source` from `start` on.
pub(super) fn array(source: &dyn ByteSource, start: u64, len: u64) -> Result<Array, Fault> {
    let ends = |wants, found| Fault::Ends { what: "an array", wants, found };
    let left = source.len().saturating_sub(start);
    if len > left {
        return Err(ends(len, left));
    }
    let most = usize::try_from(len.min(header::MOST)).unwrap_or(0);
    let mut head = vec![0; most];
    source.read_at(start, &mut head).map_err(|_| ends(len, left))?;
    let (header, data) = header::parse(&head)?;
    let (wants, found) = (header.bytes()?, len - data);
    if wants != found {
        let scheme = header.scheme().name.to_string();
        return Err(Fault::Extent { shape: header.shape, scheme, wants, found });
    }
    Ok(Array::at(header, start + data..start + len))
}

impl Array {
    fn at(header: header::Header, bytes: Range<u64>) -> Array {
        let scheme = header.scheme();
        let header::Header { shape, fortran, .. } = header;
        let strides = fortran.then(|| {
            // All products are of elements that are there.
            let steps = |step: &mut u64, n: &u64| Some(std::mem::replace(step, step.saturating_mul(*n)));
            shape.iter().scan(1, steps).collect()
        });
        Array { scheme, shape, bytes, strides }
    }
}

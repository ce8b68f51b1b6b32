//! safetensors.
//!
//! Source: the format section of README.md and safetensors/src/tensor.rs of safetensors 0.8.0. Accepted there and
//! rejected here: a tensor name twice (also when escaped differently), white space before the header, other padding
//! after it than spaces, unknown fields, a tensor written as a JSON array, `__metadata__` of null or twice, names that
//! are empty or hold a NUL, more than 64 dimensions, shapes with a partial product that overflows.

mod header;
mod write;

use std::sync::Arc;

use storage::{ByteSource, Location};
use tensor::{Dtype, FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::hf::{self, HfMetadata};
use super::{FileContents, Format, Found};
use crate::checkpoint::Checkpoint;
use crate::contents::{Contents, File, name_of};
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::index::NameIndex;
pub(super) use header::Pairs;
use header::{Header, HeaderDtype, Info};
pub(crate) use write::{AS_REFERENCE, IN_PAGES, form, names};

/// The safetensors format: one file.
#[derive(Debug)]
pub(crate) struct Safetensors;

pub(super) const NAME: &str = "safetensors";
/// safetensors/src/tensor.rs, `MAX_HEADER_SIZE`.
const MAX_HEADER: u64 = 100_000_000;
/// The limit of torch (c10/core/TensorImpl.h has no limit; its strides and iterators stop at 64).
const MAX_DIMS: u64 = 64;
/// Bytes of the length that starts the file.
const PREFIX: u64 = 8;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["safetensors"]
    }

    fn sniff(&self, head: &[u8]) -> bool {
        let Some((len, rest)) = head.split_first_chunk() else { return false };
        // White space first is refused when it is read; it is recognised all the same.
        u64::from_le_bytes(*len) <= MAX_HEADER && rest.trim_ascii_start().starts_with(b"{")
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        match found {
            Found::Folder(folder) => hf::open_folder(&folder),
            Found::File(file) => {
                let (location, parent) = (file.location(), file.parent());
                let part = self.part(file)?;
                let metadata = hf::beside(&parent)?.unwrap_or_else(|| HfMetadata::alone(parent.location()));
                hf::checkpoint(location, part, metadata)
            }
        }
    }

    fn part(&self, file: OpenFile) -> Result<FileContents, Error> {
        let location = file.location();
        let source = file.into_source();
        let Read { entries, by_name, pairs } = read(&location, source.as_ref())?;
        let contents = Contents::of_file(File::new(location, source), entries, by_name);
        Ok(FileContents { contents, pairs, ranks: None })
    }
}

/// The contents of a safetensors header.
struct Read {
    entries: Vec<TensorEntry>,
    by_name: NameIndex,
    /// `__metadata__`, in the order of the file.
    pairs: Vec<(String, String)>,
}

/// Reads the header of `source`, the file at `location`, and reports all that is wrong with it.
fn read(location: &Location, source: &dyn ByteSource) -> Result<Read, Error> {
    let stop = |at, fault| Problem { at: Some(at), subject: Subject::Whole, fault }.of(location);
    let failed = |e| Error::io(location, "read", e);
    if source.len() < PREFIX {
        let what = "the length of the header";
        return Err(stop(0, Fault::Ends { what, wants: PREFIX, found: source.len() }));
    }
    let mut prefix = [0; 8];
    source.read_at(0, &mut prefix).map_err(failed)?;
    let (len, left) = (u64::from_le_bytes(prefix), source.len() - PREFIX);
    if len > MAX_HEADER {
        let what = "header length in bytes";
        return Err(stop(0, Fault::Limit { what, found: len, limit: MAX_HEADER }));
    }
    if len > left {
        return Err(stop(PREFIX, Fault::Ends { what: "the header", wants: len, found: left }));
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let mut buffer = Vec::new();
    let json = if let Some(bytes) = source.mapped() {
        bytes.get(8..).and_then(|b| b.get(..len)).unwrap_or(&[])
    } else {
        buffer.resize(len, 0);
        source.read_at(PREFIX, &mut buffer).map_err(failed)?;
        &buffer
    };
    let header = Header::parse(json).map_err(|(at, fault)| {
        Problem { at: at.map(|at| PREFIX + at), subject: Subject::Whole, fault }.of(location)
    })?;
    let mut problems = Problems::default();
    let data = Data { json, start: PREFIX + json.len() as u64, len: left - json.len() as u64 };
    let (entries, by_name) = data.entries(header.tensors, &mut problems);
    for key in header.doubled {
        let fault = Fault::Duplicate { first: data.place(&key, true).unwrap_or(PREFIX) };
        problems.push(Problem { at: data.place(&key, false), subject: Subject::Key(key), fault });
    }
    problems.check(location)?;
    Ok(Read { entries, by_name, pairs: header.metadata })
}

/// The data section, and the header that speaks about it.
struct Data<'h> {
    json: &'h [u8],
    /// Byte offset in the file.
    start: u64,
    /// Bytes to the end of the file.
    len: u64,
}

impl Data<'_> {
    fn entries(&self, mut infos: Vec<Info>, problems: &mut Problems) -> (Vec<TensorEntry>, NameIndex) {
        // The header may list them in any order; by offset they must leave no gap.
        infos.sort_by_key(|info| info.offsets);
        let total = infos.len() as u64;
        let mut schemes = Schemes::default();
        let mut entries: Vec<TensorEntry> = Vec::new();
        let mut by_name = NameIndex::default();
        let (mut next, mut cut, mut first) = (0, 0, None);
        for (id, info) in (0..).zip(infos) {
            let mut report = |fault| {
                let (at, subject) = (self.place(&info.name, true), Subject::Tensor(info.name.clone()));
                problems.push(Problem { at, subject, fault });
            };
            if let Some(fault) = Fault::of_name(info.name.as_bytes(), "tensor name") {
                report(fault);
            }
            let (begin, end) = info.offsets;
            if begin > end {
                report(Fault::Value { wants: "offsets in order", found: format!("[{begin}, {end}]") });
            } else if begin != next {
                report(Fault::Offset { wants: next, found: begin });
            }
            next = next.max(end);
            if end > self.len {
                cut += 1;
                first.get_or_insert_with(|| info.name.clone());
            }
            let shape = Shape::from(info.shape);
            let scheme = match schemes.checked(&info.dtype, &shape, end.saturating_sub(begin)) {
                Ok(scheme) => scheme,
                Err(fault) => {
                    report(fault);
                    Scheme::plain(Dtype::U8)
                }
            };
            // No sum overflows where the range is inside the file, and elsewhere there is a problem.
            let range = self.start.saturating_add(begin)..self.start.saturating_add(end);
            let planes = vec![PlaneData { file: FileId(0), bytes: range }];
            entries.push(TensorEntry { name: info.name, shape, scheme, planes, strides: None });
            if by_name.insert(id, |i| name_of(&entries, i)).is_some() {
                let name = entries.last().map(|e| e.name.clone()).unwrap_or_default();
                let fault = Fault::Duplicate { first: self.place(&name, true).unwrap_or(PREFIX) };
                let at = self.place(&name, false);
                problems.push(Problem { at, subject: Subject::Tensor(name), fault });
            }
        }
        let whole = |at, fault| Problem { at: Some(at), subject: Subject::Whole, fault };
        let file_end = self.start + self.len;
        if let Some(first) = first {
            let fault = Fault::Truncated {
                missing: next - self.len,
                wants: self.start.saturating_add(next),
                tensors: cut,
                total,
                first,
            };
            problems.push(whole(file_end, fault));
        } else if next < self.len {
            problems.push(whole(self.start + next, Fault::Trailing { found: self.len - next }));
        }
        (entries, by_name)
    }

    /// Byte offset of the first or last place in the header where `name` stands in quotes.
    fn place(&self, name: &str, first: bool) -> Option<u64> {
        let places = Fault::places(self.json, name);
        let found = if first { places.0 } else { places.1 };
        found.map(|at| PREFIX + at)
    }
}

/// The schemes of the dtypes in use, each made once.
#[derive(Default)]
struct Schemes(Vec<Arc<Scheme>>);

impl Schemes {
    /// The scheme of `kind`, if a tensor of `shape` in it has `found` bytes.
    fn checked(&mut self, kind: &HeaderDtype, shape: &Shape, found: u64) -> Result<Arc<Scheme>, Fault> {
        let rank = shape.len() as u64;
        if rank > MAX_DIMS {
            return Err(Fault::Limit { what: "number of dimensions", found: rank, limit: MAX_DIMS });
        }
        let name = kind.dtype()?.name();
        let known = self.0.iter().find(|s| s.name == name).cloned();
        let unsupported = || Fault::TypeUnsupported { name: name.to_owned() };
        let scheme = known.or_else(|| quant::scheme(name)).ok_or_else(unsupported)?;
        if !self.0.contains(&scheme) {
            self.0.push(Arc::clone(&scheme));
        }
        let wants = scheme.byte_len(shape).map_err(|why| Fault::geometry(shape, &scheme, why))?;
        if wants != found {
            let (shape, scheme) = (shape.clone(), scheme.name.to_string());
            return Err(Fault::Extent { shape, scheme, wants, found });
        }
        Ok(scheme)
    }
}

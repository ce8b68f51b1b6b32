//! The tensor infos: names, shapes, types, and offsets that must leave no gap.

use std::ops::Range;

use tensor::{FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::header::{Cursor, Stop};
use super::pairs::text;
use super::types::Types;
use super::{MAX_DIMS, MAX_NAME};
use crate::contents::name_of;
use crate::error::{Problem, Problems, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;

/// More dimensions than anybody means: the header is not read on.
const ABSURD_DIMS: u32 = 64;

/// All tensors, in the order of the file.
#[derive(Debug)]
pub(super) struct Tensors {
    pub(super) entries: Vec<TensorEntry>,
    pub(super) by_name: NameIndex,
    /// Byte offset of the data section.
    pub(super) data_start: u64,
}

impl Tensors {
    pub(super) fn parse(
        cursor: &mut Cursor,
        count: u64,
        alignment: u64,
        problems: &mut Problems,
    ) -> Result<Tensors, Stop> {
        // An empty name, the number of dimensions, a type, an offset.
        let count = cursor.check_count("tensors", count, cursor.notation.length_bytes() + 4 + 4 + 8)?;
        let mut reader = Reader { alignment, next: Some(0), types: Types::of(cursor.notation), problems };
        // Grows with what is really there: a count alone reserves no memory.
        let mut entries: Vec<TensorEntry> = Vec::new();
        let mut starts = Vec::new();
        let mut by_name = NameIndex::default();
        for id in 0..count {
            let at = cursor.at();
            entries.push(reader.entry(cursor)?);
            starts.push(at);
            if let Some(first) = by_name.insert(id, |i| name_of(&entries, i)) {
                let name = entries.get(id as usize).map(|e| e.name.clone()).unwrap_or_default();
                let first = starts.get(first as usize).copied().unwrap_or_default();
                reader.report(at, name, Fault::Duplicate { first });
            }
            if reader.problems.enough() {
                return Err(Stop::Enough);
            }
        }
        let mut tensors = Tensors { entries, by_name, data_start: cursor.at() };
        // Without tensors there is no data section, nor padding before one.
        if count > 0 && problems.is_empty() {
            tensors.data_start = cursor.at().next_multiple_of(alignment);
            tensors.place(cursor.file_len(), problems);
        }
        Ok(tensors)
    }

    /// Makes the byte ranges count from the start of the file, and checks that it is long enough.
    fn place(&mut self, file_len: u64, problems: &mut Problems) {
        let total = self.entries.len() as u64;
        let (mut end, mut cut, mut first) = (self.data_start, 0, None);
        for entry in &mut self.entries {
            for plane in &mut entry.planes {
                let (Some(from), Some(to)) = (
                    self.data_start.checked_add(plane.bytes.start),
                    self.data_start.checked_add(plane.bytes.end),
                ) else {
                    let fault = Fault::Overflow { shape: entry.shape.clone() };
                    problems.push(Problem { at: None, subject: Subject::Tensor(entry.name.clone()), fault });
                    return;
                };
                plane.bytes = from..to;
                end = end.max(to);
                if to > file_len {
                    cut += 1;
                    first.get_or_insert_with(|| entry.name.clone());
                }
            }
        }
        if let Some(first) = first {
            let fault = Fault::Truncated { missing: end - file_len, wants: end, tensors: cut, total, first };
            problems.push(Problem { at: Some(file_len), subject: Subject::Whole, fault });
        }
    }
}

/// The state to read one info after another.
struct Reader<'p> {
    alignment: u64,
    /// Where the next tensor's data must start in the data section, unless an error has hidden it.
    next: Option<u64>,
    types: Types,
    problems: &'p mut Problems,
}

impl Reader<'_> {
    /// Reads one info. Reports its problems, and stops only where the rest cannot be read.
    fn entry(&mut self, cursor: &mut Cursor) -> Result<TensorEntry, Stop> {
        const WHAT: &str = "a tensor info";
        let at = cursor.at();
        let range = cursor.string(WHAT)?;
        let bytes = cursor.header().get(&range);
        let name = text(bytes);
        if let Some(fault) = Fault::of_name(bytes, "tensor name") {
            self.report(at, name.clone(), fault);
        }
        let len = range.end - range.start;
        if len > MAX_NAME {
            let fault = Fault::Limit { what: "name length in bytes", found: len, limit: MAX_NAME };
            self.report(at, name.clone(), fault);
        }
        let about = |stop: Stop| stop.about(|| Subject::Tensor(name.clone()));

        let dims_at = cursor.at();
        let dims = cursor.u32(WHAT).map_err(about)?;
        if dims > MAX_DIMS {
            let fault =
                Fault::Limit { what: "number of dimensions", found: dims.into(), limit: MAX_DIMS.into() };
            if dims > ABSURD_DIMS {
                return Err(about(Stop::at(dims_at, fault)));
            }
            self.report(dims_at, name.clone(), fault);
        }
        let mut axes = Vec::with_capacity(dims as usize);
        for _ in 0..dims {
            axes.push(cursor.length(WHAT).map_err(about)?);
        }
        // The file has the fastest axis first.
        axes.reverse();
        let shape = Shape::from(axes);

        let type_at = cursor.at();
        let id = cursor.u32(WHAT).map_err(about)?;
        let offset_at = cursor.at();
        let offset = cursor.u64(WHAT).map_err(about)?;

        let scheme = match self.types.scheme(id) {
            Ok(scheme) => scheme,
            Err(fault) => {
                self.report(type_at, name.clone(), fault);
                self.next = None;
                return Ok(TensorEntry {
                    name,
                    shape,
                    scheme: no_scheme(),
                    planes: Vec::new(),
                    strides: None,
                });
            }
        };
        let planes = match self.place(&scheme, &shape, offset) {
            Ok(bytes) => vec![PlaneData { file: FileId(0), bytes }],
            Err(fault) => {
                self.report(offset_at, name.clone(), fault);
                Vec::new()
            }
        };
        Ok(TensorEntry { name, shape, scheme, planes, strides: None })
    }

    /// The bytes of a tensor that says it starts at `offset` of the data section.
    fn place(&mut self, scheme: &Scheme, shape: &Shape, offset: u64) -> Result<Range<u64>, Fault> {
        let wants = self.next.take().unwrap_or(offset);
        let (bytes, padded) = self.extent(scheme, shape)?;
        let ends = (offset.checked_add(bytes), offset.checked_add(padded));
        let (Some(end), Some(next)) = ends else { return Err(Fault::Overflow { shape: shape.clone() }) };
        // After a wrong offset it is taken at its word, so that one gap is one problem.
        self.next = Some(next);
        if wants == offset { Ok(offset..end) } else { Err(Fault::Offset { wants, found: offset }) }
    }

    /// Bytes of a tensor, and bytes with the padding after it.
    fn extent(&self, scheme: &Scheme, shape: &Shape) -> Result<(u64, u64), Fault> {
        let overflow = || Fault::Overflow { shape: shape.clone() };
        // C counts elements in an `int64_t`.
        if shape.elements().is_none_or(|n| i64::try_from(n).is_err()) {
            return Err(overflow());
        }
        let bytes = scheme.byte_len(shape).map_err(|why| Fault::geometry(shape, scheme, why))?;
        let padded = bytes.checked_next_multiple_of(self.alignment).ok_or_else(overflow)?;
        Ok((bytes, padded))
    }

    fn report(&mut self, at: u64, name: String, fault: Fault) {
        self.problems.push(Problem { at: Some(at), subject: Subject::Tensor(name), fault });
    }
}

/// Stands in an entry that is only kept so that its name is known; it never leaves this module.
fn no_scheme() -> std::sync::Arc<Scheme> {
    Scheme::plain(tensor::Dtype::U8)
}

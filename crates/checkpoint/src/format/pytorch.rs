//! PyTorch checkpoints, as `torch.save` writes them: zip archives since version 1.6, and the form before that.
//!
//! A pickle in the file lists the tensors. It is read by a machine of our own that makes data and runs nothing
//! ([`machine`]); tensors are views of storages, which lie in the file as plain bytes. The name of a tensor is the keys
//! that lead to it, joined with dots, as in a nested checkpoint with `state_dict` and `optimizer`. Objects of unknown
//! classes are ignored and listed ([`crate::Checkpoint::ignored`]); a file with names that no checkpoint has a use for
//! is rejected.
//!
//! Source: torch/serialization.py of torch 2.15. Rejected are TorchScript programs, compressed members, the tar
//! archives of the first versions; sparse, quantised and lazily conjugated tensors.

mod archive;
mod build;
mod element_type;
mod global;
mod legacy;
mod machine;
mod opcode;
mod value;
mod view;
mod walk;

use std::ops::Range;

use storage::Location;
use tensor::{FileId, PlaneData, Scheme, TensorEntry};

use super::openai::{OpenaiMetadata, SIGNS};
use super::{FileContents, Format, Found, hf, npz};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File, Ignored, name_of};
use crate::error::{Error, Problem, Problems, Quoted, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::index::NameIndex;
use value::{Heap, Node, Storage, Value, Wrong};

/// The PyTorch format.
#[derive(Debug)]
pub(crate) struct Pytorch;

const NAME: &str = "pytorch";

/// Limit on the bytes of the pickle. A checkpoint of 100,000 tensors has a pickle of 20 MB.
const MOST_PICKLE: u64 = 64 << 20;

impl Format for Pytorch {
    fn name(&self) -> &'static str {
        NAME
    }

    /// `.bin` and `.ckpt` files are of other formats too.
    fn extensions(&self) -> &'static [&'static str] {
        &["pt", "pth"]
    }

    /// All members of a zip archive of torch are in one folder of it, and none is an array of numpy.
    fn sniff(&self, head: &[u8]) -> bool {
        let in_folder = super::archive::first_name(head).is_some_and(|name| name.contains(&b'/'));
        legacy::magic(head).is_some() || in_folder && !npz::Npz.sniff(head)
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let file = match found {
            Found::File(file) => file,
            Found::Folder(folder) => return hf::open_folder(&folder),
        };
        let (location, parent) = (file.location(), file.parent());
        let (part, dims) = Pytorch::read(file)?;
        // A model of OpenAI says itself what it is.
        if let Some(dims) = dims {
            let metadata = Metadata::Openai(OpenaiMetadata { dims, ..OpenaiMetadata::default() });
            return Ok(Checkpoint::new(location, FormatName::new(NAME), part.contents, metadata));
        }
        Ok(match hf::beside(&parent)? {
            Some(metadata) => hf::checkpoint(location, part, metadata)?,
            None => Checkpoint::new(location, FormatName::new(NAME), part.contents, Metadata::None),
        })
    }

    fn part(&self, file: OpenFile) -> Result<FileContents, Error> {
        Ok(Pytorch::read(file)?.0)
    }
}

/// Names and numbers of the dictionary `dims`.
type Dims = Vec<(String, i64)>;

impl Pytorch {
    /// The contents of a file, and the sizes of a model of OpenAI, if it is one.
    fn read(file: OpenFile) -> Result<(FileContents, Option<Dims>), Error> {
        let location = file.location();
        let source = file.into_source();
        let mut head = [0; 2];
        let zip = source.read_at(0, &mut head).is_ok() && &head == b"PK";
        let read = if zip { archive::read(&location, &source) } else { legacy::read(&location, &*source) };
        let Parts { entries, by_name, ignored, dims } = read?;
        let contents =
            Contents { ignored, ..Contents::of_file(File::new(location, source), entries, by_name) };
        Ok((FileContents { contents, pairs: Vec::new(), ranks: None }, dims))
    }
}

/// The contents of a file.
struct Parts {
    entries: Vec<TensorEntry>,
    by_name: NameIndex,
    ignored: Vec<Ignored>,
    /// The sizes of a model of OpenAI, if it is one.
    dims: Option<Dims>,
}

/// A pickle that was read, and where it lies.
struct Pickle<'p> {
    location: &'p Location,
    bytes: &'p [u8],
    /// Byte offset of `bytes` in the file.
    start: u64,
}

impl Pickle<'_> {
    fn error(&self, wrong: Wrong) -> Error {
        Problem { at: Some(self.place(wrong.at)), subject: Subject::Whole, fault: wrong.fault }
            .of(self.location)
    }

    fn place(&self, at: usize) -> u64 {
        self.start.saturating_add(at as u64)
    }

    /// Returns the tensors that the pickle describes, each at the place in the file where `record` finds its storage.
    fn parts(
        &self,
        described: &machine::Described,
        record: impl Fn(&Storage) -> Result<Range<u64>, Fault>,
    ) -> Result<Parts, Error> {
        let heap = &described.heap;
        let walk::Found { tensors, ignored, refused } =
            walk::walk(heap, self.bytes, described.root).map_err(|wrong| self.error(wrong))?;
        if tensors.is_empty() && refused.is_empty() {
            return Err(self.nothing(&ignored));
        }
        let mut problems = Problems::default();
        for (name, at, maker) in refused {
            let what = format!("is made by `{maker}`, which is not read");
            let at = Some(self.place(at));
            problems.push(Problem { at, subject: Subject::Tensor(name), fault: Fault::Unsupported { what } });
        }
        let mut entries: Vec<(TensorEntry, usize)> = Vec::with_capacity(tensors.len());
        for walk::Named { name, tensor } in tensors {
            let Some(Node::Tensor(tensor)) = heap.get(tensor) else { continue };
            let placed = Fault::of_name(name.as_bytes(), "tensor name")
                .map_or_else(|| place(heap, self.bytes, tensor, &record), Err);
            match placed {
                Ok((view::View { dtype, shape, strides, .. }, bytes)) => {
                    let planes = vec![PlaneData { file: FileId(0), bytes }];
                    let scheme = Scheme::plain(dtype);
                    entries.push((TensorEntry { name, shape, scheme, planes, strides }, tensor.at));
                }
                Err(fault) => {
                    let (at, subject) = (Some(self.place(tensor.at)), Subject::Tensor(name));
                    problems.push(Problem { at, subject, fault });
                }
            }
            if problems.enough() {
                return Err(problems.into_error(self.location));
            }
        }
        entries.sort_by_key(|(e, _)| e.planes.first().map_or(0, |p| p.bytes.start));
        let (entries, places): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let mut by_name = NameIndex::default();
        for (id, (entry, at)) in (0..).zip(entries.iter().zip(&places)) {
            if let Some(first) = by_name.insert(id, |i| name_of(&entries, i)) {
                let first = places.get(first as usize).map_or(0, |at| self.place(*at));
                let subject = Subject::Tensor(entry.name.clone());
                problems.push(Problem {
                    at: Some(self.place(*at)),
                    subject,
                    fault: Fault::Duplicate { first },
                });
            }
        }
        problems.check(self.location)?;
        Ok(Parts { entries, by_name, ignored, dims: self.dims(heap, described.root) })
    }

    /// The numbers under `dims`, beside the weights, if these are sizes of a model of OpenAI.
    fn dims(&self, heap: &Heap, root: Value) -> Option<Dims> {
        let Some(Node::Dict(pairs)) = heap.node(root) else { return None };
        let is = |key: &Value| matches!(key, Value::Text(text) if text.of(self.bytes) == b"dims");
        let Some(Node::Dict(pairs)) = pairs.iter().find(|(key, _)| is(key)).and_then(|(_, v)| heap.node(*v))
        else {
            return None;
        };
        let dims: Dims = pairs
            .iter()
            .filter_map(|(key, value)| match (key, value) {
                (Value::Text(key), Value::Int(n)) => Some((key.text(self.bytes), *n)),
                _ => None,
            })
            .collect();
        SIGNS.iter().all(|sign| dims.iter().any(|(name, _)| name == sign)).then_some(dims)
    }

    /// Why there are no tensors.
    fn nothing(&self, ignored: &[Ignored]) -> Error {
        let refuse = |what| Error::whole(self.location, Fault::Unsupported { what });
        match ignored.iter().max_by_key(|object| object.tensors) {
            Some(object) if object.tensors > 0 => refuse(format!(
                "all tensors are in objects of classes of the program that saved them, such as {}",
                Quoted(&object.class)
            ))
            .with_hint("save the object's `state_dict()` instead of the object"),
            _ => refuse("the file holds no tensors".to_owned()),
        }
    }
}

/// The view that `tensor` is, and its bytes in the file.
fn place(
    heap: &Heap,
    pickle: &[u8],
    tensor: &value::Tensor,
    record: &impl Fn(&Storage) -> Result<Range<u64>, Fault>,
) -> Result<(view::View, Range<u64>), Fault> {
    let Some(Node::Storage(storage)) = heap.get(tensor.storage) else {
        return Err(Fault::Pickle { why: "a tensor without a storage".to_owned() });
    };
    let view = view::view(tensor, storage)?;
    let held = record(storage)?;
    let (wants, found) = (view::storage_bytes(storage)?, held.end - held.start);
    if storage.skip == 0 && wants != found {
        return Err(Fault::Record { key: storage.key.text(pickle), wants, found });
    }
    // Where a part of a record is meant, what lies before it.
    let skip = storage.skip.saturating_mul(storage.kind.bytes().unwrap_or(0));
    let start = held.start.saturating_add(skip);
    let bytes = start.saturating_add(view.bytes.start)..start.saturating_add(view.bytes.end);
    if bytes.end > held.end {
        let (shape, dtype) = (view.shape, view.dtype);
        let (wants, found) = (view.bytes.end, held.end - held.start);
        return Err(Fault::Leaves { shape, dtype, offset: tensor.offset, wants, found });
    }
    Ok((view, bytes))
}

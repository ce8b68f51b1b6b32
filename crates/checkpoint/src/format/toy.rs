use tensor::{Dtype, FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File, name_of};
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;

/// `TOY1`, then tensors to the end of the file: how long the name is (u8), how many f32 there are (u32), name, data.
///
/// Source: docs/adding-a-format.md.
#[derive(Debug)]
pub(crate) struct Toy;

impl Format for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn sniff(&self, head: &[u8]) -> bool {
        head.starts_with(b"TOY1")
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let file = match found {
            Found::File(file) => file,
            Found::Folder(folder) => return Err(super::explain_folder(&folder)),
        };
        let location = file.location();
        let source = file.into_source();
        let (mut entries, mut by_name, mut problems) =
            (Vec::new(), NameIndex::default(), Problems::default());
        let mut at = 4;
        while at < source.len() {
            let ends = |what, wants: u64| {
                let fault = Fault::Ends { what, wants, found: source.len().saturating_sub(at) };
                Problem { at: Some(at), subject: Subject::Whole, fault }.of(&location)
            };
            let mut head = [0; 5];
            source.read_at(at, &mut head).map_err(|_| ends("the head of a tensor", 5))?;
            let [len, count @ ..] = head;
            let mut name = vec![0; usize::from(len)];
            source.read_at(at + 5, &mut name).map_err(|_| ends("a name", 5 + u64::from(len)))?;
            // Every number is a stranger's: these fit, since they are added and multiplied as u64.
            let (start, elements) = (at + 5 + u64::from(len), u64::from(u32::from_le_bytes(count)));
            let end = start + 4 * elements;
            if end > source.len() {
                return Err(ends("a tensor", end - at));
            }
            let problem = |fault| Problem { at: Some(at), subject: Subject::Whole, fault };
            if let Some(fault) = Fault::of_name(&name, "tensor name") {
                problems.push(problem(fault));
            }
            let planes = vec![PlaneData { file: FileId(0), bytes: start..end }];
            let (name, shape) = (String::from_utf8_lossy(&name).into_owned(), Shape::from([elements]));
            let scheme = Scheme::plain(Dtype::F32);
            entries.push(TensorEntry { name, shape, scheme, planes, strides: None });
            let id = u32::try_from(entries.len() - 1).unwrap_or(u32::MAX);
            if let Some(first) = by_name.insert(id, |i| name_of(&entries, i)) {
                let first = entries.get(first as usize).and_then(|e: &TensorEntry| e.planes.first());
                problems.push(problem(Fault::Duplicate { first: first.map_or(0, |p| p.bytes.start) }));
            }
            at = end;
        }
        problems.check(&location)?;
        let contents = Contents::of_file(File::new(location.clone(), source), entries, by_name);
        Ok(Checkpoint::new(location, FormatName::new("toy"), contents, Metadata::None))
    }
}

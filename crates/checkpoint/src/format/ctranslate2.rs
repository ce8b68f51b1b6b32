//! CTranslate2's `model.bin`, versions 2 to 6: a file, or a directory that has one.
//!
//! Source: python/ctranslate2/specs/model_spec.py (`ModelSpec._serialize`) of CTranslate2 4.8.5, which writes version 6,
//! and src/models/model.cc@000953bf (`Model::load`), which reads all. Numbers are little-endian; a text is its length as
//! u16, its bytes and a NUL, which is counted. The file is: version u32; name of the specification; its revision u32;
//! number of variables u32; each of them; number of aliases u32; each as two texts, itself and what it stands for. A
//! variable is: name; rank u8; axes u32; type u8; bytes u32; data. Before version 4 it has the bytes of an element u8
//! and the number of elements u32 instead, from which the type is guessed; before 3 there are no aliases. Version 1 has
//! no name of a specification, by which a file is recognised, and is not read.
//!
//! Aliases are ties, and where the variable has a scale, the alias has it, too. A quantised weight is `X` in i8 or i16 and
//! `X_scale`, by which codes are *divided*: one tensor here. Attributes of the model are variables of no axes, which are
//! read; texts among them are of i8.
//!
//! The reference does not look whether data is as long as the shape wants, takes the first of two variables with one
//! name, passes over aliases of what is not there, and ignores what follows. All that is refused here.

mod metadata;
mod write;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tensor::{Dtype, FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::listing::Listing;
use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File, name_of};
use crate::error::{Error, Problem, Quoted, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::index::NameIndex;
pub use metadata::Ctranslate2Metadata;
pub(crate) use write::form;
pub use write::{Attribute, Ctranslate2Files, ctranslate2_holds};

/// The CTranslate2 format.
#[derive(Debug)]
pub(crate) struct Ctranslate2;

const NAME: &str = "ctranslate2";
pub(crate) const MODEL: &str = "model.bin";
/// `CURRENT_BINARY_VERSION`.
const NEWEST: u32 = 6;
/// Later versions than this are no versions.
const NEVER: u32 = 64;
/// The same limit on axes as for other formats.
const MAX_AXES: u64 = 64;
/// Names of specifications are shorter.
const MAX_SPEC: usize = 128;
/// The shortest variable: a text of a NUL, rank, type, bytes.
const SHORTEST: u64 = 2 + 1 + 1 + 1 + 4;
/// The shortest alias: two texts.
const SHORTEST_ALIAS: u64 = 6;

/// `DataType` of include/ctranslate2/types.h.
static TYPES: [Dtype; 6] = [Dtype::F32, Dtype::I8, Dtype::I16, Dtype::I32, Dtype::F16, Dtype::BF16];

impl Format for Ctranslate2 {
    fn name(&self) -> &'static str {
        NAME
    }

    /// There is no magic: a small version, then a name of letters and digits with the length it states.
    fn sniff(&self, head: &[u8]) -> bool {
        let version = head.first_chunk().is_some_and(|v| (2..NEVER).contains(&u32::from_le_bytes(*v)));
        let len = head.get(4..).and_then(|h| h.first_chunk()).map_or(0, |n| u16::from_le_bytes(*n).into());
        let name = head.get(6..).and_then(|h| h.get(..len)).and_then(<[u8]>::split_last);
        let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric);
        version && len <= MAX_SPEC && name.is_some_and(|(end, name)| *end == 0 && is_name(name))
    }

    fn claims(&self, folder: &Folder) -> bool {
        let head = || folder.open(MODEL).and_then(|file| file.head(super::HEAD));
        folder.has(MODEL)
            && folder.ending(".safetensors").is_empty()
            && head().is_ok_and(|head| self.sniff(&head))
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let (location, file, beside) = match found {
            Found::File(file) => (file.location(), file, None),
            Found::Folder(folder) => {
                let file = folder.open(MODEL)?.not_empty()?;
                (folder.location(), file, Some(metadata::beside(&folder)?))
            }
        };
        let (contents, metadata) = read(file)?;
        let metadata = Metadata::Ctranslate2(Ctranslate2Metadata { beside, ..metadata });
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, metadata))
    }
}

fn read(file: OpenFile) -> Result<(Contents, Ctranslate2Metadata), Error> {
    let location = file.location();
    let source = file.into_source();
    let list = Listing::new(&location, &*source, 0);
    let mut variables = Variables { list, attributes: BTreeMap::new() };
    let (spec, revision) = variables.read()?;
    let shapes: BTreeMap<String, Shape> =
        variables.list.entries.iter().map(|e| (e.name.clone(), e.shape.clone())).collect();
    let entries = variables.gathered();
    let Variables { list, attributes } = variables;
    list.problems.check(&location)?;
    let contents = Contents::of_file(File::new(location, source), entries, NameIndex::default()).reindexed();
    Ok((contents, Ctranslate2Metadata { spec, revision, attributes, shapes, beside: None }))
}

/// The variables as they are read.
struct Variables<'f> {
    list: Listing<'f>,
    /// Variables of one number.
    attributes: BTreeMap<String, f64>,
}

impl Variables<'_> {
    /// Reads all of it, and returns the name of the specification and its revision.
    fn read(&mut self) -> Result<(String, u32), Error> {
        let version = self.list.u32("the version")?;
        if !(2..=NEWEST).contains(&version) {
            let what = format!("CTranslate2 version {version}, wanted 2 to {NEWEST}");
            return Err(self.list.stop(0, Subject::Whole, Fault::Unsupported { what }));
        }
        let spec = String::from_utf8_lossy(&self.text("the name of the specification")?).into_owned();
        let revision = self.list.u32("the revision")?;
        for _ in 0..self.count("variables", SHORTEST)? {
            self.variable(version)?;
            if self.list.problems.enough() {
                return Ok((spec, revision));
            }
        }
        if version >= 3 {
            for _ in 0..self.count("aliases", SHORTEST_ALIAS)? {
                self.alias()?;
                if self.list.problems.enough() {
                    return Ok((spec, revision));
                }
            }
        }
        let left = self.list.left();
        if left > 0 {
            self.list.report(self.list.at, Subject::Whole, Fault::Trailing { found: left });
        }
        Ok((spec, revision))
    }

    fn variable(&mut self, version: u32) -> Result<(), Error> {
        const WHAT: &str = "a variable";
        let start = self.list.at;
        let name = self.name("tensor name")?;
        let subject = || Subject::Tensor(name.clone());
        let rank = self.u8(WHAT)?;
        if u64::from(rank) > MAX_AXES {
            let fault = Fault::Limit { what: "number of dimensions", found: rank.into(), limit: MAX_AXES };
            return Err(self.list.stop(self.list.at - 1, subject(), fault));
        }
        let axes = (0..rank).map(|_| Ok(self.list.u32(WHAT)?.into())).collect::<Result<Vec<u64>, Error>>()?;
        let type_at = self.list.at;
        let (id, number) = (self.u8(WHAT)?, u64::from(self.list.u32(WHAT)?));
        let (dtype, bytes) = if version >= 4 {
            (TYPES.get(usize::from(id)).copied(), number)
        } else {
            // `get_dtype_from_item_size`.
            let dtype = match id {
                4 => Some(Dtype::F32),
                2 => Some(Dtype::I16),
                1 => Some(Dtype::I8),
                _ => None,
            };
            (dtype, number * u64::from(id))
        };
        let Some(dtype) = dtype else {
            let (wants, found) = if version >= 4 {
                ("a type from 0 to 5", format!("type {id}"))
            } else {
                ("elements of 1, 2 or 4 bytes", format!("{id}"))
            };
            return Err(self.list.stop(type_at, subject(), Fault::Value { wants, found }));
        };
        let (data, left) = (self.list.at, self.list.left());
        if bytes > left {
            let fault = Fault::Ends { what: "the data of a variable", wants: bytes, found: left };
            return Err(self.list.stop(data, subject(), fault));
        }
        self.list.at += bytes;
        let (shape, scheme) = (Shape::from(axes), Scheme::plain(dtype));
        match scheme.byte_len(&shape) {
            Ok(wants) if wants == bytes => {}
            Ok(wants) => {
                let (shape, scheme) = (shape.clone(), scheme.name.to_string());
                self.list.report(type_at, subject(), Fault::Extent { shape, scheme, wants, found: bytes });
            }
            Err(why) => self.list.report(type_at, subject(), Fault::geometry(&shape, &scheme, why)),
        }
        if rank == 0 && bytes == dtype.bytes() {
            let mut number = [0; 4];
            let number = number.get_mut(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
            self.list.source.read_at(data, number).map_err(|e| Error::io(self.list.location, "read", e))?;
            let value = value(dtype, number);
            self.attributes.insert(name.clone(), value);
        }
        let planes = vec![PlaneData { file: FileId(0), bytes: data..self.list.at }];
        self.list.push(start, TensorEntry { name, shape, scheme, planes, strides: None });
        Ok(())
    }

    fn alias(&mut self) -> Result<(), Error> {
        let start = self.list.at;
        let (alias, target) = (self.name("alias")?, self.name("name of the aliased tensor")?);
        let Some(same) = self.find(&target) else {
            let (wants, found) = ("the name of a variable", format!("{}, which is none", Quoted(&target)));
            self.list.report(start, Subject::Tensor(alias), Fault::Value { wants, found });
            return Ok(());
        };
        self.list.push(start, TensorEntry { name: alias.clone(), ..same });
        if let Some(scale) = self.find(&format!("{target}_scale"))
            && self.find(&format!("{alias}_scale")).is_none()
        {
            self.list.push(start, TensorEntry { name: format!("{alias}_scale"), ..scale });
        }
        Ok(())
    }

    /// The entries but for attributes, with one for each weight and its scale. Weights whose scale is not there, or of another shape, are
    /// reported.
    fn gathered(&mut self) -> Vec<TensorEntry> {
        let mut scales = HashSet::new();
        let mut gathered = Vec::with_capacity(self.list.entries.len());
        for (i, entry) in self.list.entries.iter().enumerate() {
            let is_code = entry.scheme.dtype().is_some_and(|d| matches!(d, Dtype::I8 | Dtype::I16));
            let scale_name = format!("{}_scale", entry.name);
            let scale = self.find(&scale_name).filter(|_| is_code && entry.shape.len() > 1);
            let Some(scale) = scale else {
                gathered.push(entry.clone());
                continue;
            };
            match quantised(entry, &scale) {
                Some(scheme) => {
                    let planes = [&entry.planes[..], &scale.planes[..]].concat();
                    gathered.push(TensorEntry { scheme, planes, ..entry.clone() });
                }
                None => {
                    let what = format!(
                        "is {} {}, and its scale {} {}, which is not read",
                        entry.shape, entry.scheme, scale.shape, scale.scheme
                    );
                    let (at, subject) =
                        (self.list.starts.get(i).copied(), Subject::Tensor(entry.name.clone()));
                    self.list.problems.push(Problem { at, subject, fault: Fault::Companions { what } });
                }
            }
            scales.insert(scale_name);
        }
        self.attributes.retain(|name, _| !scales.contains(name));
        gathered.retain(|entry| !scales.contains(&entry.name) && !self.attributes.contains_key(&entry.name));
        gathered
    }

    fn find(&self, name: &str) -> Option<TensorEntry> {
        let id = self.list.by_name.find(name.as_bytes(), |i| name_of(&self.list.entries, i))?;
        self.list.entries.get(id as usize).cloned()
    }

    /// How many of `what` follow, each of at least `least` bytes.
    fn count(&mut self, what: &'static str, least: u64) -> Result<u32, Error> {
        let at = self.list.at;
        let found = self.list.u32("a count")?;
        let left = self.list.left();
        let room = left / least;
        if u64::from(found) > room {
            let fault = Fault::Count { what, found: found.into(), left, room };
            return Err(self.list.stop(at, Subject::Whole, fault));
        }
        Ok(found)
    }

    /// Reads a text that is a name, and reports its faults.
    fn name(&mut self, what: &'static str) -> Result<String, Error> {
        let at = self.list.at;
        let bytes = self.text(what)?;
        let name = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(fault) = Fault::of_name(&bytes, what) {
            self.list.report(at, Subject::Tensor(name.clone()), fault);
        }
        Ok(name)
    }

    fn text(&mut self, what: &'static str) -> Result<Vec<u8>, Error> {
        let at = self.list.at;
        let len = u16::from_le_bytes(self.list.take::<2>(what)?);
        let mut text = self.list.take_many(len.into(), what)?;
        if text.pop() == Some(0) {
            return Ok(text);
        }
        let fault = Fault::Value { wants: "a text that ends with a NUL", found: format!("{len} bytes") };
        Err(self.list.stop(at, Subject::Whole, fault))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.list.take(what).map(u8::from_le_bytes)
    }
}

/// The scheme of a weight of codes with its scale: one for each row of a matrix, for each kernel of a convolution, or, of
/// 16 bits, for a matrix.
fn quantised(codes: &TensorEntry, scale: &TensorEntry) -> Option<Arc<Scheme>> {
    let name = match (codes.scheme.dtype()?, &codes.shape[..], &scale.shape[..]) {
        (Dtype::I8, [rows, _], [scales]) if rows == scales => "ctranslate2-int8:row",
        (Dtype::I8, [kernels, _, _], [scales]) if kernels == scales => "ctranslate2-int8:matrix",
        (Dtype::I16, [_, _], [] | [1]) => "ctranslate2-int16:matrix",
        _ => return None,
    };
    quant::scheme(name).filter(|_| scale.scheme.dtype() == Some(Dtype::F32))
}

/// The number of `dtype` whose bytes are `bytes`.
fn value(dtype: Dtype, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (Dtype::I32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).into(),
        (Dtype::I16, &[a, b]) => i16::from_le_bytes([a, b]).into(),
        (Dtype::I8, &[a]) => i8::from_le_bytes([a]).into(),
        _ => {
            let mut number = [f32::NAN];
            if let Some(codec) = quant::codec(dtype.name()) {
                codec.decode(quant::Matrix { planes: &[bytes], rows: 1, k: 1 }, 0..1, &mut number);
            }
            number[0].into()
        }
    }
}

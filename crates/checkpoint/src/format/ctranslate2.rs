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
//! Aliases are ties, and where the variable has a scale, the alias has it, too. Quantised weights stay what they are: `X`
//! in i8 or i16 and `X_scale`, by which codes are *divided*; attributes of the model are variables of no axes, texts
//! among them of i8.
//!
//! The reference does not look whether data is as long as the shape wants, takes the first of two variables with one
//! name, passes over aliases of what is not there, and ignores what follows. All that is refused here.

use storage::{ByteSource, Location};
use tensor::{Dtype, FileId, PlaneData, Scheme, Shape, TensorEntry};

use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File, name_of};
use crate::error::{Error, Problem, Problems, Quoted, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::index::NameIndex;

/// The CTranslate2 format.
#[derive(Debug)]
pub(crate) struct Ctranslate2;

const NAME: &str = "ctranslate2";
const MODEL: &str = "model.bin";
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
        let (location, file) = match found {
            Found::File(file) => (file.location(), file),
            Found::Folder(folder) => (folder.location(), folder.open(MODEL)?.not_empty()?),
        };
        let contents = read(file)?;
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, Metadata::None))
    }
}

fn read(file: OpenFile) -> Result<Contents, Error> {
    let location = file.location();
    let source = file.into_source();
    let mut listing = Listing {
        location: &location,
        source: &*source,
        at: 0,
        entries: Vec::new(),
        by_name: NameIndex::default(),
        starts: Vec::new(),
        problems: Problems::default(),
    };
    listing.read()?;
    let Listing { entries, by_name, problems, .. } = listing;
    problems.check(&location)?;
    Ok(Contents::of_file(File::new(location, source), entries, by_name))
}

/// The variables as they are read.
struct Listing<'f> {
    location: &'f Location,
    source: &'f dyn ByteSource,
    /// Where the next number is.
    at: u64,
    entries: Vec<TensorEntry>,
    by_name: NameIndex,
    /// Where each entry's name is.
    starts: Vec<u64>,
    problems: Problems,
}

impl Listing<'_> {
    fn read(&mut self) -> Result<(), Error> {
        let version = self.u32("the version")?;
        if !(2..=NEWEST).contains(&version) {
            let what = format!("CTranslate2 version {version}, wanted 2 to {NEWEST}");
            return Err(self.stop(0, Subject::Whole, Fault::Unsupported { what }));
        }
        self.text("the name of the specification")?;
        self.u32("the revision")?;
        for _ in 0..self.count("variables", SHORTEST)? {
            self.variable(version)?;
            if self.problems.enough() {
                return Ok(());
            }
        }
        if version >= 3 {
            for _ in 0..self.count("aliases", SHORTEST_ALIAS)? {
                self.alias()?;
                if self.problems.enough() {
                    return Ok(());
                }
            }
        }
        let left = self.source.len() - self.at;
        if left > 0 {
            self.report(self.at, Subject::Whole, Fault::Trailing { found: left });
        }
        Ok(())
    }

    fn variable(&mut self, version: u32) -> Result<(), Error> {
        const WHAT: &str = "a variable";
        let start = self.at;
        let name = self.name("tensor name")?;
        let subject = || Subject::Tensor(name.clone());
        let rank = self.u8(WHAT)?;
        if u64::from(rank) > MAX_AXES {
            let fault = Fault::Limit { what: "number of dimensions", found: rank.into(), limit: MAX_AXES };
            return Err(self.stop(self.at - 1, subject(), fault));
        }
        let axes = (0..rank).map(|_| Ok(self.u32(WHAT)?.into())).collect::<Result<Vec<u64>, Error>>()?;
        let type_at = self.at;
        let (id, number) = (self.u8(WHAT)?, u64::from(self.u32(WHAT)?));
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
            return Err(self.stop(type_at, subject(), Fault::Value { wants, found }));
        };
        let (data, left) = (self.at, self.source.len() - self.at);
        if bytes > left {
            let fault = Fault::Ends { what: "the data of a variable", wants: bytes, found: left };
            return Err(self.stop(data, subject(), fault));
        }
        self.at += bytes;
        let (shape, scheme) = (Shape::from(axes), Scheme::plain(dtype));
        match scheme.byte_len(&shape) {
            Ok(wants) if wants == bytes => {}
            Ok(wants) => {
                let (shape, scheme) = (shape.clone(), scheme.name.to_string());
                self.report(type_at, subject(), Fault::Extent { shape, scheme, wants, found: bytes });
            }
            Err(why) => self.report(type_at, subject(), Fault::geometry(&shape, &scheme, why)),
        }
        let planes = vec![PlaneData { file: FileId(0), bytes: data..self.at }];
        self.push(start, TensorEntry { name, shape, scheme, planes, strides: None });
        Ok(())
    }

    fn alias(&mut self) -> Result<(), Error> {
        let start = self.at;
        let (alias, target) = (self.name("alias")?, self.name("name of the aliased tensor")?);
        let Some(same) = self.find(&target) else {
            let (wants, found) = ("the name of a variable", format!("{}, which is none", Quoted(&target)));
            self.report(start, Subject::Tensor(alias), Fault::Value { wants, found });
            return Ok(());
        };
        self.push(start, TensorEntry { name: alias.clone(), ..same });
        if let Some(scale) = self.find(&format!("{target}_scale"))
            && self.find(&format!("{alias}_scale")).is_none()
        {
            self.push(start, TensorEntry { name: format!("{alias}_scale"), ..scale });
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<TensorEntry> {
        let id = self.by_name.find(name.as_bytes(), |i| name_of(&self.entries, i))?;
        self.entries.get(id as usize).cloned()
    }

    fn push(&mut self, start: u64, entry: TensorEntry) {
        self.entries.push(entry);
        self.starts.push(start);
        let id = u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX);
        if let Some(first) = self.by_name.insert(id, |i| name_of(&self.entries, i)) {
            let first = self.starts.get(first as usize).copied().unwrap_or_default();
            let name = self.entries.last().map(|e| e.name.clone()).unwrap_or_default();
            self.report(start, Subject::Tensor(name), Fault::Duplicate { first });
        }
    }

    /// How many of `what` follow, each of at least `least` bytes.
    fn count(&mut self, what: &'static str, least: u64) -> Result<u32, Error> {
        let at = self.at;
        let found = self.u32("a count")?;
        let left = self.source.len() - self.at;
        let room = left / least;
        if u64::from(found) > room {
            let fault = Fault::Count { what, found: found.into(), left, room };
            return Err(self.stop(at, Subject::Whole, fault));
        }
        Ok(found)
    }

    /// Reads a text that is a name, and reports its faults.
    fn name(&mut self, what: &'static str) -> Result<String, Error> {
        let at = self.at;
        let bytes = self.text(what)?;
        let name = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(fault) = Fault::of_name(&bytes, what) {
            self.report(at, Subject::Tensor(name.clone()), fault);
        }
        Ok(name)
    }

    fn text(&mut self, what: &'static str) -> Result<Vec<u8>, Error> {
        let at = self.at;
        let len = u16::from_le_bytes(self.take::<2>(what)?);
        let (wants, found) = (u64::from(len), self.source.len() - self.at);
        if wants > found {
            return Err(self.stop(at, Subject::Whole, Fault::Ends { what, wants, found }));
        }
        let mut text = vec![0; usize::from(len)];
        self.source.read_at(self.at, &mut text).map_err(|e| Error::io(self.location, "read", e))?;
        self.at += wants;
        if text.pop() == Some(0) {
            return Ok(text);
        }
        let fault = Fault::Value { wants: "a text that ends with a NUL", found: format!("{len} bytes") };
        Err(self.stop(at, Subject::Whole, fault))
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.take(what).map(u32::from_le_bytes)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.take(what).map(u8::from_le_bytes)
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let (wants, found) = (N as u64, self.source.len().saturating_sub(self.at));
        if wants > found {
            return Err(self.stop(self.at, Subject::Whole, Fault::Ends { what, wants, found }));
        }
        let mut bytes = [0; N];
        self.source.read_at(self.at, &mut bytes).map_err(|e| Error::io(self.location, "read", e))?;
        self.at += wants;
        Ok(bytes)
    }

    fn report(&mut self, at: u64, subject: Subject, fault: Fault) {
        self.problems.push(Problem { at: Some(at), subject, fault });
    }

    /// The error of all that was found and this, after which nothing can be read.
    fn stop(&mut self, at: u64, subject: Subject, fault: Fault) -> Error {
        self.report(at, subject, fault);
        std::mem::take(&mut self.problems).into_error(self.location)
    }
}

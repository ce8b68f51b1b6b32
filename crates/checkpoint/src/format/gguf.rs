//! GGUF, versions 1 to 3, in either byte order.
//!
//! Source: docs/gguf.md of ggml, and ggml/src/gguf.cpp of llama.cpp@0c1e57098 ("C" below), whose limits are
//! kept. Where the two or we differ:
//! - keys are at most 65,535 bytes (the specification; C takes 2^30), and keys and tensor names are UTF-8
//!   without NUL and not empty (C takes any bytes in names, and cuts them at a NUL);
//! - tensor data must be inside the file, but the padding after the last tensor may be missing, as
//!   llama.cpp's own loader allows; bytes after it are ignored, as C does;
//! - as in C: an alignment is any power of two, a dimension may be 0, a tensor may have no dimensions, a
//!   bool may be any byte, a string value need not be UTF-8 (reading it as text then fails);
//! - version 1, which C and gguf-py have ceased to read, has four bytes where later ones have eight: lengths,
//!   counts, dimensions (docs/gguf.md, "v2"; candle-core/src/quantized/gguf_file.rs reads it);
//! - big-endian files, which C reads on big-endian machines only, are read; their tensors have schemes of
//!   their own, `f32.be`, from which floats are decoded, and blocks are not;
//! - a header over 256 MiB is refused, which no model has.

mod array;
mod header;
mod metadata;
mod owned;
mod pairs;
mod split;
mod tensors;
mod types;
mod value;
mod write;

use std::sync::Arc;

pub use array::{Array, Strings};
pub use metadata::GgufMetadata;
pub use owned::{ArrayBuf, ValueBuf};
pub use value::{Value, ValueType};
pub(crate) use write::{form, parts};

/// Whether a GGUF file can hold tensors of this scheme.
pub fn gguf_holds(scheme: &tensor::Scheme) -> bool {
    types::id(&scheme.name).is_some()
}

/// The tensor type of ggml of a scheme.
pub(super) fn type_of(scheme: &tensor::Scheme) -> Option<u32> {
    types::id(&scheme.name)
}

/// The scheme of a tensor type of ggml, little-endian.
pub(super) fn scheme_of(id: u32) -> Result<Arc<tensor::Scheme>, Fault> {
    types::Types::of(Notation { big: false, narrow: false }).scheme(id)
}

use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File};
use crate::error::{Error, Problems, Quoted};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use header::{Cursor, Notation, Stop};
use pairs::Pairs;
use tensors::Tensors;

/// The GGUF format.
#[derive(Debug)]
pub(crate) struct Gguf;

const NAME: &str = "gguf";
const MAGIC: &[u8; 4] = b"GGUF";
/// Tensor names are shorter than this (ggml.h, `GGML_MAX_NAME`, which counts a closing NUL).
const MAX_NAME: u64 = 63;
/// Tensors have at most this many dimensions (ggml.h, `GGML_MAX_DIMS`).
const MAX_DIMS: u32 = 4;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["gguf"]
    }

    fn sniff(&self, head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    fn claims(&self, folder: &Folder) -> bool {
        split::only(folder).is_some()
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let (location, file) = match found {
            Found::File(file) => (file.location(), file),
            Found::Folder(folder) => {
                let name = split::only(&folder).unwrap_or_default();
                (folder.location(), folder.open(name)?.not_empty()?)
            }
        };
        let (name, parent) = (file.file_name().to_owned(), file.parent());
        let part = read(file)?;
        let Read { contents, metadata } = match part.metadata.split()? {
            None => part,
            Some(split) => split::open(&name, part, split, &parent.list()?)?,
        };
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, Metadata::Gguf(metadata)))
    }
}

/// The contents of GGUF headers.
#[derive(Debug)]
struct Read {
    contents: Contents,
    metadata: GgufMetadata,
}

/// Reads the header of `file`, and reports all that is wrong with it.
fn read(file: OpenFile) -> Result<Read, Error> {
    let location = file.location();
    let source = file.into_source();
    let mut cursor = Cursor::new(Arc::clone(&source));
    let mut problems = Problems::default();
    let parsed = parse(&mut cursor, &mut problems);
    let Parsed { opening, pairs, alignment, tensors } = match parsed {
        Ok(parsed) => parsed,
        Err(Stop::Enough) => return Err(problems.into_error(&location)),
        Err(Stop::Io(error)) => return Err(Error::io(&location, "read", error)),
        Err(Stop::Problem(problem)) => {
            problems.push(*problem);
            return Err(problems.into_error(&location));
        }
    };
    problems.check(&location)?;
    let header = cursor.into_header();
    let metadata = GgufMetadata::new(&location, &opening, pairs, alignment, tensors.data_start, header);
    let contents = Contents::of_file(File::new(location, source), tensors.entries, tensors.by_name);
    Ok(Read { contents, metadata })
}

fn parse(cursor: &mut Cursor, problems: &mut Problems) -> Result<Parsed, Stop> {
    let opening = Opening::parse(cursor)?;
    let pairs = Pairs::parse(cursor, opening.pairs, problems)?;
    let alignment = pairs.alignment(cursor.header(), problems);
    let tensors = Tensors::parse(cursor, opening.tensors, alignment, problems)?;
    Ok(Parsed { opening, pairs, alignment, tensors })
}

/// A header, part by part.
struct Parsed {
    opening: Opening,
    pairs: Pairs,
    alignment: u64,
    tensors: Tensors,
}

/// The fixed start of the file: magic, version, counts.
struct Opening {
    version: u32,
    notation: Notation,
    tensors: u64,
    pairs: u64,
}

impl Opening {
    fn parse(cursor: &mut Cursor) -> Result<Opening, Stop> {
        const WHAT: &str = "the start of the header";
        let magic = cursor.take(4, WHAT)?;
        let found = cursor.header().get(&magic);
        if found != MAGIC {
            let found = format!("{}", Quoted(&String::from_utf8_lossy(found)));
            return Err(Stop::at(0, Fault::Value { wants: "the magic `GGUF`", found }));
        }
        let mut version = cursor.u32(WHAT)?;
        // A big-endian file has no other sign than this (gguf.cpp, `gguf_init_from_reader`).
        let big = version != 0 && version.trailing_zeros() >= 16;
        if big {
            version = version.swap_bytes();
        }
        match version {
            1..=3 => {}
            0 => {
                let fault = Fault::Value { wants: "version 1, 2 or 3", found: "version 0".to_owned() };
                return Err(Stop::at(4, fault));
            }
            later => {
                let what = format!("GGUF version {later} is newer than 3, the last that is read");
                return Err(Stop::at(4, Fault::Unsupported { what }));
            }
        }
        cursor.notation = Notation { big, narrow: version == 1 };
        let tensors = cursor.length(WHAT)?;
        let pairs = cursor.length(WHAT)?;
        Ok(Opening { version, notation: cursor.notation, tensors, pairs })
    }
}

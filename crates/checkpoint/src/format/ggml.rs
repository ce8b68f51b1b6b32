//! whisper.cpp's `ggml-….bin`: sizes, mel filters, tokens, tensors, all little-endian.
//!
//! Source: whisper.cpp of pywhispercpp 1.5.1, src/whisper.cpp (`whisper_model_load`) and models/convert-pt-to-ggml.py. The
//! file is: magic u32 `ggml`; eleven numbers i32, [`DIMS`]; the filters: bands i32, frequencies i32, factors f32; tokens:
//! their number i32, each as its length u32 and its bytes; tensors up to the end. A tensor is: number of axes i32, length
//! of its name i32, type i32; axes i32, the last one first; name; data, without padding. Types are those of GGUF.
//!
//! `ftype` is what most tensors are, plus 1000 times the version of quantisation. Biases of convolutions have a second
//! axis of 1 there, and have not here.
//!
//! The reference does not look whether the filters are as many as the model wants, and takes the last of two tensors of
//! one name. Both are refused here.

mod write;

use tensor::{FileId, PlaneData, Shape, TensorEntry};

use super::gguf::scheme_of;
use super::listing::Listing;
use super::openai::{MelFilters, OpenaiMetadata};
use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File};
use crate::error::{Error, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
pub(crate) use write::form;
pub use write::ggml_holds;

/// The format of whisper.cpp.
#[derive(Debug)]
pub(crate) struct Ggml;

const NAME: &str = "ggml";
const MAGIC: &[u8; 4] = b"lmgg";

/// The number that says what most tensors are.
const FTYPE: &str = "ftype";

/// The numbers after the magic.
const DIMS: [&str; 11] = [
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
    FTYPE,
];

/// ggml's limit on axes.
const MAX_AXES: u64 = 4;
/// Names are shorter.
const MAX_NAME: u64 = 4096;
/// Bytes of the shortest tensor's header: three numbers, an axis and a letter.
const SHORTEST: u64 = 12;

impl Format for Ggml {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Other programs had the same magic once, and other numbers: here both states have one width.
    fn sniff(&self, head: &[u8]) -> bool {
        let number = |i: usize| head.get(4 + 4 * i..).and_then(|head| head.first_chunk()).copied();
        let [audio, text] = [2, 6].map(|i| number(i).map(i32::from_le_bytes));
        head.starts_with(MAGIC) && audio.is_some_and(|n| n > 0) && audio == text
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let file = match found {
            Found::File(file) => file,
            Found::Folder(folder) => {
                let what = "is a directory, where whisper.cpp has one file".to_owned();
                return Err(Error::whole(folder.location(), Fault::Unsupported { what }));
            }
        };
        let location = file.location();
        let (contents, metadata) = read(file)?;
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, Metadata::Openai(metadata)))
    }
}

fn read(file: OpenFile) -> Result<(Contents, OpenaiMetadata), Error> {
    let location = file.location();
    let source = file.into_source();
    let mut tensors = Tensors(Listing::new(&location, &*source, MAGIC.len() as u64));
    let metadata = tensors.head()?;
    while tensors.0.left() > 0 && !tensors.0.problems.enough() {
        tensors.tensor()?;
    }
    let Listing { entries, by_name, problems, .. } = tensors.0;
    problems.check(&location)?;
    Ok((Contents::of_file(File::new(location, source), entries, by_name), metadata))
}

/// Returns true for biases of convolutions: in the file, these vectors have a second axis of 1.
fn is_of_columns(name: &str) -> bool {
    name.starts_with("encoder.conv") && name.ends_with(".bias")
}

/// The tensors as they are read.
struct Tensors<'f>(Listing<'f>);

impl Tensors<'_> {
    fn head(&mut self) -> Result<OpenaiMetadata, Error> {
        let mut dims = Vec::new();
        for name in DIMS {
            dims.push((name.to_owned(), i64::from(self.i32("the sizes")?)));
        }
        let metadata = OpenaiMetadata { dims, ..OpenaiMetadata::default() };
        let start = self.0.at;
        let (bands, frequencies) = (self.size("mel bands")?, self.size("frequencies")?);
        let wanted = metadata.dim("n_mels").unwrap_or_default();
        if i64::try_from(bands) != Ok(wanted) {
            let fault = Fault::Value { wants: "as many mel bands as `n_mels`", found: bands.to_string() };
            self.0.report(start, Subject::Whole, fault);
        }
        let bytes =
            self.0.take_many(bands.saturating_mul(frequencies).saturating_mul(4), "the mel filters")?;
        let factors = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let filters = Some(MelFilters { bands, frequencies, factors });
        let (at, count) = (self.0.at, self.size("the number of tokens")?);
        let room = self.0.left() / 4;
        if count > room {
            let fault = Fault::Count { what: "tokens", found: count, left: self.0.left(), room };
            return Err(self.0.stop(at, Subject::Whole, fault));
        }
        let mut tokens = Vec::new();
        for _ in 0..count {
            let len = u32::from_le_bytes(self.0.take("a token")?);
            tokens.push(self.0.take_many(len.into(), "a token")?);
        }
        Ok(OpenaiMetadata { tokens, filters, ..metadata })
    }

    fn tensor(&mut self) -> Result<(), Error> {
        const WHAT: &str = "a tensor";
        let start = self.0.at;
        if self.0.left() < SHORTEST {
            let found = self.0.left();
            return Err(self.0.stop(start, Subject::Whole, Fault::Trailing { found }));
        }
        let rank = self.size(WHAT)?;
        let len = self.size(WHAT)?;
        let type_at = self.0.at;
        let id = u32::from_le_bytes(self.0.take(WHAT)?);
        for (what, found, limit) in
            [("number of dimensions", rank, MAX_AXES), ("length of a tensor's name", len, MAX_NAME)]
        {
            if found > limit {
                return Err(self.0.stop(start, Subject::Whole, Fault::Limit { what, found, limit }));
            }
        }
        let mut axes = Vec::new();
        for _ in 0..rank {
            axes.push(self.size(WHAT)?);
        }
        axes.reverse();
        let bytes = self.0.take_many(len, "the name of a tensor")?;
        let name = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(fault) = Fault::of_name(&bytes, "tensor name") {
            self.0.report(start, Subject::Tensor(name.clone()), fault);
        }
        let subject = || Subject::Tensor(name.clone());
        // Where the type or the shape is wrong, nobody knows where the next tensor is.
        let scheme = match scheme_of(id) {
            Ok(scheme) => scheme,
            Err(fault) => return Err(self.0.stop(type_at, subject(), fault)),
        };
        let mut shape = Shape::from(axes);
        let bytes = match scheme.byte_len(&shape) {
            Ok(bytes) => bytes,
            Err(why) => return Err(self.0.stop(type_at, subject(), Fault::geometry(&shape, &scheme, why))),
        };
        let (data, left) = (self.0.at, self.0.left());
        if bytes > left {
            let fault = Fault::Ends { what: "the data of a tensor", wants: bytes, found: left };
            return Err(self.0.stop(data, subject(), fault));
        }
        self.0.at += bytes;
        if let ([n, 1], true) = (&shape[..], is_of_columns(&name)) {
            shape = Shape::from([*n]);
        }
        let planes = vec![PlaneData { file: FileId(0), bytes: data..self.0.at }];
        self.0.push(start, TensorEntry { name, shape, scheme, planes, strides: None });
        Ok(())
    }

    /// A number that is a size.
    fn size(&mut self, what: &'static str) -> Result<u64, Error> {
        let at = self.0.at;
        let found = self.i32(what)?;
        u64::try_from(found).map_err(|_| {
            let fault = Fault::Value { wants: "a size that is not negative", found: found.to_string() };
            self.0.stop(at, Subject::Whole, fault)
        })
    }

    fn i32(&mut self, what: &'static str) -> Result<i32, Error> {
        self.0.take(what).map(i32::from_le_bytes)
    }
}

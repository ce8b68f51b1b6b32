//! The formats. One file each, one line each in [`FORMATS`].

mod archive;
mod companions;
pub(crate) mod ctranslate2;
pub(crate) mod foreign;
pub(crate) mod ggml;
pub(crate) mod gguf;
pub(crate) mod hf;
mod listing;
pub(crate) mod npy;
pub(crate) mod npz;
pub(crate) mod onnx;
pub(crate) mod openai;
pub(crate) mod pytorch;
pub(crate) mod safetensors;
pub(crate) mod squish;
#[cfg(test)]
mod toy;

use std::sync::Arc;

use storage::Location;
use tensor::Scheme;

use crate::checkpoint::Checkpoint;
use crate::contents::Contents;
use crate::error::{Error, Quoted};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::format::hf::RankFiles;

pub(crate) use companions::gathered;

/// Every format, in the order in which they are asked: a directory goes to the first that claims it.
static FORMATS: &[&dyn Format] = &[
    #[cfg(test)]
    &toy::Toy,
    &squish::Squish,
    &ctranslate2::Ctranslate2,
    &hf::Hf,
    &gguf::Gguf,
    &ggml::Ggml,
    &safetensors::Safetensors,
    &npz::Npz,
    &npy::Npy,
    &pytorch::Pytorch,
];

/// Bytes of a file that its format is recognised by.
pub(crate) const HEAD: usize = 512;

/// One format of checkpoints.
pub(crate) trait Format: Sync {
    /// Lower-case name.
    fn name(&self) -> &'static str;

    /// Extensions that say a file is meant to be of this format, without the dot.
    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a file that starts with `head` (at most [`HEAD`] bytes) is of this format.
    fn sniff(&self, _head: &[u8]) -> bool {
        false
    }

    /// Whether a file that starts with `head` and has one of its extensions may be one of this format that is
    /// compressed.
    fn packed(&self, _head: &[u8]) -> bool {
        false
    }

    /// Whether a directory is a checkpoint of this format.
    fn claims(&self, _folder: &Folder) -> bool {
        false
    }

    /// Reads the headers of what was sniffed or claimed.
    fn open(&self, found: Found) -> Result<Checkpoint, Error>;

    /// Reads the header of a file that was sniffed, one of those with the weights of a directory.
    fn part(&self, file: OpenFile) -> Result<FileContents, Error> {
        let what = format!("{} is not read as one file of several", self.name());
        Err(Error::whole(file.location(), Fault::Unsupported { what }))
    }
}

/// The contents of one file of a directory.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// Its tensors.
    pub(crate) contents: Contents,
    /// Its other metadata.
    pub(crate) pairs: Vec<(String, String)>,
    /// The number of ranks and stages, if it holds the files of all ranks.
    pub(crate) ranks: Option<RankFiles>,
}

/// The file or folder that a name leads to.
#[derive(Debug)]
pub(crate) enum Found {
    File(OpenFile),
    Folder(Folder),
}

/// The format of the file `name` at `location`, which starts with `head`.
pub(crate) fn of_file(location: &Location, name: &str, head: &[u8]) -> Result<&'static dyn Format, Error> {
    let extension =
        name.rsplit_once('.').map_or("", |(stem, extension)| if stem.is_empty() { "" } else { extension });
    let extension = extension.to_ascii_lowercase();
    let named = FORMATS.iter().find(|f| f.extensions().contains(&extension.as_str()));
    let holds = FORMATS.iter().find(|f| f.sniff(head));
    match (named, holds) {
        (Some(named), Some(holds)) if named.name() != holds.name() => {
            Err(Error::whole(location, Fault::Conflict { named: named.name(), holds: holds.name() }))
        }
        (_, Some(format)) => Ok(*format),
        (Some(named), None) if named.packed(head) => Ok(*named),
        (named, None) => match (foreign::recognise(head), named) {
            (Some(foreign), _) => Err(foreign.refuse(location)),
            // It is meant to be of that format, whose reader says what is wrong.
            (None, Some(format)) => Ok(*format),
            (None, None) => Err(unknown(location, head)),
        },
    }
}

/// The format of a directory.
pub(crate) fn of_folder(folder: &Folder) -> Option<&'static dyn Format> {
    FORMATS.iter().find(|f| f.claims(folder)).copied()
}

/// Why no format claims `folder`.
pub(crate) fn explain_folder(folder: &Folder) -> Error {
    let refuse = |wants: &str| {
        let fault = Fault::Missing { wants: wants.to_owned(), found: folder.describe() };
        Error::whole(folder.location(), fault)
    };
    let safetensors = folder.ending(".safetensors");
    match (&folder.ending(".gguf")[..], &safetensors[..]) {
        ([first, _, ..], _) => refuse("one GGUF file in the directory")
            .with_hint(format!("name the file itself: `{}`", folder.location_of(first))),
        (_, [first, ..]) => refuse("a `config.json` beside the safetensors file").with_hint(format!(
            "copy the model's `config.json` here, or open `{}` itself for its tensors alone",
            folder.location_of(first)
        )),
        _ => refuse(
            "one GGUF file, safetensors or PyTorch weights (MLX too) with their `config.json`, or .npy files",
        )
        .with_hint("name the directory that holds the model's files"),
    }
}

/// Returns `scheme` with the bytes of each cell in the other order, `f32.be`, with the same geometry. It can be listed
/// and moved. Floats are decoded from it; decoding other values is rejected by this name. Single bytes have no order.
fn big_endian(scheme: &Arc<Scheme>) -> Arc<Scheme> {
    if scheme.dtype().is_some_and(|dtype| dtype.bytes() == 1) {
        return Arc::clone(scheme);
    }
    let name = format!("{}.be", scheme.name);
    quant::scheme(&name).unwrap_or_else(|| Arc::new(Scheme { name: name.into(), ..Scheme::clone(scheme) }))
}

fn unknown(location: &Location, head: &[u8]) -> Error {
    let start: Vec<_> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
    let text: String =
        head.iter().take(8).map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
    let what =
        format!("the content is of no known format, it starts with {} ({})", start.join(" "), Quoted(&text));
    let known: Vec<_> = FORMATS.iter().filter(|f| !f.extensions().is_empty()).map(|f| f.name()).collect();
    Error::whole(location, Fault::Unsupported { what })
        .with_hint(format!("supported formats: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tensor::Shape;

    use crate::error::Error;

    #[test]
    fn the_page_on_adding_a_format_is_what_is_compiled_here() {
        let page = include_str!("../../../docs/adding-a-format.md");
        let code =
            |after: &str| page.split_once(after)?.1.split_once("```rust\n")?.1.split_once("```").map(|c| c.0);
        assert_eq!(code("`crates/checkpoint/src/format/toy.rs`:"), Some(include_str!("format/toy.rs")));
        let line = code("The line in `FORMATS`").unwrap();
        assert!(include_str!("format.rs").contains(&format!("    {line}")), "{line}");
    }

    #[test]
    fn adding_a_format_makes_its_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.any");
        let tensor = |name: &str, values: &[f32]| {
            let count = u32::try_from(values.len()).unwrap().to_le_bytes();
            let data = values.iter().flat_map(|x| x.to_le_bytes());
            let head = [u8::try_from(name.len()).unwrap()].into_iter().chain(count).chain(name.bytes());
            head.chain(data).collect::<Vec<u8>>()
        };
        let whole = [b"TOY1".to_vec(), tensor("a", &[1.0, 2.0]), tensor("b.c", &[])].concat();
        fs::write(&path, &whole).unwrap();
        let checkpoint = crate::open(&path).unwrap();
        assert_eq!(checkpoint.format().name(), "toy");
        assert_eq!(checkpoint.entry("a").unwrap().shape, Shape::from([2]));
        assert_eq!(checkpoint.entry("b.c").unwrap().shape, Shape::from([0]));
        let mut data = [0; 4];
        let plane = &checkpoint.entry("a").unwrap().planes[0];
        checkpoint.file(plane.file).source.read_at(plane.bytes.start + 4, &mut data).unwrap();
        assert_eq!(data, 2f32.to_le_bytes());

        for cut in 5..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            // Where the second tensor would begin, the file is whole again.
            assert_eq!(crate::open(&path).is_ok(), cut == 18, "{cut}");
        }
        let twice = [b"TOY1".to_vec(), tensor("a", &[1.0]), tensor("a", &[2.0])].concat();
        fs::write(&path, twice).unwrap();
        assert!(matches!(crate::open(&path), Err(Error::Malformed(_))));
    }
}

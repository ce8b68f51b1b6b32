//! The ways in which a file can be wrong, as data. Each knows whose fault it is.

use storage::zstd::ZstdFault;
use tensor::{Dtype, Scheme, SchemeError, Shape};

use crate::error::{Problem, Quoted};

/// Whose fault a [`Fault`] is, worst last: if problems of several kinds occur together, the worst determines the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blame {
    Unsupported,
    Misuse,
    Mismatch,
    Malformed,
}

/// A fault of a file, a key or a tensor. Sizes are in bytes unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A file of no bytes.
    #[error("the file is empty")]
    Empty,
    /// The header wants more than the file has.
    #[error("the file ends inside {what}: {wants} bytes wanted, {found} left")]
    Ends {
        /// The part being read.
        what: &'static str,
        /// Bytes that it needs.
        wants: u64,
        /// Bytes that are left.
        found: u64,
    },
    /// The header is sound and promises more data than the file has.
    #[error(
        "the file is cut short: {missing} of {wants} bytes are missing, {tensors} of {total} tensors are \
         incomplete, the first is {}",
        Quoted(first)
    )]
    Truncated {
        /// Bytes missing at the end.
        missing: u64,
        /// Bytes the whole file should have.
        wants: u64,
        /// Tensors that are not wholly inside the file.
        tensors: u64,
        /// Tensors the header lists.
        total: u64,
        /// The first of the incomplete ones.
        first: String,
    },
    /// A count that cannot be true, however small each item.
    #[error("says it has {found} {what}, but the {left} bytes that are left hold at most {room}")]
    Count {
        /// The things counted, in the plural.
        what: &'static str,
        /// The count.
        found: u64,
        /// Bytes left in the file.
        left: u64,
        /// The most that could be there.
        room: u64,
    },
    /// More than the format's or the reference reader's limit.
    #[error("{what} of {found}, over the limit of {limit}")]
    Limit {
        /// The quantity that is too large, with its unit.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// A value that the format does not allow.
    #[error("wanted {wants}, found {found}")]
    Value {
        /// The values that the format allows.
        wants: &'static str,
        /// The value found.
        found: String,
    },
    /// A value of another type than the reader of it wants.
    #[error("wanted {wants}, found {found}")]
    Type {
        /// The types that would do.
        wants: &'static str,
        /// The type and the value.
        found: String,
    },
    /// A name or key of no characters.
    #[error("the {what} is empty")]
    NoName {
        /// `key`, `tensor name`.
        what: &'static str,
    },
    /// A NUL in a name: C programs would see another name.
    #[error("the name has a NUL character")]
    Nul,
    /// Text that is not UTF-8.
    #[error("the {what} is not UTF-8 (valid up to its byte {valid})")]
    NotUtf8 {
        /// The kind of text.
        what: &'static str,
        /// Length of the valid start.
        valid: usize,
    },
    /// The same key or tensor name twice.
    #[error("is there twice, first at byte {first}")]
    Duplicate {
        /// Byte offset of the first.
        first: u64,
    },
    /// A shape whose number of elements or bytes does not fit.
    #[error("the size of {shape} overflows")]
    Overflow {
        /// The shape, slowest axis first.
        shape: Shape,
    },
    /// The shape cannot be stored in the scheme.
    #[error("{shape} {scheme}: {why}")]
    Geometry {
        /// The shape, slowest axis first.
        shape: Shape,
        /// The name of the scheme.
        scheme: String,
        /// The misfit.
        why: SchemeError,
    },
    /// A tensor type that ggml had once and removed.
    #[error("has type {id} ({name}), which was removed from the format: {instead}")]
    TypeRemoved {
        /// The type id.
        id: u32,
        /// Its old name.
        name: &'static str,
        /// A replacement.
        instead: &'static str,
    },
    /// The tensors of a quantised module do not fit each other or the configuration.
    #[error("{what}")]
    Companions {
        /// The misfit, wanted and found.
        what: String,
    },
    /// A data type that this version has no scheme for.
    #[error("has type `{name}`, which is not supported yet")]
    TypeUnsupported {
        /// The name in the format.
        name: String,
    },
    /// Tensor data that does not start where the one before ends.
    #[error("data starts at offset {found}, wanted {wants}: {}", gap(*found, *wants))]
    Offset {
        /// Where it has to start, from the start of the data section.
        wants: u64,
        /// Where the header says it starts.
        found: u64,
    },
    /// A byte range that is not as long as the shape wants.
    #[error("{shape} {scheme} needs {wants} bytes, the header gives {found}")]
    Extent {
        /// The shape, slowest axis first.
        shape: Shape,
        /// The name of the scheme.
        scheme: String,
        /// Bytes that the shape needs.
        wants: u64,
        /// Bytes that the header gives.
        found: u64,
    },
    /// Bytes after the last tensor that nothing accounts for.
    #[error("{found} bytes after the last tensor that no tensor uses")]
    Trailing {
        /// How many.
        found: u64,
    },
    /// JSON that does not parse, or not to what the format wants.
    #[error("{what}: {why}")]
    Json {
        /// The part or file that is JSON.
        what: &'static str,
        /// The parser's message.
        why: String,
    },
    /// A zip archive that does not fit together.
    #[error("the zip archive is broken: {why}")]
    Zip {
        /// The reader's message.
        why: String,
    },
    /// Compressed data that is broken, or beyond what is read.
    #[error(transparent)]
    Zstd(ZstdFault),
    /// A pickle that does not do what its format wants.
    #[error("the pickle is broken: {why}")]
    Pickle {
        /// The problem, wanted and found.
        why: String,
    },
    /// A name in a pickle that no checkpoint has a use for, and that harm is done with.
    #[error("the pickle names {}, which no checkpoint needs: it was not run", Quoted(name))]
    Harmful {
        /// Module and name.
        name: String,
    },
    /// A view that reaches past the end of its storage.
    #[error(
        "{shape} {dtype} from element {offset} on ends at byte {wants} of its storage, which has {found}"
    )]
    Leaves {
        /// The shape, slowest axis first.
        shape: Shape,
        /// The type of its elements.
        dtype: Dtype,
        /// Its first element.
        offset: u64,
        /// Bytes that the storage must have.
        wants: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A storage that the file does not have.
    #[error("its storage {} is not in the file", Quoted(key))]
    NoRecord {
        /// The key of the storage.
        key: String,
    },
    /// A storage that is not as long as it is said to be.
    #[error("its storage {} has {found} bytes in the file, wanted {wants}", Quoted(key))]
    Record {
        /// The key of the storage.
        key: String,
        /// Bytes that the pickle says it has.
        wants: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A part of a directory that has to be there.
    #[error("wanted {wants}, found {found}")]
    Missing {
        /// The part wanted.
        wants: String,
        /// The part found instead.
        found: String,
    },
    /// The name says one format, the content another.
    #[error("is named as {named}, but holds {holds}")]
    Conflict {
        /// The format of the extension.
        named: &'static str,
        /// The format of the content.
        holds: &'static str,
    },
    /// Something recognised that cannot be read.
    #[error("{what}")]
    Unsupported {
        /// The thing recognised.
        what: String,
    },
    /// Not a regular file: a pipe, a device, a socket.
    #[error("wanted a regular file, found {found}")]
    NotAFile {
        /// The kind of file.
        found: &'static str,
        /// Whether a directory of the checkpoint holds it, so that the caller did not choose it.
        member: bool,
    },
    /// A file that the others speak of.
    #[error("{} is missing", Quoted(name))]
    Absent {
        /// Its name.
        name: String,
    },
    /// A tensor that is not where the index says.
    #[error("wanted it in {} as the index says, found it {}", Quoted(wants), place(found.as_deref()))]
    Astray {
        /// The file that the index names.
        wants: String,
        /// The file that holds it, if one does.
        found: Option<String>,
    },
    /// A tensor that the index does not name.
    #[error("is in {}, but not in the index", Quoted(file))]
    Unlisted {
        /// The file that holds it.
        file: String,
    },
    /// A tensor name in two files.
    #[error("is in {} and in {}", Quoted(first), Quoted(second))]
    InTwo {
        /// One file that holds it.
        first: String,
        /// Another one.
        second: String,
    },
    /// The name of a file that leads elsewhere, or would on another system.
    #[error("{} is no name of a file in the directory", Quoted(name))]
    NotPlain {
        /// The name.
        name: String,
    },
    /// A fault of one file of a directory, where the error is about several.
    #[error("{}: {problem}", Quoted(name))]
    Member {
        /// The name of the file.
        name: String,
        /// The file's problem.
        problem: Box<Problem>,
    },
    /// A scheme that the format to be written cannot store.
    #[error("cannot store {scheme}{}, wanted {wants}", more(*tensors))]
    NoPlace {
        /// The name of the scheme.
        scheme: String,
        /// Tensors in it.
        tensors: u64,
        /// The schemes that the format holds.
        wants: &'static str,
    },
    /// Two tensors to be written under one name.
    #[error("the name would be there twice")]
    Twice,
    /// A file exists where a checkpoint is to be written.
    #[error("{what}")]
    Exists {
        /// A description of the existing file.
        what: &'static str,
    },
    /// The directory that is to hold the result does not exist.
    #[error("there is no such directory")]
    NoFolder,
    /// What is read is where the result is to be written.
    #[error("the source and the destination are the same")]
    Source,
    /// The directory to replace holds files that no conversion writes.
    #[error("the directory there holds {}, which no conversion writes", listed(names))]
    Foreign {
        /// Names of what is not a checkpoint's; sorted.
        names: Vec<String>,
    },
    /// Another process writes to the same place.
    #[error("another process is writing there")]
    Busy,
    /// A result that was moved or replaced before the files that it was made from were removed.
    #[error(
        "the result is no longer there as it was written, so no more of what it was made from is removed"
    )]
    Gone,
    /// A file that is to be removed, and is another now.
    #[error("it is not the file that was read, so it is not removed")]
    Another,
    /// A path that names no file.
    #[error("the path does not end in a name")]
    NoFileName,
    /// A name of a file after which another cannot be named.
    #[error("the file with its data cannot be named after it: {why}")]
    Unnamed {
        /// The reason.
        why: &'static str,
    },
    /// A source that lacks what the format to be written needs.
    #[error("wanted {wants}, found none")]
    Lacks {
        /// The missing part.
        wants: &'static str,
    },
    /// A key that no tensor is below.
    #[error("no tensor is below the key {}", Quoted(key))]
    NoKey {
        /// The key.
        key: String,
    },
    /// A link out of the checkpoint's directory.
    #[error("{} leads out of the directory, to {}", Quoted(member), Quoted(target))]
    Outside {
        /// The name in the directory.
        member: String,
        /// Where it leads.
        target: String,
    },
}

impl Fault {
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Fault::Missing { .. }
            | Fault::Conflict { .. }
            | Fault::Type { .. }
            | Fault::Companions { .. }
            | Fault::Absent { .. }
            | Fault::Astray { .. }
            | Fault::Unlisted { .. }
            | Fault::InTwo { .. } => Blame::Mismatch,
            Fault::Member { problem, .. } => problem.fault.blame(),
            Fault::TypeRemoved { .. }
            | Fault::TypeUnsupported { .. }
            | Fault::Unsupported { .. }
            | Fault::Zstd(ZstdFault::Unsupported { .. }) => Blame::Unsupported,
            Fault::NotAFile { member: false, .. }
            | Fault::NoPlace { .. }
            | Fault::Twice
            | Fault::Exists { .. }
            | Fault::Foreign { .. }
            | Fault::NoFolder
            | Fault::Source
            | Fault::Busy
            | Fault::Gone
            | Fault::Another
            | Fault::NoFileName
            | Fault::Unnamed { .. }
            | Fault::NoKey { .. }
            | Fault::Lacks { .. } => Blame::Misuse,
            _ => Blame::Malformed,
        }
    }

    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Fault::Empty
            | Fault::Ends { .. }
            | Fault::Truncated { .. }
            | Fault::Zip { .. }
            | Fault::Zstd(ZstdFault::Data { .. } | ZstdFault::Ends { .. }) => {
                Some("the download may be incomplete: download the file again")
            }
            Fault::Absent { .. } => Some("the download may be incomplete: download the missing files"),
            Fault::InTwo { .. } => {
                Some("if these are different models, open one of the files by its own path")
            }
            Fault::Member { problem, .. } => problem.fault.hint(),
            Fault::Zstd(ZstdFault::Expands { .. }) => {
                Some("if the file can be trusted, decompress it with `zstd -d`")
            }
            Fault::NoPlace { .. } => Some("write another format, or encode them as f32, f16 or bf16"),
            Fault::Foreign { .. } => {
                Some("move it, or name another destination: files that may be yours are never removed")
            }
            Fault::NoFolder => Some("create it first"),
            Fault::Unnamed { .. } => Some("name another destination"),
            Fault::Source => {
                Some("write to another path, and replace the source when you have checked the result")
            }
            Fault::Exists { what: "already exists" } => Some("remove it, or name another destination"),
            Fault::Harmful { .. } => {
                Some("do not open this file with `torch.load` or `pickle`, which would run it")
            }
            Fault::Conflict { .. } => Some("rename the file to what it holds"),
            Fault::Value { wants: "the magic `GGUF`", .. } => {
                Some("this is not a GGUF file, or it is damaged: download it again")
            }
            _ => None,
        }
    }

    /// Returns the fault of a key or a tensor name, if it has one.
    pub(crate) fn of_name(name: &[u8], what: &'static str) -> Option<Fault> {
        if name.is_empty() {
            return Some(Fault::NoName { what });
        }
        match std::str::from_utf8(name) {
            Err(e) => Some(Fault::NotUtf8 { what, valid: e.valid_up_to() }),
            Ok(_) => name.contains(&0).then_some(Fault::Nul),
        }
    }

    /// A parser's complaint about `json`, which starts at byte `base` of its file, and where that is.
    pub(crate) fn json(
        what: &'static str,
        json: &[u8],
        base: u64,
        error: &serde_json::Error,
    ) -> (Option<u64>, Fault) {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let why = error.to_string().trim_end_matches(&place).to_owned();
        let lines = json.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1));
        let before = lines.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
        let at = (error.line() > 0).then(|| base.saturating_add(before.min(json.len()) as u64));
        (at, Fault::Json { what, why })
    }

    /// Byte offsets of the first and the last place in `json` where `text` stands in quotes.
    pub(crate) fn places(json: &[u8], text: &str) -> (Option<u64>, Option<u64>) {
        /// Reports need not cost seconds: in longer ones the name has to do.
        const SEARCHED: usize = 8 << 20;
        let json = std::str::from_utf8(json).ok().filter(|j| j.len() <= SEARCHED);
        let Some(json) = json else { return (None, None) };
        let quoted = format!("\"{text}\"");
        let at = |found: Option<usize>| found.map(|at| at as u64);
        (at(json.find(&quoted)), at(json.rfind(&quoted)))
    }

    pub(crate) fn geometry(shape: &Shape, scheme: &Scheme, why: SchemeError) -> Fault {
        match why {
            SchemeError::Overflow => Fault::Overflow { shape: shape.clone() },
            why => Fault::Geometry { shape: shape.clone(), scheme: scheme.name.to_string(), why },
        }
    }
}

fn gap(found: u64, wants: u64) -> String {
    if found > wants {
        format!("{} bytes belong to no tensor", found - wants)
    } else {
        format!("{} bytes overlap what comes before", wants - found)
    }
}

fn place(file: Option<&str>) -> String {
    file.map_or("nowhere".to_owned(), |file| format!("in {}", Quoted(file)))
}

fn more(tensors: u64) -> String {
    if tensors == 1 { String::new() } else { format!(" (as in {} more)", tensors - 1) }
}

/// The first names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut parts: Vec<String> = names.iter().take(SHOWN).map(|name| Quoted(name).to_string()).collect();
    if names.len() > SHOWN {
        parts.push(format!("{} more", names.len() - SHOWN));
    }
    match &parts[..] {
        [few @ .., last] if !few.is_empty() => format!("{} and {last}", few.join(", ")),
        _ => parts.concat(),
    }
}

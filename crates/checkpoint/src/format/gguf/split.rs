//! Models split in several files, `PREFIX-00002-of-00003.gguf`: any of them opens all.
//!
//! Source: src/llama-model-loader.cpp and tools/gguf-split/gguf-split.cpp of llama.cpp@0c1e57098. The metadata is that
//! of the first file; the others have only `split.*`, and other keys in them are ignored, except for the architecture.
//! As in llama.cpp, each tensor name is in one part only, and their number is `split.tensors.count`.

use super::{GgufMetadata, Read, read};
use crate::contents::Contents;
use crate::error::{Error, Problem, Quoted};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::format::foreign;
use crate::members::Members;
use crate::numbered::Numbered;

/// Keys (src/llama-arch.cpp).
pub(super) const NO: &str = "split.no";
pub(super) const COUNT: &str = "split.count";
pub(super) const TENSORS: &str = "split.tensors.count";
const ARCHITECTURE: &str = "general.architecture";

/// Which part a file is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// From 0.
    pub(super) no: Option<u64>,
    /// Parts, more than one.
    pub(super) count: u64,
    /// Tensors in all parts.
    pub(super) tensors: Option<u64>,
}

/// The one GGUF file of `folder`, or the first of its files if they are parts of one model.
pub(super) fn only(folder: &Folder) -> Option<&str> {
    let names = folder.ending(".gguf");
    let first = *names.first()?;
    let one = || {
        let whole = Numbered::parse(first)?;
        names.iter().all(|n| Numbered::parse(n).is_some_and(|n| n.same_whole(&whole))).then_some(())
    };
    (names.len() == 1 || one().is_some()).then_some(first)
}

/// Opens the other parts of the model that the file `name` in `folder`, which was read as `part`, is one of.
pub(super) fn open(name: &str, part: Read, split: Split, folder: &Folder) -> Result<Read, Error> {
    let location = &folder.location_of(name);
    let fits = |n: &Numbered<'_>| u64::from(n.count) == split.count && (1..=n.count).contains(&n.no);
    let Some(numbers) = Numbered::parse(name).filter(fits) else {
        let no = split.no.unwrap_or(0).saturating_add(1);
        let wants = format!(
            "a name as `NAME-{no:05}-of-{:05}.gguf`, by which the other parts are found",
            split.count
        );
        let fault = Fault::Missing { wants, found: Quoted(name).to_string() };
        return Err(part.metadata.problem(COUNT, fault).of(location));
    };
    let mut members = Members::of(folder);
    let mut part = Some(part);
    let (mut contents, mut metadata): (Vec<Contents>, Vec<GgufMetadata>) = (vec![], vec![]);
    for no in 1..=numbers.count {
        let name = numbers.part(no);
        let read = match part.take_if(|_| no == numbers.no) {
            Some(read) => Some(read),
            None => members.open(&name, other)?,
        };
        let Some(read) = read else { continue };
        let problems = misplaced(&read.metadata, no, numbers.count, metadata.first())?;
        for problem in problems {
            members.wrong(&name, problem);
        }
        contents.push(read.contents);
        metadata.push(read.metadata);
    }
    let complete = contents.len() == numbers.count as usize;
    let contents = Contents::join(contents, &mut members.problems);
    if let Some(first) = metadata.first().filter(|_| complete) {
        let found = contents.entries.len() as u64;
        // As there: of the first part only, so that one lie is one problem.
        if let Some(wants) = first.split()?.and_then(|s| s.tensors).filter(|wants| *wants != found) {
            let fault = Fault::Missing { wants: format!("{wants} tensors"), found: found.to_string() };
            members.wrong(&numbers.part(1), first.problem(TENSORS, fault));
        }
    }
    members.check()?;
    // All parts are there, and the first is one of them.
    let metadata = metadata.into_iter().next().ok_or_else(|| Error::whole(location, Fault::Empty))?;
    Ok(Read { contents, metadata })
}

/// Reads another part: an HTML page or a Git LFS pointer in its place is rejected as such.
fn other(file: OpenFile) -> Result<Read, Error> {
    match foreign::recognise(&file.head(super::super::HEAD)?) {
        Some(foreign) => Err(foreign.refuse(&file.location())),
        None => read(file),
    }
}

/// Returns the problems of a part that is `no` (from 1) of `count` by its name, and whose first part is `first`.
fn misplaced(
    metadata: &GgufMetadata,
    no: u32,
    count: u32,
    first: Option<&GgufMetadata>,
) -> Result<Vec<Problem>, Error> {
    let mut problems = vec![];
    let mut differs = |key, wants: String, found: Option<String>| {
        let found = found.unwrap_or_else(|| "none".to_owned());
        problems.push(metadata.problem(key, Fault::Missing { wants, found }));
    };
    let split = metadata.split()?;
    let (said, which) = (metadata.u64(COUNT)?, split.and_then(|s| s.no));
    let text = |n: Option<u64>| n.map(|n| n.to_string());
    if said == Some(count.into()) {
        if which.unwrap_or(0) != u64::from(no - 1) {
            differs(NO, format!("{}, one less than the name says", no - 1), text(which));
        }
    } else {
        differs(COUNT, format!("{count}, as the name says"), text(said));
    }
    if let (Some(wants), Some(found)) = (first.and_then(|f| f.get(ARCHITECTURE)), metadata.get(ARCHITECTURE))
        && wants != found
    {
        differs(ARCHITECTURE, format!("{wants}, as in the first part"), Some(found.to_string()));
    }
    Ok(problems)
}

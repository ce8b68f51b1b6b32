//! Which files of a directory hold the weights, and all of them as one.

use std::collections::BTreeSet;

use super::index::Index;
use super::ranks;
use crate::contents::Contents;
use crate::error::Error;
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::format::{self, FileContents};
use crate::members::Members;
use crate::numbered::Numbered;

/// How one kind of weight files is called.
struct WeightNames {
    /// The file that holds all weights. With `.index.json` appended, the index of weights in several files.
    whole: &'static str,
    /// How names end. The first that a directory has names of are the weights, if there is neither of the above.
    endings: &'static [Ending],
}

/// Names that start and end so.
struct Ending {
    start: &'static str,
    end: &'static str,
}

/// Every kind, the preferred one first.
///
/// The whole goes before an index, and safetensors before others, as in transformers 5 (modeling_utils.py,
/// `_get_resolved_checkpoint_files`). Where neither is there, mlx-lm takes `model*.safetensors` (utils.py,
/// `load_model`) and vLLM every `*.safetensors` (model_executor/model_loader/default_loader.py).
static KINDS: &[WeightNames] = &[
    WeightNames {
        whole: "model.safetensors",
        endings: &[Ending { start: "model", end: ".safetensors" }, Ending { start: "", end: ".safetensors" }],
    },
    // Other `.bin` files of a directory hold what training needs.
    WeightNames { whole: "pytorch_model.bin", endings: &[Ending { start: "pytorch_model", end: ".bin" }] },
];

/// Mistral's own copy of the same weights, beside the copy for transformers.
const CONSOLIDATED: &str = "consolidated";

/// The files with the weights.
struct Weights {
    /// Their names, sorted; some may be missing.
    names: BTreeSet<String>,
    index: Option<Index>,
}

/// The suffix of an index, appended to the name of the single file.
const INDEX: &str = ".index.json";

/// Whether a file called `name` is the index of a sharded checkpoint.
pub(crate) fn is_index(name: &str) -> bool {
    name.strip_suffix(INDEX).is_some_and(|whole| KINDS.iter().any(|kind| kind.whole == whole))
}

/// Opens the weights of a directory, and reports all that is wrong with them.
pub(super) fn open(folder: &Folder) -> Result<FileContents, Error> {
    let weights = find(folder)?;
    let ranks = if folder.is_of_all_ranks() {
        Some(ranks::of_all(folder, &weights.names)?)
    } else {
        ranks::of_one_rank(folder, &weights.names)?;
        None
    };
    let mut members = Members::of(folder);
    let (mut parts, mut pairs, mut opened) = (vec![], None, BTreeSet::new());
    let names: Vec<String> = weights.names.iter().cloned().collect();
    for (name, part) in names.iter().zip(members.open_all(&names, member)?) {
        if let Some(mut part) = part {
            part.contents.files.iter_mut().for_each(|file| name.clone_into(&mut file.name));
            opened.insert(name.as_str());
            // Each shard repeats them.
            pairs.get_or_insert(part.pairs);
            parts.push(match ranks {
                Some(_) => part.contents.prefixed(&ranks::prefix(name)),
                None => part.contents,
            });
        }
    }
    let contents = Contents::join(parts, &mut members.problems);
    if let Some(index) = &weights.index {
        index.check(&contents, &opened, &mut members.problems);
    }
    members.check()?;
    Ok(FileContents { contents, pairs: pairs.unwrap_or_default(), ranks })
}

/// Returns the tensors of a file. The format is determined by its content: a Git LFS pointer or an HTML page is
/// rejected as such.
fn member(file: OpenFile) -> Result<FileContents, Error> {
    let head = file.head(format::HEAD)?;
    format::of_file(&file.location(), file.file_name(), &head)?.part(file)
}

fn find(folder: &Folder) -> Result<Weights, Error> {
    for kind in KINDS {
        if folder.has(kind.whole) {
            return Ok(Weights { names: BTreeSet::from([kind.whole.to_owned()]), index: None });
        }
        let name = format!("{}{INDEX}", kind.whole);
        if folder.has(&name) {
            let index = Index::read(folder, &name)?;
            return Ok(Weights { names: index.files(), index: Some(index) });
        }
    }
    let found = KINDS.iter().flat_map(|kind| kind.endings).find_map(|ending| ending.names(folder));
    found.map(|names| Weights { names, index: None }).ok_or_else(|| nothing(folder))
}

impl Ending {
    /// Returns the names in `folder`, if there are any, and the names of missing parts.
    fn names(&self, folder: &Folder) -> Option<BTreeSet<String>> {
        let mut names = folder.ending(self.end);
        names.retain(|n| n.starts_with(self.start));
        if names.iter().any(|n| !n.starts_with(CONSOLIDATED)) {
            names.retain(|n| !n.starts_with(CONSOLIDATED));
        }
        let parts: Vec<_> = names.iter().filter_map(|n| Numbered::parse(n)).collect();
        let mut all: BTreeSet<String> = names.iter().map(|n| (*n).to_owned()).collect();
        for whole in parts.chunk_by(Numbered::same_whole).filter_map(<[_]>::first) {
            // More than a directory may have are never there: their number need not be known.
            all.extend((1..=whole.count.min(Folder::MOST)).map(|no| whole.part(no)));
        }
        (!all.is_empty()).then_some(all)
    }
}

/// The error for a directory without weights that are read.
fn nothing(folder: &Folder) -> Error {
    let refuse = |fault| Error::whole(folder.location(), fault);
    let pickles = [".bin", ".pt", ".pth"].map(|suffix| folder.ending(suffix)).concat();
    if let Some(name) = pickles.first() {
        let wants = "`model.safetensors` or `pytorch_model.bin` beside `config.json`".to_owned();
        let hint = format!("name the file itself: `{}`", folder.location_of(name));
        return refuse(Fault::Missing { wants, found: folder.describe() }).with_hint(hint);
    }
    let wants = "`model.safetensors` or `pytorch_model.bin` beside `config.json`".to_owned();
    refuse(Fault::Missing { wants, found: folder.describe() })
}

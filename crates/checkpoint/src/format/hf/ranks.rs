//! Files of tensors that are cut already, one set for each rank of a mesh, as vLLM has them.
//!
//! Source: vllm/model_executor/model_loader/sharded_state_loader.py, v0.33.0.

use std::collections::BTreeSet;
use std::fmt;

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::folder::Folder;
use crate::format::safetensors;
use crate::write::{DraftFile, Outgoing, shards};

/// The name of a file.
///
/// Source: `TP_ONLY_PATTERN`, and where the layers are shared by several stages `PP_AND_TP_PATTERN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    /// The stage, if there are several.
    stage: Option<usize>,
    /// The rank within the stage.
    rank: usize,
    part: usize,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { stage, rank, part } = self;
        match stage {
            None => write!(f, "model-rank-{rank}-part-{part}.safetensors"),
            Some(stage) => write!(f, "model-pp-{stage}-tp-{rank}-part-{part}.safetensors"),
        }
    }
}

impl Name {
    fn parse(name: &str) -> Option<Name> {
        let (ranks, part) =
            name.strip_prefix("model-")?.strip_suffix(".safetensors")?.split_once("-part-")?;
        let (stage, rank) = match ranks.strip_prefix("pp-") {
            Some(ranks) => ranks.split_once("-tp-").map(|(stage, rank)| (Some(stage), rank))?,
            None => (None, ranks.strip_prefix("rank-")?),
        };
        let stage = stage.map(str::parse).transpose().ok()?;
        Some(Name { stage, rank: rank.parse().ok()?, part: part.parse().ok()? })
    }
}

/// The files of tensors, each stage's after the one before: of each of its ranks, how many are its own.
///
/// Source: `save_model`, which begins a part where the one before would be longer than `max_size`, 5 GiB.
pub(crate) fn rank_parts(
    tensors: &[Outgoing],
    stages: &[Vec<usize>],
    most: Option<u64>,
) -> Result<Vec<DraftFile>, Error> {
    let bytes = |t: &Outgoing| t.scheme.byte_len(&t.shape).unwrap_or(u64::MAX);
    let (mut parts, mut start) = (vec![], 0usize);
    for (stage, counts) in stages.iter().enumerate() {
        let stage = (stages.len() > 1).then_some(stage);
        for (rank, count) in counts.iter().enumerate() {
            let end = start.saturating_add(*count).min(tensors.len());
            let own = tensors.get(start..end).unwrap_or_default();
            let sizes: Vec<u64> = own.iter().map(bytes).collect();
            let cut = shards::in_order(&sizes, most.unwrap_or(5 << 30));
            for (part, members) in cut.into_iter().enumerate() {
                let held = own.get(members.clone()).unwrap_or_default();
                let flat = safetensors::form(held, &[], true, safetensors::AS_REFERENCE)?;
                let name = Name { stage, rank, part }.to_string();
                parts.push(DraftFile { name, tensors: members.map(|i| start + i).collect(), flat });
            }
            start = end;
        }
    }
    Ok(parts)
}

/// The ranks whose files a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankFiles {
    /// Stages that run the layers one after the other.
    pub stages: usize,
    /// Ranks that share each layer.
    pub ranks: usize,
}

/// Returns the ranks of the files called `names`. No rank may be missing.
///
/// # Errors
/// If some file is not a rank's, and for each rank without a file.
pub(super) fn of_all(folder: &Folder, names: &BTreeSet<String>) -> Result<RankFiles, Error> {
    let files: BTreeSet<(usize, usize)> =
        names.iter().filter_map(|name| Name::parse(name)).map(|n| (n.stage.unwrap_or(0), n.rank)).collect();
    let most =
        |of: fn(&(usize, usize)) -> usize| files.iter().map(of).max().map_or(0, |n| n.saturating_add(1));
    let found = RankFiles { stages: most(|f| f.0), ranks: most(|f| f.1) };
    let named = names.iter().filter(|name| Name::parse(name).is_none());
    if let Some(other) = named.take(1).next().or_else(|| names.first().filter(|_| files.is_empty())) {
        let wants = "files of vLLM's ranks, such as `model-rank-0-part-0.safetensors`".to_owned();
        return Err(Error::whole(folder.location(), Fault::Missing { wants, found: format!("`{other}`") }));
    }
    let mut problems = Problems::default();
    // Names are many at most; a number in one of them may be anything.
    let wanted = (0..found.stages).flat_map(|stage| (0..found.ranks).map(move |rank| (stage, rank)));
    for (stage, rank) in wanted.filter(|at| !files.contains(at)).take(8) {
        let stage = (found.stages > 1).then_some(stage);
        let name = Name { stage, rank, part: 0 }.to_string();
        problems.push(Problem { at: None, subject: Subject::Whole, fault: Fault::Absent { name } });
    }
    problems.check(folder.location())?;
    Ok(found)
}

/// The prefix of the names of all tensors in the file called `name`.
pub(super) fn prefix(name: &str) -> String {
    Name::parse(name).map_or(String::new(), |name| format!("{}.{}.", name.stage.unwrap_or(0), name.rank))
}

/// Checks that the files called `names` are not those of several ranks of a stage, which hold tensors of the same
/// names.
pub(super) fn of_one_rank<'n>(
    folder: &Folder,
    names: impl IntoIterator<Item = &'n String>,
) -> Result<(), Error> {
    let files: Vec<Name> = names.into_iter().filter_map(|name| Name::parse(name)).collect();
    let count = |of: fn(&Name) -> usize| files.iter().map(of).collect::<BTreeSet<_>>().len();
    let (stages, ranks) = (count(|name| name.stage.unwrap_or(0)), count(|name| name.rank));
    let Some(first) = files.first().filter(|_| ranks > 1) else { return Ok(()) };
    let of = if stages > 1 { format!(" in each of {stages} stages") } else { String::new() };
    let what = format!("holds what each of {ranks} ranks of vLLM{of} has of a model, under the same names");
    let first = folder.location_of(&first.to_string());
    let hint = format!("open the file of one rank: `{first}`; or, to load the model, what it was made from");
    Err(Error::whole(folder.location(), Fault::Unsupported { what }).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_vllm() {
        for (text, name) in [
            ("model-rank-3-part-0.safetensors", Name { stage: None, rank: 3, part: 0 }),
            ("model-pp-1-tp-12-part-2.safetensors", Name { stage: Some(1), rank: 12, part: 2 }),
        ] {
            assert_eq!((name.to_string().as_str(), Name::parse(text)), (text, Some(name)));
        }
        for other in [
            "model.safetensors",
            "model-00001-of-00002.safetensors",
            "model-rank-3.safetensors",
            "model-rank-x-part-0.safetensors",
            "model-pp-1-part-0.safetensors",
            "model-pp-1-rank-0-part-0.safetensors",
            "model-rank-0-part-0.bin",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}

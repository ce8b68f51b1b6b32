//! `plan --json`.

use serde::Serialize;
use weighbridge::load::Needs;
use weighbridge::{Mesh as Divided, Plan as Planned};

use super::Key;
use super::shared::{Absent, Dropped};

/// What `weighbridge plan --json` prints of one rank.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Plan<'a> {
    pub(crate) path: String,
    /// The family of the model; null if tensors are taken as stored.
    pub(crate) family: Option<&'static str>,
    /// Whose names the entries have; null if tensors are taken as stored.
    pub(crate) dialect: Option<String>,
    pub(crate) layout: &'static str,
    pub(crate) mesh: Mesh,
    /// The same for the same headers, layout, mesh and encoding, on every machine.
    pub(crate) digest: String,
    /// Bytes of the files that some parameter is made of.
    pub(crate) bytes_needed: u64,
    /// Bytes taken from files, with what lies in gaps that are read along.
    pub(crate) bytes_read: u64,
    /// Those of them that are copied out of a map.
    pub(crate) bytes_from_map: u64,
    /// Bytes that can stay in the map.
    pub(crate) bytes_borrowable: u64,
    /// Bytes that do stay there.
    pub(crate) bytes_borrowed: u64,
    /// Bytes moved as they are.
    pub(crate) bytes_copied: u64,
    /// Bytes that entries are decoded or encoded to before they can be moved.
    pub(crate) bytes_decoded: u64,
    /// Bytes written by a codec.
    pub(crate) bytes_encoded: u64,
    /// Bytes allocated for parameters.
    pub(crate) bytes_owned: u64,
    /// Bytes of all parameters.
    pub(crate) bytes_in_slots: u64,
    /// The number of reads.
    pub(crate) reads: usize,
    pub(crate) read_bytes: Sizes,
    pub(crate) threads: usize,
    /// Bytes of buffers at most, all threads together.
    pub(crate) scratch_bytes: u64,
    /// The least limit on buffers with which it can be done.
    pub(crate) scratch_bytes_least: u64,
    /// Whether it fits into the memory that was asked about; null if none was.
    pub(crate) memory: Option<Fits<'a>>,
    /// Entries that no parameter is made from.
    pub(crate) dropped: Vec<Dropped<'a>>,
    /// Parameters that are not there, and may be absent.
    pub(crate) absent: Vec<Absent<'a>>,
    /// Every key of the checkpoint beside its tensors; null if tensors are taken as stored.
    pub(crate) keys: Option<Vec<Key<'a>>>,
    pub(crate) params: Vec<Param<'a>>,
}

/// How a model is divided, and which rank this is.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Mesh {
    /// Ranks that share each layer.
    tp: u64,
    /// Stages that the layers are dealt to.
    pp: u64,
    /// Groups that the experts are dealt to.
    ep: u64,
    /// Counted from 0.
    rank: u64,
}

/// How long reads are, in bytes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sizes {
    smallest: u64,
    median: u64,
    largest: u64,
}

/// A parameter as it will be in memory.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Param<'a> {
    name: &'a str,
    shape: Vec<u64>,
    /// Its encoding in memory.
    scheme: &'a str,
    /// The encoding in which its bytes are moved.
    moved_as: &'a str,
    /// The number of pieces that are moved.
    pieces: usize,
    /// Whether it can stay in the map.
    borrowable: bool,
    /// The parameter whose bytes it shares; null if it has its own.
    tied_to: Option<&'a str>,
}

/// Whether a load fits into memory.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fits<'a> {
    /// The memory that was asked about.
    pub(crate) bytes: u64,
    pub(crate) fits: bool,
    /// Positions whose keys and values are counted; null if none are.
    pub(crate) positions: Option<u64>,
    /// With parameters in memory of their own; null if that was not looked at.
    pub(crate) owned: Option<MemoryUse<'a>>,
    /// With parameters that stay in the map; null if that was not looked at.
    pub(crate) borrowed: Option<MemoryUse<'a>>,
    /// The least division that would fit; null if none is needed, or none was found.
    pub(crate) shared: Option<Shared<'a>>,
}

/// The memory of one way of loading.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MemoryUse<'a> {
    pub(crate) fits: bool,
    pub(crate) bytes_owned: u64,
    /// Bytes of keys and values.
    pub(crate) cache_bytes: u64,
    pub(crate) bytes_borrowed: u64,
    /// Bytes of buffers within the limit; null if it does not fit.
    pub(crate) scratch_bytes: Option<u64>,
    /// Bytes of buffers without a limit.
    pub(crate) scratch_bytes_unlimited: u64,
    /// The least limit on buffers with which it can be done.
    pub(crate) scratch_bytes_least: u64,
    /// The parameter that takes the most buffers.
    pub(crate) neediest: Option<&'a str>,
}

/// The first rank's share of a division that fits.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shared<'a> {
    /// Ranks that share each layer.
    pub(crate) tp: u64,
    /// Whether parameters are in memory of their own.
    pub(crate) owned: bool,
    #[serde(flatten)]
    pub(crate) memory: MemoryUse<'a>,
}

/// What `weighbridge plan --all-ranks --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ranks<'a> {
    pub(crate) ranks: Vec<Rank>,
    /// Bytes of all tensors.
    pub(crate) bytes_stored: u64,
    /// Bytes that the ranks need, together.
    pub(crate) bytes_needed: u64,
    /// Bytes that the ranks take of the files, together.
    pub(crate) bytes_taken: u64,
    /// Tensors that several ranks take.
    pub(crate) replicated: Vec<Replicated<'a>>,
    /// Bytes that no rank takes; null unless it was asked for with `--verify`.
    pub(crate) untaken: Option<Vec<Untaken<'a>>>,
}

/// What one rank reads and holds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rank {
    /// Counted from 0.
    pub(crate) rank: u64,
    /// Its place among the ranks that share a layer.
    pub(crate) tp: u64,
    /// Its stage.
    pub(crate) pp: u64,
    /// Its group of experts.
    pub(crate) ep: u64,
    /// The number of parameters.
    pub(crate) params: usize,
    pub(crate) bytes_in_slots: u64,
    pub(crate) bytes_needed: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_from_map: u64,
    pub(crate) bytes_borrowed: u64,
    pub(crate) bytes_owned: u64,
    /// The number of reads.
    pub(crate) reads: usize,
    pub(crate) scratch_bytes: u64,
    /// Bytes of zeros that make shares equal.
    pub(crate) bytes_padding: u64,
}

/// Tensors that several ranks take.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Replicated<'a> {
    pattern: &'a str,
    /// The number of entries.
    entries: usize,
    /// Bytes that are taken more than once, the first time not counted.
    bytes: u64,
}

/// Bytes that no rank takes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Untaken<'a> {
    entry: &'a str,
    plane: &'a str,
    /// The first of them; null if shares overlap too finely to tell.
    byte: Option<u64>,
}

impl Mesh {
    pub(crate) fn of(mesh: &Divided, rank: u64) -> Mesh {
        Mesh { tp: mesh.tp, pp: mesh.pp, ep: mesh.ep, rank }
    }
}

impl Sizes {
    pub(crate) fn of(needs: &Needs) -> Sizes {
        let reads = &needs.reads;
        Sizes { smallest: reads.smallest, median: reads.median, largest: reads.largest }
    }
}

impl<'a> Param<'a> {
    pub(crate) fn all(planned: &'a Planned) -> Vec<Param<'a>> {
        let params = planned.params();
        let of = |p: &'a weighbridge::plan::PlannedParam| Param {
            name: &p.name,
            shape: p.shape.to_vec(),
            scheme: &p.scheme.name,
            moved_as: &p.moved.name,
            pieces: p.planes.iter().map(|plane| plane.copy.len()).sum(),
            borrowable: p.borrowable(),
            tied_to: p.tied_to.map(|i| params[i].name.as_str()),
        };
        params.iter().map(of).collect()
    }
}

impl<'a> From<&'a weighbridge::plan::Replicated> for Replicated<'a> {
    fn from(r: &'a weighbridge::plan::Replicated) -> Replicated<'a> {
        Replicated { pattern: &r.pattern, entries: r.entries, bytes: r.bytes }
    }
}

impl<'a> From<&'a weighbridge::plan::Untaken> for Untaken<'a> {
    fn from(u: &'a weighbridge::plan::Untaken) -> Untaken<'a> {
        Untaken { entry: &u.entry, plane: u.plane, byte: u.byte }
    }
}

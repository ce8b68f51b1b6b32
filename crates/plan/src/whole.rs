//! The other side of the proof: all ranks together use every byte of a checkpoint.
//!
//! Each plan alone is proved to write all of its slots. Here the pieces of all plans are read right to left: together
//! they must take every byte of each source plane. Bytes that several ranks take are replicated, and counted.

use std::collections::{BTreeMap, HashMap, HashSet};

use tensor::{Pattern, TensorEntry};

use crate::compile::{LoadPlan, PlannedParam};
use crate::piece::{Dim, Piece, PieceSource, PlannedPlane};
use crate::prove::prove;
use crate::reads::{Read, coalesce};

/// Runs that are looked at one by one where shares overlap.
const RUNS: u64 = 1 << 22;

/// The bytes of a checkpoint that the plans of all ranks take.
#[derive(Debug, Default)]
pub struct Whole {
    planes: HashMap<PieceSource, Taken>,
    dropped: HashSet<String>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The distinct boxes that are taken.
    boxes: HashSet<Piece>,
    /// Bytes, as often as they are taken.
    bytes: u64,
}

/// A plane of which all ranks together leave bytes untaken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untaken {
    /// The entry.
    pub entry: String,
    /// Role of the plane.
    pub plane: &'static str,
    /// The first byte of the plane that no rank takes; `None` if shares overlap too finely to tell.
    pub byte: Option<u64>,
    /// Bytes of the plane.
    pub bytes: u64,
}

/// The entries that several ranks take, by pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// The pattern.
    pub pattern: String,
    /// Entries of it.
    pub entries: usize,
    /// Bytes that are taken more than once, the first time not counted.
    pub bytes: u64,
}

impl Whole {
    /// Adds what one rank takes.
    pub fn add(&mut self, plan: &LoadPlan) {
        self.dropped.extend(plan.dropped.iter().map(|(entry, _)| entry.clone()));
        for piece in plan
            .params
            .iter()
            .flat_map(PlannedParam::from_entries)
            .flat_map(|p| p.copy.iter().chain(&p.equal))
        {
            let Some(source) = piece.source else { continue };
            let taken = self.planes.entry(source).or_default();
            let distinct = |d: &&Dim| d.source_stride > 0;
            let dims: Vec<Dim> = piece.dims.iter().filter(distinct).copied().collect();
            // A repeat takes its bytes once.
            let once = Piece { dims, ..piece.clone() };
            let Some(back) = once.reversed() else { continue };
            taken.bytes += back.bytes();
            // Where it goes in a rank's own slot does not matter here.
            let dims = back.dims.iter().map(|d| Dim { source_stride: d.target_stride, ..*d }).collect();
            taken.boxes.insert(Piece { source_offset: 0, dims, ..back });
        }
    }

    /// Returns the planes with bytes that no rank takes, for entries that may not be dropped. For an entry with strides
    /// of its own, only checks whether it is taken at all.
    pub fn untaken(&self, entries: &[TensorEntry]) -> Vec<Untaken> {
        let mut untaken = vec![];
        for (i, entry) in entries.iter().enumerate().filter(|(_, e)| !self.dropped.contains(&e.name)) {
            for (n, (spec, data)) in entry.scheme.planes.iter().zip(&entry.planes).enumerate() {
                let bytes = data.bytes.end - data.bytes.start;
                let taken = self.planes.get(&PieceSource { entry: i, plane: n });
                let byte = match taken {
                    _ if bytes == 0 => None,
                    None => Some(Some(0)),
                    Some(_) if entry.strides.is_some() => None,
                    Some(taken) => taken.first_gap(spec.role, bytes),
                };
                untaken.extend(byte.map(|byte| Untaken {
                    entry: entry.name.clone(),
                    plane: spec.role,
                    byte,
                    bytes,
                }));
            }
        }
        untaken
    }

    /// Bytes that are taken, each counted once (but where shares overlap, which they hardly do).
    pub fn bytes(&self) -> u64 {
        self.planes.values().flat_map(|taken| &taken.boxes).map(Piece::bytes).sum()
    }

    /// Bytes that are taken of each of the first `count` entries, counted as [`Whole::bytes`] counts them.
    pub fn taken(&self, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; count];
        for (source, taken) in &self.planes {
            if let Some(sum) = bytes.get_mut(source.entry) {
                *sum += taken.boxes.iter().map(Piece::bytes).sum::<u64>();
            }
        }
        bytes
    }

    /// The entries that several ranks take, most bytes first.
    pub fn replicated(&self, entries: &[TensorEntry]) -> Vec<Replicated> {
        let mut groups: BTreeMap<String, (HashSet<usize>, u64)> = BTreeMap::new();
        for (source, taken) in &self.planes {
            let bytes: u64 = taken.boxes.iter().map(Piece::bytes).sum();
            let more = taken.bytes.saturating_sub(bytes);
            if more > 0 {
                let group = groups.entry(Pattern::of(&entries[source.entry].name).to_string()).or_default();
                group.0.insert(source.entry);
                group.1 += more;
            }
        }
        let mut replicated: Vec<Replicated> = groups
            .into_iter()
            .map(|(pattern, (entries, bytes))| Replicated { pattern, entries: entries.len(), bytes })
            .collect();
        replicated.sort_by_key(|r| std::cmp::Reverse(r.bytes));
        replicated
    }
}

impl Taken {
    /// The first byte that is not taken of a plane of `bytes` bytes, if there is one; `Some(None)` if that is not known.
    #[expect(clippy::option_option, reason = "a gap that is known, one that is not, or none")]
    fn first_gap(&self, role: &'static str, bytes: u64) -> Option<Option<u64>> {
        let plane = PlannedPlane { role, bytes, copy: self.boxes.iter().cloned().collect(), equal: vec![] };
        if prove(&plane).is_ok() {
            return None;
        }
        // Some bytes are taken by ranks whose shares overlap: the union is what counts.
        let runs = |p: &Piece| p.bytes() / p.run.max(1);
        if self.boxes.iter().map(runs).sum::<u64>() > RUNS {
            return Some(None);
        }
        let mut ranges: Vec<Read> = vec![];
        for piece in &self.boxes {
            piece_runs(piece, &mut ranges);
        }
        let mut next = 0;
        for read in coalesce(ranges, 0, 0) {
            if read.range.start > next {
                break;
            }
            next = next.max(read.range.end);
        }
        (next < bytes).then_some(Some(next))
    }
}

/// The runs that a piece, right to left, takes of its plane.
fn piece_runs(back: &Piece, out: &mut Vec<Read>) {
    back.runs(|_, at| out.push(Read { file: tensor::FileId(0), range: at..at + back.run }));
}

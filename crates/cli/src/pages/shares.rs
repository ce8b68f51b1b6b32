//! What each rank takes of a checkpoint, by groups of entries that are alike but for numbers in their names.

use std::cmp::Reverse;

use weighbridge::plan::{LoadPlan, Piece, PlannedParam, Whole};
use weighbridge::tensor::Pattern;
use weighbridge::{Plan, TensorEntry};

use super::groups::{Group, merged, of_entries};

/// Groups that are told apart; the smallest of more are one.
const MOST: usize = 36;
/// Parts of a group along its entries, at most: layers that one stage has and another has not.
const BINS: usize = 24;
/// Ranks that have a row of their own.
pub(super) const ROWS: usize = 128;

/// What the ranks take.
pub(crate) struct Shares<'a> {
    entries: &'a [TensorEntry],
    pub(super) columns: Vec<Column>,
    /// For each entry its column and the part of that.
    place: Vec<(usize, usize)>,
    pub(super) rows: Vec<RankRow>,
    /// What the ranks beyond those in `rows` take, all together.
    pub(super) more: usize,
    /// For each column, the place of the parameter that it was first needed for.
    order: Vec<usize>,
}

/// A group of entries, and what all ranks together take of it.
pub(super) struct Column {
    pub(super) group: Group,
    /// Bytes of each part.
    pub(super) bins: Vec<u64>,
    /// Bytes that the ranks take, those that several take counted as often.
    pub(super) taken: Vec<u64>,
}

/// What one rank takes.
pub(super) struct RankRow {
    pub(super) label: String,
    pub(super) held: u64,
    pub(super) taken: u64,
    pub(super) reads: usize,
    /// For each column, what is taken of each part.
    pub(super) cells: Vec<Vec<Share>>,
}

/// What a rank takes of a part.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) bytes: u64,
    /// Where in the entries that begins, 0 to 1, as a sum over entries.
    start: f64,
    entries: u32,
}

impl Share {
    /// Where in the entries it begins, 0 to 1.
    pub(super) fn start(self) -> f64 {
        self.start / f64::from(self.entries.max(1))
    }
}

impl<'a> Shares<'a> {
    pub(crate) fn new(entries: &'a [TensorEntry]) -> Shares<'a> {
        let (of, groups) = of_entries(entries);
        let (map, groups) = merged(groups, MOST, Group::and);
        let mut members: Vec<Vec<usize>> = vec![vec![]; groups.len()];
        for (entry, group) in of.into_iter().enumerate() {
            members[map[group]].push(entry);
        }
        let mut place = vec![(0, 0); entries.len()];
        let mut columns = vec![];
        for (column, (group, mut members)) in groups.into_iter().zip(members).enumerate() {
            members.sort_by_cached_key(|entry| numbers(&entries[*entry].name));
            let count = members.len().min(BINS);
            let mut bins = vec![0; count];
            for (i, entry) in members.iter().enumerate() {
                let bin = i * count / members.len();
                bins[bin] += entries[*entry].byte_len();
                place[*entry] = (column, bin);
            }
            columns.push(Column { group, taken: vec![0; count], bins });
        }
        let order = vec![usize::MAX; columns.len()];
        Shares { entries, columns, place, rows: vec![], more: 0, order }
    }

    /// Adds what the next rank holds and takes, in bytes.
    pub(crate) fn add(&mut self, label: String, plan: &Plan, [held, taken]: [u64; 2], reads: usize) {
        let mut whole = Whole::default();
        whole.add(plan.pieces());
        let mut cells: Vec<Vec<Share>> =
            self.columns.iter().map(|c| vec![Share::default(); c.bins.len()]).collect();
        let starts = self.starts(plan.pieces());
        for (entry, bytes) in whole.taken(self.entries.len()).into_iter().enumerate() {
            let (column, bin) = self.place[entry];
            self.columns[column].taken[bin] += bytes;
            let share = &mut cells[column][bin];
            if bytes > 0 {
                share.bytes += bytes;
                share.entries += 1;
                share.start += if bytes < self.entries[entry].byte_len() { starts[entry] } else { 0.0 };
            }
        }
        if self.rows.len() < ROWS {
            self.rows.push(RankRow { label, held, taken, reads, cells });
        } else {
            self.more += 1;
        }
    }

    /// Where in each entry the plan begins to take of it, 0 to 1; notes what the columns are needed for.
    fn starts(&mut self, plan: &LoadPlan) -> Vec<f64> {
        let mut starts = vec![f64::INFINITY; self.entries.len()];
        for (i, param) in plan.params.iter().enumerate() {
            for piece in PlannedParam::from_entries(param).flat_map(|plane| &plane.copy) {
                let Some(source) = piece.source else { continue };
                let data = &self.entries[source.entry].planes[source.plane];
                let start = start(piece, data.bytes.end - data.bytes.start);
                starts[source.entry] = starts[source.entry].min(start);
                let order = &mut self.order[self.place[source.entry].0];
                *order = (*order).min(i);
            }
        }
        starts.into_iter().map(|start| if start.is_finite() { start } else { 0.0 }).collect()
    }

    /// The columns in the order of what is made from them.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|column| (self.order[*column], Reverse(self.columns[*column].group.bytes)));
        order
    }
}

/// Where a piece begins in a plane of `bytes` bytes, from 0 to 1; of a piece spread over the whole plane, within its steps.
fn start(piece: &Piece, bytes: u64) -> f64 {
    let widest = piece.dims.iter().max_by_key(|dim| dim.source_stride);
    let over = |dim: &&weighbridge::plan::Dim| {
        dim.source_stride > 0 && dim.extent.saturating_mul(dim.source_stride) >= bytes
    };
    match widest.filter(over) {
        Some(dim) => (piece.source_offset % dim.source_stride) as f64 / dim.source_stride as f64,
        None => piece.source_offset as f64 / bytes.max(1) as f64,
    }
}

/// The numbers in a name, in its order.
fn numbers(name: &str) -> Vec<u64> {
    let whole = |segment: &str| Pattern::of(segment).as_str() == "{n}";
    name.split('.').filter(|s| whole(s)).map(|s| s.parse().unwrap_or(u64::MAX)).collect()
}

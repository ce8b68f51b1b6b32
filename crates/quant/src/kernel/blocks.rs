//! Products of block schemes: over groups of rows, interleaved as they lie or on the way.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::activations::{Activations, TILE};
use crate::columns::ColumnsMut;
use crate::interleave::{Packed, RECORD_MAX, ROWS_MAX, Record};
use crate::isa::Isa;
use crate::lanes::{Lanes, for_lanes};
use crate::repack;

use super::unit::unit;

/// One product, its sizes checked.
pub(super) struct Job<'a> {
    /// The whole matrix.
    pub(super) w: &'a [u8],
    /// Its rows.
    pub(super) total: usize,
    /// Its columns.
    pub(super) k: usize,
    /// The rows to multiply, which are the columns of `y`.
    pub(super) rows: Range<usize>,
    /// As many columns as `w`, in the form that the kernel wants.
    pub(super) x: &'a Activations,
    /// A row for each row of `x`.
    pub(super) y: ColumnsMut<'a>,
}

for_lanes! {
    /// Adds the products of the blocks `blocks` of some groups of rows to what the blocks before them gave.
    ///
    /// # Safety
    /// There are at most [`STREAMS`] groups. Their units are there for all of `blocks`, which begin with a unit,
    /// and their places are in `job`.
    pub(super) fn accumulate_of<S: Packed>(job: &mut Job<'_>, groups: &[Group], blocks: Range<usize>) = accumulate
}

/// Groups that are read at once where one row of activations is multiplied, which is bound by memory: a core
/// fetches two streams faster than one.
const STREAMS: usize = 2;

/// A group of rows.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Its units.
    units: *const u8,
    /// Where its results go: `lanes` of its rows, from row `lane` on, are columns of `y` from `column` on.
    column: usize,
    lane: usize,
    lanes: usize,
}

/// How to multiply a block scheme: its layout, and the functions compiled for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    record: Record,
    /// Elements and bytes of a stored block.
    per: usize,
    bytes: usize,
    /// Rows in a group.
    r: usize,
    pack: repack::Pack,
    accumulate: unsafe fn(&mut Job<'_>, &[Group], Range<usize>),
}

/// Room for units that are made on the way: a part of the first-level cache.
#[repr(align(64))]
struct Scratch(MaybeUninit<[u8; SCRATCH]>);
const SCRATCH: usize = 16 << 10;
/// Units made at once for a single row of activations, which has no use for more.
const FEW: usize = 4;

impl Blocks {
    pub(super) fn of<S: Packed>(isa: Isa, r: usize) -> Blocks {
        const { assert!(S::VECTORS * 64 * FEW <= SCRATCH) };
        Blocks {
            record: Record::of::<S>(),
            per: S::PER,
            bytes: S::BYTES,
            r,
            pack: repack::pack_of(isa, r),
            accumulate: accumulate_of::<S>(isa, r),
        }
    }

    /// Bytes of one unit.
    fn unit_bytes(&self) -> usize {
        self.record.vectors * 4 * self.r
    }

    /// Multiplies an interleaved matrix. With one row of activations it reads two groups at once, half of the
    /// rows apart.
    ///
    /// # Safety
    /// The instructions are there; `job.w` holds `total` rows in groups, `rows` are whole groups, and the
    /// columns are whole units.
    pub(super) unsafe fn interleaved(&self, job: &mut Job<'_>) {
        let blocks = job.k / 32;
        let group_bytes = job.k / self.record.unit * self.unit_bytes();
        let (w, start, r) = (job.w, job.rows.start, self.r);
        let group = |row: usize| Group {
            units: w[(start + row) / r * group_bytes..][..group_bytes].as_ptr(),
            column: row,
            lane: 0,
            lanes: r,
        };
        let rows = job.rows.len();
        let half = if job.x.rows() == 1 { rows / (2 * r) * r } else { 0 };
        for row in (0..half).step_by(r) {
            // SAFETY: the groups have units for all blocks, and their rows are ours.
            unsafe { (self.accumulate)(job, &[group(row), group(half + row)], 0..blocks) }
        }
        for row in (2 * half..rows).step_by(r) {
            // SAFETY: as above.
            unsafe { (self.accumulate)(job, &[group(row)], 0..blocks) }
        }
    }

    /// Multiplies a matrix as stored. Interleaves each group of rows into a scratch buffer that stays in the
    /// cache, a few units at a time, and multiplies there. Where a group is not wholly there, or a unit is not,
    /// it is filled up with zeros first. So a row's result does not depend on which others are asked for
    /// with it, and is what the interleaved form gives.
    ///
    /// # Safety
    /// The instructions are there; `job.w` holds `total` rows of `k` columns, which are whole blocks.
    pub(super) unsafe fn stored(&self, job: &mut Job<'_>) {
        let Blocks { record, r, .. } = *self;
        let (unit_bytes, unit_blocks) = (self.unit_bytes(), record.unit / 32);
        let stride = job.k / self.per * self.bytes;
        let blocks = job.k / 32;
        let chunk = if job.x.rows() == 1 { FEW } else { SCRATCH / unit_bytes };
        let mut scratch = Scratch(MaybeUninit::uninit());
        let scratch = scratch.0.as_mut_ptr().cast::<u8>();
        let mut padded = [0; ROWS_MAX * RECORD_MAX];
        let padded = &mut padded[..r * record.stored];

        let rows = job.rows.clone();
        for group in (rows.start / r * r..rows.end).step_by(r) {
            let first = group.max(rows.start);
            let lanes = (group + r).min(rows.end) - first;
            let place = Group { units: scratch, column: first - rows.start, lane: first - group, lanes };
            let w = &job.w[group * stride..];
            let whole = if group + r <= job.total { blocks / unit_blocks } else { 0 };
            let mut u = 0;
            while u * unit_blocks < blocks {
                let n = if u < whole { chunk.min(whole - u) } else { 1 };
                if u < whole {
                    // SAFETY: `w` has `r` rows of `stride` bytes, each with the records `u..u + n`, and that
                    // many units fit in the scratch buffer.
                    unsafe {
                        let from = w.as_ptr().add(u * record.stored);
                        let next = w.as_ptr().wrapping_add(r * (stride + u * record.stored));
                        (self.pack)(&record, from, stride, n, scratch, next);
                    }
                } else {
                    padded.fill(0);
                    for (row, padded) in
                        w.chunks_exact(stride).take(r).zip(padded.chunks_exact_mut(record.stored))
                    {
                        let row = &row[u * record.stored..];
                        let n = row.len().min(record.stored);
                        padded[..n].copy_from_slice(&row[..n]);
                    }
                    // SAFETY: `padded` has the records of `r` rows, and one unit fits in the scratch buffer.
                    unsafe { (self.pack)(&record, padded.as_ptr(), record.stored, 1, scratch, w.as_ptr()) }
                }
                let here = u * unit_blocks..((u + n) * unit_blocks).min(blocks);
                // SAFETY: the scratch buffer holds units for these blocks, and its rows are ours.
                unsafe { (self.accumulate)(job, &[place], here) }
                u += n;
            }
        }
    }
}

/// How far ahead of the arithmetic to ask for memory, in bytes: about what arrives in the time of one miss.
const AHEAD: usize = 4096;

/// # Safety
/// As [`Lanes`] and [`accumulate_of`].
#[inline(always)]
unsafe fn accumulate<V: Lanes, S: Packed>(job: &mut Job<'_>, groups: &[Group], blocks: Range<usize>) {
    let rows = job.x.rows();
    let tiled = rows / TILE * TILE;
    for t in (0..tiled).step_by(TILE) {
        for group in groups {
            // SAFETY: as this function.
            unsafe { tile::<V, S, TILE, 1>(job, std::array::from_ref(group), blocks.clone(), t) }
        }
    }
    for t in tiled..rows {
        // SAFETY: as this function.
        unsafe { tile::<V, S, 1, STREAMS>(job, groups, blocks.clone(), t) }
    }
}

/// [`accumulate`] of at most `G` groups for the `NT` rows of activations from `t` on.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn tile<V: Lanes, S: Packed, const NT: usize, const G: usize>(
    job: &mut Job<'_>,
    groups: &[Group],
    blocks: Range<usize>,
    t: usize,
) {
    let unit_bytes = S::VECTORS * 4 * V::N;
    let x = job.x.tile::<NT>(t);
    assert!(blocks.end <= x.blocks() && groups.len() <= G);
    // SAFETY: as `accumulate`; loads and stores of floats are of arrays and slices of at least `V::N`.
    unsafe {
        let mut acc = [[V::splat_f(0.0); NT]; G];
        if blocks.start > 0 {
            for (&Group { column, lane, lanes, .. }, acc) in groups.iter().zip(&mut acc) {
                for (i, acc) in acc.iter_mut().enumerate() {
                    let before = &job.y.row_mut(t + i)[column..][..lanes];
                    let mut all = [0.0; ROWS_MAX];
                    all[lane..][..lanes].copy_from_slice(before);
                    *acc = V::load_f(all.as_ptr());
                }
            }
        }
        for (i, block) in blocks.clone().step_by(S::UNIT / 32).enumerate() {
            for (group, acc) in groups.iter().zip(&mut acc) {
                let units = group.units.add(i * unit_bytes);
                if NT == 1 {
                    for line in 0..unit_bytes.div_ceil(64) {
                        V::prefetch(units.wrapping_add(AHEAD + line * 64));
                    }
                }
                unit::<V, S, NT>(units, block, blocks.end - block, x, acc);
            }
        }
        for (&Group { column, lane, lanes, .. }, acc) in groups.iter().zip(&acc) {
            for (i, acc) in acc.iter().enumerate() {
                let mut all = [0.0; ROWS_MAX];
                V::store_f(all.as_mut_ptr(), *acc);
                job.y.row_mut(t + i)[column..][..lanes].copy_from_slice(&all[lane..][..lanes]);
            }
        }
    }
}

//! Products of block schemes: over groups of rows, interleaved as they lie or on the way.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::access::Way;
use crate::activations::{Activations, HALF, TILE, tiles};
use crate::columns::ColumnsMut;
use crate::interleave::split;
use crate::isa::Isa;
use crate::lanes::{Lanes, for_lanes};
use crate::packing::{Codes, PLANES, Packing, RECORD_MAX, ROWS_MAX, Sharing};
use crate::repack::{self, Source};

use super::kinds::{Kind, arithmetic};
use super::unit::unit;

/// One product, its sizes checked.
pub(super) struct Job<'a> {
    /// The planes of the whole matrix that hold codes.
    pub(super) w: [&'a [u8]; PLANES],
    /// Its rows.
    pub(super) total: usize,
    /// Its columns.
    pub(super) k: usize,
    /// The rows to multiply, which are the columns of `y`.
    pub(super) rows: Range<usize>,
    /// Has the number of columns of `w`, in the form that the kernel needs.
    pub(super) x: &'a Activations,
    /// A row for each row of `x`.
    pub(super) y: ColumnsMut<'a>,
    pub(super) way: Way,
}

for_lanes! {
    /// Adds the products of the blocks `blocks` of some groups of rows to what the blocks before them gave.
    ///
    /// # Safety
    /// There are one or two groups: see [`Way`]. Their units are there for all of `blocks`, which begin with a unit,
    /// and their places are in `job`.
    pub(super) fn accumulate_of<K: Kind>(
        job: &mut Job<'_>,
        units: Units,
        groups: &[Group],
        blocks: Range<usize>,
    ) = accumulate
}

/// A function of [`accumulate_of`].
pub(super) type Accumulate = unsafe fn(&mut Job<'_>, Units, &[Group], Range<usize>);

/// The layout of units.
#[derive(Clone, Copy)]
pub(super) struct Units {
    bytes: usize,
    /// Blocks of 32 columns.
    blocks: usize,
    sharing: Sharing,
}

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

/// How to multiply a quantised scheme: its layout, and the functions compiled for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    packing: &'static Packing,
    units: Units,
    /// Rows in a group.
    r: usize,
    pack: repack::Pack,
    accumulate: Accumulate,
}

/// Room for units that are made on the way: a part of the first-level cache.
#[repr(align(64))]
struct Scratch(MaybeUninit<[u8; SCRATCH]>);
const SCRATCH: usize = 16 << 10;
/// Units made at once for a single row of activations, which has no use for more.
const FEW: usize = 4;

impl Blocks {
    /// `None` if the arithmetic is not there. With `ask` it asks for memory ahead.
    pub(super) fn of(packing: &'static Packing, isa: Isa, r: usize, ask: bool) -> Option<Blocks> {
        let bytes = packing.vectors() * 4 * r;
        assert!(bytes * FEW <= SCRATCH, "units of {bytes} bytes");
        let units = Units { bytes, blocks: packing.unit / 32, sharing: packing.sharing() };
        let accumulate = arithmetic(&packing.codes, isa, r, ask)?;
        Some(Blocks { packing, units, r, pack: repack::pack_of(isa, r), accumulate })
    }

    /// Multiplies an interleaved matrix. With one row of activations it may read two groups at once, half of the
    /// rows apart.
    ///
    /// # Safety
    /// The instructions are there; `job.w` holds `total` rows in groups, `rows` are whole groups, and the
    /// columns are whole units.
    pub(super) unsafe fn interleaved(&self, job: &mut Job<'_>) {
        let blocks = job.k / 32;
        let group_bytes = blocks / self.units.blocks * self.units.bytes;
        let (w, start, r) = (job.w[0], job.rows.start, self.r);
        let group = |row: usize| Group {
            units: w[(start + row) / r * group_bytes..][..group_bytes].as_ptr(),
            column: row,
            lane: 0,
            lanes: r,
        };
        let rows = job.rows.len();
        let half = if job.x.rows() == 1 && job.way.streams > 1 { rows / (2 * r) * r } else { 0 };
        for row in (0..half).step_by(r) {
            // SAFETY: the groups have units for all blocks, and their rows are ours.
            unsafe { (self.accumulate)(job, self.units, &[group(row), group(half + row)], 0..blocks) }
        }
        for row in (2 * half..rows).step_by(r) {
            // SAFETY: as above.
            unsafe { (self.accumulate)(job, self.units, &[group(row)], 0..blocks) }
        }
    }

    /// Multiplies a matrix as stored. Interleaves each group of rows into a scratch buffer that stays in the cache, a
    /// few units at a time, and multiplies there. An incomplete group or unit is padded with zeros first. So a row's
    /// result does not depend on the other rows asked for with it, and equals that of the interleaved form.
    ///
    /// # Safety
    /// The instructions are there; `job.w` holds `total` rows of `k` columns, which are whole blocks.
    pub(super) unsafe fn stored(&self, job: &mut Job<'_>) {
        let Blocks { packing, units, r, .. } = *self;
        let (record, blocks) = (packing.stored, job.k / 32);
        let stride = record.map(|bytes| job.k * bytes / packing.unit);
        let chunk = if job.x.rows() == 1 { FEW } else { SCRATCH / units.bytes };
        let mut scratch = Scratch(MaybeUninit::uninit());
        let scratch = scratch.0.as_mut_ptr().cast::<u8>();
        let mut padded = [0; ROWS_MAX * RECORD_MAX];

        let rows = job.rows.clone();
        for group in (rows.start / r * r..rows.end).step_by(r) {
            let first = group.max(rows.start);
            let lanes = (group + r).min(rows.end) - first;
            let place = Group { units: scratch, column: first - rows.start, lane: first - group, lanes };
            let w: [&[u8]; PLANES] = std::array::from_fn(|i| &job.w[i][group * stride[i]..]);
            let whole = if group + r <= job.total { blocks / units.blocks } else { 0 };
            let mut u = 0;
            while u * units.blocks < blocks {
                let n = if u < whole { chunk.min(whole - u) } else { 1 };
                if u < whole {
                    let at = std::array::from_fn(|i| w[i].as_ptr().wrapping_add(u * record[i]));
                    let next = at[0].wrapping_add(r * stride[0]);
                    // SAFETY: `w` has `r` rows in each plane, each with the records `u..u + n`, and that many
                    // units fit in the scratch buffer.
                    unsafe { (self.pack)(packing, &Source { at, stride }, n, scratch, next) }
                } else {
                    padded.fill(0);
                    let mut planes = split(packing, r, &mut padded);
                    for (i, plane) in planes.iter_mut().enumerate().filter(|(i, _)| record[*i] > 0) {
                        let rows = w[i].chunks_exact(stride[i]).take(r);
                        for (row, padded) in rows.zip(plane.chunks_exact_mut(record[i])) {
                            let row = &row[u * record[i]..];
                            let n = row.len().min(record[i]);
                            padded[..n].copy_from_slice(&row[..n]);
                        }
                    }
                    let source = Source { at: planes.map(|p| p.as_ptr()), stride: record };
                    // SAFETY: `padded` has the records of `r` rows, and one unit fits in the scratch buffer.
                    unsafe { (self.pack)(packing, &source, 1, scratch, w[0].as_ptr()) }
                }
                let here = u * units.blocks..((u + n) * units.blocks).min(blocks);
                // SAFETY: the scratch buffer holds units for these blocks, and its rows are ours.
                unsafe { (self.accumulate)(job, self.units, &[place], here) }
                u += n;
            }
        }
    }
}

/// # Safety
/// As [`Lanes`] and [`accumulate_of`].
#[inline(always)]
unsafe fn accumulate<V: Lanes, K: Kind>(
    job: &mut Job<'_>,
    units: Units,
    groups: &[Group],
    blocks: Range<usize>,
) {
    let [tiled, half, single] = tiles(job.x.rows());
    // Where there are registers for it a whole tile at once: making the codes is a large part of the work.
    let whole = if V::REGISTERS >= 32 { tiled } else { 0 };
    for group in groups.iter().filter(|_| tiled + half > 0).map(std::array::from_ref) {
        // SAFETY: as this function.
        unsafe {
            for t in (0..whole).step_by(TILE) {
                tile::<V, K, TILE, 1>(job, units, group, blocks.clone(), t);
            }
            for t in (whole..tiled + half).step_by(HALF) {
                tile::<V, K, HALF, 1>(job, units, group, blocks.clone(), t);
            }
        }
    }
    for t in tiled + half..tiled + half + single {
        // SAFETY: as this function.
        unsafe {
            match groups {
                [one, other] => row::<V, K, 2>(job, units, &[*one, *other], blocks.clone(), t),
                [one] => row::<V, K, 1>(job, units, &[*one], blocks.clone(), t),
                _ => {}
            }
        }
    }
}

/// [`accumulate`] of `G` groups for row `t` of the activations alone.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn row<V: Lanes, K: Kind, const G: usize>(
    job: &mut Job<'_>,
    units: Units,
    groups: &[Group; G],
    blocks: Range<usize>,
    t: usize,
) {
    // SAFETY: as this function.
    unsafe {
        match (K::CODES, units.sharing.blocks, units.sharing.groups) {
            (Codes::Plain(_), 2, 2) => shared::<V, K, G, 2, 2>(job, units, groups, blocks, t),
            (Codes::Plain(_), 2, 1) => shared::<V, K, G, 2, 1>(job, units, groups, blocks, t),
            (Codes::Plain(_), 4, 1) => shared::<V, K, G, 4, 1>(job, units, groups, blocks, t),
            _ => tile::<V, K, 1, G>(job, units, groups, blocks, t),
        }
    }
}

/// [`row`] of units of `BLOCKS` blocks with `SCALES` scales, whose addresses are all constant: to make them from numbers that are not
/// takes longer than the products.
///
/// # Safety
/// As [`accumulate`]; the units are of that kind.
#[inline(always)]
unsafe fn shared<V: Lanes, K: Kind, const G: usize, const BLOCKS: usize, const SCALES: usize>(
    job: &mut Job<'_>,
    mut units: Units,
    groups: &[Group; G],
    blocks: Range<usize>,
    t: usize,
) {
    if let Codes::Plain(plain) = K::CODES {
        let sharing = plain.sharing(BLOCKS, SCALES);
        let bytes = 4 * V::N * (sharing.lead + plain.vectors() * BLOCKS);
        debug_assert_eq!((units.bytes, units.blocks), (bytes, BLOCKS), "units");
        units = Units { bytes, blocks: BLOCKS, sharing };
    }
    // SAFETY: as this function.
    unsafe { tile::<V, K, 1, G>(job, units, groups, blocks, t) }
}

/// [`accumulate`] of `G` groups for the `NT` rows of activations from `t` on.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn tile<V: Lanes, K: Kind, const NT: usize, const G: usize>(
    job: &mut Job<'_>,
    units: Units,
    groups: &[Group; G],
    blocks: Range<usize>,
    t: usize,
) {
    let x = job.x.tile::<NT>(t);
    assert!(blocks.end <= x.blocks());
    // SAFETY: as `accumulate`; loads and stores of floats are of arrays and slices of at least `V::N`.
    unsafe {
        // Only the first tile of a group waits for memory: the others find it in the cache. Tiles read one group at a time, and ask
        // for as much as two would.
        let ahead = match (NT, t) {
            (1, _) => job.way.ahead,
            (_, 0) => job.way.ahead * job.way.streams,
            _ => 0,
        };
        let mut acc = [[V::splat_f(0.0); NT]; G];
        if blocks.start > 0 {
            for (&Group { column, lane, lanes, .. }, acc) in groups.iter().zip(&mut acc) {
                for (i, acc) in acc.iter_mut().enumerate() {
                    let before = &job.y.row_mut(t + i)[column..][..lanes];
                    if lanes == V::N {
                        *acc = V::load_f(before.as_ptr());
                        continue;
                    }
                    let mut all = [0.0; ROWS_MAX];
                    all[lane..][..lanes].copy_from_slice(before);
                    *acc = V::load_f(all.as_ptr());
                }
            }
        }
        for (i, block) in blocks.clone().step_by(units.blocks).enumerate() {
            for (group, acc) in groups.iter().zip(&mut acc) {
                let at = group.units.add(i * units.bytes);
                unit::<V, K, NT, G>((at, ahead), units.sharing, block, blocks.end - block, x, acc);
            }
        }
        for (&Group { column, lane, lanes, .. }, acc) in groups.iter().zip(&acc) {
            for (i, acc) in acc.iter().enumerate() {
                let after = &mut job.y.row_mut(t + i)[column..][..lanes];
                if lanes == V::N {
                    V::store_f(after.as_mut_ptr(), *acc);
                    continue;
                }
                let mut all = [0.0; ROWS_MAX];
                V::store_f(all.as_mut_ptr(), *acc);
                after.copy_from_slice(&all[lane..][..lanes]);
            }
        }
    }
}

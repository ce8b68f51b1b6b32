//! Activations as the products take them.

use crate::columns::ColumnsMut;
use crate::isa::Isa;
use crate::lanes::{Lanes, for_16_lanes};
use std::fmt;
use std::marker::PhantomData;

/// Words that one row holds for each 32 of its values: eight of codes and four facts (see [`Activations`]).
const WORDS: usize = 12;
/// Rows that share one tile: the number that the widest kernels take at once.
pub(crate) const TILE: usize = 8;
/// Rows of half a tile: the number that the other kernels take at once.
pub(crate) const HALF: usize = 4;

/// Rows of whole tiles, of half a tile after them (4 or 0), and how many are left over, of `rows` rows.
pub(crate) fn tiles(rows: usize) -> [usize; 3] {
    let tiled = rows / TILE * TILE;
    let half = (rows - tiled) / HALF * HALF;
    [tiled, half, rows - tiled - half]
}

/// Words of `rows` rows of `k` values: half a tile takes the room of a whole one.
fn words(rows: usize, k: usize) -> Option<usize> {
    let [tiled, half, single] = tiles(rows);
    (tiled + half / HALF * TILE + single).checked_mul(k / 32 * WORDS)
}

/// Which forms of the activations a product reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// Codes of eight bits with a scale for each 32: for all block schemes.
    pub int8: bool,
    /// The floats themselves: for plain matrices.
    pub f32: bool,
}

impl Forms {
    /// The codes alone.
    pub const INT8: Forms = Forms { int8: true, f32: false };
    /// The floats alone.
    pub const F32: Forms = Forms { int8: false, f32: true };

    /// The forms that either needs.
    #[must_use]
    pub fn union(self, other: Forms) -> Forms {
        Forms { int8: self.int8 | other.int8, f32: self.f32 | other.f32 }
    }

    fn covers(self, other: Forms) -> bool {
        self.union(other) == self
    }
}

/// Rows of activations `[rows, k]`, made ready for any number of products.
///
/// The codes of 32 values are `round(x / d)`, to nearest even, with `d = max|x| / 127`: from -127 to 127. Where
/// no `d` exists, because a value is not finite or all are below 1e-30, the codes are 0 and `d` is NaN or 0. The
/// same bits come out of every instruction set.
///
/// Rows are taken in tiles of eight, whose blocks of 32 are next to each other. Of the remaining rows, four form a
/// half-empty tile, and the others are stored row by row. The memory is allocated once, by [`Activations::new`].
pub struct Activations {
    /// For each tile, for each 32 columns, for each half of the tile: the codes of each row, then each row's `d`, each row's
    /// `d * Σ codes`, each row's `-Σ codes`, and the same for the first and the second 16 alone, 16 bits each.
    words: Vec<u32>,
    /// `[rows, k]`
    floats: Vec<f32>,
    rows: usize,
    k: usize,
    forms: Forms,
}

impl fmt::Debug for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activations").finish_non_exhaustive()
    }
}

impl Activations {
    /// Room for up to `max_rows` rows of up to `max_k` values.
    pub fn new(max_rows: usize, max_k: usize) -> Self {
        let floats = vec![0.0; max_rows * max_k];
        Activations { floats, ..Activations::of_codes(max_rows, max_k) }
    }

    /// The same, for codes alone.
    pub fn of_codes(max_rows: usize, max_k: usize) -> Self {
        // Half a tile takes the room of a whole one, and three rows may be left over.
        let most = if max_rows < HALF { max_rows } else { max_rows.next_multiple_of(TILE) + HALF - 1 };
        Activations {
            words: vec![0; most * (max_k / 32) * WORDS],
            floats: vec![],
            rows: 0,
            k: 0,
            forms: Forms::default(),
        }
    }

    /// Takes `x`, `[rows, k]`, in the forms asked for.
    ///
    /// # Panics
    /// As [`Activations::begin`], and if `x` has another length.
    pub fn fill(&mut self, isa: Isa, x: &[f32], rows: usize, k: usize, forms: Forms) {
        self.begin(rows, k, forms).fill(isa, x);
    }

    /// Starts to take `rows` rows of `k` values in the forms asked for. The result is filled whole, or in parts by
    /// several threads. A row that is never filled keeps what was there before.
    ///
    /// # Panics
    /// If there is not enough room, or codes are asked for and `k` is not a multiple of 32.
    pub fn begin(&mut self, rows: usize, k: usize, forms: Forms) -> Filling<'_> {
        let words = if forms.int8 { words(rows, k) } else { Some(0) };
        let floats = if forms.f32 { rows.checked_mul(k) } else { Some(0) };
        assert!(!forms.int8 || k.is_multiple_of(32), "{k} columns are not blocks of 32");
        let (Some(words), Some(floats)) = (words, floats) else { panic!("{rows} rows of {k} overflow") };
        assert!(
            words <= self.words.len() && floats <= self.floats.len(),
            "no room for {rows} rows of {k} activations"
        );
        (self.rows, self.k, self.forms) = (rows, k, forms);
        let words = &mut self.words[..words];
        let places = Places { words: words.as_mut_ptr(), stride: k / 32 * WORDS, rows, block: 0 };
        let floats = ColumnsMut::new(&mut self.floats[..floats], if forms.f32 { rows } else { 0 }, k);
        Filling { places, floats, columns: k, forms, owner: PhantomData }
    }

    /// Rows that it holds now.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns that it holds now.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Whether it holds what a product reads.
    pub(crate) fn has(&self, forms: Forms) -> bool {
        self.forms.covers(forms)
    }

    /// The floats, `[rows, k]`. They must have been asked for.
    pub(crate) fn floats(&self) -> &[f32] {
        assert!(self.forms.f32, "the activations were not filled as f32");
        &self.floats[..self.rows * self.k]
    }

    /// The codes of the `NT` rows from `row` on: a tile, half of one, or a row that is left over. They must have been asked
    /// for.
    pub(crate) fn tile<const NT: usize>(&self, row: usize) -> Tile<'_, NT> {
        let stride = self.k / 32 * WORDS;
        let [tiled, half, _] = tiles(self.rows);
        assert!(self.forms.int8 && row + NT <= self.rows, "row {row} of {}", self.rows);
        if NT == 1 {
            assert!(row >= tiled + half, "row {row} is in a tile");
            return Tile { words: &self.words[(row + half) * stride..][..stride] };
        }
        assert!(row.is_multiple_of(NT) && row + NT <= tiled + half, "row {row} is not where {NT} begin");
        let within = row % TILE * WORDS;
        Tile { words: &self.words[row / TILE * TILE * stride..][..TILE * stride][within..] }
    }
}

/// Some rows and columns of [`Activations`] that are still to be filled. Parts of it may be filled by different threads.
pub struct Filling<'a> {
    places: Places,
    /// No rows, if they are not asked for.
    floats: ColumnsMut<'a>,
    columns: usize,
    forms: Forms,
    owner: PhantomData<&'a mut [u32]>,
}

/// Where the codes of some rows and columns are.
#[derive(Clone, Copy)]
struct Places {
    /// The first word of the first row.
    words: *mut u32,
    /// Words of a row.
    stride: usize,
    /// The rows from there on.
    rows: usize,
    /// The first block of columns.
    block: usize,
}

// SAFETY: it is a `&mut` to the words of its rows and columns: no two reach the same one.
unsafe impl Send for Filling<'_> {}

impl fmt::Debug for Filling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").finish_non_exhaustive()
    }
}

impl<'a> Filling<'a> {
    /// Rows to fill.
    pub fn rows(&self) -> usize {
        self.places.rows
    }

    /// Columns to fill.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The first `row` rows, and the others.
    ///
    /// # Panics
    /// If `row` is more than there are, or not a multiple of 8.
    pub fn split_at(self, row: usize) -> (Filling<'a>, Filling<'a>) {
        let Places { words, stride, rows, .. } = self.places;
        assert!(row <= rows && row.is_multiple_of(TILE), "row {row} of {rows}");
        // No rows keep their start.
        let offset = if self.forms.int8 && row < rows { row * stride } else { 0 };
        // SAFETY: `offset` is 0, or where the tile of one of our rows begins.
        let words = unsafe { words.add(offset) };
        let (floats, more_floats) = self.floats.split_at_row(if self.forms.f32 { row } else { 0 });
        (
            Filling { places: Places { rows: row, ..self.places }, floats, ..self },
            Filling {
                places: Places { words, rows: rows - row, ..self.places },
                floats: more_floats,
                ..self
            },
        )
    }

    /// The first `column` columns, and the others.
    ///
    /// # Panics
    /// If `column` is more than there are, or not a multiple of 32.
    pub fn split_at_column(self, column: usize) -> (Filling<'a>, Filling<'a>) {
        assert!(column <= self.columns && column.is_multiple_of(32), "column {column} of {}", self.columns);
        let (floats, more_floats) = self.floats.split_at(column);
        let others = Places { block: self.places.block + column / 32, ..self.places };
        (
            Filling { floats, columns: column, ..self },
            Filling { places: others, floats: more_floats, columns: self.columns - column, ..self },
        )
    }

    /// Takes `x`, `[rows, columns]`.
    ///
    /// # Panics
    /// If `x` has another length.
    pub fn fill(mut self, isa: Isa, x: &[f32]) {
        assert_eq!(
            x.len(),
            self.rows() * self.columns,
            "{} rows of {} activations",
            self.rows(),
            self.columns
        );
        self.fill_rows(isa, 0, x);
    }

    /// Takes `x`, `[rows, columns]`, of the rows from `first` on.
    ///
    /// # Panics
    /// If there are fewer rows, `first` is not a multiple of 4, or `x` has neither a multiple of four rows nor all that are left.
    pub fn fill_rows(&mut self, isa: Isa, first: usize, x: &[f32]) {
        let count = x.len().checked_div(self.columns).unwrap_or(0);
        let end = first + count;
        assert!(
            x.len() == count * self.columns && end <= self.rows(),
            "{} activations for the rows from {first} to {}, of {}",
            x.len(),
            self.rows(),
            self.columns
        );
        assert!(
            first.is_multiple_of(HALF) && (end == self.rows() || end.is_multiple_of(HALF)),
            "the rows {first}..{end}"
        );
        if count == 0 {
            return;
        }
        if self.forms.f32 {
            for (row, x) in (first..end).zip(x.chunks_exact(self.columns)) {
                self.floats.row_mut(row).copy_from_slice(x);
            }
        }
        if self.forms.int8 {
            // SAFETY: the instructions are there, since an `Isa` is a witness of its own. The words of the rows are ours.
            unsafe { quantise_of(isa)(x, self.columns, first, self.places) }
        }
    }
}

for_16_lanes! {
    /// Codes of `x`, `[rows, columns]`, of the rows from `first` on. There are 12 words for each 32 values.
    fn quantise_of<>(x: &[f32], columns: usize, first: usize, to: Places) = quantise
}

/// # Safety
/// As [`Lanes`]; and the words of these rows and columns are the caller's alone.
#[inline(always)]
unsafe fn quantise<V: Lanes>(x: &[f32], columns: usize, first: usize, to: Places) {
    let Places { words, stride, rows, block } = to;
    let [tiled, half, _] = tiles(rows);
    let in_tiles = (tiled + half).saturating_sub(first).min(x.len() / columns);
    let (in_tiles, left_over) = x.split_at(in_tiles * columns);
    // SAFETY: as this function. There are `stride` words for each row, and those of a tile are `TILE * stride`.
    unsafe {
        for (i, x) in in_tiles.chunks_exact(HALF * columns).enumerate() {
            let row = first + i * HALF;
            let start = row / TILE * TILE * stride + row % TILE * WORDS;
            quantise_half::<V>(x, columns, words.add(start + block * (TILE * WORDS)));
        }
        let first = first.max(tiled + half);
        for (x, row) in left_over.chunks_exact(columns).zip(first..) {
            let start = words.add((row + half) * stride + block * WORDS);
            for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
                let words = std::slice::from_raw_parts_mut(start.add(i * WORDS), WORDS);
                let (codes, facts) = words.split_at_mut(8);
                facts.copy_from_slice(&quantise_block::<V>(x, codes));
            }
        }
    }
}

/// Half a tile, whose first block has its words at `words`: `x` is `[4, k]`.
///
/// # Safety
/// As [`Lanes`]; and the words of half of each of `k / 32` blocks, which are a tile's words apart, are the caller's alone.
#[inline(always)]
unsafe fn quantise_half<V: Lanes>(x: &[f32], k: usize, words: *mut u32) {
    assert!(x.len() == HALF * k);
    let rows: [&[[f32; 32]]; HALF] = std::array::from_fn(|t| x[t * k..][..k].as_chunks().0);
    for i in 0..k / 32 {
        // SAFETY: as this function.
        let words = unsafe { std::slice::from_raw_parts_mut(words.add(i * (TILE * WORDS)), HALF * WORDS) };
        let (codes, facts) = words.split_at_mut(HALF * 8);
        let (facts, _) = facts.as_chunks_mut::<HALF>();
        // SAFETY: loads and stores as in `quantise_block`, of four rows.
        unsafe {
            // No closures: they would be without the features that the function is compiled with.
            let mut x = [[V::splat_f(0.0); 2]; HALF];
            for (x, row) in x.iter_mut().zip(rows) {
                let row = row[i].as_ptr();
                *x = [V::load_f(row), V::load_f(row.add(16))];
            }
            let max = V::max_bits_4(x).map(f32::from_bits);
            if !max.iter().all(is_scaled) {
                for t in 0..HALF {
                    let of_row = quantise_block::<V>(&rows[t][i], &mut codes[8 * t..][..8]);
                    facts.iter_mut().zip(of_row).for_each(|(fact, of_row)| fact[t] = of_row);
                }
                continue;
            }
            let inverse = max.map(|max| 127.0 / max);
            let (mut first, mut second) = ([V::splat(0); HALF], [V::splat(0); HALF]);
            for t in 0..HALF {
                let inverse = V::splat_f(inverse[t]);
                (first[t], second[t]) = (V::round(x[t][0], inverse), V::round(x[t][1], inverse));
                let codes = codes.as_mut_ptr().add(8 * t).cast::<u8>();
                V::store_bytes(codes, first[t]);
                V::store_bytes(codes.add(16), second[t]);
            }
            let (first, second) = (V::sums_4(first), V::sums_4(second));
            for t in 0..HALF {
                let of_row = facts_of(max[t], [first[t], second[t]]);
                facts.iter_mut().zip(of_row).for_each(|(fact, of_row)| fact[t] = of_row);
            }
        }
    }
}

/// One block: its codes, and its four facts.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn quantise_block<V: Lanes>(x: &[f32; 32], codes: &mut [u32]) -> [u32; 4] {
    assert!(V::N == 16 && codes.len() == 8);
    // SAFETY: loads of 16 of the 32 values, stores of 16 of the 32 bytes.
    unsafe {
        let (first, second) = (V::load_f(x.as_ptr()), V::load_f(x.as_ptr().add(16)));
        let max = f32::from_bits(V::max_bits(first, second));
        if !is_scaled(&max) {
            codes.fill(0);
            return facts_of(if max < 1.0 { 0.0 } else { f32::NAN }, [0; 2]);
        }
        let inverse = V::splat_f(127.0 / max);
        let (first, second) = (V::round(first, inverse), V::round(second, inverse));
        let codes = codes.as_mut_ptr().cast::<u8>();
        V::store_bytes(codes, first);
        V::store_bytes(codes.add(16), second);
        facts_of(max, [V::sum_i(first), V::sum_i(second)])
    }
}

/// Whether a block with this largest magnitude has a scale.
#[inline(always)]
pub(crate) fn is_scaled(max: &f32) -> bool {
    (1e-30..=f32::MAX).contains(max)
}

/// The facts of a block from its largest magnitude and the sums of both halves' codes.
#[inline(always)]
fn facts_of(max: f32, sums: [i32; 2]) -> [u32; 4] {
    let scale = max / 127.0;
    let sum = sums[0] + sums[1];
    [
        scale.to_bits(),
        (scale * sum as f32).to_bits(),
        (-sum).cast_unsigned(),
        (-sums[0]).cast_unsigned() & 0xFFFF | (-sums[1]).cast_unsigned() << 16,
    ]
}

/// The codes of `NT` rows: 8, 4 or 1. See [`Activations`].
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, const NT: usize> {
    /// The words from the first of these rows to the end of the tile.
    words: &'a [u32],
}

impl<const NT: usize> Tile<'_, NT> {
    /// Rows of a part of the tile whose scales and sums are stored together.
    const PART: usize = if NT == 1 { 1 } else { HALF };
    /// Rows of a tile.
    const OF: usize = if NT == 1 { 1 } else { TILE };

    /// Blocks of 32 columns.
    pub(crate) fn blocks(&self) -> usize {
        self.words.len().div_ceil(Self::OF * WORDS)
    }

    /// Word `at` of the part that row `t` is in.
    ///
    /// # Safety
    /// `block < self.blocks()`, `t < NT`, `at < PART * WORDS`.
    #[inline(always)]
    unsafe fn word(&self, block: usize, t: usize, at: usize) -> *const u32 {
        let part = t / Self::PART * Self::PART * WORDS;
        // SAFETY: there are `OF * WORDS` words for each block, less those before the first of these rows.
        unsafe { self.words.as_ptr().add(block * (Self::OF * WORDS) + part + at) }
    }

    /// Fact `i` of row `t`.
    ///
    /// # Safety
    /// `block < self.blocks()`, `t < NT`, `i < 4`.
    #[inline(always)]
    unsafe fn fact(&self, block: usize, t: usize, i: usize) -> u32 {
        // SAFETY: as this function.
        unsafe { *self.word(block, t, Self::PART * (8 + i) + t % Self::PART) }
    }

    /// The 32 codes of row `t`.
    ///
    /// # Safety
    /// `block < self.blocks()`, `t < NT`: also of the functions that follow.
    #[inline(always)]
    pub(crate) unsafe fn codes(&self, block: usize, t: usize) -> *const i8 {
        // SAFETY: as this function.
        unsafe { self.word(block, t, t % Self::PART * 8).cast() }
    }

    /// The scale of the codes.
    #[inline(always)]
    pub(crate) unsafe fn scale(&self, block: usize, t: usize) -> f32 {
        // SAFETY: as this function.
        f32::from_bits(unsafe { self.fact(block, t, 0) })
    }

    /// The sum of the values, as the codes give them.
    #[inline(always)]
    pub(crate) unsafe fn sum(&self, block: usize, t: usize) -> f32 {
        // SAFETY: as this function.
        f32::from_bits(unsafe { self.fact(block, t, 1) })
    }

    /// Minus the sum of the codes.
    #[inline(always)]
    pub(crate) unsafe fn minus(&self, block: usize, t: usize) -> i32 {
        // SAFETY: as this function.
        unsafe { self.fact(block, t, 2) }.cast_signed()
    }

    /// Minus the sums of the codes of the first and the second half, 16 bits each.
    #[inline(always)]
    pub(crate) unsafe fn minus_halves(&self, block: usize, t: usize) -> u32 {
        // SAFETY: as this function.
        unsafe { self.fact(block, t, 3) }
    }

    /// Minus the sum of the codes of the first or second half.
    #[inline(always)]
    pub(crate) unsafe fn minus_half(&self, block: usize, t: usize, half: usize) -> i32 {
        // SAFETY: as this function.
        let both = unsafe { self.minus_halves(block, t) }.cast_signed();
        if half == 0 { both << 16 >> 16 } else { both >> 16 }
    }
}

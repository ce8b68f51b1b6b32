//! Rounding that heeds how columns go together: an error in one column is made good by the columns after it.
//!
//! The results of a matrix `W` whose inputs are `x` change by `(W - Q) x` if it becomes `Q`. The mean square of that is
//! `tr((W - Q) H (W - Q)ᵀ)`, where `H` is the mean of `x xᵀ`: a [`Gram`]. With `H = (U + I) D (U + I)ᵀ`, `U` strictly upper
//! triangular and `D` diagonal, column `j` of `Q` is the rounding of `W_j + Σ_{i<j} (W_i - Q_i) U_ij`, and what is lost is the sum of
//! the squares of these roundings, each times `D_j`.
//!
//! This is GPTQ, which is usually written with the Cholesky factor of the inverse of `H`.
//! Source: Frantar et al., GPTQ, 2023 (arXiv:2210.17323); Chee et al., QuIP, 2023 (arXiv:2307.13304), theorem 6, that this form gives
//! the same roundings.
//!
//! Scales and minima are chosen by the scheme's own encoder, cell by cell from left to right, for the values that the feedback asks for.

use std::fmt;
use std::ops::Range;

use tensor::{IN, OUT, PlaneAxis, PlaneSpec, Scheme, Shape};

use crate::codec::{Codec, Encoder, Levels, Matrix, Recoder};
use crate::isa::{Isa, per_isa};

/// Rows of a sum that are made at once.
const TALL: usize = 4;
/// Columns of a sum that are made at once.
const WIDE: usize = 32;
/// Inputs whose products are summed before they are added: as many as stay in a first-level cache.
const DEEP: usize = 64;
/// Columns that are factored at once.
const PANEL: usize = 64;

/// `Σ x xᵀ` of inputs `x`, each of `k` values.
pub struct Gram {
    k: usize,
    /// Inputs summed.
    rows: u64,
    /// `[k, k]`, of which the part on and above the diagonal is summed.
    sums: Vec<f32>,
}

impl fmt::Debug for Gram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gram").field("k", &self.k).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Gram {
    /// Bytes that one of inputs of `k` values takes.
    pub fn bytes(k: usize) -> u64 {
        4 * (k as u64).saturating_mul(k as u64)
    }

    /// Of no inputs; `None` if there is not enough memory.
    pub fn new(k: usize) -> Option<Gram> {
        let mut sums = vec![];
        sums.try_reserve_exact(k.checked_mul(k)?).ok()?;
        sums.resize(k * k, 0.0);
        Some(Gram { k, rows: 0, sums })
    }

    /// Values of an input.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Inputs that were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Divides each column by its number in `by`.
    ///
    /// # Panics
    /// If there is not a number for each column.
    pub fn divide(&mut self, by: &[f32]) {
        assert_eq!(by.len(), self.k, "a divisor for each column");
        for (row, a) in self.sums.chunks_exact_mut(self.k.max(1)).zip(by) {
            for (x, b) in row.iter_mut().zip(by) {
                *x /= a * b;
            }
        }
    }

    /// Adds inputs: `[rows, k]`.
    ///
    /// # Panics
    /// If there is no whole number of inputs.
    pub fn add(&mut self, inputs: &[f32], threads: usize) {
        let k = self.k;
        assert!(k > 0 && inputs.len().is_multiple_of(k), "{} values of inputs of {k}", inputs.len());
        self.rows += (inputs.len() / k) as u64;
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        // Rows above are longer: they are dealt out.
        let mut dealt: Vec<Vec<(usize, &mut [f32])>> = vec![];
        dealt.resize_with(threads.max(1), Vec::new);
        for (n, rows) in self.sums.chunks_mut(TALL * k).enumerate() {
            dealt[n % threads.max(1)].push((n * TALL, rows));
        }
        let work = |parts: &mut Vec<(usize, &mut [f32])>| {
            for inputs in inputs.chunks(DEEP * k) {
                for (first, rows) in &mut *parts {
                    add(isa, inputs, k, *first, rows);
                }
            }
        };
        let (own, others) = dealt.split_first_mut().unwrap_or_else(|| unreachable!("there is a thread"));
        std::thread::scope(|scope| {
            for parts in others {
                scope.spawn(|| work(parts));
            }
            work(own);
        });
    }
}

per_isa! {
    /// Adds the products of `inputs` to the rows of the sum from `first` on, from the diagonal on.
    fn add(inputs: &[f32], k: usize, first: usize, rows: &mut [f32]) = add_products
}

#[inline(always)]
fn add_products<const FMA: bool>(inputs: &[f32], k: usize, first: usize, rows: &mut [f32]) {
    let tall = rows.len() / k;
    let mut column = first;
    while column < k {
        let wide = WIDE.min(k - column);
        let mut sums = [[0.0f32; WIDE]; TALL];
        if wide == WIDE && tall == TALL {
            for x in inputs.chunks_exact(k) {
                let (down, along) = (&x[first..][..TALL], &x[column..][..WIDE]);
                for (sums, a) in sums.iter_mut().zip(down) {
                    for (sum, b) in sums.iter_mut().zip(along) {
                        *sum = if FMA { a.mul_add(*b, *sum) } else { *sum + a * b };
                    }
                }
            }
        } else {
            for x in inputs.chunks_exact(k) {
                for (sums, a) in sums.iter_mut().zip(&x[first..][..tall]) {
                    for (sum, b) in sums.iter_mut().zip(&x[column..][..wide]) {
                        *sum += a * b;
                    }
                }
            }
        }
        for (row, sums) in rows.chunks_exact_mut(k).zip(&sums) {
            for (to, sum) in row[column..][..wide].iter_mut().zip(sums) {
                *to += sum;
            }
        }
        column += wide;
    }
}

/// How the errors of columns are made good by the columns after them.
pub struct Feedback {
    k: usize,
    /// `U`: `[k, k]`, zeros on and below the diagonal.
    factors: Vec<f32>,
    /// `D`: the weight of an error in each column, `[k]`.
    weights: Vec<f32>,
}

impl fmt::Debug for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback").field("k", &self.k).finish_non_exhaustive()
    }
}

impl Feedback {
    /// Factors a sum, with a share `damping` of the mean of its diagonal added to the diagonal, and all else made smaller the fewer
    /// inputs there were (by `n / (n + k)`): columns that went together by chance do not make each other good then. `alone` is added too: the weight of an error that counts by itself, beside what it
    /// does to results. `None` if there is not enough memory, or the sum is of no numbers.
    pub fn of(gram: &Gram, damping: f64, alone: f64, threads: usize) -> Option<Feedback> {
        let k = gram.k;
        let scale = 1.0 / gram.rows.max(1) as f64;
        let mut h: Vec<f64> = vec![];
        h.try_reserve_exact(k * k).ok()?;
        h.extend(gram.sums.iter().map(|x| f64::from(*x) * scale));
        let mean = (0..k).map(|i| h[i * k + i]).sum::<f64>() / k.max(1) as f64;
        if !mean.is_finite() {
            return None;
        }
        // What goes together in few inputs goes together less in others.
        let kept = gram.rows as f64 / (gram.rows as f64 + k as f64);
        let added = (damping * mean + alone).max(f64::MIN_POSITIVE.sqrt());
        for (i, row) in h.chunks_exact_mut(k.max(1)).enumerate() {
            row[i] += added;
            for x in &mut row[i + 1..] {
                *x *= kept;
            }
        }
        factor(&mut h, k, threads.max(1))?;
        let weights = (0..k).map(|i| h[i * k + i] as f32).collect();
        let mut factors: Vec<f32> = vec![];
        factors.try_reserve_exact(k * k).ok()?;
        for (i, row) in h.chunks_exact(k.max(1)).enumerate() {
            factors.extend(row.iter().enumerate().map(|(j, u)| if j > i { *u as f32 } else { 0.0 }));
        }
        Some(Feedback { k, factors, weights })
    }

    /// Columns.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The weight of the square of the rounding of each column: `[k]`.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The number of f32 values that [`encode`](Self::encode) allocates at most for `rows` rows of `k`; 0 if it does nothing.
    pub fn scratch(k: usize, codec: &dyn Codec, rows: u64) -> u64 {
        let columns = codec.recoder().map_or(0, |recoder| recoder.columns(k).clamp(1, k.max(1)));
        // Five tables of floats, one of bytes, and the planes, which have at most as many bytes as floats and a scale.
        rows.saturating_mul(columns as u64).saturating_mul(8)
    }

    /// Encodes `values`, `[rows, k]`, all finite, to `planes`, as [`Encoder::encode`] does; `errors` is overwritten. `false`, and
    /// nothing is done, if the codes of the scheme cannot be chosen one by one.
    ///
    /// # Panics
    /// If a length does not fit another.
    pub fn encode(
        &self,
        codec: &dyn Codec,
        values: &[f32],
        errors: &mut [f32],
        planes: &mut [&mut [u8]],
    ) -> bool {
        let (Some(encoder), Some(recoder)) = (codec.encoder(), codec.recoder()) else { return false };
        let k = self.k;
        assert!(k > 0 && values.len().is_multiple_of(k), "{} values in rows of {k}", values.len());
        assert_eq!(values.len(), errors.len(), "values and their errors");
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        let mut part = Part { isa, codec, encoder, recoder, feedback: self, values, errors };
        let scheme = codec.scheme();
        let unit = recoder.columns(k).clamp(1, k);
        for first in (0..k).step_by(unit) {
            part.columns(&scheme, first, unit.min(k - first), planes);
        }
        true
    }
}

/// Factors the part of `h`, `[k, k]`, on and above the diagonal: `D` comes to stand on the diagonal, and `U` above it. From the last
/// column to the first, some at a time.
fn factor(h: &mut [f64], k: usize, threads: usize) -> Option<()> {
    let mut end = k;
    while end > 0 {
        let start = end.saturating_sub(PANEL);
        // The columns of the panel, from the last to the first: each is divided by its diagonal, and taken from those before it.
        for j in (start..end).rev() {
            let d = h[j * k + j];
            if !(d > 0.0 && d.is_finite()) {
                return None;
            }
            let column: Vec<f64> = (0..j).map(|i| h[i * k + j] / d).collect();
            for (i, u) in column.iter().enumerate() {
                let by = u * d;
                // Of this row, what is in the panel and not below the diagonal.
                let from = start.max(i);
                let row = &mut h[i * k..][..k];
                for (x, other) in row[from..j].iter_mut().zip(&column[from..j]) {
                    *x -= by * other;
                }
                row[j] = *u;
            }
        }
        // What is before the panel: all its columns at once.
        let mut panel = vec![0.0; (end - start) * start];
        let mut weights = vec![0.0; end - start];
        for j in start..end {
            weights[j - start] = h[j * k + j];
            for i in 0..start {
                panel[(j - start) * start + i] = h[i * k + j];
            }
        }
        let mut dealt: Vec<Vec<(usize, &mut [f64])>> = vec![];
        dealt.resize_with(threads, Vec::new);
        for (i, row) in h.chunks_exact_mut(k).take(start).enumerate() {
            dealt[i % threads].push((i, row));
        }
        let (panel, weights) = (&panel, &weights);
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        std::thread::scope(|scope| {
            for rows in dealt {
                scope.spawn(move || {
                    for (i, row) in rows {
                        take(isa, panel, weights, i, &mut row[..start]);
                    }
                });
            }
        });
        end = start;
    }
    Some(())
}

per_isa! {
    /// Takes from row `i` of the part before a panel, `[rows, rows]`, what the panel explains.
    fn take(panel: &[f64], weights: &[f64], i: usize, row: &mut [f64]) = take_panel
}

#[inline(always)]
fn take_panel<const FMA: bool>(panel: &[f64], weights: &[f64], i: usize, row: &mut [f64]) {
    let n = row.len();
    for (column, d) in panel.chunks_exact(n.max(1)).zip(weights) {
        let by = column[i] * d;
        for (x, other) in row[i..].iter_mut().zip(&column[i..]) {
            *x -= by * other;
        }
    }
}

/// Some rows on the way from the first column to the last.
struct Part<'a> {
    isa: Isa,
    codec: &'a dyn Codec,
    encoder: &'a dyn Encoder,
    recoder: &'a dyn Recoder,
    feedback: &'a Feedback,
    /// `[rows, k]`.
    values: &'a [f32],
    /// `W - Q` of the columns so far, column by column: `[k, rows]`.
    errors: &'a mut [f32],
}

impl Part<'_> {
    /// Encodes `count` columns from `first` on, which share scales with no others.
    fn columns(&mut self, scheme: &Scheme, first: usize, count: usize, planes: &mut [&mut [u8]]) {
        let k = self.feedback.k;
        let rows = self.values.len() / k;
        let mut wanted = vec![0.0; rows * count];
        for (wanted, values) in wanted.chunks_exact_mut(count).zip(self.values.chunks_exact(k)) {
            wanted.copy_from_slice(&values[first..][..count]);
        }
        let factors = &self.feedback.factors[first..];
        feed(self.isa, &self.errors[..first * rows], factors, k, count, &mut wanted);

        let shape = Shape::from([rows as u64, count as u64]);
        let bytes = |plane| usize::try_from(scheme.plane_bytes(plane, &shape).unwrap_or(0)).unwrap_or(0);
        let mut own: Vec<Vec<u8>> = scheme.planes.iter().map(|plane| vec![0; bytes(plane)]).collect();
        let mut places: Vec<&mut [u8]> = own.iter_mut().map(Vec::as_mut_slice).collect();
        let weights = &self.feedback.weights[first..][..count];
        let mut exact = wanted.clone();
        for (row, values) in exact.chunks_exact_mut(count).zip(self.values.chunks_exact(k)) {
            settle(self.isa, &values[first..][..count], &factors[first * k..], k, row);
        }
        self.encoder.encode(&exact, count, Some(weights), &mut places);

        // What the lowest codes and the highest ones stand for: all others lie between.
        let top = match self.recoder.levels() {
            Levels::Even(n) => n as usize - 1,
            Levels::Listed(places) => places.len() - 1,
        };
        let mut codes = vec![0u8; rows * count];
        let (mut low, mut high) = (vec![0.0; rows * count], vec![0.0; rows * count]);
        for (code, values) in [(0, &mut low), (top as u8, &mut high)] {
            codes.fill(code);
            self.recoder.put(&codes, count, &mut places);
            let planes: Vec<&[u8]> = places.iter().map(|plane| &**plane).collect();
            self.codec.decode(Matrix { planes: &planes, rows, k: count }, 0..rows, values);
        }
        let mut errors = vec![0.0; rows * count];
        let book = Book::of(self.recoder.levels());
        for r in 0..rows {
            let at = r * count..(r + 1) * count;
            let row = Row {
                values: &self.values[r * k + first..][..count],
                low: &low[at.clone()],
                high: &high[at.clone()],
                wanted: &mut wanted[at.clone()],
                codes: &mut codes[at.clone()],
                errors: &mut errors[at],
            };
            round(self.isa, row, &book, &factors[first * k..], k);
        }
        for (j, column) in self.errors[first * rows..][..count * rows].chunks_exact_mut(rows).enumerate() {
            for (r, error) in column.iter_mut().enumerate() {
                *error = errors[r * count + j];
            }
        }
        self.recoder.put(&codes, count, &mut places);
        for ((plane, own), to) in scheme.planes.iter().zip(&own).zip(planes) {
            put_columns(scheme, plane, [rows, k], first..first + count, own, to);
        }
    }
}

/// Puts columns `columns` of all rows, which lie in `own` as in a plane of their own, into a plane of a matrix of `[rows, k]`.
fn put_columns(
    scheme: &Scheme,
    plane: &PlaneSpec,
    [rows, k]: [usize; 2],
    columns: Range<usize>,
    own: &[u8],
    to: &mut [u8],
) {
    // Cells before the axis of columns, and bytes of one cell of it with all axes after it.
    let mut runs = if scheme.trailing <= OUT { rows } else { 1 };
    let (mut bytes, mut across) = (plane.cell_bytes as usize, None);
    for axis in plane.axes.iter() {
        let cells = match *axis {
            PlaneAxis::Cells { axis: IN, per, .. } => {
                across = Some(per as usize);
                continue;
            }
            PlaneAxis::Cells { per, .. } => rows.div_ceil(per as usize),
            PlaneAxis::Table(cells) => cells as usize,
        };
        if across.is_some() { bytes *= cells } else { runs *= cells }
    }
    let Some(per) = across else {
        // All columns share it: they were encoded together.
        to.copy_from_slice(own);
        return;
    };
    let (all, part) = (bytes * k.div_ceil(per), bytes * columns.len().div_ceil(per));
    for (to, own) in to.chunks_exact_mut(all).zip(own.chunks_exact(part)).take(runs) {
        to[bytes * (columns.start / per)..][..part].copy_from_slice(own);
    }
}

per_isa! {
    /// Adds to each row of `wanted`, `[rows, count]`, what the errors of the columns before ask for. `factors` begins at the first
    /// of these columns, with rows of `k`.
    fn feed(errors: &[f32], factors: &[f32], k: usize, count: usize, wanted: &mut [f32]) = feed_rows
}

#[inline(always)]
fn feed_rows<const FMA: bool>(errors: &[f32], factors: &[f32], k: usize, count: usize, wanted: &mut [f32]) {
    let rows = wanted.len() / count;
    for (i, errors) in errors.chunks_exact(rows).enumerate() {
        let factors = &factors[i * k..][..count];
        for (wanted, error) in wanted.chunks_exact_mut(count).zip(errors) {
            for (x, u) in wanted.iter_mut().zip(factors) {
                *x += error * u;
            }
        }
    }
}

per_isa! {
    /// What the feedback asks of columns if none of them needs rounding: `wanted` becomes that. `factors` begins at the first of
    /// them, with rows of `k`.
    fn settle(values: &[f32], factors: &[f32], k: usize, wanted: &mut [f32]) = settle_row
}

#[inline(always)]
fn settle_row<const FMA: bool>(values: &[f32], factors: &[f32], k: usize, wanted: &mut [f32]) {
    let count = values.len();
    for j in 0..count {
        let moved = values[j] - wanted[j];
        let factors = &factors[j * k..][..count];
        for (x, u) in wanted[j + 1..].iter_mut().zip(&factors[j + 1..]) {
            *x += moved * u;
        }
    }
}

/// Where codes stand, from 0 for the lowest to 1 for the highest.
enum Book {
    Even { top: f32 },
    Listed(Vec<f32>),
}

impl Book {
    fn of(levels: Levels) -> Book {
        match levels {
            Levels::Even(n) => Book::Even { top: (n.max(2) - 1) as f32 },
            Levels::Listed(places) => {
                let (low, high) = (f32::from(places[0]), f32::from(places[places.len() - 1]));
                Book::Listed(places.iter().map(|place| (f32::from(*place) - low) / (high - low)).collect())
            }
        }
    }

    /// The code nearest to `t`, and where it stands.
    #[inline(always)]
    fn nearest(&self, t: f32) -> (u8, f32) {
        let t = if t > 0.0 { t.min(1.0) } else { 0.0 };
        match self {
            Book::Even { top } => {
                let code = (t * top).round_ties_even();
                (code as u8, code / top)
            }
            Book::Listed(places) => {
                let above = places.iter().skip(1).zip(places).filter(|(b, a)| t > 0.5 * (**a + **b)).count();
                (above as u8, places[above])
            }
        }
    }
}

/// One row of columns that are rounded.
struct Row<'a> {
    values: &'a [f32],
    low: &'a [f32],
    high: &'a [f32],
    wanted: &'a mut [f32],
    codes: &'a mut [u8],
    errors: &'a mut [f32],
}

per_isa! {
    /// Rounds a row from left to right. `factors` begins at its first column, with rows of `k`.
    fn round(row: Row<'_>, book: &Book, factors: &[f32], k: usize) = round_row
}

#[inline(always)]
fn round_row<const FMA: bool>(row: Row<'_>, book: &Book, factors: &[f32], k: usize) {
    let count = row.values.len();
    for j in 0..count {
        let (low, span) = (row.low[j], row.high[j] - row.low[j]);
        let t = if span == 0.0 { 0.0 } else { (row.wanted[j] - low) / span };
        let (code, place) = book.nearest(t);
        let error = row.values[j] - (low + span * place);
        (row.codes[j], row.errors[j]) = (code, error);
        let factors = &factors[j * k..][..count];
        for (x, u) in row.wanted[j + 1..].iter_mut().zip(&factors[j + 1..]) {
            *x += error * u;
        }
    }
}

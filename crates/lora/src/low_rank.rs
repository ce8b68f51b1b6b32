//! The change of one tensor, in the order of that tensor.

use std::sync::Arc;

use crate::pair::Pair;

/// The change of a matrix `W`: row `i` becomes `w + scale · b · A`, where `b` is a row of `B`. Parts of a fused matrix have
/// factors of their own, and some have none.
#[derive(Debug)]
pub struct LowRank {
    pub(crate) columns: usize,
    /// For each row, which of the factors changes it, and the row of `B`.
    pub(crate) rows: Vec<Option<(usize, usize)>>,
    pub(crate) factors: Vec<Factors>,
    /// It is the change of the transposed matrix.
    pub(crate) turned: bool,
}

/// Factors of some rows.
#[derive(Debug)]
pub(crate) struct Factors {
    rank: usize,
    /// `[rank, columns]`, with the columns of the matrix.
    a: Arc<[f32]>,
    /// `[outputs, rank]`, in the adapter's order.
    b: Arc<[f32]>,
    scale: f32,
    /// `[outputs, columns]`: takes the place of `W`.
    base: Option<Arc<[f32]>>,
    /// The identity of the pair, and the columns of `a` that were taken, if not all in order.
    identity: Vec<u8>,
}

impl Factors {
    /// The factors of `pair` where column `j` of the matrix is column `columns[j]` of `a`.
    pub(crate) fn of(pair: &Pair, columns: &[usize]) -> Factors {
        let in_order = columns.len() == pair.inputs && columns.iter().enumerate().all(|(j, c)| j == *c);
        let mut identity = pair.digest().to_vec();
        if !in_order {
            identity.extend(columns.iter().flat_map(|c| (*c as u64).to_le_bytes()));
        }
        let taken = |matrix: &Arc<[f32]>| -> Arc<[f32]> {
            if in_order {
                return Arc::clone(matrix);
            }
            let rows = matrix.chunks_exact(pair.inputs.max(1));
            rows.flat_map(|row| columns.iter().map(|c| row[*c])).collect()
        };
        let (a, base) = (taken(&pair.a), pair.base.as_ref().map(taken));
        Factors { rank: pair.rank, a, b: Arc::clone(&pair.b), scale: pair.scale, base, identity }
    }

    /// Changes row `at` of `B`'s matrix, which is in `values`.
    fn change(&self, at: usize, values: &mut [f32], sums: &mut [f32]) {
        let columns = values.len();
        if let Some(base) = &self.base {
            values.copy_from_slice(&base[at * columns..(at + 1) * columns]);
        }
        sums.fill(0.0);
        let by = &self.b[at * self.rank..(at + 1) * self.rank];
        for (by, row) in by.iter().zip(self.a.chunks_exact(columns.max(1))) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += by * value;
            }
        }
        for (value, sum) in values.iter_mut().zip(sums) {
            *value += self.scale * *sum;
        }
    }

    /// Changes the element of row `at` of `B`'s matrix in `column` of `columns`.
    fn change_one(&self, at: usize, column: usize, columns: usize, value: &mut f32) {
        if let Some(base) = &self.base {
            *value = base[at * columns + column];
        }
        let by = &self.b[at * self.rank..(at + 1) * self.rank];
        let sum = by.iter().enumerate().fold(0.0, |sum, (t, by)| sum + by * self.a[t * columns + column]);
        *value += self.scale * sum;
    }
}

impl LowRank {
    /// The matrix that it changes: rows, and columns.
    pub fn shape(&self) -> [usize; 2] {
        let (rows, columns) = (self.rows.len(), self.columns);
        if self.turned { [columns, rows] } else { [rows, columns] }
    }

    /// The largest rank of its factors; 0 if they only replace values.
    pub fn rank(&self) -> usize {
        self.factors.iter().map(|factors| factors.rank).max().unwrap_or(0)
    }

    /// Changes row `row` of the matrix, which is in `values`. `sums` is as long.
    ///
    /// # Panics
    /// If there is no such row, or the lengths are not those of a row.
    pub fn change(&self, row: usize, values: &mut [f32], sums: &mut [f32]) {
        let [_, width] = self.shape();
        assert!(values.len() == width && sums.len() == width, "wanted a row of {width}");
        if self.turned {
            for (value, own) in values.iter_mut().zip(&self.rows) {
                if let Some((factors, at)) = *own {
                    self.factors[factors].change_one(at, row, self.columns, value);
                }
            }
        } else if let Some((factors, at)) = self.rows[row] {
            self.factors[factors].change(at, values, sums);
        }
    }

    /// Whether it only adds to the matrix, row by row: then [`LowRank::add_product`] does the same to products.
    pub fn is_sum(&self) -> bool {
        !self.turned && self.factors.iter().all(|factors| factors.base.is_none())
    }

    /// Values that [`LowRank::add_product`] needs room for.
    pub fn room(&self) -> usize {
        self.factors.iter().map(|factors| factors.rank).sum()
    }

    /// Adds to the product `y` of the matrix with `x` what the change adds to it: `scale · B · (A · x)`. `room` has room for
    /// [`LowRank::room`] values, and `dot` is the product of two vectors.
    ///
    /// # Panics
    /// If `x` is not as long as a row, or `room` is too small.
    pub fn add_product(
        &self,
        x: &[f32],
        y: &mut [f32],
        room: &mut [f32],
        dot: impl Fn(&[f32], &[f32]) -> f32,
    ) {
        let mut rest = &mut room[..self.room()];
        for Factors { rank, a, scale, .. } in &self.factors {
            let (products, after) = std::mem::take(&mut rest).split_at_mut(*rank);
            for (product, row) in products.iter_mut().zip(a.chunks_exact(self.columns.max(1))) {
                *product = scale * dot(row, x);
            }
            rest = after;
        }
        for (y, row) in y.iter_mut().zip(&self.rows) {
            let Some((factors, at)) = *row else { continue };
            let first: usize = self.factors[..factors].iter().map(|before| before.rank).sum();
            let Factors { rank, b, .. } = &self.factors[factors];
            let by = b[at * rank..(at + 1) * rank].iter().zip(&room[first..]);
            *y += by.fold(0.0, |sum, (b, product)| sum + b * product);
        }
    }

    /// All that the change depends on.
    pub fn identity(&self) -> Vec<u8> {
        let mut all = vec![u8::from(self.turned)];
        for factors in &self.factors {
            all.extend((factors.identity.len() as u64).to_le_bytes());
            all.extend(&factors.identity);
        }
        for row in &self.rows {
            let (factors, at) = row.map_or((u64::MAX, 0), |(factors, at)| (factors as u64, at as u64));
            all.extend(factors.to_le_bytes());
            all.extend(at.to_le_bytes());
        }
        all
    }
}

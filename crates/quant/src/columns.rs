//! A view of some columns of a matrix of floats, to be filled.

use std::fmt;
use std::marker::PhantomData;

/// Some columns of a row-major matrix `[rows, stride]` of f32, owned for writing.
///
/// [`ColumnsMut::split_at`] cuts it into disjoint parts, which can go to different threads: that is how the
/// outputs of one product are shared out, since a thread owns rows of the weight, which are columns here.
pub struct ColumnsMut<'a> {
    /// The first column of the first row. All of `rows` times `columns` floats, `stride` apart, are ours.
    start: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl fmt::Debug for ColumnsMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnsMut").finish_non_exhaustive()
    }
}

// SAFETY: it is a `&mut` to its elements, which are `f32`: no two views reach the same one.
unsafe impl Send for ColumnsMut<'_> {}

impl<'a> ColumnsMut<'a> {
    /// All of `data`, `[rows, columns]`.
    ///
    /// # Panics
    /// If `data` has another length.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(Some(data.len()), rows.checked_mul(columns), "{rows} rows of {columns}");
        ColumnsMut { start: data.as_mut_ptr(), rows, columns, stride: columns, owner: PhantomData }
    }

    /// Rows of the view: one for each row of the activations.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the view: one for each row of the weight.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The first `column` columns, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_at(self, column: usize) -> (Self, Self) {
        assert!(column <= self.columns, "column {column} of {}", self.columns);
        // An empty right part keeps its start, which is then never used, inside the allocation.
        let offset = if column == self.columns { 0 } else { column };
        // SAFETY: `offset` is 0 or below `columns`; if there are no rows the pointer is not moved at all.
        let start = if self.rows == 0 { self.start } else { unsafe { self.start.add(offset) } };
        (ColumnsMut { columns: column, ..self }, ColumnsMut { start, columns: self.columns - column, ..self })
    }

    /// The first `row` rows, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_at_row(self, row: usize) -> (Self, Self) {
        assert!(row <= self.rows, "row {row} of {}", self.rows);
        // No rows keep their start, as no columns do.
        let offset = if row == self.rows { 0 } else { row * self.stride };
        // SAFETY: `offset` is 0, or where one of our rows begins.
        let start = unsafe { self.start.add(offset) };
        (ColumnsMut { rows: row, ..self }, ColumnsMut { start, rows: self.rows - row, ..self })
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> ColumnsMut<'_> {
        ColumnsMut { owner: PhantomData, ..*self }
    }

    /// Our columns of row `row`.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: `row` is in range, so these are floats that we own; `&mut self` keeps others from using them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_together_the_whole() {
        let mut data = [0.0; 3 * 5];
        let (mut left, right) = ColumnsMut::new(&mut data, 3, 5).split_at(2);
        let (mut middle, mut none) = right.split_at(3);
        std::thread::scope(|s| {
            s.spawn(|| (0..3).for_each(|r| left.row_mut(r).fill(1.0)));
            s.spawn(|| (0..3).for_each(|r| middle.row_mut(r).fill(2.0)));
        });
        assert!((0..3).all(|r| none.row_mut(r).is_empty()));
        for row in data.chunks(5) {
            assert_eq!(row, [1.0, 1.0, 2.0, 2.0, 2.0]);
        }
    }

    #[test]
    fn rows_of_a_view_are_disjoint() {
        let mut data = [0.0; 3 * 4];
        let (_, right) = ColumnsMut::new(&mut data, 3, 4).split_at(1);
        let (mut above, below) = right.split_at_row(1);
        let (mut below, none) = below.split_at_row(2);
        (0..2).for_each(|row| below.row_mut(row).fill(2.0));
        above.row_mut(0).fill(1.0);
        assert_eq!((none.rows(), none.columns()), (0, 3));
        assert_eq!(data[..], [0.0, 1.0, 1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn no_rows_is_a_view_too() {
        let (left, right) = ColumnsMut::new(&mut [], 0, 7).split_at(4);
        assert_eq!((left.columns(), right.columns()), (4, 3));
    }

    #[test]
    #[should_panic(expected = "column 6 of 5")]
    fn a_cut_past_the_end_is_refused() {
        ColumnsMut::new(&mut [0.0; 5], 1, 5).split_at(6);
    }
}

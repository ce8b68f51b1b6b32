//! One row of a matrix in any form, for embeddings.

use tensor::{Dtype, Scheme};

use crate::codec::Matrix;
use crate::registry::codec;

/// Writes row `row` of `matrix`, `[rows, k]`, to `out`, `[k]`: plain, in blocks, over several planes, or
/// interleaved.
///
/// # Panics
/// If the scheme cannot be decoded, or a size does not fit another: a plan has checked all of that.
pub fn decode_row(scheme: &Scheme, matrix: Matrix<'_>, row: usize, out: &mut [f32]) {
    if scheme.dtype() == Some(Dtype::F32) {
        let [bytes] = matrix.planes();
        let row = &bytes[row * 4 * matrix.k..][..4 * matrix.k];
        for (out, value) in out.iter_mut().zip(row.as_chunks::<4>().0) {
            *out = f32::from_le_bytes(*value);
        }
        return;
    }
    let Some(codec) = codec(&scheme.name) else { panic!("`{scheme}` cannot be decoded") };
    codec.decode(matrix, row..row + 1, out);
}

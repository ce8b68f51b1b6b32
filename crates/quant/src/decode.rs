//! One row of a matrix in any form, for embeddings.

use tensor::{Dtype, Scheme};

use crate::interleave;
use crate::registry::codec;

/// Writes row `row` of the matrix whose bytes are `w`, `[rows, k]`, to `out`, `[k]`: plain, in blocks, or
/// interleaved, all to the same bits.
///
/// # Panics
/// If the scheme cannot be decoded, or a size does not fit another: a plan has checked all of that.
pub fn decode_row(scheme: &Scheme, w: &[u8], k: usize, row: usize, out: &mut [f32]) {
    assert_eq!(out.len(), k, "values of a row of {k}");
    if let Some(form) = interleave::form(&scheme.name) {
        return form.decode_row(w, k, row, out);
    }
    let Some(codec) = codec(&scheme.name) else { panic!("`{scheme}` cannot be decoded") };
    let bytes = k / codec.per() * codec.cell_bytes();
    assert!(k.is_multiple_of(codec.per()), "{k} columns are not blocks of {}", codec.per());
    let row = &w[row * bytes..][..bytes];
    if scheme.dtype() == Some(Dtype::F32) {
        for (out, value) in out.iter_mut().zip(row.as_chunks::<4>().0) {
            *out = f32::from_le_bytes(*value);
        }
    } else {
        codec.decode(&[row], out);
    }
}

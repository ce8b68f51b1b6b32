//! Products of a matrix with rows of activations: `y[t][row] = Σ w[row][i] * x[t][i]`.

mod blocks;
mod floats;
mod unit;

use std::ops::Range;

use tensor::Scheme;

use crate::activations::{Activations, Forms};
use crate::columns::ColumnsMut;
use crate::interleave::{self, Packed};
use crate::isa::Isa;
use crate::scheme as s;

use blocks::{Blocks, Job};
use floats::floats_of;

/// How to multiply matrices of one scheme, on one instruction set. Chosen once by [`kernel`].
///
/// All forms of a scheme, all instruction sets, and any split of the rows give the same bits.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Rows that are best asked for together; an interleaved matrix must be asked for in multiples of it.
    pub grain: usize,
    /// The columns of a matrix must be a multiple of this.
    pub k_multiple: usize,
    /// What it reads of the activations.
    pub forms: Forms,
    /// Bytes of `k_multiple` columns of `group` rows.
    bytes: usize,
    /// Rows that lie together: more than 1 for interleaved matrices only.
    group: usize,
    /// Only callable with the instructions of the `Isa` that [`kernel`] was given.
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    Plain(unsafe fn(&mut Job<'_>)),
    Stored(Blocks),
    Interleaved(Blocks),
}

/// The kernel for matrices of `scheme`, if they can be multiplied: f32, f16, bf16, and every block scheme that
/// can be decoded, as stored or interleaved.
pub fn kernel(scheme: &Scheme, isa: Isa) -> Option<Kernel> {
    let plain = |bytes, run| {
        let how = How::Plain(run);
        Kernel { grain: 16, k_multiple: 1, forms: Forms::F32, bytes, group: 1, how }
    };
    Some(match &*scheme.name {
        "f32" => plain(4, floats_of::<floats::F32>(isa)),
        "f16" => plain(2, floats_of::<floats::F16>(isa)),
        "bf16" => plain(2, floats_of::<floats::BF16>(isa)),
        name => {
            let form = interleave::form(name);
            let r = form.map(|f| f.r);
            match form.map_or(name, |f| f.stored) {
                "q4_0" => packed::<s::Q4_0>(isa, r),
                "q4_1" => packed::<s::Q4_1>(isa, r),
                "q5_0" => packed::<s::Q5_0>(isa, r),
                "q5_1" => packed::<s::Q5_1>(isa, r),
                "q8_0" => packed::<s::Q8_0>(isa, r),
                "iq4_nl" => packed::<s::IQ4NL>(isa, r),
                "mxfp4" => packed::<s::MXFP4>(isa, r),
                "q2_k" => packed::<s::Q2K>(isa, r),
                "q3_k" => packed::<s::Q3K>(isa, r),
                "q4_k" => packed::<s::Q4K>(isa, r),
                "q5_k" => packed::<s::Q5K>(isa, r),
                "q6_k" => packed::<s::Q6K>(isa, r),
                "iq4_xs" => packed::<s::IQ4XS>(isa, r),
                _ => return None,
            }
        }
    })
}

/// The kernel for a block scheme: interleaved by `r` rows, or as stored.
fn packed<S: Packed>(isa: Isa, r: Option<usize>) -> Kernel {
    let forms = Forms::INT8;
    if let Some(r) = r {
        let (bytes, how) = (S::VECTORS * 4 * r, How::Interleaved(Blocks::of::<S>(isa, r)));
        return Kernel { grain: r, k_multiple: S::UNIT, forms, bytes, group: r, how };
    }
    let r = isa.interleave().unwrap_or(8);
    let how = How::Stored(Blocks::of::<S>(isa, r));
    Kernel { grain: r, k_multiple: S::PER, forms, bytes: S::BYTES, group: 1, how }
}

impl Kernel {
    /// Multiplies rows `rows` of the matrix whose bytes are `w`, `[out, k]`, with every row of `x`, `[rows, k]`:
    /// column `i` of `y` is for row `rows.start + i`.
    ///
    /// # Panics
    /// If a size does not fit another, the rows are not whole groups of an interleaved matrix, or `x` does not
    /// hold the form that the kernel reads.
    pub fn run(&self, w: &[u8], k: usize, rows: Range<usize>, x: &Activations, y: ColumnsMut<'_>) {
        assert!(
            k > 0 && k.is_multiple_of(self.k_multiple),
            "{k} columns, not a multiple of {}",
            self.k_multiple
        );
        let group_bytes = k / self.k_multiple * self.bytes;
        let total = w.len() / group_bytes * self.group;
        assert!(w.len().is_multiple_of(group_bytes), "{} bytes are not rows of {k} columns", w.len());
        assert!(
            rows.start <= rows.end
                && rows.end <= total
                && rows.start.is_multiple_of(self.group)
                && rows.end.is_multiple_of(self.group),
            "rows {rows:?} of {total} in groups of {}",
            self.group
        );
        assert!(x.k() == k && x.has(self.forms), "activations of {} columns for {k}", x.k());
        assert!(
            y.rows() == x.rows() && y.columns() == rows.len(),
            "results [{}, {}] for {} activations and rows {rows:?}",
            y.rows(),
            y.columns(),
            x.rows()
        );
        let mut job = Job { w, total, k, rows, x, y };
        // SAFETY: the instructions are there, since an `Isa` is a witness of its own; and the sizes are checked.
        unsafe {
            match self.how {
                How::Plain(run) => run(&mut job),
                How::Stored(blocks) => blocks.stored(&mut job),
                How::Interleaved(blocks) => blocks.interleaved(&mut job),
            }
        }
    }
}

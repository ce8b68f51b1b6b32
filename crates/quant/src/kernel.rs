//! Products of a matrix with rows of activations: `y[t][row] = Σ w[row][i] * x[t][i]`.

mod blocks;
mod decoded;
mod floats;
mod kinds;
mod unit;

use std::fmt;
use std::ops::Range;

use tensor::Scheme;

use crate::access::{Access, Way};
use crate::activations::{Activations, Forms};
use crate::codec::Matrix;
use crate::columns::ColumnsMut;
use crate::interleave::{form, packed};
use crate::isa::Isa;
use crate::packing::{Factor, PLANES};
use crate::registry::stored;

use blocks::{Blocks, Job};
use decoded::Decoded;
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
    /// The forms of the activations that it reads.
    pub forms: Forms,
    /// Bytes of `k_multiple` columns of `group` rows, in each plane that holds codes.
    bytes: [usize; PLANES],
    /// The factor of the results of each row, in the plane after the others.
    factor: Option<Factor>,
    /// Rows that lie together: more than 1 for interleaved matrices only.
    group: usize,
    way: Way,
    /// Only callable with the instructions of the `Isa` that [`kernel`] was given.
    how: How,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum How {
    Plain(unsafe fn(&mut Job<'_>)),
    Stored(Blocks),
    Interleaved(Blocks),
    Decoded(Decoded),
}

/// The kernel for matrices of `scheme`, if they can be multiplied: f32, f16, bf16, quantised schemes as stored or
/// interleaved, and as floats all others that can be decoded.
pub fn kernel(scheme: &Scheme, isa: Isa) -> Option<Kernel> {
    kernel_with(scheme, isa, Access::detect().way(scheme))
}

/// Like [`kernel`], that reads weights in a given way.
pub fn kernel_with(scheme: &Scheme, isa: Isa, way: Way) -> Option<Kernel> {
    // Of floats, in no plane yet.
    let floats = |how| Kernel {
        grain: 16,
        k_multiple: 1,
        forms: Forms::F32,
        bytes: [0; PLANES],
        factor: None,
        group: 1,
        way,
        how,
    };
    let plain = |bytes, run| Some(Kernel { bytes: [bytes, 0, 0], ..floats(How::Plain(run)) });
    let name = match &*scheme.name {
        "f32" => return plain(4, floats_of::<floats::F32>(isa)),
        "f16" => return plain(2, floats_of::<floats::F16>(isa)),
        "bf16" => return plain(2, floats_of::<floats::BF16>(isa)),
        name => name,
    };
    if let Some(form) = form(name) {
        let (r, packing) = (form.r, form.packing);
        return Some(Kernel {
            grain: r,
            k_multiple: packing.unit,
            forms: Forms::INT8,
            bytes: [packing.vectors() * 4 * r, 0, 0],
            factor: packing.factor,
            group: r,
            ..floats(How::Interleaved(Blocks::of(packing, isa, r, way.ahead > 0)?))
        });
    }
    let Some(packed) = packed(name) else {
        return Some(floats(How::Decoded(Decoded::of(stored(name)?, isa))));
    };
    let (r, packing) = (isa.interleave().unwrap_or(8), packed.packing);
    Some(Kernel {
        grain: r,
        k_multiple: packing.per,
        forms: Forms::INT8,
        bytes: packing.stored.map(|bytes| bytes * packing.per / packing.unit),
        factor: packing.factor,
        // Its operand is in the cache, so it needs no prefetch.
        ..floats(How::Stored(Blocks::of(packing, isa, r, false)?))
    })
}

impl Kernel {
    /// Whether rows lie together in groups of [`Kernel::grain`], which are asked for whole.
    pub fn is_grouped(&self) -> bool {
        self.group > 1
    }

    /// Whether it has no arithmetic for the scheme, and makes floats of a few rows at a time.
    pub fn decodes(&self) -> bool {
        matches!(self.how, How::Decoded(_))
    }

    /// Multiplies rows `rows` of `w` with every row of `x`, `[rows, k]`: column `i` of `y` is for row
    /// `rows.start + i`.
    ///
    /// # Panics
    /// If a size does not fit another, the rows are not whole groups of an interleaved matrix, or `x` does not
    /// hold the form that the kernel reads.
    pub fn run(&self, w: Matrix<'_>, rows: Range<usize>, x: &Activations, y: ColumnsMut<'_>) {
        let Matrix { planes, rows: total, k } = w;
        assert!(
            k > 0 && k.is_multiple_of(self.k_multiple),
            "{k} columns, not a multiple of {}",
            self.k_multiple
        );
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
        if let How::Decoded(decoded) = self.how {
            let job = Job { w: [&[]; PLANES], total, k, rows, x, y, way: self.way };
            // SAFETY: the instructions are there, since an `Isa` is a witness of its own; the codec checks planes.
            return unsafe { decoded.run(w, job) };
        }
        let group_bytes = self.bytes.map(|bytes| k / self.k_multiple * bytes);
        let codes = self.bytes.iter().take_while(|bytes| **bytes > 0).count();
        assert_eq!(planes.len(), codes + usize::from(self.factor.is_some()), "planes of a matrix");
        let whole = |i: usize| planes[i].len() == total / self.group * group_bytes[i];
        let factors = self.factor.map(|f| (planes[codes].as_chunks::<4>().0, f.times));
        assert!(
            total.is_multiple_of(self.group)
                && (0..codes).all(whole)
                && factors.is_none_or(|(f, _)| f.len() == total),
            "{} bytes are not {total} rows of {k} columns",
            planes.iter().map(|w| w.len()).sum::<usize>()
        );
        let codes = std::array::from_fn(|i| if i < codes { planes[i] } else { &[] });
        let mut job = Job { w: codes, total, k, rows, x, y, way: self.way };
        // SAFETY: the instructions are there, since an `Isa` is a witness of its own; and the sizes are checked.
        unsafe {
            match self.how {
                How::Plain(run) => run(&mut job),
                How::Stored(blocks) => blocks.stored(&mut job),
                How::Interleaved(blocks) => blocks.interleaved(&mut job),
                How::Decoded(_) => {}
            }
        }
        if let Some((factors, times)) = factors {
            let Job { rows, mut y, .. } = job;
            for t in 0..y.rows() {
                for (y, factor) in y.row_mut(t).iter_mut().zip(&factors[rows.clone()]) {
                    *y *= f32::from_le_bytes(*factor) * times;
                }
            }
        }
    }
}

//! The codecs of a load: which changes can be made, and making them.

use std::sync::Arc;

use plan::Fidelity;
use tensor::{Dtype, Scheme, Step};

/// What `quant` can do, as the plan asks it.
pub struct Codecs;

impl plan::Codecs for Codecs {
    fn fidelity(&self, from: &Scheme, to: &Scheme) -> Option<Fidelity> {
        let exact = from == to || is_repack(from, to) || (to.dtype() == Some(Dtype::F32) && decodes(from));
        exact.then_some(Fidelity::Exact)
    }
}

/// Every scheme we decode has values that f32 holds exactly, or defines them by its f32 arithmetic.
fn decodes(from: &Scheme) -> bool {
    quant::codec(&from.name).is_some()
}

fn is_repack(from: &Scheme, to: &Scheme) -> bool {
    [8, 16].into_iter().any(|rows| {
        let interleaved = |scheme: &Scheme| quant::interleaved(&scheme.name, rows);
        interleaved(from).is_some_and(|s| *s == *to) || interleaved(to).is_some_and(|s| *s == *from)
    })
}

/// The steps of one parameter as one change of whole rows.
pub(crate) enum Change {
    /// None: movement fills the slot.
    None,
    /// Rows interleaved or set apart again.
    Repack { from: Arc<Scheme>, to: Arc<Scheme> },
    /// Decoded to f32, plus a number.
    Decode { from: Arc<Scheme>, add: f32 },
}

impl Change {
    /// The change that `steps` make to `moved`, or the pair of names that no codec joins.
    pub(crate) fn of(moved: &Arc<Scheme>, steps: &[Step]) -> Result<Change, (String, String)> {
        let mut change = Change::None;
        for step in steps {
            change = match (change, step) {
                (Change::None, Step::To(to)) if **to == **moved => Change::None,
                (Change::None, Step::To(to)) if is_repack(moved, to) => {
                    Change::Repack { from: Arc::clone(moved), to: Arc::clone(to) }
                }
                (Change::None, Step::To(to)) if to.dtype() == Some(Dtype::F32) && decodes(moved) => {
                    Change::Decode { from: Arc::clone(moved), add: 0.0 }
                }
                (Change::None, Step::AddOne) if moved.dtype() == Some(Dtype::F32) => {
                    Change::Decode { from: Arc::clone(moved), add: 1.0 }
                }
                (Change::Decode { from, add }, Step::AddOne) => Change::Decode { from, add: add + 1.0 },
                (change @ Change::Decode { .. }, Step::To(to)) if to.dtype() == Some(Dtype::F32) => change,
                (_, Step::To(to)) => return Err((moved.name.to_string(), to.name.to_string())),
                (_, Step::AddOne) => return Err((moved.name.to_string(), "f32 + 1".to_owned())),
            };
        }
        Ok(change)
    }

    /// Changes whole rows of `k` elements from `src` to `dst`, whose sizes match.
    pub(crate) fn apply(&self, k: usize, src: &[u8], dst: &mut [u8]) {
        match self {
            Change::None => dst.copy_from_slice(src),
            Change::Repack { from, to } => quant::repack(from, to, k, src, dst),
            Change::Decode { from, add } => {
                let out: &mut [f32] = bytemuck::cast_slice_mut(dst);
                // `decodes` was asked when the change was made.
                if let Some(codec) = quant::codec(&from.name) {
                    codec.decode(&[src], out);
                }
                if *add != 0.0 {
                    for x in out {
                        *x += add;
                    }
                }
            }
        }
    }
}

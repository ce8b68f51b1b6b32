//! Which changes can be made, as the plan asks it.

use plan::Fidelity;
use tensor::{Dtype, Scheme};

/// What `quant` can do, as the plan asks it.
pub struct Codecs;

impl plan::Codecs for Codecs {
    fn fidelity(&self, from: &Scheme, to: &Scheme) -> Option<Fidelity> {
        if from == to || is_repack(from, to) {
            return Some(Fidelity::Exact);
        }
        let from = quant::codec(&from.name)?;
        let swapped = from.name().strip_suffix(".be") == Some(&*to.name);
        if swapped && to.dtype().is_some_and(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16)) {
            // The other order of bytes: each value has a place in f32 on the way.
            return Some(Fidelity::Exact);
        }
        if to.dtype() == Some(Dtype::F32) {
            // Every scheme we decode has values that f32 holds exactly, or defines them by its f32
            // arithmetic; but for one.
            let narrowed = matches!(from.name(), "f64" | "f64.be");
            return Some(if narrowed {
                Fidelity::Lossy("f64 is rounded to f32".into())
            } else {
                Fidelity::Exact
            });
        }
        quant::codec(&to.name)?.encoder()?;
        Some(Fidelity::Lossy(format!("{} is rounded to {}", from.name(), to.name)))
    }
}

pub(crate) fn is_repack(from: &Scheme, to: &Scheme) -> bool {
    [8, 16].into_iter().any(|rows| {
        let interleaved = |scheme: &Scheme| quant::interleaved(&scheme.name, rows);
        interleaved(from).is_some_and(|s| *s == *to) || interleaved(to).is_some_and(|s| *s == *from)
    })
}

//! Which changes can be made, as the plan asks it.

use std::sync::Arc;

use plan::Fidelity;
use quant::Merger;
use tensor::{Dtype, Scheme};

/// Answers the plan's questions about codecs from `quant`.
#[derive(Debug)]
pub struct Codecs;

impl plan::Codecs for Codecs {
    fn fidelity(&self, from: &Scheme, to: &Scheme) -> Option<Fidelity> {
        if from == to || is_repack(from, to) {
            return Some(Fidelity::Exact);
        }
        if let Some(exact) = quant::recasts(from, to) {
            let why = || format!("scales of {} are rounded to {}", from.name, to.name);
            return Some(if exact { Fidelity::Exact } else { Fidelity::Lossy(why()) });
        }
        if is_by_row(to, from) {
            // All rows have the one scale.
            return Some(Fidelity::Exact);
        }
        if is_by_row(from, to) {
            return Some(Fidelity::Lossy("rows whose scale is not the largest are rounded to that".into()));
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

    fn same_cells(&self, from: &Scheme, to: &Scheme) -> bool {
        from == to || is_by_row(to, from)
    }

    fn by_row(&self, scheme: &Scheme) -> Option<Arc<Scheme>> {
        merger(scheme).map(Merger::by_row)
    }
}

/// How rows with a scale each become a matrix of `scheme`.
pub(crate) fn merger(scheme: &Scheme) -> Option<&'static dyn Merger> {
    quant::codec(&scheme.name)?.merger()
}

/// Whether `rows` is `whole`, but that each row has a scale.
pub(crate) fn is_by_row(rows: &Scheme, whole: &Scheme) -> bool {
    merger(whole).is_some_and(|merger| *merger.by_row() == *rows)
}

pub(crate) fn is_repack(from: &Scheme, to: &Scheme) -> bool {
    [8, 16].into_iter().any(|rows| {
        let interleaved = |scheme: &Scheme| quant::interleaved(&scheme.name, rows);
        interleaved(from).is_some_and(|s| *s == *to) || interleaved(to).is_some_and(|s| *s == *from)
    })
}

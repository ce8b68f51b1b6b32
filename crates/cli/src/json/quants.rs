//! `quants --json`.

use serde::Serialize;
use weighbridge::quant::Quant as Listed;

/// What `weighbridge quants --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Quants<'a> {
    quants: Vec<Quant<'a>>,
}

/// An encoding of tensors.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Quant<'a> {
    /// As encoding rules take it.
    name: &'a str,
    /// Bits stored for each value of a large matrix, scales included.
    bits: f64,
    /// The roles of its planes, in order.
    planes: &'a [&'static str],
    /// Whether values can be read.
    decodes: bool,
    /// Whether values can be written.
    encodes: bool,
    /// Instruction sets of this machine that multiply by it without decoding it first.
    runs_on: &'a [&'static str],
    /// Its row-interleaved forms.
    interleaved: &'a [String],
}

impl<'a> Quants<'a> {
    pub(crate) fn of(quants: &'a [Listed]) -> Quants<'a> {
        let of = |q: &'a Listed| Quant {
            name: &q.name,
            bits: q.bits,
            planes: &q.planes,
            decodes: q.decodes,
            encodes: q.encodes,
            runs_on: &q.runs_on,
            interleaved: &q.interleaved,
        };
        Quants { quants: quants.iter().map(of).collect() }
    }
}

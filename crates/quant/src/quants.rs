//! The table of schemes, with the operations that each supports.

use tensor::Shape;

use crate::Isa;

/// One scheme, and what can be done with it.
#[derive(Clone, Debug)]
pub struct Quant {
    /// Its name, as encoding rules take it.
    pub name: String,
    /// Bits that are stored for each value of a large matrix, scales and all.
    pub bits: f64,
    /// The roles of its planes, in order.
    pub planes: Vec<&'static str>,
    /// Values can be read.
    pub decodes: bool,
    /// Values can be written.
    pub encodes: bool,
    /// Instruction sets of this machine that multiply by it without decoding it first; by all others it is multiplied
    /// a few rows at a time, as floats.
    pub runs_on: Vec<&'static str>,
    /// Its row-interleaved forms, which run fastest.
    pub interleaved: Vec<String>,
}

/// Returns every scheme that can be decoded; for schemes of many sizes, the usual ones.
pub fn quants() -> Vec<Quant> {
    // Many whole blocks and groups of any scheme.
    const SIDE: u64 = 4096;
    let row = |name: String| {
        let scheme = crate::scheme(&name)?;
        let codec = crate::codec(&name)?;
        let bytes = scheme.byte_len(&Shape::from([SIDE, SIDE])).ok()?;
        let forms = [8, 16].into_iter().filter_map(|rows| crate::interleaved(&name, rows));
        let forms: Vec<_> = forms.collect();
        let directly = |scheme, isa| crate::kernel(scheme, isa).is_some_and(|k| !k.decodes());
        let runs = |isa: &Isa| directly(&scheme, *isa) || forms.iter().any(|f| directly(f, *isa));
        Some(Quant {
            bits: bytes as f64 * 8.0 / (SIDE * SIDE) as f64,
            planes: scheme.planes.iter().map(|p| p.role).collect(),
            decodes: true,
            encodes: codec.encoder().is_some(),
            runs_on: Isa::available().into_iter().filter(runs).map(Isa::name).collect(),
            interleaved: forms.iter().map(|f| f.name.to_string()).collect(),
            name,
        })
    };
    crate::names().filter_map(row).collect()
}

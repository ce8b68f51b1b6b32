//! The layouts by name.

use model::{
    Canonical, DialectName, Export, Family, Holding, InPlace, Layout, Mesh, Model, Modules, Named, Packed,
    Param, RuntimeLayout, Vllm,
};
use tensor::{Arrangement, OneWay, RopeOrder, Share};

use crate::Error;

/// How a runtime wants the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Names, shapes and encodings of the file: needs no model, and nothing runs it.
    Source,
    /// Canonical names, shapes and order; matrices encoded as stored.
    Canonical,
    /// As it lies in the file, to borrow all that can be.
    InPlace,
    /// Names and shapes of an ecosystem's files, whatever those of this one are.
    Named(DialectName),
    /// What the modules of the model hold, under their own names: fused where they fuse, encoded as stored.
    Modules,
    /// As the layers of vLLM hold them: fused, the vocabulary padded.
    Vllm,
    /// Fused, and rows interleaved by this many.
    Packed {
        /// Rows of a group: 8 for AVX2, 16 for AVX-512.
        rows: u64,
    },
}

impl LayoutKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            LayoutKind::Source => "source",
            LayoutKind::Canonical => "canonical",
            LayoutKind::InPlace => "in-place",
            LayoutKind::Named(DialectName::Gguf) => "gguf",
            LayoutKind::Named(DialectName::Hf) => "hf",
            LayoutKind::Modules => "modules",
            LayoutKind::Vllm => "vllm",
            LayoutKind::Packed { .. } => "packed",
        }
    }

    pub(crate) fn targets(self, model: &Model, params: &[Param]) -> Result<Export, OneWay> {
        let layout = match self {
            // As stored, the parameters are the entries: there is no model to ask.
            LayoutKind::Source => RuntimeLayout { targets: vec![], rope_order: RopeOrder::Half },
            LayoutKind::Named(dialect) => return Named(dialect).targets(model, params),
            LayoutKind::Vllm => return Vllm.targets(model, params),
            LayoutKind::Modules => Modules.targets(model, params),
            LayoutKind::Canonical => Canonical.targets(model, params),
            LayoutKind::InPlace => InPlace.targets(model, params),
            LayoutKind::Packed { rows } => {
                let interleaved = |scheme: &tensor::Scheme, k: u64| {
                    let rows = usize::try_from(rows).ok()?;
                    quant::interleaved(&scheme.name, rows).filter(|s| {
                        // Whole units along the input: else the matrix stays as stored.
                        s.byte_len(&[rows as u64, k].into()).is_ok()
                    })
                };
                Packed { rows, interleaved: &interleaved }.targets(model, params)
            }
        };
        Ok(Export { layout, nameless: vec![] })
    }

    /// What must be known of it beside names, shapes and schemes, on a rank of a mesh.
    pub(crate) fn arrangement(self, rope_order: RopeOrder, mesh: &Mesh, rank: u64) -> Arrangement {
        let share = mesh.is_many().then(|| Share { mesh: mesh.to_string(), rank });
        Arrangement { layout: self.name().into(), rope_order: Some(rope_order), share }
    }

    /// Whether an engine of ours runs it.
    pub fn runs(self) -> bool {
        matches!(self, LayoutKind::Canonical | LayoutKind::InPlace | LayoutKind::Packed { .. })
    }

    /// Whether matrices with a scale each have one in common where they are fused, as kernels want it that know no other.
    /// Elsewhere each row keeps its own.
    pub(crate) fn merges(self) -> bool {
        self == LayoutKind::Vllm
    }

    /// What ranks hold of a model of `family`, where layouts differ.
    pub(crate) fn holding(self, family: Option<&dyn Family>) -> Holding {
        match self {
            LayoutKind::Vllm => Vllm.holding(family),
            _ => Holding::default(),
        }
    }

    /// Whether ranks can share it: the others are whole files.
    pub(crate) fn is_shared(self) -> bool {
        !matches!(self, LayoutKind::Source | LayoutKind::Named(_))
    }
}

/// The packed layout with as many interleaved rows as this machine's kernels take (16 if it has none).
///
/// # Errors
/// If `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
pub fn packed_layout() -> Result<LayoutKind, Error> {
    let rows = isa()?.interleave().unwrap_or(16);
    Ok(LayoutKind::Packed { rows: rows as u64 })
}

/// The instruction set that kernels use.
pub(crate) fn isa() -> Result<quant::Isa, Error> {
    Ok(quant::Isa::detect()?)
}

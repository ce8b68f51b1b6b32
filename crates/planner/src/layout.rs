//! The layouts by name.

use model::{
    Canonical, DialectName, Family, Holding, InPlace, Layout, Mesh, Mlx, Model, Modules, Named, Packed,
    Param, RuntimeLayout,
};
use tensor::{Arrangement, MeshRank, OneWay, RopeOrder, ValueOrder};

use crate::Error;

/// How a runtime wants the parameters.
#[derive(Clone, Copy, Debug)]
pub enum LayoutKind {
    /// Names, shapes and encodings of the file: needs no model, and nothing runs it.
    Source,
    /// Canonical names, shapes and order; matrices encoded as stored.
    Canonical,
    /// As it lies in the file, to borrow all that can be.
    InPlace,
    /// Names and shapes of an ecosystem's files, whatever ecosystem the checkpoint is from.
    Named(DialectName),
    /// Names and shapes of mlx-lm's directories, whatever ecosystem the checkpoint is from.
    Mlx,
    /// The parameters of the model's modules, under their own names: fused where they fuse, encoded as stored.
    Modules,
    /// Fused, and rows interleaved by this many.
    Packed {
        /// Rows of a group: 8 for AVX2, 16 for AVX-512.
        rows: u64,
    },
    /// A layout of another runtime, known by its name.
    Of(&'static (dyn Layout + Sync)),
}

/// Layouts are the same that have one name, and as many rows.
impl PartialEq for LayoutKind {
    fn eq(&self, other: &LayoutKind) -> bool {
        let rows = |layout: &LayoutKind| match layout {
            LayoutKind::Packed { rows } => *rows,
            _ => 0,
        };
        self.name() == other.name() && rows(self) == rows(other)
    }
}

impl Eq for LayoutKind {}

impl LayoutKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            LayoutKind::Source => "source",
            LayoutKind::Packed { .. } => "packed",
            other => other.layout().map_or("source", Layout::name),
        }
    }

    /// The layout, where it is one of parameters, and known without the machine's kernels.
    fn layout(self) -> Option<&'static dyn Layout> {
        Some(match self {
            LayoutKind::Canonical => &Canonical,
            LayoutKind::InPlace => &InPlace,
            LayoutKind::Named(DialectName::Gguf) => &Named(DialectName::Gguf),
            LayoutKind::Named(DialectName::Hf) => &Named(DialectName::Hf),
            LayoutKind::Named(DialectName::Ctranslate2) => &Named(DialectName::Ctranslate2),
            LayoutKind::Named(DialectName::Openai) => &Named(DialectName::Openai),
            LayoutKind::Mlx => &Mlx,
            LayoutKind::Modules => &Modules,
            LayoutKind::Of(layout) => layout,
            // Of parameters as stored, of these kernels, of ecosystems that have no layout of files yet.
            LayoutKind::Source | LayoutKind::Packed { .. } | LayoutKind::Named(_) => return None,
        })
    }

    /// The ecosystem in whose words files in this layout say what model they hold.
    pub fn ecosystem(self) -> Option<DialectName> {
        match self {
            LayoutKind::Named(dialect) => Some(dialect),
            LayoutKind::Mlx => Some(DialectName::Hf),
            _ => None,
        }
    }

    pub(crate) fn targets(self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let rows = match self {
            LayoutKind::Packed { rows } => rows,
            // As stored, the parameters are the entries: there is no model to ask.
            other => return other.layout().unwrap_or(&Canonical).targets(model, params),
        };
        let interleaved = |scheme: &tensor::Scheme, k: u64| {
            let rows = usize::try_from(rows).ok()?;
            quant::interleaved(&scheme.name, rows).filter(|s| {
                // Whole units along the input: else the matrix stays as stored.
                s.byte_len(&[rows as u64, k].into()).is_ok()
            })
        };
        Packed { rows, interleaved: &interleaved }.targets(model, params)
    }

    /// The facts beside names, shapes and schemes that kernels must know, on a rank of a mesh.
    pub(crate) fn arrangement(
        self,
        rope_order: RopeOrder,
        value_order: ValueOrder,
        mesh: &Mesh,
        rank: u64,
    ) -> Arrangement {
        let share = mesh.is_many().then(|| MeshRank { mesh: mesh.to_string(), rank });
        Arrangement { layout: self.name().into(), rope_order: Some(rope_order), value_order, share }
    }

    /// Whether our engine runs it.
    pub fn runs(self) -> bool {
        matches!(self, LayoutKind::Packed { .. }) || self.layout().is_some_and(Layout::runs)
    }

    /// Whether matrices with a scale each have one in common where they are fused.
    pub(crate) fn merges(self) -> bool {
        self.layout().is_some_and(Layout::merges)
    }

    /// The shares of ranks of a model of `family`, where layouts differ.
    pub(crate) fn holding(self, family: Option<&dyn Family>) -> Holding {
        self.layout().map_or_else(Holding::default, |layout| layout.holding(family))
    }

    /// Whether ranks can share it: the others are whole files.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, LayoutKind::Packed { .. }) || self.layout().is_some_and(Layout::is_shared)
    }
}

/// Returns the packed layout with the number of interleaved rows that this machine's kernels take, or 16 if it has
/// none.
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

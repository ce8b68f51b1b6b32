//! Layouts by name.

use model::DialectName;
use planner::{Error, LayoutKind, packed_layout};

/// The names that [`layout`] knows.
pub const LAYOUTS: &[&str] =
    &["source", "canonical", "in-place", "gguf", "hf", "mlx", "vllm", "modules", "packed"];

/// The layout called `name`: one of [`LAYOUTS`]. `packed` interleaves as many rows as this machine's kernels take.
///
/// # Errors
/// If no layout has this name; if `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
pub fn layout(name: &str) -> Result<LayoutKind, Error> {
    Ok(match name {
        "source" => LayoutKind::Source,
        "canonical" => LayoutKind::Canonical,
        "in-place" => LayoutKind::InPlace,
        "gguf" => LayoutKind::Named(DialectName::Gguf),
        "hf" => LayoutKind::Named(DialectName::Hf),
        "mlx" => LayoutKind::Mlx,
        "vllm" => vllm::LAYOUT,
        "modules" => LayoutKind::Modules,
        "packed" => packed_layout()?,
        _ => {
            let near = tensor::nearest(name, LAYOUTS.iter().copied()).map(str::to_owned);
            return Err(Error::Layout { name: name.to_owned(), near });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_its_name() {
        for name in LAYOUTS {
            assert_eq!(layout(name).unwrap().name(), *name);
        }
        let Err(Error::Layout { near, .. }) = layout("canonica") else { panic!("wanted an error") };
        assert_eq!(near.as_deref(), Some("canonical"));
    }
}

//! Adapters that are merged.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use weighbridge::lora::Adapter;

/// Adapters that are merged into the weights.
#[derive(ClapArgs)]
pub(crate) struct LoraArgs {
    /// Merge a LoRA adapter into the weights: a PEFT directory or a GGUF file. SCALE multiplies what it adds [default: 1].
    /// Repeat it for more
    #[arg(long, value_name = "PATH[=SCALE]", value_parser = scaled)]
    lora: Vec<Scaled>,
}

/// An adapter and its factor.
#[derive(Clone, Debug, PartialEq)]
struct Scaled {
    path: PathBuf,
    scale: f32,
}

impl LoraArgs {
    /// Reads the adapters.
    pub(crate) fn read(&self) -> Result<Vec<Arc<Adapter>>, weighbridge::Error> {
        self.lora.iter().map(|lora| Ok(Arc::new(Adapter::open(&lora.path, lora.scale)?))).collect()
    }
}

/// `PATH`, or `PATH=SCALE`. What follows the last `=` is part of the path unless it is a number.
fn scaled(text: &str) -> Result<Scaled, String> {
    let number = text.rsplit_once('=').and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
    let (path, scale) = number.unwrap_or((text, 1.0));
    if path.is_empty() || !scale.is_finite() {
        return Err("wanted PATH or PATH=SCALE, with a finite number".to_owned());
    }
    Ok(Scaled { path: path.into(), scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_number_after_the_last_equals_sign() {
        for (text, path, scale) in
            [("a", "a", 1.0), ("a=0.5", "a", 0.5), ("a=b", "a=b", 1.0), ("a=b=-2", "a=b", -2.0)]
        {
            assert_eq!(scaled(text), Ok(Scaled { path: path.into(), scale }));
        }
        assert!(scaled("").is_err() && scaled("=1").is_err() && scaled("a=inf").is_err());
    }
}

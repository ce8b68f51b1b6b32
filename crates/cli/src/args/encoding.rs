//! What is encoded on the way.

use clap::Args as ClapArgs;
use weighbridge::planner::{self, EncodeRule, Encoding, Preset};

/// What is encoded, and how.
#[derive(ClapArgs)]
pub(crate) struct EncodingArgs {
    /// Encode what matches; the first rule that matches wins, rules go before the preset
    #[arg(long, value_name = "PATTERN=SCHEME", value_parser = rule)]
    encode: Vec<EncodeRule>,
    /// Encode everything, by what each tensor is for
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<&'static Preset>,
}

impl EncodingArgs {
    /// The library's.
    pub(crate) fn encoding(&self) -> Encoding {
        Encoding { rules: self.encode.clone(), preset: self.preset }
    }
}

fn rule(text: &str) -> Result<EncodeRule, String> {
    text.parse().map_err(|e| match &e {
        planner::Error::Scheme { near: Some(_), .. } => {
            format!("{}; `weighbridge quants` lists them", e.diagnostics())
        }
        planner::Error::Scheme { near: None, .. } => format!("{e}\nhint: `weighbridge quants` lists them"),
        _ => e.diagnostics().to_string(),
    })
}

fn preset(name: &str) -> Result<&'static Preset, String> {
    Preset::named(name).ok_or_else(|| {
        let lines: Vec<String> = weighbridge::planner::PRESETS
            .iter()
            .map(|p| format!("  {:<10}  {}", p.name(), p.about()))
            .collect();
        format!("there is no such preset; there are\n{}", lines.join("\n"))
    })
}

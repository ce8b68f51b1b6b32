//! What is encoded on the way.

use clap::Args as ClapArgs;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use weighbridge::planner::{self, EncodeRule, Encoding, PRESETS, Preset};

/// What is encoded, and how.
#[derive(ClapArgs)]
pub(crate) struct EncodingArgs {
    /// Encode what matches; the first rule that matches wins, rules go before the preset
    #[arg(long, value_name = "PATTERN=SCHEME", value_parser = rule)]
    encode: Vec<EncodeRule>,
    /// Encode everything, by what each tensor is for
    #[arg(long, value_name = "NAME", ignore_case = true, value_parser = presets())]
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

/// Takes the name of a preset; help and completions list all of them.
fn presets() -> impl TypedValueParser<Value = &'static Preset> {
    let names = PRESETS.iter().map(|preset| PossibleValue::new(preset.name()).help(preset.about()));
    // The parser before it takes no other names.
    PossibleValuesParser::new(names).try_map(|name| Preset::named(&name).ok_or("there is no such preset"))
}

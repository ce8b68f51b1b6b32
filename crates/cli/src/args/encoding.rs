//! What is encoded on the way.

use clap::Args as ClapArgs;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use weighbridge::planner::{self, EncodeRule, Encoding, PRESETS, Preset, PresetGroup};
use weighbridge::tensor;

/// What is encoded, and how.
#[derive(ClapArgs)]
pub(crate) struct EncodingArgs {
    /// Encode the tensors that match. The first matching rule wins; rules come before the preset
    #[arg(long, value_name = "PATTERN=SCHEME", value_parser = rule)]
    encode: Vec<EncodeRule>,
    /// Encode all tensors, each by its role
    #[arg(long, value_name = "NAME", value_parser = PresetParser, hide_possible_values = true, long_help = help())]
    preset: Option<&'static Preset>,
}

impl EncodingArgs {
    /// The library's.
    pub(crate) fn encoding(&self) -> Encoding {
        Encoding { rules: self.encode.clone(), preset: self.preset, is_guided: false }
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

/// Takes the name of a preset; completions list all of them.
#[derive(Clone)]
struct PresetParser;

impl TypedValueParser for PresetParser {
    type Value = &'static Preset;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<&'static Preset, clap::Error> {
        let named = |name: String| Preset::named(&name).ok_or_else(|| unknown(&name));
        StringValueParser::new().try_map(named).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |preset: &'static Preset| {
            let about = format!("{:.1} bits: {}", preset.bits(), preset.about());
            PossibleValue::new(preset.name()).help(about).aliases(preset.alias())
        };
        Some(Box::new(PRESETS.iter().map(value)))
    }
}

fn of(group: PresetGroup) -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(move |preset| preset.group() == group)
}

/// That no preset is called `name`, all of them, and the one that is meant.
fn unknown(name: &str) -> String {
    let group = |group: &PresetGroup| {
        let names: Vec<&str> = of(*group).map(Preset::name).collect();
        format!("  {}: {}", group.format().unwrap_or("any format"), names.join(", "))
    };
    let lower = name.to_lowercase();
    let near = tensor::nearest(&lower, PRESETS.iter().map(Preset::name));
    let lines =
        [format!("no preset is called `{name}`")].into_iter().chain(PresetGroup::ALL.iter().map(group));
    let lines = lines.chain(near.map(|near| format!("hint: the nearest is `{near}`")));
    lines.collect::<Vec<_>>().join("\n")
}

/// The long help: a paragraph for each group, in which a line may be as long as the terminal.
fn help() -> String {
    let start = "Encode all tensors, each by its role. Bits per weight are in brackets.";
    let paragraph = |group: &PresetGroup| {
        let presets: Vec<String> = of(*group)
            .map(|preset| match preset.alias() {
                None => format!("{} ({:.1})", preset.name(), preset.bits()),
                Some(alias) => format!("{} or {alias} ({:.1})", preset.name(), preset.bits()),
            })
            .collect();
        let whom = match group {
            PresetGroup::Gguf => "gguf, as llama-quantize chooses",
            PresetGroup::Mlx => "mlx, as mlx-lm chooses",
            PresetGroup::Hf => "hf",
            PresetGroup::Squish => "npy-dir, as squish reads it",
            PresetGroup::Ctranslate2 => "ctranslate2",
            PresetGroup::Any => "any format",
        };
        format!("For {whom}: {}.", presets.join(", "))
    };
    let paragraphs = [start.to_owned()].into_iter().chain(PresetGroup::ALL.iter().map(paragraph));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

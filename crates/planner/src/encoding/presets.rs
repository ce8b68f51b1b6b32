//! Presets: the scheme that a parameter gets by its purpose. One line is one rule; the first that matches wins.

mod table;

use std::sync::Arc;

use tensor::{Diagnostics, Dtype, Scheme, Shape, nearest};

use super::misfits::{fits, of_linear_layers};
use super::purposes::{ParamPurpose, Purpose, Traits};
use super::{Choice, Purposes, Subject};
use crate::Error;
pub use table::PRESETS;

/// A named set of rules.
pub struct Preset {
    name: &'static str,
    /// An alias that llama-quantize has.
    alias: Option<&'static str>,
    group: PresetGroup,
    /// Bits a weight.
    bits: f32,
    about: &'static str,
    /// `general.file_type` of GGUF.
    file_type: Option<u32>,
    /// Rules that several presets share, then the preset's own.
    rules: [&'static [Rule]; 2],
    /// The scheme of every other matrix.
    base: To,
    /// The scheme that needs an importance matrix for every matrix but embeddings and the output matrix.
    guided: Option<&'static str>,
}

/// The targets that presets are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetGroup {
    /// GGUF: file types of llama.cpp.
    Gguf,
    /// MLX: targets of mlx-lm's conversions.
    Mlx,
    /// Directories of transformers.
    Hf,
    /// Directories of numpy arrays: encodings of squish.
    Squish,
    /// Directories of CTranslate2.
    Ctranslate2,
    /// Any format: plain dtypes.
    Any,
}

/// Parameters for one of these purposes, if all of that holds, become that.
struct Rule(&'static [Purpose], &'static [When], To);

/// A condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The layer is in the first or the last eighth, or every third between them.
    MoreBits,
    /// The layer is one of the first `n`.
    First(usize),
    /// The layer is in the first `n`-th part.
    FirstPart(usize),
    /// Four query heads or more share keys and values.
    Groups,
    /// The model is a mixture of eight experts.
    EightExperts,
    /// The model is of the size that llama.cpp calls `70B`.
    Of70B,
    /// The model is of this family.
    OfFamily(&'static str),
    /// Several matrices are in one tensor.
    Stacked,
    /// An importance matrix guides rounding, or none does.
    Guided(bool),
}

/// The result of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The stored scheme, unchanged.
    AsStored,
    /// This scheme, or what [`FALLBACKS`] has for it. `{}` is the dtype of the parameter's own floats, or where its blocks
    /// say none that of the model's; `{half}` is that, but f16 for f32; `{group}` is as many columns as every linear layer has whole
    /// groups of.
    Scheme(&'static str),
}

/// Fallbacks for shapes that do not fit a scheme: the scheme, then the one used instead. Rows without whole blocks of
/// 32 become f16.
///
/// Source: `tensor_type_fallback` of src/llama-quant.cpp, llama.cpp@0c1e57098.
static FALLBACKS: &[(&str, &str)] = &[
    ("q2_k", "q4_0"),
    ("q3_k", "q4_0"),
    ("iq4_xs", "iq4_nl"),
    ("q4_k", "q5_0"),
    ("q5_k", "q5_1"),
    ("q6_k", "q8_0"),
    ("q4_0", "f16"),
    ("q4_1", "f16"),
    ("iq4_nl", "f16"),
    ("mxfp4", "f16"),
    ("q5_0", "f16"),
    ("q5_1", "f16"),
    ("q8_0", "f16"),
    ("squish-q4a:g32", "squish-int8:g64"),
    ("squish-int8:g64", "squish-int8:row"),
];

/// Why a matrix cannot have what a preset has for it.
pub(super) const TRANSPOSED: &str =
    "it is stored `[in, out]`, so that its last axis is not what is summed over";

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PresetGroup {
    /// Every group.
    pub const ALL: [PresetGroup; 6] = [
        PresetGroup::Gguf,
        PresetGroup::Mlx,
        PresetGroup::Hf,
        PresetGroup::Squish,
        PresetGroup::Ctranslate2,
        PresetGroup::Any,
    ];

    /// The format that the group is for, if it is for one alone.
    pub fn format(self) -> Option<&'static str> {
        match self {
            PresetGroup::Gguf => Some("gguf"),
            PresetGroup::Mlx => Some("mlx"),
            PresetGroup::Hf => Some("hf"),
            PresetGroup::Squish => Some("npy-dir"),
            PresetGroup::Ctranslate2 => Some("ctranslate2"),
            PresetGroup::Any => None,
        }
    }
}

impl Preset {
    /// The preset called `name`, in capitals or not.
    pub fn named(name: &str) -> Option<&'static Preset> {
        let is = |one: &&str| one.eq_ignore_ascii_case(name);
        PRESETS.iter().find(|p| is(&p.name) || p.alias.iter().any(is))
    }

    /// The preset called `name`, as [`Preset::named`] finds it.
    ///
    /// # Errors
    /// [`Error::Preset`] with the nearest name if there is none.
    pub fn known(name: &str) -> Result<&'static Preset, Error> {
        Preset::named(name).ok_or_else(|| {
            let near = nearest(&name.to_lowercase(), PRESETS.iter().map(Preset::name));
            Error::Preset { name: name.to_owned(), near: near.map(str::to_owned) }
        })
    }

    /// The schemes that it makes of tensors whose shapes they fit; of models in bf16, if that matters.
    pub(super) fn schemes(&self) -> impl Iterator<Item = Arc<Scheme>> {
        let made = self.rules.iter().flat_map(|rules| rules.iter().map(|rule| rule.2)).chain([self.base]);
        let names = made.filter_map(|to| match to {
            To::AsStored => None,
            To::Scheme(name) => Some(spelled(name, Dtype::BF16, 128)),
        });
        names.filter_map(|name| quant::scheme(&name))
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its other name.
    pub fn alias(&self) -> Option<&'static str> {
        self.alias
    }

    /// The group of targets that the preset is for.
    pub fn group(&self) -> PresetGroup {
        self.group
    }

    /// Bits that a weight takes on average, of a model that is shaped as Llama-3.1-8B; of `mxfp4_moe`, as Mixtral-8x7B.
    pub fn bits(&self) -> f32 {
        self.bits
    }

    /// A description in a few words.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// The scheme of matrices that no rule of it names; `None` if they stay as they are.
    pub fn base(&self) -> Option<Arc<Scheme>> {
        match self.base {
            To::AsStored => None,
            To::Scheme(name) => quant::scheme(name),
        }
    }

    /// The error for a preset that is applied to tensors of unknown purpose.
    pub(crate) fn unknown(&self, source: &Error) -> Error {
        let what = format!(
            "the preset `{}` depends on the role of each tensor, which is unknown: {source}",
            self.name
        );
        let hints = source.hints().into_iter().chain(["name the tensors in encoding rules".to_owned()]);
        Error::Encoding { what: Diagnostics::of(&what, hints) }
    }

    /// `general.file_type` of the GGUF file that it makes.
    pub fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// Whether an importance matrix is needed for what it makes of some tensors.
    pub fn needs_importance(&self) -> bool {
        self.guided.is_some()
    }

    /// Whether only an importance matrix makes `scheme` good for the parameter called `name`.
    pub(super) fn wants_guide(&self, name: &str, scheme: &Scheme, purposes: &Purposes) -> bool {
        let purpose = purposes.of(name).map(|place| place.purpose);
        self.guided == Some(&*scheme.name)
            && !matches!(purpose, Some(Purpose::Output | Purpose::TiedEmbedding | Purpose::Embedding))
    }

    /// Returns the choice for a parameter, or a message about why it cannot be encoded. `guided` says whether an
    /// importance matrix guides rounding.
    pub(super) fn choose(
        &self,
        subject: &Subject<'_>,
        purposes: &Purposes,
        guided: bool,
    ) -> Result<Choice, String> {
        let place = purposes.of(subject.name);
        let purpose = place.map_or(Purpose::Unused, |place| place.purpose);
        let holds = |when: &When| when.holds(subject.shape, place, purposes.traits, guided);
        let rule = self
            .rules
            .iter()
            .flat_map(|rules| rules.iter())
            .find(|Rule(purposes, whens, _)| purposes.contains(&purpose) && whens.iter().all(holds));
        let (whens, to) = rule.map_or((&[][..], self.base), |Rule(_, whens, to)| (whens, *to));
        let why: String = whens.iter().map(|when| format!(", {}", when.text())).collect();
        let rule = format!("{}: {}{why}", self.name, purpose.text());
        let To::Scheme(wanted) = to else { return Ok(Choice { scheme: None, rule }) };
        if place.is_some_and(|p| p.transposed) && subject.shape.len() > 1 {
            return Err(TRANSPOSED.to_owned());
        }
        // Blocks are decoded to f32, whatever dtype the model computes in.
        let decoded = floats_in(subject.stored).is_none() && subject.scheme.dtype() == Some(Dtype::F32);
        let floats = floats_in(subject.scheme).filter(|_| !decoded).unwrap_or(purposes.floats);
        let wanted = spelled(wanted, floats, purposes.group);
        let linear = quant::scheme(&wanted).is_some_and(|scheme| of_linear_layers(&scheme));
        if linear && purposes.other_than_linear(subject.name, subject.shape).is_some() {
            return Ok(Choice { scheme: None, rule });
        }
        let (scheme, fell) = match fitting(&wanted, subject.shape) {
            Some((scheme, fell)) => (Some(scheme), fell),
            None => (None, true),
        };
        let rule = if fell { format!("{rule}, as {wanted} does not fit") } else { rule };
        Ok(Choice { scheme, rule })
    }
}

impl When {
    fn holds(self, shape: &Shape, place: Option<&ParamPurpose>, traits: Traits, guided: bool) -> bool {
        let layer = |is: &dyn Fn(usize, usize) -> bool| place.is_some_and(|p| is(p.index, p.layers));
        match self {
            When::MoreBits => layer(&more_bits),
            When::First(n) => layer(&|i, _| i < n),
            When::FirstPart(n) => layer(&|i, layers| i < layers / n),
            When::Groups => traits.group >= 4,
            When::EightExperts => traits.experts == 8,
            When::Of70B => traits.is_70b,
            When::OfFamily(name) => traits.family == name,
            When::Stacked => shape.len() == 3 && shape[0] > 1,
            When::Guided(wanted) => guided == wanted,
        }
    }

    fn text(self) -> String {
        match self {
            When::MoreBits => "more bits".to_owned(),
            When::First(n) => format!("first {n} layers"),
            When::FirstPart(n) => format!("first {n}th of the layers"),
            When::Groups => "few key heads".to_owned(),
            When::EightExperts => "eight experts".to_owned(),
            When::Of70B => "70B".to_owned(),
            When::OfFamily(name) => name.to_owned(),
            When::Stacked => "stacked".to_owned(),
            When::Guided(true) => "with importance".to_owned(),
            When::Guided(false) => "without importance".to_owned(),
        }
    }
}

/// Source: `use_more_bits` of src/llama-quant.cpp.
fn more_bits(i: usize, layers: usize) -> bool {
    i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2
}

/// Returns the dtype of the floats that a model computes with, if `scheme` reveals it: either it is that dtype, or the
/// scales of its blocks have it. Scales that are f32 in any model reveal nothing.
pub fn floats_in(scheme: &Scheme) -> Option<Dtype> {
    let name = scheme.name.strip_suffix(".be").unwrap_or(&scheme.name);
    let (blocks, last) = name.rsplit_once(',').unwrap_or(("", name));
    match last {
        "f16" => Some(Dtype::F16),
        "bf16" => Some(Dtype::BF16),
        "f32" if blocks.is_empty() || blocks.starts_with("mlx-") => Some(Dtype::F32),
        _ => None,
    }
}

/// The name of a scheme as a preset writes it, with what it leaves open.
fn spelled(name: &str, floats: Dtype, group: u64) -> String {
    let half = if floats == Dtype::F32 { Dtype::F16 } else { floats };
    name.replace("{}", floats.name()).replace("{half}", half.name()).replace("{group}", &group.to_string())
}

/// `wanted`, or the first of its fallbacks that `shape` fits, and whether it is a fallback.
fn fitting(wanted: &str, shape: &Shape) -> Option<(Arc<Scheme>, bool)> {
    let mut name = wanted.to_owned();
    let mut fell = false;
    loop {
        let scheme = quant::scheme(&name)?;
        if fits(&scheme, shape).is_ok() {
            return Some((scheme, fell));
        }
        name = FALLBACKS.iter().find(|(from, _)| *from == name)?.1.to_owned();
        fell = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_presets_each_and_every_scheme_can_be_encoded() {
        let mut names: Vec<&str> = PRESETS.iter().flat_map(|p| p.alias.into_iter().chain([p.name])).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for preset in PRESETS {
            let made = preset.rules.iter().flat_map(|rules| rules.iter().map(|rule| rule.2));
            for to in made.chain([preset.base]) {
                if let To::Scheme(name) = to {
                    let codec = quant::codec(&spelled(name, Dtype::BF16, 128)).unwrap();
                    assert!(codec.encoder().is_some() || name == "f32", "`{}`: {name}", preset.name);
                }
            }
            assert_eq!(preset.group == PresetGroup::Gguf, preset.file_type.is_some_and(|t| t > 1 && t != 32));
        }
        assert!(FALLBACKS.iter().all(|(a, b)| quant::scheme(a).is_some() && quant::scheme(b).is_some()));
    }

    /// Lists are read from small to large.
    #[test]
    fn presets_of_a_group_stand_together_in_the_order_of_their_bits() {
        let group = |p: &Preset| PresetGroup::ALL.iter().position(|g| *g == p.group).unwrap();
        assert!(PRESETS.is_sorted_by(|a, b| (group(a), a.bits) <= (group(b), b.bits)));
    }

    #[test]
    fn every_purpose_has_a_name_in_reports() {
        let texts: std::collections::BTreeSet<&str> = Purpose::ALL.iter().map(|p| p.text()).collect();
        // A tied embedding is the output matrix.
        assert_eq!(texts.len(), Purpose::ALL.len() - 1);
    }

    #[test]
    fn columns_that_do_not_fit_fall_back_as_in_llama_cpp() {
        let get = |name: &str, columns: u64| {
            fitting(name, &[2, columns].into()).map(|(s, fell)| (s.name.to_string(), fell))
        };
        let some = |name: &str, fell| Some((name.to_owned(), fell));
        assert_eq!(get("q4_k", 512), some("q4_k", false));
        assert_eq!(get("q4_k", 576), some("q5_0", true));
        assert_eq!(get("q3_k", 576), some("q4_0", true));
        assert_eq!(get("iq4_xs", 576), some("iq4_nl", true));
        assert_eq!(get("q6_k", 576), some("q8_0", true));
        assert_eq!(get("q5_k", 100), some("f16", true));
    }

    #[test]
    fn floats_are_those_that_a_model_computes_with() {
        for (name, floats) in [
            ("f32", Some(Dtype::F32)),
            ("bf16.be", Some(Dtype::BF16)),
            ("mlx-affine:b4,g64,f16", Some(Dtype::F16)),
            ("mlx-affine:b4,g64,f32", Some(Dtype::F32)),
            ("fp8:e4m3,b128x128,f32", None),
            ("q4_1", None),
        ] {
            assert_eq!(floats_in(&quant::scheme(name).unwrap()), floats, "{name}");
        }
    }

    #[test]
    fn more_bits_go_to_the_ends_and_every_third_layer() {
        let more: Vec<usize> = (0..30).filter(|i| more_bits(*i, 30)).collect();
        assert_eq!(more, [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]);
    }
}

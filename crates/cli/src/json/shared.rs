//! Parts of several documents.

use serde::{Deserialize, Serialize};

/// A measured number; null where it is not finite.
pub(crate) type Real = Option<f64>;

/// `value`, if it is finite.
pub(crate) fn real(value: f64) -> Real {
    value.is_finite().then_some(value)
}

/// The memory of a command, in bytes. Resident are pages in memory, those of mapped files included. What the system does not say is
/// null; only Linux does.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Resident {
    /// Resident before the work began.
    pub(crate) baseline_bytes: Option<u64>,
    /// The most that was resident.
    pub(crate) peak_bytes: Option<u64>,
    /// The peak less the baseline.
    pub(crate) delta_bytes: Option<u64>,
    /// By how much more was private at the end: pages that are no file's.
    pub(crate) private_bytes: Option<u64>,
    /// The memory that the plan foresaw: parameters, buffers, the state of a full context, logits that are compared. The program itself,
    /// the tokenizer and what layers compute with are not counted. Null if there was no plan.
    pub(crate) foreseen_bytes: Option<u64>,
    /// Bytes of parameters in mapped files: they may be resident too, and the system takes them back if it needs memory. Null if there was
    /// no plan.
    pub(crate) mapped_bytes: Option<u64>,
    pub(crate) peak_of: Option<PeakOf>,
}

/// The time that a peak is of.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum PeakOf {
    /// From the start of the work on.
    Command,
    /// The whole life of the process: the system did not let the peak be reset.
    Process,
}

/// A key of the checkpoint beside its tensors, and what becomes of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Key<'a> {
    /// The file, or `metadata` for GGUF.
    pub(crate) file: &'a str,
    /// The key; dots descend into objects.
    pub(crate) key: &'a str,
    /// Its value as text, cut to a length that can be shown.
    pub(crate) value: &'a str,
    pub(crate) verdict: Verdict,
    /// Why it has no effect, or the value that would be followed; null for other verdicts.
    pub(crate) why: Option<String>,
}

/// What becomes of a key.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The model is computed with it.
    Used,
    /// It is held against what the model is.
    Checked,
    /// Its value asks for what is not done here.
    NotFollowed,
    /// It is known to change nothing.
    WithoutEffect,
    /// Nothing here knows it.
    Unknown,
}

impl<'a> From<&'a weighbridge::convert::Covered> for Key<'a> {
    fn from(key: &'a weighbridge::convert::Covered) -> Key<'a> {
        use weighbridge::model::Verdict as V;
        let (verdict, why) = match &key.verdict {
            V::Used => (Verdict::Used, None),
            V::Checked => (Verdict::Checked, None),
            V::NotFollowed { wanted } => (Verdict::NotFollowed, Some(format!("wanted {wanted}"))),
            V::WithoutEffect(why) => (Verdict::WithoutEffect, Some((*why).to_owned())),
            V::Unknown => (Verdict::Unknown, None),
        };
        Key { file: key.file, key: &key.key, value: &key.value, verdict, why }
    }
}

/// Entries of a pattern that no parameter is made from, and why nothing is lost.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotNeeded {
    /// The entry's name, or the pattern of several.
    pub(crate) pattern: String,
    pub(crate) count: usize,
    pub(crate) why: String,
}

/// An entry that no parameter is made from, and why nothing is lost.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Dropped<'a> {
    pub(crate) entry: &'a str,
    pub(crate) why: &'a str,
}

impl<'a> From<&'a (String, String)> for Dropped<'a> {
    fn from((entry, why): &'a (String, String)) -> Dropped<'a> {
        Dropped { entry, why }
    }
}

/// A parameter that is not there, and may be absent.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Absent<'a> {
    pub(crate) param: &'a str,
    /// The entries that it would be made from.
    pub(crate) entries: &'a [String],
    /// The pattern that allows it.
    pub(crate) pattern: &'a str,
}

impl<'a> From<&'a weighbridge::plan::Absent> for Absent<'a> {
    fn from(absent: &'a weighbridge::plan::Absent) -> Absent<'a> {
        Absent { param: &absent.param, entries: &absent.entries, pattern: &absent.pattern }
    }
}

/// An object beside the tensors that means nothing here.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ignored<'a> {
    /// The keys that lead to it, joined with dots; empty if it is the whole.
    pub(crate) name: &'a str,
    /// Its class, or the function that would have made it.
    pub(crate) class: &'a str,
    /// The number of tensors in it that have no name elsewhere.
    pub(crate) tensors: u64,
}

impl<'a> From<&'a weighbridge::checkpoint::Ignored> for Ignored<'a> {
    fn from(object: &'a weighbridge::checkpoint::Ignored) -> Ignored<'a> {
        Ignored { name: &object.name, class: &object.class, tensors: object.tensors }
    }
}

//! Encodings that are applied between a checkpoint and the slots.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plan::Resolved;
use tensor::{Shape, Target};

use super::presets::TRANSPOSED;
use super::{Asker, Choice, Chooser, EncodeRule, LayoutParam, Misfits, Preset, Purposes, Subject};
use crate::Error;

/// The encodings to apply on the way to the slots. Names are canonical ones, or those of the entries where these are
/// loaded as they are; parameters that are not floats stay what they are.
#[derive(Clone, Debug, Default)]
pub struct Encoding {
    /// Rules, the first that matches wins.
    pub rules: Vec<EncodeRule>,
    /// For what no rule matches.
    pub preset: Option<&'static Preset>,
    /// Whether an importance matrix guides rounding, which some presets need and others heed.
    pub is_guided: bool,
}

/// Parameters with what is to be done to them.
pub(crate) struct Encoded {
    pub(crate) resolved: Arc<Resolved>,
    /// Parameters that a preset decided about, and not a rule.
    by_preset: HashSet<String>,
}

impl Encoding {
    /// Whether nothing is encoded.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.preset.is_none()
    }

    /// Decides for each of `resolved` in the shape that this rank holds, if it holds any. A tied parameter follows its
    /// root.
    pub(crate) fn of<'s>(
        &self,
        resolved: &Arc<Resolved>,
        purposes: impl FnOnce(Asker<'_>) -> Result<Purposes, Error>,
        share: impl Fn(&str) -> Option<&'s Shape>,
    ) -> Result<Encoded, Error> {
        let mut by_preset = HashSet::new();
        if self.is_empty() {
            return Ok(Encoded { resolved: Arc::clone(resolved), by_preset });
        }
        let mut chooser = Chooser::new(self, None, purposes)?;
        let mut encoded = Resolved::clone(resolved);
        // The last stage of a pipeline may have what is tied, and not its root.
        let mut shapes: HashMap<&str, &Shape> = HashMap::new();
        for param in &resolved.params {
            if let Some(shape) = share(&param.name) {
                shapes.insert(param.tied_to.as_ref().unwrap_or(&param.name), shape);
            }
        }
        for param in &mut encoded.params {
            if let Some(root) = &param.tied_to {
                chooser.tied(&param.name, root);
                continue;
            }
            let Some(shape) = shapes.get(param.name.as_str()) else {
                chooser.elsewhere(&param.name, &param.scheme);
                continue;
            };
            let (name, stored, scheme) = (&param.name, &param.scheme, &*param.becomes());
            let subject = Subject { name, shape, whole: Some(&param.shape), scheme, stored };
            if let Some(Choice { scheme: Some(scheme), .. }) = chooser.choose(&subject) {
                if !self.rules.iter().any(|rule| rule.matches(&param.name)) {
                    by_preset.insert(param.name.clone());
                }
                param.encode(scheme);
            }
        }
        chooser.finish()?;
        encoded.follow_ties();
        Ok(Encoded { resolved: Arc::new(encoded), by_preset })
    }
}

impl Encoded {
    /// Checks that presets only decide about matrices that are summed over along their rows.
    ///
    /// # Errors
    /// Each such matrix that the layout holds transposed.
    pub(crate) fn upright(&self, targets: &[Target]) -> Result<(), Error> {
        let mut misfits = Misfits::default();
        if !self.by_preset.is_empty() {
            for held in LayoutParam::in_targets(targets).iter().filter(|held| held.transposed) {
                let axes = self.resolved.find(&held.param).map_or(0, |p| p.shape.len());
                if axes > 1 && self.by_preset.contains(&held.param) {
                    misfits.param(&held.name, TRANSPOSED.to_owned());
                }
            }
        }
        misfits.none()
    }
}

//! Names of GGUF for tensors that have others: importance is known by these.

use std::collections::HashMap;

use checkpoint::Checkpoint;
use model::{DialectName, Model};
use planner::{Adapter, LayoutKind, PlanBuilder, Request};

use crate::Error;

/// Some names, and what GGUF calls the same weights.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    /// Those of canonical parameters.
    pub(crate) fn canonical(
        checkpoint: &Checkpoint,
        model: &Model,
        adapter: &Adapter,
    ) -> Result<Names, Error> {
        let gguf = LayoutKind::Named(DialectName::Gguf);
        let ranks =
            PlanBuilder::new(checkpoint).model(model).adapter(adapter.clone()).layout(gguf).ranks()?;
        let request = ranks.request(0)?;
        let mut names = HashMap::new();
        for target in &request.targets {
            target.expr.for_each_source(&mut |name| {
                names.entry(name.to_owned()).or_insert_with(|| target.name.clone());
            });
        }
        for param in &request.resolved.params {
            if let Some(root) = param.tied_to.as_ref().and_then(|root| names.get(root).cloned()) {
                names.insert(param.name.clone(), root);
            }
        }
        Ok(Names(names))
    }

    /// Those of the targets of `request`, whose layout says how they are made of canonical parameters.
    pub(crate) fn of_targets(self, request: &Request) -> Names {
        let mut names = HashMap::new();
        for target in &request.targets {
            target.expr.for_each_source(&mut |name| {
                if let Some(gguf) = self.0.get(name) {
                    names.entry(target.name.clone()).or_insert_with(|| gguf.clone());
                }
            });
        }
        Names(names)
    }

    /// Those of the entries that the canonical parameters are made of.
    pub(crate) fn of_entries(
        self,
        checkpoint: &Checkpoint,
        model: &Model,
        adapter: &Adapter,
    ) -> Result<Names, Error> {
        let resolved = adapter.resolve(checkpoint, model)?;
        let mut names = HashMap::new();
        for param in &resolved.params {
            let Some(gguf) = self.0.get(&param.name) else { continue };
            param.expr.for_each_source(&mut |entry| {
                names.entry(entry.to_owned()).or_insert_with(|| gguf.clone());
            });
        }
        Ok(Names(names))
    }

    /// What GGUF calls `name`: the same, if it is not known by another.
    pub(crate) fn of<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, String::as_str)
    }
}

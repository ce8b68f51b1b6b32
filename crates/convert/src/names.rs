//! Names of GGUF for tensors that have others: importance is known by these.

use std::collections::HashMap;

use checkpoint::Checkpoint;
use model::{DialectName, Model};
use planner::{Adapter, LayoutKind, PlanBuilder, Request};
use tensor::{Expr, Step, Target};

use crate::Error;

/// Some names, and what GGUF calls the same weights.
#[derive(Debug, Default)]
pub(crate) struct Names {
    gguf: HashMap<String, String>,
    /// The number that an entry holds added to its canonical parameter: −1 for a norm that is stored as `w` and used as `1 + w`.
    added: HashMap<String, i32>,
}

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
        Ok(Names { gguf: names, ..Names::default() })
    }

    /// Those of the targets of `request`, whose layout says how they are made of canonical parameters.
    pub(crate) fn of_targets(self, request: &Request) -> Names {
        let mut names = HashMap::new();
        for target in &request.targets {
            target.expr.for_each_source(&mut |name| {
                if let Some(gguf) = self.gguf.get(name) {
                    names.entry(target.name.clone()).or_insert_with(|| gguf.clone());
                }
            });
        }
        Names { gguf: names, ..self }
    }

    /// Those of the entries that the canonical parameters are made of.
    pub(crate) fn of_entries(
        self,
        checkpoint: &Checkpoint,
        model: &Model,
        adapter: &Adapter,
    ) -> Result<Names, Error> {
        let resolved = adapter.resolve(checkpoint, model)?;
        let (mut names, mut added) = (HashMap::new(), HashMap::new());
        for param in &resolved.params {
            let Some(gguf) = self.gguf.get(&param.name) else { continue };
            let sum: i32 = param.steps.iter().filter_map(added_by).sum();
            param.expr.for_each_source(&mut |entry| {
                names.entry(entry.to_owned()).or_insert_with(|| gguf.clone());
                added.entry(entry.to_owned()).or_insert(-sum);
            });
        }
        Ok(Names { gguf: names, added })
    }

    /// What GGUF calls `name`: the same, if it is not known by another.
    pub(crate) fn of<'a>(&'a self, name: &'a str) -> &'a str {
        self.gguf.get(name).map_or(name, String::as_str)
    }

    /// The number that `target` holds added to its canonical parameter.
    pub(crate) fn added(&self, target: &Target) -> i32 {
        let mut sum = self.added.get(&target.name).copied().unwrap_or(0);
        let mut expr = &target.expr;
        while let Expr::Encode { step, of } = expr {
            sum += added_by(step).unwrap_or(0);
            expr = of;
        }
        sum
    }
}

fn added_by(step: &Step) -> Option<i32> {
    if let Step::Add(n) = step { Some(*n) } else { None }
}

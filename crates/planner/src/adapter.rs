//! How a checkpoint is read beyond its dialect: user rules, and the parameters that may be absent.

use std::collections::HashMap;
use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{Model, better_fit};
use plan::{Mapped, MappedTensor, Problem, Problems, ResolveOptions, Resolved};
use tensor::{Binding, Bindings, DropRule, Expr, Mapping, Pattern, Presence, Target};

use crate::error::{Error, shown};

/// Facts about a checkpoint that the user adds: rules for names, and tensors that may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapter {
    /// How its entries become the tensors that a dialect, or one's own modules, look for.
    pub mapping: Option<Mapping>,
    /// How the model's parameters are made of the entries, where they are stored as no dialect says.
    pub bindings: Option<Arc<Bindings>>,
    /// Parameters, or entries, that may be absent; the plan lists those that are.
    pub allow_missing: Vec<Pattern>,
    /// Tensors that may stay in the checkpoint, and why nothing is lost; the plan lists them.
    pub drops: Vec<DropRule>,
}

impl Adapter {
    /// Matches what the checkpoint holds with the model's parameters.
    ///
    /// # Errors
    /// Every way in which the rules do not fit the checkpoint; then everything that is missing, unused or mis-shaped.
    pub fn resolve(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
        if checkpoint.entries().is_empty() {
            return Err(Error::NoTensors { path: checkpoint.location().to_string() });
        }
        let mapped = self.mapped(checkpoint)?;
        let names = names(checkpoint, mapped.as_ref());
        let bindings = self.bindings(checkpoint, model, &names)?;
        self.matched(checkpoint, mapped.as_ref(), bindings, Some(model.family.name())).map_err(|mut e| {
            if let Error::Misfit { fit, backbone, problems, .. } = &mut e {
                let claimed = Some((model.family.name(), model.dialect));
                *fit = better_fit(names.iter().copied(), claimed).map(Box::new);
                *backbone = lacks_only_output(problems);
            }
            e
        })
    }

    /// The same, but that each parameter is made of tensors under the names that they have after the rules.
    pub(crate) fn resolve_named(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
        let mut resolved = self.resolve(checkpoint, model)?;
        let Some(mapped) = self.mapped(checkpoint)? else { return Ok(resolved) };
        let names = names(checkpoint, Some(&mapped));
        let bindings = self.bindings(checkpoint, model, &names)?.bindings;
        let mut made: HashMap<String, Expr> = bindings.into_iter().map(|b| (b.name, b.expr)).collect();
        for param in &mut resolved.params {
            param.expr = made.remove(&param.name).unwrap_or_else(|| param.expr.clone());
        }
        Ok(resolved)
    }

    /// Every tensor under the name that it has after the rules, as a parameter of its own.
    ///
    /// # Errors
    /// Every way in which the rules do not fit the checkpoint, and the checkpoint itself.
    pub(crate) fn as_stored(&self, checkpoint: &Checkpoint) -> Result<(Resolved, Vec<Target>), Error> {
        let mapped = self.mapped(checkpoint)?;
        let (bindings, targets) = match &mapped {
            None => plan::as_stored(checkpoint.entries()),
            Some(mapped) => {
                let binding = |t: &MappedTensor| Binding {
                    name: t.name.clone(),
                    shape: t.shape.clone(),
                    expr: Expr::source(&t.name),
                    presence: Presence::Required,
                };
                let target = |t: &MappedTensor| Target {
                    name: t.name.clone(),
                    expr: Expr::source(&t.name),
                    scheme: None,
                };
                let bindings = mapped.tensors().iter().map(binding).collect();
                let targets = mapped.tensors().iter().map(target).collect();
                (Bindings { bindings, drops: vec![] }, targets)
            }
        };
        Ok((self.matched(checkpoint, mapped.as_ref(), bindings, None)?, targets))
    }

    /// Returns the expressions that make the model's parameters of the tensors, under the names that these have after the rules.
    pub(crate) fn bound(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Bindings, Error> {
        let mapped = self.mapped(checkpoint)?;
        self.bindings(checkpoint, model, &names(checkpoint, mapped.as_ref()))
    }

    /// Returns the expressions that make each of the parameters `names` from checkpoint entries.
    fn bindings(&self, checkpoint: &Checkpoint, model: &Model, names: &[&str]) -> Result<Bindings, Error> {
        match &self.bindings {
            Some(bindings) => Ok(Bindings::clone(bindings)),
            None => bindings(checkpoint, model, names),
        }
    }

    /// Applies the rules to the checkpoint's entries; `None` if there are no rules.
    pub(crate) fn mapped(&self, checkpoint: &Checkpoint) -> Result<Option<Mapped>, Error> {
        let mapped = self.mapping.as_ref().map(|m| Mapped::of(checkpoint.entries(), m)).transpose();
        mapped.map_err(|problems| Error::Mapping { path: shown(checkpoint), problems })
    }

    /// Matches the checkpoint's entries with the parameters asked for.
    pub(crate) fn matched(
        &self,
        checkpoint: &Checkpoint,
        mapped: Option<&Mapped>,
        mut bindings: Bindings,
        family: Option<&'static str>,
    ) -> Result<Resolved, Error> {
        bindings.drops.extend(self.drops.iter().cloned());
        let reading = ResolveOptions { mapped, allow_missing: &self.allow_missing };
        plan::resolve_with(checkpoint.entries(), &bindings, &reading)
            .map_err(|problems| Error::misfit(checkpoint, family, problems))
    }
}

/// The result of matching `names` with the model.
fn bindings(checkpoint: &Checkpoint, model: &Model, names: &[&str]) -> Result<Bindings, Error> {
    model.bindings(names.iter().copied()).map_err(|source| Error::Ambiguous {
        path: shown(checkpoint),
        family: model.family.name(),
        source: Box::new(source),
    })
}

/// Whether the output matrix is all that is missing.
fn lacks_only_output(problems: &Problems) -> bool {
    problems.iter().all(|problem| match problem {
        Problem::Missing { params, .. } => params.iter().all(|param| param == "output.weight"),
        _ => false,
    })
}

/// The names that a dialect finds.
fn names<'a>(checkpoint: &'a Checkpoint, mapped: Option<&'a Mapped>) -> Vec<&'a str> {
    match mapped {
        Some(mapped) => mapped.tensors().iter().map(|t| t.name.as_str()).collect(),
        None => checkpoint.entries().iter().map(|e| e.name.as_str()).collect(),
    }
}

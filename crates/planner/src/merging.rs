//! `LoRA` adapters that are merged: each parameter that one changes is decoded, changed and encoded again, after all movement.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use load::Plan;
use lora::{Fitted, LowRank, Merge};
use model::Model;
use plan::{PlannedParam, Resolved};
use tensor::{
    Bindings, Diagnostic, Diagnostics, Dtype, Expr, Made, Pattern, Shape, SharedStage, Step, Target,
};

use crate::{Error, Request};

/// Adapters in the parameters of a model.
#[derive(Debug)]
pub(crate) struct Merging {
    fitted: Vec<Fitted>,
    /// Of the canonical parameters.
    shapes: HashMap<String, Shape>,
    /// How entries are made of canonical parameters, where targets are entries.
    entries: Option<HashMap<String, Expr>>,
}

impl Merging {
    /// Finds what `adapters` change in `model`, whose checkpoint has `resolved`.
    pub(crate) fn of(
        adapters: &[Arc<lora::Adapter>],
        model: &Model,
        resolved: &Resolved,
    ) -> Result<Merging, Error> {
        let fitted = adapters.iter().map(|adapter| adapter.fit(model, resolved)).collect::<Result<_, _>>()?;
        let shapes = resolved.params.iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
        Ok(Merging { fitted, shapes, entries: None })
    }

    /// The same where targets are entries, of which `bindings` make the canonical parameters.
    pub(crate) fn in_entries(self, bindings: Bindings) -> Result<Merging, Error> {
        let known = |name: &str| self.shapes.contains_key(name);
        let made = bindings.bindings.into_iter().filter(|b| known(&b.name));
        let made: Vec<Made> = made.map(|b| Made { name: b.name, shape: b.shape, expr: b.expr }).collect();
        let made = tensor::invert(&made).map_err(|one_way| {
            let what = format!(
                "an adapter cannot be merged into tensors as they are stored: `{}` {}",
                one_way.name, one_way.why
            );
            Error::Stage { what: Diagnostic::new(what) }
        })?;
        let entries = made.into_iter().map(|entry| (entry.name, entry.expr)).collect();
        Ok(Merging { entries: Some(entries), ..self })
    }

    /// Returns the parameters and targets of `request` with the adapters in them; `before` is its plan without.
    pub(crate) fn merge(
        &self,
        request: &Request,
        targets: &[Target],
        before: &Plan,
    ) -> Result<(Resolved, Vec<Target>), Error> {
        let (mut placed, mut changed) = (HashSet::new(), HashSet::new());
        let mut merged: Vec<(Target, bool)> = vec![];
        let mut not_encoded: Vec<(String, String)> = vec![];
        for (target, planned) in targets.iter().zip(before.params()) {
            let changes = self.changes(target, &mut placed)?;
            if changes.is_empty() || planned.tied_to.is_some() {
                merged.push((target.clone(), false));
                continue;
            }
            target.expr.for_each_source(&mut |name| {
                changed.insert(name.to_owned());
            });
            let merge = |(fitted, low_rank): (&Fitted, LowRank)| {
                Step::By(SharedStage::new(Merge::new(low_rank, fitted.adapter().path())))
            };
            if let Some(Step::To(to)) = as_stored(planned)
                && quant::codec(&to.name).is_none_or(|codec| codec.encoder().is_none())
                && to.dtype() != Some(Dtype::F32)
            {
                let stuck = (Pattern::of(&target.name).to_string(), to.name.to_string());
                if !not_encoded.contains(&stuck) {
                    not_encoded.push(stuck);
                }
            }
            let steps = changes.into_iter().map(merge).chain(encoded(planned));
            let expr = steps.fold(movement(&target.expr), Expr::encode);
            merged.push((Target { expr, ..target.clone() }, true));
        }
        if request.is_whole() {
            self.all_placed(&placed)?;
        }
        if !not_encoded.is_empty() {
            let what = |(pattern, scheme): &(String, String)| {
                let what = format!(
                    "an adapter changes `{pattern}`, which is stored in `{scheme}`, and nothing encodes that"
                );
                Diagnostic::new(what)
            };
            let what: Diagnostics = not_encoded.iter().map(what).collect();
            let hint = "encode what the adapter changes in another scheme".to_owned();
            return Err(Error::Encoding { what: what.with_hint(hint) });
        }
        // The steps of a parameter come after the change now; where it does not change, they stay.
        let mut resolved = Resolved::clone(&request.resolved);
        let mut steps = HashMap::new();
        for param in resolved.params.iter_mut().filter(|param| changed.contains(&param.name)) {
            steps.insert(param.name.clone(), std::mem::take(&mut param.steps));
        }
        let stepped = |(target, is_merged): (Target, bool)| {
            if is_merged {
                return target;
            }
            let expr = target.expr.substitute::<Infallible>(&mut |name| {
                let own = steps.get(name).into_iter().flatten().cloned();
                Ok(Cow::Owned(own.fold(Expr::source(name), Expr::encode)))
            });
            Target { expr: expr.unwrap_or_else(|never| match never {}), ..target }
        };
        let targets = merged.into_iter().map(stepped).collect();
        Ok((resolved, targets))
    }

    /// The changes of `target`, one for each adapter that changes it. Takes note of the parameters.
    fn changes<'s>(
        &'s self,
        target: &'s Target,
        placed: &mut HashSet<&'s str>,
    ) -> Result<Vec<(&'s Fitted, LowRank)>, Error> {
        let expr = match &self.entries {
            Some(entries) => entries.get(&target.name),
            None => Some(&target.expr),
        };
        let Some(expr) = expr else { return Ok(vec![]) };
        expr.for_each_source(&mut |name| {
            placed.insert(name);
        });
        let mut changes = vec![];
        for fitted in &self.fitted {
            if let Some(low_rank) = fitted.low_rank(expr, &|name| self.shapes.get(name).cloned())? {
                changes.push((fitted, low_rank));
            }
        }
        Ok(changes)
    }

    /// Checks that everything that changes is part of something.
    fn all_placed(&self, placed: &HashSet<&str>) -> Result<(), Error> {
        let all = self.fitted.iter().flat_map(Fitted::params);
        let lost: Vec<&str> = all.filter(|param| !placed.contains(param)).collect();
        let Some(first) = lost.first() else { return Ok(()) };
        let what = format!(
            "an adapter changes `{first}`, which has no place in this layout{}",
            if lost.len() > 1 { format!(", as {} others", lost.len() - 1) } else { String::new() }
        );
        Err(Error::Stage { what: Diagnostic::new(what) })
    }
}

impl Request {
    /// Returns what `adapter` changes in the targets, by name, to be kept beside them: nothing is merged. `model` is the request's.
    ///
    /// # Errors
    /// If the adapter does not fit the model, or changes something that has no place in the layout.
    pub fn low_ranks(
        &self,
        model: &Model,
        adapter: &Arc<lora::Adapter>,
    ) -> Result<HashMap<String, LowRank>, Error> {
        let merging = Merging::of(std::slice::from_ref(adapter), model, &self.resolved)?;
        let (mut placed, mut found) = (HashSet::new(), HashMap::new());
        for target in &self.targets {
            for (_, low_rank) in merging.changes(target, &mut placed)? {
                found.insert(target.name.clone(), low_rank);
            }
        }
        if self.is_whole() {
            merging.all_placed(&placed)?;
        }
        Ok(found)
    }
}

/// `expr` without codecs.
fn movement(expr: &Expr) -> Expr {
    let one = |of: &Expr| Box::new(movement(of));
    match expr {
        Expr::Source(_) | Expr::Zero(_) => expr.clone(),
        Expr::Concat { axis, parts } => Expr::concat(*axis, parts.iter().map(movement).collect()),
        Expr::Stack(parts) => Expr::Stack(parts.iter().map(movement).collect()),
        Expr::Slice { axis, range, of } => Expr::Slice { axis: *axis, range: range.clone(), of: one(of) },
        Expr::Split { axis, inner, of } => Expr::Split { axis: *axis, inner: *inner, of: one(of) },
        Expr::Merge { axis, of } => Expr::Merge { axis: *axis, of: one(of) },
        Expr::Permute { axes, of } => Expr::Permute { axes: axes.clone(), of: one(of) },
        Expr::Encode { of, .. } => movement(of),
    }
}

/// The steps that encode changed values as the plan without adapters encodes `planned`.
fn encoded(planned: &PlannedParam) -> impl Iterator<Item = Step> {
    as_stored(planned).into_iter().chain(planned.steps.clone())
}

/// The step that encodes changed values as `planned` is stored; `None` if it is encoded anew anyway.
fn as_stored(planned: &PlannedParam) -> Option<Step> {
    let anew = match planned.steps.first() {
        Some(Step::To(to)) => {
            to.dtype() == Some(Dtype::F32) || quant::codec(&to.name).is_some_and(|c| c.encoder().is_some())
        }
        Some(Step::By(stage)) => stage.takes().dtype() == Some(Dtype::F32),
        Some(Step::Add(_) | Step::Apply(_)) | None => false,
    };
    (!anew).then(|| Step::To(Arc::clone(&planned.moved)))
}

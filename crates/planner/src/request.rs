//! A layout's targets for a checkpoint: the last step before pieces.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Plan;
use model::{Contract, Param, Share, Tree};
use plan::{Codecs as _, PlannedParam, Problem, Problems, Resolved};
use tensor::{Arrangement, Dtype, Expr, Scheme, Target};

use crate::Error;
use crate::merging::Merging;

/// A layout's targets for a checkpoint on one rank, as expressions over the parameters. To get other names, encodings
/// or order, change the targets before the request is compiled.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) checkpoint: Checkpoint,
    /// The canonical parameters, with what is done to each.
    pub resolved: Arc<Resolved>,
    /// The runtime parameters, in the order of the layout.
    pub targets: Vec<Target>,
    /// Canonical parameters that the layout has no name for.
    pub nameless: Vec<String>,
    pub(crate) arrangement: Arrangement,
    /// The family, if there is a model.
    pub(crate) family: Option<&'static str>,
    /// Requirements of the modules on the targets beyond their shapes, by name.
    pub(crate) contracts: HashMap<String, Contract>,
    /// Adapters that are merged when it is compiled.
    pub(crate) merging: Option<Arc<Merging>>,
}

impl Request {
    /// The plan.
    ///
    /// # Errors
    /// Every target that cannot be made of what the checkpoint has.
    pub fn compile(&self) -> Result<Plan, Error> {
        self.finished(self.merged(&self.targets)?)
    }

    /// The plan without the adapters that are merged: it shows how parameters are stored.
    ///
    /// # Errors
    /// As [`Request::compile`].
    pub fn compile_unmerged(&self) -> Result<Plan, Error> {
        self.finished(self.lowered(&self.resolved, &self.targets)?)
    }

    fn finished(&self, plan: Plan) -> Result<Plan, Error> {
        self.kept(&plan)?;
        let align = |p: &PlannedParam| self.contracts.get(&p.name).and_then(|c| c.align).unwrap_or(1);
        let plan = if self.contracts.is_empty() { plan } else { plan.aligned(align) };
        Ok(plan.with_nameless(self.nameless.clone()))
    }

    /// Checks that `plan` holds each parameter as its module requires.
    fn kept(&self, plan: &Plan) -> Result<(), Error> {
        let mut problems = vec![];
        for param in plan.params() {
            let Some(contract) = self.contracts.get(&param.name) else { continue };
            if let Some(wanted) = contract.dtype.filter(|dtype| param.scheme.dtype() != Some(*dtype)) {
                let (wanted, found) = (wanted.name().to_owned(), param.scheme.to_string());
                problems.push(Problem::Dtype { param: param.name.clone(), wanted, found });
            }
            if let Some(align) = contract.align.filter(|align| !align.is_power_of_two() || *align > 4096) {
                problems.push(Problem::Align { param: param.name.clone(), align });
            }
        }
        Problems::none(problems).map_err(|problems| Error::misfit(&self.checkpoint, self.family, problems))
    }

    /// The plan of one target more, and of no other.
    ///
    /// # Errors
    /// As [`Request::compile`].
    pub fn only(&self, target: Target) -> Result<Plan, Error> {
        let name = target.name.clone();
        let mut targets = self.targets.clone();
        targets.push(target);
        Ok(self.merged(&targets)?.retain(|p| p.name == name))
    }

    /// Moves the first by name of each set of tied targets before the others: it is the one that is held, and the
    /// others share it.
    pub fn tie_to_first_names(&mut self) {
        for (other, first) in self.ties() {
            if self.targets[first].name > self.targets[other].name {
                self.targets.swap(first, other);
            }
        }
    }

    /// The targets that are tied to an earlier one, each with the first of them, by their places.
    pub fn ties(&self) -> Vec<(usize, usize)> {
        let params = &self.resolved.params;
        let ties: HashMap<&str, &str> =
            params.iter().filter_map(|p| Some((p.name.as_str(), p.tied_to.as_deref()?))).collect();
        let roots: HashSet<&str> = ties.values().copied().collect();
        // The expression of a tied target over the root's name, and the first target with that expression.
        let mut firsts: Vec<(Expr, usize)> = vec![];
        let mut pairs = vec![];
        for (i, target) in self.targets.iter().enumerate() {
            let mut tied = false;
            let root = target.expr.substitute::<Infallible>(&mut |name| {
                tied |= ties.contains_key(name) || roots.contains(name);
                Ok(Cow::Owned(Expr::source(ties.get(name).copied().unwrap_or(name))))
            });
            let root = root.unwrap_or_else(|never| match never {});
            match firsts.iter().find(|(expr, _)| tied && *expr == root) {
                Some((_, first)) => pairs.push((i, *first)),
                None if tied => firsts.push((root, i)),
                None => {}
            }
        }
        pairs
    }

    /// Compiles `targets`, with the adapters merged.
    fn merged(&self, targets: &[Target]) -> Result<Plan, Error> {
        let plan = self.lowered(&self.resolved, targets)?;
        let Some(merging) = &self.merging else { return Ok(plan) };
        let (resolved, targets) = merging.merge(self, targets, &plan)?;
        self.lowered(&resolved, &targets)
    }

    /// Whether it is of all of a model, and not of what one of several ranks holds.
    pub(crate) fn is_whole(&self) -> bool {
        self.arrangement.share.is_none()
    }

    /// Compiles `targets`. A parameter that a layer holds transposed, and that was encoded untransposed, is decoded to
    /// f32 first: no movement of bytes transposes blocks, and the orientation is the layer's choice, not the caller's.
    fn lowered(&self, resolved: &Resolved, targets: &[Target]) -> Result<Plan, Error> {
        let compile =
            |targets: &[Target]| Plan::compile(&self.checkpoint, resolved, targets, self.arrangement.clone());
        let misfit = |problems| Error::misfit(&self.checkpoint, self.family, problems);
        let problems = match compile(targets) {
            Ok(plan) => return Ok(plan),
            Err(problems) => problems,
        };
        let refused: HashSet<&str> = problems
            .iter()
            .filter_map(|problem| match problem {
                Problem::Movement { param, .. } | Problem::Mixed { param, .. } => Some(param.as_str()),
                _ => None,
            })
            .collect();
        let is_turned =
            |t: &Target| t.scheme.is_none() && t.expr.turns() && refused.contains(t.name.as_str());
        if !targets.iter().any(is_turned) {
            return Err(misfit(problems));
        }
        let decoded = |t: &Target| Target {
            scheme: if is_turned(t) { Some(Scheme::plain(Dtype::F32)) } else { t.scheme.clone() },
            ..t.clone()
        };
        compile(&targets.iter().map(decoded).collect::<Vec<_>>()).map_err(misfit)
    }
}

/// Gives fused targets one scale, where their parts have one each.
pub(crate) fn merge(targets: &mut [Target], params: &[Param]) {
    // A model has few schemes, and many parameters.
    let mut schemes: Vec<&Arc<Scheme>> = vec![];
    for param in params {
        if !schemes.iter().any(|s| Arc::ptr_eq(s, &param.scheme) || **s == param.scheme) {
            schemes.push(&param.scheme);
        }
    }
    schemes.retain(|scheme| load::Codecs.by_row(scheme).is_some());
    if schemes.is_empty() {
        return;
    }
    let of: HashMap<&str, &Arc<Scheme>> = params.iter().map(|p| (p.name.as_str(), &p.scheme)).collect();
    for target in targets {
        let mut parts = vec![];
        target.expr.for_each_source(&mut |name| parts.push(of.get(name).copied()));
        if let [Some(first), rest @ ..] = &parts[..]
            && schemes.contains(first)
            && !rest.is_empty()
            && rest.iter().all(|part| *part == Some(*first))
        {
            target.scheme = Some(Arc::clone(first));
        }
    }
}

/// Checks that no fused parameter was left out because one of its optional parts is absent.
///
/// # Errors
/// Each such fused parameter, with the part.
pub(crate) fn untorn(tree: &Tree, resolved: &Resolved, targets: &[Target]) -> Result<(), Problems> {
    if resolved.absent.is_empty() {
        return Ok(());
    }
    let mut placed = HashSet::new();
    for target in targets {
        target.expr.for_each_source(&mut |name| {
            placed.insert(name);
        });
    }
    let there: HashSet<&str> = resolved.params.iter().map(|p| p.name.as_str()).collect();
    let torn = tree.held().iter().filter_map(|held| {
        let parts = held.parts();
        let absent = resolved.absent.iter().find(|a| parts.contains(&a.param.as_str()))?;
        let lost = parts.iter().any(|part| there.contains(part) && !placed.contains(part));
        lost.then(|| Problem::Torn { param: held.name.clone(), absent: absent.param.clone() })
    });
    Problems::none(torn.collect())
}

/// Replaces the canonical parameters that `target` is made of by what the rank holds of them.
pub(crate) fn cut(target: &mut Target, shares: &HashMap<&str, Share>) {
    let mut whole = true;
    target.expr.for_each_source(&mut |name| {
        whole &= shares.get(name).is_none_or(|s| matches!(&s.expr, Expr::Source(_)));
    });
    if whole {
        return;
    }
    let share = |name: &str| match shares.get(name) {
        Some(share) => Cow::Borrowed(&share.expr),
        None => Cow::Owned(Expr::source(name)),
    };
    let expr = target.expr.substitute::<Infallible>(&mut |name| Ok(share(name)));
    target.expr = expr.unwrap_or_else(|never| match never {});
}

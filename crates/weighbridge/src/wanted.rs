//! What a layout wants of a checkpoint: the last step before pieces.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Plan;
use model::{Export, Holding, Mesh, Model, Param, ParamSpec, Place, RuntimeLayout, Share, Tree};
use plan::{Codecs as _, Problem, Problems, Resolved};
use tensor::{Arrangement, Dtype, Expr, OneWay, Scheme, Target};

use crate::encoding::{Encoded, Held, Parts};
use crate::pipeline::{misfit, shown};
use crate::{Adapter, Encoding, Error, LayoutKind, Preset, describe};

/// What the canonical parameters are, as a mesh shares them: the same for every rank.
pub(crate) struct Shared {
    specs: HashMap<String, ParamSpec>,
    layers: u64,
}

impl Shared {
    pub(crate) fn of(tree: &Tree) -> Shared {
        let specs: HashMap<String, ParamSpec> =
            tree.declared().iter().map(|d| (d.spec.name.clone(), d.spec.clone())).collect();
        let layer = |spec: &ParamSpec| match spec.place {
            Place::Layer(n) => Some(n + 1),
            Place::Before | Place::After => None,
        };
        let layers = specs.values().filter_map(layer).max().unwrap_or(0);
        Shared { specs, layers }
    }

    /// What rank `rank` of `mesh` holds of each parameter, by name.
    pub(crate) fn shares<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        mesh: &Mesh,
        rank: u64,
        holding: Holding,
    ) -> Result<HashMap<&'a str, Share>, Error> {
        let at = mesh.rank(rank);
        let (mut shares, mut problems) = (HashMap::new(), vec![]);
        for name in names {
            let Some(spec) = self.specs.get(name) else { continue };
            match mesh.share(spec, self.layers, at, holding) {
                Ok(Some(share)) => {
                    shares.insert(name, share);
                }
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(shares) } else { Err(Error::Undivided { problems }) }
    }

    /// The parameters, with what `encoding` does to the shares of one rank.
    pub(crate) fn encoded(
        &self,
        resolved: &Arc<Resolved>,
        shares: &HashMap<&str, Share>,
        encoding: &Encoding,
    ) -> Result<Encoded, Error> {
        let role = |name: &str| self.specs.get(name).map(|spec| spec.role);
        let parts = |_: &Preset| Ok(Parts::new(resolved, role, &Held::in_params(resolved)));
        encoding.of(resolved, parts, |name| shares.get(name).map(|share| &share.shape))
    }
}

/// What a layout wants of a checkpoint: the last step before pieces.
pub(crate) struct Wanted {
    pub(crate) resolved: Arc<Resolved>,
    /// The runtime parameters.
    pub(crate) targets: Vec<Target>,
    /// Canonical parameters that the layout has no name for.
    pub(crate) nameless: Vec<String>,
    pub(crate) arrangement: Arrangement,
    /// The family, if there is a model.
    pub(crate) family: Option<&'static str>,
}

impl Wanted {
    /// What `layout` wants of a model.
    pub(crate) fn of(checkpoint: &Checkpoint, model: &Model, layout: LayoutKind) -> Result<Wanted, Error> {
        let mut one = Wanted::of_ranks(checkpoint, model, layout, &Mesh::default(), &Adapter::default())?;
        one.pop().ok_or_else(Error::no_mesh)
    }

    /// What `layout` wants on each rank of a mesh.
    pub(crate) fn of_ranks(
        checkpoint: &Checkpoint,
        model: &Model,
        layout: LayoutKind,
        mesh: &Mesh,
        adapter: &Adapter,
    ) -> Result<Vec<Wanted>, Error> {
        if layout == LayoutKind::Source {
            return Ok(vec![Wanted::as_stored(checkpoint, adapter)?]);
        }
        let ranks = mesh.ranks().ok_or_else(Error::no_mesh)?;
        let resolved = Arc::new(adapter.resolve(checkpoint, model)?);
        let shared = Shared::of(&model.tree());
        let none = Encoding::default();
        let one = |rank| {
            let resolved = Arc::clone(&resolved);
            Wanted::of_rank(checkpoint, model, resolved, &shared, layout, (mesh, rank), &none)
        };
        (0..ranks).map(one).collect()
    }

    /// What `layout` wants on one rank of a mesh.
    pub(crate) fn of_rank(
        checkpoint: &Checkpoint,
        model: &Model,
        resolved: Arc<Resolved>,
        shared: &Shared,
        layout: LayoutKind,
        (mesh, rank): (&Mesh, u64),
        encoding: &Encoding,
    ) -> Result<Wanted, Error> {
        let names = resolved.params.iter().map(|p| p.name.as_str());
        let shares = shared.shares(names, mesh, rank, layout.holding(Some(model.family)))?;
        let encoded = shared.encoded(&resolved, &shares, encoding)?;
        let resolved = Arc::clone(&encoded.resolved);
        let param = |p: &plan::ResolvedParam| {
            Some(Param {
                name: p.name.clone(),
                shape: shares.get(p.name.as_str())?.shape.clone(),
                scheme: p.becomes(),
                steps: p.steps.clone(),
                tied_to: p.tied_to.clone(),
            })
        };
        let params: Vec<Param> = resolved.params.iter().filter_map(param).collect();
        let export = layout.targets(model, &params).map_err(|OneWay { name, why }| Error::NoWayBack {
            path: shown(checkpoint),
            layout: layout.name(),
            name,
            why,
        })?;
        let Export { layout: RuntimeLayout { mut targets, rope_order }, nameless } = export;
        for target in &mut targets {
            cut(target, &shares);
        }
        if layout.merges() {
            merge(&mut targets, &params);
        }
        encoded.upright(&targets)?;
        untorn(&model.tree(), &resolved, &targets)
            .map_err(|problems| misfit(checkpoint, Some(model.family.name()), problems))?;
        let arrangement = layout.arrangement(rope_order, mesh, rank);
        Ok(Wanted { targets, nameless, arrangement, family: Some(model.family.name()), resolved })
    }

    /// Every entry as it is, or as rules make it.
    pub(crate) fn as_stored(checkpoint: &Checkpoint, adapter: &Adapter) -> Result<Wanted, Error> {
        let (resolved, targets) = adapter.as_stored(checkpoint)?;
        let arrangement = Arrangement::stored(checkpoint.format().name());
        let resolved = Arc::new(resolved);
        Ok(Wanted { resolved, targets, nameless: vec![], arrangement, family: None })
    }

    /// The same with entries encoded.
    pub(crate) fn as_stored_but(
        checkpoint: &Checkpoint,
        adapter: &Adapter,
        encoding: &Encoding,
        model: Option<&Model>,
    ) -> Result<Wanted, Error> {
        let wanted = Wanted::as_stored(checkpoint, adapter)?;
        let parts = |preset: &Preset| match model {
            Some(model) => Parts::in_entries(checkpoint, adapter, model),
            None => {
                let model = describe(checkpoint).map_err(|source| preset.unknown(&source))?;
                Parts::in_entries(checkpoint, adapter, &model)
            }
        };
        let shape = |name: &str| wanted.resolved.find(name).map(|p| &p.shape);
        let resolved = encoding.of(&wanted.resolved, parts, shape)?.resolved;
        Ok(Wanted { resolved, ..wanted })
    }

    /// The plan of one runtime parameter, the checkpoint's others left alone.
    #[cfg(feature = "convert")]
    pub(crate) fn only(&self, checkpoint: &Checkpoint, target: Target) -> Result<Plan, Error> {
        let name = target.name.clone();
        let mut targets = self.targets.clone();
        targets.push(target);
        let plan = compiled(checkpoint, &self.resolved, &targets, self.arrangement.clone())
            .map_err(|problems| misfit(checkpoint, self.family, problems))?;
        Ok(plan.retain(|p| p.name == name))
    }

    /// The plan.
    pub(crate) fn compile(&self, checkpoint: &Checkpoint) -> Result<Plan, Error> {
        let plan = compiled(checkpoint, &self.resolved, &self.targets, self.arrangement.clone())
            .map_err(|problems| misfit(checkpoint, self.family, problems))?;
        Ok(plan.with_nameless(self.nameless.clone()))
    }
}

/// Gives one scale to what is fused of parts that have one each.
fn merge(targets: &mut [Target], params: &[Param]) {
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

/// The plan of `targets`. What a layer holds turned, and was encoded the other way round, is decoded to f32 first: no
/// movement makes the one of the other, and the choice is the layer's, not the caller's.
pub(crate) fn compiled(
    checkpoint: &Checkpoint,
    resolved: &Resolved,
    targets: &[Target],
    arrangement: Arrangement,
) -> Result<Plan, Problems> {
    let compile = |targets: &[Target]| Plan::compile(checkpoint, resolved, targets, arrangement.clone());
    let direct = compile(targets);
    let Err(problems) = &direct else { return direct };
    let refused: HashSet<&str> = problems
        .iter()
        .filter_map(|problem| match problem {
            Problem::Movement { param, .. } | Problem::Mixed { param, .. } => Some(param.as_str()),
            _ => None,
        })
        .collect();
    let is_turned = |t: &Target| t.scheme.is_none() && t.expr.turns() && refused.contains(t.name.as_str());
    if !targets.iter().any(is_turned) {
        return direct;
    }
    let decoded = |t: &Target| Target {
        scheme: if is_turned(t) { Some(Scheme::plain(Dtype::F32)) } else { t.scheme.clone() },
        ..t.clone()
    };
    compile(&targets.iter().map(decoded).collect::<Vec<_>>())
}

/// That what is held as one was not left out because a part of it may be absent, and is.
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

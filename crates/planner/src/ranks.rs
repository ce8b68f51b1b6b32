//! The ranks of a mesh, and what the layout wants on each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use checkpoint::Checkpoint;
use load::Plan;
use model::{Mesh, Model, Param, RuntimeLayout, Share, Tree};
use plan::{PlannedParam, Resolved, ResolvedParam};
use tensor::{
    Arrangement, Diagnostic, Dtype, OneWay, Pattern, RopeOrder, Scheme, SharedStage, Target, ValueOrder,
};

use crate::encoding::{
    Asker, Choice, Chooser, Holder, LayoutParam, Misfits, Purposes, Subject, Traits, roles,
};
use crate::error::shown;
use crate::merging::Merging;
use crate::request::{cut, merge, untorn};
use crate::shared::Shared;
use crate::{Adapter, Encoding, Error, LayoutKind, Request, describe};

/// The owner of the parameters.
pub(crate) enum Of {
    /// A family's.
    Model(Shared, Box<Model>),
    /// The parameters of the caller's modules.
    Module(Shared, Tree),
    /// The entries, under their own names or the names that rules give them.
    Stored { model: Option<Box<Model>>, targets: Vec<Target>, adapter: Adapter },
}

/// The ranks of a mesh, with all that their plans have in common.
pub struct Ranks {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) of: Of,
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) layout: LayoutKind,
    pub(crate) mesh: Mesh,
    pub(crate) count: u64,
    pub(crate) encoding: Encoding,
    pub(crate) stages: Vec<(Pattern, SharedStage)>,
    pub(crate) merging: Option<Arc<Merging>>,
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("layout", &self.layout)
            .field("mesh", &self.mesh)
            .finish_non_exhaustive()
    }
}

impl Ranks {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The canonical parameters, as the checkpoint gives them: not encoded yet.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The plan of one rank.
    ///
    /// # Errors
    /// Every parameter that cannot be divided, moved or encoded.
    pub fn plan(&self, rank: u64) -> Result<Plan, Error> {
        self.request(rank)?.compile()
    }

    /// The request of the layout on one rank.
    ///
    /// # Errors
    /// Every parameter that cannot be divided or encoded.
    pub fn request(&self, rank: u64) -> Result<Request, Error> {
        let mut request = match &self.of {
            Of::Model(shared, model) => self.of_model(shared, model, rank),
            Of::Module(shared, tree) => self.of_module(shared, tree, rank),
            Of::Stored { model, targets, adapter } => self.as_stored(model.as_deref(), targets, adapter),
        }?;
        for (pattern, stage) in &self.stages {
            let mut used = false;
            for target in request.targets.iter_mut().filter(|target| pattern.matches(&target.name)) {
                target.add_stage(stage.clone());
                used = true;
            }
            if !used {
                let what = format!("the stage `{}` matches no parameter: `{pattern}`", stage.name());
                return Err(Error::Stage { what: Diagnostic::new(what) });
            }
        }
        Ok(request)
    }

    fn of_model(&self, shared: &Shared, model: &Model, rank: u64) -> Result<Request, Error> {
        let shares = self.shares(shared, Some(model), rank)?;
        let encoded = shared.encoded(&self.resolved, &shares, Traits::of(model), &self.encoding)?;
        let resolved = Arc::clone(&encoded.resolved);
        let param = |p: &ResolvedParam| {
            Some(Param {
                name: p.name.clone(),
                shape: shares.get(p.name.as_str())?.shape.clone(),
                scheme: p.becomes(),
                steps: p.steps.clone(),
                tied_to: p.tied_to.clone(),
            })
        };
        let params: Vec<Param> = resolved.params.iter().filter_map(param).collect();
        let layout = self.layout.targets(model, &params).map_err(|OneWay { name, why }| {
            Error::NoWayBack { path: shown(&self.checkpoint), layout: self.layout.name(), name, why }
        })?;
        let RuntimeLayout { mut targets, rope_order, value_order, nameless } = layout;
        for target in &mut targets {
            cut(target, &shares);
        }
        if self.layout.merges() {
            merge(&mut targets, &params);
        }
        encoded.upright(&targets)?;
        let family = Some(model.family.name());
        untorn(model.tree(), &resolved, &targets)
            .map_err(|problems| Error::misfit(&self.checkpoint, family, problems))?;
        let arrangement = self.layout.arrangement(rope_order, value_order, &self.mesh, rank);
        let contracts = shared.contracts(&targets);
        let checkpoint = self.checkpoint.clone();
        let merging = self.merging.clone();
        Ok(Request { checkpoint, resolved, targets, nameless, arrangement, family, contracts, merging })
    }

    fn of_module(&self, shared: &Shared, tree: &Tree, rank: u64) -> Result<Request, Error> {
        let shares = self.shares(shared, None, rank)?;
        let encoded = shared.encoded(&self.resolved, &shares, Traits::default(), &self.encoding)?;
        let held = tree.held().iter().filter(|h| h.parts().iter().all(|part| shares.contains_key(part)));
        let mut targets: Vec<Target> =
            held.map(|h| Target { name: h.name.clone(), expr: h.expr.clone(), scheme: None }).collect();
        for target in &mut targets {
            cut(target, &shares);
        }
        encoded.upright(&targets)?;
        let family = Some("the caller's");
        untorn(tree, &encoded.resolved, &targets)
            .map_err(|problems| Error::misfit(&self.checkpoint, family, problems))?;
        let arrangement = self.layout.arrangement(RopeOrder::Half, ValueOrder::Grouped, &self.mesh, rank);
        let (checkpoint, resolved) = (self.checkpoint.clone(), encoded.resolved);
        let (nameless, contracts) = (vec![], shared.contracts(&targets));
        let merging = self.merging.clone();
        Ok(Request { checkpoint, resolved, targets, nameless, arrangement, family, contracts, merging })
    }

    fn as_stored(
        &self,
        model: Option<&Model>,
        targets: &[Target],
        adapter: &Adapter,
    ) -> Result<Request, Error> {
        let checkpoint = &self.checkpoint;
        let purposes = |asker: Asker<'_>| self.purposes_of_entries(asker, model, adapter);
        let shape = |name: &str| self.resolved.find(name).map(|p| &p.shape);
        let resolved = self.encoding.of(&self.resolved, purposes, shape)?.resolved;
        let arrangement = Arrangement::stored(checkpoint.format().name());
        let (checkpoint, targets) = (checkpoint.clone(), targets.to_vec());
        let (nameless, family, contracts) = (vec![], None, HashMap::new());
        let merging = self.merging.clone();
        Ok(Request { checkpoint, resolved, targets, nameless, arrangement, family, contracts, merging })
    }

    /// Returns the choice for each parameter of `plans`, which were compiled from `requests`, one per rank. Rules match
    /// the names in the plans and come before the preset; the choice is `None` where neither matches. Schemes that
    /// `holder` does not hold are problems, and `also` may add more.
    ///
    /// # Errors
    /// Every rule that decides nothing, every parameter that cannot be encoded as asked, and every problem that `also`
    /// adds.
    pub fn choices(
        &self,
        encoding: &Encoding,
        requests: &[Request],
        plans: &[Plan],
        holder: Holder<'_>,
        also: impl FnOnce(&[&PlannedParam], &mut Misfits),
    ) -> Result<Vec<Option<Choice>>, Error> {
        let purposes = |asker: Asker<'_>| match &self.of {
            Of::Stored { model, adapter, .. } => self.purposes_of_entries(asker, model.as_deref(), adapter),
            Of::Model(_, model) => {
                let held: Vec<LayoutParam> =
                    requests.iter().flat_map(|r| LayoutParam::in_targets(&r.targets)).collect();
                let resolved = requests.first().map_or(&self.resolved, |first| &first.resolved);
                Ok(Purposes::new(resolved, roles(model), &held, Traits::of(model)))
            }
            Of::Module(shared, _) => {
                let held: Vec<LayoutParam> =
                    requests.iter().flat_map(|r| LayoutParam::in_targets(&r.targets)).collect();
                Ok(Purposes::new(&self.resolved, |name| shared.role(name), &held, Traits::default()))
            }
        };
        let mut chooser = Chooser::new(encoding, Some(holder), purposes)?;
        let params: Vec<&PlannedParam> = plans.iter().flat_map(Plan::params).collect();
        let choose = |param: &&PlannedParam| {
            let PlannedParam { name, shape, scheme, moved, .. } = *param;
            let stored = param.stored().next().unwrap_or(moved);
            chooser.choose(&Subject { name, shape, whole: None, scheme, stored })
        };
        let choices = params.iter().map(choose).collect();
        also(&params, &mut chooser.misfits);
        chooser.finish()?;
        Ok(choices)
    }

    /// Returns the purpose of each entry.
    fn purposes_of_entries(
        &self,
        asker: Asker<'_>,
        model: Option<&Model>,
        adapter: &Adapter,
    ) -> Result<Purposes, Error> {
        if let Some(model) = model {
            return Purposes::in_entries(&self.checkpoint, adapter, model);
        }
        let model = describe(&self.checkpoint).map_err(|source| asker.unknown(&source))?;
        Purposes::in_entries(&self.checkpoint, adapter, &model)
    }

    fn shares<'s>(
        &'s self,
        shared: &Shared,
        model: Option<&Model>,
        rank: u64,
    ) -> Result<HashMap<&'s str, Share>, Error> {
        let names = self.resolved.params.iter().map(|p| p.name.as_str());
        shared.shares(names, &self.mesh, rank, self.layout.holding(model.map(|m| m.family)))
    }
}

/// Returns the layout's targets, cut to the shares that a rank holds.
fn on_rank(
    layout: LayoutKind,
    model: &Model,
    params: &[Param],
    shares: &HashMap<&str, Share>,
) -> Result<RuntimeLayout, OneWay> {
    let mut wanted = layout.targets(model, params)?;
    for target in &mut wanted.targets {
        cut(target, shares);
    }
    Ok(wanted)
}

/// Returns the targets of `layout` on each rank of `mesh`, for a model with the canonical parameters `names`. It does
/// not depend on a checkpoint.
///
/// # Errors
/// Every parameter that cannot be divided, and a layout that cannot be made of them.
pub fn runtime_layouts(
    model: &Model,
    layout: LayoutKind,
    mesh: &Mesh,
    names: &[&str],
) -> Result<Vec<RuntimeLayout>, Error> {
    let shared = Shared::of(model.tree());
    let float = Scheme::plain(Dtype::F32);
    let one = |rank| {
        let shares = shared.shares(names.iter().copied(), mesh, rank, layout.holding(Some(model.family)))?;
        let param = |name: &&str| {
            Some(Param {
                name: (*name).to_owned(),
                shape: shares.get(name)?.shape.clone(),
                scheme: Arc::clone(&float),
                steps: vec![],
                tied_to: None,
            })
        };
        let params: Vec<Param> = names.iter().filter_map(param).collect();
        on_rank(layout, model, &params, &shares).map_err(|OneWay { name, why }| Error::NoWayBack {
            path: model.family.name().to_owned(),
            layout: layout.name(),
            name,
            why,
        })
    };
    (0..mesh.ranks().ok_or_else(Error::no_mesh)?).map(one).collect()
}

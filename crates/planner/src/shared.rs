//! Parameters as a mesh shares them, which all ranks have in common.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Contract, Holding, Mesh, ParamSpec, PipelinePlace, Role, Share, Tree};
use plan::Resolved;
use tensor::Target;

use crate::encoding::{Asker, Encoded, LayoutParam, Purposes, Traits};
use crate::{Encoding, Error};

/// The canonical parameters as a mesh shares them, the same for every rank.
pub(crate) struct Shared {
    specs: HashMap<String, ParamSpec>,
    layers: u64,
}

impl Shared {
    pub(crate) fn of(tree: &Tree) -> Shared {
        let specs: HashMap<String, ParamSpec> =
            tree.declared().iter().map(|d| (d.spec.name.clone(), d.spec.clone())).collect();
        let layer = |spec: &ParamSpec| match spec.place {
            PipelinePlace::Layer(n) => Some(n + 1),
            PipelinePlace::Before | PipelinePlace::After => None,
        };
        let layers = specs.values().filter_map(layer).max().unwrap_or(0);
        Shared { specs, layers }
    }

    /// Returns the modules' requirements on `targets`. A fused target gets the requirements of all its parts.
    pub(crate) fn contracts(&self, targets: &[Target]) -> HashMap<String, Contract> {
        if self.specs.values().all(|spec| spec.contract == Contract::default()) {
            return HashMap::new();
        }
        let mut contracts = HashMap::new();
        for target in targets {
            let mut all = Contract::default();
            target.expr.for_each_source(&mut |name| {
                let Some(one) = self.specs.get(name).map(|spec| spec.contract) else { return };
                all.dtype = all.dtype.or(one.dtype);
                all.align = all.align.max(one.align);
            });
            contracts.insert(target.name.clone(), all);
        }
        contracts
    }

    /// The role of the parameter called `name`.
    pub(crate) fn role(&self, name: &str) -> Option<Role> {
        self.specs.get(name).map(|spec| spec.role)
    }

    /// Returns the share of each parameter that rank `rank` of `mesh` holds, by name.
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
        traits: Traits,
        encoding: &Encoding,
    ) -> Result<Encoded, Error> {
        let purposes = |_: Asker<'_>| {
            let held = LayoutParam::in_params(resolved);
            Ok(Purposes::new(resolved, |name| self.role(name), &held, traits))
        };
        encoding.of(resolved, purposes, |name| shares.get(name).map(|share| &share.shape))
    }
}

//! The files of all ranks, put together again.
//!
//! Each tensor of a rank is an expression over the canonical parameters; inverted, these give the parameters as
//! expressions over the ranks' tensors. The checkpoint is then planned, proved and read like any other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use checkpoint::{Checkpoint, HfMetadata};
use model::{Mesh, Model};
use planner::{Adapter, Error, runtime_layouts};
use tensor::{
    Binding, Bindings, Copies, DropRule, Expr, Inverse, Made, OneWay, Pattern, Presence, Shape, take_apart,
};

use crate::rank_files::CACHE;
use crate::{LAYOUT, family};

/// A model whose parameters lie in the files of vLLM's ranks.
#[derive(Clone, Debug)]
pub struct Rejoined {
    /// How its parameters are made of the tensors of the ranks.
    pub bindings: Arc<Bindings>,
    /// Parts that several ranks have: they must be the same.
    pub copies: Vec<Copies>,
    /// Tensors beside the parameters, which must be zero.
    pub padding: Vec<Made>,
    /// Scales of attention's cache, and the values that vLLM gives them where a checkpoint has none; the files must
    /// have these values.
    pub constants: Vec<(String, f32)>,
}

impl Rejoined {
    /// Makes the parameters of `model` from `checkpoint`, which was opened as the files of all ranks. Of `mesh`, only
    /// the placement of experts counts.
    ///
    /// # Errors
    /// If it was not opened so, or the ranks' tensors cannot be the shares of `model`.
    pub fn of(checkpoint: &Checkpoint, model: &Model, mesh: &Mesh) -> Result<Rejoined, Error> {
        let refused = |what: String| Error::Refused { what: what.into() };
        let Some(files) = checkpoint.metadata().hf().and_then(HfMetadata::ranks) else {
            return Err(refused("these are not the files of all of vLLM's ranks".to_owned()));
        };
        let Some(names) = family::names(model.family.name()) else {
            return Err(refused(format!("vLLM's names of the family {} are not known", model.family.name())));
        };
        let (tp, pp) = (files.ranks as u64, files.stages as u64);
        let mesh = Mesh { tp, pp, ep: 1, ..*mesh };
        let tree = model.tree();
        let specs: Vec<_> = tree.declared().iter().map(|declared| &declared.spec).collect();
        let there: HashMap<&str, &Shape> =
            checkpoint.entries().iter().map(|e| (e.name.as_str(), &e.shape)).collect();

        // Parameters that no rank has are left out, so that layers are not fused of what is not there.
        let mut params: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let mut made: Vec<Made>;
        loop {
            made = vec![];
            let mut absent: HashSet<String> = HashSet::new();
            let layouts =
                runtime_layouts(model, LAYOUT, &mesh, &params).map_err(|e| refused(e.to_string()))?;
            for (rank, mut layout) in (0u64..).zip(layouts) {
                names.state.names(&mut layout.targets.iter_mut().map(|t| &mut t.name).collect::<Vec<_>>());
                for target in layout.targets {
                    let name = format!("{}.{}.{}", rank / tp, rank % tp, target.name);
                    // Parameters with several planes are listed by the name of their module.
                    let named = [name.as_str(), name.strip_suffix("weight").unwrap_or(&name)];
                    let held = named.into_iter().find_map(|n| Some((n.to_owned(), *there.get(n)?)));
                    match held {
                        Some((name, shape)) => {
                            made.push(Made { name, shape: Shape::clone(shape), expr: target.expr });
                        }
                        None => target.expr.for_each_source(&mut |name| {
                            absent.insert(name.to_owned());
                        }),
                    }
                }
            }
            let optional = |name: &str| {
                specs.iter().any(|spec| spec.name == name && spec.presence != Presence::Required)
            };
            let before = params.len();
            params.retain(|name| !(absent.contains(*name) && optional(name)));
            if params.len() == before {
                break;
            }
        }
        let shapes: HashMap<&str, Shape> = specs.iter().map(|s| (s.name.as_str(), s.shape())).collect();
        // Rows too many would be lost, and other axes cannot be followed.
        let mut wrong = vec![];
        for Made { name, shape, expr } in &made {
            match plan::shape_of(expr, &|source| shapes.get(source).cloned()) {
                Ok(wanted) if wanted == *shape => {}
                Ok(wanted) => wrong.push(format!("`{name}`: wanted {wanted}, found {shape}")),
                Err(_) => wrong.push(format!("`{name}`: {shape} is no part of the model")),
            }
        }
        if !wrong.is_empty() {
            wrong.insert(0, "the files of the ranks are not what the model is cut into so:".to_owned());
            return Err(refused(wrong.join("\n")));
        }
        let Inverse { mut sources, mut copies, padding } =
            take_apart(&made, &|name| shapes.get(name).cloned())
                .map_err(|OneWay { name, why }| refused(format!("`{name}` {why}")))?;
        // Of what is tied, each rank has the one whose name comes first, and a stage that has not the other its own.
        let tied = *model.config().tied == Some(true);
        for spec in &specs {
            let Presence::TiedTo(root) = &spec.presence else { continue };
            let Some(at) = sources.iter().position(|made| made.name == spec.name) else { continue };
            match sources.iter().find(|made| made.name == *root) {
                None => sources[at].name.clone_from(root),
                Some(first) if tied => {
                    let (of, first) = (spec.name.clone(), first.clone());
                    let other = sources[at].clone();
                    copies.push(Copies { of, whole: true, first, other });
                    sources.remove(at);
                }
                Some(_) => {}
            }
        }
        let mut found: HashMap<String, Expr> = sources.into_iter().map(|m| (m.name, m.expr)).collect();
        let bindings = specs.iter().map(|spec| Binding {
            name: spec.name.clone(),
            shape: spec.shape(),
            expr: found.remove(&spec.name).unwrap_or_else(|| Expr::source(&spec.name)),
            presence: spec.presence.clone(),
        });
        let bindings = bindings.collect();
        // By pattern of names: layers and ranks are many.
        let used: HashSet<&str> = made.iter().map(|m| m.name.as_str()).collect();
        let mut drops: HashMap<String, &str> = HashMap::new();
        let mut constants = vec![];
        for name in there.keys() {
            let why = match name.rsplit_once('.') {
                _ if used.contains(name) => "held against what another rank has of it",
                Some((_, last)) if CACHE.contains(&last.trim_start_matches('_')) => {
                    constants.push(((*name).to_owned(), if last.starts_with('_') { 1.0 } else { -1.0 }));
                    "a scale of attention's cache, which vLLM makes itself"
                }
                _ => continue,
            };
            drops.insert(Pattern::of(name).as_str().to_owned(), why);
        }
        // Of these, all but the padding is used.
        for zeros in &padding {
            drops.insert(zeros.name.clone(), "padding, held against zero");
        }
        let drop =
            |(name, why): (String, &str)| DropRule { pattern: Pattern::new(name), why: why.to_owned() };
        let drops = drops.into_iter().map(drop).collect();
        Ok(Rejoined { bindings: Arc::new(Bindings { bindings, drops }), copies, padding, constants })
    }

    /// `adapter` with these bindings.
    #[must_use]
    pub fn adapter(&self, adapter: &Adapter) -> Adapter {
        Adapter { bindings: Some(Arc::clone(&self.bindings)), ..adapter.clone() }
    }
}

//! Burn's seam: a store that modules are loaded from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use burn::store::burn_pack::Tensor as PackTensor;
use burn::store::{
    ApplyResult, KeyRemapper, ModuleAdapter, ModuleSnapshot, ModuleStore, PathFilter, PyTorchToBurnAdapter,
};
use weighbridge::model::DialectName;
use weighbridge::planner::EncodeRule;
use weighbridge::{Checkpoint, Dtype, LayoutKind, PlanBuilder, Scheme};

use crate::Error;
use crate::fit::fit;
use crate::plan::Planned;

/// A checkpoint of any format, as a store that modules are loaded from: `module.load_from(&mut store)`.
///
/// Its tensors have the names and shapes of Hugging Face. They are those of PyTorch's modules, so burn's [`PyTorchToBurnAdapter`] turns
/// matrices of linear layers and finds the weights of norms; [`CheckpointStore::with_adapter`] sets another.
pub struct CheckpointStore {
    planned: Arc<Planned>,
    tensors: BTreeMap<String, PackTensor>,
    adapter: Box<dyn ModuleAdapter>,
    filter: Option<PathFilter>,
    allow_partial: bool,
    skip_enum_variants: bool,
}

impl fmt::Debug for CheckpointStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStore")
            .field("path", &self.planned.path())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl CheckpointStore {
    /// Opens a checkpoint of any format, whose floats become f32. Only headers are read.
    ///
    /// # Errors
    /// If it cannot be opened; every way in which it does not fit the model that it says it is.
    pub fn open(path: impl AsRef<Path>) -> Result<CheckpointStore, Error> {
        CheckpointStore::planned(&weighbridge::open(path)?, Dtype::F32, |builder| builder)
    }

    /// The same of an open checkpoint, whose floats become `dtype`, planned as `asked` says: in another layout, with rules for names,
    /// adapters, encodings. The layout is that of Hugging Face if `asked` does not set one; [`LayoutKind::Source`] is for checkpoints
    /// of models that Weighbridge does not know.
    ///
    /// # Errors
    /// Every way in which the checkpoint cannot be planned as asked.
    pub fn planned(
        checkpoint: &Checkpoint,
        dtype: Dtype,
        asked: impl for<'a> FnOnce(PlanBuilder<'a>) -> PlanBuilder<'a>,
    ) -> Result<CheckpointStore, Error> {
        let builder = PlanBuilder::new(checkpoint).layout(LayoutKind::Named(DialectName::Hf));
        // The caller's rules come first, and the first that matches wins.
        let builder = asked(builder).encode([EncodeRule::of("*", &Scheme::plain(dtype))]);
        let planned = Arc::new(Planned::new(builder.build()?));
        Ok(CheckpointStore {
            tensors: planned.tensors()?,
            planned,
            adapter: Box::new(PyTorchToBurnAdapter),
            filter: None,
            allow_partial: false,
            skip_enum_variants: false,
        })
    }

    /// Gives the tensors other names, for modules whose fields cannot have theirs.
    ///
    /// # Errors
    /// If tensors get one name: each name that several would have.
    pub fn with_remapper(mut self, remapper: &KeyRemapper) -> Result<CheckpointStore, Error> {
        let (renamed, _) = remapper.remap(self.tensors.into_values().collect());
        let (mut tensors, mut twice) = (BTreeMap::new(), BTreeSet::new());
        for tensor in renamed {
            if let Some(other) = tensors.insert(tensor.name.clone(), tensor) {
                twice.insert(other.name);
            }
        }
        if !twice.is_empty() {
            return Err(Error::OneName { names: twice.into_iter().collect() });
        }
        self.tensors = tensors;
        Ok(self)
    }

    /// Sets how tensors change between the checkpoint and burn's modules.
    #[must_use]
    pub fn with_adapter(mut self, adapter: impl ModuleAdapter + 'static) -> CheckpointStore {
        self.adapter = Box::new(adapter);
        self
    }

    /// Loads only the parameters of the module that `filter` matches.
    #[must_use]
    pub fn with_filter(mut self, filter: PathFilter) -> CheckpointStore {
        self.filter = Some(filter);
        self
    }

    /// Parameters may be missing. [`ApplyResult::missing`] names them, and they stay as they are.
    #[must_use]
    pub fn allow_partial(mut self, allow: bool) -> CheckpointStore {
        self.allow_partial = allow;
        self
    }

    /// Names of tensors have no names of enum variants, as those of PyTorch have none.
    #[must_use]
    pub fn skip_enum_variants(mut self, skip: bool) -> CheckpointStore {
        self.skip_enum_variants = skip;
        self
    }

    /// Compares the parameters of `module` with the tensors. Nothing is read, and no parameter is initialised.
    ///
    /// In the result, [`ApplyResult::applied`] names those that would be.
    pub fn fit<M: ModuleSnapshot>(&self, module: &M) -> ApplyResult {
        fit(module, &self.tensors, &*self.adapter, self.filter.as_ref(), self.skip_enum_variants)
    }
}

impl ModuleStore for CheckpointStore {
    type Error = Error;

    fn collect_from<M: ModuleSnapshot>(&mut self, _: &M) -> Result<(), Error> {
        Err(Error::ReadOnly { path: self.planned.path() })
    }

    /// Fills `module`, one tensor after the other. Tensors that no parameter wants are in [`ApplyResult::unused`].
    fn apply_to<M: ModuleSnapshot>(&mut self, module: &mut M) -> Result<ApplyResult, Error> {
        let mut found = self.fit(module);
        if !found.errors.is_empty() || !(self.allow_partial || found.missing.is_empty()) {
            found.applied.clear();
            return Err(Error::Misfit { path: self.planned.path(), found: Box::new(found) });
        }
        let tensors = self.tensors.values().cloned().collect();
        let adapter = Some(self.adapter.clone());
        let found = module.apply(tensors, self.filter.clone(), adapter, self.skip_enum_variants);
        if !found.errors.is_empty() {
            return Err(Error::Read { path: self.planned.path(), found: Box::new(found) });
        }
        Ok(found)
    }

    fn get_tensor(&mut self, name: &str) -> Result<Option<&PackTensor>, Error> {
        Ok(self.tensors.get(name))
    }

    fn get_all_tensors(&mut self) -> Result<&BTreeMap<String, PackTensor>, Error> {
        Ok(&self.tensors)
    }

    fn keys(&mut self) -> Result<Vec<String>, Error> {
        Ok(self.tensors.keys().cloned().collect())
    }
}

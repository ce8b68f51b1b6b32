//! A checkpoint whose tensors go to candle.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::allocation::try_zeroed_slice_box;
use bytemuck::{NoUninit, Zeroable};
use candle_core::quantized::QTensor;
use candle_core::{DType, Device, Tensor, WithDType};
use half::{bf16, f16};
use weighbridge::load::{self, Destination, Options, Place, Sink};
use weighbridge::model::DialectName;
use weighbridge::plan::PlannedParam;
use weighbridge::planner::EncodeRule;
use weighbridge::planner::encoding::glob;
use weighbridge::tensor::nearest;
use weighbridge::{Checkpoint, Dtype, LayoutKind, Plan, PlanBuilder, Pool, Scheme};

use crate::Error;
use crate::blocks;

/// A checkpoint of any format, whose tensors candle gets by name.
///
/// Cheap to clone. Nothing but headers is read until a tensor is asked for, and nothing that was given is kept.
#[derive(Clone)]
pub struct Weights {
    shared: Arc<Shared>,
    /// Patterns of tensors that a model may do without.
    left: Vec<String>,
}

struct Shared {
    checkpoint: Checkpoint,
    asked: Box<Asked>,
    /// A plan for each encoding that was asked for; `None`: as stored.
    plans: Mutex<HashMap<Option<Dtype>, Arc<Planned>>>,
    pool: Mutex<Pool>,
}

/// The caller's settings of a plan.
type Asked = dyn for<'a> Fn(PlanBuilder<'a>) -> PlanBuilder<'a> + Send + Sync;

/// A plan, and where in it each name is.
pub(crate) struct Planned {
    plan: Plan,
    places: HashMap<String, usize>,
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Weights {
    /// Opens a checkpoint of any format. Its tensors have the names and shapes of Hugging Face.
    ///
    /// # Errors
    /// If it cannot be opened; every way in which it does not fit the model that it says it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, Error> {
        Weights::of(weighbridge::open(path)?)
    }

    /// The same of an open checkpoint.
    ///
    /// # Errors
    /// Every way in which it does not fit the model that it says it is.
    pub fn of(checkpoint: Checkpoint) -> Result<Weights, Error> {
        Weights::planned(checkpoint, |builder| builder)
    }

    /// The same, planned as `asked` says: in another layout, with rules for names, adapters, encodings. The layout is that of Hugging
    /// Face if `asked` does not set one; [`LayoutKind::Source`] is for checkpoints of models that Weighbridge does not know.
    ///
    /// # Errors
    /// Every way in which the checkpoint cannot be planned as asked.
    pub fn planned<F>(checkpoint: Checkpoint, asked: F) -> Result<Weights, Error>
    where
        F: for<'a> Fn(PlanBuilder<'a>) -> PlanBuilder<'a> + Send + Sync + 'static,
    {
        let shared = Shared {
            checkpoint,
            asked: Box::new(asked),
            plans: Mutex::default(),
            pool: Mutex::new(Pool::new(Pool::available())),
        };
        let weights = Weights { shared: Arc::new(shared), left: vec![] };
        weights.plan(Some(Dtype::F32))?;
        Ok(weights)
    }

    /// Lets a model do without the tensors whose names `pattern` matches, where `*` is any run of characters. Without that,
    /// [`Weights::model`] rejects a model that does not use all tensors.
    #[must_use]
    pub fn leave(mut self, pattern: &str) -> Weights {
        self.left.push(pattern.to_owned());
        self
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.shared.checkpoint
    }

    /// The names, in the order of the layout.
    ///
    /// # Errors
    /// As [`Weights::planned`]; none after that has succeeded.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        Ok(self.plan(Some(Dtype::F32))?.plan.params().iter().map(|param| param.name.clone()).collect())
    }

    /// The tensor called `name`, decoded to `dtype` straight into the memory that candle keeps.
    ///
    /// # Errors
    /// If there is none, or it cannot be read or decoded.
    pub fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor, Error> {
        let planned = self.decoded(dtype)?;
        let Some(place) = planned.place(name) else { return Err(self.unknown(name, &planned)) };
        self.read(&planned, place, dtype, device)
    }

    /// The tensor called `name` in the blocks that it is stored in, which are not decoded.
    ///
    /// On the CPU, the blocks stay in the mapped file if they lie there as the layout wants them: nothing is copied. Blocks that
    /// are moved, as the rows of queries and keys between GGUF and Hugging Face, are copied once. Other devices get a copy.
    ///
    /// # Errors
    /// If there is no such tensor, candle does not have its encoding, or it cannot be read.
    pub fn qtensor(&self, name: &str, device: &Device) -> Result<QTensor, Error> {
        let planned = self.plan(None)?;
        let Some(place) = planned.place(name) else { return Err(self.unknown(name, &planned)) };
        self.read_blocks(&planned, place, device)
    }

    /// All tensors in the blocks that they are stored in, as [`Weights::qtensor`] gives each. Plain ones are in blocks of one.
    ///
    /// # Errors
    /// All tensors at once whose encoding candle does not have; if one cannot be read.
    pub fn qtensors(&self, device: &Device) -> Result<HashMap<String, Arc<QTensor>>, Error> {
        let planned = self.plan(None)?;
        let params = planned.plan.params();
        let foreign = params.iter().filter(|param| blocks::dtype(&param.scheme).is_none());
        let foreign: Vec<_> = foreign.map(|p| (p.name.clone(), p.scheme.to_string())).collect();
        if !foreign.is_empty() {
            return Err(Error::Foreign { tensors: foreign });
        }
        let mut all: HashMap<String, Arc<QTensor>> = HashMap::with_capacity(params.len());
        for (place, param) in params.iter().enumerate() {
            // A root is before the parameters that share its slot.
            let root = param.tied_to.and_then(|root| all.get(&params.get(root)?.name)).cloned();
            let tensor = match root {
                Some(root) => root,
                None => Arc::new(self.read_blocks(&planned, place, device)?),
            };
            all.insert(param.name.clone(), tensor);
        }
        Ok(all)
    }

    /// Where the checkpoint is.
    pub(crate) fn path(&self) -> String {
        self.shared.checkpoint.location().to_string()
    }

    /// True if a model may do without the tensor called `name`.
    pub(crate) fn leaves(&self, name: &str) -> bool {
        self.left.iter().any(|pattern| glob(pattern, name))
    }

    /// The plan of tensors that candle takes as `dtype`: floats are decoded to it, or to f32 if Weighbridge encodes no such.
    pub(crate) fn decoded(&self, dtype: DType) -> Result<Arc<Planned>, Error> {
        self.plan(Some(match dtype {
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::F64 => Dtype::F64,
            _ => Dtype::F32,
        }))
    }

    /// The plan of tensors decoded to `dtype`, or as stored.
    fn plan(&self, dtype: Option<Dtype>) -> Result<Arc<Planned>, Error> {
        let mut plans = self.shared.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = plans.get(&dtype) {
            return Ok(Arc::clone(planned));
        }
        let builder = PlanBuilder::new(&self.shared.checkpoint).layout(LayoutKind::Named(DialectName::Hf));
        // The caller's rules come first, and the first that matches wins.
        let builder = (self.shared.asked)(builder);
        let builder = match dtype {
            Some(dtype) => builder.encode([EncodeRule::of("*", &Scheme::plain(dtype))]),
            None => builder,
        };
        let plan = builder.build()?;
        let places = plan.params().iter().enumerate().map(|(i, param)| (param.name.clone(), i)).collect();
        let planned = Arc::new(Planned { plan, places });
        plans.insert(dtype, Arc::clone(&planned));
        Ok(planned)
    }

    /// The tensor at `place` of a plan, as candle's `dtype`.
    pub(crate) fn read(
        &self,
        planned: &Planned,
        place: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor, Error> {
        let param = planned.param(place);
        let plan = planned.plan.one(place);
        let tensor = match param.scheme.dtype() {
            Some(Dtype::F32) => self.filled::<f32>(&plan, param, device),
            Some(Dtype::F16) => self.filled::<f16>(&plan, param, device),
            Some(Dtype::BF16) => self.filled::<bf16>(&plan, param, device),
            Some(Dtype::F64) => self.filled::<f64>(&plan, param, device),
            Some(Dtype::U8 | Dtype::Bool) => self.filled::<u8>(&plan, param, device),
            Some(Dtype::U32) => self.filled::<u32>(&plan, param, device),
            Some(Dtype::I16) => self.filled::<i16>(&plan, param, device),
            Some(Dtype::I32) => self.filled::<i32>(&plan, param, device),
            Some(Dtype::I64) => self.filled::<i64>(&plan, param, device),
            _ => {
                return Err(Error::Foreign { tensors: vec![(param.name.clone(), param.scheme.to_string())] });
            }
        }?;
        Ok(tensor.to_dtype(dtype)?)
    }

    /// A tensor in memory of candle's: files are read, and blocks decoded, straight into it.
    fn filled<T: WithDType + NoUninit + Zeroable + bytemuck::AnyBitPattern>(
        &self,
        plan: &Plan,
        param: &PlannedParam,
        device: &Device,
    ) -> Result<Tensor, Error> {
        let shape = blocks::shape(param)?;
        let memory = || {
            let bytes = usize::try_from(param.slot_bytes()).unwrap_or(usize::MAX);
            load::Error::Memory { bytes, source: std::io::ErrorKind::OutOfMemory.into() }
        };
        let mut values = try_zeroed_slice_box::<T>(shape.elem_count()).map_err(|()| memory())?;
        let mut sink = Lent(Some(bytemuck::cast_slice_mut(&mut values)));
        let mut pool = self.shared.pool.lock().unwrap_or_else(PoisonError::into_inner);
        plan.load_into(&mut sink, &mut pool, Options::default())?;
        Ok(Tensor::from_vec(values.into_vec(), shape, device)?)
    }

    fn read_blocks(&self, planned: &Planned, place: usize, device: &Device) -> Result<QTensor, Error> {
        let param = planned.param(place);
        let Some(dtype) = blocks::dtype(&param.scheme) else {
            return Err(Error::Foreign { tensors: vec![(param.name.clone(), param.scheme.to_string())] });
        };
        let plan = planned.plan.one(place);
        let load = |owned: bool| {
            let mut pool = self.shared.pool.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = plan.load_with(&mut pool, Options { owned, ..Options::default() })?;
            // One parameter, of one plane.
            let slot = loaded.names().find_map(|name| loaded.get(name)?.slots().first().cloned());
            slot.ok_or_else(|| load::Error::NoSource { param: param.name.clone(), entry: 0 })
        };
        let mut slot = load(false)?;
        if !blocks::is_aligned(dtype, slot.bytes()) {
            // Files may begin a tensor anywhere. Memory of the library's own begins at cache lines.
            slot = load(true)?;
        }
        Ok(QTensor::new(blocks::storage(dtype, slot, device)?, blocks::shape(param)?)?)
    }

    fn unknown(&self, name: &str, planned: &Planned) -> Error {
        let names = planned.plan.params().iter().map(|param| param.name.as_str());
        let nearest = nearest(name, names).map(str::to_owned);
        Error::Unknown { path: self.path(), name: name.to_owned(), nearest }
    }
}

impl Planned {
    /// Where the tensor called `name` is in the plan.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The parameter at `place`.
    pub(crate) fn param(&self, place: usize) -> &PlannedParam {
        &self.plan.params()[place]
    }

    /// All parameters.
    pub(crate) fn params(&self) -> &[PlannedParam] {
        self.plan.params()
    }
}

/// Memory for the only parameter of a plan.
struct Lent<'m>(Option<&'m mut [u8]>);

impl<'m> Sink<'m> for Lent<'m> {
    fn place(&mut self, _: &Place<'_>) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let memory = self.0.take().ok_or("there is memory for one tensor alone")?;
        Ok(Destination::Memory(vec![memory]))
    }
}

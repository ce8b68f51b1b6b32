//! A plan whose parameters are tensors of burn's, read one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::store::burn_pack::{Error as PackError, Tensor as PackTensor};
use burn::tensor::{AllocationProperty, BoolStore, Bytes, DType, Shape};
use weighbridge::load::Slot;
use weighbridge::plan::PlannedParam;
use weighbridge::{Dtype, Plan, Pool, load};

use crate::Error;

/// A plan, and the threads that run it.
pub(crate) struct Planned {
    plan: Plan,
    pool: Mutex<Pool>,
}

impl Planned {
    pub(crate) fn new(plan: Plan) -> Planned {
        Planned { plan, pool: Mutex::new(Pool::new(Pool::available())) }
    }

    /// Where the checkpoint is.
    pub(crate) fn path(&self) -> String {
        self.plan.checkpoint().location().to_string()
    }

    /// Every parameter as a tensor of burn's, of which no byte is read yet.
    ///
    /// # Errors
    /// All parameters at once whose type burn does not have.
    pub(crate) fn tensors(self: &Arc<Planned>) -> Result<BTreeMap<String, PackTensor>, Error> {
        let (mut tensors, mut foreign) = (BTreeMap::new(), vec![]);
        for (place, param) in self.plan.params().iter().enumerate() {
            match self.tensor(place, param) {
                Some(tensor) => {
                    tensors.insert(param.name.clone(), tensor);
                }
                None => foreign.push((param.name.clone(), param.scheme.to_string())),
            }
        }
        if foreign.is_empty() { Ok(tensors) } else { Err(Error::Dtype { tensors: foreign }) }
    }

    /// The parameter at `place`; `None` if burn does not have its type.
    fn tensor(self: &Arc<Planned>, place: usize, param: &PlannedParam) -> Option<PackTensor> {
        let dtype = dtype(param.scheme.dtype()?)?;
        let extents = param.shape.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<Vec<_>>>()?;
        let len = usize::try_from(param.slot_bytes()).ok()?;
        let this = Arc::clone(self);
        let read = move || this.read(place).map_err(|error| PackError::IoError(error.to_string()));
        Some(PackTensor::deferred(param.name.clone(), dtype, Shape::from(extents), None, len, read))
    }

    /// The bytes of the parameter at `place`: in the mapped file if they are stored as they are wanted, else in memory of their own.
    fn read(&self, place: usize) -> Result<Bytes, load::Error> {
        let plan = self.plan.one(place);
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = plan.load(&mut pool)?;
        // One parameter, of one plane.
        let slot = loaded.names().find_map(|name| loaded.get(name)?.slots().first().cloned());
        let param = || self.plan.params()[place].name.clone();
        let slot = slot.ok_or_else(|| load::Error::NoSource { param: param(), entry: 0 })?;
        let property = if slot.is_borrowed() { AllocationProperty::File } else { AllocationProperty::Other };
        Ok(Bytes::from_shared(bytes::Bytes::from_owner(Held(slot)), property))
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// A slot, as burn's bytes hold it. They copy it when somebody writes.
struct Held(Slot);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Burn's name of a plain dtype.
fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::Bool => DType::Bool(BoolStore::Native),
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::U16 => DType::U16,
        Dtype::I16 => DType::I16,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::U64 => DType::U64,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}

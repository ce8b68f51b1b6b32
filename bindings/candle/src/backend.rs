//! Candle's seam: a model's constructor asks for tensors by name.

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use crate::weights::Planned;
use crate::{Weights, blocks};

impl Weights {
    /// A `VarBuilder` of these tensors, for constructors of candle's models. The first tensor that does not fit ends a constructor;
    /// [`Weights::model`] finds all of them.
    pub fn var_builder(&self, dtype: DType, device: &Device) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self.clone()), dtype, device.clone())
    }

    /// Where the tensor called `name` is in the plan for `dtype`.
    fn located(&self, name: &str, dtype: DType) -> Result<(std::sync::Arc<Planned>, usize)> {
        let planned = self.decoded(dtype)?;
        let missing = || candle_core::Error::CannotFindTensor { path: name.to_owned() }.bt();
        let place = planned.place(name).ok_or_else(missing)?;
        Ok((planned, place))
    }
}

impl SimpleBackend for Weights {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let (planned, place) = self.located(name, dtype)?;
        let found = blocks::shape(planned.param(place))?;
        if found != shape {
            let msg = format!("`{name}` in `{}`", self.path());
            return Err(candle_core::Error::UnexpectedShape { msg, expected: shape, got: found }.bt());
        }
        Ok(self.read(&planned, place, dtype, device)?)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let (planned, place) = self.located(name, dtype)?;
        Ok(self.read(&planned, place, dtype, device)?)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        // The dtype changes no name.
        self.decoded(DType::F32).is_ok_and(|planned| planned.place(name).is_some())
    }
}

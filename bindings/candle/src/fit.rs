//! Everything that a constructor asks for, compared with everything that there is, before a tensor is read.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use weighbridge::TensorEntry;
use weighbridge::plan::{Problem, Problems, resolve};
use weighbridge::tensor::{Binding, Bindings, Expr, Presence};

use crate::weights::Planned;
use crate::{Error, Weights, blocks};

impl Weights {
    /// The model that `build` makes. First `build` is run with zeros, which takes no memory but for what it computes of its tensors,
    /// and all that it asks for is compared with the checkpoint; then it is run with the tensors. So each tensor is read once, and
    /// only if all fit.
    ///
    /// A constructor may try one name after the other: names that it does without are not missing. To see that, it is run once more, with
    /// errors; one that panics at them, as candle's llama does, prints its panic.
    ///
    /// # Errors
    /// Every tensor at once that is missing, has another shape, or is not used ([`Weights::leave`] excuses the last); what candle
    /// says; if a tensor cannot be read.
    pub fn model<M>(
        &self,
        dtype: DType,
        device: &Device,
        build: impl Fn(VarBuilder<'static>) -> Result<M>,
    ) -> std::result::Result<M, Error> {
        let planned = self.decoded(dtype)?;
        let dry = |missing: Missing| {
            let asked = Arc::new(Mutex::new(HashMap::new()));
            let backend = Dry { weights: self.clone(), asked: Arc::clone(&asked), missing };
            let built = build(VarBuilder::from_backend(Box::new(backend), dtype, device.clone()));
            let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
            (asked, built.err())
        };
        let (asked, failed) = dry(Missing::IsZero);
        let spare = planned.params().iter().any(|param| !asked.contains_key(&param.name));
        if let Err(problems) = self.compared(&planned, asked) {
            let misfit = |problems| Error::Misfit { path: self.path(), problems };
            if !(spare && lacks(&problems)) {
                return Err(misfit(problems));
            }
            // A constructor may try one name after the other. If it ends well with errors, names that are missing are no fault. Some
            // constructors of candle's panic at an error.
            let Ok((mut asked, None)) = catch_unwind(AssertUnwindSafe(|| dry(Missing::IsError))) else {
                return Err(misfit(problems));
            };
            asked.retain(|name, _| planned.place(name).is_some());
            self.compared(&planned, asked).map_err(misfit)?;
        } else if let Some(error) = failed {
            return Err(error.into());
        }
        Ok(build(self.var_builder(dtype, device))?)
    }

    /// Compares what was asked for with what there is.
    fn compared(
        &self,
        planned: &Planned,
        asked: HashMap<String, Option<Shape>>,
    ) -> std::result::Result<(), Problems> {
        let params = planned.params();
        let root = |place: usize| params[place].tied_to.unwrap_or(place);
        let used: HashSet<usize> = asked.keys().filter_map(|name| planned.place(name)).map(root).collect();
        let counts = |place: usize| {
            let name = &params[place].name;
            // Of tensors that are the same, one is enough.
            asked.contains_key(name) || !(used.contains(&root(place)) || self.leaves(name))
        };
        let entries: Vec<TensorEntry> = (0..params.len())
            .filter(|place| counts(*place))
            .map(|place| TensorEntry {
                name: params[place].name.clone(),
                shape: params[place].shape.clone(),
                scheme: Arc::clone(&params[place].scheme),
                planes: vec![],
                strides: None,
            })
            .collect();
        let mut problems = vec![];
        let mut bindings = Bindings { bindings: vec![], drops: vec![] };
        for (name, shape) in asked {
            let found = planned.place(&name).map(|place| params[place].shape.clone());
            let wanted = shape.map(|shape| shape.dims().iter().map(|n| *n as u64).collect::<Vec<_>>().into());
            // Asked for without a shape, it may have any.
            let Some(shape) = wanted.or(found) else {
                problems.push(Problem::Missing { entry: name.clone(), params: vec![name], wants: None });
                continue;
            };
            let (expr, presence) = (Expr::source(&name), Presence::Required);
            bindings.bindings.push(Binding { name, shape, expr, presence });
        }
        // In the order of names: a map has none.
        bindings.bindings.sort_by(|a, b| a.name.cmp(&b.name));
        if let Err(more) = resolve(&entries, &bindings) {
            problems.extend(more.iter().cloned());
        }
        Problems::none(problems)
    }
}

/// True if tensors are missing. Of a checkpoint that has others, these may be what a constructor looks for under another name.
fn lacks(problems: &Problems) -> bool {
    problems.iter().any(|problem| matches!(problem, Problem::Missing { .. } | Problem::Renamed { .. }))
}

/// How a name that is not there is answered.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    /// As it will be.
    IsError,
    /// With zeros, to see what else is asked for.
    IsZero,
}

/// Gives zeros, and notes what is asked for.
struct Dry {
    weights: Weights,
    /// Each name, with its shape if the constructor gives one.
    asked: Arc<Mutex<HashMap<String, Option<Shape>>>>,
    missing: Missing,
}

impl Dry {
    fn note(&self, name: &str, shape: Option<Shape>) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), shape);
    }

    /// The shape of the tensor called `name`.
    fn found(&self, name: &str, dtype: DType) -> Result<Shape> {
        let planned = self.weights.decoded(dtype)?;
        match planned.place(name) {
            Some(place) => Ok(blocks::shape(planned.param(place))?),
            None => Err(candle_core::Error::CannotFindTensor { path: name.to_owned() }.bt()),
        }
    }
}

/// One zero, seen everywhere in `shape`.
fn zeros(shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::zeros((), dtype, device)?.broadcast_as(shape)
}

impl SimpleBackend for Dry {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.note(name, Some(shape.clone()));
        if self.missing == Missing::IsError {
            let found = self.found(name, dtype)?;
            if found != shape {
                let msg = format!("`{name}`");
                return Err(candle_core::Error::UnexpectedShape { msg, expected: shape, got: found }.bt());
            }
        }
        zeros(&shape, dtype, device)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.note(name, None);
        zeros(&self.found(name, dtype)?, dtype, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.weights.contains_tensor(name)
    }
}

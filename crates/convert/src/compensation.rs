//! Encoding that makes the errors of columns good by the columns after them, as GPTQ does.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use checkpoint::Checkpoint;
use engine::calibrate::Products;
use planner::{Adapter, describe};
use quant::Feedback;
use tensor::Diagnostic;

use crate::names::Names;
use crate::{Error, Imatrix, Scaling, resume};

/// The share of the mean square of all inputs that is added to the square of each. GPTQ adds the same.
const DAMPING: f64 = 0.01;

/// The canonical name of the table of tokens, which is the output matrix of some models.
const TABLE: &str = "token_embedding.weight";

/// How the errors of columns make each other good, for each matrix by the name of GGUF.
pub struct Compensation {
    matrices: HashMap<String, Arc<Feedback>>,
}

impl fmt::Debug for Compensation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compensation").field("matrices", &self.matrices.len()).finish_non_exhaustive()
    }
}

impl Compensation {
    /// Factors the sums that a calibration of `checkpoint` made, with their columns divided as `scaling` says. The output matrix of
    /// some models is their table of tokens too: an error in it also counts alone, as much as `imatrix` says. If `imatrix` does not say
    /// it, that matrix is left out. `each` gets the number of inputs that are factored and of all, and may end it.
    ///
    /// # Errors
    /// If the family has no names in GGUF, memory runs out, inputs are not numbers, or `each` ends it.
    pub fn of(
        checkpoint: &Checkpoint,
        products: Vec<Products>,
        imatrix: Option<&Imatrix>,
        scaling: Option<&Scaling>,
        threads: usize,
        each: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Compensation, Error> {
        let names = Names::canonical(checkpoint, &describe(checkpoint)?, &Adapter::default())?;
        let mut matrices = HashMap::new();
        let total = products.len();
        for (done, Products { names: of, rows, mut gram }) in products.into_iter().enumerate() {
            if each(done, total).is_break() {
                return Err(Error::Interrupted { kept: None, done, total });
            }
            let sensitivities = of.iter().filter_map(|name| imatrix?.sensitivity(names.of(name)));
            let by = sensitivities.reduce(|a, b| if b.lookup > a.lookup { b } else { a });
            let looked_up = of.iter().any(|name| names.of(name) == names.of(TABLE));
            let lookup = match by {
                _ if !looked_up => 0.0,
                Some(by) if by.lookup > 0.0 && by.product > 0.0 => by.lookup / by.product / rows as f64,
                _ => continue,
            };
            if let Some(factors) = of.iter().find_map(|name| scaling?.factors(names.of(name))) {
                gram.divide(factors);
            }
            let feedback = Feedback::of(&gram, DAMPING, lookup, threads).ok_or_else(|| {
                let of = of.join("`, `");
                Error::Convert {
                    what: Diagnostic::new(format!("the inputs of `{of}` cannot be factored")).into(),
                }
            })?;
            let feedback = Arc::new(feedback);
            matrices.extend(of.iter().map(|name| (names.of(name).to_owned(), Arc::clone(&feedback))));
        }
        Ok(Compensation { matrices })
    }

    /// That of the matrix that GGUF calls `name`.
    pub fn get(&self, name: &str) -> Option<&Feedback> {
        self.matrices.get(name).map(|feedback| &**feedback)
    }

    /// A digest of all that encoders heed.
    pub(crate) fn digest(&self) -> String {
        resume::digest(self.matrices.iter().map(|(name, feedback)| (name.as_str(), feedback.weights())))
    }
}

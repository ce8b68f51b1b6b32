//! Checks of rank files before they are joined: copies of the same values must agree, and padding must be zero.

use checkpoint::Checkpoint;
use load::{Plan, Pool};
use planner::{LayoutKind, PlanBuilder};
use tensor::{Copies, Diagnostic, Dtype, Expr, Made, Scheme, Target};
use vllm::Rejoined;

use crate::Error;

/// Disagreements that an error names.
const SHOWN: usize = 8;

/// Parts of rank files that are compared with each other, or with zero.
pub(crate) struct Agreement {
    plan: Plan,
    copies: Vec<Copies>,
    padding: Vec<Made>,
    constants: Vec<(String, f32)>,
}

impl Agreement {
    pub(crate) fn of(checkpoint: &Checkpoint, rejoined: &Rejoined) -> Result<Agreement, Error> {
        let mut request = PlanBuilder::new(checkpoint).layout(LayoutKind::Source).request()?;
        let target = |name: String, expr: &Expr| Target { name, expr: expr.clone(), scheme: None };
        let (copies, padding) = (rejoined.copies.clone(), rejoined.padding.clone());
        request.targets.clear();
        for (i, copy) in copies.iter().enumerate() {
            request.targets.push(target(format!("{i}.first"), &copy.first.expr));
            request.targets.push(target(format!("{i}.other"), &copy.other.expr));
        }
        for (i, zeros) in padding.iter().enumerate() {
            request.targets.push(target(format!("{i}.padding"), &zeros.expr));
        }
        let constants = rejoined.constants.clone();
        for (i, (name, _)) in constants.iter().enumerate() {
            let float = Some(Scheme::plain(Dtype::F32));
            request
                .targets
                .push(Target { scheme: float, ..target(format!("{i}.constant"), &Expr::source(name)) });
        }
        Ok(Agreement { plan: request.compile()?, copies, padding, constants })
    }

    /// Reads all of it, a part at a time.
    pub(crate) fn check(&self, pool: &mut Pool) -> Result<(), Error> {
        let mut wrong = vec![];
        for (i, copy) in self.copies.iter().enumerate() {
            if self.bytes(2 * i, pool)? != self.bytes(2 * i + 1, pool)? {
                let (first, other) = (held_in(&copy.first.expr), held_in(&copy.other.expr));
                wrong.push(format!("`{first}` and `{other}` differ there"));
            }
        }
        for (i, zeros) in self.padding.iter().enumerate() {
            if self.bytes(2 * self.copies.len() + i, pool)?.iter().any(|byte| *byte != 0) {
                wrong.push(format!("`{}` has padding that is not zero", zeros.name));
            }
        }
        let constants = 2 * self.copies.len() + self.padding.len();
        for (i, (name, value)) in self.constants.iter().enumerate() {
            if self.bytes(constants + i, pool)? != value.to_le_bytes() {
                wrong.push(format!("`{name}` is not the {value} that vLLM gives it, and would be lost"));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let more = wrong.len().saturating_sub(SHOWN);
        wrong.truncate(SHOWN);
        if more > 0 {
            wrong.push(format!("and {more} more"));
        }
        wrong.insert(
            0,
            "the rank files do not belong to one model, or its experts are distributed differently:"
                .to_owned(),
        );
        Err(Error::Convert { what: wrong.into_iter().map(Diagnostic::new).collect() })
    }

    /// The bytes of the target at `index`, its planes one after the other.
    fn bytes(&self, index: usize, pool: &mut Pool) -> Result<Vec<u8>, Error> {
        let plan = self.plan.one(index);
        let loaded = plan.load(pool)?;
        let slots = plan.params().first().and_then(|p| loaded.get(&p.name)).map(load::Tensor::slots);
        Ok(slots.unwrap_or_default().iter().flat_map(|slot| slot.bytes().iter().copied()).collect())
    }
}

/// The first tensor that `expr` is made of.
fn held_in(expr: &Expr) -> String {
    let mut first = None;
    expr.for_each_source(&mut |name| {
        first.get_or_insert_with(|| name.to_owned());
    });
    first.unwrap_or_default()
}

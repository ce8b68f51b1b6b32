//! Compares two checkpoints of any formats, by canonical parameters or by stored names.

mod compare;
mod keys;
mod report;

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::Instant;

use checkpoint::Checkpoint;
use load::{Loaded, Plan, Pool};
use model::{Model, RopeScaling};
use plan::PlannedParam;
use tensor::Diagnostic;

use planner::{LayoutKind, describe, plan, plan_as_stored};

use crate::{Error, rope};

pub use keys::KeyDifference;
pub use report::{Compared, DiffGroup, DiffReport, Outcome, StoredParam};

/// Compares checkpoint `a` with `b`, one parameter after the other, so that memory is bounded by the largest one, as
/// both store it. `each` is called before each of them, with its index, the number of parameters, and its name, and may
/// end it.
///
/// With no `layout`, parameters are compared by canonical names if one family claims both checkpoints and both have all
/// of its parameters, else by stored names.
///
/// # Errors
/// If `layout` is canonical and that cannot be, or no layout at all; if a file cannot be read, or holds invalid data; if
/// `each` ends it.
pub fn diff(
    a: &Checkpoint,
    b: &Checkpoint,
    layout: Option<LayoutKind>,
    pool: &mut Pool,
    each: &mut dyn FnMut(usize, usize, &str) -> ControlFlow<()>,
) -> Result<DiffReport, Error> {
    let started = Instant::now();
    let mut report = DiffReport::default();
    let models = (describe(a), describe(b));
    let said = keys::compare(a, b)?;
    (report.keys, report.not_compared) = (said.differences, said.not_compared);
    if let (Ok(a), Ok(b)) = &models {
        let unlike = a.unlike(b).into_iter();
        report.configuration = unlike.map(|(name, a, b)| (name.to_owned(), a, b)).collect();
    }
    let (a, b) = match layout {
        Some(LayoutKind::Canonical) => report.canonical((a, &models.0?), (b, &models.1?), pool)?,
        Some(LayoutKind::Source) => (Side::stored(a)?, Side::stored(b)?),
        Some(other) => {
            let what =
                format!("the layout `{}` is only for this machine, and cannot be compared", other.name());
            let hint = "source or canonical".to_owned();
            return Err(Error::Diff { what: Diagnostic::new(what).with_hint(hint) });
        }
        None => {
            let sides = models
                .0
                .map_err(Error::from)
                .and_then(|model| report.canonical((a, &model), (b, &models.1?), pool));
            match sides {
                Ok(sides) => sides,
                Err(why) => {
                    report.why_stored = Some(why.to_string());
                    (Side::stored(a)?, Side::stored(b)?)
                }
            }
        }
    };
    let names: HashMap<&str, usize> =
        b.plan.params().iter().enumerate().map(|(i, p)| (p.name.as_str(), i)).collect();
    let total = a.plan.params().len();
    for (i, param) in a.plan.params().iter().enumerate() {
        let Some(&j) = names.get(param.name.as_str()) else {
            report.only_a.push((param.name.clone(), a.held(i)));
            continue;
        };
        // A parameter that shares a slot with the same root in both is compared there.
        let ties = (param.tied_to.map(|t| &a.plan.params()[t].name), b.plan.params()[j].tied_to);
        if let (Some(root), Some(other)) = ties
            && *root == b.plan.params()[other].name
        {
            continue;
        }
        if each(i, total, &param.name).is_break() {
            return Err(Error::Interrupted { kept: None, done: i, total });
        }
        let (held_a, held_b) = (a.held(i), b.held(j));
        let outcome = if held_a.shape == held_b.shape {
            let (loaded_a, loaded_b) = (a.load(i, pool)?, b.load(j, pool)?);
            for cost in [loaded_a.report(), loaded_b.report()] {
                report.bytes_read += cost.bytes_read + cost.bytes_borrowed;
            }
            let owned = [&loaded_a, &loaded_b].map(|l| l.report().owned_bytes + l.report().scratch_peak);
            report.peak_memory = report.peak_memory.max(owned.iter().sum());
            match (loaded_a.get(a.root(i)), loaded_b.get(b.root(j))) {
                (Some(x), Some(y)) => compare::compare(x, y, pool)
                    .map_err(|data| load::Error::Data { param: param.name.clone(), data })?,
                // A plan of one parameter loads that.
                _ => Outcome::Opaque,
            }
        } else {
            Outcome::Shape
        };
        report.params.push(Compared { name: param.name.clone(), a: held_a, b: held_b, outcome });
    }
    let there: BTreeSet<&str> = a.plan.params().iter().map(|p| p.name.as_str()).collect();
    for (j, param) in b.plan.params().iter().enumerate().filter(|(_, p)| !there.contains(p.name.as_str())) {
        report.only_b.push((param.name.clone(), b.held(j)));
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

impl DiffReport {
    /// Both under the names of the family that claims both.
    fn canonical(
        &mut self,
        (a, model_a): (&Checkpoint, &Model),
        (b, model_b): (&Checkpoint, &Model),
        pool: &mut Pool,
    ) -> Result<(Side, Side), Error> {
        let family = same_family(model_a, model_b)?;
        let mut sides = (Side::canonical(a, model_a)?, Side::canonical(b, model_b)?);
        for (side, other) in [(&mut sides.0, model_b), (&mut sides.1, model_a)] {
            if side.says_factors_of(other, pool)? {
                side.plan = side.plan.retain(|p| p.name != rope::FACTORS);
                self.configuration.retain(|(field, ..)| field != "rope_scaling");
                self.implied.push(rope::FACTORS.to_owned());
            }
        }
        self.family = Some(family);
        Ok(sides)
    }
}

/// The family that claims both.
fn same_family(a: &Model, b: &Model) -> Result<&'static str, Error> {
    if a.family.name() == b.family.name() {
        return Ok(a.family.name());
    }
    let what = format!(
        "A is `{}`, B is `{}`: they have no canonical names in common",
        a.family.name(),
        b.family.name()
    );
    Err(Error::Diff { what: Diagnostic::new(what).with_hint("use the layout `source`".to_owned()) })
}

/// One of the two, planned.
struct Side {
    plan: Plan,
}

impl Side {
    fn canonical(checkpoint: &Checkpoint, model: &Model) -> Result<Side, Error> {
        Ok(Side { plan: plan(checkpoint, model, LayoutKind::Canonical)? })
    }

    fn stored(checkpoint: &Checkpoint) -> Result<Side, Error> {
        Ok(Side { plan: plan_as_stored(checkpoint)? })
    }

    /// Whether its rotary factors follow from the configuration of `model`.
    fn says_factors_of(&self, model: &Model, pool: &mut Pool) -> Result<bool, Error> {
        let at = self.plan.params().iter().position(|p| p.name == rope::FACTORS);
        let rope = rope::of(model);
        let (Some(at), RopeScaling::Llama3 { .. }) = (at, &rope.scaling) else { return Ok(false) };
        Ok(rope.has_factors(&rope::values(&self.load(at, pool)?, rope::FACTORS)))
    }

    /// The parameter whose slot parameter `i` has.
    fn of(&self, i: usize) -> &PlannedParam {
        let param = &self.plan.params()[i];
        param.tied_to.map_or(param, |root| &self.plan.params()[root])
    }

    fn root(&self, i: usize) -> &str {
        &self.of(i).name
    }

    fn held(&self, i: usize) -> StoredParam {
        let param = self.of(i);
        let mut entries = BTreeSet::new();
        param.expr.for_each_source(&mut |name| {
            entries.insert(name.to_owned());
        });
        StoredParam {
            entries: entries.into_iter().collect(),
            shape: param.shape.clone(),
            scheme: param.scheme.name.to_string(),
        }
    }

    fn load(&self, i: usize, pool: &mut Pool) -> Result<Loaded, Error> {
        Ok(self.plan.one(i).load(pool)?)
    }
}

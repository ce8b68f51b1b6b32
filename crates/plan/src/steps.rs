//! Codec steps: found anywhere in an expression, done after all movement.

use std::sync::Arc;

use tensor::{Dtype, Expr, Scheme, Step};

/// Movement, and the steps that follow it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hoisted {
    /// Without any [`Expr::Encode`].
    pub(crate) movement: Expr,
    pub(crate) steps: Vec<Step>,
    /// Only zeros, whatever scheme they are re-encoded in.
    zero: bool,
}

/// Why steps cannot be hoisted out of parts that are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// The parts have different steps.
    Differ(Vec<Step>, Vec<Step>),
    /// One part is padding and another adds a number, which would be added to the padding too.
    ZeroPlus,
    /// What the stage of this name changes is moved afterwards.
    Moved(String),
}

/// Hoists the elementwise steps of `expr` outwards through movement. `expr` must not nest too deep.
///
/// # Errors
/// [`Clash`] if parts of a concat or stack do not carry the same steps.
pub(crate) fn hoist(expr: &Expr) -> Result<Hoisted, Clash> {
    let through = |of: &Expr, wrap: &dyn Fn(Box<Expr>) -> Expr| {
        let inner = hoist(of)?;
        movable(&inner)?;
        Ok(Hoisted { movement: wrap(Box::new(inner.movement)), ..inner })
    };
    match expr {
        Expr::Source(_) => Ok(Hoisted { movement: expr.clone(), steps: vec![], zero: false }),
        Expr::Zero(_) => Ok(Hoisted { movement: expr.clone(), steps: vec![], zero: true }),
        Expr::Concat { axis, parts } => together(parts, |parts| Expr::Concat { axis: *axis, parts }),
        Expr::Stack(parts) => together(parts, Expr::Stack),
        Expr::Slice { axis, range, of } => {
            through(of, &|of| Expr::Slice { axis: *axis, range: range.clone(), of })
        }
        Expr::Split { axis, inner, of } => through(of, &|of| Expr::Split { axis: *axis, inner: *inner, of }),
        Expr::Merge { axis, of } => through(of, &|of| Expr::Merge { axis: *axis, of }),
        Expr::Permute { axes, of } => through(of, &|of| Expr::Permute { axes: axes.clone(), of }),
        Expr::Encode { step, of } => {
            let mut inner = hoist(of)?;
            if !matches!(step, Step::Add(_) | Step::Apply(_)) {
                if let Step::By(stage) = step {
                    inner.steps.push(Step::To(stage.takes()));
                    // What it makes of zeros need not be zeros.
                    inner.zero = false;
                }
                inner.steps.push(step.clone());
                return Ok(inner);
            }
            inner.zero = false;
            // Values are encoded as what they become in the end, and rounded once.
            let encoded = inner.steps.pop_if(|last| matches!(last, Step::To(_)) && !leaves_f32(last));
            match (inner.steps.last_mut(), step) {
                (Some(last), _) if undoes(last, step) => {
                    // It is undone, and so is the cast that was made only for it.
                    inner.steps.pop();
                    inner.steps.pop_if(|last| leaves_f32(last));
                }
                (Some(Step::Add(n)), Step::Add(more)) => *n = n.saturating_add(*more),
                (Some(last), _) if leaves_f32(last) => inner.steps.push(step.clone()),
                // Numbers are changed in f32.
                _ => inner.steps.extend([Step::To(Scheme::plain(Dtype::F32)), step.clone()]),
            }
            inner.steps.extend(encoded);
            Ok(inner)
        }
    }
}

/// Checks that no stage changes what is moved afterwards: it was made for rows as they are.
fn movable(of: &Hoisted) -> Result<(), Clash> {
    match of.steps.iter().find_map(|step| if let Step::By(stage) = step { Some(stage) } else { None }) {
        Some(stage) => Err(Clash::Moved(stage.name().to_owned())),
        None => Ok(()),
    }
}

fn together(parts: &[Expr], build: impl FnOnce(Vec<Expr>) -> Expr) -> Result<Hoisted, Clash> {
    let parts = parts.iter().map(hoist).collect::<Result<Vec<_>, Clash>>()?;
    parts.iter().try_for_each(movable)?;
    let zero = parts.iter().all(|p| p.zero);
    let first = parts.iter().find(|p| !p.zero).or(parts.first());
    let steps = first.map(|p| p.steps.clone()).unwrap_or_default();
    if let Some(other) = parts.iter().find(|p| !p.zero && p.steps != steps) {
        return Err(Clash::Differ(steps, other.steps.clone()));
    }
    if steps.iter().any(|s| matches!(s, Step::Add(_) | Step::Apply(_))) && parts.iter().any(|p| p.zero) {
        return Err(Clash::ZeroPlus);
    }
    Ok(Hoisted { movement: build(parts.into_iter().map(|p| p.movement).collect()), steps, zero })
}

/// Movement alone, and what each source is encoded to before it is moved, if anything; by the last step of several.
#[derive(Debug, PartialEq)]
pub(crate) struct Sunk {
    pub(crate) movement: Expr,
    /// In the order of the expression, each name once.
    pub(crate) sources: Vec<(String, Vec<Step>)>,
}

/// Sinks the steps of `expr` inwards through movement, down to its sources: the other way where parts that are put together
/// do not carry the same. `None` if one adds a number, or a source would need several. `expr` must not nest too deep.
pub(crate) fn sink(expr: &Expr) -> Option<Sunk> {
    let mut sources: Vec<(String, Vec<Step>)> = vec![];
    let movement = sunk(expr, &[], &mut sources)?;
    Some(Sunk { movement, sources })
}

/// `after` are the steps around `expr`, the first to be done first.
fn sunk(expr: &Expr, after: &[Step], sources: &mut Vec<(String, Vec<Step>)>) -> Option<Expr> {
    let mut one = |of: &Expr| Some(Box::new(sunk(of, after, sources)?));
    Some(match expr {
        Expr::Source(name) => {
            match sources.iter().find(|(known, _)| **known == **name) {
                Some((_, steps)) if steps != after => return None,
                Some(_) => {}
                None => sources.push((name.clone(), after.to_vec())),
            }
            expr.clone()
        }
        Expr::Zero(_) => expr.clone(),
        Expr::Concat { axis, parts } => {
            let parts = parts.iter().map(|part| sunk(part, after, sources)).collect::<Option<_>>()?;
            Expr::Concat { axis: *axis, parts }
        }
        Expr::Stack(parts) => {
            Expr::Stack(parts.iter().map(|part| sunk(part, after, sources)).collect::<Option<_>>()?)
        }
        Expr::Slice { axis, range, of } => Expr::Slice { axis: *axis, range: range.clone(), of: one(of)? },
        Expr::Split { axis, inner, of } => Expr::Split { axis: *axis, inner: *inner, of: one(of)? },
        Expr::Merge { axis, of } => Expr::Merge { axis: *axis, of: one(of)? },
        Expr::Permute { axes, of } => Expr::Permute { axes: axes.clone(), of: one(of)? },
        Expr::Encode { step: Step::Add(_) | Step::Apply(_) | Step::By(_), .. } => return None,
        Expr::Encode { step, of } => {
            let steps: Vec<Step> = std::iter::once(step).chain(after).cloned().collect();
            sunk(of, &steps, sources)?
        }
    })
}

/// True if `next` gives back what was before `step`.
fn undoes(step: &Step, next: &Step) -> bool {
    match (step, next) {
        (Step::Add(n), Step::Add(more)) => *n == -*more,
        (Step::Apply(function), Step::Apply(next)) => function.inverse() == *next,
        _ => false,
    }
}

fn leaves_f32(step: &Step) -> bool {
    match step {
        Step::Add(_) | Step::Apply(_) => true,
        Step::To(scheme) => scheme.dtype() == Some(Dtype::F32),
        Step::By(stage) => stage.gives().dtype() == Some(Dtype::F32),
    }
}

/// Removes from `steps`, applied to a tensor stored as `from`, those that change nothing.
pub(crate) fn effective(from: &Arc<Scheme>, steps: Vec<Step>) -> Vec<Step> {
    let mut now = Arc::clone(from);
    let mut out = vec![];
    for step in steps {
        if step == Step::Add(0) {
            continue;
        }
        if let Step::To(to) = &step {
            if *to == now {
                continue;
            }
            now = Arc::clone(to);
        }
        if let Step::By(stage) = &step {
            now = stage.gives();
        }
        out.push(step);
    }
    out
}

/// The scheme of values stored as `from` after `steps`.
pub(crate) fn after(from: &Arc<Scheme>, steps: &[Step]) -> Arc<Scheme> {
    let to = |s: &Step| match s {
        Step::To(to) => Some(Arc::clone(to)),
        Step::By(stage) => Some(stage.gives()),
        Step::Add(_) | Step::Apply(_) => None,
    };
    steps.iter().rev().find_map(to).unwrap_or_else(|| Arc::clone(from))
}

/// `expr` followed by `steps`.
pub(crate) fn apply(expr: Expr, steps: &[Step]) -> Expr {
    steps.iter().fold(expr, |e, step| e.encode(step.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Shape;

    fn f32() -> Step {
        Step::To(Scheme::plain(Dtype::F32))
    }
    fn one(name: &str) -> Expr {
        Expr::source(name).encode(Step::Add(1))
    }

    #[test]
    fn steps_come_out_of_movement_in_order() {
        let h = hoist(&one("w").slice(0, 0..2).transpose()).unwrap();
        assert_eq!(h.movement, Expr::source("w").slice(0, 0..2).transpose());
        assert_eq!(h.steps, [f32(), Step::Add(1)]);
    }

    #[test]
    fn what_changes_nothing_is_left_out() {
        let steps = hoist(&one("w")).unwrap().steps;
        assert_eq!(effective(&Scheme::plain(Dtype::F32), steps.clone()), [Step::Add(1)]);
        assert_eq!(effective(&Scheme::plain(Dtype::BF16), steps), [f32(), Step::Add(1)]);
    }

    #[test]
    fn what_is_added_is_one_sum() {
        let back = one("w").transpose().encode(Step::Add(-1));
        assert_eq!(hoist(&back).unwrap().steps, []);
        let more = one("w").encode(Step::Add(2));
        assert_eq!(hoist(&more).unwrap().steps, [f32(), Step::Add(3)]);
    }

    #[test]
    fn values_are_encoded_after_all_else() {
        let bf16 = || Step::To(Scheme::plain(Dtype::BF16));
        let back = one("w").encode(bf16()).transpose().encode(Step::Add(-1));
        assert_eq!(hoist(&back).unwrap().steps, [bf16()]);
        let more = Expr::source("w").encode(bf16()).encode(Step::Add(-1));
        assert_eq!(hoist(&more).unwrap().steps, [f32(), Step::Add(-1), bf16()]);
    }

    #[test]
    fn parts_must_carry_the_same_steps() {
        let h = hoist(&Expr::concat(0, vec![one("a"), one("b")])).unwrap();
        assert_eq!(h.steps, [f32(), Step::Add(1)]);
        assert!(matches!(hoist(&Expr::concat(0, vec![one("a"), Expr::source("b")])), Err(Clash::Differ(..))));
    }

    #[test]
    fn steps_sink_to_the_sources_that_they_are_of() {
        let encoded = |name: &str| Expr::source(name).encode(f32());
        let parts = |a, b| Expr::concat(0, vec![a, b]);
        let sunk = sink(&parts(encoded("a").slice(0, 0..2), Expr::source("b"))).unwrap();
        assert_eq!(sunk.movement, parts(Expr::source("a").slice(0, 0..2), Expr::source("b")));
        assert_eq!(sunk.sources, [("a".to_owned(), vec![f32()]), ("b".to_owned(), vec![])]);
        // Around both, it is of both; one source cannot be two things; numbers are not sunk.
        let both = sink(&parts(encoded("a"), Expr::source("b")).encode(Step::To(Scheme::plain(Dtype::F16))));
        assert_eq!(both.unwrap().sources[0].1.len(), 2);
        assert_eq!(sink(&parts(encoded("a"), Expr::source("a"))), None);
        assert_eq!(sink(&parts(one("a"), Expr::source("b"))), None);
    }

    #[test]
    fn padding_takes_any_encoding_but_not_plus_one() {
        let zero = || Expr::Zero(Shape::from([2]));
        let cast = Expr::Stack(vec![zero(), Expr::source("a").encode(f32())]);
        assert_eq!(hoist(&cast).unwrap().steps, [f32()]);
        assert_eq!(hoist(&Expr::concat(0, vec![one("a"), zero()])), Err(Clash::ZeroPlus));
        // Zeros with one added are ones, not padding.
        let ones = zero().encode(Step::Add(1));
        assert!(matches!(
            hoist(&Expr::concat(0, vec![ones.clone(), Expr::source("a")])),
            Err(Clash::Differ(..))
        ));
        assert_eq!(hoist(&Expr::concat(0, vec![ones, one("a")])).unwrap().steps, [f32(), Step::Add(1)]);
        // Around both, it is what was asked for.
        let outside = Expr::concat(0, vec![Expr::source("a"), zero()]).encode(Step::Add(1));
        assert_eq!(hoist(&outside).unwrap().steps, [f32(), Step::Add(1)]);
    }
}

//! Movement on logical axes: an expression as affine maps between source and target elements.

use tensor::{Expr, Shape};

use crate::budget::Budget;
use crate::shapes;
use crate::sources::Sources;
use crate::why::{WHOLE, Why};

/// Which end of a part: [`SOURCE`] or [`TARGET`].
pub(crate) type Side = usize;
pub(crate) const SOURCE: Side = 0;
pub(crate) const TARGET: Side = 1;

/// `extent` steps of `stride[side]` elements along `axis[side]`, on both sides at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    pub(crate) extent: u64,
    pub(crate) axis: [usize; 2],
    pub(crate) stride: [u64; 2],
}

impl Factor {
    fn reach(&self, side: Side) -> u64 {
        (self.extent - 1) * self.stride[side]
    }
}

/// An affine map between a lattice of source elements and one of target elements; no source means zeros.
///
/// Both sides spell out their strides, which is what makes a merge free and every step symmetric.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Index of the entry.
    pub(crate) source: Option<usize>,
    pub(crate) origin: [Vec<u64>; 2],
    pub(crate) factors: Vec<Factor>,
}

/// An evaluated expression. The parts cover each element of `shape` exactly once.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shape: Shape,
    pub(crate) parts: Vec<Part>,
}

impl Part {
    fn whole(source: Option<usize>, shape: &Shape) -> Vec<Part> {
        if shape.contains(&0) {
            return vec![];
        }
        let factor = |(a, &extent)| Factor { extent, axis: [a, a], stride: [1, 1] };
        let factors = shape.iter().enumerate().filter(|(_, n)| **n > 1).map(factor).collect();
        vec![Part { source, origin: [vec![0; shape.len()], vec![0; shape.len()]], factors }]
    }

    /// Keeps steps `start..start + len` of factor `i`.
    pub(crate) fn take(&self, i: usize, start: u64, len: u64) -> Part {
        let (mut part, f) = (self.clone(), self.factors[i]);
        for side in [SOURCE, TARGET] {
            part.origin[side][f.axis[side]] += start * f.stride[side];
        }
        if len == 1 {
            part.factors.remove(i);
        } else {
            part.factors[i].extent = len;
        }
        part
    }

    /// Returns the index of the factor with the largest stride among those that `keep` admits.
    fn widest(&self, side: Side, keep: impl Fn(&Factor) -> bool) -> Option<usize> {
        (0..self.factors.len())
            .filter(|&i| keep(&self.factors[i]))
            .max_by_key(|&i| self.factors[i].stride[side])
    }

    fn reach(&self, side: Side, keep: impl Fn(&Factor) -> bool) -> u64 {
        self.factors.iter().filter(|f| keep(f)).map(|f| f.reach(side)).sum()
    }

    /// Keeps the elements with `lo <= target axis < hi`.
    fn clip(
        self,
        axis: usize,
        lo: u64,
        hi: u64,
        budget: &mut Budget,
        out: &mut Vec<Part>,
    ) -> Result<(), Why> {
        let on = |f: &Factor| f.axis[TARGET] == axis;
        let mut work = vec![self];
        while let Some(part) = work.pop() {
            budget.spend(1)?;
            let (at, reach) = (part.origin[TARGET][axis], part.reach(TARGET, on));
            if lo >= hi || at >= hi || at + reach < lo {
                continue;
            }
            let Some(i) = part.widest(TARGET, on).filter(|_| at < lo || at + reach >= hi) else {
                out.push(part);
                continue;
            };
            let f = part.factors[i];
            let lower = reach - f.reach(TARGET);
            let first =
                |base: u64, bound: u64| bound.saturating_sub(base).div_ceil(f.stride[TARGET]).min(f.extent);
            // Steps a..b straddle `lo`, b..c lie inside, c..d straddle `hi`; straddling steps are cut along the finer
            // factors.
            let (a, b, c, d) = (first(at + lower, lo), first(at, lo), first(at + lower, hi), first(at, hi));
            for x in (a..b.min(d)).chain(b.max(c)..d) {
                budget.spend(1)?;
                work.push(part.take(i, x, 1));
            }
            if b < c {
                out.push(part.take(i, b, c - b));
            }
        }
        Ok(())
    }

    /// Cuts until each factor along `axis` of `side` either steps over whole cells of `per` elements or
    /// stays inside one.
    pub(crate) fn align(
        self,
        side: Side,
        axis: usize,
        per: u64,
        budget: &mut Budget,
        out: &mut Vec<Part>,
    ) -> Result<(), Why> {
        if per == 1 || per == WHOLE {
            out.push(self);
            return Ok(());
        }
        let inner = |f: &Factor| f.axis[side] == axis && !f.stride[side].is_multiple_of(per);
        let mut work = vec![self];
        while let Some(part) = work.pop() {
            budget.spend(1)?;
            let (phase, reach) = (part.origin[side][axis] % per, part.reach(side, inner));
            let Some(i) = part.widest(side, inner).filter(|_| phase + reach >= per) else {
                out.push(part);
                continue;
            };
            let f = part.factors[i];
            let period = per / gcd(per, f.stride[side]);
            if f.extent > period {
                // Whole periods span whole cells at any phase.
                let (n, rest) = (f.extent / period, f.extent % period);
                if rest > 0 {
                    work.push(part.take(i, n * period, rest));
                }
                let mut body = part.take(i, 0, period);
                if n > 1 {
                    body.factors.insert(i, Factor { extent: n, stride: f.stride.map(|s| s * period), ..f });
                }
                work.push(body);
                continue;
            }
            // Steps 0..a stay in this cell, b.. start in a later one, a..b straddle.
            let (step, lower) = (f.stride[side], reach - f.reach(side));
            let a = (per - phase).saturating_sub(lower).div_ceil(step).min(f.extent);
            let b = (per - phase).div_ceil(step).min(f.extent);
            if b < f.extent {
                work.push(part.take(i, b, f.extent - b));
            }
            for x in a..b {
                budget.spend(1)?;
                work.push(part.take(i, x, 1));
            }
            if a > 0 {
                work.push(part.take(i, 0, a));
            }
        }
        Ok(())
    }
}

/// Evaluates `expr`, which must be pure movement: its steps are hoisted before.
///
/// # Errors
/// [`Why::Shape`], [`Why::Overflow`] or [`Why::TooFine`].
pub(crate) fn view(expr: &Expr, sources: &Sources, budget: &mut Budget) -> Result<View, Why> {
    let mut v = match expr {
        Expr::Source(name) => {
            let Some((i, entry)) = sources.find(name) else {
                return Err(Why::Shape(format!("there is no `{name}`")));
            };
            View { parts: Part::whole(Some(i), &entry.shape), shape: entry.shape.clone() }
        }
        Expr::Zero(shape) => View { parts: Part::whole(None, shape), shape: shape.clone() },
        Expr::Concat { axis, parts } => concat(*axis, parts, sources, budget)?,
        Expr::Stack(parts) => stack(parts, sources, budget)?,
        Expr::Slice { axis, range, of } => {
            // A rank's experts: do not evaluate what the slice throws away.
            if let (Expr::Stack(parts), 0) = (&**of, *axis)
                && let Some(kept) = kept(parts, range)
            {
                return stack(kept, sources, budget);
            }
            let v = view(of, sources, budget)?;
            let shape = shapes::slice(&v.shape, *axis, range)?;
            let mut parts = vec![];
            for part in v.parts {
                part.clip(*axis, range.start, range.end, budget, &mut parts)?;
            }
            for part in &mut parts {
                part.origin[TARGET][*axis] -= range.start;
            }
            View { shape, parts }
        }
        Expr::Split { axis, inner, of } => split(*axis, *inner, view(of, sources, budget)?, budget)?,
        Expr::Merge { axis, of } => merge(*axis, view(of, sources, budget)?)?,
        Expr::Permute { axes, of } => permute(axes, view(of, sources, budget)?)?,
        Expr::Encode { of, .. } => view(of, sources, budget)?,
    };
    v.shape = shapes::fits(v.shape)?;
    budget.spend(v.parts.len() as u64 + 1)?;
    Ok(v)
}

fn kept<'e>(parts: &'e [Expr], range: &std::ops::Range<u64>) -> Option<&'e [Expr]> {
    let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
    parts.get(start..end).filter(|kept| !kept.is_empty())
}

fn concat(axis: usize, parts: &[Expr], sources: &Sources, budget: &mut Budget) -> Result<View, Why> {
    let mut all: Option<View> = None;
    for part in parts {
        let mut next = view(part, sources, budget)?;
        let Some(so_far) = &mut all else {
            next.shape = shapes::concat_first(next.shape, axis)?;
            all = Some(next);
            continue;
        };
        let shape = shapes::concat(&so_far.shape, &next.shape, axis)?;
        for p in &mut next.parts {
            p.origin[TARGET][axis] += so_far.shape[axis];
        }
        so_far.shape = shape;
        so_far.parts.append(&mut next.parts);
    }
    all.ok_or_else(|| Why::Shape("concat of nothing".into()))
}

fn stack(parts: &[Expr], sources: &Sources, budget: &mut Budget) -> Result<View, Why> {
    let (mut first, mut all) = (None, vec![]);
    for (i, part) in parts.iter().enumerate() {
        let mut next = view(part, sources, budget)?;
        shapes::stackable(first.get_or_insert_with(|| next.shape.clone()), &next.shape)?;
        for p in &mut next.parts {
            p.origin[TARGET].insert(0, i as u64);
            for f in &mut p.factors {
                f.axis[TARGET] += 1;
            }
        }
        all.append(&mut next.parts);
    }
    Ok(View { shape: shapes::stack(first, parts.len())?, parts: all })
}

fn split(axis: usize, inner: u64, v: View, budget: &mut Budget) -> Result<View, Why> {
    let shape = shapes::split(&v.shape, axis, inner)?;
    let mut parts = vec![];
    for p in v.parts {
        p.align(TARGET, axis, inner, budget, &mut parts)?;
    }
    for p in &mut parts {
        let at = &mut p.origin[TARGET];
        at.insert(axis + 1, at[axis] % inner);
        at[axis] /= inner;
        for f in &mut p.factors {
            let (a, stride) = (&mut f.axis[TARGET], &mut f.stride[TARGET]);
            if *a == axis && stride.is_multiple_of(inner) {
                *stride /= inner;
            } else if *a >= axis {
                *a += 1;
            }
        }
    }
    Ok(View { shape, parts })
}

fn merge(axis: usize, mut v: View) -> Result<View, Why> {
    let shape = shapes::merge(&v.shape, axis)?;
    let inner = v.shape[axis + 1];
    for p in &mut v.parts {
        let low = p.origin[TARGET].remove(axis + 1);
        p.origin[TARGET][axis] = p.origin[TARGET][axis] * inner + low;
        for f in &mut p.factors {
            if f.axis[TARGET] == axis {
                f.stride[TARGET] *= inner;
            } else if f.axis[TARGET] > axis {
                f.axis[TARGET] -= 1;
            }
        }
    }
    Ok(View { shape, parts: v.parts })
}

fn permute(axes: &[usize], mut v: View) -> Result<View, Why> {
    let shape = shapes::permute(&v.shape, axes)?;
    let mut place = vec![0; axes.len()];
    for (to, &from) in axes.iter().enumerate() {
        place[from] = to;
    }
    for p in &mut v.parts {
        p.origin[TARGET] = axes.iter().map(|&a| p.origin[TARGET][a]).collect();
        for f in &mut p.factors {
            f.axis[TARGET] = place[f.axis[TARGET]];
        }
    }
    Ok(View { shape, parts: v.parts })
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

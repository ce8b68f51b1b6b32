//! The way back: given how parameters are made from entries, how the entries are made from the parameters.

use std::collections::HashMap;
use std::ops::Range;

use crate::{Expr, Shape, Step};

/// A tensor that an expression makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// Its logical shape.
    pub shape: Shape,
    /// How it is made.
    pub expr: Expr,
}

/// Why there is no way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// The tensor that cannot be taken apart, or the source that cannot be put together.
    pub name: String,
    /// What is in the way.
    pub why: &'static str,
}

/// Every source of `made`, in order of appearance, as an expression over what is made from it.
///
/// Movement of one source is undone, as are slices that together are the whole of what they cut, stacks, and
/// additions. A source that is cut and not used whole comes back without what was cut off.
///
/// # Errors
/// [`OneWay`] for padding, for a change of encoding, for slices with gaps, and for a source that is used twice.
pub fn invert(made: &[Made]) -> Result<Vec<Made>, OneWay> {
    invert_knowing(made, &|_| None)
}

/// The same, where `find` knows the shapes of sources: then tensors that were joined come apart too.
///
/// # Errors
/// As [`invert`].
pub fn invert_knowing(made: &[Made], find: &dyn Fn(&str) -> Option<Shape>) -> Result<Vec<Made>, OneWay> {
    take_apart(made, find)?.alone()
}

/// What is known of the sources of expressions, of which several may hold the same part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inverse {
    /// Every source, in order of appearance, as an expression over what is made from it.
    pub sources: Vec<Made>,
    /// What is made of parts that others are made of too.
    pub copies: Vec<Copies>,
    /// What must be zero: the names are of what is made.
    pub padding: Vec<Made>,
}

impl Inverse {
    /// The sources, if all of what is made is a part of one, and no two are the same part.
    ///
    /// # Errors
    /// [`OneWay`] for the first that is not so.
    pub fn alone(self) -> Result<Vec<Made>, OneWay> {
        let one_way = |name: &str, why| Err(OneWay { name: name.to_owned(), why });
        match (self.copies.first(), self.padding.first()) {
            (Some(copy), _) if copy.whole => one_way(&copy.of, "is used whole more than once"),
            (Some(copy), _) => one_way(&copy.of, "is cut with gaps or overlaps"),
            (None, Some(padding)) => one_way(&padding.name, "is padding"),
            (None, None) => Ok(self.sources),
        }
    }
}

/// Two expressions over what is made that are the same part of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The source, or one of the tensors that have parts of it.
    pub of: String,
    /// Whether it is the whole source.
    pub whole: bool,
    /// The one that the source is made of.
    pub first: Made,
    /// The other.
    pub other: Made,
}

/// The way back where several tensors hold the same part of a source, as ranks do, and zeros beside it.
///
/// # Errors
/// [`OneWay`] for a change of encoding, for slices with gaps, and for axes of unknown extents.
pub fn take_apart(made: &[Made], find: &dyn Fn(&str) -> Option<Shape>) -> Result<Inverse, OneWay> {
    let mut open: Vec<Undone<'_>> = made
        .iter()
        .map(|m| Undone { name: &m.name, expr: Expr::source(&m.name), shape: m.shape.to_vec(), of: &m.expr })
        .collect();
    let mut inverse = Inverse::default();
    let mut found_names: HashMap<String, usize> = HashMap::new();
    let mut cuts: Vec<Cut<'_>> = Vec::new();
    loop {
        // Parts of a stack are new work, so the list may grow; the first goes first.
        let mut next = 0;
        while next < open.len() {
            match open[next].clone().step(&mut open, find)? {
                Stop::Source(found) => match found_names.get(&found.name) {
                    Some(at) => {
                        let of = found.name.clone();
                        let first = inverse.sources[*at].clone();
                        inverse.copies.push(Copies { of, whole: true, first, other: found });
                    }
                    None => {
                        found_names.insert(found.name.clone(), inverse.sources.len());
                        inverse.sources.push(found);
                    }
                },
                Stop::Slice(_, range, _) if range.is_empty() => {}
                Stop::Slice(axis, range, undone) => cuts.push(Cut { axis, range, undone }),
                Stop::Padding(zeros) => inverse.padding.push(zeros),
                Stop::Parts => {}
            }
            next += 1;
        }
        open.clear();
        let Some(first) = cuts.first() else { return Ok(inverse) };
        let (axis, of) = (first.axis, first.undone.of);
        let (mut parts, others): (Vec<_>, Vec<_>) =
            cuts.drain(..).partition(|c| c.axis == axis && c.undone.of == of);
        cuts = others;
        // Stable: of copies, the first that appeared is the one.
        parts.sort_by_key(|c| (c.range.start, c.range.end));
        open.push(joined(axis, parts, &mut inverse.copies)?);
    }
}

/// A tensor on its way back to its source.
#[derive(Clone)]
struct Undone<'a> {
    /// What was made.
    name: &'a str,
    /// What has been undone so far.
    expr: Expr,
    /// The shape of that.
    shape: Vec<u64>,
    /// What is still to be undone.
    of: &'a Expr,
}

/// A part of a whole whose other parts come from other tensors.
struct Cut<'a> {
    axis: usize,
    range: Range<u64>,
    /// `of` is the whole.
    undone: Undone<'a>,
}

enum Stop<'a> {
    Source(Made),
    Slice(usize, Range<u64>, Undone<'a>),
    /// It is made of nothing.
    Padding(Made),
    /// It went on in several.
    Parts,
}

impl<'a> Undone<'a> {
    /// Undoes what can be undone without other tensors.
    fn step(
        self,
        open: &mut Vec<Undone<'a>>,
        find: &dyn Fn(&str) -> Option<Shape>,
    ) -> Result<Stop<'a>, OneWay> {
        let Undone { name, mut expr, mut shape, mut of } = self;
        loop {
            let stuck = |why| Err(OneWay { name: name.to_owned(), why });
            of = match of {
                Expr::Source(source) => {
                    return Ok(Stop::Source(Made { name: source.clone(), shape: shape.into(), expr }));
                }
                Expr::Slice { axis, range, of } => {
                    let undone = Undone { name, expr, shape, of };
                    return Ok(Stop::Slice(*axis, range.clone(), undone));
                }
                Expr::Stack(parts) => {
                    for (part, i) in parts.iter().zip(0u64..) {
                        let expr = expr.clone().slice(0, i..i + 1).merge(0);
                        open.push(Undone { name, expr, shape: shape[1..].to_vec(), of: part });
                    }
                    return Ok(Stop::Parts);
                }
                Expr::Merge { axis, of } => {
                    let known = extents(of, shape.len() + 1, find);
                    let inner = known[axis + 1].or(known[*axis].map(|outer| shape[*axis] / outer.max(1)));
                    let Some(inner) = inner.filter(|n| *n > 0) else {
                        return stuck("merges axes of unknown extents");
                    };
                    shape[*axis] /= inner;
                    shape.insert(axis + 1, inner);
                    expr = expr.split(*axis, inner);
                    of
                }
                Expr::Split { axis, of, .. } => {
                    let inner = shape.remove(axis + 1);
                    shape[*axis] *= inner;
                    expr = expr.merge(*axis);
                    of
                }
                Expr::Permute { axes, of } => {
                    let mut back = vec![0; axes.len()];
                    for (to, from) in axes.iter().enumerate() {
                        back[*from] = to;
                    }
                    shape = back.iter().map(|axis| shape[*axis]).collect();
                    expr = expr.permute(&back);
                    of
                }
                Expr::Encode { step: Step::Add(n), of } => {
                    expr = expr.encode(Step::Add(-n));
                    of
                }
                Expr::Encode { step: Step::Apply(function), of } => {
                    expr = expr.encode(Step::Apply(function.inverse()));
                    of
                }
                Expr::Encode { step: Step::To(_), .. } => return stuck("changes the encoding"),
                Expr::Encode { step: Step::By(_), .. } => return stuck("is changed by a stage"),
                Expr::Concat { axis, parts } => {
                    let mut start = 0;
                    for part in parts {
                        let Some(n) = extents(part, shape.len(), find)[*axis] else {
                            return stuck("joins tensors of unknown extents");
                        };
                        let mut shape = shape.clone();
                        shape[*axis] = n;
                        let expr = expr.clone().slice(*axis, start..start + n);
                        open.push(Undone { name, expr, shape, of: part });
                        start += n;
                    }
                    return Ok(Stop::Parts);
                }
                Expr::Zero(_) => {
                    return Ok(Stop::Padding(Made { name: name.to_owned(), shape: shape.into(), expr }));
                }
            };
        }
    }
}

/// The whole that `parts`, sorted, are slices of; of equal slices the first.
fn joined<'a>(axis: usize, parts: Vec<Cut<'a>>, copies: &mut Vec<Copies>) -> Result<Undone<'a>, OneWay> {
    let mut whole: Option<Undone<'_>> = None;
    let mut exprs: Vec<Made> = Vec::with_capacity(parts.len());
    let mut last = 0..0;
    for Cut { range, undone, .. } in parts {
        let name = undone.name.to_owned();
        let made = Made { name, shape: undone.shape.clone().into(), expr: undone.expr.clone() };
        match exprs.last() {
            Some(first) if range == last => {
                let (of, first) = (made.name.clone(), first.clone());
                copies.push(Copies { of, whole: false, first, other: made });
                continue;
            }
            _ if range.start != last.end => {
                return Err(OneWay { name: made.name, why: "is cut with gaps or overlaps" });
            }
            _ => {}
        }
        last = range;
        exprs.push(made);
        whole.get_or_insert(undone);
    }
    let Some(mut whole) = whole else {
        return Err(OneWay { name: String::new(), why: "has no parts" });
    };
    whole.shape[axis] = last.end;
    if exprs.len() > 1 {
        whole.expr = Expr::concat(axis, exprs.into_iter().map(|made| made.expr).collect());
    }
    Ok(whole)
}

/// The extents of `expr`, which has `rank` axes, as far as it or `find` says them.
fn extents(expr: &Expr, rank: usize, find: &dyn Fn(&str) -> Option<Shape>) -> Vec<Option<u64>> {
    let extents = |expr: &Expr, rank: usize| extents(expr, rank, find);
    match expr {
        Expr::Source(name) => match find(name) {
            Some(shape) if shape.len() == rank => shape.iter().map(|n| Some(*n)).collect(),
            _ => vec![None; rank],
        },
        Expr::Zero(shape) => shape.iter().map(|n| Some(*n)).collect(),
        Expr::Concat { axis, parts } => {
            let mut all = vec![None; rank];
            let parts: Vec<_> = parts.iter().map(|p| extents(p, rank)).collect();
            for (i, n) in all.iter_mut().enumerate() {
                *n = if i == *axis {
                    parts.iter().map(|p| p[i]).sum()
                } else {
                    parts.iter().find_map(|p| p[i])
                };
            }
            all
        }
        Expr::Stack(parts) => {
            let mut all = parts.first().map_or(vec![None; rank - 1], |p| extents(p, rank - 1));
            all.insert(0, Some(parts.len() as u64));
            all
        }
        Expr::Slice { axis, range, of } => {
            let mut all = extents(of, rank);
            all[*axis] = Some(range.end - range.start);
            all
        }
        Expr::Split { axis, inner, of } => {
            let mut all = extents(of, rank - 1);
            all[*axis] = all[*axis].map(|n| n / inner);
            all.insert(axis + 1, Some(*inner));
            all
        }
        Expr::Merge { axis, of } => {
            let mut all = extents(of, rank + 1);
            let inner = all.remove(axis + 1);
            all[*axis] = all[*axis].zip(inner).map(|(a, b)| a * b);
            all
        }
        Expr::Permute { axes, of } => {
            let all = extents(of, rank);
            axes.iter().map(|axis| all[*axis]).collect()
        }
        Expr::Encode { of, .. } => extents(of, rank),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, shape: &[u64], expr: Expr) -> Made {
        Made { name: name.into(), shape: shape.to_vec().into(), expr }
    }
    fn s(name: &str) -> Expr {
        Expr::source(name)
    }

    #[test]
    fn rotary_rows_go_back() {
        // 4 heads of 8 rows.
        let q = s("attn_q").split(0, 8).split(1, 2).permute(&[0, 2, 1, 3]).merge(1).merge(0);
        let back = invert(&[made("q", &[32, 5], q)]).unwrap();
        let want = s("q").split(0, 8).split(1, 4).permute(&[0, 2, 1, 3]).merge(1).merge(0);
        assert_eq!(back, [made("attn_q", &[32, 5], want)]);
        // And that goes back to where it came from.
        let again = invert(&back).unwrap();
        let q = s("attn_q").split(0, 8).split(1, 2).permute(&[0, 2, 1, 3]).merge(1).merge(0);
        assert_eq!(again, [made("q", &[32, 5], q)]);
    }

    #[test]
    fn slices_of_one_tensor_are_put_together() {
        let third = |i: u64| s("c_attn").slice(1, 4 * i..4 * (i + 1)).transpose();
        // In any order.
        let parts = [
            made("q", &[4, 4], third(0)),
            made("v", &[4, 4], third(2)),
            made("norm", &[4], s("ln").encode(Step::Add(1))),
            made("k", &[4, 4], third(1)),
        ];
        let t = |n: &str| s(n).transpose();
        let whole = Expr::concat(1, vec![t("q"), t("k"), t("v")]);
        let ln = s("norm").encode(Step::Add(-1));
        assert_eq!(invert(&parts).unwrap(), [made("ln", &[4], ln), made("c_attn", &[4, 12], whole)]);
    }

    #[test]
    fn a_stack_comes_apart() {
        let experts = Expr::Stack(vec![s("e0").transpose(), s("e1").transpose()]);
        let part = |i: u64| s("experts").slice(0, i..i + 1).merge(0).transpose();
        let back = invert(&[made("experts", &[2, 3, 5], experts)]).unwrap();
        assert_eq!(back, [made("e0", &[5, 3], part(0)), made("e1", &[5, 3], part(1))]);
    }

    #[test]
    fn what_was_joined_comes_apart_if_the_parts_are_known() {
        let qkv = || made("qkv", &[8, 3], Expr::concat(0, vec![s("q"), s("k").transpose()]));
        assert_eq!(invert(&[qkv()]).unwrap_err().why, "joins tensors of unknown extents");
        let shape = |name: &str| Some(if name == "q" { [6, 3].into() } else { [3, 2].into() });
        let back = invert_knowing(&[qkv()], &shape).unwrap();
        let (q, k) = (s("qkv").slice(0, 0..6), s("qkv").slice(0, 6..8).transpose());
        assert_eq!(back, [made("q", &[6, 3], q), made("k", &[3, 2], k)]);
        // And together again.
        assert_eq!(invert(&back).unwrap(), [qkv()]);
    }

    #[test]
    fn what_several_hold_is_told_apart() {
        // Two ranks have a half of `w` each, a head of `k` that is the same, and all of `norm`; the second is padded.
        let k = || s("k").slice(0, 0..2);
        let rank = |r: u64| {
            let w = s("w").slice(0, 2 * r..(2 * r + 2).min(3));
            let w = if r == 1 { Expr::concat(0, vec![w, Expr::Zero([1, 5].into())]) } else { w };
            [
                made(&format!("{r}.w"), &[2, 5], w),
                made(&format!("{r}.qk"), &[3, 5], Expr::concat(0, vec![s("q").slice(0, r..r + 1), k()])),
                made(&format!("{r}.norm"), &[5], s("norm")),
            ]
        };
        let ranks: Vec<Made> = (0..2).flat_map(rank).collect();
        let found = take_apart(&ranks, &|_| None).unwrap();
        let named = |name: &str| found.sources.iter().find(|m| m.name == name).unwrap();
        let both = |a: Expr, b: Expr| Expr::concat(0, vec![a, b]);
        assert_eq!(named("w").expr, both(s("0.w"), s("1.w").slice(0, 0..1)));
        assert_eq!(named("w").shape, [3, 5].into());
        assert_eq!(named("q").expr, both(s("0.qk").slice(0, 0..1), s("1.qk").slice(0, 0..1)));
        assert_eq!(named("k").expr, s("0.qk").slice(0, 1..3));
        assert_eq!(named("norm").expr, s("0.norm"));
        assert_eq!(found.padding, [made("1.w", &[1, 5], s("1.w").slice(0, 1..2))]);
        let copies: Vec<(Expr, Expr)> =
            found.copies.iter().map(|c| (c.first.expr.clone(), c.other.expr.clone())).collect();
        let head = |r: u64| s(&format!("{r}.qk")).slice(0, 1..3);
        assert_eq!(copies, [(s("0.norm"), s("1.norm")), (head(0), head(1))]);
    }

    #[test]
    fn what_loses_something_has_no_way_back() {
        let why = |parts: &[Made]| invert(parts).unwrap_err().why;
        let a = || made("a", &[2], s("t").slice(0, 0..2));
        let far = made("b", &[2], s("t").slice(0, 3..5));
        let over = made("b", &[2], s("t").slice(0, 1..3));
        assert_eq!(why(&[a(), far]), "is cut with gaps or overlaps");
        assert_eq!(why(&[a(), over]), "is cut with gaps or overlaps");
        assert_eq!(why(&[made("a", &[2], s("t")), made("b", &[2], s("t"))]), "is used whole more than once");
        assert_eq!(why(&[made("a", &[2], Expr::Zero([2].into()))]), "is padding");
        let merged = s("t").permute(&[1, 0]).merge(0);
        assert_eq!(why(&[made("a", &[6], merged)]), "merges axes of unknown extents");
    }
}

//! Entries of which no parameter uses some part.

use std::collections::BTreeMap;

use tensor::{DropRule, Expr};

use crate::problem::Problem;
use crate::resolve::ResolvedParam;
use crate::shapes::{shape_of, sliced};
use crate::sources::Sources;

/// A problem for each entry that parameters use in part, by counting elements; of one that may be left, a line of what is.
///
/// An entry is used whole as soon as one parameter needs all of it. Parameters that slice one entry are counted together,
/// so slices that overlap are not told apart from slices that cover it.
pub(crate) fn partly_used(
    params: &[ResolvedParam],
    sources: &Sources<'_>,
    drops: &[DropRule],
) -> (Vec<Problem>, Vec<(String, String)>) {
    // `None`: used whole.
    let mut used: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    for param in params.iter().filter(|p| p.tied_to.is_none()) {
        each_use(&param.expr, sources, &mut |name, part| {
            let sum = used.entry(name).or_insert(Some(0));
            *sum = sum.zip(part).map(|(sum, part)| sum.saturating_add(part));
        });
    }
    let (mut problems, mut dropped) = (vec![], vec![]);
    for (entry, used) in used {
        let (Some(used), Some(shape)) = (used, sources.shape(entry)) else { continue };
        if shape.elements().is_none_or(|all| used >= all) {
            continue;
        }
        match drops.iter().find(|drop| drop.pattern.matches(entry)) {
            Some(drop) => dropped.push((entry.to_owned(), drop.why.clone())),
            None => problems.push(Problem::PartlyUsed { entry: entry.to_owned(), shape, used }),
        }
    }
    (problems, dropped)
}

/// Each use of a source in `expr`: how many of its elements, or `None`, all.
fn each_use<'e>(expr: &'e Expr, sources: &Sources<'_>, each: &mut dyn FnMut(&'e str, Option<u64>)) {
    match expr {
        Expr::Concat { parts, .. } | Expr::Stack(parts) => {
            for part in parts {
                each_use(part, sources, each);
            }
        }
        Expr::Split { of, .. }
        | Expr::Merge { of, .. }
        | Expr::Permute { of, .. }
        | Expr::Encode { of, .. } => each_use(of, sources, each),
        Expr::Source(_) | Expr::Zero(_) | Expr::Slice { .. } => {
            let mut names = vec![];
            expr.for_each_source(&mut |name| names.push(name));
            // Slices of what was joined are not followed.
            let part = match names[..] {
                [_] if sliced(expr) => {
                    shape_of(expr, &|name| sources.shape(name)).ok().and_then(|shape| shape.elements())
                }
                _ => None,
            };
            for name in names {
                each(name, part);
            }
        }
    }
}

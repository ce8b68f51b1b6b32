//! Entries of which no parameter uses some part.

use std::collections::BTreeMap;

use crate::problem::Problem;
use crate::resolve::ResolvedParam;
use crate::shapes::sliced;
use crate::sources::Sources;

/// A problem for each entry that parameters use in part, by counting elements.
///
/// An entry is used whole as soon as one parameter needs all of it. Parameters that slice one entry are counted together,
/// so slices that overlap are not told apart from slices that cover it.
pub(crate) fn partly_used(params: &[ResolvedParam], sources: &Sources<'_>) -> Vec<Problem> {
    // `None`: used whole.
    let mut used: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    for param in params.iter().filter(|p| p.tied_to.is_none()) {
        let mut names = vec![];
        param.expr.for_each_source(&mut |name| names.push(name));
        let part = match names[..] {
            [_] if sliced(&param.expr) => param.shape.elements(),
            _ => None,
        };
        for name in names {
            let sum = used.entry(name).or_insert(Some(0));
            *sum = sum.zip(part).map(|(sum, part)| sum.saturating_add(part));
        }
    }
    let problem = |(entry, used): (&str, Option<u64>)| {
        let (used, shape) = (used?, sources.shape(entry)?);
        let partly = shape.elements().is_some_and(|all| used < all);
        partly.then(|| Problem::PartlyUsed { entry: entry.to_owned(), shape, used })
    };
    used.into_iter().filter_map(problem).collect()
}

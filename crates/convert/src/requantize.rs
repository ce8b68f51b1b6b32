//! Weights that are quantised already and would be quantised again: that loses twice, and is refused unless allowed.

use std::sync::Arc;

use plan::{Codecs as _, Fidelity, PlannedParam};
use tensor::{Pattern, Scheme};

use crate::Error;

/// Weights that would be quantised again, alike but for numbers in their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requantized {
    /// Their name, with `{n}` for numbers if they are several.
    pub name: String,
    /// How many.
    pub count: usize,
    /// How they are quantised.
    pub from: String,
    /// How they would be.
    pub to: String,
}

/// Rejects conversions that quantise quantised weights again. Weights may be moved, decoded to plain floats or repacked
/// exactly.
pub(crate) fn check(params: &[&PlannedParam]) -> Result<(), Error> {
    let own = params.iter().filter(|p| p.tied_to.is_none());
    refuse(own.filter_map(|param| Some((&*param.name, &*again(param)?.name, &*param.scheme.name))))
}

/// Rejects `weights`, if there are any: the name of each, how it is quantised, and how it would be.
pub(crate) fn refuse<'a>(weights: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Result<(), Error> {
    let mut groups: Vec<(String, Requantized)> = vec![];
    for (name, from, to) in weights {
        let pattern = Pattern::of(name).to_string();
        let alike = |g: &&mut (String, Requantized)| g.0 == pattern && g.1.from == from && g.1.to == to;
        match groups.iter_mut().find(alike) {
            Some((pattern, group)) => {
                group.name.clone_from(pattern);
                group.count += 1;
            }
            None => {
                let (name, from) = (name.to_owned(), from.to_owned());
                groups.push((pattern, Requantized { name, count: 1, from, to: to.to_owned() }));
            }
        }
    }
    if groups.is_empty() {
        return Ok(());
    }
    Err(Error::Requantize { weights: groups.into_iter().map(|(_, group)| group).collect() })
}

/// The scheme that a parameter is quantised in, if it would be quantised in another, with loss.
fn again(param: &PlannedParam) -> Option<&Arc<Scheme>> {
    let lossy = matches!(param.fidelity, Fidelity::Lossy(_));
    // Parts with one scale each are merged into one: vLLM's layout asks for it, and vLLM itself would do it.
    let merged = || load::Codecs.by_row(&param.scheme).as_ref() == Some(&param.moved);
    if !lossy || param.scheme.dtype().is_some() || merged() {
        return None;
    }
    // The same codes with other scales are not quantised again.
    let again = |from: &&Arc<Scheme>| quant::recasts(from, &param.scheme).is_none();
    param.stored().find(|from| from.dtype().is_none() && **from != param.scheme && again(from))
}

/// All of them, with how many there are.
pub(crate) fn listed(weights: &[Requantized]) -> String {
    let line = |w: &Requantized| {
        let count = if w.count == 1 { String::new() } else { format!("{} × ", w.count) };
        format!("\n  {count}`{}` from {} to {}", w.name, w.from, w.to)
    };
    weights.iter().map(line).collect()
}

//! An adapter in the parameters of a model.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Model, better_fit};
use plan::Resolved;
use tensor::{Expr, Shape, nearest};

use crate::low_rank::{Factors, LowRank};
use crate::origin::Origin;
use crate::pair::Pair;
use crate::{Adapter, Error, Problem, Problems};

/// An adapter, and the parameters of a model that it changes, by canonical name.
#[derive(Debug)]
pub struct Fitted {
    adapter: Arc<Adapter>,
    changes: HashMap<String, Change>,
}

/// The change of one canonical parameter.
#[derive(Debug)]
struct Change {
    /// Over the tensors that the adapter changes.
    origin: Origin,
    /// For each source, its pair, and whether the tensor is stored `[in, out]`.
    pairs: Vec<(usize, bool)>,
}

/// Where an element of a change comes from: the pair, the row of `B`, the column of `A`.
type Place = (usize, usize, usize);

impl Fitted {
    pub(crate) fn of(adapter: &Arc<Adapter>, model: &Model, resolved: &Resolved) -> Result<Fitted, Error> {
        let names = || adapter.pairs().iter().map(|pair| pair.name.as_str());
        let mut problems = vec![];
        let family = model.family.name();
        let found = match adapter.architecture() {
            Some(Ok(own)) if *own != family => Some((*own).to_owned()),
            Some(Err(said)) => Some(said.clone()),
            _ => None,
        };
        problems.extend(found.map(|found| Problem::Architecture { found, wanted: family.to_owned() }));
        let misfit = |problems, fit| Error::Misfit { path: adapter.path().to_owned(), problems, fit };
        let bindings = model.bindings_in(adapter.dialect(), names()).map_err(|ambiguous| {
            let (name, why) = (String::new(), ambiguous.to_string());
            misfit(Problems::one(Problem::NoPlace { name, why }), None)
        })?;
        let by_name: HashMap<&str, usize> = names().enumerate().map(|(i, name)| (name, i)).collect();
        let (mut changes, mut used) = (HashMap::new(), vec![false; adapter.pairs().len()]);
        let mut known = vec![];
        for binding in &bindings.bindings {
            let mut sources = vec![];
            binding.expr.for_each_source(&mut |name| sources.push(name));
            known.extend(sources.iter().copied());
            let Some(first) = sources.iter().find_map(|name| by_name.get(name)) else { continue };
            let of = |name: &str| by_name.get(name).map(|i| (*i, &adapter.pairs()[*i]));
            sources.iter().filter_map(|name| by_name.get(name)).for_each(|i| used[*i] = true);
            let name = &adapter.pairs()[*first].name;
            let change = is_apart(name, &binding.name, resolved)
                .and_then(|()| Change::of(name, &binding.name, &binding.expr, &binding.shape, &of));
            match change {
                Ok(change) => {
                    changes.insert(binding.name.clone(), change);
                }
                Err(problem) => problems.push(*problem),
            }
        }
        for (pair, _) in adapter.pairs().iter().zip(&used).filter(|(_, used)| !**used) {
            let nearest = nearest(&pair.name, known.iter().copied()).map(str::to_owned);
            problems.push(Problem::Unknown { name: pair.name.clone(), nearest });
        }
        let fit = used
            .iter()
            .all(|used| !used)
            .then(|| better_fit(names(), Some((family, adapter.dialect()))).map(Box::new));
        Problems::none(problems).map_err(|problems| misfit(problems, fit.flatten()))?;
        Ok(Fitted { adapter: Arc::clone(adapter), changes })
    }

    /// The adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// The canonical parameters that it changes.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.changes.keys().map(String::as_str)
    }

    /// Whether it changes the canonical parameter called `name`.
    pub fn changes(&self, name: &str) -> bool {
        self.changes.contains_key(name)
    }

    /// Returns the change of a tensor that `expr` makes of canonical parameters, whose shapes `find` knows; `None` if it does
    /// not change.
    ///
    /// # Errors
    /// If the tensor is not a matrix, or does not hold the rows and columns of what is changed as rows and columns.
    pub fn low_rank(
        &self,
        expr: &Expr,
        find: &dyn Fn(&str) -> Option<Shape>,
    ) -> Result<Option<LowRank>, Error> {
        let mut changed = None;
        expr.for_each_source(&mut |name| {
            if changed.is_none() && self.changes(name) {
                changed = Some(name);
            }
        });
        let Some(param) = changed else { return Ok(None) };
        let refuse = |why: String| Error::Misfit {
            path: self.adapter.path().to_owned(),
            problems: Problems::one(Problem::NoPlace { name: param.to_owned(), why }),
            fit: None,
        };
        let origin =
            Origin::of(expr, find).map_err(|_| refuse("the layout makes no matrix of it".to_owned()))?;
        let [rows, columns] = origin.shape[..] else {
            return Err(refuse(format!("it is held as {}, and a change is a matrix", origin.shape)));
        };
        let changes: Vec<Option<&Change>> =
            origin.sources.iter().map(|name| self.changes.get(name)).collect();
        let place = |row: u64, column: u64| {
            let mut at = vec![row, column];
            let source = origin.find(&mut at)?;
            changes[source]?.find(at)
        };
        let pairs = self.adapter.pairs();
        let upright = placed(pairs, rows, columns, &place);
        let found = upright.or_else(|()| {
            let turned = placed(pairs, columns, rows, &|row, column| place(column, row))?;
            Ok(turned.map(|turned| LowRank { turned: true, ..turned }))
        });
        found.map_err(|()| refuse("its rows and columns are held in another way".to_owned()))
    }
}

/// The rows and columns of a matrix whose elements come from `place`; `None` if nothing changes.
fn placed(
    pairs: &[Pair],
    rows: u64,
    columns: u64,
    place: &dyn Fn(u64, u64) -> Option<Place>,
) -> Result<Option<LowRank>, ()> {
    let last = columns.saturating_sub(1);
    let mut out = LowRank {
        columns: usize::try_from(columns).map_err(|_| ())?,
        rows: vec![],
        factors: vec![],
        turned: false,
    };
    // The pair of each of the factors, with its first and last column.
    let mut known: Vec<(usize, [usize; 2])> = vec![];
    for row in 0..rows {
        let ends = (place(row, 0), place(row, last));
        let ((pair, at, first), (other, same, end)) = match ends {
            (Some(first), Some(end)) => (first, end),
            (None, None) => {
                out.rows.push(None);
                continue;
            }
            _ => return Err(()),
        };
        if pair != other || at != same {
            return Err(());
        }
        let factors = match known.iter().position(|known| *known == (pair, [first, end])) {
            Some(factors) => factors,
            None => {
                let column = |column| match place(row, column) {
                    Some((own, own_row, of)) if own == pair && own_row == at => Ok(of),
                    _ => Err(()),
                };
                let of = (0..columns).map(column).collect::<Result<Vec<usize>, ()>>()?;
                out.factors.push(Factors::of(&pairs[pair], &of));
                known.push((pair, [first, end]));
                known.len() - 1
            }
        };
        out.rows.push(Some((factors, at)));
    }
    Ok((!out.factors.is_empty()).then_some(out))
}

impl Change {
    /// The change of the parameter `param`, which `expr` makes in the shape `wanted` of the tensors of pairs.
    fn of<'p>(
        name: &str,
        param: &str,
        expr: &Expr,
        wanted: &Shape,
        pair: &dyn Fn(&str) -> Option<(usize, &'p Pair)>,
    ) -> Result<Change, Box<Problem>> {
        let no_place = |why: String| Box::new(Problem::NoPlace { name: name.to_owned(), why });
        if wanted.len() != 2 {
            return Err(no_place(format!("`{param}` is {wanted}, and only matrices are changed")));
        }
        let (mut partly, mut replaces) = (None, false);
        expr.for_each_source(&mut |source| match pair(source) {
            Some((_, pair)) => replaces |= pair.base.is_some(),
            None => partly = Some(source),
        });
        if let Some(source) = partly {
            return Err(no_place(format!("`{param}` is made of `{source}` too, which the adapter leaves")));
        }
        // What replaces a matrix is upright.
        for turned in [false, true].into_iter().filter(|turned| !turned || !replaces) {
            let find = |name: &str| {
                let (_, pair) = pair(name)?;
                let (rows, columns) = (pair.outputs as u64, pair.inputs as u64);
                Some(Shape::from(if turned { [columns, rows] } else { [rows, columns] }))
            };
            let Ok(origin) = Origin::of(expr, &find) else { continue };
            if origin.shape == *wanted && is_turned(&origin) == Some(turned) {
                let pairs = origin.sources.iter().filter_map(|name| Some((pair(name)?.0, turned))).collect();
                return Ok(Change { origin, pairs });
            }
        }
        let found = pair(name).map_or_else(
            || Shape::from([]),
            |(_, pair)| Shape::from([pair.outputs as u64, pair.inputs as u64]),
        );
        let (name, param, wanted) = (name.to_owned(), param.to_owned(), wanted.clone());
        Err(Box::new(Problem::Shape { name, found, param, wanted }))
    }

    /// Where the element at `place` of the parameter comes from.
    fn find(&self, mut place: Vec<u64>) -> Option<Place> {
        let (pair, turned) = *self.pairs.get(self.origin.find(&mut place)?)?;
        let [first, second] = place[..] else { return None };
        let (row, column) = if turned { (second, first) } else { (first, second) };
        Some((pair, usize::try_from(row).ok()?, usize::try_from(column).ok()?))
    }
}

/// Whether rows are columns of the source; `None` if neither rows nor columns are apart there.
fn is_turned(origin: &Origin) -> Option<bool> {
    let at = |row: u64, column: u64| {
        let mut place = vec![row, column];
        origin.find(&mut place)?;
        <[u64; 2]>::try_from(place).ok()
    };
    let [rows, columns] = origin.shape[..] else { return None };
    let here = at(0, 0)?;
    let (next, across) =
        if rows > 1 { (at(1, 0)?, false) } else { (at(0, 1.min(columns.saturating_sub(1)))?, true) };
    match (here[0] == next[0], here[1] == next[1]) {
        (false, true) => Some(across),
        (true, false) => Some(!across),
        // One element, which is in its place either way.
        (true, true) => Some(false),
        (false, false) => None,
    }
}

/// Checks that the model has the parameter, and nothing else is the same tensor.
fn is_apart(name: &str, param: &str, resolved: &Resolved) -> Result<(), Box<Problem>> {
    let tied = |root: &str, other: &str| {
        let params = [root.to_owned(), other.to_owned()];
        Err(Box::new(Problem::Tied { name: name.to_owned(), params }))
    };
    let Some(own) = resolved.find(param) else {
        let why = format!("the checkpoint has no `{param}`");
        return Err(Box::new(Problem::NoPlace { name: name.to_owned(), why }));
    };
    if let Some(root) = &own.tied_to {
        return tied(root, param);
    }
    match resolved.params.iter().find(|p| p.tied_to.as_deref() == Some(param)) {
        Some(other) => tied(param, &other.name),
        None => Ok(()),
    }
}

//! The matrices of an adapter, and which belong together.

use std::sync::Arc;

use checkpoint::Checkpoint;
use load::{Plan, Pool};
use tensor::{Arrangement, Diagnostic, Dtype, Scheme, Shape, Target};

use crate::pair::Pair;
use crate::{Error, Problem};

/// A matrix as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    /// Its tensor.
    pub(crate) tensor: String,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Arc<[f32]>,
}

impl Factor {
    pub(crate) fn transposed(self) -> Factor {
        let Factor { tensor, rows, columns, values } = self;
        let turned = (0..columns).flat_map(|c| values.iter().skip(c).step_by(columns.max(1)).copied());
        Factor { tensor, rows: columns, columns: rows, values: turned.collect() }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape::from([self.rows as u64, self.columns as u64])
    }
}

/// Reads every matrix of `checkpoint` as f32; what is no matrix is a problem.
pub(crate) fn factors(checkpoint: &Checkpoint, problems: &mut Vec<Problem>) -> Result<Vec<Factor>, Error> {
    let float = Scheme::plain(Dtype::F32);
    let (bindings, targets) = plan::as_stored(checkpoint.entries());
    let targets: Vec<Target> =
        targets.into_iter().map(|target| Target { scheme: Some(Arc::clone(&float)), ..target }).collect();
    let refuse = |problems: plan::Problems| {
        let what = format!("`{}` cannot be read:\n{problems}", checkpoint.location());
        Error::Malformed { what: Diagnostic::new(what) }
    };
    let resolved = plan::resolve(checkpoint.entries(), &bindings).map_err(refuse)?;
    let arrangement = Arrangement::stored(checkpoint.format().name());
    let plan = Plan::compile(checkpoint, &resolved, &targets, arrangement).map_err(refuse)?;
    let loaded = plan.load(&mut Pool::new(1))?;
    let mut factors = vec![];
    for entry in checkpoint.entries() {
        let Some(tensor) = loaded.get(&entry.name) else { continue };
        let [rows, columns] = entry.shape[..] else {
            problems.push(Problem::NoMatrix { tensor: entry.name.clone(), found: entry.shape.clone() });
            continue;
        };
        let (Ok(rows), Ok(columns)) = (usize::try_from(rows), usize::try_from(columns)) else { continue };
        factors.push(Factor {
            tensor: entry.name.clone(),
            rows,
            columns,
            values: Arc::from(tensor.as_f32()),
        });
    }
    Ok(factors)
}

/// The factors of one matrix, as far as they were found.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    pub(crate) a: Option<Factor>,
    pub(crate) b: Option<Factor>,
}

impl Halves {
    /// Both of them. `other` is the name of a factor's other one.
    pub(crate) fn both(
        self,
        other: impl Fn(&str) -> Option<String>,
        problems: &mut Vec<Problem>,
    ) -> Option<(Factor, Factor)> {
        match (self.a, self.b) {
            (Some(a), Some(b)) => Some((a, b)),
            (Some(one), None) | (None, Some(one)) => {
                let missing = other(&one.tensor).unwrap_or_default();
                problems.push(Problem::Lone { tensor: one.tensor, missing });
                None
            }
            (None, None) => None,
        }
    }
}

/// The pair of `a` `[rank, in]` and `b` `[out, rank]` that changes the tensor called `name`.
pub(crate) fn pair(
    name: String,
    a: Factor,
    b: Factor,
    scale: f32,
    problems: &mut Vec<Problem>,
) -> Option<Pair> {
    if a.rows != b.columns {
        problems.push(Problem::Ranks { name, a: a.shape(), b: b.shape() });
        return None;
    }
    let (inputs, rank, outputs) = (a.columns, a.rows, b.rows);
    Some(Pair { name, inputs, rank, outputs, a: a.values, b: b.values, scale, base: None })
}

//! What is wrong with an adapter, or with the model that it is for.

use std::fmt;

use tensor::{Diagnostic, Diagnostics, Pattern, Shape};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A key of the configuration is missing, or has a value that changes results and is not followed.
    Key {
        /// The key.
        key: String,
        /// Its value; `None` if it is missing.
        found: Option<String>,
        /// The values that are followed.
        wanted: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A tensor that is neither of two factors.
    NoFactor {
        /// The tensor.
        tensor: String,
        /// The names that factors have.
        wanted: &'static str,
    },
    /// A factor that is no matrix.
    NoMatrix {
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Shape,
    },
    /// One factor without the other.
    Lone {
        /// The tensor that is there.
        tensor: String,
        /// The tensor that is missing.
        missing: String,
    },
    /// Two factors of different ranks.
    Ranks {
        /// The tensor that they change.
        name: String,
        /// The shape of `A`.
        a: Shape,
        /// The shape of `B`.
        b: Shape,
    },
    /// Factors of another rank than the configuration says.
    Rank {
        /// The tensor that they change.
        name: String,
        /// Their rank.
        found: u64,
        /// The rank that the configuration says.
        wanted: u64,
    },
    /// The adapter is for a model of another architecture.
    Architecture {
        /// The adapter's architecture.
        found: String,
        /// The model's family.
        wanted: String,
    },
    /// The model has no such tensor.
    Unknown {
        /// The tensor that the adapter changes.
        name: String,
        /// The nearest that the model has.
        nearest: Option<String>,
    },
    /// The change has another shape than what it changes.
    Shape {
        /// The tensor that the adapter changes.
        name: String,
        /// The shape of its change, `[out, in]`.
        found: Shape,
        /// The model's parameter.
        param: String,
        /// Its shape.
        wanted: Shape,
    },
    /// What the adapter changes is used twice in the model, and an adapter may mean either.
    Tied {
        /// The tensor that the adapter changes.
        name: String,
        /// The two parameters that are one.
        params: [String; 2],
    },
    /// The model's parameter is not a matrix whose rows can be changed apart.
    NoPlace {
        /// The tensor that the adapter changes.
        name: String,
        /// Why not.
        why: String,
    },
}

impl Problem {
    /// The tensor that the problem is about, if it is about one of a layer.
    fn subject(&self) -> Option<&str> {
        Some(match self {
            Problem::Key { .. } | Problem::Architecture { .. } => return None,
            Problem::NoFactor { tensor, .. }
            | Problem::NoMatrix { tensor, .. }
            | Problem::Lone { tensor, .. } => tensor,
            Problem::Ranks { name, .. }
            | Problem::Rank { name, .. }
            | Problem::Unknown { name, .. }
            | Problem::Shape { name, .. }
            | Problem::Tied { name, .. }
            | Problem::NoPlace { name, .. } => name,
        })
    }

    /// The sentence about its subject.
    fn what(&self) -> String {
        match self {
            Problem::Key { key, found: Some(found), wanted, .. } => {
                format!("`{key}` is {found}, wanted {wanted}")
            }
            Problem::Key { key, found: None, wanted, .. } => {
                format!("`{key}` is missing, wanted {wanted}")
            }
            Problem::NoFactor { wanted, .. } => format!("is not a factor of an adapter: wanted {wanted}"),
            Problem::NoMatrix { found, .. } => format!("wanted a matrix, found {found}"),
            Problem::Lone { missing, .. } => {
                format!("has no other factor: wanted `{}`", Pattern::of(missing))
            }
            Problem::Ranks { a, b, .. } => {
                format!(
                    "the factors have different ranks: A is {a}, B is {b}, wanted [rank, in] and [out, rank]"
                )
            }
            Problem::Rank { found, wanted, .. } => {
                format!("the factors have rank {found}, the configuration says {wanted}")
            }
            Problem::Architecture { found, wanted } => {
                format!("the adapter is for `{found}`, the model is of the family `{wanted}`")
            }
            Problem::Unknown { .. } => "the model has no such tensor".to_owned(),
            Problem::Shape { found, param, wanted, .. } => {
                format!("the change is {found}, wanted {wanted} for `{}`", Pattern::of(param))
            }
            Problem::Tied { params: [a, b], .. } => {
                format!("`{a}` and `{b}` are one tensor in this model, and an adapter may mean either")
            }
            Problem::NoPlace { why, .. } => why.clone(),
        }
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        match self {
            Problem::Key { hint, .. } => hint.clone(),
            Problem::Unknown { nearest, .. } => {
                nearest.as_ref().map(|near| format!("the nearest is `{near}`"))
            }
            Problem::Tied { .. } => Some("merge the adapter with the program that trained it".to_owned()),
            _ => None,
        }
    }
}

/// Everything that is wrong. Layers that are wrong alike are one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// A single one.
    pub(crate) fn one(problem: Problem) -> Problems {
        Problems(vec![problem])
    }

    /// `Ok` if there are none.
    ///
    /// # Errors
    /// The problems.
    pub(crate) fn none(problems: Vec<Problem>) -> Result<(), Problems> {
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    /// One by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// Each kind of problem with its hint.
    pub fn diagnostics(&self) -> Diagnostics {
        // The pattern of the names, the sentence, the first of them, and how many.
        let mut groups: Vec<(Option<String>, String, &Problem, usize)> = vec![];
        for problem in &self.0 {
            let (pattern, what) =
                (problem.subject().map(|name| Pattern::of(name).to_string()), problem.what());
            match groups.iter_mut().find(|group| group.0 == pattern && group.1 == what) {
                Some(group) => group.3 += 1,
                None => groups.push((pattern, what, problem, 1)),
            }
        }
        // One hint is enough for problems beside each other.
        let repeats =
            |i: usize, hint: &String| groups.get(i + 1).and_then(|g| g.2.hint()).as_ref() == Some(hint);
        let said =
            |(i, (pattern, what, first, count)): (usize, &(Option<String>, String, &Problem, usize))| {
                let what = match (first.subject(), pattern) {
                    (Some(name), Some(_)) if *count == 1 => format!("  `{name}`: {what}"),
                    (_, Some(pattern)) => format!("  {count} × `{pattern}`: {what}"),
                    _ => format!("  {what}"),
                };
                Diagnostic::new(what).with_hint(first.hint().filter(|hint| !repeats(i, hint)))
            };
        groups.iter().enumerate().map(said).collect()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostics().problems())
    }
}

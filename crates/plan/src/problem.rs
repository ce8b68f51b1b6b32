//! Problems between a checkpoint, a model and a runtime.

use std::sync::Arc;

use tensor::{Scheme, SchemeError, Shape};

use crate::prove::Unproven;
use crate::steps::Clash;
use crate::why::Why;

/// Segments at one end of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Before them.
    Start,
    /// After them.
    Finish,
}

/// Whose fault a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The checkpoint contradicts itself.
    Malformed,
    /// The checkpoint is not what the model wants.
    Mismatch,
    /// Well-formed and wanted, but not something that this program can do.
    Unsupported,
    /// The caller's request makes no sense.
    Misuse,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// An entry is not in the checkpoint.
    Missing {
        /// The entry.
        entry: String,
        /// Canonical parameters that are made from it.
        params: Vec<String>,
        /// Its shape, where the parameter's shape tells.
        wants: Option<Shape>,
    },
    /// No parameter is made from an entry, and nothing says that it may be dropped.
    Unused {
        /// The entry.
        entry: String,
        /// Its shape.
        shape: Shape,
        /// The nearest name that the model does want.
        nearest: Option<String>,
        /// The entry that a rule makes it of, if one does.
        made_of: Option<String>,
    },
    /// Names that begin or end with other segments than the model wants, all of them with the same.
    Renamed {
        /// At which end.
        end: End,
        /// The checkpoint's segments there; empty: none.
        found: String,
        /// The model's segments there; empty: none.
        wanted: String,
        /// How many entries.
        count: usize,
        /// One of them, and the name that it should have.
        example: (String, String),
        /// Rules, in TOML, that give all of them their names, if there are some.
        rule: Option<String>,
    },
    /// Parameters are made from some of an entry, and none from the rest.
    PartlyUsed {
        /// The entry.
        entry: String,
        /// Its shape.
        shape: Shape,
        /// Its elements that parameters are made from.
        used: u64,
    },
    /// A part of an entry for which the model has no parameter, and which must be zero, is not.
    NotZero {
        /// The entry.
        entry: String,
        /// Its shape.
        shape: Shape,
        /// The part, counted from 0, and the number of equal parts of its first axis.
        part: (u64, u64),
    },
    /// A pattern of what may be absent that no parameter has.
    NothingToAllow {
        /// The pattern.
        pattern: String,
        /// The nearest that there is.
        nearest: Option<String>,
    },
    /// A parameter's entries give another shape than the model wants.
    Shape {
        /// Canonical name.
        param: String,
        /// The entries that it is made from.
        entries: Vec<String>,
        /// Whether it is just the one entry, as stored.
        as_stored: bool,
        /// The shape that the model wants.
        wants: Shape,
        /// The shape that the expression gives.
        found: Shape,
    },
    /// An expression does not fit its sources.
    Expression {
        /// Name of the parameter or target.
        param: String,
        /// Its sources, with their shapes.
        sources: Vec<(String, Shape)>,
        /// The misfit.
        why: Why,
        /// The checkpoint's, if the sources are entries; the caller's otherwise.
        blame: Blame,
    },
    /// A parameter is made from entries stored in different schemes.
    Mixed {
        /// Name of the parameter or target.
        param: String,
        /// One entry of each scheme, and the scheme's name.
        parts: Vec<(String, String)>,
    },
    /// Parts of one parameter need different codecs.
    Steps {
        /// Name of the parameter or target.
        param: String,
        /// Why their steps do not go together.
        clash: Clash,
    },
    /// A stage cannot change this.
    Stage {
        /// Name of the target.
        param: String,
        /// Name of the stage.
        stage: String,
        /// Why not.
        why: String,
    },
    /// No codec does this, or not for this shape.
    Encoding {
        /// Name of the target.
        param: String,
        /// Stored as.
        from: Arc<Scheme>,
        /// Wanted as.
        to: Arc<Scheme>,
        /// The shape and what is wrong with it, if that is the reason.
        why: Option<(Shape, SchemeError)>,
    },
    /// Movement would break a cell.
    Movement {
        /// Name of the target.
        param: String,
        /// The scheme that it is moved in.
        scheme: String,
        /// Role of the plane that cannot be made; empty if no plane in particular.
        plane: &'static str,
        /// The innermost operation to blame.
        operation: String,
        /// The rule that it breaks.
        why: Why,
        /// The nearest choices that were tried and are legal.
        nearest: Vec<String>,
    },
    /// Lowering or proving would take more work than allowed.
    TooFine {
        /// Name of the target.
        param: String,
        /// The limit, in steps.
        limit: u64,
    },
    /// A name is given twice.
    Duplicate {
        /// The kind of name: `entry`, `parameter` or `target`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A target or a tie names a parameter that is not there.
    Unknown {
        /// Name of the target or parameter that asks; empty if it is the caller.
        param: String,
        /// The name.
        name: String,
        /// The nearest name that there is.
        nearest: Option<String>,
    },
    /// A target is made of a parameter that is absent, as it may be.
    Torn {
        /// Name of the target.
        param: String,
        /// The parameter.
        absent: String,
    },
    /// A parameter is held in another dtype than its module was written for.
    Dtype {
        /// Name of the target.
        param: String,
        /// The dtype that its module wants.
        wanted: String,
        /// The dtype that it would have.
        found: String,
    },
    /// A parameter cannot be placed in memory as its module wants.
    Align {
        /// Name of the target.
        param: String,
        /// Bytes that it is to begin at a multiple of.
        align: u64,
    },
    /// Ties go round in a circle.
    Circle {
        /// A parameter on it.
        param: String,
    },
    /// The proof of coverage failed. A bug of the compiler, which is why the proof is always made.
    Unproven {
        /// Name of the target.
        param: String,
        /// Role of the plane.
        plane: &'static str,
        /// The proof's error.
        why: Unproven,
    },
}

impl Problem {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Problem::Expression { blame, .. } => *blame,
            Problem::Missing { .. }
            | Problem::Unused { .. }
            | Problem::Renamed { .. }
            | Problem::PartlyUsed { .. }
            | Problem::NotZero { .. }
            | Problem::Dtype { .. }
            | Problem::Shape { .. } => Blame::Mismatch,
            Problem::Mixed { .. }
            | Problem::Encoding { .. }
            | Problem::Movement { .. }
            | Problem::TooFine { .. }
            | Problem::Unproven { .. } => Blame::Unsupported,
            Problem::Duplicate { what: "entry", .. } => Blame::Malformed,
            Problem::Duplicate { .. }
            | Problem::Steps { .. }
            | Problem::Stage { .. }
            | Problem::Unknown { .. }
            | Problem::Torn { .. }
            | Problem::Align { .. }
            | Problem::NothingToAllow { .. }
            | Problem::Circle { .. } => Blame::Misuse,
        }
    }
}

impl std::error::Error for Problem {}

/// Everything that is wrong. Its `Display` groups what has the same cause: one message for 30 layers.
#[derive(Clone, PartialEq)]
pub struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    /// `Err` if there are any.
    ///
    /// # Errors
    /// The problems.
    pub fn none(problems: Vec<Problem>) -> Result<(), Problems> {
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    /// The problems one by one, in the order in which they were found. Never empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// Says of entries that are used in part what is wrong with the rest: `part` gives the part that must be zero, counted
    /// from 0, and the number of equal parts.
    pub fn blame_parts(&mut self, part: &dyn Fn(&str) -> Option<(u64, u64)>) {
        for problem in &mut self.0 {
            if let Problem::PartlyUsed { entry, shape, .. } = problem
                && let Some(part) = part(entry)
            {
                *problem = Problem::NotZero { entry: entry.clone(), shape: shape.clone(), part };
            }
        }
    }

    /// Rules, in TOML, that mend names which all differ alike, if they do.
    pub fn rule(&self) -> Option<&str> {
        self.0.iter().find_map(|problem| match problem {
            Problem::Renamed { rule, .. } => rule.as_deref(),
            _ => None,
        })
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Problems(vec![problem])
    }
}

impl std::error::Error for Problems {}

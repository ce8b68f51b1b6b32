//! Errors of planning.

use std::fmt;

use checkpoint::Checkpoint;

/// What is in the way of a plan.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file beside the weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The checkpoint's description of its model is wrong.
    #[error("`{path}`: {source}{}", hinted(fit.as_deref()))]
    Model {
        /// The checkpoint.
        path: String,
        /// What is wrong.
        source: model::Error,
        /// Whose names its tensors have, if most are known.
        fit: Option<Box<model::Fit>>,
    },
    /// The checkpoint does not fit the model.
    #[error(
        "`{path}` does not fit its model ({family}):\n{problems}{}{}", if *backbone { BACKBONE } else { "" },
        hinted(fit.as_deref())
    )]
    Misfit {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// Every problem.
        problems: plan::Problems,
        /// Whose names its tensors have, if they are another's.
        fit: Option<Box<model::Fit>>,
        /// Nothing but the output matrix is missing, as of a backbone that was saved alone.
        backbone: bool,
    },
    /// The names of the tensors are those of the model twice.
    #[error("`{path}` ({family}): {source}")]
    Ambiguous {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// What could both serve.
        source: Box<model::Ambiguous>,
    },
    /// Rules cannot be read.
    #[error("cannot read the rules `{path}`: {source}")]
    RulesIo {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Rules mean nothing.
    #[error(transparent)]
    Rules(#[from] crate::RulesProblems),
    /// Rules do not fit the checkpoint.
    #[error("the rules do not fit `{path}`:\n{problems}")]
    Mapping {
        /// The checkpoint.
        path: String,
        /// Every problem.
        problems: plan::MapProblems,
    },
    /// The tensors cannot be had as asked, each under its own name.
    #[error("`{path}`:\n{problems}")]
    AsStored {
        /// The checkpoint.
        path: String,
        /// Every problem.
        problems: plan::Problems,
    },
    /// A layout cannot be made of the canonical parameters.
    #[error("the layout `{layout}` cannot be made of `{path}`: `{name}` {why}")]
    NoWayBack {
        /// The checkpoint.
        path: String,
        /// The layout.
        layout: &'static str,
        /// The parameter.
        name: String,
        /// What is in the way.
        why: &'static str,
    },
    /// The model cannot be shared as asked.
    #[error("the model cannot be shared so:{}", undivided(problems))]
    Undivided {
        /// Every parameter that cannot be divided.
        problems: Vec<model::Undivided>,
    },
    /// A mesh or a rank that cannot be.
    #[error("{what}")]
    Mesh {
        /// The problem, with hints on lines of their own.
        what: String,
    },
    /// Two modules of one's own model own one name.
    #[error("the model's modules disagree:{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Owners {
        /// Every such name.
        problems: Vec<model::module::TwoOwners>,
    },
    /// No scheme has this name.
    #[error("no scheme is called `{name}`{}", nearest(near.as_deref()))]
    Scheme {
        /// The name.
        name: String,
        /// The nearest of those that there are.
        near: Option<String>,
    },
    /// What is to be encoded cannot be, so.
    #[error("{what}")]
    Encoding {
        /// Everything that is wrong, with hints on lines of their own.
        what: String,
    },
    /// `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
    #[error(transparent)]
    Isa(#[from] quant::Error),
}

/// As it is shown: a `main` that ends with one says what is wrong, and not how that is kept.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn no_mesh() -> Error {
        Error::Mesh { what: "wanted from 1 to 1048576 ranks".to_owned() }
    }

    /// The checkpoint does not fit its model; or, without a model, its tensors cannot be had as asked.
    pub(crate) fn misfit(
        checkpoint: &Checkpoint,
        family: Option<&'static str>,
        problems: plan::Problems,
    ) -> Error {
        let path = shown(checkpoint);
        match family {
            Some(family) => Error::Misfit { path, family, problems, fit: None, backbone: false },
            None => Error::AsStored { path, problems },
        }
    }

    /// Whether no family claims the checkpoint, which can be looked at and taken as it is stored all the same.
    pub fn is_unknown_model(&self) -> bool {
        let unknown = |source: &model::Error| {
            matches!(source, model::Error::Unsupported { .. } | model::Error::NoArchitecture(_))
        };
        matches!(self, Error::Model { source, .. } if unknown(source))
    }

    /// Whether the caller asked for what cannot be: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        match self {
            Error::Isa(_)
            | Error::Undivided { .. }
            | Error::Mesh { .. }
            | Error::Owners { .. }
            | Error::Rules(_)
            | Error::Scheme { .. }
            | Error::Encoding { .. } => true,
            Error::Checkpoint(e) => matches!(e, checkpoint::Error::Misuse(_)),
            _ => false,
        }
    }
}

/// The path of a checkpoint, as errors have it.
pub(crate) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.location().to_string()
}

const BACKBONE: &str = "\nhint: a backbone that was saved alone has no output matrix, and the configuration says that the \
                        matrix is not the token embedding. There are no logits without it; to load or convert the rest, \
                        let `output.weight` be missing";

fn nearest(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("\nhint: the nearest is `{near}`"))
}

fn hinted(fit: Option<&model::Fit>) -> String {
    fit.map_or(String::new(), |fit| format!("\nhint: {fit}"))
}

/// One line for each kind of parameter.
fn undivided(problems: &[model::Undivided]) -> String {
    let mut groups: Vec<(String, &model::Undivided, usize)> = vec![];
    for problem in problems {
        let pattern = tensor::Pattern::of(&problem.name).to_string();
        match groups.iter_mut().find(|g| g.0 == pattern && g.1.what == problem.what) {
            Some(group) => group.2 += 1,
            None => groups.push((pattern, problem, 1)),
        }
    }
    let line = |(pattern, problem, count): &(String, &model::Undivided, usize)| {
        let name = if *count == 1 { problem.name.clone() } else { format!("{pattern}` ({count} of them)") };
        let quote = if *count == 1 { "`" } else { "" };
        format!(
            "\n  `{name}{quote}: {} among {} ranks, wanted {}",
            problem.what, problem.ranks, problem.wanted
        )
    };
    groups.iter().map(line).collect()
}

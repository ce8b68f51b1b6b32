//! Errors of planning.

use std::fmt;

use checkpoint::Checkpoint;
use tensor::{Diagnostic, Diagnostics};

/// Errors that prevent a plan.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file beside the weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The checkpoint's description of its model is wrong.
    #[error("`{path}`: {source}")]
    Model {
        /// The checkpoint.
        path: String,
        /// The model's error.
        source: model::Error,
        /// The family whose names the tensors have, if most are known.
        fit: Option<Box<model::Fit>>,
    },
    /// The checkpoint does not fit the model.
    #[error("{}\n{problems}", misfit(path, family))]
    Misfit {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// Every problem.
        problems: plan::Problems,
        /// The family whose names the tensors have, if it is another.
        fit: Option<Box<model::Fit>>,
        /// Only the output matrix is missing, as in a backbone that was saved alone.
        backbone: bool,
    },
    /// The checkpoint has no tensors, as a file that holds a vocabulary alone.
    #[error("`{path}` holds no tensors")]
    NoTensors {
        /// The checkpoint.
        path: String,
    },
    /// The tensors' names match the model's twice.
    #[error("`{path}` ({family}): {source}")]
    Ambiguous {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// The tensors that match the same parameter.
        source: Box<model::Ambiguous>,
    },
    /// Rules cannot be read.
    #[error("cannot read the rules `{path}`: {source}")]
    RulesIo {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Rules mean nothing.
    #[error(transparent)]
    Rules(#[from] crate::RulesProblems),
    /// Rules do not fit the checkpoint.
    #[error("{}\n{problems}", unmapped(path))]
    Mapping {
        /// The checkpoint.
        path: String,
        /// Every problem.
        problems: plan::MapProblems,
    },
    /// The tensors cannot be loaded as asked, each under its own name.
    #[error("{}\n{problems}", as_stored(path))]
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
        /// The obstacle.
        why: &'static str,
    },
    /// The model cannot be split across the ranks of the mesh.
    #[error("{UNDIVIDED}\n{}", undivided(problems).join("\n"))]
    Undivided {
        /// Every parameter that cannot be divided.
        problems: Vec<model::Undivided>,
    },
    /// The mesh, the rank or the layout's use of them is wrong.
    #[error("{}", what.what)]
    Mesh {
        /// The problem.
        what: Diagnostic,
    },
    /// A stage of one's own has nothing to change.
    #[error("{}", what.what)]
    Stage {
        /// The problem.
        what: Diagnostic,
    },
    /// An adapter cannot be used, or does not fit the model.
    #[error(transparent)]
    Lora(Box<lora::Error>),
    /// Two modules of one's own model own one name.
    #[error("the model's modules disagree:{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Owners {
        /// Every such name.
        problems: Vec<model::module::TwoOwners>,
    },
    /// No layout has this name.
    #[error("no layout is called `{name}`")]
    Layout {
        /// The name.
        name: String,
        /// The nearest existing name.
        near: Option<String>,
    },
    /// No preset has this name.
    #[error("no preset is called `{name}`")]
    Preset {
        /// The name.
        name: String,
        /// The nearest existing name.
        near: Option<String>,
    },
    /// The runtime that a plan is for would not take its parameters, or not as they are meant.
    #[error("{}", what.problems())]
    Refused {
        /// Everything that is in the way.
        what: Diagnostics,
    },
    /// No scheme has this name.
    #[error("no scheme is called `{name}`")]
    Scheme {
        /// The name.
        name: String,
        /// The nearest existing name.
        near: Option<String>,
    },
    /// Parameters cannot be encoded as asked.
    #[error("{}", what.problems())]
    Encoding {
        /// Everything that is wrong.
        what: Diagnostics,
    },
    /// `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
    #[error(transparent)]
    Isa(#[from] quant::Error),
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl From<lora::Error> for Error {
    fn from(error: lora::Error) -> Error {
        Error::Lora(Box::new(error))
    }
}

impl Error {
    pub(crate) fn no_mesh() -> Error {
        Error::Mesh { what: Diagnostic::new("wanted from 1 to 1048576 ranks") }
    }

    /// The checkpoint does not match its model; or, without a model, its tensors cannot be loaded as asked.
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

    /// Returns each problem with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let fits = |fit: &Option<Box<model::Fit>>| fit.as_ref().map(ToString::to_string);
        match self {
            Error::Checkpoint(error) => error.diagnostics(),
            Error::Model { source, fit, .. } => {
                Diagnostics::of(self, source.hints().into_iter().chain(fits(fit)))
            }
            Error::Misfit { path, family, problems, fit, backbone } => problems
                .diagnostics()
                .under(&misfit(path, family))
                .with_hint(backbone.then(|| BACKBONE.to_owned()))
                .with_hint(fits(fit)),
            Error::Ambiguous { source, .. } => Diagnostics::of(self, source.hints()),
            Error::Rules(problems) => problems.diagnostics(),
            Error::Mapping { path, problems } => problems.diagnostics().under(&unmapped(path)),
            Error::AsStored { path, problems } => problems.diagnostics().under(&as_stored(path)),
            Error::Mesh { what } | Error::Stage { what } => what.clone().into(),
            Error::Undivided { problems } => {
                let all: Diagnostics = undivided(problems).into_iter().map(Diagnostic::new).collect();
                all.under(UNDIVIDED)
            }
            Error::Scheme { near, .. } | Error::Layout { near, .. } | Error::Preset { near, .. } => {
                Diagnostics::of(self, near.iter().map(|near| format!("the nearest is `{near}`")))
            }
            Error::Encoding { what } | Error::Refused { what } => what.clone(),
            Error::Isa(error) => error.diagnostics(),
            Error::Lora(error) => error.diagnostics(),
            Error::RulesIo { .. }
            | Error::NoWayBack { .. }
            | Error::NoTensors { .. }
            | Error::Owners { .. } => Diagnostics::of(self, None),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }

    /// Whether no family claims the checkpoint, which can be looked at and taken as it is stored all the same.
    pub fn is_unknown_model(&self) -> bool {
        let unknown = |source: &model::Error| {
            matches!(source, model::Error::Unsupported { .. } | model::Error::NoArchitecture(_))
        };
        matches!(self, Error::Model { source, .. } if unknown(source))
    }

    /// Whether the caller asked for something impossible: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        match self {
            Error::Isa(_)
            | Error::Undivided { .. }
            | Error::Mesh { .. }
            | Error::Stage { .. }
            | Error::Owners { .. }
            | Error::Rules(_)
            | Error::Scheme { .. }
            | Error::Layout { .. }
            | Error::Preset { .. }
            | Error::Refused { .. }
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

const BACKBONE: &str = "a backbone that was saved alone has no output matrix, and the configuration says that the \
                        matrix is not the token embedding. There are no logits without it; to load or convert the rest, \
                        let `output.weight` be missing";

fn misfit(path: &str, family: &str) -> String {
    format!("`{path}` does not match its model ({family}):")
}

fn unmapped(path: &str) -> String {
    format!("the rules do not fit `{path}`:")
}

fn as_stored(path: &str) -> String {
    format!("`{path}`:")
}

const UNDIVIDED: &str = "this model cannot be split across these ranks:";

/// One line for each kind of parameter.
fn undivided(problems: &[model::Undivided]) -> Vec<String> {
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
            "  `{name}{quote}: cannot split {} across {} ranks; use {}",
            problem.what, problem.ranks, problem.wanted
        )
    };
    groups.iter().map(line).collect()
}

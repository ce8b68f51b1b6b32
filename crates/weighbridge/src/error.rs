//! Any error of the pipeline.

use std::fmt;
#[cfg(feature = "convert")]
use std::path::{Path, PathBuf};

use crate::{Finding, KeyFinding};

/// Any error of the pipeline, each with its own message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint cannot be opened.
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
    Plan {
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
    /// Nothing runs this layout.
    #[error("the layout `{layout}` cannot be run\nhint: it is for `plan` and `convert`")]
    NotRunnable {
        /// The layout.
        layout: &'static str,
    },
    #[cfg(feature = "engine")]
    /// The engine does not run this model.
    #[error(
        "`{path}`: models of the family `{family}` are loaded and converted, but this one is not run: {why}\n\
         hint: `weighbridge convert` writes it for programs that do, `weighbridge plan` shows how it is loaded"
    )]
    NotRun {
        /// The checkpoint.
        path: String,
        /// The family.
        family: &'static str,
        /// What is in the way.
        why: String,
    },
    #[cfg(feature = "engine")]
    /// The sampling defaults cannot be read.
    #[error("`{path}`: {what}")]
    Sampling {
        /// The checkpoint.
        path: String,
        /// What is wrong.
        what: String,
    },
    #[cfg(feature = "convert")]
    /// The format cannot say all of the model.
    #[error("{}", unsaid(format, losses, unknown))]
    Lost {
        /// The format.
        format: &'static str,
        /// What would be lost.
        losses: Vec<model::Loss>,
        /// Keys that were allowed to be lost, under which nothing is.
        unknown: Vec<String>,
    },
    #[cfg(feature = "convert")]
    /// What is to be converted cannot be, so.
    #[error("{what}")]
    Convert {
        /// Everything that is wrong, with hints on lines of their own.
        what: String,
    },
    #[cfg(feature = "convert")]
    /// Weights are quantised already, and would be quantised again.
    #[error(
        "these weights are quantised already, and would be quantised again:{}\n\
         hint: quantise the original floats, or say that it is meant",
        crate::convert::requantize::listed(weights)
    )]
    Requantize {
        /// Which, by name, and how.
        weights: Vec<crate::Requantized>,
    },
    /// What is to be encoded cannot be, so.
    #[error("{what}")]
    Encoding {
        /// Everything that is wrong, with hints on lines of their own.
        what: String,
    },
    #[cfg(feature = "convert")]
    /// What is to be compared cannot be, so.
    #[error("{what}")]
    Diff {
        /// The problem, with hints on lines of their own.
        what: String,
    },
    #[cfg(feature = "convert")]
    /// An importance matrix cannot be used.
    #[error("`{path}`: {what}\nhint: llama.cpp's llama-imatrix makes them")]
    Imatrix {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A manifest is not one that can be used.
    #[error("`{path}`: {what}\nhint: `weighbridge check --write-manifest` makes them")]
    Manifest {
        /// The file.
        path: String,
        /// What is wrong, wanted and found.
        what: String,
    },
    /// A manifest cannot be read or written.
    #[error("cannot {doing} the manifest `{path}`: {source}")]
    ManifestIo {
        /// The file.
        path: String,
        /// What was tried: `read`, `write`.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another manifest is where one is to be written.
    #[error(
        "`{path}` is there already, and says something else\n\
         hint: `--verify` shows what has changed; `--force` replaces it"
    )]
    ManifestThere {
        /// The file.
        path: String,
    },
    /// What was loaded is not what a manifest says.
    #[error("`{path}` is not what the manifest says:\n{}", lines(findings, keys))]
    Differs {
        /// The checkpoint.
        path: String,
        /// Every tensor that differs.
        findings: Vec<Finding>,
        /// Everything that is said otherwise beside the tensors.
        keys: Vec<KeyFinding>,
    },
    #[cfg(feature = "convert")]
    /// The caller ended it.
    #[error("{}", interrupted(kept.as_deref(), *done, *total))]
    Interrupted {
        /// Where what was written is kept; without it, nothing is.
        kept: Option<PathBuf>,
        /// Parameters that were written.
        done: usize,
        /// Parameters that there are.
        total: usize,
    },
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] load::Error),
    #[cfg(feature = "engine")]
    /// Running failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// `WEIGHBRIDGE_CPU` asks for an instruction set that is not there.
    #[error(transparent)]
    Isa(#[from] quant::Error),
    #[cfg(feature = "engine")]
    /// The tokenizer or the chat template is wrong.
    #[error("`{path}`: {source}")]
    Text {
        /// The checkpoint.
        path: String,
        /// What is wrong.
        source: engine::text::Error,
    },
    #[cfg(feature = "engine")]
    /// A file of a tokenizer cannot be read.
    #[error("cannot read `{path}`: {source}")]
    TextIo {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    #[cfg(feature = "engine")]
    /// The checkpoint has no tokenizer.
    #[error("`{path}` has no tokenizer: looked for {looked_for}\nhint: {hint}")]
    NoTokenizer {
        /// The checkpoint.
        path: String,
        /// Where it was looked for.
        looked_for: &'static str,
        /// What to do.
        hint: &'static str,
    },
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
            | Error::NotRunnable { .. }
            | Error::Undivided { .. }
            | Error::Mesh { .. }
            | Error::Owners { .. }
            | Error::Rules(_)
            | Error::Encoding { .. }
            | Error::ManifestThere { .. }
            | Error::Load(load::Error::LittleMemory { .. })
            | Error::Checkpoint(checkpoint::Error::Misuse(_)) => true,
            #[cfg(feature = "convert")]
            Error::Convert { .. } | Error::Requantize { .. } | Error::Diff { .. } => true,
            #[cfg(feature = "engine")]
            Error::Engine(e) => matches!(
                e,
                engine::Error::CacheTooLarge { .. }
                    | engine::Error::ContextFull { .. }
                    | engine::Error::Positions { .. }
                    | engine::Error::NoTokens
            ),
            _ => false,
        }
    }
}

const BACKBONE: &str = "\nhint: a backbone that was saved alone has no output matrix, and the configuration says that the \
                        matrix is not the token embedding. There are no logits without it; to load or convert the rest, \
                        let `output.weight` be missing";

fn lines(findings: &[Finding], keys: &[KeyFinding]) -> String {
    let keys = keys.iter().map(ToString::to_string);
    findings.iter().map(ToString::to_string).chain(keys).collect::<Vec<_>>().join("\n")
}

#[cfg(feature = "convert")]
fn unsaid(format: &str, losses: &[model::Loss], unknown: &[String]) -> String {
    let heading = (!losses.is_empty()).then(|| format!("{format} cannot say all of this model:"));
    let lost = losses.iter().map(|loss| format!("`{}` is lost: {}", loss.key, loss.what));
    let nothing = unknown.iter().map(|key| format!("nothing is lost under `{key}`, which was allowed"));
    heading.into_iter().chain(lost).chain(nothing).collect::<Vec<_>>().join("\n")
}

fn hinted(fit: Option<&model::Fit>) -> String {
    fit.map_or(String::new(), |fit| format!("\nhint: {fit}"))
}

#[cfg(feature = "convert")]
fn interrupted(kept: Option<&Path>, done: usize, total: usize) -> String {
    match kept {
        None => "interrupted: nothing was written".to_owned(),
        Some(kept) => format!(
            "interrupted: {done} of {total} tensors are kept in `{}`\nhint: the same command continues there",
            kept.display()
        ),
    }
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

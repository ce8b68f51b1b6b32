//! Why a command fails, and how it says so.

use std::io::Write;

use weighbridge::tensor::{Diagnostic, Diagnostics};

use crate::json;
use crate::style;

/// The exit code if Ctrl-C ended it: 128 and the number of SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Lists the commands that work on a model that no family claims.
pub(crate) const UNKNOWN: &str = "without a supported architecture you can still `inspect`, `check` and `diff` it, `plan` and `load` it with \
                       `--layout source`, and `convert` it to npz, safetensors or npy-dir with its own tensor names";

/// Why a command failed.
pub(crate) enum Failure {
    /// The model or a file is wrong.
    Model(weighbridge::Error),
    /// The command line asks for what cannot be.
    Usage(String),
    /// The same, as a message.
    Other(String),
    /// A model is not on the hub, or was not pulled.
    #[cfg(feature = "hub")]
    Hub(hub::Error),
    /// Several files are wrong, or do not go together.
    Problems(Diagnostics),
    /// What was asked about is wrong, and the output says so.
    Found,
    /// Ctrl-C ended it, and what there was has been said.
    Interrupted,
    /// Standard output or input failed.
    Io(std::io::Error),
}

/// The errors of all steps are a model's.
macro_rules! failures {
    ($($error:ty),+ $(,)?) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::Model(error.into())
            }
        }
    )+ };
}

failures! {
    weighbridge::Error,
    weighbridge::checkpoint::Error,
    weighbridge::planner::Error,
    weighbridge::load::Error,
    weighbridge::check::Error,
    weighbridge::convert::Error,
    weighbridge::engine::Error,
}

#[cfg(feature = "hub")]
impl From<hub::Error> for Failure {
    fn from(error: hub::Error) -> Self {
        match error {
            hub::Error::Interrupted => Failure::Interrupted,
            error => Failure::Hub(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Io(error)
    }
}

/// The problems of a failure and their hints, in the words of the command line.
pub(crate) struct Said(Vec<Diagnostic>);

impl Said {
    /// Prints it: for people on stderr, or as one JSON document on stdout.
    pub(crate) fn print(&self, json: bool) {
        // If nobody reads it, the exit code has to do.
        if json {
            let _ = json::print(&self.json());
        } else {
            let text: Vec<String> = self.0.iter().map(ToString::to_string).collect();
            let _ = writeln!(std::io::stderr().lock(), "{}", style::error(&text.join("\n")));
        }
    }

    /// `error`: all of it as one text; `problems`: each with its hints; `hint`: the last of those, what to try first.
    fn json(&self) -> json::Error<'_> {
        let what: Vec<&str> = self.0.iter().map(|d| d.what.as_str()).collect();
        let problem = |d| {
            let Diagnostic { what, hints, .. }: &Diagnostic = d;
            json::Problem { problem: what, hints }
        };
        json::Error {
            error: what.join("\n"),
            problems: self.0.iter().map(problem).collect(),
            hint: self.0.iter().flat_map(|d| &d.hints).next_back().map(String::as_str),
        }
    }

    /// Adds a hint.
    fn hint(mut self, hint: impl Into<String>) -> Said {
        if let Some(last) = self.0.last_mut() {
            last.hints.push(hint.into());
        }
        self
    }

    /// Adds the option that does what the last sentence says.
    fn option(mut self, text: &str) -> Said {
        if let Some(last) = self.0.last_mut() {
            last.hints.last_mut().unwrap_or(&mut last.what).push_str(text);
        }
        self
    }
}

/// A message of ours, with its hints on lines of their own.
impl From<&str> for Said {
    fn from(text: &str) -> Said {
        let mut one = Diagnostic::new("");
        for line in text.lines() {
            match line.strip_prefix("hint: ") {
                Some(hint) => one.hints.push(hint.to_owned()),
                None if one.what.is_empty() => line.clone_into(&mut one.what),
                None => one.what = format!("{}\n{line}", one.what),
            }
        }
        Said(vec![one])
    }
}

impl From<&Diagnostics> for Said {
    fn from(all: &Diagnostics) -> Said {
        Said(all.iter().cloned().collect())
    }
}

/// Converts clap's error.
pub(crate) fn of_command_line(error: &clap::Error) -> Said {
    let text = error.to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let tips = rest.lines().filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let what = what.strip_prefix("error: ").unwrap_or(what).trim_end();
    tips.fold(Said::from(what), Said::hint)
}

impl Failure {
    /// Whether the command line asks for what cannot be.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Failure::Usage(_) => true,
            Failure::Model(e) => e.is_misuse(),
            #[cfg(feature = "hub")]
            Failure::Hub(e) => e.is_misuse(),
            _ => false,
        }
    }

    /// True if Ctrl-C ended it, and there is more to say about that.
    pub(crate) fn is_interrupted(&self) -> bool {
        use weighbridge::convert::Error as Convert;

        let Failure::Model(error) = self else { return false };
        matches!(
            error,
            weighbridge::Error::Interrupted { .. } | weighbridge::Error::Convert(Convert::Interrupted { .. })
        )
    }

    /// The problems with their hints, in the words of the command line.
    #[cfg(feature = "serve")]
    pub(crate) fn diagnostics(&self) -> Diagnostics {
        self.said().0.into_iter().collect()
    }

    /// Several failures as one; `None` if there are none.
    #[cfg(feature = "serve")]
    pub(crate) fn all(mut failures: Vec<Failure>) -> Option<Failure> {
        match failures.len() {
            0 | 1 => failures.pop(),
            // The exit code of a wrong command line is kept if nothing else is wrong.
            _ if failures.iter().all(Failure::is_usage) => {
                let said: Vec<String> =
                    failures.iter().map(|failure| failure.diagnostics().to_string()).collect();
                Some(Failure::Usage(said.join("\n")))
            }
            _ => {
                let problems = failures.iter().flat_map(|failure| failure.said().0);
                Some(Failure::Problems(problems.collect()))
            }
        }
    }

    /// What is wrong.
    pub(crate) fn said(&self) -> Said {
        match self {
            Failure::Model(error) => in_words_of_the_command(error),
            Failure::Usage(text) | Failure::Other(text) => Said::from(text.as_str()),
            #[cfg(feature = "hub")]
            Failure::Hub(error) => Said::from(&error.diagnostics()),
            Failure::Problems(all) => Said::from(all),
            Failure::Io(error) => Said::from(error.to_string().as_str()),
            Failure::Found => Said::from("something is wrong with the checkpoint"),
            Failure::Interrupted => Said::from("interrupted"),
        }
    }
}

/// The error with its hints, and what the command line has against it.
fn in_words_of_the_command(error: &weighbridge::Error) -> Said {
    use weighbridge::check::Error as Check;
    use weighbridge::checkpoint::{Fault, Problem};
    use weighbridge::convert::Error as Convert;
    use weighbridge::planner::Error as Plan;

    const RULE: &str = "save the rule in a file and add `--rules FILE`";
    let is_there = |problem: &Problem| matches!(problem.fault, Fault::Exists { what: "already exists" });
    let is_not_stored = |problem: &Problem| matches!(problem.fault, Fault::NoPlace { .. });
    #[cfg(feature = "hub")]
    if let Some(error) = of_the_hub(error) {
        return Said::from(&error.diagnostics());
    }
    let said = Said::from(&error.diagnostics());
    match error {
        weighbridge::Error::Plan(e) => match e {
            Plan::Misfit { problems, .. } if problems.rule().is_some() => said.hint(RULE),
            Plan::Misfit { backbone: true, .. } => said.hint("`--allow-missing output.weight` does that"),
            Plan::Misfit { .. } => {
                said.hint("`weighbridge inspect --tensors` lists what the checkpoint holds")
            }
            Plan::Ambiguous { .. } => said.hint(RULE),
            Plan::NoTensors { .. } => said.hint("if it holds a vocabulary, `weighbridge tokenize` uses that"),
            e if e.is_unknown_model() => said.hint(UNKNOWN),
            _ => said,
        },
        weighbridge::Error::Checkpoint(e) if e.problems().iter().any(is_there) => {
            said.option("; `--force` overwrites it")
        }
        weighbridge::Error::Checkpoint(e) if e.problems().iter().any(is_not_stored) => {
            said.option(" (`--encode '*=f16'`)")
        }
        weighbridge::Error::Checkpoint(e) if let Some(name) = page_of_the_hub(&e.location().to_string()) => {
            said.hint(format!("`{name}` is the model of that page"))
        }
        weighbridge::Error::Checkpoint(e)
            if e.is_not_found() && !e.hints().iter().any(|hint| hint.starts_with("did you mean")) =>
        {
            said.hint(paths(&e.location().to_string()))
        }
        weighbridge::Error::Check(Check::Manifest { .. }) => {
            said.hint("`weighbridge check --write-manifest` makes one")
        }
        weighbridge::Error::Check(Check::ManifestIo { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            said.hint("`weighbridge check --write-manifest` makes one")
        }
        weighbridge::Error::Check(Check::ManifestThere { .. }) => {
            said.hint("`--verify` shows what has changed; `--force` replaces it")
        }
        weighbridge::Error::Encoder { .. } => said.option(" (`weighbridge embed`)"),
        weighbridge::Error::Hears { .. } => said.option(" (`weighbridge transcribe`)"),
        weighbridge::Error::NotRun { .. } => said.hint(
            "to run it elsewhere, convert it with `weighbridge convert`, for example to GGUF for llama.cpp",
        ),
        weighbridge::Error::Memory { fewer, is_limit, .. } => {
            let said = said.option(if *fewer == 0 { ", as with `--preset q4_k_m`" } else { " (`--ctx`)" });
            if *is_limit { said } else { said.hint("`--memory SIZE` sets another limit") }
        }
        weighbridge::Error::Convert(Convert::Requantize { .. }) => said.option(" with `--allow-requantize`"),
        weighbridge::Error::Convert(Convert::Memory { .. }) => said.option(" (`--memory`)"),
        weighbridge::Error::Convert(Convert::Lost { losses, .. }) if losses.is_empty() => {
            said.hint("remove it from `--allow-loss`")
        }
        weighbridge::Error::Convert(Convert::Lost { losses, .. }) => {
            let keys: Vec<&str> = losses.iter().map(|loss| loss.key.as_str()).collect();
            said.hint(format!("`--allow-loss {}` converts it anyway", keys.join(",")))
        }
        weighbridge::Error::ShortText { .. } => said.option(", or `weighbridge calibrate`"),
        weighbridge::Error::Engine(e) => said.option(option(e)),
        _ => said,
    }
}

/// The hub's error, if a name of the hub was not pulled.
#[cfg(feature = "hub")]
fn of_the_hub(error: &weighbridge::Error) -> Option<&hub::Error> {
    let mut error: &dyn std::error::Error = error;
    loop {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.get_ref()?.downcast_ref();
        }
        error = error.source()?;
    }
}

/// The option that does what the engine's hint says.
fn option(error: &weighbridge::engine::Error) -> &'static str {
    use weighbridge::engine::{Error, sampler};

    match error {
        Error::CacheTooLarge { .. } | Error::ContextFull { .. } | Error::Positions { .. } => " (`--ctx`)",
        Error::NoKernel { .. } | Error::Sampler(sampler::Error::NotNumbers { .. }) => {
            " (`--backend reference`)"
        }
        _ => "",
    }
}

/// The name of the model whose page, or whose file, is at the URL `location`.
fn page_of_the_hub(location: &str) -> Option<String> {
    let mut parts = location.strip_prefix("https://huggingface.co/")?.split('/');
    let (owner, name) = (parts.next()?, parts.next()?);
    (cfg!(feature = "hub") && !owner.is_empty() && !name.is_empty()).then(|| format!("hf:{owner}/{name}"))
}

/// Which paths are taken; of one that looks like the name of a repository, how to get at that.
fn paths(path: &str) -> String {
    let is_word = |word: &str| !word.is_empty() && !word.starts_with('.') && !word.contains(['/', '\\']);
    if path.contains("://") {
        return if cfg!(feature = "http") {
            "wanted a URL of https, http, s3, gs or az: of a file, or of a directory that ends with a slash. A server of files \
             does not list names, so a directory has to have a `config.json`"
                .to_owned()
        } else {
            "this build has no feature `http` and reads local files only: download it first, and give its path".to_owned()
        };
    }
    let repository = path.split_once('/').filter(|(owner, name)| is_word(owner) && is_word(name));
    match repository {
        Some(_) if cfg!(feature = "hub") => {
            format!("`hf:{path}` is the model of that name on the Hugging Face Hub")
        }
        Some(_) => format!(
            "`hf download {path}` downloads a model from the Hugging Face Hub, and prints the path to give here"
        ),
        None => {
            "wanted a GGUF, safetensors, PyTorch, .npz or .npy file, or a model directory (Hugging Face, MLX, .npy files)"
                .to_owned()
        }
    }
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_hub_has_a_name() {
        for (location, name) in [
            ("https://huggingface.co/o/n", Some("hf:o/n")),
            ("https://huggingface.co/o/n/resolve/main/x.gguf", Some("hf:o/n")),
            ("https://huggingface.co/o", None),
            ("https://host/o/n", None),
            ("o/n", None),
        ] {
            assert_eq!(page_of_the_hub(location).as_deref(), name);
        }
    }
}

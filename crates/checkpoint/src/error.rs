//! Errors of opening and writing checkpoints, sorted by whose fault it is.

use std::fmt;
use std::io;

use storage::{Changed, Location};
use tensor::Diagnostics;

use crate::fault::{Blame, Fault};

/// Why a checkpoint could not be opened, or a value of it not be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file breaks its own format.
    #[error("malformed {0}")]
    Malformed(Box<Report>),
    /// The files are sound, but not what is wanted of them: a missing part, a name that belies the content,
    /// a value of another type.
    #[error("mismatch in {0}")]
    Mismatch(Box<Report>),
    /// Sound, but beyond what this version reads.
    #[error("unsupported {0}")]
    Unsupported(Box<Report>),
    /// The caller's request makes no sense.
    #[error("{0}")]
    Misuse(Box<Report>),
    /// It is not what it was when it was opened.
    #[error("`{location}` has changed since it was opened: {how}")]
    Changed {
        /// The file.
        location: Location,
        /// In what.
        how: Changed,
    },
    /// The operating system refused.
    #[error("cannot {doing} `{location}`: {source}")]
    Io {
        /// The file or directory.
        location: Location,
        /// The operation, as a verb: `open`, `read`, `list`.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
        /// A way to fix it.
        hint: Option<String>,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// The file or directory the error is about.
    pub fn location(&self) -> &Location {
        match self {
            Error::Io { location, .. } | Error::Changed { location, .. } => location,
            Error::Malformed(r) | Error::Mismatch(r) | Error::Unsupported(r) | Error::Misuse(r) => {
                &r.location
            }
        }
    }

    /// Returns true if the checkpoint, or one of its files, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The problems, one by one. [`Error::Io`] and [`Error::Changed`] have none.
    pub fn problems(&self) -> &[Problem] {
        self.report().map_or(&[], |r| &r.problems)
    }

    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::Io { hint, .. } => hint.clone(),
            Error::Changed { .. } => Some("open it again".to_owned()),
            _ => self.report().and_then(|r| r.hint.clone()),
        };
        Diagnostics::of(self, hint)
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Error::Malformed(r) | Error::Mismatch(r) | Error::Unsupported(r) | Error::Misuse(r) => Some(r),
            Error::Io { .. } | Error::Changed { .. } => None,
        }
    }

    pub(crate) fn io(location: impl Into<Location>, doing: &'static str, source: io::Error) -> Error {
        Error::Io { location: location.into(), doing, source, hint: None }
    }

    /// One problem with the whole of what is at `location`.
    pub(crate) fn whole(location: impl Into<Location>, fault: Fault) -> Error {
        Problem { at: None, subject: Subject::Whole, fault }.of(location)
    }

    /// Why a storage did not open a file that a directory holds.
    pub(crate) fn of_member(error: storage::Error) -> Error {
        Error::of(error, true)
    }

    /// Why a storage did not list or open something; `member` if a directory holds it, so that the caller did not choose
    /// it.
    fn of(error: storage::Error, member: bool) -> Error {
        use storage::Error as E;
        match error {
            E::Io { location, doing, source } => Error::io(location, doing, source),
            E::Directory { location } => {
                Error::whole(location, Fault::NotAFile { found: "a directory", member })
            }
            E::NotAFile { location, found } => Error::whole(location, Fault::NotAFile { found, member }),
            E::NotADirectory { location } => {
                let (wants, found) = ("a directory".to_owned(), "a file".to_owned());
                Error::whole(location, Fault::Missing { wants, found })
            }
            E::Outside { location, name, target } => {
                let fault = Fault::Outside { member: name, target };
                Error::whole(location, fault).with_hint("copy the file into the directory")
            }
            E::TooMany { location, limit } => {
                let what = "number of directory entries";
                Error::whole(location, Fault::Limit { what, found: limit.saturating_add(1), limit })
            }
            E::BadName { name } => Error::whole(Location::Named(name.clone()), Fault::NotPlain { name }),
            other => {
                let location = other.location().cloned().unwrap_or(Location::Named(String::new()));
                Error::io(location, "open", io::Error::other(other))
            }
        }
    }

    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Error {
        match &mut self {
            Error::Malformed(r) | Error::Mismatch(r) | Error::Unsupported(r) | Error::Misuse(r) => {
                r.hint = Some(text.into());
            }
            Error::Io { hint, .. } => *hint = Some(text.into()),
            Error::Changed { .. } => {}
        }
        self
    }
}

/// Of what the caller chose.
impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Error {
        Error::of(error, false)
    }
}

/// The problems of one file or directory: at least one, at most [`Report::CAP`] of them.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The file or directory.
    pub location: Location,
    /// The problems, in the order of the file.
    pub problems: Vec<Problem>,
    /// How many more were found.
    pub more: u64,
    /// A way to fix it.
    pub hint: Option<String>,
}

impl Report {
    /// Problems that are kept; the others are counted.
    pub const CAP: usize = 20;
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.location)?;
        if let [only] = &self.problems[..] {
            write!(f, "{only}")?;
        } else {
            write!(f, "{} problems", self.problems.len() as u64 + self.more)?;
            for problem in &self.problems {
                write!(f, "\n  {problem}")?;
            }
            if self.more > 0 {
                write!(f, "\n  and {} more", self.more)?;
            }
        }
        Ok(())
    }
}

/// One thing that is wrong: where, with what, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Byte offset from the start of the file.
    pub at: Option<u64>,
    /// The key, tensor or part that is at fault.
    pub subject: Subject,
    /// The fault.
    pub fault: Fault,
}

impl Problem {
    /// The error that consists of this problem alone.
    pub(crate) fn of(self, location: impl Into<Location>) -> Error {
        let mut problems = Problems::default();
        problems.push(self);
        problems.into_error(location)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Whole => {}
            Subject::Key(key) => write!(f, "key {}: ", Quoted(key))?,
            Subject::Tensor(name) => write!(f, "tensor {}: ", Quoted(name))?,
        }
        write!(f, "{}", self.fault)?;
        match self.at {
            Some(at) => write!(f, " (at byte {at})"),
            None => Ok(()),
        }
    }
}

/// The subject of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The file or directory as a whole.
    Whole,
    /// A metadata key.
    Key(String),
    /// A tensor.
    Tensor(String),
}

/// Problems as they are found.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    more: u64,
}

impl Problems {
    pub(crate) fn push(&mut self, problem: Problem) {
        if self.list.len() < Report::CAP {
            self.list.push(problem);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Takes over what is wrong with the file `name` of the directory that is reported on.
    pub(crate) fn member(&mut self, name: &str, error: Error) {
        let (Error::Malformed(report)
        | Error::Mismatch(report)
        | Error::Unsupported(report)
        | Error::Misuse(report)) = error
        else {
            return;
        };
        self.more = self.more.saturating_add(report.more);
        for problem in report.problems {
            if matches!(problem.fault, Fault::Outside { .. }) {
                // States the file that it is about.
                self.push(problem);
                continue;
            }
            let fault = Fault::Member { name: name.to_owned(), problem: Box::new(problem) };
            self.push(Problem { at: None, subject: Subject::Whole, fault });
        }
    }

    /// Whether so much is wrong that reading on is a waste.
    pub(crate) fn enough(&self) -> bool {
        self.more >= 1000
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns `Ok` if there are no problems.
    pub(crate) fn check(self, location: impl Into<Location>) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { Err(self.into_error(location)) }
    }

    /// The error that reports them; the worst decides whose fault it is.
    pub(crate) fn into_error(self, location: impl Into<Location>) -> Error {
        let blame = self.list.iter().map(|p| p.fault.blame()).max().unwrap_or(Blame::Malformed);
        let hint = self.list.iter().find_map(|p| p.fault.hint()).map(str::to_owned);
        let location = location.into();
        let report = Box::new(Report { location, problems: self.list, more: self.more, hint });
        match blame {
            Blame::Unsupported => Error::Unsupported(report),
            Blame::Misuse => Error::Misuse(report),
            Blame::Mismatch => Error::Mismatch(report),
            Blame::Malformed => Error::Malformed(report),
        }
    }
}

/// A stranger's text in backticks: control characters escaped, cut at 96 characters.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 96;
        f.write_str("`")?;
        for c in self.0.chars().take(SHOWN) {
            // `escape_debug` leaves letters of every script alone, and would escape quotes needlessly.
            if matches!(c, '"' | '\'') { write!(f, "{c}")? } else { write!(f, "{}", c.escape_debug())? }
        }
        f.write_str(if self.0.chars().nth(SHOWN).is_some() { "…`" } else { "`" })
    }
}

/// Names, a few at most, and how many more.
pub(crate) fn a_few<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let shown: Vec<_> = names.take(SHOWN).map(|n| Quoted(n).to_string()).collect();
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn duplicate(name: &str) -> Problem {
        Problem { at: Some(7), subject: Subject::Tensor(name.into()), fault: Fault::Duplicate { first: 3 } }
    }

    #[test]
    fn problems_over_the_cap_are_counted() {
        let mut problems = Problems::default();
        for i in 0..25 {
            problems.push(duplicate(&format!("t{i}")));
        }
        let text = problems.into_error(Path::new("x.gguf")).to_string();
        assert!(text.starts_with("malformed `x.gguf`: 25 problems\n  tensor `t0`: "), "{text}");
        assert!(text.ends_with("\n  and 5 more"), "{text}");
        assert_eq!(text.lines().count(), 1 + Report::CAP + 1);
    }

    #[test]
    fn a_name_from_a_file_cannot_speak_to_the_terminal() {
        assert_eq!(Quoted("a\u{1b}[31m\n\"é\"").to_string(), "`a\\u{1b}[31m\\n\"é\"`");
        assert_eq!(Quoted(&"x".repeat(500)).to_string().chars().count(), 96 + 3);
    }

    #[test]
    fn a_malformed_problem_outweighs_an_unsupported_one() {
        let mut problems = Problems::default();
        let fault = Fault::TypeRemoved { id: 4, name: "Q4_2", instead: "requantise" };
        problems.push(Problem { at: None, subject: Subject::Tensor("a".into()), fault });
        problems.push(duplicate("b"));
        assert!(matches!(problems.into_error(Path::new("x")), Error::Malformed(_)));
    }
}

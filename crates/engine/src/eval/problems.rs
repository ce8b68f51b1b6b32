//! What is wrong with the rows of tasks: everything at once, equal problems together.

use std::fmt;

use crate::Error;

/// A problem of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowProblem {
    /// The file.
    pub path: String,
    /// The first line that has it, from 1.
    pub line: usize,
    /// The last line that has it.
    pub last: usize,
    /// The number of lines that have it.
    pub lines: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for RowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}:{}`: {}", self.path, self.line, self.what)?;
        match self.lines {
            0 | 1 => Ok(()),
            lines => write!(f, " (and {} more, the last in line {})", lines - 1, self.last),
        }
    }
}

/// Problems as they are found.
#[derive(Default)]
pub(super) struct Problems(Vec<RowProblem>);

impl Problems {
    pub(super) fn add(&mut self, path: &str, line: usize, what: impl Into<String>) {
        let what = what.into();
        match self.0.iter_mut().find(|known| known.what == what && known.path == path) {
            Some(known) => (known.last, known.lines) = (line, known.lines + 1),
            None => self.0.push(RowProblem { path: path.to_owned(), line, last: line, lines: 1, what }),
        }
    }

    /// Whether nothing is wrong with the file.
    pub(super) fn are_none_of(&self, path: &str) -> bool {
        self.0.iter().all(|problem| problem.path != path)
    }

    /// All of them as an error, if there are any.
    pub(super) fn none(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Rows { problems: self.0 }) }
    }
}

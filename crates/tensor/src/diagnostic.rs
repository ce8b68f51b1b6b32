//! What an error says, in parts: each problem, and what to do about it.

use std::fmt;

/// One problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl Diagnostic {
    /// A problem without a hint.
    pub fn new(what: impl Into<String>) -> Diagnostic {
        Diagnostic { what: what.into(), hints: vec![] }
    }

    /// Adds a hint, if there is one.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Option<String>>) -> Diagnostic {
        self.hints.extend(hint.into());
        self
    }
}

/// The problem, then each hint on a line of its own.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hints.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl From<String> for Diagnostic {
    fn from(what: String) -> Diagnostic {
        Diagnostic::new(what)
    }
}

/// Everything that an error says, problem by problem.
///
/// `Display` shows each problem followed by its hints, as people read it. [`Diagnostics::problems`] and
/// [`Diagnostics::hints`] give each alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// What `error` says as a whole, as one problem, with `hints`.
    pub fn of(error: &impl fmt::Display, hints: impl IntoIterator<Item = String>) -> Diagnostics {
        Diagnostics(vec![Diagnostic { what: error.to_string(), hints: hints.into_iter().collect() }])
    }

    /// The problems, one on each line.
    pub fn problems(&self) -> String {
        self.0.iter().map(|d| d.what.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The hints, in the order of the problems.
    pub fn hints(&self) -> Vec<String> {
        self.0.iter().flat_map(|d| d.hints.iter().cloned()).collect()
    }

    /// Adds a hint, if there is one, after all that is said.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Option<String>>) -> Diagnostics {
        if let Some(last) = self.0.last_mut() {
            last.hints.extend(hint.into());
        }
        self
    }

    /// Puts `heading` on a line before the first problem.
    #[must_use]
    pub fn under(mut self, heading: &str) -> Diagnostics {
        if let Some(first) = self.0.first_mut() {
            first.what = format!("{heading}\n{}", first.what);
        }
        self
    }

    /// The problems one by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            write!(f, "{}{diagnostic}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl FromIterator<Diagnostic> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = Diagnostic>>(all: I) -> Diagnostics {
        Diagnostics(all.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Diagnostics {
        Diagnostics(vec![one])
    }
}

impl From<String> for Diagnostics {
    fn from(what: String) -> Diagnostics {
        Diagnostic::new(what).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_followed_by_its_hints() {
        let hint = |text: &str| Some(text.to_owned());
        let all: Diagnostics = [
            Diagnostic::new("`a` is missing").with_hint(hint("was it renamed?")),
            Diagnostic::new("`b` is missing").with_hint(None),
        ]
        .into_iter()
        .collect();
        let all = all.under("it does not fit:").with_hint(hint("list the tensors"));
        assert_eq!(
            all.to_string(),
            "it does not fit:\n`a` is missing\nhint: was it renamed?\n`b` is missing\nhint: list the tensors"
        );
        assert_eq!(all.problems(), "it does not fit:\n`a` is missing\n`b` is missing");
        assert_eq!(all.hints(), ["was it renamed?", "list the tensors"]);
    }
}

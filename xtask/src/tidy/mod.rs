//! `cargo xtask tidy`: checks that no compiler makes.

mod circles;
mod crates;
mod links;
mod sizes;
mod words;

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::workspace;

/// A text file of the repository.
struct Text {
    /// Relative to the root, with `/`.
    path: String,
    content: String,
}

/// One thing that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    /// From 1; 0 is the file as a whole.
    line: usize,
    what: String,
    /// False for what only asks for attention.
    fatal: bool,
}

impl Problem {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), fatal: true }
    }
}

/// Runs every check and prints all that they find.
///
/// # Errors
/// Something found is more than a warning.
pub(crate) fn run() -> Result<()> {
    let files = workspace::files()?;
    let texts: Vec<Text> = files.iter().filter_map(read).collect();
    let mut problems = crates::check(&workspace::metadata()?, &texts);
    problems.extend(circles::check(&texts));
    problems.extend(sizes::check(&texts));
    problems.extend(words::check(&texts));
    problems.extend(words::check_messages(&texts));
    problems.extend(words::check_names(&files));
    problems.extend(links::check(&texts, &files));
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));

    for problem in &problems {
        let kind = if problem.fatal { "error" } else { "warning" };
        match problem.line {
            0 => println!("{kind}: {}: {}", problem.path, problem.what),
            line => println!("{kind}: {}:{line}: {}", problem.path, problem.what),
        }
    }
    let fatal = problems.iter().filter(|problem| problem.fatal).count();
    if fatal > 0 {
        bail!("tidy found {fatal} {}", if fatal == 1 { "problem" } else { "problems" });
    }
    println!("tidy: {} files are in order", files.len());
    Ok(())
}

/// The file as text, if it is of a kind that people write.
fn read(path: &PathBuf) -> Option<Text> {
    const WRITTEN: &[&str] = &["rs", "md", "toml", "py", "sh", "c", "cpp", "h"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    let script = path.starts_with(".ci");
    if !script && !extension.is_some_and(|extension| WRITTEN.contains(&extension)) {
        return None;
    }
    let content = fs::read_to_string(workspace::root().join(path)).ok()?;
    Some(Text { path: path.to_string_lossy().replace('\\', "/"), content })
}

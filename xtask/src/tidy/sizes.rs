//! Files that a person can hold in mind.

use super::{Problem, Text};

const WARN: usize = 600;
const FAIL: usize = 900;
/// The marker in the first lines of a file whose length is no problem.
const FLAT: &str = "// A flat table:";

/// Warns of long Rust files and refuses very long ones.
pub(super) fn check(texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for text in texts.iter().filter(|text| is_rust(&text.path)) {
        let lines = text.content.lines().count();
        let flat = text.content.lines().take(5).any(|line| line.starts_with(FLAT));
        if lines > WARN && !flat {
            let what = format!(
                "has {lines} lines; {WARN} is the most that is easy to read, {FAIL} the most that is taken \
                 (a flat table says `{FLAT} …` in its first lines)"
            );
            let problem = Problem::new(&text.path, 0, what);
            problems.push(Problem { fatal: lines > FAIL, ..problem });
        }
    }
    problems
}

fn is_rust(path: &str) -> bool {
    std::path::Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_warn_and_longer_ones_fail() {
        let text = |path: &str, lines: usize| Text { path: path.into(), content: "x\n".repeat(lines) };
        let mut table = text("table.rs", 2000);
        table.content.insert_str(0, "//! Names.\n// A flat table: one row a name.\n");
        let texts = [text("a.rs", 600), text("b.rs", 601), text("c.rs", 901), text("d.md", 901), table];
        let found: Vec<_> = check(&texts).into_iter().map(|problem| (problem.path, problem.fatal)).collect();
        assert_eq!(found, [("b.rs".to_owned(), false), ("c.rs".to_owned(), true)]);
    }
}

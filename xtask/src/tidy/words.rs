//! Names and words that do not belong in the repository.

use std::path::PathBuf;

use super::{Problem, Text};

/// A file or folder called so says nothing of what is in it.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

/// Left-overs, as written (with the reason). Put together here so that this file does not hold them.
const LEFT_OVERS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "do it or open an issue"),
    (concat!("FIX", "ME"), "fix it or open an issue"),
    (concat!("to", "do!("), "no stubs"),
    (concat!("unimple", "mented!("), "no stubs"),
    (concat!("#[", "ignore"), "a test that does not run is none"),
    (concat!("../", "shared"), "not part of this repository"),
];

/// Turns of phrase that make a reader stumble, in lower case, and plainer ones.
const TURNS: &[(&str, &str)] = &[
    (concat!("so", " many"), "a count is `n` or `the number of …`"),
    (concat!("that", " which"), "say what it is"),
    (concat!("is to", " be had"), "say who has it"),
    (concat!("in the", " place of"), "`instead of`, or a verb"),
    (concat!("by", " way of"), "`through`, `by` or `as`"),
];

/// Looks for left-overs in every text, and for turns of phrase.
pub(super) fn check(texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for text in texts {
        for (index, line) in text.content.lines().enumerate() {
            for (word, why) in LEFT_OVERS {
                if holds(line, word) {
                    problems.push(Problem::new(&text.path, index + 1, format!("`{word}`: {why}")));
                }
            }
            let lower = line.to_lowercase();
            for (turn, why) in TURNS.iter().filter(|(turn, _)| holds(&lower, turn)) {
                problems.push(Problem::new(&text.path, index + 1, format!("`{turn}`: {why}")));
            }
        }
    }
    problems
}

/// Looks in libraries for messages with the hint inside, which an error gives beside its message, and for options of the
/// command line, which the command alone knows.
pub(super) fn check_messages(texts: &[Text]) -> Vec<Problem> {
    const HINT: &str = "a hint stands beside the message: `tensor::Diagnostic`";
    const OPTION: &str = "a library knows no options of the command line";
    let mut problems = Vec::new();
    for text in texts.iter().filter(|text| is_library(&text.path)) {
        let code = text.content.lines().take_while(|line| *line != "#[cfg(test)]");
        for (index, line) in code.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let writes_them = text.path == "crates/tensor/src/diagnostic.rs";
            let hint = [concat!("\\n", "hint:"), concat!("\"", "hint:")].iter().any(|h| line.contains(h));
            let what = if hint && !writes_them {
                HINT
            } else if has_option(line) {
                OPTION
            } else {
                continue;
            };
            problems.push(Problem::new(&text.path, index + 1, what));
        }
    }
    problems
}

/// Whether the file is of a crate that others use.
fn is_library(path: &str) -> bool {
    let of = path.strip_prefix("crates/").filter(|path| path.contains("/src/") && path.ends_with(".rs"));
    of.is_some_and(|of| !of.starts_with("cli/") && !of.starts_with("testkit/"))
}

/// True when `line` has a word that begins with `--`.
fn has_option(line: &str) -> bool {
    line.match_indices("--").any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_some_and(|c| matches!(c, '"' | ' ' | '`' | '('))
            && line[at + 2..].starts_with(|c: char| c.is_ascii_lowercase())
    })
}

/// True when `line` has `word`, and not as part of a longer one.
fn holds(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts = word.starts_with(joins) && before.is_some_and(joins);
        let ends = word.ends_with(joins) && after.is_some_and(joins);
        !starts && !ends
    })
}

/// Looks for empty names among files and folders.
pub(super) fn check_names(files: &[PathBuf]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files {
        for part in file.components() {
            let part = part.as_os_str().to_string_lossy();
            let stem = part.split('.').next().unwrap_or_default();
            if EMPTY_NAMES.contains(&stem) {
                let what = format!("`{stem}` names nothing: call it by what is in it");
                problems.push(Problem::new(&file.to_string_lossy(), 0, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_overs_are_found_as_whole_words() {
        let content = concat!(
            "// TO",
            "DO: later\n",
            "const MASTO",
            "DON: u8 = 0;\n",
            "to",
            "do!()\n",
            "see ../",
            "shared/NOTES.md\n",
            "#[",
            "ignore = \"slow\"]\n",
            "an ignored file\n",
        );
        let text = Text { path: "a.rs".into(), content: content.into() };
        let lines: Vec<_> = check(&[text]).into_iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [1, 3, 4, 5]);
    }

    #[test]
    fn hints_and_options_within_messages_are_found_in_libraries() {
        let content = concat!(
            "#[error(\"no\\n",
            "hint: yes\")]\n",
            "let what = \"use `",
            "--force`\";\n",
            "// as `",
            "--force` does\n",
            "let hint: String = a - b;\n",
            "#[cfg(test)]\n",
            "assert_eq!(said, \"no\\n",
            "hint: yes\")\n",
        );
        let of = |path: &str| Text { path: path.into(), content: content.into() };
        let texts = ["crates/plan/src/a.rs", "crates/plan/tests/it/a.rs", "crates/cli/src/a.rs"].map(of);
        let found: Vec<_> = check_messages(&texts).into_iter().map(|p| (p.path, p.line)).collect();
        assert_eq!(found, [("crates/plan/src/a.rs".to_owned(), 1), ("crates/plan/src/a.rs".to_owned(), 2)]);
    }

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        let paths = ["src/utils.rs", "src/common/mod.rs", "src/commons.rs", "src/misc", "src/utility.rs"];
        let files: Vec<_> = paths.iter().map(PathBuf::from).collect();
        let found: Vec<_> = check_names(&files).into_iter().map(|problem| problem.path).collect();
        assert_eq!(found, ["src/utils.rs", "src/common/mod.rs", "src/misc"]);
    }
}

//! Documentation that points at what is there: links and anchors, tasks and paths.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use super::{Problem, Text};
use crate::TASKS;

/// Folders whose paths, written in backticks, must exist.
const FOLDERS: &[&str] =
    &["crates", "xtask", "golden", "docs", "examples", "benches", "fuzz", ".ci", ".cargo"];

/// Checks every Markdown file against the files of the repository.
pub(super) fn check(texts: &[Text], files: &[PathBuf]) -> Vec<Problem> {
    let known = known_paths(files);
    let pages: HashMap<&str, Page> = texts
        .iter()
        .filter(|text| Path::new(&text.path).extension().is_some_and(|extension| extension == "md"))
        .map(|text| (text.path.as_str(), Page::read(&text.content)))
        .collect();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for (line, target) in &page.links {
            if let Some(what) = link_fault(path, target, &known, &pages) {
                problems.push(Problem::new(path, *line, what));
            }
        }
        for (line, code) in &page.codes {
            if let Some(what) = code_fault(code, &known) {
                problems.push(Problem::new(path, *line, what));
            }
        }
    }
    problems
}

/// All files and the folders that hold them, relative to the root.
fn known_paths(files: &[PathBuf]) -> HashSet<PathBuf> {
    let folders = files.iter().flat_map(|file| file.ancestors().skip(1).map(Path::to_path_buf));
    files.iter().cloned().chain(folders).collect()
}

fn link_fault(
    page: &str,
    target: &str,
    known: &HashSet<PathBuf>,
    pages: &HashMap<&str, Page>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let to = if file.is_empty() {
        PathBuf::from(page)
    } else {
        let folder = Path::new(page).parent().unwrap_or(Path::new(""));
        match within(&folder.join(file)) {
            Some(to) => to,
            None => return Some(format!("the link `{target}` leads out of the repository")),
        }
    };
    if !known.contains(&to) {
        return Some(format!("the link `{target}` leads to nothing: there is no `{}`", to.display()));
    }
    let anchor = anchor?;
    let found = pages.get(to.to_string_lossy().as_ref())?;
    (!found.anchors.contains(anchor))
        .then(|| format!("the link `{target}` leads to no heading of `{}`", to.display()))
}

/// The path without `.` and `..`; `None` if it leaves the root.
fn within(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::ParentDir if out.pop() => {}
            _ => return None,
        }
    }
    Some(out)
}

fn code_fault(code: &str, known: &HashSet<PathBuf>) -> Option<String> {
    if let Some(rest) = code.strip_prefix("cargo xtask ") {
        let task = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
        let exists = task.is_empty() || TASKS.iter().any(|(name, _)| *name == task);
        return (!exists).then(|| format!("`{code}`: there is no task `{task}`"));
    }
    let in_repository = FOLDERS.iter().any(|folder| code.starts_with(&format!("{folder}/")));
    let plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if in_repository && plain && !known.contains(Path::new(code.trim_end_matches('/'))) {
        return Some(format!("there is no `{code}`"));
    }
    None
}

/// The parts of a Markdown file that can be checked, with line numbers from 1.
#[derive(Default)]
struct Page {
    anchors: HashSet<String>,
    links: Vec<(usize, String)>,
    codes: Vec<(usize, String)>,
}

impl Page {
    fn read(content: &str) -> Self {
        let mut page = Self::default();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut fence: Option<&str> = None;
        for (index, line) in content.lines().enumerate() {
            let number = index + 1;
            let start = line.trim_start();
            let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
            match (fence, mark) {
                (Some(open), Some(mark)) if open == mark => fence = None,
                (None, Some(mark)) => fence = Some(mark),
                (None, None) => page.read_line(number, line, &mut seen),
                // A task shown as a command must exist too.
                (Some(_), _) => {
                    let typed = start.trim_start_matches("$ ");
                    if typed.starts_with("cargo xtask ") {
                        page.codes.push((number, typed.to_owned()));
                    }
                }
            }
        }
        page
    }

    fn read_line(&mut self, number: usize, line: &str, seen: &mut HashMap<String, usize>) {
        let text = line.trim_start_matches('#');
        let level = line.len() - text.len();
        if (1..=6).contains(&level) && text.starts_with(' ') {
            let base = slug(text);
            let count = seen.entry(base.clone()).or_insert(0);
            self.anchors.insert(if *count == 0 { base } else { format!("{base}-{count}") });
            *count += 1;
        }
        let mut prose = String::new();
        for (index, part) in line.split('`').enumerate() {
            if index % 2 == 0 {
                prose.push_str(part);
            } else {
                self.codes.push((number, part.to_owned()));
                prose.push('`');
            }
        }
        for (at, _) in prose.match_indices("](") {
            let rest = &prose[at + 2..];
            if let Some(end) = rest.find([')', ' ']) {
                self.links.push((number, rest[..end].to_owned()));
            }
        }
        let reference = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = reference {
            self.links.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
}

/// The anchor of a heading: lower case, spaces to hyphens, nothing but letters, digits, `-` and `_`.
fn slug(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ if c.is_alphanumeric() => Some(c),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str) -> Vec<(usize, String)> {
        let other = "# The `plan` crate, in short\n## Twice\n## Twice\n";
        let text = |path: &str, content: &str| Text { path: path.into(), content: content.into() };
        let files = ["README.md", "docs/PLAN.md", "crates/plan/src/lib.rs"].map(PathBuf::from);
        let texts = [text("README.md", readme), text("docs/PLAN.md", other)];
        check(&texts, &files).into_iter().map(|problem| (problem.line, problem.what)).collect()
    }

    #[test]
    fn what_is_there_is_fine() {
        let readme = "# Here\n[a](docs/PLAN.md) [b](docs/PLAN.md#the-plan-crate-in-short) [c](#here)\n\
                      [d](docs) [e](docs/PLAN.md#twice-1) [f](https://example.org/x) `[g](none.md)`\n\
                      `cargo xtask tidy` `cargo xtask [NAME…]` `crates/plan/src/lib.rs` `crates/*/src` `crates/`\n\
                      ```\n[h](none.md)\n$ cargo xtask models smollm2\n```\n[ref]: docs/PLAN.md\n";
        assert_eq!(found(readme), []);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let readme = "[a](none.md)\n[b](docs/PLAN.md#none)\n[c](../out.md)\n`cargo xtask fly`\n\
                      `crates/none/src`\n```sh\ncargo xtask soar\n```\n[ref]: none.md\n[x](docs/PLAN.md#twice-2)\n";
        let mut lines: Vec<_> = found(readme).into_iter().map(|(line, _)| line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 2, 3, 4, 5, 7, 9, 10]);
    }
}

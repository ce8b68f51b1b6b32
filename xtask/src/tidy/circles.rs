//! Finds circles between the files of a crate: to read one of them, one has to read all.
//!
//! A file uses another if it names something that the other defines: by `use`, or by a path that begins with `crate`,
//! `self`, `super`, a submodule or an imported module. A name is followed through the modules that pass it on
//! (`pub use`) to the file that defines it, so that passing on does not count as using, and a module that only declares and
//! passes on is on no circle. Methods and fields are not tracked, and tests are left out.
//!
//! On a circle, a module and its own submodules count as one file: that they belong together is what the folder says, and
//! a table (families, schemes, formats) lists files that implement its trait.

mod source;

use std::collections::{BTreeMap, BTreeSet};

use super::{Problem, Text};
use source::{Path, Source};

/// The most files that may be on one circle.
const MOST: usize = 3;

/// Finds the circles of every crate.
pub(super) fn check(texts: &[Text]) -> Vec<Problem> {
    let roots = texts.iter().filter_map(|text| {
        let folder = text.path.strip_suffix("lib.rs").or_else(|| text.path.strip_suffix("main.rs"))?;
        folder.ends_with("src/").then_some((folder, text))
    });
    roots.flat_map(|(folder, root)| Crate::of(folder, root, texts).problems()).collect()
}

/// A crate: its files by the path of their module, the root's empty.
struct Crate<'t> {
    files: BTreeMap<Path, File<'t>>,
}

struct File<'t> {
    path: &'t str,
    source: Source,
}

/// The target of a path.
enum Target {
    Module(Path),
    /// Something that this module defines.
    Item(Path),
}

/// Names that each file uses of others, by the modules of both.
type Uses = BTreeMap<Path, BTreeMap<Path, BTreeSet<String>>>;

impl<'t> Crate<'t> {
    /// Reads the declared files of `folder`, from `root` on.
    fn of(folder: &str, root: &'t Text, texts: &'t [Text]) -> Crate<'t> {
        let mut files = BTreeMap::new();
        let mut open = vec![(Path::new(), root)];
        while let Some((module, text)) = open.pop() {
            let source = Source::of(&text.content);
            for name in source.modules.difference(&source.for_tests) {
                let child: Path = module.iter().chain([name]).cloned().collect();
                let stem = format!("{folder}{}", child.join("/"));
                let is_it = |t: &&Text| t.path == format!("{stem}.rs") || t.path == format!("{stem}/mod.rs");
                open.extend(texts.iter().find(is_it).map(|text| (child, text)));
            }
            files.insert(module, File { path: &text.path, source });
        }
        Crate { files }
    }

    /// Resolves `path`, as `module` writes it; `None` if it leads to another crate.
    fn resolve(&self, module: &Path, path: &[String], depth: usize) -> Option<Target> {
        let (mut now, mut rest) = (module.clone(), path);
        let mut own = false;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => now.clear(),
                "super" => drop(now.pop()),
                "self" => {}
                _ => break,
            }
            (rest, own) = (after, true);
        }
        // Names that import each other in a circle lead nowhere.
        if depth > 32 {
            return None;
        }
        while let Some((first, after)) = rest.split_first() {
            let child: Path = now.iter().chain([first]).cloned().collect();
            if self.files.contains_key(&child) {
                (now, rest, own) = (child, after, true);
                continue;
            }
            let source = &self.files.get(&now)?.source;
            let named = source.imports.iter().filter(|i| i.name == *first);
            // Its own name is not what an import of it leads through.
            let named =
                named.filter(|i| i.path != path || own).find_map(|i| self.resolve(&now, &i.path, depth + 1));
            let all = || {
                let globs = source.imports.iter().filter(|i| i.name == "*" && i.path[..] != *path);
                let mut within = globs.filter_map(|i| match self.resolve(&now, &i.path, depth + 1)? {
                    Target::Module(m) if m != now && self.names(&m, first) => {
                        self.resolve(&m, rest, depth + 1)
                    }
                    _ => None,
                });
                within.next()
            };
            match named.or_else(all) {
                Some(Target::Module(module)) => (now, rest, own) = (module, after, true),
                Some(item) => return Some(item),
                None if own => return Some(Target::Item(now)),
                None => return None,
            }
        }
        own.then_some(Target::Module(now))
    }

    /// Whether `module` declares or imports `name`.
    fn names(&self, module: &Path, name: &str) -> bool {
        let child: Path = module.iter().map(String::as_str).chain([name]).map(str::to_owned).collect();
        let imports = |file: &File<'_>| file.source.imports.iter().any(|i| i.name == name);
        self.files.contains_key(&child) || self.files.get(module).is_some_and(imports)
    }

    /// Returns the names that each file uses of others.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, file) in &self.files {
            let imports = file.source.imports.iter().filter(|import| !import.passed_on).map(|i| &i.path);
            for path in imports.chain(&file.source.paths) {
                let Some(Target::Item(target) | Target::Module(target)) = self.resolve(module, path, 0)
                else {
                    continue;
                };
                if target != *module {
                    let name = path.last().cloned().unwrap_or_default();
                    uses.entry(module.clone()).or_default().entry(target).or_default().insert(name);
                }
            }
        }
        uses
    }

    fn problems(&self) -> Vec<Problem> {
        let uses = self.uses();
        let circles = circles(self.files.keys(), &uses);
        circles
            .into_iter()
            .filter(|circle| count(circle) > MOST)
            .map(|circle| self.problem(&circle, &uses))
            .collect()
    }

    fn problem(&self, circle: &BTreeSet<&Path>, uses: &Uses) -> Problem {
        let edges = circle.iter().flat_map(|from| {
            let within = uses.get(*from).into_iter().flatten().filter(|(to, _)| circle.contains(to));
            within.map(|(to, names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("\n  `{}` uses `{}` ({})", from.join("::"), to.join("::"), names.join(", "))
            })
        });
        let what = format!(
            "is on a circle of {} files, {MOST} are the most:{}",
            count(circle),
            edges.collect::<String>()
        );
        let first = circle.first().and_then(|module| self.files.get(*module));
        Problem::new(first.map_or("", |file| file.path), 0, what)
    }
}

/// How many files a circle is of: submodules count with the first of their parents that is on it.
fn count(circle: &BTreeSet<&Path>) -> usize {
    let below = |module: &Path| (1..module.len()).any(|n| circle.contains(&module[..n].to_vec()));
    circle.iter().filter(|module| !below(module)).count()
}

/// The sets of modules that all reach each other.
fn circles<'m>(modules: impl Iterator<Item = &'m Path>, uses: &'m Uses) -> Vec<BTreeSet<&'m Path>> {
    let reach = |from: &'m Path| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for to in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = modules.map(|module| (module, reach(module))).collect();
    let circle = |(module, there): (&&'m Path, &BTreeSet<&'m Path>)| -> BTreeSet<&'m Path> {
        there
            .iter()
            .copied()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(*module)))
            .collect()
    };
    reached.iter().map(circle).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a crate of these files, each by its first line and how many follow.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let text = |(path, content): &(&str, &str)| Text {
            path: format!("crates/a/src/{path}.rs"),
            content: (*content).to_owned(),
        };
        let texts: Vec<Text> = files.iter().map(text).collect();
        check(&texts).into_iter().map(|problem| format!("{}: {}", problem.path, problem.what)).collect()
    }

    const ROOT: &str = "mod a; mod b; mod c; mod d; pub use b::B; pub use c::C;";
    const D: (&str, &str) = ("d", "use crate::a::A; pub struct D;");

    #[test]
    fn four_files_in_a_circle_are_named_with_what_they_use() {
        let files = |a: &'static str| {
            [("lib", ROOT), ("a", a), ("b", "use super::c;\n use c::C;"), ("c", "fn f() { crate::d::D }"), D]
        };
        // Through the name that the root passes on, by `super`, and by a path.
        assert_eq!(
            found(&files("use crate::B; pub struct A;")),
            [
                "crates/a/src/a.rs: is on a circle of 4 files, 3 are the most:\n  `a` uses `b` (B)\n  `b` uses `c` (C, c)\n  \
              `c` uses `d` (D)\n  `d` uses `a` (A)"
            ]
        );
        assert_eq!(found(&files("pub struct A;")), [""; 0]);
        assert_eq!(found(&files("#[cfg(test)] mod tests { use crate::B; }")), [""; 0]);
    }

    #[test]
    fn three_files_may_be_on_a_circle() {
        let (a, b) = ("use crate::B;", "use crate::{C, Other};");
        assert_eq!(found(&[("lib", ROOT), ("a", a), ("b", b), ("c", "use crate::a::A;"), D]), [""; 0]);
    }

    #[test]
    fn a_table_and_its_rows_count_as_one_file() {
        let rows = "mod w; mod x; mod y; mod z; pub trait Row {} static ROWS: &[&dyn Row] = &[&w::W, &x::X, &y::Y, &z::Z];";
        let row = |name: &'static str| (name, "use super::Row; use crate::b::B;");
        let table = |b: &'static str, c: &'static str| {
            [
                ("lib", ROOT),
                ("a/mod", rows),
                row("a/w"),
                row("a/x"),
                row("a/y"),
                row("a/z"),
                ("b", b),
                ("c", c),
                D,
            ]
        };
        assert_eq!(found(&table("use crate::a::Row;", "")), [""; 0]);
        let longer = found(&table("use crate::c::C;", "use crate::d::D;"));
        assert!(longer.len() == 1 && longer[0].contains("a circle of 4 files"), "{longer:?}");
    }

    #[test]
    fn a_parent_that_only_passes_on_is_on_no_circle() {
        let parent = "mod x; mod y; pub(crate) use x::X; pub(crate) use y::Y;";
        let child = |path| (path, "use crate::b::B;");
        let files = |b| {
            [("lib", ROOT), ("a", parent), child("a/x"), ("a/y", ""), ("b", b), ("c", "use crate::a::X;")]
        };
        assert_eq!(found(&files("use crate::c::C; use crate::a::Y;")), [""; 0]);
        assert_eq!(found(&files("use crate::c::C; use crate::a::*;")), [""; 0]);
    }
}

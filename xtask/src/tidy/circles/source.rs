//! One source file: the modules that it declares, the names that it imports, and the paths that it follows.

use std::collections::BTreeSet;

/// A path as it is written: `crate`, `plan`, `Piece`.
pub(super) type Path = Vec<String>;

/// The references of one file to others, without tests.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Submodules in files of their own.
    pub(super) modules: BTreeSet<String>,
    /// Modules of those that only tests have.
    pub(super) for_tests: BTreeSet<String>,
    /// Every `use`.
    pub(super) imports: Vec<Import>,
    /// Every other path of two or more segments.
    pub(super) paths: BTreeSet<Path>,
}

/// One name that a `use` brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// Its name here; `*` for all names.
    pub(super) name: String,
    /// Where it comes from.
    pub(super) path: Path,
    /// Others find it here too: it is passed on, and not used.
    pub(super) passed_on: bool,
}

impl Source {
    /// Reads a file.
    pub(super) fn of(text: &str) -> Source {
        let tokens = tokens(text);
        let mut reader = Reader { tokens: &tokens, at: 0, inline: 0, source: Source::default() };
        reader.items();
        reader.source
    }
}

struct Reader<'t> {
    tokens: &'t [String],
    at: usize,
    /// How many modules of this file the next token is inside of.
    inline: usize,
    source: Source,
}

impl Reader<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    /// Reads up to the end, or to the brace that closes what was opened before.
    fn items(&mut self) {
        let (mut passed_on, mut last) = (false, String::new());
        while self.at < self.tokens.len() {
            let token = self.next();
            match token.as_str() {
                "#" if self.attribute() => self.skip_item(),
                "{" => self.items(),
                "}" => return,
                "pub" => {
                    passed_on = true;
                    if self.peek() == "(" {
                        self.skip_group();
                    }
                    continue;
                }
                "use" => self.import(passed_on),
                "mod" => self.module(),
                _ if is_name(&token) && last != "::" && last != "." => self.path(token.clone()),
                _ => {}
            }
            (passed_on, last) = (false, token);
        }
    }

    /// Passes over an attribute, whose `#` was read; whether it is that of a test.
    fn attribute(&mut self) -> bool {
        let start = self.at;
        if self.peek() == "!" {
            self.at += 1;
        }
        if self.peek() != "[" {
            return false;
        }
        self.skip_group();
        let words: Vec<&str> = self.tokens[start..self.at].iter().map(String::as_str).collect();
        let only_test = words.iter().enumerate().any(|(i, word)| *word == "test" && words[i - 2] != "not");
        words.contains(&"cfg") && only_test && !words.contains(&"any")
    }

    /// Passes over what a bracket opens.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.next().as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes over an item of tests, and notes it if it is a file.
    fn skip_item(&mut self) {
        let start = self.at;
        while self.at < self.tokens.len() {
            match self.peek() {
                "(" | "[" => self.skip_group(),
                "{" => return self.skip_group(),
                ";" => break,
                _ => self.at += 1,
            }
        }
        if let [.., word, name] = &self.tokens[start..self.at.min(self.tokens.len())]
            && word == "mod"
        {
            self.source.for_tests.insert(name.clone());
        }
    }

    fn module(&mut self) {
        let name = self.next();
        if self.peek() == "{" {
            self.at += 1;
            self.inline += 1;
            self.items();
            self.inline -= 1;
        } else {
            self.source.modules.insert(name);
        }
    }

    /// The tree of a `use`.
    fn import(&mut self, passed_on: bool) {
        let mut found = vec![];
        self.tree(&[], &mut found);
        for (name, path) in found {
            if let Some(path) = self.outside(path) {
                self.source.imports.push(Import { name, path, passed_on });
            }
        }
    }

    fn tree(&mut self, before: &[String], found: &mut Vec<(String, Path)>) {
        let mut path = before.to_vec();
        loop {
            match self.peek() {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(), "}" | "") {
                        self.tree(&path, found);
                        if self.peek() == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    self.at += 1;
                    found.push(("*".into(), path));
                    return;
                }
                "::" => self.at += 1,
                "as" => {
                    self.at += 1;
                    let name = self.next();
                    found.push((name, path));
                    return;
                }
                name if is_name(name) => {
                    // `self` within braces is what stands before them.
                    if name != "self" || path.is_empty() {
                        path.push(name.to_owned());
                    }
                    self.at += 1;
                }
                _ => {
                    found.extend(path.last().cloned().map(|name| (name, path)));
                    return;
                }
            }
        }
    }

    /// The path that begins with `first`.
    fn path(&mut self, first: String) {
        let mut path = vec![first];
        while self.peek() == "::" && self.tokens.get(self.at + 1).is_some_and(|token| is_name(token)) {
            path.push(self.tokens[self.at + 1].clone());
            self.at += 2;
        }
        if let Some(path) = self.outside(path).filter(|path| path.len() > 1) {
            self.source.paths.insert(path);
        }
    }

    /// The path as the file's own module would write it; `None` if it does not leave a module within the file.
    fn outside(&self, mut path: Path) -> Option<Path> {
        let up = path.iter().take_while(|segment| *segment == "super").count();
        if self.inline == 0 || path[0] == "crate" {
            return Some(path);
        }
        if up < self.inline {
            return (up == 0 && path[0] != "self").then_some(path);
        }
        path.drain(..self.inline);
        Some(path).filter(|path| !path.is_empty())
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

/// Names, `::`, and all else character by character. Comments are left out; a text is one token that is no name.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut tokens, mut i) = (vec![], 0);
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => i = end_of(&chars, i, |i| at(i) == '\n'),
            ('/', '*') => i = end_of(&chars, i + 2, |i| at(i) == '*' && at(i + 1) == '/') + 2,
            ('"', _) => {
                i = text_end(&chars, i);
                tokens.push("\"".to_owned());
            }
            // A character, and not a lifetime.
            ('\'', '\\') => i = end_of(&chars, i + 3, |i| at(i) == '\'') + 1,
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (':', ':') => {
                tokens.push("::".to_owned());
                i += 2;
            }
            (c, _) if c == '_' || c.is_alphanumeric() => {
                let end = end_of(&chars, i, |i| at(i) != '_' && !at(i).is_alphanumeric());
                let name: String = chars[i..end].iter().collect();
                i = end;
                if matches!(name.as_str(), "r" | "br" | "cr") && matches!(at(i), '"' | '#') {
                    let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
                    if at(i + hashes) == '"' {
                        let closes = |i: usize| at(i) == '"' && (1..=hashes).all(|n| at(i + n) == '#');
                        i = end_of(&chars, i + hashes + 1, closes) + hashes + 1;
                        tokens.push("\"".to_owned());
                    }
                } else {
                    tokens.push(name);
                }
            }
            (c, _) => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                i += 1;
            }
        }
    }
    tokens
}

/// The first place from `start` on where `is_end` says so.
fn end_of(chars: &[char], start: usize, is_end: impl Fn(usize) -> bool) -> usize {
    (start..chars.len()).find(|i| is_end(*i)).unwrap_or(chars.len())
}

/// Where the text that begins with a quotation mark at `start` is over.
fn text_end(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn imports_paths_and_modules_are_read_and_tests_are_not() {
        let source = Source::of(
            r##"
            //! crate::comment::A
            mod inner;
            #[cfg(all(test, not(loom)))]
            mod models;
            pub(crate) use inner::Thing as Other;
            use crate::{a::{self, B}, c};
            /* use crate::gone; */
            fn f<'a>(x: &'a str) -> char {
                let text = ("crate::text::A", r#"crate::"raw"::B"#, '"', '\'', "\" crate::d::E");
                super::g::h(x.len::<u8>());
                self::inner::go()
            }
            #[cfg(not(test))]
            use super::kept;
            #[cfg(test)]
            mod tests {
                use crate::never::X;
            }
            "##,
        );
        assert_eq!(source.modules, BTreeSet::from(["inner".to_owned()]));
        assert_eq!(source.for_tests, BTreeSet::from(["models".to_owned()]));
        let imports: Vec<String> = source
            .imports
            .iter()
            .map(|i| format!("{}={}{}", i.name, i.path.join("::"), if i.passed_on { "!" } else { "" }))
            .collect();
        assert_eq!(
            imports,
            ["Other=inner::Thing!", "a=crate::a", "B=crate::a::B", "c=crate::c", "kept=super::kept"]
        );
        let paths = ["self::inner::go", "super::g::h"].map(path);
        assert_eq!(source.paths, BTreeSet::from(paths));
    }

    #[test]
    fn a_module_within_a_file_leads_out_of_it() {
        let source =
            Source::of("mod native { use super::own; use super::super::other::X; fn f() { crate::y::z() } }");
        let imports: Vec<&Path> = source.imports.iter().map(|i| &i.path).collect();
        assert_eq!(imports, [&path("own"), &path("super::other::X")]);
        assert_eq!(source.paths, BTreeSet::from([path("crate::y::z")]));
    }
}

//! Which regexes of a file are taken.
//!
//! The library from Python matches with Oniguruma, ours with fancy-regex. Where the two may differ, a pattern is
//! refused. They agree on the classes listed here for every character (Unicode 16 in both; `\w` differs in
//! eight), and on the operators that [`Reader`] knows. They differ on, or have other limits for: `\w`, `\b`, `\h`, `^`,
//! `$`, `{n}+`, `{n}?`, look-behind, backreferences, flags, and case folding, where one character may match two.
//!
//! Measured with tokenizers 0.23.3 from Python against 0.23.2 with fancy-regex 0.17, `golden/tokenizer/classes.py`.

use serde_json::Value;

/// Known models fold case in English contractions only. Both engines take `ſ` for `s`, and nothing else.
const FOLDED: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

/// A run of spaces without the last, if a word follows.
const SPACES: &str = r"\s+(?!\S)";

/// Alternatives of known models with operators that fancy-regex matches step by step. Each takes at most one second try
/// where it stands, so that the limit on steps is out of reach; elsewhere these operators are refused.
const STEPPED: &[&str] =
    &[SPACES, r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"[^\r\n\p{L}\p{N}]?+\p{L}++", r" ?[^\s\p{L}\p{N}]++[\r\n]*"];

/// `\p{…}` on which both engines agree for every character.
const PROPERTIES: &[&str] = &[
    "L",
    "N",
    "P",
    "S",
    "M",
    "Z",
    "C",
    "Lu",
    "Ll",
    "Lt",
    "Lm",
    "Lo",
    "Mn",
    "Mc",
    "Me",
    "Nd",
    "Nl",
    "No",
    "Pc",
    "Pd",
    "Ps",
    "Pe",
    "Pi",
    "Pf",
    "Po",
    "Sm",
    "Sc",
    "Sk",
    "So",
    "Zs",
    "Cc",
    "Cf",
    "Han",
    "Hiragana",
    "Katakana",
    "Hangul",
    "Thai",
    "Latin",
    "Greek",
    "Cyrillic",
    "Arabic",
    "Hebrew",
    "Devanagari",
];

/// Whether a pattern of the file, `{"String": …}` or `{"Regex": …}`, is taken.
pub(super) fn check(pattern: &Value) -> Result<(), String> {
    let Some(map) = pattern.as_object().filter(|map| map.len() == 1) else {
        return Err("wanted one of String, Regex".to_owned());
    };
    match (map.get("String"), map.get("Regex")) {
        (Some(Value::String(text)), _) if !text.is_empty() => Ok(()),
        (Some(Value::String(_)), _) => Err("an empty string is found everywhere".to_owned()),
        (_, Some(Value::String(regex))) => {
            Reader::check(regex).map_err(|why| format!("the regex `{regex}` is not supported: {why}"))
        }
        _ => Err("wanted a string".to_owned()),
    }
}

/// Bytes that a pattern may pass over in one match, or between two. Where it goes step by step, fancy-regex gives up
/// after a million, and tokenizers takes that for the end of the text.
pub(in super::super) const STEPS: usize = 500_000;

/// How a pattern goes through a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Pace {
    /// In one go, without limits.
    #[default]
    Whole,
    /// Step by step through runs of spaces; every character is matched.
    Spaces,
    /// Step by step, also from one match to the next.
    Steps,
}

/// How a pattern of the file goes through a text.
pub(in super::super) fn pace(pattern: &Value) -> Pace {
    let regex = pattern["Regex"].as_str().unwrap_or_default();
    if !STEPPED.iter().any(|known| regex.contains(known)) {
        return Pace::Whole;
    }
    // Letters, numbers, spaces, and all other characters.
    let letters = [r"\p{L}+", r"\p{Ll}\p{Lm}\p{Lo}\p{M}]+"].iter().any(|l| regex.contains(l));
    let covers = letters
        && regex.contains(r"|\p{N}")
        && regex.contains(r"| ?[^\s\p{L}\p{N}]+")
        && (regex.ends_with(r"|\s+") || regex.ends_with(r"|\s"));
    if covers { Pace::Spaces } else { Pace::Steps }
}

/// Reads a pattern by the grammar that both engines share.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn check(regex: &'a str) -> Result<(), String> {
        if regex.len() > 10_000 {
            return Err("over 10000 bytes".to_owned());
        }
        let mut reader = Reader { rest: regex, depth: 0 };
        let empty = reader.alternatives()?;
        match reader.rest.chars().next() {
            Some(c) => Err(format!("`{c}` closes nothing")),
            None if empty => Err("it matches the empty text".to_owned()),
            None => Ok(()),
        }
    }

    fn take(&mut self, prefix: &str) -> bool {
        let found = self.rest.strip_prefix(prefix);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Whether one of them matches the empty text.
    fn alternatives(&mut self) -> Result<bool, String> {
        self.depth += 1;
        if self.depth > 20 {
            return Err("over 20 groups in each other".to_owned());
        }
        let mut empty = self.alternative()?;
        while self.take("|") {
            empty |= self.alternative()?;
        }
        self.depth -= 1;
        Ok(empty)
    }

    fn alternative(&mut self) -> Result<bool, String> {
        let known = STEPPED.iter().filter_map(|known| self.rest.strip_prefix(known));
        if let Some(rest) = known.into_iter().find(|rest| rest.is_empty() || rest.starts_with(['|', ')'])) {
            self.rest = rest;
            return Ok(false);
        }
        self.sequence()
    }

    fn sequence(&mut self) -> Result<bool, String> {
        let mut empty = true;
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let atom = self.atom()?;
            empty &= self.quantified(atom)?;
        }
        Ok(empty)
    }

    /// Whether the atom with what follows it matches the empty text.
    fn quantified(&mut self, atom: bool) -> Result<bool, String> {
        let (empty, counted) = if self.take("*") || self.take("?") {
            (true, false)
        } else if self.take("+") {
            (atom, false)
        } else if self.rest.starts_with('{') {
            (self.count()? || atom, true)
        } else {
            return Ok(atom);
        };
        if atom {
            return Err("what may be empty is repeated".to_owned());
        }
        let again = self.rest.chars().next();
        match again {
            Some(c @ ('?' | '+')) if counted => Err(format!("`}}{c}` has several meanings")),
            Some('+') => Err("repetitions that give nothing back".to_owned()),
            Some('?') => {
                self.next();
                if self.rest.starts_with(['*', '+', '?', '{']) {
                    return Err("a repetition is repeated".to_owned());
                }
                Ok(empty)
            }
            Some('*' | '{') => Err("a repetition is repeated".to_owned()),
            _ => Ok(empty),
        }
    }

    /// `{n}`, `{n,}`, `{n,m}`: whether none is enough.
    fn count(&mut self) -> Result<bool, String> {
        let end = self.rest.find('}').ok_or("`{` is not closed")?;
        let (least, most) = {
            let inside = &self.rest[1..end];
            inside.split_once(',').map_or((inside, inside), |(a, b)| (a, b))
        };
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| *n <= 100);
        let fits = match (number(least), number(most)) {
            (Some(a), Some(b)) => a <= b && b > 0,
            (Some(_), None) => most.is_empty(),
            _ => false,
        };
        if !fits {
            return Err(format!("the repetition `{}`", &self.rest[..=end]));
        }
        let none = number(least) == Some(0);
        self.rest = &self.rest[end + 1..];
        Ok(none)
    }

    /// Whether it matches the empty text.
    fn atom(&mut self) -> Result<bool, String> {
        if self.take(FOLDED) {
            return Ok(false);
        }
        if self.rest.starts_with('(') {
            self.next();
            if self.rest.starts_with('?') && !self.take("?:") {
                return Err(format!("the group `({}…`", self.rest.chars().take(3).collect::<String>()));
            }
            let empty = self.alternatives()?;
            return if self.take(")") { Ok(empty) } else { Err("`(` is not closed".to_owned()) };
        }
        match self.next() {
            Some('[') => self.class().map(|()| false),
            Some('\\') => self.escape().map(|()| false),
            Some(c @ ('^' | '$')) => Err(format!("`{c}` means lines in one engine, the text in the other")),
            Some(c @ ('*' | '+' | '?' | '{' | '}' | ']')) => Err(format!("`{c}` stands alone")),
            _ => Ok(false),
        }
    }

    fn class(&mut self) -> Result<(), String> {
        let _negated = self.take("^");
        if self.rest.starts_with(']') {
            return Err("`[]`".to_owned());
        }
        loop {
            if ["&&", "--", "~~", "[:"].iter().any(|set| self.rest.starts_with(set)) {
                return Err("operations on classes".to_owned());
            }
            match self.next() {
                None => return Err("`[` is not closed".to_owned()),
                Some(']') => return Ok(()),
                Some('[') => return Err("a class in a class".to_owned()),
                Some('\\') => self.escape()?,
                Some(_) => {}
            }
        }
    }

    /// Parses the part after a backslash.
    fn escape(&mut self) -> Result<(), String> {
        match self.next() {
            Some('r' | 'n' | 't' | 's' | 'S' | 'd' | 'D') => Ok(()),
            Some(c @ ('p' | 'P')) => {
                let name = self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                match name {
                    Some((name, rest)) if PROPERTIES.contains(&name) => {
                        self.rest = rest;
                        Ok(())
                    }
                    Some((name, _)) => Err(format!("the property `\\{c}{{{name}}}`")),
                    None => Err(format!("`\\{c}` without a name")),
                }
            }
            Some(c) if c.is_ascii_punctuation() || c == ' ' => Ok(()),
            Some(c) => Err(format!("`\\{c}`")),
            None => Err("a backslash ends it".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `golden/tokenizer/classes.py` says which characters Oniguruma has in a class.
    #[cfg(feature = "tokenizers")]
    #[test]
    fn engines_have_the_same_classes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizer/classes.json");
        let table: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let all: String = ('\0'..=char::MAX).collect();
        let mut compared = Vec::new();
        for (pattern, wanted) in table.as_object().unwrap() {
            let regex = tokenizers::utils::SysRegex::new(pattern).unwrap();
            let found = regex.find_iter(&all).filter_map(|(start, end)| all[start..end].chars().next());
            let (count, sum) = found.fold((0u64, 0u64), |(n, sum), c| (n + 1, sum + u64::from(u32::from(c))));
            let same = *wanted == serde_json::json!([count, sum]);
            assert_eq!(same, pattern != r"\w", "{pattern}");
            compared.push(pattern.trim_start_matches(r"\p{").trim_end_matches('}'));
        }
        assert!(PROPERTIES.iter().all(|name| compared.contains(name)));
    }

    #[test]
    fn patterns_of_known_models_are_taken() {
        for known in [
            // Qwen 2, Llama 3
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            // GPT-4
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            // Mistral's Tekken, GPT-4o
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|\s+(?!\S)|\s+",
            // DeepSeek V3
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
            // DeepSeek V2
            r"[\r\n]",
            r"\s?\p{P}+",
            r"[^\S ]+",
        ] {
            assert_eq!(Reader::check(known), Ok(()), "{known}");
        }
    }

    #[test]
    fn what_engines_read_otherwise_is_refused() {
        for (regex, why) in [
            (r"\w+", r"`\w`"),
            (r"\bx", r"`\b`"),
            (r"\h", r"`\h`"),
            ("^a", "means lines"),
            ("a$", "means lines"),
            ("a{2}+", "has several meanings"),
            ("a{2}?", "has several meanings"),
            ("a{,2}", "the repetition"),
            ("a{2000}", "the repetition"),
            ("(?<=a)b", "the group"),
            ("(?<n>a)", "the group"),
            ("(?i)a", "the group"),
            ("(?i:ss)", "the group"),
            ("a(?!b)", "the group"),
            (r"x\s+(?!\S)", "the group"),
            (r"\s+(?!\S)x", "the group"),
            ("a*+b", "give nothing back"),
            (r"(a)\1", r"`\1`"),
            ("[a&&b]", "operations"),
            ("[[:alpha:]]", "operations"),
            ("[[a]]", "a class in a class"),
            ("[a", "not closed"),
            ("(a", "not closed"),
            ("a)", "closes nothing"),
            ("a*", "empty text"),
            ("a|", "empty text"),
            ("", "empty text"),
            ("(a*)+", "may be empty"),
            ("a**", "repeated"),
            ("*a", "stands alone"),
            (r"\p{Foo}", "the property"),
            (r"\pL", "without a name"),
            ("a\\", "ends it"),
        ] {
            let said = Reader::check(regex).unwrap_err();
            assert!(said.contains(why), "{regex}: {said}");
        }
        assert!(Reader::check(&"(".repeat(5000)).is_err());
    }
}

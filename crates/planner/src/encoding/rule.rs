//! Which parameter is encoded how, by name.

use std::sync::Arc;

use tensor::{Diagnostic, Scheme, nearest};

use crate::Error;

/// `PATTERN=SCHEME`: parameters whose whole name fits the pattern become the scheme. `*` stands for any run of
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeRule {
    pattern: String,
    scheme: Arc<Scheme>,
}

impl std::str::FromStr for EncodeRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<EncodeRule, Error> {
        let wrong = |what: Diagnostic| Err(Error::Encoding { what: what.into() });
        let Some((pattern, name)) = text.rsplit_once('=').filter(|(p, s)| !p.is_empty() && !s.is_empty())
        else {
            return wrong(Diagnostic::new(format!("an encoding rule is PATTERN=SCHEME, found `{text}`")));
        };
        let Some(scheme) = quant::scheme(name) else {
            let names = encodable();
            let near = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
            return Err(Error::Scheme { name: name.to_owned(), near });
        };
        if !encodes(name) {
            let what = format!("encoding to `{name}` is not supported yet");
            let hint = format!("these can be: {}", encodable().join(", "));
            return wrong(Diagnostic::new(what).with_hint(hint));
        }
        Ok(EncodeRule { pattern: pattern.to_owned(), scheme })
    }
}

impl std::fmt::Display for EncodeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.pattern, self.scheme)
    }
}

impl EncodeRule {
    /// The rule that parameters whose names fit `pattern` become `scheme`. If nothing encodes it, only parameters that have it already
    /// can be planned.
    pub fn of(pattern: &str, scheme: &Arc<Scheme>) -> EncodeRule {
        EncodeRule { pattern: pattern.to_owned(), scheme: Arc::clone(scheme) }
    }

    /// The pattern.
    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The scheme.
    pub fn scheme(&self) -> &Arc<Scheme> {
        &self.scheme
    }

    /// Whether the rule matches the parameter called `name`.
    pub fn matches(&self, name: &str) -> bool {
        glob(&self.pattern, name)
    }
}

/// Whether `name` is `pattern`, where `*` is any run of characters.
pub fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The first match is as good as any: later parts have more text left to match.
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether values can be encoded in the scheme called `name`.
fn encodes(name: &str) -> bool {
    quant::codec(name).is_some_and(|c| c.encoder().is_some())
}

/// The names of all schemes that values can be encoded in.
pub(super) fn encodable() -> Vec<String> {
    quant::names().filter(|n| encodes(n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_whole_names() {
        let yes = [("*", ""), ("*", "a.b"), ("a", "a"), ("a*", "a"), ("*.w", "x.w"), ("a*b*c", "abc")];
        let no =
            [("a", "ab"), ("b", "ab"), ("a*", "ba"), ("*.w", "x.w.y"), ("a*b*c", "acb"), ("ab*ba", "aba")];
        assert!(yes.iter().all(|(p, n)| glob(p, n)));
        assert!(no.iter().all(|(p, n)| !glob(p, n)));
        assert!(glob("*aab*b", "aaabbb") && glob("blk.*.ffn_*.weight", "blk.12.ffn_up.weight"));
    }

    #[test]
    fn a_rule_says_what_is_wrong_with_it() {
        let rule =
            |text: &str| text.parse::<EncodeRule>().map(|r| r.to_string()).map_err(|e| format!("{e:?}"));
        assert_eq!(rule("*=f16"), Ok("*=f16".to_owned()));
        assert_eq!(rule("a=b=f32"), Ok("a=b=f32".to_owned()));
        for (text, part) in [
            ("f16", "PATTERN=SCHEME"),
            ("=f16", "PATTERN=SCHEME"),
            ("*=", "PATTERN=SCHEME"),
            ("*=f15", "the nearest is `f16`"),
            ("*=iq1_s", "encoding to `iq1_s` is not supported"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

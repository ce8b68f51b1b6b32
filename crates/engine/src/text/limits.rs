//! Checks that reject a template before it is parsed.
//!
//! minijinja bounds the nesting of brackets and blocks. It does not bound `not not …`, `a ~ b ~ …`, `x.y.z…`,
//! `x|f|g…` and `{% elif %}`, each of which is one level of its syntax tree, walked by recursion. There are no other
//! templates to be imported, and `{% import 'x' as 1 %}` makes minijinja 3.0.5 panic.
//!
//! It computes constants while it parses, where no limit of time or memory holds: `{{ [0] * 100000000 ~ '' }}`.

use super::Error;

/// Words and signs of one tag: real templates have under 100.
const TAG: usize = 1000;
/// `{% elif %}` of a template.
const BRANCHES: usize = 1000;

/// Bytes that a constant may grow to.
const CONSTANT: usize = 4 << 20;

/// Statements that want another template.
const OTHERS: [&[u8]; 4] = [b"import", b"from", b"include", b"extends"];

/// Refuses the template `source`, called `name`, if a walk down its tree may take too much of the stack, or if it wants
/// other templates.
pub(super) fn check(name: &'static str, source: &str) -> Result<(), Error> {
    let mut branches = 0;
    let mut rest = source.as_bytes();
    while let Some(at) = rest.windows(2).position(|w| matches!(w, b"{{" | b"{%" | b"{#")) {
        let (kind, inside) = rest[at..].split_at(2);
        if kind == b"{#" {
            let end = inside.windows(2).position(|w| w == b"#}");
            rest = end.map_or(&[][..], |end| &inside[end + 2..]);
            continue;
        }
        let tag = Tag::read(inside);
        let line = || source.as_bytes()[..source.len() - rest.len() + at].split(|b| *b == b'\n').count();
        if tag.words > TAG {
            let problem =
                format!("a tag has {} words and signs, wanted at most {TAG} (line {})", tag.words, line());
            return Err(Error::malformed(name, problem));
        }
        if kind == b"{%" && OTHERS.contains(&tag.first) {
            let word = String::from_utf8_lossy(tag.first);
            let problem = format!("`{word}` wants another template, and there is none (line {})", line());
            return Err(Error::malformed(name, problem));
        }
        if tag.constant() > CONSTANT {
            let problem = format!("a tag may repeat a constant to over {CONSTANT} bytes (line {})", line());
            return Err(Error::malformed(name, problem));
        }
        branches += usize::from(kind == b"{%" && tag.first == b"elif");
        if branches > BRANCHES {
            let problem = format!("there are over {BRANCHES} `elif` (line {})", line());
            return Err(Error::malformed(name, problem));
        }
        rest = &inside[tag.len..];
    }
    Ok(())
}

/// The inside of a tag.
#[derive(Default)]
struct Tag<'s> {
    /// Bytes, the end of the tag included.
    len: usize,
    /// Names, numbers, strings, and other characters one by one.
    words: usize,
    /// The first name; of a block, what it does.
    first: &'s [u8],
    /// Characters `*`.
    stars: u32,
    /// One of them follows another: a power.
    has_power: bool,
    /// There is an operand that can be repeated: a string, or anything in brackets.
    has_items: bool,
    /// The sum of all numbers, and no sum of some of them is larger.
    sum: usize,
}

impl Tag<'_> {
    /// Upper bound on the length of a constant in it: each factor of a product is at most `sum`, and so is each sum of
    /// numbers.
    fn constant(&self) -> usize {
        if self.stars == 0 || !self.has_items {
            return 0;
        }
        // A power is larger than any product, and nothing wants to be repeated as often.
        if self.has_power && self.stars > 2 {
            return usize::MAX;
        }
        self.sum.max(2).saturating_pow(self.stars).saturating_mul(self.len)
    }

    /// Reads up to the first end of a tag that is outside of strings and brackets, as minijinja's lexer does.
    fn read(text: &[u8]) -> Tag<'_> {
        let mut tag = Tag::default();
        let mut depth = 0usize;
        while let Some(&byte) = text.get(tag.len) {
            let rest = &text[tag.len..];
            if depth == 0 && (rest.starts_with(b"}}") || rest.starts_with(b"%}")) {
                tag.len += 2;
                break;
            }
            let len = match byte {
                b'"' | b'\'' => string(rest),
                _ if is_word(byte) => rest.iter().take_while(|b| is_word(**b)).count(),
                _ => 1,
            };
            if tag.first.is_empty() && is_word(byte) {
                tag.first = &rest[..len];
            }
            if is_word(byte) {
                tag.sum = tag.sum.saturating_add(number(&rest[..len]));
            }
            tag.has_items |= matches!(byte, b'"' | b'\'' | b'(' | b'[' | b'{');
            tag.stars += u32::from(byte == b'*');
            tag.has_power |= rest.starts_with(b"**");
            tag.len += len;
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if !byte.is_ascii_whitespace() {
                tag.words += 1;
            }
        }
        tag
    }
}

/// The number that a word is, or more; 1 for a name, which may stand for `true`.
fn number(word: &[u8]) -> usize {
    if !word[0].is_ascii_digit() {
        return 1;
    }
    let digits: Vec<u8> = word.iter().copied().filter(|b| *b != b'_').collect();
    let text = String::from_utf8_lossy(&digits);
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter();
    let lower = text.to_ascii_lowercase();
    let radix = prefixed.clone().find_map(|(prefix, radix)| Some((lower.strip_prefix(prefix)?, radix)));
    let (digits, radix) = radix.unwrap_or((&lower, 10));
    usize::from_str_radix(digits, radix).unwrap_or(usize::MAX)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Bytes of the string that `text` starts with, its quotes included.
fn string(text: &[u8]) -> usize {
    let quote = text.first();
    let mut escaped = false;
    let end = text.iter().skip(1).position(|b| {
        let ends = !escaped && Some(b) == quote;
        escaped = !escaped && *b == b'\\';
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> Option<String> {
        check("t", source).err().map(|e| e.to_string())
    }

    #[test]
    fn chains_are_counted_and_text_is_not() {
        for chain in ["not ", "1+", "1 ~ ", "-", "1**", "1 if 1 else "] {
            let said = refused(&format!("a\n{{{{ {}1 }}}}", chain.repeat(1001))).unwrap();
            assert!(said.starts_with("`t`: a tag has ") && said.ends_with("(line 2)"), "{said}");
        }
        assert!(refused(&format!("{{{{ x{} }}}}", "|string".repeat(501))).is_some());
        assert!(refused(&format!("{{% if {}1 %}}", "not ".repeat(1001))).is_some());
        assert_eq!(refused(&format!("{{{{ {}1 }}}}", "1+".repeat(400))), None);
        let words = "not ".repeat(5000);
        for fine in [
            words.clone(),
            format!("{{{{ '{words}\\'{words}' }}}}{words}"),
            format!("{{# {words} #}}"),
            "{{ 1 }}".repeat(5000),
        ] {
            assert_eq!(refused(&fine), None);
        }
    }

    #[test]
    fn constants_are_not_repeated_without_end() {
        for long in [
            "[0] * 8400766~000",
            "'a' * 9999999",
            "('a',) * 99_999_999",
            "'a' * 0xFFFFFF",
            "[[0] * 2000] * 2000",
            "'a' * 10**9",
            "2**30 * 'a'",
            "'a' * (1+1+1+1+1+1+1+1+1+1) * (1+1+1+1+1+1+1+1+1+1) * (1+1+1+1+1+1+1+1+1+1) * (1+1+1+1+1+1) * 2 * 2",
            "'a' * 99999999999999999999999999",
        ] {
            let said = refused(&format!("{{% if {long} %}}{{% endif %}}")).unwrap();
            assert!(said.contains("repeat a constant") && said.ends_with("(line 1)"), "{long}: {said}");
        }
        for fine in
            ["'=' * 80", "'  ' * depth", "n * 1000000000", "2**30", "f(*args)", "'\\t' * (depth + 1) ~ 'x'"]
        {
            assert_eq!(refused(&format!("{{{{ {fine} }}}}")), None, "{fine}");
        }
    }

    #[test]
    fn a_tag_ends_where_it_does_for_minijinja() {
        let words = "not ".repeat(5000);
        for hidden in ["{'a': {}}", "'}}'", "\"\\\"}}\"", "[{'a':{'b':1}}]", "{}}"] {
            assert!(refused(&format!("{{{{ {hidden} + {words} 1 }}}}")).is_some(), "{hidden}");
        }
        assert!(refused(&format!("{{# {{{{ #}}{{{{ {words} }}}}")).is_some());
    }

    #[test]
    fn branches_are_counted() {
        let of = |n: usize| format!("{{% if 0 %}}{}{{% endif %}}", "{%- elif 0 %}".repeat(n));
        assert_eq!(refused(&of(1000)), None);
        assert_eq!(refused(&of(1001)).unwrap(), "`t`: there are over 1000 `elif` (line 1)");
    }

    #[test]
    fn other_templates_are_refused() {
        for tag in
            ["{% include 'x' %}", "{%- extends 'x' %}", "{%+import 'x' as y%}", "{% from 'x' import y %}"]
        {
            let said = refused(&format!("\n{tag}")).unwrap();
            assert!(said.ends_with("wants another template, and there is none (line 2)"), "{said}");
        }
        assert_eq!(
            refused("{{ include }}{% if import %}{% set from = 1 %}{% endif %} {# {% include %} #}"),
            None
        );
    }
}

//! Counts with their nouns.

use std::fmt;

/// Shows `count` with `noun`, which is in the plural unless the count is one: `1 tensor`, `2 tensors`, `0 entries`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    count: u64,
    noun: &'a str,
}

/// Returns `count` with `noun`, a noun or a phrase that ends with one, in the singular.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> Counted<'_> {
    Counted { count: count.try_into().unwrap_or(u64::MAX), noun }
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { count, noun } = self;
        let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
        match stem {
            _ if *count == 1 => write!(f, "1 {noun}"),
            Some(stem) => write!(f, "{count} {stem}ies"),
            None if noun.ends_with("matrix") => write!(f, "{count} {}ices", &noun[..noun.len() - 2]),
            None if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => write!(f, "{count} {noun}es"),
            None => write!(f, "{count} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_nothing_is_not() {
        for (count, noun, wanted) in [
            (1, "tensor", "1 tensor"),
            (0, "tensor", "0 tensors"),
            (2, "entry", "2 entries"),
            (2, "key", "2 keys"),
            (3, "batch", "3 batches"),
            (5, "bf16 matrix", "5 bf16 matrices"),
        ] {
            assert_eq!(counted(count, noun).to_string(), wanted);
        }
    }
}

//! Finds the family whose names a checkpoint has, by the share of names that each family's tables know in each
//! ecosystem.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use tensor::Pattern;

use crate::ecosystem::DialectName;
use crate::family::{Family, families};

/// Names that are looked at; a checkpoint of more is like its first ones.
const NAMES: usize = 1 << 16;

/// How many of a checkpoint's names one family has in one ecosystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Families whose tables know this number of names; those with the fewest other names come first.
    pub families: Vec<&'static str>,
    /// The ecosystem.
    pub dialect: DialectName,
    /// Names that the tables know.
    pub known: usize,
    /// Names that there are.
    pub names: usize,
}

impl std::fmt::Display for Fit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (dialect, key) = match self.dialect {
            DialectName::Gguf => ("GGUF", ""),
            DialectName::Hf => ("Hugging Face", "; set the right `model_type` in config.json"),
            DialectName::Ctranslate2 => ("CTranslate2", ""),
            DialectName::Openai => ("OpenAI", ""),
        };
        let families = match &self.families[..] {
            [] => "none".to_owned(),
            [one] => (*one).to_owned(),
            [a, b] => format!("{a} or {b}"),
            [a, b, c] => format!("{a}, {b} or {c}"),
            [a, b, others @ ..] => format!("{a}, {b} or {} others", others.len()),
        };
        if self.known == self.names {
            write!(f, "all tensor names match {dialect} {families}{key}")
        } else {
            let share = 100 * self.known / self.names.max(1);
            write!(f, "{share} % of the tensor names match {dialect} {families}{key}")
        }
    }
}

/// The family and the ecosystem that fit `names` clearly better than `claimed` does, and know most of them.
pub fn better_fit<'a>(
    names: impl Iterator<Item = &'a str>,
    claimed: Option<(&'static str, DialectName)>,
) -> Option<Fit> {
    let mut patterns: HashMap<String, usize> = HashMap::new();
    let mut total = 0;
    for name in names.take(NAMES) {
        *patterns.entry(Pattern::of(name).to_string()).or_default() += 1;
        total += 1;
    }
    let mut scores = vec![];
    for family in families() {
        for dialect in [DialectName::Gguf, DialectName::Hf, DialectName::Ctranslate2, DialectName::Openai] {
            let (known, share) = score(family, dialect, &patterns);
            scores.push((known, share, dialect, family.name()));
        }
    }
    // Of equals the first of the table.
    scores.sort_by_key(|(known, share, ..)| Reverse((*known, *share)));
    let (known, _, dialect, _) = *scores.first()?;
    let own = scores.iter().find(|s| claimed == Some((s.3, s.2))).map_or(0, |s| s.0);
    let families = scores.iter().filter(|s| s.0 == known && s.2 == dialect).map(|s| s.3).collect();
    // Better by a tenth of all names at least, and more than half of them known.
    let better = 2 * known > total && 10 * known.saturating_sub(own) >= total;
    better.then_some(Fit { families, dialect, known, names: total })
}

/// How many of the names a family's tables know, and how much of its own names is there, in thousandths or so.
fn score(family: &dyn Family, dialect: DialectName, patterns: &HashMap<String, usize>) -> (usize, u64) {
    // Not every family is in every ecosystem.
    let Some(dialect) = crate::family::dialect(family, dialect) else { return (0, 0) };
    let kinds: Vec<&str> = patterns.keys().map(String::as_str).collect();
    let Ok(wrapped) = dialect.wrapped(&kinds) else { return (0, 0) };
    let entries: HashSet<String> =
        dialect.rules().map(|rule| wrapped.entry(&rule.pattern(dialect.prefix))).collect();
    let known = entries.iter().filter_map(|entry| patterns.get(entry)).sum();
    // Biases are there or not.
    let (mut wanted, mut there) = (1u64, 0u64);
    for entry in entries.iter().filter(|entry| !entry.ends_with(".bias")) {
        wanted += 1;
        there += u64::from(patterns.contains_key(entry));
    }
    (known, 1000 * there / wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: &[&str] = &[
        "token_embd.weight",
        "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight",
        "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight",
        "blk.11.ffn_up.weight",
        "output_norm.weight",
        "odd",
    ];

    #[test]
    fn the_family_whose_names_they_are_is_found() {
        let fit = better_fit(LLAMA.iter().copied(), Some(("llama", DialectName::Hf))).unwrap();
        assert!(fit.families.contains(&"llama"), "{fit:?}");
        assert_eq!((fit.dialect, fit.known, fit.names), (DialectName::Gguf, 7, 8));
        assert!(fit.to_string().starts_with("87 % of the tensor names match GGUF "), "{fit}");
    }

    #[test]
    fn what_fits_as_well_is_no_better() {
        assert_eq!(better_fit(LLAMA.iter().copied(), Some(("llama", DialectName::Gguf))), None);
        assert_eq!(better_fit(["a", "b"].into_iter(), None), None);
        assert_eq!(better_fit([].into_iter(), None), None);
    }
}

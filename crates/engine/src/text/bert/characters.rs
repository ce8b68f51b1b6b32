//! What BERT's tokenizers do to single characters: the table in `characters.txt`, which golden/tokenizer/bert.py writes.

use std::cmp::Ordering;
use std::sync::LazyLock;

use hashbrown::HashMap;

/// The table, read once.
pub(super) static CHARACTERS: LazyLock<Characters> =
    LazyLock::new(|| Characters::read(include_str!("characters.txt")));

/// Ranges of characters, in order, each with its ends.
#[derive(Default)]
struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    fn has(&self, c: u32) -> bool {
        self.find(c).is_some()
    }

    /// Which of them has `c`.
    fn find(&self, c: u32) -> Option<usize> {
        let place = |(first, last): &(u32, u32)| match (*first > c, *last < c) {
            (true, _) => Ordering::Greater,
            (_, true) => Ordering::Less,
            _ => Ordering::Equal,
        };
        self.0.binary_search_by(place).ok()
    }
}

/// Properties of characters.
#[derive(Default)]
pub(super) struct Characters {
    control: Ranges,
    punctuation: Ranges,
    /// Taken out where accents are.
    none: Ranges,
    /// What is left of others.
    decomposed: HashMap<u32, Vec<char>>,
    /// Canonical combining classes, but for 0.
    ordered: Ranges,
    classes: Vec<u8>,
}

impl Characters {
    fn read(table: &str) -> Characters {
        let mut all = Characters::default();
        let mut ordered: Vec<(u32, u32, u8)> = vec![];
        for line in table.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            let numbers: Vec<u32> = words.filter_map(|word| u32::from_str_radix(word, 16).ok()).collect();
            match (name, &numbers[..]) {
                ("control", [first, last]) => all.control.0.push((*first, *last)),
                ("punctuation", [first, last]) => all.punctuation.0.push((*first, *last)),
                ("none", [first, last]) => all.none.0.push((*first, *last)),
                ("order", [class, first, last]) => {
                    ordered.push((*first, *last, u8::try_from(*class).unwrap_or(0)));
                }
                (c, to) => {
                    if let Ok(c) = u32::from_str_radix(c, 16) {
                        all.decomposed.insert(c, to.iter().filter_map(|c| char::from_u32(*c)).collect());
                    }
                }
            }
        }
        ordered.sort_unstable();
        all.ordered = Ranges(ordered.iter().map(|(first, last, _)| (*first, *last)).collect());
        all.classes = ordered.iter().map(|(.., class)| *class).collect();
        all
    }

    /// Whether cleaning takes it out.
    pub(super) fn is_control(&self, c: char) -> bool {
        // Most text is ASCII.
        if c.is_ascii() {
            c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r')
        } else {
            self.control.has(c.into())
        }
    }

    /// Whether it is a word of its own.
    pub(super) fn is_punctuation(&self, c: char) -> bool {
        if c.is_ascii() { c.is_ascii_punctuation() } else { self.punctuation.has(c.into()) }
    }

    /// Calls `each` with the characters that are left of `c` without accents, and their canonical combining classes; with `None` for one
    /// that is taken out.
    pub(super) fn decompose(&self, c: char, each: &mut dyn FnMut(Option<char>, u8)) {
        const HANGUL: u32 = 0xAC00;
        const VOWELS: u32 = 21;
        const FINALS: u32 = 28;
        if c.is_ascii() {
            return each(Some(c), 0);
        }
        let code = u32::from(c);
        // Source: The Unicode Standard, section 3.12.
        if let Some(syllable) = code.checked_sub(HANGUL).filter(|n| *n < 19 * VOWELS * FINALS) {
            let parts = [
                0x1100 + syllable / (VOWELS * FINALS),
                0x1161 + syllable / FINALS % VOWELS,
                0x11A7 + syllable % FINALS,
            ];
            let count = if syllable % FINALS == 0 { 2 } else { 3 };
            return parts.iter().take(count).for_each(|part| each(char::from_u32(*part), 0));
        }
        if self.none.has(code) {
            return each(None, self.class(c));
        }
        match self.decomposed.get(&code) {
            Some(to) => to.iter().for_each(|c| each(Some(*c), self.class(*c))),
            None => each(Some(c), self.class(c)),
        }
    }

    fn class(&self, c: char) -> u8 {
        self.ordered.find(c.into()).and_then(|at| self.classes.get(at)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let all = &*CHARACTERS;
        for ranges in [&all.control, &all.punctuation, &all.none, &all.ordered] {
            assert!(!ranges.0.is_empty() && ranges.0.is_sorted(), "{:?}", ranges.0);
        }
        assert!(all.decomposed.len() > 2000);
        assert_eq!(all.ordered.0.len(), all.classes.len());
        assert!(all.is_control('\u{200d}') && !all.is_control('é') && !all.is_control('\n'));
        assert!(all.is_punctuation('。') && all.is_punctuation('$') && !all.is_punctuation('€'));
    }
}

//! Guesses from the text itself.

use std::fmt;

use super::{Ahead, Draft, MOST};
use crate::Error;

/// Guesses that what followed the last tokens before follows them again: of use where a text repeats much of its prompt, as a
/// summary or a changed program does.
///
/// Source: Saxena, Prompt Lookup Decoding, <https://github.com/apoorvumang/prompt-lookup-decoding>.
pub struct PromptLookup {
    text: Vec<u32>,
    guesses: Vec<u32>,
    ahead: Ahead,
}

impl fmt::Debug for PromptLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptLookup").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

/// The last tokens that are looked for: the most first.
const SUFFIXES: std::ops::RangeInclusive<usize> = 2..=4;

impl PromptLookup {
    /// Without a text.
    pub fn new() -> PromptLookup {
        PromptLookup { text: vec![], guesses: Vec::with_capacity(MOST), ahead: Ahead::FIRST }
    }

    /// Where the text goes on after the last place before its end that has the longest of its ends.
    fn found(&self) -> Option<usize> {
        let text = &self.text[..];
        SUFFIXES.rev().find_map(|n| {
            let (before, end) = (text.len().checked_sub(n)?, text.get(text.len().checked_sub(n)?..)?);
            (0..before).rev().find(|at| text[*at..*at + n] == *end).map(|at| at + n)
        })
    }
}

impl Default for PromptLookup {
    fn default() -> PromptLookup {
        PromptLookup::new()
    }
}

impl Draft for PromptLookup {
    fn begin(&mut self, text: &[u32]) {
        self.text.clear();
        self.text.extend_from_slice(text);
        self.ahead = Ahead::FIRST;
    }

    fn read(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
    }

    fn reserve(&mut self, tokens: usize) -> Result<(), Error> {
        self.text.try_reserve(tokens).map_err(|_| Error::TooLarge)
    }

    fn guess(&mut self, most: usize) -> Result<&[u32], Error> {
        self.guesses.clear();
        if let Some(at) = self.found() {
            let followed = &self.text[at..];
            let count = self.ahead.0.min(most).min(followed.len());
            self.guesses.extend_from_slice(&followed[..count]);
        }
        Ok(&self.guesses)
    }

    fn judge(&mut self, guessed: usize, right: usize) {
        self.ahead.judge(guessed, right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_guessed() {
        let mut lookup = PromptLookup::new();
        lookup.begin(&[1, 2, 3, 4, 5, 6, 9, 3, 4]);
        assert_eq!(lookup.guess(3).unwrap(), [5, 6, 9]);
        assert_eq!(lookup.guess(9).unwrap(), [5, 6, 9, 3]);
        // The longest end decides, and of equal ones the last.
        lookup.begin(&[1, 2, 3, 4, 7, 2, 3, 8, 1, 2, 3]);
        assert_eq!(lookup.guess(1).unwrap(), [4]);
        lookup.begin(&[2, 3, 4, 7, 2, 3, 8, 5, 2, 3]);
        assert_eq!(lookup.guess(1).unwrap(), [8]);
        // One token alone says too little.
        lookup.begin(&[1, 2, 3, 2]);
        assert!(lookup.guess(4).unwrap().is_empty());
        lookup.begin(&[]);
        assert!(lookup.guess(4).unwrap().is_empty());
        // What follows may be the end itself.
        lookup.read(&[5, 5, 5]);
        assert_eq!(lookup.guess(4).unwrap(), [5]);
        assert!(lookup.guess(0).unwrap().is_empty());
    }

    #[test]
    fn right_guesses_make_more_of_them() {
        let mut lookup = PromptLookup::new();
        lookup.begin(&(0..40).chain(0..2).collect::<Vec<u32>>());
        assert_eq!(lookup.guess(MOST).unwrap().len(), 4);
        lookup.judge(4, 4);
        assert_eq!(lookup.guess(MOST).unwrap().len(), 8);
        lookup.judge(8, 8);
        assert_eq!(lookup.guess(MOST).unwrap().len(), MOST);
        lookup.judge(15, 2);
        assert_eq!(lookup.guess(MOST).unwrap().len(), 3);
        for _ in 0..3 {
            lookup.judge(1, 0);
        }
        assert_eq!(lookup.guess(MOST).unwrap().len(), 1);
    }
}

//! Tokens that are guessed, so that the model runs several at once.
//!
//! Each token is sampled from the logits that the model gives after the tokens before it, as it is without guesses. A guess
//! that is not sampled ends what was run ahead; so guesses change how long a text takes, and never the text.

use std::fmt;

/// The most tokens that are guessed at once.
pub const MOST: usize = 15;

/// Guesses the tokens that follow a text.
pub trait Draft {
    /// Begins another text, of which the tokens of `text` are known already. Forgets the text before.
    fn begin(&mut self, text: &[u32]);

    /// Adds tokens to the text.
    fn read(&mut self, tokens: &[u32]);

    /// Makes room for `tokens` more tokens, so that reading them allocates nothing.
    fn reserve(&mut self, tokens: usize);

    /// Guesses the next tokens: `most` at most, perhaps none.
    fn guess(&mut self, most: usize) -> &[u32];

    /// Learns that the first `right` of the last `guessed` tokens were sampled, and the next was not.
    fn judge(&mut self, guessed: usize, right: usize);
}

/// Guesses that what followed the last tokens before follows them again: of use where a text repeats much of its prompt, as a
/// summary or a changed program does.
///
/// Source: Saxena, Prompt Lookup Decoding, <https://github.com/apoorvumang/prompt-lookup-decoding>.
pub struct PromptLookup {
    text: Vec<u32>,
    guesses: Vec<u32>,
    /// How many tokens are guessed now: more where guesses were right.
    ahead: usize,
}

impl fmt::Debug for PromptLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptLookup").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

/// The last tokens that are looked for: the most first.
const SUFFIXES: std::ops::RangeInclusive<usize> = 2..=4;

/// Tokens that are guessed first.
const AHEAD: usize = 4;

impl PromptLookup {
    /// Without a text.
    pub fn new() -> PromptLookup {
        PromptLookup { text: vec![], guesses: Vec::with_capacity(MOST), ahead: AHEAD }
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
        self.ahead = AHEAD;
    }

    fn read(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
    }

    fn reserve(&mut self, tokens: usize) {
        self.text.reserve(tokens);
    }

    fn guess(&mut self, most: usize) -> &[u32] {
        self.guesses.clear();
        if let Some(at) = self.found() {
            let followed = &self.text[at..];
            let count = self.ahead.min(most).min(followed.len());
            self.guesses.extend_from_slice(&followed[..count]);
        }
        &self.guesses
    }

    fn judge(&mut self, guessed: usize, right: usize) {
        self.ahead = match right {
            _ if right == guessed => (2 * self.ahead).min(MOST),
            0 => (self.ahead / 2).max(1),
            right => right + 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_guessed() {
        let mut lookup = PromptLookup::new();
        lookup.begin(&[1, 2, 3, 4, 5, 6, 9, 3, 4]);
        assert_eq!(lookup.guess(3), [5, 6, 9]);
        assert_eq!(lookup.guess(9), [5, 6, 9, 3]);
        // The longest end decides, and of equal ones the last.
        lookup.begin(&[1, 2, 3, 4, 7, 2, 3, 8, 1, 2, 3]);
        assert_eq!(lookup.guess(1), [4]);
        lookup.begin(&[2, 3, 4, 7, 2, 3, 8, 5, 2, 3]);
        assert_eq!(lookup.guess(1), [8]);
        // One token alone says too little.
        lookup.begin(&[1, 2, 3, 2]);
        assert!(lookup.guess(4).is_empty());
        lookup.begin(&[]);
        assert!(lookup.guess(4).is_empty());
        // What follows may be the end itself.
        lookup.read(&[5, 5, 5]);
        assert_eq!(lookup.guess(4), [5]);
        assert!(lookup.guess(0).is_empty());
    }

    #[test]
    fn right_guesses_make_more_of_them() {
        let mut lookup = PromptLookup::new();
        lookup.begin(&(0..40).chain(0..2).collect::<Vec<u32>>());
        assert_eq!(lookup.guess(MOST).len(), 4);
        lookup.judge(4, 4);
        assert_eq!(lookup.guess(MOST).len(), 8);
        lookup.judge(8, 8);
        assert_eq!(lookup.guess(MOST).len(), MOST);
        lookup.judge(15, 2);
        assert_eq!(lookup.guess(MOST).len(), 3);
        for _ in 0..3 {
            lookup.judge(1, 0);
        }
        assert_eq!(lookup.guess(MOST).len(), 1);
    }
}

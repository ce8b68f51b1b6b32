//! Tokens that are guessed, so that the model runs several at once.
//!
//! Each token is sampled from the logits that the model gives after the tokens before it, as it is without guesses. A guess
//! that is not sampled ends what was run ahead; so guesses change how long a text takes, and never the text.

mod lookup;
mod model;
mod vocabulary;

pub use lookup::PromptLookup;
pub use model::ModelDraft;
pub use vocabulary::{TokenDifference, Vocab, VocabularyDifference};

use crate::Error;

/// The most tokens that are guessed at once.
pub const MOST: usize = 15;

/// Guesses the tokens that follow a text.
pub trait Draft {
    /// Begins another text, of which the tokens of `text` are known already. Forgets the text before.
    fn begin(&mut self, text: &[u32]);

    /// Adds tokens to the text.
    fn read(&mut self, tokens: &[u32]);

    /// Makes room for `tokens` more tokens, so that reading them, and guessing between them, allocates nothing.
    ///
    /// # Errors
    /// If memory runs out.
    fn reserve(&mut self, tokens: usize) -> Result<(), Error>;

    /// Guesses the next tokens: `most` at most, perhaps none.
    ///
    /// # Errors
    /// If memory runs out.
    fn guess(&mut self, most: usize) -> Result<&[u32], Error>;

    /// Learns that the first `right` of the last `guessed` tokens were sampled, and the next was not.
    fn judge(&mut self, guessed: usize, right: usize);
}

/// The number of tokens that are guessed at once: more where guesses were right.
#[derive(Clone, Copy, Debug)]
struct Ahead(usize);

impl Ahead {
    /// Before any guess.
    const FIRST: Ahead = Ahead(4);

    /// Learns that the first `right` of the last `guessed` tokens were right.
    fn judge(&mut self, guessed: usize, right: usize) {
        self.0 = match right {
            _ if right == guessed => (2 * self.0).min(MOST),
            0 => (self.0 / 2).max(1),
            right => right + 1,
        };
    }
}

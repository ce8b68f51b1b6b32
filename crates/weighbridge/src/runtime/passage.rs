//! A text as a model reads it.

use engine::text::EncodeOptions;

use super::Runtime;
use crate::Error;

/// A text in the tokens of a model, to be [predicted](engine::eval::evaluate) or [calibrated](engine::calibrate::calibrate) with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its tokens, after the one that begins texts if the tokenizer adds one.
    pub tokens: Vec<u32>,
    /// The token that begins texts, if the tokenizer adds one.
    pub begin: Option<u32>,
}

impl Runtime {
    /// Returns `text` in the tokens of this model. Nothing in it is read as a special token.
    ///
    /// # Errors
    /// If the checkpoint has no tokenizer, or a broken one.
    pub fn passage(&self, text: &str) -> Result<Passage, Error> {
        let tokenizer = self.tokenizer().map_err(|error| Error::Tokenizer(error.diagnostics()))?;
        let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let options = EncodeOptions { add_special: false, parse_special: false };
        let encoded =
            tokenizer.encode(text, options).map_err(|error| Error::Tokenizer(error.diagnostics()))?;
        Ok(Passage { tokens: begin.into_iter().chain(encoded).collect(), begin })
    }

    /// Checks that this model has the same tokens for `text` as another, whose `passage` it is: else they cannot be compared on it.
    ///
    /// # Errors
    /// If it has others, with the place of the first.
    pub fn check_passage(&self, text: &str, passage: &Passage) -> Result<(), Error> {
        let found = self.passage(text)?;
        if found.tokens == passage.tokens {
            return Ok(());
        }
        let same = found.tokens.iter().zip(&passage.tokens).take_while(|(a, b)| a == b).count();
        Err(Error::OtherTokens { path: self.checkpoint().location().to_string(), at: same })
    }
}

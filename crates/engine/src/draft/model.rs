//! Guesses of a second, smaller model.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::vocabulary::{Vocab, check_vocabularies};
use super::{Ahead, Draft, MOST};
use crate::text::Tokenizer;
use crate::{Error, Runner, Session};

/// Guesses what a second model finds most likely, as long as it is sure enough. It pays where that model takes much less time
/// for a token, and often finds the same one.
///
/// The second model keeps a session of its own, which goes back to the text where a guess was wrong. It reads a text when it first
/// guesses what follows, so the first token of an answer does not wait for it. Once the text is longer than the session, it
/// guesses nothing.
///
/// Guesses are the most likely tokens even where the text is sampled: a guess is right with the probability that the sampler
/// gives it, and of all single tokens the most likely one is the best guess.
pub struct ModelDraft {
    runner: Runner,
    session: Session,
    text: Vec<u32>,
    /// The first tokens of the text that the session has run.
    known: usize,
    /// The guesses that it has run behind these, which are behind the whole text.
    run_ahead: VecDeque<u32>,
    guesses: Vec<u32>,
    /// The tokens that both models have.
    shared: usize,
    ahead: Ahead,
}

/// The least difference between the logit of a guess and the next largest: the guess is 1.6 times as likely as any other token.
/// The draft spends no time on what it is less sure of.
const CLEAR: f32 = 0.5;

impl fmt::Debug for ModelDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDraft")
            .field("session", &self.session)
            .field("ahead", &self.ahead)
            .finish_non_exhaustive()
    }
}

impl ModelDraft {
    /// Guesses the tokens of a model whose vocabulary is `target`. `runner` runs the draft, whose tokenizer is `tokenizer`, in `session`.
    ///
    /// # Errors
    /// If the two have different vocabularies, the session is of another model than the runner's, or memory runs out.
    pub fn new(
        mut runner: Runner,
        mut session: Session,
        tokenizer: Option<&Tokenizer>,
        target: Vocab<'_>,
    ) -> Result<ModelDraft, Error> {
        let draft = Vocab { size: runner.model().vocab(), tokenizer };
        check_vocabularies(target, draft)?;
        if !Arc::ptr_eq(session.model(), runner.model()) {
            return Err(Error::OtherModel);
        }
        session.truncate(0);
        runner.reserve(&session)?;
        Ok(ModelDraft {
            shared: draft.size.min(target.size),
            runner,
            session,
            text: vec![],
            known: 0,
            run_ahead: VecDeque::with_capacity(MOST),
            guesses: Vec::with_capacity(MOST),
            ahead: Ahead::FIRST,
        })
    }

    /// The session: what it holds, and how much there is room for.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Guesses `count` tokens, at least 1.
    fn guess_tokens(&mut self, count: usize) -> Result<(), Error> {
        let Some(last) = self.text.len().checked_sub(1) else { return Ok(()) };
        // At least one token has to run, to have logits.
        self.known = self.session.truncate(self.known.min(last));
        self.run_ahead.clear();
        let vocab = self.runner.model().vocab();
        if self.text[self.known..].iter().any(|token| *token as usize >= vocab) {
            return Ok(());
        }
        let mut logits = self.runner.forward(&mut self.session, &self.text[self.known..])?;
        self.known = self.text.len();
        while let Some(guess) = likely(&logits[..self.shared]) {
            self.guesses.push(guess);
            if self.guesses.len() == count {
                break;
            }
            logits = self.runner.forward(&mut self.session, &[guess])?;
            self.run_ahead.push_back(guess);
        }
        Ok(())
    }
}

/// The most likely token, if it is clearly more likely than any other.
fn likely(logits: &[f32]) -> Option<u32> {
    let (mut best, mut second) = ((None, f32::NEG_INFINITY), f32::NEG_INFINITY);
    for (logit, id) in logits.iter().zip(0..) {
        if *logit > best.1 {
            (best, second) = ((Some(id), *logit), best.1);
        } else {
            second = second.max(*logit);
        }
    }
    best.0.filter(|_| best.1 - second >= CLEAR)
}

impl Draft for ModelDraft {
    fn begin(&mut self, text: &[u32]) {
        let same = self.text[..self.known].iter().zip(text).take_while(|(a, b)| a == b).count();
        self.known = same;
        self.run_ahead.clear();
        self.text.clear();
        self.text.extend_from_slice(text);
        self.ahead = Ahead::FIRST;
    }

    fn read(&mut self, tokens: &[u32]) {
        for token in tokens {
            if self.run_ahead.pop_front() == Some(*token) {
                self.known += 1;
            } else {
                self.run_ahead.clear();
            }
            self.text.push(*token);
        }
    }

    fn reserve(&mut self, tokens: usize) -> Result<(), Error> {
        self.text.try_reserve(tokens).map_err(|_| Error::TooLarge)
    }

    fn guess(&mut self, most: usize) -> Result<&[u32], Error> {
        // The last guess is not run.
        let room = (self.session.capacity() + 1).saturating_sub(self.text.len());
        let count = self.ahead.0.min(most).min(room);
        self.guesses.clear();
        if count > 0 {
            self.guess_tokens(count)?;
        }
        Ok(&self.guesses)
    }

    fn judge(&mut self, guessed: usize, right: usize) {
        self.ahead.judge(guessed, right);
    }
}

#[cfg(test)]
mod tests {
    use super::likely;

    #[test]
    fn a_guess_is_clearly_more_likely_than_others() {
        let none = f32::NEG_INFINITY;
        assert_eq!(likely(&[0.0, 2.0, 1.5]), Some(1));
        assert_eq!(likely(&[0.0, 2.0, 1.6]), None);
        assert_eq!(likely(&[1.6, 2.0, 0.0]), None);
        assert_eq!(likely(&[2.0, 1.0, 2.0]), None);
        assert_eq!(likely(&[none, -7.0, none]), Some(1));
        assert_eq!(likely(&[none, none]), None);
        assert_eq!(likely(&[f32::NAN, f32::NAN]), None);
        assert_eq!(likely(&[]), None);
    }
}

//! Tokens of many sessions that run together.

use std::fmt;
use std::ops::Range;

use crate::layer::{Segment, Sessions};
use crate::state::State;
use crate::{Error, Session};

/// Which of its tokens a session wants logits after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens are only remembered.
    None,
    /// The last.
    Last,
    /// Every one.
    All,
}

impl Logits {
    /// The first of `tokens` tokens that logits are wanted after: the others follow it.
    fn first(self, tokens: usize) -> usize {
        match self {
            Logits::None => tokens,
            Logits::Last => tokens.saturating_sub(1),
            Logits::All => 0,
        }
    }
}

/// The tokens that one session takes.
pub(crate) struct BatchItem<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) tokens: &'a [u32],
    pub(crate) logits: Logits,
}

impl BatchItem<'_> {
    /// The number of tokens that logits are wanted after.
    pub(crate) fn wanted(&self) -> usize {
        self.tokens.len() - self.logits.first(self.tokens.len())
    }

    /// Returns the tokens of `range` after which logits are wanted.
    pub(crate) fn wanted_in(&self, range: &Range<usize>) -> Range<usize> {
        range.start.max(self.logits.first(self.tokens.len()))..range.end
    }

    /// Whether the session can take its tokens.
    pub(crate) fn check(&self, vocab: usize) -> Result<(), Error> {
        if self.tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        if let Some(token) = self.tokens.iter().find(|t| **t as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        if !self.session.has_heard() {
            return Err(Error::NothingHeard);
        }
        let (wanted, capacity) = (self.session.position() + self.tokens.len(), self.session.capacity());
        if wanted > capacity {
            return Err(Error::ContextFull { wanted, capacity });
        }
        Ok(())
    }
}

impl Sessions for &mut [BatchItem<'_>] {
    fn state(&self, part: usize, branch: usize) -> (usize, &State) {
        let session = &*self[part].session;
        (session.position(), &session.states[branch])
    }

    fn states_mut<'s>(&'s mut self, branch: usize, each: &mut dyn FnMut(Range<usize>, usize, &'s mut State)) {
        for (part, item) in self.iter_mut().enumerate() {
            let position = item.session.position();
            each(part..part + 1, position, &mut item.session.states[branch]);
        }
    }
}

/// One step of many sessions of one model: each session has one part, with its tokens for this step.
///
/// One session may take a prompt while others take a token each. All rows go through each matrix together; each session
/// attends to its own positions.
#[derive(Default)]
pub struct Batch<'a> {
    pub(crate) parts: Vec<BatchItem<'a>>,
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl<'a> Batch<'a> {
    /// An empty one.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Adds a part: `session` takes `tokens` at its next positions. Parts are counted from 0.
    pub fn add(&mut self, session: &'a mut Session, tokens: &'a [u32], logits: Logits) {
        self.parts.push(BatchItem { session, tokens, logits });
    }
}

/// The same memory for parts of other sessions.
pub(crate) fn recycled<'b>(mut parts: Vec<BatchItem<'_>>) -> Vec<BatchItem<'b>> {
    parts.clear();
    // Empty, and of one layout: the standard library keeps the allocation.
    parts.into_iter().map(|_| unreachable!("there are none")).collect()
}

/// Where the next pass begins: a part, and a token of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    part: usize,
    token: usize,
}

impl Cursor {
    /// Fills `segments` with the next pass over `parts`, of at most `most` rows, and returns its number of rows: 0 at the end.
    pub(crate) fn next_pass(
        &mut self,
        parts: &[BatchItem<'_>],
        most: usize,
        segments: &mut Vec<Segment>,
    ) -> usize {
        segments.clear();
        let mut row = 0;
        while let Some(part) = parts.get(self.part).filter(|_| row < most) {
            let (all, n) = (part.tokens.len(), self.part);
            let tokens = self.token..all.min(self.token + most - row);
            *self = if tokens.end == all {
                Cursor { part: n + 1, token: 0 }
            } else {
                Cursor { part: n, token: tokens.end }
            };
            let segment = Segment { part: n, tokens, row };
            row = segment.rows().end;
            segments.push(segment);
        }
        row
    }
}

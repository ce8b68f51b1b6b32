//! DRY: a penalty for continuing a repetition.

use super::Dry;
use super::candidates::Candidates;
use crate::text::{EncodeOptions, Error, SpecialText, Tokenizer};

/// Buffers of one step; empty if DRY is off.
pub(super) struct State {
    /// By distance from the end of the text: how many tokens before that place equal those before the end.
    equal: Vec<usize>,
    /// By token: one more than the longest repetition that it would continue; 0 if none. `[vocab]`
    longest: Vec<usize>,
    /// The sequences that nothing repeats across, in order.
    breakers: Vec<Vec<u32>>,
}

impl State {
    pub(super) fn new(dry: &Dry, vocab: usize) -> State {
        let mut breakers = if dry.is_on() { dry.breakers.clone() } else { vec![] };
        breakers.retain(|b| !b.is_empty());
        breakers.sort();
        let longest = if dry.is_on() { vec![0; vocab] } else { vec![] };
        State { equal: vec![], longest, breakers }
    }

    /// Makes room for a text of `tokens` tokens.
    pub(super) fn reserve(&mut self, dry: &Dry, tokens: usize) {
        if dry.is_on() {
            let wanted = tokens.min(dry.last);
            self.equal.reserve(wanted.saturating_sub(self.equal.len()));
        }
    }

    /// Makes the tokens less likely that would continue a repetition of the last tokens of `history`.
    pub(super) fn apply(&mut self, dry: &Dry, history: &[u32], candidates: &mut Candidates) {
        let text = &history[history.len() - history.len().min(dry.last)..];
        if !dry.is_on() || text.len() <= dry.allowed_length {
            return;
        }
        let limit = self.unbroken(text);
        if limit < dry.allowed_length {
            return;
        }
        self.compare(text);
        // `at` tokens before the end there is the token that came after such a repetition.
        let continued = |at: usize| text[text.len() - at];
        for (at, equal) in self.equal.iter().enumerate().skip(1) {
            let length = limit.min(*equal);
            if length < dry.allowed_length {
                continue;
            }
            if let Some(longest) = self.longest.get_mut(continued(at) as usize) {
                *longest = (*longest).max(length + 1);
            }
        }
        for at in 1..self.equal.len() {
            let token = continued(at);
            let Some(longest) = self.longest.get_mut(token as usize) else { continue };
            let Some(length) = std::mem::take(longest).checked_sub(1) else { continue };
            if !self.breaks(token) {
                candidates.add(token, -penalty(dry, length));
            }
        }
    }

    /// Whether `token` alone is a breaker.
    fn breaks(&self, token: u32) -> bool {
        self.breakers_from(token).next().is_some_and(|b| b.len() == 1)
    }

    /// The breakers that begin with `token`, in order: the shortest prefix first.
    fn breakers_from(&self, token: u32) -> impl Iterator<Item = &[u32]> {
        let from = self.breakers.partition_point(|b| b[0] < token);
        self.breakers[from..].iter().take_while(move |b| b[0] == token).map(Vec::as_slice)
    }

    /// The number of tokens at the end of `text` after its last breaker.
    fn unbroken(&self, text: &[u32]) -> usize {
        let after = |at: usize| {
            let found = self.breakers_from(text[at]).filter(|b| text[at..].starts_with(b)).map(<[u32]>::len);
            found.max().map(|longest| text.len() - at - longest)
        };
        (0..text.len()).rev().find_map(after).unwrap_or(text.len())
    }

    /// Sets `equal`: at `k`, the number of last tokens of `text` that are also the last ones before its `k` last.
    ///
    /// This is the Z function of the text read backwards: every token is looked at twice at most.
    fn compare(&mut self, text: &[u32]) {
        let n = text.len();
        let back = |i: usize| text[n - 1 - i];
        self.equal.clear();
        self.equal.push(0);
        // The stretch that reaches furthest: it begins at `left` and ends before `right`.
        let (mut left, mut right) = (0, 0);
        for k in 1..n {
            let mut length = if k < right { self.equal[k - left].min(right - k) } else { 0 };
            while k + length < n && back(length) == back(k + length) {
                length += 1;
            }
            if k + length > right {
                (left, right) = (k, k + length);
            }
            self.equal.push(length);
        }
    }
}

/// What is subtracted from the logit of a token that would continue a repetition of `length` tokens.
fn penalty(dry: &Dry, length: usize) -> f32 {
    /// The logarithm of the largest f32: the power stays below it.
    const LARGEST: f32 = 88.722_84;
    let mut power = length - dry.allowed_length;
    if dry.base > 1.000_001 {
        #[expect(clippy::cast_sign_loss, reason = "both logarithms are above 0")]
        let most = (LARGEST / dry.base.ln()) as usize;
        power = power.min(most);
    }
    (f64::from(dry.multiplier) * libm::pow(f64::from(dry.base), power as f64)) as f32
}

/// The sequences of tokens that contain `text`, for [`Dry::breakers`]: each token that contains it, and each token that ends with the
/// beginning of it, followed by the tokens of the rest.
///
/// # Errors
/// If the tokenizer cannot encode a part of `text`.
pub fn breakers(tokenizer: &Tokenizer, text: &str) -> Result<Vec<Vec<u32>>, Error> {
    let mut found = vec![];
    let Some(first) = text.bytes().next() else { return Ok(found) };
    // Where a token may end inside the text, the tokens of the rest.
    let mut rests: Vec<Option<Vec<u32>>> = vec![None; text.len()];
    for end in (1..text.len()).filter(|end| text.is_char_boundary(*end)) {
        rests[end] = Some(tokenizer.encode(&text[end..], EncodeOptions::default())?);
    }
    for token in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
        let word = tokenizer.token_bytes(token, SpecialText::Shown);
        if word.windows(text.len()).any(|part| part == text.as_bytes()) {
            found.push(vec![token]);
            continue;
        }
        for at in (0..word.len()).filter(|at| word[*at] == first) {
            let part = &word[at..];
            let rest = text.as_bytes().starts_with(part).then(|| rests.get(part.len())?.as_deref()).flatten();
            found.extend(rest.map(|rest| [&[token], rest].concat()));
        }
    }
    Ok(found)
}

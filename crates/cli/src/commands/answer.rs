//! The model's answer, token by token.

use std::ops::ControlFlow;

use weighbridge::engine::logprobs::{LogProb, LogProbs};
use weighbridge::engine::text::{SpecialText, StopStrings, TokenStream, Tokenizer};
use weighbridge::engine::{Sampled, Stats, Stop};

use crate::json;

/// An answer of the model.
pub(super) struct Answer {
    /// Up to the string that ended it; none without a tokenizer.
    pub(super) text: Option<String>,
    /// Its tokens, those of that string included.
    pub(super) ids: Vec<u32>,
    /// How likely each was, if that was asked for.
    pub(super) logprobs: Option<Vec<json::TokenLogprob>>,
    /// The string that ended it.
    pub(super) stop_string: Option<String>,
    pub(super) stats: Stats,
    /// Ctrl-C ended it.
    pub(super) interrupted: bool,
}

/// An answer that is not complete.
pub(super) struct Answering<'t> {
    tokenizer: Option<&'t Tokenizer>,
    stream: Option<TokenStream<'t>>,
    stops: StopStrings,
    text: String,
    ids: Vec<u32>,
    logprobs: Option<(LogProbs, Vec<json::TokenLogprob>)>,
}

impl<'t> Answering<'t> {
    /// An answer that one of `stops` ends. `top` likely tokens are kept of each step.
    pub(super) fn new(
        tokenizer: Option<&'t Tokenizer>,
        stops: Vec<String>,
        top: Option<usize>,
    ) -> Answering<'t> {
        Answering {
            tokenizer,
            stream: tokenizer.map(|tokenizer| tokenizer.stream(SpecialText::Hidden)),
            stops: StopStrings::new(stops),
            text: String::new(),
            ids: vec![],
            logprobs: top.map(|top| (LogProbs::new(top), vec![])),
        }
    }

    /// Takes the next token; returns the text that is certain now, and whether the answer goes on.
    pub(super) fn push(&mut self, sampled: Sampled<'_>) -> (&str, ControlFlow<Stop>) {
        self.ids.push(sampled.token);
        if let Some((of, all)) = &mut self.logprobs {
            let (token, top) = of.of(sampled.logits, sampled.token);
            let spelled = |of: LogProb| json::Logprob::of(of, self.tokenizer);
            all.push(json::TokenLogprob::new(spelled(token), top.iter().copied().map(spelled).collect()));
        }
        let piece = self.stream.as_mut().map_or("", |stream| stream.push(sampled.token));
        let piece = self.stops.push(piece);
        self.text.push_str(piece);
        let begins = self.text.len() - piece.len();
        let goes_on = match self.stops.found() {
            Some(_) => ControlFlow::Break(Stop::StopString),
            None => ControlFlow::Continue(()),
        };
        (&self.text[begins..], goes_on)
    }

    /// Ends the answer; returns the rest of the text.
    pub(super) fn finish(mut self, (stats, interrupted): (Stats, bool)) -> (Answer, String) {
        let mut rest = self.stops.push(self.stream.as_mut().map_or("", |stream| stream.finish())).to_owned();
        let stop_string = self.stops.found().map(str::to_owned);
        rest.push_str(self.stops.finish());
        self.text.push_str(&rest);
        let text = self.tokenizer.map(|_| self.text);
        let logprobs = self.logprobs.map(|(_, all)| all);
        (Answer { text, ids: self.ids, logprobs, stop_string, stats, interrupted }, rest)
    }
}

//! The tokens of one window.
//!
//! Source: openai/whisper@v20250625, whisper/decoding.py, `GreedyDecoder`, `BeamSearchDecoder`, `MaximumLikelihoodRanker`.

use std::collections::HashMap;
use std::fmt;

use crate::sampler::random::Pcg32;
use crate::{Batch, Error, Heard, KvKind, Logits, Runner, Session, Snapshot};

use super::rules::{Rules, log_sum};

/// How the tokens of a window are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeOptions {
    /// At temperature 0: texts that are kept at each step; 1 takes the most likely token.
    pub beams: usize,
    /// At temperature 0 with several beams: the search goes on until `patience · beams` texts have ended.
    pub patience: f32,
    /// At higher temperatures: texts that are sampled, of which the likeliest is taken.
    pub best_of: usize,
    /// The likelihood of a text is divided by its length, or with a penalty `p` by `((5 + length) / 6)^p`.
    pub length_penalty: Option<f32>,
}

impl Default for DecodeOptions {
    fn default() -> DecodeOptions {
        DecodeOptions { beams: 5, patience: 1.0, best_of: 5, length_penalty: None }
    }
}

/// The tokens of a window, and how likely they are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) tokens: Vec<u32>,
    /// The mean of the logarithms of the tokens' probabilities, that of the end included.
    pub(super) mean_log_probability: f32,
    /// The probability that there is no speech.
    pub(super) no_speech: f32,
    pub(super) temperature: f32,
}

/// Sessions that decode windows.
pub(super) struct Decoder {
    sessions: Vec<Session>,
    kind: KvKind,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

/// A text that is being written.
#[derive(Clone, Default)]
struct Text {
    tokens: Vec<u32>,
    /// The sum of the logarithms of its tokens' probabilities.
    sum: f32,
}

/// The tokens before those of a window.
pub(super) struct Prompt<'a> {
    pub(super) tokens: &'a [u32],
    /// The place of the token that begins a transcript: after it stands whether there is speech.
    pub(super) start: usize,
}

impl Decoder {
    pub(super) fn new(kind: KvKind) -> Decoder {
        Decoder { sessions: vec![], kind }
    }

    /// Makes room for `count` texts at once.
    fn reserve(&mut self, runner: &Runner, count: usize) -> Result<(), Error> {
        let positions = runner.model().learned_positions().unwrap_or_default();
        while self.sessions.len() < count {
            self.sessions.push(Session::new(runner.model(), self.kind, positions)?);
        }
        Ok(())
    }

    /// Runs `prompt` in the first session: the logits after it, and the probability of no speech.
    fn begin(
        &mut self,
        runner: &mut Runner,
        heard: &Heard,
        prompt: &Prompt<'_>,
        no_speech: u32,
    ) -> Result<(Vec<f32>, f32), Error> {
        self.reserve(runner, 1)?;
        let session = &mut self.sessions[0];
        session.hear(heard)?;
        let (first, rest) = prompt.tokens.split_at(prompt.start + 1);
        let mut logits = runner.forward(session, first)?.to_vec();
        let silent = logits.get(no_speech as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let silent = (silent - log_sum(&logits)).exp();
        if !rest.is_empty() {
            logits.copy_from_slice(runner.forward(session, rest)?);
        }
        Ok((logits, silent))
    }

    /// The logits after the first token of a transcript.
    pub(super) fn first_logits(
        &mut self,
        runner: &mut Runner,
        heard: &Heard,
        start: u32,
    ) -> Result<Vec<f32>, Error> {
        let prompt = Prompt { tokens: &[start], start: 0 };
        Ok(self.begin(runner, heard, &prompt, start)?.0)
    }

    /// The tokens that follow `prompt`, up to the end, which is not among them: at a temperature, and drawn by what is random.
    pub(super) fn run(
        &mut self,
        runner: &mut Runner,
        heard: &Heard,
        prompt: &Prompt<'_>,
        rules: &Rules<'_>,
        options: &DecodeOptions,
        (temperature, random): (f32, &mut Pcg32),
    ) -> Result<Decoded, Error> {
        let positions = runner.model().learned_positions().unwrap_or_default();
        // As many as half of the positions; the last that is chosen takes none.
        let most = (positions / 2).min((positions + 1).saturating_sub(prompt.tokens.len()));
        let (logits, no_speech) = self.begin(runner, heard, prompt, rules.markers.no_speech)?;
        let texts = if temperature > 0.0 {
            self.sampled(runner, logits, rules, most, options.best_of.max(1), Some((temperature, random)))?
        } else if options.beams > 1 {
            self.searched(runner, logits, rules, most, options)?
        } else {
            self.sampled(runner, logits, rules, most, 1, None)?
        };
        let score = |text: &Text| {
            let length = text.tokens.len() as f32;
            let penalty = options.length_penalty.map_or(length, |by| ((5.0 + length) / 6.0).powf(by));
            if penalty > 0.0 { text.sum / penalty } else { f32::NEG_INFINITY }
        };
        // The first of the best, as the reference's `argmax`.
        let best =
            texts.into_iter().reduce(|best, text| if score(&text) > score(&best) { text } else { best });
        let Text { tokens, sum } = best.unwrap_or_default();
        let mean_log_probability = sum / (tokens.len() + 1) as f32;
        Ok(Decoded { tokens, mean_log_probability, no_speech, temperature })
    }

    /// `count` texts, of the likeliest tokens or sampled.
    fn sampled(
        &mut self,
        runner: &mut Runner,
        logits: Vec<f32>,
        rules: &Rules<'_>,
        most: usize,
        count: usize,
        mut sampling: Option<(f32, &mut Pcg32)>,
    ) -> Result<Vec<Text>, Error> {
        self.reserve(runner, count)?;
        self.spread(&[0].repeat(count))?;
        let mut texts = vec![Text::default(); count];
        let mut ended = vec![false; count];
        let mut all: Vec<Vec<f32>> = vec![logits; count];
        for step in 0..most {
            for ((text, logits), ended) in texts.iter_mut().zip(&mut all).zip(&mut ended) {
                if *ended {
                    continue;
                }
                rules.apply(logits, &text.tokens);
                let token = match &mut sampling {
                    None => largest(logits),
                    Some((temperature, random)) => drawn(logits, *temperature, random),
                };
                text.sum += logits[token as usize];
                *ended = token == rules.markers.end;
                if !*ended {
                    text.tokens.push(token);
                }
            }
            if step + 1 == most || ended.iter().all(|ended| *ended) {
                break;
            }
            let running: Vec<usize> = (0..count).filter(|n| !ended[*n]).collect();
            self.step(runner, &running, &texts, &mut all)?;
        }
        Ok(texts)
    }

    /// The texts that a beam search finds.
    fn searched(
        &mut self,
        runner: &mut Runner,
        logits: Vec<f32>,
        rules: &Rules<'_>,
        most: usize,
        options: &DecodeOptions,
    ) -> Result<Vec<Text>, Error> {
        let beams = options.beams;
        #[expect(clippy::cast_sign_loss, reason = "saturates")]
        let wanted = ((beams as f32 * options.patience).round() as usize).max(1);
        self.reserve(runner, beams)?;
        // Before the first token all are one.
        let mut texts = vec![Text::default()];
        let mut all = vec![logits];
        let mut finished: Vec<Text> = vec![];
        for step in 0..most {
            let mut found: Vec<(Text, usize)> = vec![];
            let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
            for (beam, (text, logits)) in texts.iter().zip(&mut all).enumerate() {
                rules.apply(logits, &text.tokens);
                for token in best(logits, beams + 1) {
                    let mut tokens = text.tokens.clone();
                    tokens.push(token);
                    let next = Text { sum: text.sum + logits[token as usize], tokens };
                    match places.get(&next.tokens) {
                        Some(place) => found[*place] = (next, beam),
                        None => {
                            places.insert(next.tokens.clone(), found.len());
                            found.push((next, beam));
                        }
                    }
                }
            }
            found.sort_by(|(a, _), (b, _)| b.sum.total_cmp(&a.sum));
            let (mut kept, mut sources, mut ends) = (vec![], vec![], vec![]);
            for (text, beam) in found {
                if text.tokens.last() == Some(&rules.markers.end) {
                    ends.push(text);
                } else {
                    kept.push(text);
                    sources.push(beam);
                    if kept.len() == beams {
                        break;
                    }
                }
            }
            for mut text in ends {
                if finished.len() < wanted {
                    text.tokens.pop();
                    finished.push(text);
                }
            }
            texts = kept;
            if finished.len() >= wanted || step + 1 == most || texts.is_empty() {
                break;
            }
            self.spread(&sources)?;
            all.resize(texts.len(), vec![0.0; runner.model().vocab()]);
            let running: Vec<usize> = (0..texts.len()).collect();
            self.step(runner, &running, &texts, &mut all)?;
        }
        if finished.len() < beams {
            let missing = beams - finished.len();
            finished.extend(texts.into_iter().take(missing));
        }
        Ok(finished)
    }

    /// Makes of session `n` what session `sources[n]` is.
    fn spread(&mut self, sources: &[usize]) -> Result<(), Error> {
        let mut snapshots: Vec<Option<Snapshot>> = vec![None; self.sessions.len()];
        for (_, from) in sources.iter().enumerate().filter(|(to, from)| to != *from) {
            snapshots[*from].get_or_insert_with(|| self.sessions[*from].snapshot());
        }
        for (to, from) in sources.iter().enumerate().filter(|(to, from)| to != *from) {
            if let Some(snapshot) = &snapshots[*from] {
                self.sessions[to].restore(snapshot)?;
            }
        }
        Ok(())
    }

    /// Runs the last token of each text that is `running`; `all` then has the logits after it.
    fn step(
        &mut self,
        runner: &mut Runner,
        running: &[usize],
        texts: &[Text],
        all: &mut [Vec<f32>],
    ) -> Result<(), Error> {
        let mut batch = Batch::new();
        let sessions = self.sessions.iter_mut().enumerate().filter(|(n, _)| running.contains(n));
        for (n, session) in sessions {
            batch.add(session, texts[n].tokens.last_chunk::<1>().map_or(&[], |last| last), Logits::Last);
        }
        runner.run(batch, |part, _, logits| all[running[part]].copy_from_slice(logits))
    }
}

/// The place of the largest, the first of several.
fn largest(x: &[f32]) -> u32 {
    let mut best = 0;
    for (place, value) in x.iter().enumerate() {
        if *value > x[best] {
            best = place;
        }
    }
    best as u32
}

/// The places of the `count` largest, in their order.
fn best(x: &[f32], count: usize) -> Vec<u32> {
    let mut places: Vec<u32> = vec![];
    for (place, value) in x.iter().enumerate() {
        if places.len() == count && places.last().is_some_and(|last| *value <= x[*last as usize]) {
            continue;
        }
        let at = places.partition_point(|other| x[*other as usize] >= *value);
        places.insert(at, place as u32);
        places.truncate(count);
    }
    places.retain(|place| x[*place as usize] > f32::NEG_INFINITY);
    places
}

/// A token drawn by its probability at `temperature`.
fn drawn(log_probabilities: &[f32], temperature: f32, random: &mut Pcg32) -> u32 {
    let most = log_probabilities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |x: f32| f64::from(((x - most) / temperature).exp());
    let total: f64 = log_probabilities.iter().map(|x| weight(*x)).sum();
    let mut left = random.uniform() * total;
    for (token, x) in log_probabilities.iter().enumerate() {
        left -= weight(*x);
        if left < 0.0 {
            return token as u32;
        }
    }
    largest(log_probabilities)
}

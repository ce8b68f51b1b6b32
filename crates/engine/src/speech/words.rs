//! When each word is said: the decoder's attention to the sound, followed along its likeliest way.
//!
//! Source: openai/whisper@v20250625, whisper/timing.py, and `split_to_word_tokens` of whisper/tokenizer.py.

use crate::text::{SpecialText, Tokenizer};
use crate::{Error, Heard, KvKind, Runner, Session};

use super::rules::log_sum;
use super::window::Segment;
use super::{Markers, TIME_STEP};

/// A word, with the space before it and the punctuation around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Its text.
    pub text: String,
    /// Seconds from the start of the sound.
    pub start: f64,
    /// The same.
    pub end: f64,
    /// The mean probability of its tokens.
    pub probability: f32,
}

/// A word with the number of its tokens.
#[derive(Clone, Debug, PartialEq)]
struct Timed {
    word: Word,
    tokens: usize,
}

/// Frames that a time is smoothed over.
const MEDIAN: usize = 7;
/// Languages without spaces between words.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
const PREPENDED: &str = "\"'“¿([{-";
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Finds the times of words.
pub(super) struct Aligner<'a> {
    pub(super) heard: &'a Heard,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) markers: &'a Markers,
    /// Layers of the decoder, and heads of them.
    pub(super) heads: &'a [(usize, usize)],
    pub(super) kind: KvKind,
    pub(super) language: Option<&'a str>,
}

impl Aligner<'_> {
    /// Finds the words of the segments of one window, which begins `offset` seconds into the sound. `start` are the tokens that began
    /// its transcript, and `steps` the steps of time that it has. `said` is when the last word before it ended.
    pub(super) fn run(
        &self,
        runner: &mut Runner,
        start: &[u32],
        steps: usize,
        offset: f64,
        said: f64,
        segments: &mut [Segment],
    ) -> Result<(), Error> {
        let is_text = |token: &&u32| **token < self.markers.end;
        let texts: Vec<Vec<u32>> =
            segments.iter().map(|s| s.tokens.iter().filter(is_text).copied().collect()).collect();
        let mut words = self.align(runner, start, &texts.concat(), steps)?;
        let mut durations: Vec<f64> =
            words.iter().map(|t| t.word.end - t.word.start).filter(|d| *d != 0.0).collect();
        durations.sort_by(f64::total_cmp);
        let median = match durations.len() {
            0 => 0.0,
            n if n % 2 == 1 => durations[n / 2],
            n => f64::midpoint(durations[n / 2 - 1], durations[n / 2]),
        };
        let median = median.min(0.7);
        if !durations.is_empty() {
            shorten_at_ends(&mut words, 2.0 * median);
        }
        merge_punctuation(&mut words);
        let (mut words, mut said) = (words.into_iter(), said);
        for (segment, text) in segments.iter_mut().zip(&texts) {
            let (mut found, mut tokens) = (vec![], 0);
            while tokens < text.len() {
                let Some(Timed { mut word, tokens: count }) = words.next() else { break };
                tokens += count;
                if !word.text.is_empty() {
                    word.start = hundredths(offset + word.start);
                    word.end = hundredths(offset + word.end);
                    found.push(word);
                }
            }
            fit(segment, &mut found, median, &mut said);
            segment.words = found;
        }
        Ok(())
    }

    /// The words of `text`, with times in the window.
    fn align(
        &self,
        runner: &mut Runner,
        start: &[u32],
        text: &[u32],
        steps: usize,
    ) -> Result<Vec<Timed>, Error> {
        if text.is_empty() || steps == 0 {
            return Ok(vec![]);
        }
        let Markers { no_times, end, .. } = *self.markers;
        let start: Vec<u32> = start.iter().copied().filter(|token| *token != no_times).collect();
        let tokens: Vec<u32> =
            start.iter().copied().chain([no_times]).chain(text.iter().copied()).chain([end]).collect();
        let mut session = Session::new(runner.model(), self.kind, tokens.len())?;
        session.hear(self.heard)?;
        let (mut probabilities, mut n) = (vec![], 0usize);
        let attention = runner.forward_watched(&mut session, &tokens, self.heads, |logits| {
            let next = n.checked_sub(start.len()).and_then(|next| text.get(next));
            if let Some(next) = next {
                let logits = &logits[..end as usize];
                probabilities.push((logits[*next as usize] - log_sum(logits)).exp());
            }
            n += 1;
        })?;
        let rows = tokens.len();
        let matrix = focus(&attention, self.heads.len(), rows, steps);
        // The rows after what begins the transcript, without that of the end.
        let way = way(&matrix[start.len() * steps..(rows - 1) * steps], steps);
        // The step at which each token begins.
        let mut begins: Vec<f64> = vec![];
        for (row, step) in way {
            if row == begins.len() {
                begins.push(step as f64 * TIME_STEP);
            }
        }
        let mut timed = vec![];
        let mut first = 0;
        for (word, count) in self.split(text) {
            let last = first + count;
            let mean = probabilities[first..last].iter().sum::<f32>() / count.max(1) as f32;
            let word = Word { text: word, start: begins[first], end: begins[last], probability: mean };
            timed.push(Timed { word, tokens: count });
            first = last;
        }
        Ok(timed)
    }

    /// The words of `tokens`, with their numbers of tokens.
    fn split(&self, tokens: &[u32]) -> Vec<(String, usize)> {
        let mut parts: Vec<(String, usize)> = vec![];
        let (mut bytes, mut count) = (vec![], 0);
        for (n, token) in tokens.iter().enumerate() {
            bytes.extend_from_slice(&self.tokenizer.token_bytes(*token, SpecialText::Hidden));
            count += 1;
            let is_whole = match std::str::from_utf8(&bytes) {
                Ok(_) => true,
                // Bytes that never become a character count as one.
                Err(error) => error.error_len().is_some() || n + 1 == tokens.len(),
            };
            if is_whole {
                parts.push((String::from_utf8_lossy(&std::mem::take(&mut bytes)).into_owned(), count));
                count = 0;
            }
        }
        if self.language.is_some_and(|language| UNSPACED.contains(&language)) {
            return parts;
        }
        let mut words: Vec<(String, usize)> = vec![];
        for (part, count) in parts {
            let begins = part.starts_with(' ') || PUNCTUATION.contains(part.trim());
            match words.last_mut().filter(|_| !begins) {
                Some((word, tokens)) => {
                    word.push_str(&part);
                    *tokens += count;
                }
                None => words.push((part, count)),
            }
        }
        words
    }
}

/// How much each token looks at each step of time, over all heads: `[rows, steps]` of products of queries and keys
/// `[heads, rows, context]`.
fn focus(products: &[f32], heads: usize, rows: usize, steps: usize) -> Vec<f64> {
    let context = products.len() / (heads * rows).max(1);
    let steps_there = steps.min(context);
    let mut mean = vec![0f64; rows * steps];
    let mut head_weights = vec![0f64; rows * steps];
    let mut column = vec![0f64; rows];
    for head in products.chunks_exact(rows * context) {
        for (row, weights) in head.chunks_exact(context).zip(head_weights.chunks_exact_mut(steps)) {
            let row = &row[..steps_there];
            let sum = log_sum(row);
            weights.iter_mut().zip(row).for_each(|(weight, x)| *weight = f64::from((x - sum).exp()));
        }
        for step in 0..steps {
            column.iter_mut().enumerate().for_each(|(row, x)| *x = head_weights[row * steps + step]);
            let average = column.iter().sum::<f64>() / rows as f64;
            let variance = column.iter().map(|x| (x - average) * (x - average)).sum::<f64>() / rows as f64;
            let deviation = variance.sqrt();
            column
                .iter()
                .enumerate()
                .for_each(|(row, x)| head_weights[row * steps + step] = (x - average) / deviation);
        }
        for (weights, mean) in head_weights.chunks_exact(steps).zip(mean.chunks_exact_mut(steps)) {
            let half = MEDIAN / 2;
            let mut window = [0f64; MEDIAN];
            for (step, mean) in mean.iter_mut().enumerate() {
                if steps <= half {
                    *mean += weights[step] / heads as f64;
                    continue;
                }
                for (n, x) in window.iter_mut().enumerate() {
                    // Beyond the ends it is as before them, mirrored.
                    let at = (step + n).cast_signed() - half.cast_signed();
                    let at = at.unsigned_abs();
                    *x = weights[if at < steps { at } else { 2 * (steps - 1) - at }];
                }
                window.sort_by(f64::total_cmp);
                *mean += window[half] / heads as f64;
            }
        }
    }
    mean
}

/// The way through `matrix`, `[rows, steps]`, from its first place to its last, that meets the largest sum: pairs of row and step.
/// Dynamic time warping.
fn way(matrix: &[f64], steps: usize) -> Vec<(usize, usize)> {
    let rows = matrix.len() / steps;
    let mut cost = vec![f64::INFINITY; (rows + 1) * (steps + 1)];
    let mut from = vec![0u8; (rows + 1) * (steps + 1)];
    let at = |row: usize, step: usize| row * (steps + 1) + step;
    cost[0] = 0.0;
    for step in 1..=steps {
        for row in 1..=rows {
            let both = cost[at(row - 1, step - 1)];
            let (above, before) = (cost[at(row - 1, step)], cost[at(row, step - 1)]);
            let (least, way) = if both < above && both < before {
                (both, 0)
            } else if above < both && above < before {
                (above, 1)
            } else {
                (before, 2)
            };
            cost[at(row, step)] = least - matrix[(row - 1) * steps + step - 1];
            from[at(row, step)] = way;
        }
    }
    let (mut row, mut step) = (rows, steps);
    let mut way = vec![];
    while row > 0 || step > 0 {
        way.push((row.saturating_sub(1), step.saturating_sub(1)));
        // On the edges there is one way.
        match if row == 0 {
            2
        } else if step == 0 {
            1
        } else {
            from[at(row, step)]
        } {
            0 => (row, step) = (row - 1, step - 1),
            1 => row -= 1,
            _ => step -= 1,
        }
    }
    way.reverse();
    way
}

/// Words at the ends of sentences are no longer than `longest`: silence is not part of them.
fn shorten_at_ends(words: &mut [Timed], longest: f64) {
    for n in 1..words.len() {
        let (before, rest) = words.split_at_mut(n);
        let (before, word) = (&before[n - 1].word, &mut rest[0].word);
        if word.end - word.start > longest {
            if SENTENCE_ENDS.contains(&*word.text) {
                word.end = word.start + longest;
            } else if SENTENCE_ENDS.contains(&*before.text) {
                word.start = word.end - longest;
            }
        }
    }
}

/// Punctuation becomes part of the word that it is written with.
fn merge_punctuation(words: &mut [Timed]) {
    let mut following = words.len().saturating_sub(1);
    for n in (0..words.len().saturating_sub(1)).rev() {
        let Timed { word, .. } = &words[n];
        if word.text.starts_with(' ') && PREPENDED.contains(word.text.trim()) {
            let text = std::mem::take(&mut words[n].word.text);
            let tokens = std::mem::take(&mut words[n].tokens);
            words[following].word.text.insert_str(0, &text);
            words[following].tokens += tokens;
        } else {
            following = n;
        }
    }
    let mut previous = 0;
    for n in 1..words.len() {
        if !words[previous].word.text.ends_with(' ') && APPENDED.contains(&*words[n].word.text) {
            let text = std::mem::take(&mut words[n].word.text);
            let tokens = std::mem::take(&mut words[n].tokens);
            words[previous].word.text.push_str(&text);
            words[previous].tokens += tokens;
        } else {
            previous = n;
        }
    }
}

/// Makes the times of a segment and of its words agree. `said` is when the last word before it ended.
fn fit(segment: &mut Segment, words: &mut [Word], median: f64, said: &mut f64) {
    let longest = 2.0 * median;
    let second = words.get(1).map(|word| (word.start, word.end));
    let Some(first) = words.first_mut() else { return };
    // After a pause, the first words are not as long as it.
    let is_long =
        first.end - first.start > longest || second.is_some_and(|(_, end)| end - first.start > 2.0 * longest);
    if first.end - *said > 4.0 * median && is_long {
        if let Some((_, end)) = second.filter(|(start, end)| end - start > longest) {
            let boundary = (end / 2.0).max(end - longest);
            first.end = boundary;
            words[1].start = boundary;
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    let first = &mut words[0];
    if segment.start < first.end && segment.start - 0.5 > first.start {
        first.start = (first.end - median).min(segment.start).max(0.0);
    } else {
        segment.start = first.start;
    }
    if let Some(last) = words.last_mut() {
        if segment.end > last.start && segment.end + 0.5 < last.end {
            last.end = (last.start + median).max(segment.end);
        } else {
            segment.end = last.end;
        }
    }
    *said = segment.end;
}

/// Rounded to two digits.
fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `dtw` of whisper/timing.py has it, ties included.
    #[test]
    fn the_way_follows_what_is_largest() {
        let matrix = [3.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0];
        assert_eq!(way(&matrix, 5), [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (1, 4)]);
        let matrix = [3.0, 2.0, -1.0, 0.0, 0.0, 0.0, -1.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.5, -1.0, 4.0];
        assert_eq!(way(&matrix, 5), [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (2, 4)]);
    }

    #[test]
    fn punctuation_is_part_of_a_word() {
        let timed = |text: &str| Timed {
            word: Word { text: text.to_owned(), start: 0.0, end: 1.0, probability: 1.0 },
            tokens: 1,
        };
        let mut words: Vec<Timed> = [" \"", "Yes", ",", " he", " said", ".", "\""].map(timed).to_vec();
        merge_punctuation(&mut words);
        let texts: Vec<(&str, usize)> = words.iter().map(|t| (&*t.word.text, t.tokens)).collect();
        assert_eq!(texts, [("", 0), (" \"Yes,", 3), ("", 0), (" he", 1), (" said.\"", 3), ("", 0), ("", 0)]);
    }
}

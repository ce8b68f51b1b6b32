//! Which choices of a task a model takes: those that it finds most likely.
//!
//! Tokens are split, cut and scored as EleutherAI's lm-evaluation-harness does it (lm_eval/api/model.py, `_encode_pair`;
//! lm_eval/models/huggingface.py, `_loglikelihood_tokens`; lm_eval/api/task.py, `process_results`; @4e7e0d47f).

use super::problems::Problems;
use super::task::{Choice, Task, TaskKind, is_space};
use super::{Distribution, Mean, Predictor};
use crate::Error;
use crate::text::{self, EncodeOptions, Tokenizer};

/// The tokens of a task, as a model takes them.
#[derive(Clone, Debug)]
pub struct EncodedTask {
    /// The data set that the rows are like.
    pub kind: TaskKind,
    /// Questions that lost tokens at the front, because the model has too few positions.
    pub truncated: usize,
    questions: Vec<EncodedQuestion>,
}

#[derive(Clone, Debug)]
struct EncodedQuestion {
    choices: Vec<EncodedChoice>,
    answer: usize,
}

/// Neither list is empty.
#[derive(Clone, Debug)]
struct EncodedChoice {
    context: Vec<u32>,
    continuation: Vec<u32>,
    /// Characters to divide by.
    length: Option<usize>,
}

impl EncodedTask {
    /// The number of questions.
    pub fn questions(&self) -> usize {
        self.questions.len()
    }

    /// Positions that a session needs. The last token of a choice is scored, and not run.
    pub fn positions(&self) -> usize {
        let all = self.questions.iter().flat_map(|question| &question.choices);
        all.map(|choice| choice.context.len() + choice.continuation.len() - 1).max().unwrap_or(0)
    }
}

/// The tokens of `tasks` for a model of `positions` positions. Contexts that are too long lose tokens at the front.
///
/// # Errors
/// [`Error::Rows`] with every choice that adds no token to its context, or does not fit into the positions itself.
pub fn encode(tasks: &[Task], tokenizer: &Tokenizer, positions: usize) -> Result<Vec<EncodedTask>, Error> {
    let mut problems = Problems::default();
    let mut all = vec![];
    for task in tasks {
        let mut encoded = EncodedTask { kind: task.kind, truncated: 0, questions: vec![] };
        for question in &task.questions {
            let (mut choices, mut truncated) = (vec![], false);
            for (n, choice) in (1..).zip(&question.choices) {
                let mut add = |what: String| problems.add(&task.path, question.line, what);
                let EncodedChoice { mut context, continuation, length } = match pair(tokenizer, choice) {
                    Ok(pair) => pair,
                    Err(error) => {
                        add(error.to_string());
                        continue;
                    }
                };
                if context.is_empty() || continuation.is_empty() {
                    add(format!("choice {n} adds no token to its context"));
                    continue;
                }
                if continuation.len() > positions {
                    add(format!(
                        "choice {n} has {} tokens, and the model {positions} positions",
                        continuation.len()
                    ));
                    continue;
                }
                // One token more than there are positions: the last is not run.
                let too_many = (context.len() + continuation.len() - 1).saturating_sub(positions);
                context.drain(..too_many);
                truncated |= too_many > 0;
                choices.push(EncodedChoice { context, continuation, length });
            }
            encoded.truncated += usize::from(truncated);
            encoded.questions.push(EncodedQuestion { choices, answer: question.answer });
        }
        all.push(encoded);
    }
    problems.none()?;
    Ok(all)
}

/// The tokens of the context, and those that the continuation adds. Spaces between belong to the continuation.
fn pair(tokenizer: &Tokenizer, choice: &Choice) -> Result<EncodedChoice, text::Error> {
    let options = EncodeOptions { add_special: true, parse_special: true };
    let context = tokenizer.encode(choice.context.trim_end_matches(is_space), options)?;
    let mut whole = tokenizer.encode(&format!("{}{}", choice.context, choice.continuation), options)?;
    let continuation = whole.split_off(context.len().min(whole.len()));
    Ok(EncodedChoice { context, continuation, length: choice.length })
}

/// What a model finds of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// `ln p` of each choice after its context, in nats.
    pub log_likelihoods: Vec<f64>,
    /// The most likely choice, the first of equals.
    pub choice: usize,
    /// The most likely choice with `ln p` divided by the characters of each; `None` if the task has no `acc_norm`.
    pub choice_norm: Option<usize>,
}

/// How well a model answers a task.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// 1 for each question whose most likely choice is the right one, else 0.
    pub acc: Mean,
    /// The same by [`Answer::choice_norm`]; `None` if the task has none.
    pub acc_norm: Option<Mean>,
    /// The answers, in the order of the questions.
    pub answers: Vec<Answer>,
}

impl Score {
    fn add(&mut self, answer: Answer, right: usize) {
        self.acc.add(truth(answer.choice == right));
        if let Some(choice) = answer.choice_norm {
            self.acc_norm.get_or_insert_default().add(truth(choice == right));
        }
        self.answers.push(answer);
    }

    /// 1 for each question for which both models take the same choice, else 0: by [`Answer::choice`], and by
    /// [`Answer::choice_norm`]. Both scores are of one task.
    pub fn same(&self, other: &Score) -> (Mean, Option<Mean>) {
        let (mut same, mut same_norm) = (Mean::default(), None::<Mean>);
        for (ours, theirs) in self.answers.iter().zip(&other.answers) {
            same.add(truth(ours.choice == theirs.choice));
            if let Some((ours, theirs)) = ours.choice_norm.zip(theirs.choice_norm) {
                same_norm.get_or_insert_default().add(truth(ours == theirs));
            }
        }
        (same, same_norm)
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Scores each choice of each question of `task`. `each` sees the score so far after each question.
///
/// # Errors
/// If the session has fewer than [`EncodedTask::positions`] positions, or logits are not numbers.
pub fn score(
    predictor: &mut Predictor<'_>,
    task: &EncodedTask,
    each: &mut dyn FnMut(&Score),
) -> Result<Score, Error> {
    let (mut reader, mut score) = (Reader { predictor, held: vec![], after: vec![] }, Score::default());
    for EncodedQuestion { choices, answer } in &task.questions {
        let log_likelihoods: Vec<f64> =
            choices.iter().map(|choice| reader.log_likelihood(choice)).collect::<Result<_, Error>>()?;
        let normed = |(p, choice): (&f64, &EncodedChoice)| Some(p / choice.length? as f64);
        let normed: Option<Vec<f64>> = log_likelihoods.iter().zip(choices).map(normed).collect();
        let choice_norm = normed.as_deref().map(largest);
        score.add(Answer { choice: largest(&log_likelihoods), choice_norm, log_likelihoods }, *answer);
        each(&score);
    }
    Ok(score)
}

/// The index of the largest value, the first of equals.
fn largest(values: &[f64]) -> usize {
    (0..values.len()).reduce(|best, at| if values[at] > values[best] { at } else { best }).unwrap_or(0)
}

/// A session that runs what contexts have in common once.
struct Reader<'p, 'a> {
    predictor: &'p mut Predictor<'a>,
    /// The context in the session.
    held: Vec<u32>,
    /// The logits after it, `[vocab]`.
    after: Vec<f32>,
}

impl Reader<'_, '_> {
    fn log_likelihood(&mut self, choice: &EncodedChoice) -> Result<f64, Error> {
        let Some((first, rest)) = choice.continuation.split_first() else { return Err(Error::NoTokens) };
        self.read(&choice.context)?;
        let mut sum = -Distribution::of(&self.after)?.nll(*first);
        let Predictor { runner, session } = &mut *self.predictor;
        let run = &choice.continuation[..rest.len()];
        if !run.is_empty() {
            let (mut next, mut scored) = (rest.iter(), vec![]);
            runner.forward_each(session, run, |logits| {
                scored.extend(next.next().map(|token| Ok(Distribution::of(logits)?.nll(*token))));
            })?;
            if session.truncate(choice.context.len()) < choice.context.len() {
                self.held.clear();
            }
            sum -= scored.into_iter().sum::<Result<f64, Error>>()?;
        }
        Ok(sum)
    }

    /// Brings `context` into the session, and the logits after it.
    fn read(&mut self, context: &[u32]) -> Result<(), Error> {
        if self.held == context {
            return Ok(());
        }
        let common = self.held.iter().zip(context).take_while(|(held, wanted)| held == wanted).count();
        // The last token is run in any case, for its logits.
        let common = common.min(context.len().saturating_sub(1));
        let Predictor { runner, session } = &mut *self.predictor;
        let common = session.truncate(common);
        let logits = runner.forward(session, &context[common..])?;
        self.after.clear();
        self.after.extend_from_slice(logits);
        context.clone_into(&mut self.held);
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "small integers are exact")]
mod tests {
    use super::*;

    #[test]
    fn of_equals_the_first_is_taken() {
        assert_eq!(largest(&[-2.0, -1.0, -1.0]), 1);
        assert_eq!(largest(&[f64::NEG_INFINITY; 2]), 0);
    }

    #[test]
    fn accuracy_and_agreement_count_choices() {
        let answer = |choice, choice_norm| Answer { log_likelihoods: vec![], choice, choice_norm };
        let (mut ours, mut theirs) = (Score::default(), Score::default());
        for (mine, its, right) in [(0, 0, 0), (1, 0, 1), (2, 2, 3), (3, 1, 3)] {
            ours.add(answer(mine, Some(its)), right);
            theirs.add(answer(its, Some(its)), right);
        }
        assert_eq!((ours.acc.mean(), theirs.acc.mean()), (0.75, 0.25));
        assert_eq!(ours.acc_norm.unwrap().mean(), 0.25);
        let (same, same_norm) = ours.same(&theirs);
        assert_eq!((same.mean(), same_norm.unwrap().mean()), (0.5, 1.0));
        ours.answers.iter_mut().for_each(|answer| answer.choice_norm = None);
        assert_eq!(ours.same(&theirs).1, None);
    }
}

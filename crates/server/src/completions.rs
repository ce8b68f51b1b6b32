//! `/v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weighbridge::engine::text::{EncodeOptions, SpecialText};

use crate::answer::{Answer, Whole, logprob};
use crate::chunks::{self, Shape};
use crate::fields::Fields;
use crate::prepare::{Common, Prompt, ids, reading};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::shapes::{Completion, CompletionChoice, CompletionLogprobs, finish_reason};
use crate::work::{Likely, Logprobs, Said};

/// Tokens of an answer, unless the request says how many: OpenAI's number.
const TOKENS: usize = 16;

/// A text to be continued.
enum Given {
    Text(String),
    Ids(Vec<u32>),
}

pub(crate) async fn answer(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (common, logprobs, prepared, echoes) = reading(&service, request, |mut fields, service| {
        let Asked { common, prompts, logprobs, echo } = asked(&mut fields, service);
        fields.end()?;
        common.check_model(service)?;
        let encode = || {
            prompts.iter().map(|prompt| Ok(Prompt { tokens: encode(service, prompt)?, form: None })).collect()
        };
        let prepared = common.prepare(service, prompts.len(), TOKENS, "prompt", encode)?;
        let echoes =
            if echo { prompts.iter().map(|prompt| text(service, prompt)).collect() } else { Ok(vec![]) };
        Ok((common, logprobs, prepared, echoes?))
    })
    .await?;
    let (stream, include_usage, n) = (common.stream, common.include_usage, common.n);
    let mut answer = Answer::begin(&service, prepared, common, logprobs, "cmpl-").await?;
    let count = echoes.len().max(1) * n;
    let mut shape =
        Text { service, wants_logprobs: logprobs.is_some(), echoes, n, offsets: Vec::with_capacity(count) };
    if stream {
        return Ok(chunks::stream(answer, include_usage, shape));
    }
    let (texts, usage) = answer.whole().await?;
    let choice = |(index, whole): (usize, Whole)| {
        let begin = shape.echo(index).unwrap_or_default();
        let said = Said { text: whole.text, tokens: whole.tokens, ..Said::default() };
        let mut choice = shape.choice(index, said, Some(finish_reason(whole.ending.stop)));
        choice.text.insert_str(0, &begin);
        choice
    };
    let head = answer.head("text_completion", &texts);
    let choices = texts.into_iter().enumerate().map(choice).collect();
    Ok(Json(Completion { head, choices, usage }).into_response())
}

/// The fields of a request.
pub(crate) struct Asked {
    common: Common,
    prompts: Vec<Given>,
    logprobs: Option<Logprobs>,
    echo: bool,
}

/// Reads a request.
pub(crate) fn asked(fields: &mut Fields, service: &Service) -> Asked {
    let common = Common::read(fields, service);
    let prompts = prompts(fields, service.vocab);
    let top = fields.whole("logprobs", 0, 20).map(|top| usize::try_from(top).unwrap_or(0));
    let echo = fields.flag("echo").unwrap_or(false);
    let logprobs = top.map(|top| Logprobs { top, of_prompt: echo, of_end: true });
    fields.only("suffix", &[json!("")], "is not supported here");
    fields.only("best_of", &[json!(common.n)], "wanted the value of `n`: answers are not chosen from");
    Asked { common, prompts, logprobs, echo }
}

/// Reads the texts: a string, token ids, or a list of either.
fn prompts(fields: &mut Fields, vocab: usize) -> Vec<Given> {
    let read = |value: Value| match value {
        Value::String(text) => Some(vec![Given::Text(text)]),
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) if list.iter().all(Value::is_number) => {
            ids(&list, vocab).map(|ids| vec![Given::Ids(ids)])
        }
        Value::Array(list) => {
            let one = |value: Value| match value {
                Value::String(text) => Some(Given::Text(text)),
                Value::Array(list) => ids(&list, vocab).map(Given::Ids),
                _ => None,
            };
            list.into_iter().map(one).collect()
        }
        _ => None,
    };
    let prompts = fields.value("prompt").and_then(read);
    if prompts.is_none() {
        let wanted = format!("wanted a string, a list of token ids below {vocab}, or a list of either");
        fields.problem("prompt", &wanted);
    }
    prompts.unwrap_or_default()
}

fn encode(service: &Service, prompt: &Given) -> Result<Vec<u32>, Refusal> {
    match prompt {
        Given::Ids(ids) => Ok(ids.clone()),
        Given::Text(text) => {
            let options = EncodeOptions { add_special: true, parse_special: false };
            service.encode("prompt", text, options)
        }
    }
}

fn text(service: &Service, prompt: &Given) -> Result<String, Refusal> {
    match prompt {
        Given::Text(text) => Ok(text.clone()),
        Given::Ids(ids) => service
            .tokenizer
            .decode(ids, SpecialText::Shown)
            .map_err(|error| Refusal::wrong(error.to_string())),
    }
}

struct Text {
    service: Arc<Service>,
    wants_logprobs: bool,
    /// The prompts, if the answers begin with them.
    echoes: Vec<String>,
    /// Answers to each.
    n: usize,
    /// Characters of each answer so far.
    offsets: Vec<usize>,
}

impl Text {
    fn choice(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> CompletionChoice {
        let logprobs = self.logprobs(index, &said.tokens);
        CompletionChoice { index, text: said.text, logprobs, finish_reason: finish }
    }

    /// The prompt of sequence `index`, if its answer begins with it.
    fn echo(&self, index: usize) -> Option<String> {
        self.echoes.get(index / self.n).cloned()
    }

    fn logprobs(&mut self, index: usize, tokens: &[Likely]) -> Option<CompletionLogprobs> {
        if !self.wants_logprobs {
            return None;
        }
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, 0);
        }
        let offset = self.offsets.get_mut(index)?;
        let mut all = CompletionLogprobs::default();
        for likely in tokens {
            let of = |token, value| logprob(&self.service, token, value);
            let own = of(likely.token, likely.logprob.unwrap_or_default());
            all.text_offset.push(*offset);
            *offset += own.token.chars().count();
            let mut top = Map::new();
            for (token, value) in &likely.top {
                let likely = of(*token, *value);
                // Some tokens have the same text, as parts of a character have: the likeliest is told.
                top.entry(likely.token).or_insert(json!(likely.value));
            }
            all.top_logprobs.push(likely.logprob.map(|_| top));
            all.tokens.push(own.token);
            all.token_logprobs.push(likely.logprob.map(|_| f64::from(own.value)));
        }
        Some(all)
    }
}

impl Shape for Text {
    type Choice = CompletionChoice;
    const OBJECT: &'static str = "text_completion";

    fn begin(&mut self, index: usize) -> Option<CompletionChoice> {
        let text = self.echo(index)?;
        Some(CompletionChoice { index, text, logprobs: None, finish_reason: None })
    }

    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> Vec<CompletionChoice> {
        vec![self.choice(index, said, finish)]
    }
}

//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use weighbridge::engine::text::{EncodeOptions, Message};

use crate::answer::{Answer, Shape, Whole, logprob};
use crate::fields::Fields;
use crate::guard::body;
use crate::prepare::{Common, aside};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::shapes::{
    ChatChoice, ChatCompletion, ChatDelta, ChatLogprob, ChatLogprobs, Delta, WholeMessage, finish_reason,
};
use crate::work::{Likely, Said};

pub(crate) async fn answer(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let body = body(&service, request).await?;
    let own = Arc::clone(&service);
    let (common, logprobs, prepared) = aside(move || {
        let service = own;
        let mut fields = Fields::of_body(&body)?;
        let common = Common::read(&mut fields, &service);
        let messages = messages(&mut fields);
        let logprobs = logprobs(&mut fields);
        unsupported(&mut fields);
        fields.end()?;
        common.check_model(&service)?;
        let prepared =
            common.prepare(&service, 1, usize::MAX, "messages", || Ok(vec![prompt(&service, &messages)?]))?;
        Ok((common, logprobs, prepared))
    })
    .await?;
    let stream = common.stream;
    let mut answer = Answer::begin(&service, prepared, common, logprobs, "chatcmpl").await?;
    let shape = Chat { service, wants_logprobs: logprobs.is_some() };
    if stream {
        return Ok(answer.stream(shape));
    }
    let (texts, usage) = answer.whole().await?;
    let choice = |(index, whole): (usize, Whole)| ChatChoice {
        index,
        logprobs: shape.logprobs(&whole.tokens),
        message: WholeMessage { role: "assistant", content: whole.text, refusal: () },
        finish_reason: finish_reason(whole.stop),
    };
    let choices = texts.into_iter().enumerate().map(choice).collect();
    Ok(Json(ChatCompletion { head: answer.head("chat.completion"), choices, usage }).into_response())
}

/// Reads the conversation.
fn messages(fields: &mut Fields) -> Vec<Message> {
    let given = fields.objects("messages");
    let mut all = vec![];
    for mut message in given.into_iter().flatten() {
        let role = message.text("role");
        let role = match role.as_deref() {
            // The new name of the system's.
            Some("developer" | "system") => "system",
            Some("user") => "user",
            Some("assistant") => "assistant",
            _ => {
                message.problem("role", "wanted `system`, `developer`, `user` or `assistant`");
                ""
            }
        };
        let content = content(&mut message);
        message.only("name", &[], "the model's template has no names");
        for field in ["tool_calls", "function_call", "refusal", "audio", "annotations"] {
            message.only(field, &[json!([]), json!("")], "is not supported here");
        }
        fields.join(message);
        all.push(Message { role: role.to_owned(), content });
    }
    if all.is_empty() && !fields.has_problems() {
        fields.problem("messages", "wanted a list of at least one message");
    }
    all
}

/// Reads the text of a message: a string, or parts of which each is a text.
fn content(message: &mut Fields) -> String {
    const WANTED: &str = "wanted a string, or a list of parts {\"type\": \"text\", \"text\": …}";
    let part = |part: &Value| {
        let is_text = part["type"] == "text" && part.as_object().is_some_and(|fields| fields.len() == 2);
        part["text"].as_str().filter(|_| is_text).map(str::to_owned)
    };
    let text = match message.value("content") {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        _ => None,
    };
    if text.is_none() {
        message.problem("content", WANTED);
    }
    text.unwrap_or_default()
}

/// How many likely tokens are told beside each, if probabilities are wanted.
fn logprobs(fields: &mut Fields) -> Option<usize> {
    let wanted = fields.flag("logprobs").unwrap_or(false);
    let top = fields.whole("top_logprobs", 0, 20);
    if top.is_some() && !wanted {
        fields.problem("top_logprobs", "only with `logprobs`: true");
    }
    wanted.then(|| top.map_or(0, |top| usize::try_from(top).unwrap_or(0)))
}

/// Fields of OpenAI's that would change an answer, and do not yet: only values that ask for nothing are taken.
fn unsupported(fields: &mut Fields) {
    const TOOLS: &str = "tools are not supported here";
    fields.without_effect(&["parallel_tool_calls", "prediction"]);
    fields.only("tools", &[json!([])], TOOLS);
    fields.only("functions", &[json!([])], TOOLS);
    fields.only("tool_choice", &[json!("none"), json!("auto")], TOOLS);
    fields.only("function_call", &[json!("none"), json!("auto")], TOOLS);
    fields.only("modalities", &[json!(["text"])], "wanted [\"text\"]");
}

/// The conversation as the model wants to read it.
fn prompt(service: &Service, messages: &[Message]) -> Result<Vec<u32>, Refusal> {
    let Some(render) = &service.options.render else {
        let message = "the model has no chat template: `/v1/completions` continues a text";
        return Err(Refusal::wrong(message));
    };
    let text = render(messages).map_err(|why| Refusal::wrong(format!("`messages`: {why}")))?;
    // The template writes its own special tokens, the first included.
    let options = EncodeOptions { add_special: false, parse_special: true };
    service.tokenizer.encode(&text, options).map_err(|error| Refusal::wrong(error.to_string()))
}

struct Chat {
    service: Arc<Service>,
    wants_logprobs: bool,
}

impl Chat {
    fn logprobs(&self, tokens: &[Likely]) -> Option<ChatLogprobs> {
        let of = |(token, value)| logprob(&self.service, token, value);
        let one = |likely: &Likely| ChatLogprob {
            of: of((likely.token, likely.logprob)),
            top_logprobs: likely.top.iter().copied().map(of).collect(),
        };
        let content = || tokens.iter().map(one).collect();
        self.wants_logprobs.then(|| ChatLogprobs { content: content(), refusal: () })
    }
}

impl Shape for Chat {
    type Choice = ChatDelta;
    const OBJECT: &'static str = "chat.completion.chunk";

    fn begin(&mut self, index: usize) -> Option<ChatDelta> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        Some(ChatDelta { index, delta, logprobs: None, finish_reason: None })
    }

    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> ChatDelta {
        let logprobs = if said.tokens.is_empty() { None } else { self.logprobs(&said.tokens) };
        let content = finish.is_none().then_some(said.text);
        ChatDelta { index, delta: Delta { role: None, content }, logprobs, finish_reason: finish }
    }
}

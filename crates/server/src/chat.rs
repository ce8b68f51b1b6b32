//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weighbridge::engine::text::Message;

use crate::answer::{Answer, Whole, logprob};
use crate::asked::{Asked, Ready};
use crate::chunks::{self, Shape};
use crate::fields::Fields;
use crate::prepare::{Common, reading_conversation};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::service::Service;
use crate::shapes::{
    ChatChoice, ChatCompletion, ChatDelta, ChatLogprob, ChatLogprobs, Delta, WholeMessage, finish_reason,
};
use crate::template::Template;
use crate::tools::{Tools, calls};
use crate::work::{Likely, Logprobs, Said};

pub(crate) async fn answer(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (logprobs, ready) = reading_conversation(&service, request, |mut fields, service| {
        let (logprobs, asked) = asked(&mut fields, service);
        fields.end()?;
        Ok((logprobs, asked.prepare(service)?))
    })
    .await?;
    let Ready { common, prepared, reply } = ready;
    let (stream, include_usage, n) = (common.stream, common.include_usage, common.n);
    let told = logprobs.map(|top| Logprobs { top, of_prompt: false, of_end: false });
    let mut answer = Answer::begin(&service, prepared, common, told, "chatcmpl-").await?;
    let replies = vec![reply; n];
    let mut shape = Chat { service, wants_logprobs: logprobs.is_some(), replies };
    if stream {
        return Ok(chunks::stream(answer, include_usage, shape));
    }
    let (texts, usage) = answer.whole().await?;
    let head = answer.head("chat.completion", &texts);
    let choices = texts.into_iter().enumerate().map(|(index, whole)| shape.whole(index, whole)).collect();
    Ok(Json(ChatCompletion { head, choices, usage }).into_response())
}

/// Reads a request: how many likely tokens are told beside each, and the rest.
pub(crate) fn asked(fields: &mut Fields, service: &Service) -> (Option<usize>, Asked) {
    let common = Common::read(fields, service);
    let messages = messages(fields, service.template.as_ref());
    let logprobs = logprobs(fields);
    let tools = Tools::read(fields, service.template.as_ref());
    let variables = variables(fields, service.template.as_ref());
    if common.has_form() && !tools.list.is_empty() {
        fields.problem("response_format", "not together with `tools`");
    }
    unsupported(fields);
    (logprobs, Asked { common, messages, tools, variables })
}

/// Reads the conversation.
fn messages(fields: &mut Fields, template: Option<&Template>) -> Vec<Message> {
    let no_calls = template.and_then(Template::no_calls);
    let given = fields.objects("messages");
    let mut all = vec![];
    for mut given in given.into_iter().flatten() {
        let role = given.text("role");
        let role = match role.as_deref() {
            // The new name of the system's.
            Some("developer" | "system") => "system",
            Some("user") => "user",
            Some("assistant") => "assistant",
            Some("tool") => "tool",
            _ => {
                given.problem("role", "wanted `system`, `developer`, `user`, `assistant` or `tool`");
                ""
            }
        };
        let mut message = Message::new(role, "");
        if role == "assistant" {
            // What OpenAI's client made of the content, which it sends back with it.
            given.without_effect(&["parsed"]);
            message.calls = calls(&mut given);
            message.reasoning = given.text("reasoning_content");
        }
        if role == "tool" {
            message.call_id = given.text("tool_call_id");
            message.name = given.text("name");
        }
        message.content = content(&mut given, !message.calls.is_empty());
        if let Some(why) = no_calls.filter(|_| role == "tool" || !message.calls.is_empty()) {
            given.problem(if role == "tool" { "role" } else { "tool_calls" }, why);
        }
        given.only("name", &[], "the model's template has no names");
        for field in ["tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"] {
            given.only(field, &[json!([]), json!("")], "is not supported here");
        }
        fields.join(given);
        all.push(message);
    }
    fields.needed("messages", &all, "wanted a list of at least one message");
    all
}

/// Reads the text of a message: a string, or parts of which each is a text. Beside calls there may be none.
fn content(message: &mut Fields, may_miss: bool) -> String {
    const WANTED: &str = "wanted a string, or a list of parts {\"type\": \"text\", \"text\": …}";
    let part = |part: &Value| {
        let is_text = part["type"] == "text" && part.as_object().is_some_and(|fields| fields.len() == 2);
        part["text"].as_str().filter(|_| is_text).map(str::to_owned)
    };
    let text = match message.value("content") {
        Some(Value::String(text)) => Some(text),
        // As llama.cpp and vLLM put them together.
        Some(Value::Array(parts)) => {
            parts.iter().map(part).collect::<Option<Vec<String>>>().map(|parts| parts.join("\n"))
        }
        None if may_miss => Some(String::new()),
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

/// Reads what the template is given beside the conversation: vLLM's and llama.cpp's field. What it does not read is refused.
fn variables(fields: &mut Fields, template: Option<&Template>) -> Map<String, Value> {
    const NAME: &str = "chat_template_kwargs";
    // These the conversation has.
    const OWN: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];
    let variables = match fields.value(NAME) {
        None => return Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(_) => {
            fields.problem(NAME, "wanted an object");
            return Map::new();
        }
    };
    for name in variables.keys() {
        let reads = template.is_some_and(|template| template.reads(name));
        if OWN.contains(&name.as_str()) || !reads {
            let known = template.map_or(&[][..], Template::variables);
            let known: Vec<&str> =
                known.iter().map(String::as_str).filter(|name| !OWN.contains(name)).collect();
            let shown: String = name.chars().take(60).collect();
            let known =
                if known.is_empty() { "none".to_owned() } else { format!("`{}`", known.join("`, `")) };
            fields.problem(NAME, &format!("the model's template does not take `{shown}`; it takes {known}"));
        }
    }
    variables
}

/// Fields of OpenAI's that would change an answer, and do not yet: only values that ask for nothing are taken.
fn unsupported(fields: &mut Fields) {
    const OLD: &str = "`tools` is what has come after it";
    fields.without_effect(&["prediction"]);
    fields.only("functions", &[json!([])], OLD);
    fields.only("function_call", &[json!("none"), json!("auto")], OLD);
    fields.only("modalities", &[json!(["text"])], "wanted [\"text\"]");
}

struct Chat {
    service: Arc<Service>,
    wants_logprobs: bool,
    /// One for each answer.
    replies: Vec<Reply>,
}

impl Chat {
    fn logprobs(&self, tokens: &[Likely]) -> Option<ChatLogprobs> {
        let of = |(token, value)| logprob(&self.service, token, value);
        let one = |likely: &Likely| {
            let top_logprobs = likely.top.iter().copied().map(of).collect();
            Some(ChatLogprob { of: of((likely.token, likely.logprob?)), top_logprobs })
        };
        let content = || tokens.iter().filter_map(one).collect();
        self.wants_logprobs.then(|| ChatLogprobs { content: content(), refusal: () })
    }

    /// An answer that is complete.
    fn whole(&mut self, index: usize, whole: Whole) -> ChatChoice {
        let logprobs = self.logprobs(&whole.tokens);
        let (mut said, mut finish) = (Delta::default(), finish_reason(whole.ending.stop));
        if let Some(reply) = self.replies.get_mut(index) {
            let id = || self.service.call_id();
            for delta in [reply.push(&whole.text, id), reply.finish(id)].concat() {
                said.add(delta);
            }
            finish = reply.finish_reason(finish);
        }
        let Delta { content, reasoning_content, tool_calls, .. } = said;
        let mut message =
            WholeMessage { role: "assistant", content, refusal: (), reasoning_content, tool_calls };
        for call in &mut message.tool_calls {
            call.index = None;
        }
        if message.tool_calls.is_empty() {
            message.content.get_or_insert_default();
        }
        ChatChoice { index, logprobs, message, finish_reason: finish }
    }
}

impl Shape for Chat {
    type Choice = ChatDelta;
    const OBJECT: &'static str = "chat.completion.chunk";

    fn begin(&mut self, index: usize) -> Option<ChatDelta> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        Some(ChatDelta { index, delta, logprobs: None, finish_reason: None })
    }

    fn piece(&mut self, index: usize, said: Said, finish: Option<&'static str>) -> Vec<ChatDelta> {
        let mut logprobs = if said.tokens.is_empty() { None } else { self.logprobs(&said.tokens) };
        let Some(reply) = self.replies.get_mut(index) else { return vec![] };
        let mut deltas = reply.push(&said.text, || self.service.call_id());
        let mut reason = None;
        if let Some(finish) = finish {
            deltas.extend(reply.finish(|| self.service.call_id()));
            reason = Some(reply.finish_reason(finish));
        }
        // Probabilities do not wait until it is certain what their tokens are part of.
        if reason.is_some() || (deltas.is_empty() && logprobs.is_some()) {
            deltas.push(Delta::default());
        }
        let last = deltas.len() - usize::from(!deltas.is_empty());
        let choice = |(i, delta)| ChatDelta {
            index,
            delta,
            logprobs: logprobs.take(),
            finish_reason: reason.filter(|_| i == last),
        };
        deltas.into_iter().enumerate().map(choice).collect()
    }
}

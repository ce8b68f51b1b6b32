//! `/v1/responses`: OpenAI's newer API for conversations.
//!
//! Nothing is kept from one request to the next: a client sends the whole conversation.
//!
//! Source: openai-python 3.57, `openai/types/responses/`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weighbridge::engine::Stop;
use weighbridge::engine::text::{Call, Message};

use crate::answer::{Answer, Pieces, Whole};
use crate::asked::{Asked, Ready};
use crate::fields::Fields;
use crate::prepare::{Common, reading_conversation};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::service::Service;
use crate::shapes::{Delta, Usage};
use crate::stream::Events;
use crate::tools::{self, Tools};
use crate::work::{Ending, Said};

/// Fields that change no answer here, whatever they hold.
const WITHOUT_EFFECT: &[&str] = &["context_management", "moderation"];
/// Fields of a request that an answer repeats.
const REPEATED: [&str; 6] = ["instructions", "max_output_tokens", "metadata", "temperature", "top_p", "user"];

pub(crate) async fn answer(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (repeated, ready) = reading_conversation(&service, request, |mut fields, service| {
        let (repeated, asked) = asked(&mut fields, service);
        fields.end()?;
        Ok((repeated, asked.prepare(service)?))
    })
    .await?;
    let Ready { common, prepared, reply } = ready;
    let stream = common.stream;
    let answer = Answer::begin(&service, prepared, common, None, "resp_").await?;
    let (id, created) = (answer.id.clone(), answer.created);
    let shape =
        Shape { service, reply, id, created, repeated, items: vec![], open: None, sent: 0, ending: None };
    if stream {
        return Ok(answer.stream(shape));
    }
    let mut answer = answer;
    let (texts, usage) = answer.whole().await?;
    let whole = texts.into_iter().next().unwrap_or_else(Whole::new);
    Ok(Json(shape.whole(whole, usage)).into_response())
}

/// Reads a request. Returns what the answer repeats of it too.
pub(crate) fn asked(fields: &mut Fields, service: &Service) -> (Map<String, Value>, Asked) {
    fields.without_effect(WITHOUT_EFFECT);
    let mut repeated: Map<String, Value> =
        REPEATED.iter().map(|name| ((*name).to_owned(), fields.peek(name))).collect();
    let format = Some(fields.peek("text")).filter(Value::is_object);
    repeated.insert("text".to_owned(), format.unwrap_or_else(|| json!({"format": {"type": "text"}})));
    let common = Common::of_responses(fields, service);
    let mut messages = vec![];
    if let Some(text) = fields.text("instructions") {
        messages.push(Message::new("system", text));
    }
    messages.extend(input(fields, service));
    repeated.insert(
        "tool_choice".to_owned(),
        Some(fields.peek("tool_choice")).filter(|choice| !choice.is_null()).unwrap_or(json!("auto")),
    );
    let tools = tools(fields, service);
    let told = |tool: &Value| {
        let mut tool = tool["function"].clone();
        (tool["type"], tool["strict"]) = (json!("function"), json!(tools.is_strict));
        tool
    };
    repeated.insert("tools".to_owned(), tools.list.iter().map(told).collect());
    repeated.insert("parallel_tool_calls".to_owned(), json!(!tools.is_single));
    let variables = thinking(fields, service);
    if common.has_form() && !tools.list.is_empty() {
        fields.problem("text", "a format not together with `tools`");
    }
    fields.only(
        "previous_response_id",
        &[],
        "answers are not kept here: send the whole conversation as `input`",
    );
    fields.only("conversation", &[], "conversations are not kept here: send the whole one as `input`");
    fields.only("prompt", &[], "prompts are not kept here");
    fields.only("background", &[json!(false)], "answers are not kept here: wanted false");
    fields.only("include", &[json!([])], "wanted none");
    fields.only(
        "truncation",
        &[json!("disabled")],
        "wanted `disabled`: a conversation that is too long is refused",
    );
    fields.only("max_tool_calls", &[], "is not supported here");
    fields.only("top_logprobs", &[json!(0)], "probabilities are told by `/v1/chat/completions` alone");
    (repeated, Asked { common, messages, tools, variables })
}

/// Whether the model is to think: a variable of its template, if that has one.
fn thinking(fields: &mut Fields, service: &Service) -> Map<String, Value> {
    const VARIABLE: &str = "enable_thinking";
    let Some(mut reasoning) = fields.object("reasoning") else { return Map::new() };
    // How long a model thinks is for it to say.
    let effort = reasoning.text("effort");
    reasoning.without_effect(&["summary", "generate_summary", "context"]);
    fields.join(reasoning);
    let reads = service.template.as_ref().is_some_and(|template| template.reads(VARIABLE));
    match effort {
        Some(effort) if reads => Map::from_iter([(VARIABLE.to_owned(), Value::Bool(effort != "none"))]),
        _ => Map::new(),
    }
}

/// Reads the conversation: a text, or items.
fn input(fields: &mut Fields, service: &Service) -> Vec<Message> {
    let items = match fields.value("input") {
        Some(Value::String(text)) => return vec![Message::new("user", text)],
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => {
            fields.problem("input", "wanted a string, or a list of at least one item");
            return vec![];
        }
    };
    let no_calls = service.template.as_ref().and_then(crate::template::Template::no_calls);
    let mut all: Vec<Message> = vec![];
    for mut item in fields.inner("input", items) {
        // Fields of an earlier answer, which a client sends back.
        item.without_effect(&["id", "status"]);
        let kind = item.text("type").unwrap_or_else(|| "message".to_owned());
        match kind.as_str() {
            "message" => {
                let role = match item.text("role").as_deref() {
                    Some("user") => "user",
                    Some("assistant") => "assistant",
                    Some("system" | "developer") => "system",
                    _ => {
                        item.problem("role", "wanted `user`, `assistant`, `system` or `developer`");
                        ""
                    }
                };
                item.without_effect(&["phase"]);
                let text = texts(&mut item, "content", &["input_text", "output_text"]);
                // Its reasoning comes before its text.
                match all.last_mut().filter(|last| role == "assistant" && is_open(last)) {
                    Some(last) => last.content.push_str(&text),
                    None => all.push(Message::new(role, text)),
                }
            }
            "function_call" => {
                let id = item.text("call_id").unwrap_or_default();
                let name = item.text("name").unwrap_or_default();
                item.without_effect(&["namespace", "caller"]);
                let arguments = item
                    .text("arguments")
                    .filter(|text| serde_json::from_str::<Map<String, Value>>(text).is_ok());
                if arguments.is_none() {
                    item.problem("arguments", "wanted a string that is a JSON object");
                }
                let call = (id, Call { name, arguments: arguments.unwrap_or_default() });
                match all.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.calls.push(call),
                    None => all.push(Message { calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            "function_call_output" => {
                let call_id = item.text("call_id");
                item.without_effect(&["caller"]);
                let text = texts(&mut item, "output", &["input_text"]);
                all.push(Message { call_id, ..Message::new("tool", text) });
            }
            "reasoning" => {
                item.without_effect(&["summary", "encrypted_content"]);
                let text = texts(&mut item, "content", &["reasoning_text"]);
                all.push(Message { reasoning: Some(text), ..Message::new("assistant", "") });
            }
            _ => item
                .problem("type", "wanted `message`, `function_call`, `function_call_output` or `reasoning`"),
        }
        if let Some(why) = no_calls.filter(|_| kind.starts_with("function_call")) {
            item.problem("type", why);
        }
        fields.join(item);
    }
    all
}

/// Whether a message has thoughts and no more yet.
fn is_open(message: &Message) -> bool {
    message.role == "assistant"
        && message.reasoning.is_some()
        && message.content.is_empty()
        && message.calls.is_empty()
}

/// Reads a text: a string, or a list of parts of these types.
fn texts(item: &mut Fields, name: &'static str, kinds: &[&str]) -> String {
    let of = |part: &Value| {
        let kind = part["type"].as_str().filter(|kind| kinds.contains(kind));
        part["text"].as_str().filter(|_| kind.is_some()).map(str::to_owned)
    };
    let text = match item.value(name) {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => {
            parts.iter().map(of).collect::<Option<Vec<String>>>().map(|all| all.join("\n"))
        }
        None if kinds.contains(&"reasoning_text") => Some(String::new()),
        _ => None,
    };
    if text.is_none() {
        let wanted = format!(
            "wanted a string, or a list of parts {{\"type\": \"{}\", \"text\": …}}",
            kinds.join("\" or \"")
        );
        item.problem(name, &wanted);
    }
    text.unwrap_or_default()
}

/// How a tool is named.
const NAMED: &str = "{\"type\": \"function\", \"name\": NAME}";

/// Reads the tools, and which of them the answer may or must call.
fn tools(fields: &mut Fields, service: &Service) -> Tools {
    let (mut list, mut is_strict) = (vec![], false);
    for mut tool in fields.objects("tools").unwrap_or_default() {
        if tool.text("type").as_deref() != Some("function") {
            tool.problem("type", "wanted `function`: tools of a server are not here");
        }
        is_strict |= tool.flag("strict").unwrap_or(false);
        list.extend(tools::function(&mut tool, "parameters"));
        fields.join(tool);
    }
    let tools = Tools { is_strict, ..tools::choose(fields, list, NAMED, |choice| &choice["name"]) };
    tools.refuse_unknown(fields, service.template.as_ref());
    tools
}

/// The item that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
}

impl Kind {
    /// The type of a part, and the beginning of the names of its events.
    fn part(self) -> (&'static str, &'static str) {
        match self {
            Kind::Text => ("output_text", "response.output_text"),
            Kind::Thought => ("reasoning_text", "response.reasoning_text"),
        }
    }

    fn content(self, text: &str) -> Value {
        match self {
            Kind::Text => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
            Kind::Thought => json!({"type": "reasoning_text", "text": text}),
        }
    }
}

/// An item that is not complete.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

impl Open {
    fn item(&self, status: &str, content: Value) -> Value {
        match self.kind {
            Kind::Text => {
                json!({"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content})
            }
            Kind::Thought => {
                json!({"id": self.id, "type": "reasoning", "summary": [], "status": status, "content": content})
            }
        }
    }
}

/// The answer as items.
struct Shape {
    service: Arc<Service>,
    reply: Reply,
    id: String,
    created: u64,
    /// The fields of the request that the answer repeats.
    repeated: Map<String, Value>,
    /// The items that are complete.
    items: Vec<Value>,
    open: Option<Open>,
    /// Events that were sent.
    sent: usize,
    ending: Option<Ending>,
}

impl Shape {
    fn response(&self, status: &str, usage: Option<Usage>, error: Value) -> Value {
        let reason = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": error,
            "incomplete_details": reason, "model": self.service.name(), "output": self.items, "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null}, "store": false, "truncation": "disabled", "background": false,
            "usage": usage.map(told),
        });
        if let Value::Object(response) = &mut response {
            response.extend(self.repeated.clone());
        }
        response
    }

    /// An answer that is complete.
    fn whole(mut self, whole: Whole, usage: Usage) -> Value {
        let mut events = Events::new();
        let said = Said { text: whole.text, ..Said::default() };
        self.piece(0, said, Some(&whole.ending), &mut events);
        self.close(&mut events);
        self.response(self.status(), Some(usage), Value::Null)
    }

    fn status(&self) -> &'static str {
        match self.ending.as_ref().map(|end| end.stop) {
            Some(Stop::EndOfText | Stop::StopString) => "completed",
            _ => "incomplete",
        }
    }

    fn event(&mut self, name: &str, mut data: Value, events: &mut Events) {
        (data["type"], data["sequence_number"]) = (json!(name), json!(self.sent));
        self.sent += 1;
        events.named(name, &data);
    }

    /// Adds to a text, and opens it if need be.
    fn text(&mut self, kind: Kind, delta: &str, events: &mut Events) {
        let at = self.items.len();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(events);
            let id = self.service.id(if kind == Kind::Text { "msg_" } else { "rs_" });
            let open = Open { kind, id: id.clone(), text: String::new() };
            let at = self.items.len();
            let added = json!({"output_index": at, "item": open.item("in_progress", json!([]))});
            self.open = Some(open);
            self.event("response.output_item.added", added, events);
            let part =
                json!({"item_id": id, "output_index": at, "content_index": 0, "part": kind.content("")});
            self.event("response.content_part.added", part, events);
            return self.text(kind, delta, events);
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(delta);
        let mut data = json!({"item_id": open.id, "output_index": at, "content_index": 0, "delta": delta});
        if kind == Kind::Text {
            data["logprobs"] = json!([]);
        }
        self.event(&format!("{}.delta", kind.part().1), data, events);
    }

    /// Completes the text that is open.
    fn close(&mut self, events: &mut Events) {
        let Some(open) = self.open.take() else { return };
        let (at, kind) = (self.items.len(), open.kind);
        let place = || json!({"item_id": open.id, "output_index": at, "content_index": 0});
        let mut done = place();
        done["text"] = json!(open.text);
        if kind == Kind::Text {
            done["logprobs"] = json!([]);
        }
        self.event(&format!("{}.done", kind.part().1), done, events);
        let mut part = place();
        part["part"] = kind.content(&open.text);
        self.event("response.content_part.done", part, events);
        let item = open.item("completed", json!([kind.content(&open.text)]));
        self.done(item, events);
    }

    fn done(&mut self, item: Value, events: &mut Events) {
        self.event(
            "response.output_item.done",
            json!({"output_index": self.items.len(), "item": item}),
            events,
        );
        self.items.push(item);
    }

    fn delta(&mut self, delta: Delta, events: &mut Events) {
        if let Some(text) = delta.reasoning_content {
            self.text(Kind::Thought, &text, events);
        }
        if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
            self.text(Kind::Text, &text, events);
        }
        for call in delta.tool_calls {
            self.close(events);
            let (at, id) = (self.items.len(), self.service.id("fc_"));
            let (name, arguments) = (call.function.name, call.function.arguments);
            let item = |status: &str, arguments: &str| {
                json!({"id": id, "type": "function_call", "status": status, "call_id": call.id, "name": name,
                       "arguments": arguments})
            };
            self.event(
                "response.output_item.added",
                json!({"output_index": at, "item": item("in_progress", "")}),
                events,
            );
            let delta = json!({"item_id": id, "output_index": at, "delta": arguments});
            self.event("response.function_call_arguments.delta", delta, events);
            let done = json!({"item_id": id, "output_index": at, "name": name, "arguments": arguments});
            self.event("response.function_call_arguments.done", done, events);
            self.done(item("completed", &arguments), events);
        }
    }
}

impl Pieces for Shape {
    fn begin(&mut self, events: &mut Events) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", None, Value::Null);
            self.event(name, json!({"response": response}), events);
        }
    }

    fn piece(&mut self, _: usize, said: Said, end: Option<&Ending>, events: &mut Events) {
        let service = Arc::clone(&self.service);
        let id = || format!("call_{}", service.call_id());
        let mut deltas = self.reply.push(&said.text, id);
        if let Some(end) = end {
            deltas.extend(self.reply.finish(id));
            self.ending = Some(end.clone());
        }
        for delta in deltas {
            self.delta(delta, events);
        }
    }

    fn end(&mut self, usage: Usage, events: &mut Events) {
        self.close(events);
        let status = self.status();
        let response = self.response(status, Some(usage), Value::Null);
        self.event(&format!("response.{status}"), json!({"response": response}), events);
    }

    fn failed(&mut self, why: &Refusal, events: &mut Events) {
        let error = json!({"code": why.code(), "message": why.message()});
        let response = self.response("failed", None, error);
        self.event("response.failed", json!({"response": response}), events);
    }
}

/// The cost of a request.
fn told(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.prompt_tokens_details.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        // They are not counted apart.
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    })
}

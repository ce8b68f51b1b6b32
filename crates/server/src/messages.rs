//! `/v1/messages` and `/v1/messages/count_tokens`: the API of Anthropic.
//!
//! Source: anthropic-sdk-python 2.14.0, `anthropic/types/message*.py`, `raw_*_event.py`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
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
use crate::template::Template;
use crate::tools::{self, Tools};
use crate::work::{Ending, Said};

/// Fields that change no answer here, whatever they hold.
const WITHOUT_EFFECT: &[&str] = &["metadata", "service_tier", "inference_geo"];
/// Text parts of a message, or calls and results in it, at most.
const BLOCKS: usize = 4096;

pub(crate) async fn answer(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (stops, ready) = reading_conversation(&service, request, |mut fields, service| {
        let asked = asked(&mut fields, service, true);
        fields.end()?;
        Ok((asked.common.stops.clone(), asked.prepare(service)?))
    })
    .await?;
    let Ready { common, prepared, reply } = ready;
    let stream = common.stream;
    let given = prepared.sequences.first().map_or(0, |sequence| sequence.prompt.len());
    let mut answer = Answer::begin(&service, prepared, common, None, "msg_").await?;
    let id = answer.id.clone();
    let shape = Shape { service, reply, id, given, stops, block: None, blocks: 0, ending: None };
    if stream {
        return Ok(answer.stream(shape));
    }
    let (texts, usage) = answer.whole().await?;
    let whole = texts.into_iter().next().unwrap_or_else(Whole::new);
    Ok(Json(shape.whole(whole, usage)).into_response())
}

pub(crate) async fn count(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
    let tokens = reading_conversation(&service, request, |mut fields, service| {
        let asked = asked(&mut fields, service, false);
        fields.end()?;
        asked.count(service)
    })
    .await?;
    Ok(Json(Counted { input_tokens: tokens }).into_response())
}

/// `POST /v1/messages/count_tokens`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Counted {
    input_tokens: usize,
}

/// Reads a request.
pub(crate) fn asked(fields: &mut Fields, service: &Service, is_answered: bool) -> Asked {
    fields.without_effect(WITHOUT_EFFECT);
    let common = if is_answered {
        Common::of_messages(fields, service)
    } else {
        Common::only(fields.text("model"), service)
    };
    let mut messages: Vec<Message> =
        texts(fields, "system").map(|text| Message::new("system", text)).into_iter().collect();
    let given = fields.objects("messages").unwrap_or_default();
    fields.needed("messages", &given, "wanted a list of at least one message");
    let no_calls = service.template.as_ref().and_then(Template::no_calls);
    for mut message in given {
        let turns = turns(&mut message);
        if let Some(why) =
            no_calls.filter(|_| turns.iter().any(|turn| turn.role == "tool" || !turn.calls.is_empty()))
        {
            message.problem("content", why);
        }
        messages.extend(turns);
        fields.join(message);
    }
    let tools = tools(fields, service);
    let variables = thinking(fields, service);
    fields.only("mcp_servers", &[json!([])], "is not supported here");
    fields.only("container", &[], "is not supported here");
    Asked { common, messages, tools, variables }
}

/// Whether the model is to think: a variable of its template, if that has one.
fn thinking(fields: &mut Fields, service: &Service) -> Map<String, Value> {
    const VARIABLE: &str = "enable_thinking";
    let Some(mut thinking) = fields.object("thinking") else { return Map::new() };
    let kind = thinking.text("type");
    if !matches!(kind.as_deref(), Some("enabled" | "disabled" | "adaptive")) {
        thinking.problem("type", "wanted `enabled`, `disabled` or `adaptive`");
    }
    // How long a model thinks is for it to say.
    thinking.without_effect(&["budget_tokens", "display"]);
    fields.join(thinking);
    let reads = service.template.as_ref().is_some_and(|template| template.reads(VARIABLE));
    match kind.as_deref() {
        Some(kind) if reads && kind != "adaptive" => {
            Map::from_iter([(VARIABLE.to_owned(), Value::Bool(kind == "enabled"))])
        }
        _ => Map::new(),
    }
}

/// Reads a text: a string, or a list of text blocks.
fn texts(fields: &mut Fields, name: &'static str) -> Option<String> {
    const WANTED: &str = "wanted a string, or a list of blocks {\"type\": \"text\", \"text\": …}";
    let of = |block: &Value| block["text"].as_str().filter(|_| block["type"] == "text").map(str::to_owned);
    let text = match fields.value(name)? {
        Value::String(text) => Some(text),
        Value::Array(blocks) => {
            blocks.iter().map(of).collect::<Option<Vec<String>>>().map(|all| all.join("\n"))
        }
        _ => None,
    };
    if text.is_none() {
        fields.problem(name, WANTED);
    }
    text
}

/// Reads one message, which is as many turns as it has results of tools, and one more if it says anything else.
fn turns(message: &mut Fields) -> Vec<Message> {
    let role = message.text("role").unwrap_or_default();
    if role != "user" && role != "assistant" {
        message.problem("role", "wanted `user` or `assistant`");
    }
    let (mut results, mut said) = (vec![], Message::new(role.as_str(), ""));
    let content = match message.value("content") {
        Some(Value::String(text)) => {
            said.content = text;
            return vec![said];
        }
        Some(Value::Array(blocks)) if blocks.len() <= BLOCKS => blocks,
        _ => {
            message.problem("content", "wanted a string, or a list of blocks");
            return vec![];
        }
    };
    let mut is_said = content.is_empty();
    for mut block in message.inner("content", content) {
        // Prompts are kept whatever a client asks for.
        block.without_effect(&["cache_control", "citations"]);
        let kind = block.text("type").unwrap_or_default();
        match (kind.as_str(), role.as_str()) {
            ("text", _) => {
                is_said = true;
                let text = block.text("text").unwrap_or_default();
                said.content.push_str(if said.content.is_empty() { "" } else { "\n" });
                said.content.push_str(&text);
            }
            ("thinking", "assistant") => {
                is_said = true;
                block.without_effect(&["signature"]);
                said.reasoning.get_or_insert_default().push_str(&block.text("thinking").unwrap_or_default());
            }
            ("tool_use", "assistant") => {
                is_said = true;
                block.without_effect(&["caller"]);
                let id = block.text("id").unwrap_or_default();
                let name = block.text("name").unwrap_or_default();
                let input = block.value("input").unwrap_or_else(|| json!({}));
                if !input.is_object() {
                    block.problem("input", "wanted an object");
                }
                said.calls.push((id, Call { name, arguments: input.to_string() }));
            }
            ("tool_result", "user") => {
                block.without_effect(&["is_error"]);
                let call_id = block.text("tool_use_id");
                let text = texts(&mut block, "content").unwrap_or_default();
                results.push(Message { call_id, ..Message::new("tool", text) });
            }
            _ => block.problem(
                "type",
                "wanted `text`, of an assistant also `thinking` and `tool_use`, of a user `tool_result`",
            ),
        }
        message.join(block);
    }
    if is_said {
        results.push(said);
    }
    results
}

/// Reads the tools, and which of them the answer may or must call.
fn tools(fields: &mut Fields, service: &Service) -> Tools {
    let mut list = vec![];
    for mut tool in fields.objects("tools").unwrap_or_default() {
        tool.without_effect(&[
            "cache_control",
            "eager_input_streaming",
            "input_examples",
            "defer_loading",
            "allowed_callers",
        ]);
        if tool.text("type").is_some_and(|kind| kind != "custom") {
            tool.problem("type", "wanted `custom`: tools of a server are not here");
        }
        list.extend(tools::function(&mut tool, "input_schema"));
        fields.join(tool);
    }
    let mut all = Tools { list, ..Tools::default() };
    if let Some(mut choice) = fields.object("tool_choice") {
        all.is_single = choice.flag("disable_parallel_tool_use").unwrap_or(false);
        let name = choice.text("name");
        match choice.text("type").as_deref() {
            Some("auto") => {}
            Some("none") => all.list.clear(),
            Some("any") => all.is_required = true,
            Some("tool") => {
                all.list.retain(|tool| tool["function"]["name"].as_str() == name.as_deref());
                (all.is_required, all.is_single) = (true, true);
            }
            _ => choice.problem("type", "wanted `auto`, `any`, `tool` or `none`"),
        }
        if all.is_required && all.list.is_empty() {
            choice.problem("type", "wanted the name of a tool, and there is none of this name");
        }
        fields.join(choice);
    }
    all.refuse_unknown(fields, service.template.as_ref());
    all
}

/// The answer as blocks.
struct Shape {
    service: Arc<Service>,
    reply: Reply,
    id: String,
    /// Tokens of the prompt.
    given: usize,
    /// The strings that the client wants answers to end at.
    stops: Vec<String>,
    /// The kind of the block that is open.
    block: Option<&'static str>,
    /// Blocks so far.
    blocks: usize,
    ending: Option<Ending>,
}

impl Shape {
    /// The message before its content.
    fn message(&self, content: Value, usage: Usage) -> Value {
        let (reason, string) =
            self.ending.as_ref().map_or((Value::Null, Value::Null), |end| self.reason(end));
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.service.name(), "content": content,
            "stop_reason": reason, "stop_sequence": string, "usage": told(usage),
        })
    }

    /// Why the answer ended, and the client's string that ended it.
    fn reason(&self, end: &Ending) -> (Value, Value) {
        let own = end.string.as_ref().filter(|string| self.stops.contains(string));
        match (end.stop, own) {
            (Stop::StopString, Some(string)) => (json!("stop_sequence"), json!(string)),
            (Stop::Length | Stop::Interrupted, _) => (json!("max_tokens"), Value::Null),
            (Stop::ContextFull, _) => (json!("model_context_window_exceeded"), Value::Null),
            _ if self.reply.has_calls() => (json!("tool_use"), Value::Null),
            _ => (json!("end_turn"), Value::Null),
        }
    }

    /// An answer that is complete.
    fn whole(mut self, whole: Whole, usage: Usage) -> Value {
        let service = Arc::clone(&self.service);
        let id = || service.call_id();
        let deltas = [self.reply.push(&whole.text, id), self.reply.finish(id)].concat();
        let mut content: Vec<Value> = vec![];
        for block in deltas.into_iter().flat_map(blocks) {
            match (content.last_mut(), &block) {
                (Some(last), Block::Text(kind, text)) if last["type"] == *kind => {
                    if let Value::String(all) = &mut last[*kind] {
                        all.push_str(text);
                    }
                }
                _ => content.push(block.whole()),
            }
        }
        self.ending = Some(whole.ending);
        self.message(Value::Array(content), usage)
    }

    fn send(&mut self, block: Block, events: &mut Events) {
        let (kind, opened, delta) = match block {
            Block::Text("thinking", text) => (
                "thinking",
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "thinking_delta", "thinking": text}),
            ),
            Block::Text(kind, text) => {
                (kind, json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}))
            }
            Block::Call { id, name, arguments } => (
                "tool_use",
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                json!({"type": "input_json_delta", "partial_json": arguments}),
            ),
        };
        if self.block != Some(kind) || kind == "tool_use" {
            self.close(events);
            let start = json!({"type": "content_block_start", "index": self.blocks, "content_block": opened});
            events.named("content_block_start", &start);
            self.block = Some(kind);
        }
        let delta = json!({"type": "content_block_delta", "index": self.blocks, "delta": delta});
        events.named("content_block_delta", &delta);
    }

    /// Ends the block that is open.
    fn close(&mut self, events: &mut Events) {
        if self.block.take().is_some() {
            let stop = json!({"type": "content_block_stop", "index": self.blocks});
            events.named("content_block_stop", &stop);
            self.blocks += 1;
        }
    }
}

impl Pieces for Shape {
    fn begin(&mut self, events: &mut Events) {
        // What of it is in the cache is known at the end.
        let usage = Usage { prompt_tokens: self.given, ..Usage::default() };
        let message = self.message(json!([]), usage);
        events.named("message_start", &json!({"type": "message_start", "message": message}));
    }

    fn piece(&mut self, _: usize, said: Said, end: Option<&Ending>, events: &mut Events) {
        let service = Arc::clone(&self.service);
        let id = || service.call_id();
        let mut deltas = self.reply.push(&said.text, id);
        if let Some(end) = end {
            deltas.extend(self.reply.finish(id));
            self.ending = Some(end.clone());
        }
        for block in deltas.into_iter().flat_map(blocks) {
            self.send(block, events);
        }
    }

    fn end(&mut self, usage: Usage, events: &mut Events) {
        self.close(events);
        let (reason, string) =
            self.ending.as_ref().map_or((Value::Null, Value::Null), |end| self.reason(end));
        let delta = json!({"stop_reason": reason, "stop_sequence": string});
        events
            .named("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": told(usage)}));
        events.named("message_stop", &json!({"type": "message_stop"}));
    }

    fn failed(&mut self, why: &Refusal, events: &mut Events) {
        events.named("error", &why.body());
    }
}

/// What a block gets.
enum Block {
    /// Text of the kind `text` or `thinking`.
    Text(&'static str, String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Block {
    fn whole(self) -> Value {
        match self {
            Block::Text("thinking", text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
            Block::Text(kind, text) => json!({"type": kind, "text": text}),
            Block::Call { id, name, arguments } => {
                let input: Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }
}

fn blocks(delta: Delta) -> Vec<Block> {
    let mut all = vec![];
    all.extend(delta.reasoning_content.map(|text| Block::Text("thinking", text)));
    all.extend(delta.content.map(|text| Block::Text("text", text)));
    all.extend(delta.tool_calls.into_iter().map(|call| Block::Call {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    }));
    all
}

/// The cost of a request. Tokens that were known are apart.
fn told(usage: Usage) -> Value {
    let cached = usage.prompt_tokens_details.cached_tokens;
    json!({
        "input_tokens": usage.prompt_tokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    })
}

//! The API of Ollama: `/api/chat`, `/api/generate`, `/api/embed`, and what there is to say about the model.
//!
//! Streams are lines of JSON, and are what a request gets that does not say `"stream": false`.
//!
//! Source: <https://github.com/ollama/ollama/blob/v0.12.6/docs/api.md>; ollama-python 0.6.3, `ollama/_types.py`.

mod models;

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use weighbridge::embedder::Prompt;
use weighbridge::engine::text::{Call, EncodeOptions, Message};

use crate::answer::{Answer, Pieces, Whole};
use crate::asked::{Asked, Ready};
use crate::embeddings::{Text, Vectors, shorten};
use crate::fields::Fields;
use crate::host::{Host, now};
use crate::prepare::{self, Common, reading, reading_conversation};
use crate::refusal::Refusal;
use crate::reply::{Reply, sent};
use crate::routes::{LINES, Route};
use crate::service::Service;
use crate::shapes::{Delta, Usage};
use crate::stream::Events;
use crate::template::Template;
use crate::tools::Tools;
use crate::work::{Ending, Said, Sequence};

pub(crate) use models::routes as of_all;
use models::time;

/// How the model is kept in memory is for the command line.
const WITHOUT_EFFECT: &[&str] = &["keep_alive"];

/// Routes of models of text.
pub(crate) fn of_text() -> Vec<Route<Service>> {
    let reads = |fields: &mut Fields, service: &Service| drop(asked_chat(fields, service));
    let continued = |fields: &mut Fields, service: &Service| drop(Continued::read(fields, service));
    vec![
        Route::post("/api/chat", "The answer to a conversation, for clients of Ollama's API", chat, reads)
            .gives::<Value>()
            .gives_as::<Value>(LINES)
            .fails::<Wrong>(),
        Route::post(
            "/api/generate",
            "The answer to a text, for clients of Ollama's API",
            generate,
            continued,
        )
        .gives::<Value>()
        .gives_as::<Value>(LINES)
        .fails::<Wrong>(),
    ]
}

/// Routes of models of vectors.
pub(crate) fn of_vectors() -> Vec<Route<Vectors>> {
    let reads = |fields: &mut Fields, vectors: &Vectors| drop(asked_embed(fields, vectors));
    let what = "Vectors of texts, for clients of Ollama's API";
    vec![Route::post("/api/embed", what, embed, reads).gives::<Embedded<'_>>().fails::<Wrong>()]
}

/// A refusal as Ollama's clients read it.
pub(crate) struct Refused(pub(crate) Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = Wrong { error: self.0.message() };
        let mut response = self.0.into_response();
        *response.body_mut() = serde_json::to_string(&error).unwrap_or_default().into();
        response
    }
}

/// Why there is no answer.
#[derive(Serialize, JsonSchema)]
struct Wrong {
    error: String,
}

/// Checks the name of a model, which may have Ollama's usual tag.
fn check(host: &Host, name: Option<String>) -> Result<(), Refusal> {
    name.map_or(Ok(()), |name| host.is_served(&host.untagged(name)))
}

/// Reads a request for an answer to a conversation.
fn asked_chat(fields: &mut Fields, service: &Service) -> Asked {
    fields.without_effect(WITHOUT_EFFECT);
    let common = Common::of_ollama(fields, service);
    let no_calls = service.template.as_ref().and_then(Template::no_calls);
    let (mut messages, given) = (vec![], fields.objects("messages").unwrap_or_default());
    fields.needed("messages", &given, "wanted a list of at least one message");
    for mut given in given {
        let role = given.text("role").unwrap_or_default();
        if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
            given.problem("role", "wanted `system`, `user`, `assistant` or `tool`");
        }
        let mut message = Message::new(role.as_str(), given.text("content").unwrap_or_default());
        message.reasoning = given.text("thinking");
        let old = given.text("name");
        message.name = given.text("tool_name").or(old);
        message.call_id = given.text("tool_call_id");
        for mut call in given.objects("tool_calls").unwrap_or_default() {
            call.without_effect(&["type"]);
            let id = call.text("id");
            if let Some(mut function) = call.object("function") {
                function.without_effect(&["index", "description"]);
                let name = function.text("name").unwrap_or_default();
                let arguments = function.value("arguments").unwrap_or_else(|| json!({}));
                if !arguments.is_object() {
                    function.problem("arguments", "wanted an object");
                }
                let id = id.unwrap_or_else(|| service.call_id());
                message.calls.push((id, Call { name, arguments: arguments.to_string() }));
                call.join(function);
            }
            given.join(call);
        }
        if let Some(why) = no_calls.filter(|_| role == "tool" || !message.calls.is_empty()) {
            given.problem("tool_calls", why);
        }
        // Results of tools have no ids here: they come in the order of the calls.
        if role == "tool" && message.call_id.is_none() {
            message.call_id = called(&messages);
        }
        given.only("images", &[json!([])], "is not supported here");
        fields.join(given);
        messages.push(message);
    }
    let tools = Tools::read(fields, service.template.as_ref());
    if common.has_form() && !tools.list.is_empty() {
        fields.problem("format", "not together with `tools`");
    }
    let variables = thinking(fields, service);
    Asked { common, messages, tools, variables }
}

/// The id of the first call without a result.
fn called(messages: &[Message]) -> Option<String> {
    let results = messages.iter().rev().take_while(|message| message.role == "tool").count();
    let caller = messages.iter().rev().find(|message| message.role != "tool")?;
    caller.calls.get(results).map(|(id, _)| id.clone())
}

/// Whether the model is to think: a variable of its template, if that has one.
fn thinking(fields: &mut Fields, service: &Service) -> Map<String, Value> {
    const VARIABLE: &str = "enable_thinking";
    let think = match fields.value("think") {
        None => return Map::new(),
        Some(Value::Bool(think)) => think,
        Some(Value::String(how)) if ["low", "medium", "high", "max"].contains(&how.as_str()) => true,
        Some(_) => {
            fields.problem("think", "wanted true, false, `low`, `medium`, `high` or `max`");
            return Map::new();
        }
    };
    let reads = service.template.as_ref().is_some_and(|template| template.reads(VARIABLE));
    if reads { Map::from_iter([(VARIABLE.to_owned(), Value::Bool(think))]) } else { Map::new() }
}

async fn chat(State(service): State<Arc<Service>>, request: Request) -> Result<Response, Refused> {
    let since = Instant::now();
    let ready = reading_conversation(&service, request, |mut fields, service| {
        let asked = asked_chat(&mut fields, service);
        fields.end()?;
        asked.prepare(service)
    })
    .await?;
    let Ready { common, prepared, reply } = ready;
    Ok(answer(&service, common, prepared, Lines::new(&service, Some(reply), true, since)).await?)
}

/// A text that is to be continued, or answered.
enum Continued {
    /// The model is to be there, which it is.
    Nothing,
    Raw {
        common: Common,
        prompt: String,
    },
    Asked(Asked),
}

impl Continued {
    fn read(fields: &mut Fields, service: &Service) -> Continued {
        fields.without_effect(WITHOUT_EFFECT);
        let common = Common::of_ollama(fields, service);
        fields.only("suffix", &[json!("")], "is not supported here");
        fields.only("images", &[json!([])], "is not supported here");
        fields.only("template", &[json!("")], "the template is that of the server");
        fields.only("context", &[json!([])], "send the conversation to `/api/chat`");
        let system = fields.text("system").filter(|text| !text.is_empty());
        let is_raw = fields.flag("raw").unwrap_or(false);
        if is_raw && system.is_some() {
            fields.problem("system", "not together with `raw`");
        }
        let variables = thinking(fields, service);
        let prompt = fields.text("prompt").unwrap_or_default();
        match () {
            () if prompt.is_empty() => Continued::Nothing,
            () if is_raw || service.template.is_none() => Continued::Raw { common, prompt },
            () => {
                let system = system.map(|text| Message::new("system", text));
                let messages = system.into_iter().chain([Message::new("user", prompt)]).collect();
                Continued::Asked(Asked { common, messages, tools: Tools::default(), variables })
            }
        }
    }
}

async fn generate(State(service): State<Arc<Service>>, request: Request) -> Result<Response, Refused> {
    let since = Instant::now();
    let ready = reading_conversation(&service, request, |mut fields, service| {
        let continued = Continued::read(&mut fields, service);
        fields.end()?;
        match continued {
            Continued::Nothing => Ok(None),
            Continued::Asked(asked) => {
                let Ready { common, prepared, reply } = asked.prepare(service)?;
                Ok(Some((common, prepared, Some(reply))))
            }
            Continued::Raw { common, prompt } => {
                common.check_model(service)?;
                let options = EncodeOptions { add_special: true, parse_special: true };
                let prepared = common.prepare(service, 1, usize::MAX, "prompt", || {
                    let tokens = service.encode("prompt", &prompt, options)?;
                    Ok(vec![prepare::Prompt { tokens, form: None }])
                })?;
                Ok(Some((common, prepared, None)))
            }
        }
    })
    .await?;
    let Some((common, prepared, reply)) = ready else {
        let loaded = json!({"model": service.name(), "created_at": time(now()), "response": "", "done": true,
                            "done_reason": "load"});
        return Ok(Json(loaded).into_response());
    };
    Ok(answer(&service, common, prepared, Lines::new(&service, reply, false, since)).await?)
}

async fn answer(
    service: &Arc<Service>,
    common: Common,
    prepared: crate::prepare::Prepared,
    mut shape: Lines,
) -> Result<Response, Refusal> {
    shape.prompts = prepared.sequences.iter().map(|Sequence { prompt, .. }| prompt.len()).sum();
    let stream = common.stream;
    let mut answer = Answer::begin(service, prepared, common, None, "ollama-").await?;
    if stream {
        return Ok(answer.stream_lines(shape));
    }
    let (texts, usage) = answer.whole().await?;
    let whole = texts.into_iter().next().unwrap_or_else(Whole::new);
    Ok(Json(shape.whole(whole, usage)).into_response())
}

/// The answer as lines.
struct Lines {
    service: Arc<Service>,
    /// Reads thoughts and calls; none of a text that is only continued.
    reply: Option<Reply>,
    is_chat: bool,
    since: Instant,
    /// When the first piece came.
    first: Option<Instant>,
    prompts: usize,
    ending: Option<Ending>,
}

impl Lines {
    fn new(service: &Arc<Service>, reply: Option<Reply>, is_chat: bool, since: Instant) -> Lines {
        Lines { service: Arc::clone(service), reply, is_chat, since, first: None, prompts: 0, ending: None }
    }

    /// The parts of the reply in a piece.
    fn deltas(&mut self, said: Said, is_last: bool) -> Vec<Delta> {
        self.first.get_or_insert_with(Instant::now);
        let service = Arc::clone(&self.service);
        let Some(reply) = &mut self.reply else {
            return vec![Delta { content: Some(said.text), ..Delta::default() }];
        };
        let mut deltas = reply.push(&said.text, || service.call_id());
        if is_last {
            deltas.extend(reply.finish(|| service.call_id()));
        }
        deltas
    }

    /// A line of one delta.
    fn line(&self, delta: Delta) -> Value {
        let content = delta.content.unwrap_or_default();
        let mut line = json!({"model": self.service.name(), "created_at": time(now())});
        if self.is_chat {
            let mut message = json!({"role": "assistant", "content": content});
            if let Some(thinking) = delta.reasoning_content {
                message["thinking"] = json!(thinking);
            }
            if !delta.tool_calls.is_empty() {
                let call = |call: crate::shapes::ToolCall| {
                    let arguments: Value =
                        serde_json::from_str(&call.function.arguments).unwrap_or_else(|_| json!({}));
                    json!({"id": call.id, "function": {"name": call.function.name, "arguments": arguments}})
                };
                message["tool_calls"] = delta.tool_calls.into_iter().map(call).collect();
            }
            line["message"] = message;
        } else {
            line["response"] = json!(content);
            if let Some(thinking) = delta.reasoning_content {
                line["thinking"] = json!(thinking);
            }
        }
        line["done"] = json!(false);
        line
    }

    /// Adds what is known at the end.
    fn end_line(&self, mut line: Value, usage: Usage) -> Value {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let finish = self.ending.as_ref().map_or("stop", |end| crate::shapes::finish_reason(end.stop));
        let first = self.first.unwrap_or_else(Instant::now);
        (line["done"], line["done_reason"]) = (json!(true), json!(finish));
        line["total_duration"] = json!(nanos(self.since.elapsed()));
        line["load_duration"] = json!(0);
        line["prompt_eval_count"] = json!(usage.prompt_tokens.max(self.prompts));
        line["prompt_eval_duration"] = json!(nanos(first.duration_since(self.since)));
        line["eval_count"] = json!(usage.completion_tokens);
        line["eval_duration"] = json!(nanos(first.elapsed()));
        line
    }

    /// An answer that is complete.
    fn whole(mut self, whole: Whole, usage: Usage) -> Value {
        let mut all = Delta::default();
        for delta in self.deltas(Said { text: whole.text, ..Said::default() }, true) {
            all.add(delta);
        }
        self.ending = Some(whole.ending);
        self.end_line(self.line(all), usage)
    }
}

impl Pieces for Lines {
    fn begin(&mut self, _: &mut Events) {}

    fn piece(&mut self, _: usize, said: Said, end: Option<&Ending>, events: &mut Events) {
        for delta in self.deltas(said, end.is_some()) {
            if !delta.is_empty() {
                events.line(&self.line(delta));
            }
        }
        self.ending = end.cloned();
    }

    fn end(&mut self, usage: Usage, events: &mut Events) {
        events.line(&self.end_line(self.line(Delta::default()), usage));
    }

    fn failed(&mut self, why: &Refusal, events: &mut Events) {
        events.line(&Wrong { error: why.message() });
    }
}

/// Reads a request for vectors: the model, the texts, how many elements, and whether texts that are too long are cut.
fn asked_embed(fields: &mut Fields, vectors: &Vectors) -> (Option<String>, Vec<Text>, Option<usize>, bool) {
    fields.without_effect(WITHOUT_EFFECT);
    fields.without_effect(&["options"]);
    let texts = Text::all(fields, vectors.about.vocab);
    (fields.text("model"), texts, vectors.elements(fields), fields.flag("truncate").unwrap_or(true))
}

async fn embed(State(vectors): State<Arc<Vectors>>, request: Request) -> Result<Response, Refused> {
    let since = Instant::now();
    let (texts, elements) = reading(&vectors, request, |mut fields, vectors| {
        let (model, texts, elements, is_cut) = asked_embed(&mut fields, vectors);
        fields.end()?;
        check(vectors, model)?;
        let hint = (!is_cut).then_some("`\"truncate\": true` cuts texts");
        Ok((vectors.encode(texts, &Prompt::Default, hint)?, elements))
    })
    .await?;
    let tokens = texts.encoded.iter().map(|text| text.tokens.len()).sum();
    let mut found = vectors.run(texts, elements).await?;
    Ok(sent(move || {
        // Ollama's vectors have the length 1.
        for vector in &mut found {
            shorten(vector);
        }
        let total_duration = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let model = vectors.name();
        serde_json::to_vec(&Embedded {
            model,
            embeddings: found,
            total_duration,
            load_duration: 0,
            prompt_eval_count: tokens,
        })
    })
    .await?)
}

/// `POST /api/embed`.
#[derive(Debug, Serialize, JsonSchema)]
struct Embedded<'a> {
    model: &'a str,
    embeddings: Vec<Vec<f32>>,
    /// Nanoseconds.
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

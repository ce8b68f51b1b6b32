//! Chat templates: a conversation as the prompt that the model was trained on.
//!
//! A template is a program from an untrusted file. It runs with limits on its steps, its depth and its output, sees
//! nothing but the conversation, and cannot load other templates. Its memory is limited by its steps alone: a string
//! may double with each, and a value may contain itself, which is walked by recursion. minijinja has no limits for
//! that. Run untrusted templates in a process of their own, as `weighbridge run` does.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::calls::Call;
use super::indent::indent;
use super::tojson::tojson;
use super::{Error, limits};

/// Steps that a template may take: thousands of times what real ones do.
const FUEL: u64 = 5_000_000;
/// Nested calls of macros and expressions.
const DEPTH: usize = 100;
/// Bytes that a template may write.
const OUTPUT: usize = 16 << 20;
/// Bytes of a template.
const SOURCE: usize = 1 << 20;

/// One turn of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// What an assistant thought before.
    pub reasoning: Option<String>,
    /// The tools that an assistant calls, with the ids of the calls.
    pub calls: Vec<(String, Call)>,
    /// The id of the call whose result this is.
    pub call_id: Option<String>,
    /// The name of the tool whose result this is.
    pub name: Option<String>,
}

impl Message {
    /// A text of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// The message as a template sees it: with the keys that it has, and no others.
    fn seen(&self, form: CallForm) -> Value {
        let mut fields = Map::new();
        let mut field = |key: &str, value: Json| fields.insert(key.to_owned(), value);
        field("role", json!(self.role));
        let is_nothing = form.is_content_null && self.content.is_empty() && !self.calls.is_empty();
        field("content", if is_nothing { Json::Null } else { json!(self.content) });
        if let Some(reasoning) = &self.reasoning {
            field("reasoning_content", json!(reasoning));
        }
        if !self.calls.is_empty() {
            let call = |(id, call): &(String, Call)| {
                let parsed =
                    if form.is_text { None } else { serde_json::from_str::<Json>(&call.arguments).ok() };
                let arguments = parsed.unwrap_or_else(|| json!(call.arguments));
                json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
            };
            field("tool_calls", self.calls.iter().map(call).collect());
        }
        if let Some(id) = &self.call_id {
            field("tool_call_id", json!(id));
        }
        if let Some(name) = &self.name {
            field("name", json!(name));
        }
        value(&Json::Object(fields))
    }
}

/// How a template wants the calls of an assistant: they agree in all else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallForm {
    /// The arguments as a text that is JSON, and not as the values that it stands for.
    pub is_text: bool,
    /// No content as `none`, and not as an empty text.
    pub is_content_null: bool,
}

impl CallForm {
    /// All forms, the usual one first.
    pub const ALL: [CallForm; 4] = [
        CallForm { is_text: false, is_content_null: false },
        CallForm { is_text: true, is_content_null: true },
        CallForm { is_text: true, is_content_null: false },
        CallForm { is_text: false, is_content_null: true },
    ];
}

/// What a template writes as a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The turns.
    pub messages: Vec<Message>,
    /// Tools that the assistant may call, as OpenAI's API and templates have them: `{"type": "function", "function": {"name": …,
    /// "description": …, "parameters": SCHEMA}}`.
    pub tools: Vec<Json>,
    /// More variables that the template reads, such as `enable_thinking`.
    pub variables: Map<String, Json>,
    /// Whether the prompt ends where an answer begins.
    pub add_generation_prompt: bool,
    /// How the template wants calls.
    pub form: CallForm,
}

impl Conversation {
    /// A conversation that waits for an answer.
    pub fn new(messages: Vec<Message>) -> Conversation {
        Conversation { messages, add_generation_prompt: true, ..Conversation::default() }
    }
}

/// A compiled template.
///
/// It sees `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `tools`, the variables of the conversation, and the functions
/// `raise_exception` and `strftime_now` (which gives a fixed date: a prompt must not depend on the clock).
/// Source: transformers `render_jinja_template`, chat_template_utils.py@v4.57.
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// If it is too long, or no Jinja.
    pub fn new(source: &str) -> Result<ChatTemplate, Error> {
        if source.len() > SOURCE {
            let problem = format!("the template has {} bytes, wanted at most {SOURCE}", source.len());
            return Err(Error::malformed(NAME, problem));
        }
        limits::check(NAME, source)?;
        let mut environment = Environment::new();
        // As transformers sets up Jinja.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| Error::malformed(NAME, describe(&e)))?);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| date(&format));
        environment.add_filter("tojson", tojson);
        environment.add_filter("indent", indent);
        // In Python `None` is not iterable; templates ask that of tools before they count them.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(|e| Error::malformed(NAME, describe(&e)))?;
        Ok(ChatTemplate { source: source.to_owned(), environment })
    }

    /// The text that it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables that it reads of a conversation, such as `tools` and `enable_thinking`.
    pub fn variables(&self) -> Vec<String> {
        let template = self.environment.get_template(NAME);
        let names = template.map(|template| template.undeclared_variables(false)).unwrap_or_default();
        let mut names: Vec<String> = names.into_iter().filter(|name| !is_global(name)).collect();
        names.sort_unstable();
        names
    }

    /// Writes a conversation as a prompt. `bos` and `eos` are the spellings of the tokens that begin and end a text.
    ///
    /// # Errors
    /// If the template refuses the conversation, or takes too many steps or too much room.
    pub fn render(&self, conversation: &Conversation, bos: &str, eos: &str) -> Result<String, Error> {
        let wrong = |e: &minijinja::Error| Error::malformed(NAME, describe(e));
        let template = self.environment.get_template(NAME).map_err(|e| wrong(&e))?;
        let Conversation { messages, tools, variables, add_generation_prompt, form } = conversation;
        let mut facts: BTreeMap<&str, Value> =
            variables.iter().map(|(name, value)| (name.as_str(), self::value(value))).collect();
        let messages: Vec<Value> = messages.iter().map(|message| message.seen(*form)).collect();
        facts.insert("messages", messages.into());
        // Without tools there is `none`, as transformers has it.
        let tools = if tools.is_empty() { Value::from(()) } else { tools.iter().map(value).collect() };
        facts.insert("tools", tools);
        facts.insert("add_generation_prompt", (*add_generation_prompt).into());
        facts.insert("bos_token", bos.into());
        facts.insert("eos_token", eos.into());
        let mut out = Bounded { bytes: Vec::new() };
        template.render_captured_to(Value::from(facts), &mut out).map_err(|e| wrong(&e))?;
        String::from_utf8(out.bytes).map_err(|_| Error::malformed(NAME, "it writes what is no UTF-8"))
    }
}

/// A value of JSON as Jinja has it.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(it) => Value::from(*it),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => list.iter().map(value).collect(),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, field)| (key.as_str(), value(field))))
        }
    }
}

/// Whether a name is none of the conversation's: a function of Jinja, or of transformers.
fn is_global(name: &str) -> bool {
    ["raise_exception", "strftime_now", "namespace", "range", "dict", "debug", "loop"].contains(&name)
}

/// Rewrites `{% generation %}` as a block that is always taken.
///
/// transformers marks with it what a model is trained to say; to a prompt it means nothing. Source:
/// `AssistantTracker`, src/transformers/utils/chat_template_utils.py@v4.57.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let inner = tag[2..].trim_start_matches(['-', '+']);
        let name = inner.trim_start();
        let (old, new) =
            if name.starts_with("end") { ("endgeneration", "endif") } else { ("generation", "if true") };
        let after = name.strip_prefix(old);
        let ends = after.filter(|after| after.trim_start().trim_start_matches(['-', '+']).starts_with("%}"));
        match ends {
            Some(after) => {
                out.push_str(&tag[..tag.len() - name.len()]);
                out.push_str(new);
                rest = after;
            }
            None => {
                out.push_str("{%");
                rest = &tag[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// A writer that stops.
struct Bounded {
    bytes: Vec<u8>,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > OUTPUT - self.bytes.len() {
            return Err(io::Error::other(format!("the prompt is over {OUTPUT} bytes")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error and what caused it, with the line of the template.
fn describe(error: &minijinja::Error) -> String {
    let mut text = match (error.detail(), error.kind()) {
        (_, ErrorKind::OutOfFuel) => format!("the template takes more than {FUEL} steps"),
        (Some(detail), _) => detail.to_owned(),
        (None, kind) => kind.to_string(),
    };
    if let Some(line) = error.line() {
        text = format!("{text} (line {line})");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The date of templates that ask for one, in the formats that they use.
fn date(format: &str) -> String {
    format
        .replace("%d", "01")
        .replace("%B", "January")
        .replace("%b", "Jan")
        .replace("%m", "01")
        .replace("%Y", "2025")
}

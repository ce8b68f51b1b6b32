//! Reads calls from a text.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Map, Value};

use super::{Body, CallSyntax, schema};

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The name of the tool.
    pub name: String,
    /// Its arguments: a JSON object, as the model wrote it.
    pub arguments: String,
}

impl Call {
    /// Whether the other one has the same name, and arguments of the same value.
    pub(super) fn is_same(&self, other: &Call) -> bool {
        let value = |call: &Call| serde_json::from_str::<Value>(&call.arguments).ok();
        self.name == other.name && value(self) == value(other)
    }
}

/// Why a text has no call where one should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It may become one.
    Wait,
    /// It is something else.
    Text,
}

/// What is left of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a str,
    /// Whether nothing follows.
    pub(crate) is_end: bool,
}

impl<'a> Cursor<'a> {
    /// Reads the next calls: one, or all of a list. None of them: the section has ended.
    pub(crate) fn calls(
        &mut self,
        syntax: &CallSyntax,
        is_first: bool,
        tools: &[Value],
    ) -> Result<Vec<Call>, Stop> {
        self.spaces(if is_first { "" } else { ",;" });
        if is_first {
            self.mark(syntax.section[0])?;
        } else if !syntax.section[1].is_empty() && self.text.starts_with(syntax.section[1].trim()) {
            self.mark(syntax.section[1])?;
            return Ok(vec![]);
        }
        self.mark(syntax.call[0])?;
        let calls = self.body(&syntax.body, tools)?;
        self.end(syntax.call[1])?;
        Ok(calls)
    }

    fn body(&mut self, body: &Body, tools: &[Value]) -> Result<Vec<Call>, Stop> {
        match body {
            Body::Object(_) => Ok(vec![self.json::<Object>()?.call()?]),
            Body::List(_) => self.json::<Vec<Object>>()?.into_iter().map(Object::call).collect(),
            Body::Named([id, between]) => {
                let name = self.until(between)?;
                let name =
                    if id.is_empty() { name } else { name.split_once(id).map_or(name, |(name, _)| name) }
                        .trim();
                let arguments = self.json::<&RawValue>()?;
                Ok(vec![Call { name: checked(name)?, arguments: object(arguments.get())? }])
            }
            Body::Tags { function, argument } => {
                self.mark(function[0])?;
                let name = checked(self.until(function[1].trim_end())?)?;
                let mut arguments = Map::new();
                loop {
                    if !self.has(argument[0])? {
                        self.end(function[2])?;
                        break;
                    }
                    let key = self.until(argument[1].trim_end())?;
                    let text = line(self.until(argument[2].trim())?);
                    arguments.insert(key.to_owned(), value(tools, &name, key, text));
                }
                Ok(vec![Call { name, arguments: Value::Object(arguments).to_string() }])
            }
            Body::Keys { key, value: [open, close] } => {
                // The name ends where a tag begins.
                let at = self.text.find('<').ok_or(self.or_text())?;
                let name = checked(self.text[..at].trim())?;
                self.text = &self.text[at..];
                let mut arguments = Map::new();
                while self.has(key[0])? {
                    let key = self.until(key[1])?;
                    self.mark(open)?;
                    let text = self.until(close)?;
                    arguments.insert(key.to_owned(), value(tools, &name, key, text));
                }
                Ok(vec![Call { name, arguments: Value::Object(arguments).to_string() }])
            }
        }
    }

    /// Passes white space, and characters of `others`.
    fn spaces(&mut self, others: &str) {
        self.text = self.text.trim_start_matches(|c: char| c.is_whitespace() || others.contains(c));
    }

    /// What nothing follows is a text, and what something follows may become a call.
    fn or_text(&self) -> Stop {
        if self.is_end { Stop::Text } else { Stop::Wait }
    }

    /// Passes a string, whatever white space is around it.
    fn mark(&mut self, mark: &str) -> Result<(), Stop> {
        self.spaces("");
        let mark = mark.trim();
        match self.text.strip_prefix(mark) {
            Some(rest) => {
                self.text = rest;
                Ok(())
            }
            None if mark.starts_with(self.text) => Err(self.or_text()),
            None => Err(Stop::Text),
        }
    }

    /// Passes a string if it is next.
    fn has(&mut self, mark: &str) -> Result<bool, Stop> {
        let mut ahead = *self;
        match ahead.mark(mark) {
            Ok(()) => {
                *self = ahead;
                Ok(true)
            }
            Err(Stop::Text) => Ok(false),
            Err(Stop::Wait) => Err(Stop::Wait),
        }
    }

    /// Passes what ends a call. The end of the text does so too.
    fn end(&mut self, mark: &str) -> Result<(), Stop> {
        self.spaces("");
        if self.is_end && self.text.is_empty() { Ok(()) } else { self.mark(mark) }
    }

    /// Passes all up to a string, and the string. Returns what is before it.
    fn until(&mut self, mark: &str) -> Result<&'a str, Stop> {
        let (before, after) = self.text.split_once(mark).ok_or(self.or_text())?;
        self.text = after;
        Ok(before)
    }

    /// Passes a JSON value.
    fn json<T: Deserialize<'a>>(&mut self) -> Result<T, Stop> {
        let mut values = Deserializer::from_str(self.text).into_iter::<T>();
        match values.next() {
            Some(Ok(value)) => {
                self.text = &self.text[values.byte_offset()..];
                Ok(value)
            }
            Some(Err(error)) if !error.is_eof() => Err(Stop::Text),
            _ => Err(self.or_text()),
        }
    }
}

/// A call as a JSON object. More keys, such as an id, say nothing of the call.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(alias = "tool_name")]
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: &'a RawValue,
}

impl Object<'_> {
    fn call(self) -> Result<Call, Stop> {
        Ok(Call { name: checked(&self.name)?, arguments: object(self.arguments.get())? })
    }
}

/// Arguments, if they are an object. Some models write an object into a string.
fn object(json: &str) -> Result<String, Stop> {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => Ok(json.to_owned()),
        Some(b'n') => Ok("{}".to_owned()),
        Some(b'"') => {
            let inner: String = serde_json::from_str(json).map_err(|_| Stop::Text)?;
            let is_object = serde_json::from_str::<Map<String, Value>>(&inner).is_ok();
            is_object.then_some(inner).ok_or(Stop::Text)
        }
        _ => Err(Stop::Text),
    }
}

/// Refuses what cannot be the name of a tool.
fn checked(name: &str) -> Result<String, Stop> {
    let is_name = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    if !name.is_empty() && name.len() <= 256 && name.chars().all(is_name) {
        Ok(name.to_owned())
    } else {
        Err(Stop::Text)
    }
}

/// A text without the line breaks that set it apart from its tags, and without the marks of a text that may look like tags.
fn line(text: &str) -> &str {
    if let Some(text) = text.strip_prefix("<![CDATA[").and_then(|text| text.strip_suffix("]]>")) {
        return text;
    }
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// The value of an argument that is written as a text: a string where the schema has one, and JSON elsewhere, if it is that.
fn value(tools: &[Value], name: &str, key: &str, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match schema(tools, name, key) {
        Some(schema) if takes_only_strings(schema) => string(),
        _ => serde_json::from_str(text.trim()).unwrap_or_else(|_| string()),
    }
}

/// Whether a schema takes strings and nothing else, as far as its `type` and `enum` say.
fn takes_only_strings(schema: &Value) -> bool {
    match (&schema["type"], &schema["enum"]) {
        (Value::String(kind), _) => kind == "string",
        (Value::Null, Value::Array(values)) => values.iter().all(Value::is_string),
        _ => false,
    }
}

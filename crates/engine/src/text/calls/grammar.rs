//! Grammars of answers with calls.

use serde_json::{Map, Value, json};

use super::{Body, CallSyntax};
use crate::grammar::WHITESPACE;
use crate::text::{EncodeOptions, SpecialText, Tokenizer};

/// Which calls an answer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// Any number, and text before them.
    Auto,
    /// One or more, and nothing else but thoughts.
    Required,
}

/// The form of an answer with calls.
#[derive(Clone, Copy, Debug)]
pub struct CallGrammar<'a> {
    /// The tools, with the schemas of their arguments.
    pub tools: &'a [Value],
    /// Which calls it must have.
    pub choice: ToolChoice,
    /// Whether it may have one call only.
    pub is_single: bool,
    /// What encloses thoughts.
    pub thoughts: Option<[&'static str; 2]>,
    /// Whether it begins in thoughts.
    pub is_thinking: bool,
}

impl CallSyntax {
    /// Writes the grammar, in llguidance's variant of Lark, of answers of which calls have arguments of the tools' schemas.
    ///
    /// Source: llguidance 1.9.1, docs/syntax.md.
    pub fn grammar(&self, form: &CallGrammar<'_>, tokenizer: &Tokenizer) -> String {
        let CallGrammar { tools, choice, is_single, thoughts, is_thinking } = *form;
        let mut lark = Lark { tokenizer, rules: vec![], count: 0 };
        let calls: Vec<String> = tools.iter().map(|tool| self.one(&tool["function"], &mut lark)).collect();
        lark.rule("call", &calls.join(" | "));
        let [open, close] = self.section.map(|mark| lark.marks(mark));
        let [before, mut after] = self.call.map(|mark| lark.marks(mark));
        if matches!(self.body, Body::Keys { .. }) {
            after = lark.on_line(self.call[1]);
        }
        let is_list = matches!(self.body, Body::List(_));
        let separator = if is_list {
            "/,[ \\n]{0,8}/"
        } else if self.call[1].is_empty() {
            ""
        } else {
            "\"\\n\"?"
        };
        let body = if is_list { "call" } else { "whole" };
        if !is_list {
            lark.rule("whole", &format!("{before} call {after}"));
        }
        let more = if is_single || self.begin().is_empty() {
            String::new()
        } else {
            format!("({separator} {body})*")
        };
        let [left, right] = if is_list { ["/\\[[ \\n]{0,8}/", "/[ \\n]{0,8}\\]/"] } else { ["", ""] };
        // The beginning stands apart: text may come before it.
        let (begin, rest) = if open.is_empty() && !is_list {
            (before, format!("call {after} {more}"))
        } else {
            (open, format!("{left} {body} {more} {right} {close}"))
        };
        let start = match choice {
            ToolChoice::Required => format!("{begin} {rest}"),
            ToolChoice::Auto => lark.after_text(self.begin(), &begin, &rest),
        };
        let before = match thoughts {
            Some([_, end]) if is_thinking => lark.thoughts(end),
            // Thoughts between tokens of their own are in no text.
            Some([begin, end]) if choice == ToolChoice::Auto && lark.marks(begin).starts_with("<[") => {
                format!("({} {})?", lark.marks(begin), lark.thoughts(end))
            }
            _ => String::new(),
        };
        lark.rule("answer", &start);
        lark.rule("start", &format!("{before} answer"));
        lark.rules.concat()
    }

    /// The rule of a call of `function`.
    fn one(&self, function: &Value, lark: &mut Lark<'_>) -> String {
        let name = function["name"].as_str().unwrap_or_default();
        let schema = function.get("parameters").filter(|schema| schema.is_object()).cloned();
        let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        let text = match &self.body {
            Body::Object(keys) | Body::List(keys) => {
                let is_needed = |key: &&&str| !key.ends_with("id");
                let required: Vec<&str> = keys.iter().filter(is_needed).copied().collect();
                let value = |key: &str| match key {
                    "name" | "tool_name" => json!({"const": name}),
                    "arguments" | "parameters" => schema.clone(),
                    _ => json!({"type": "string", "maxLength": 64}),
                };
                let properties: Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), value(key))).collect();
                let object = json!({
                    "type": "object", "properties": properties, "required": required, "additionalProperties": false,
                });
                schema_text(&with_definitions(&object, &schema))
            }
            Body::Named([id, between]) => {
                let id = if id.is_empty() {
                    String::new()
                } else {
                    format!("({} /[a-zA-Z0-9]{{1,64}}/)?", lark.marks(id))
                };
                format!("{} {id} {} {}", lark.marks(name), lark.marks(between), schema_text(&schema))
            }
            Body::Tags { function, argument: [before, after, end] } => {
                let open = lark.marks(&format!("{}{name}{}", function[0], function[1]));
                let arguments = lark.arguments(&schema, |lark, key, schema| {
                    let open = lark.marks(&format!("{before}{key}{after}"));
                    format!("{open} {}", lark.value(schema, end))
                });
                format!("{open} {arguments} {}", lark.marks(function[2]))
            }
            Body::Keys { key: [key_begin, key_end], value: [value_begin, value_end] } => {
                let open = lark.marks(name);
                let arguments = lark.arguments(&schema, |lark, key, schema| {
                    let [open, between] = [format!("{key_begin}{key}{key_end}"), (*value_begin).to_owned()];
                    let [open, between] = [open, between].map(|mark| lark.on_line(&mark));
                    format!("{open} {between} {}", lark.value(schema, value_end))
                });
                format!("{open} {arguments}")
            }
        };
        let rule = lark.name("call");
        lark.rule(&rule, &text);
        rule
    }
}

/// A grammar that is written.
struct Lark<'t> {
    tokenizer: &'t Tokenizer,
    rules: Vec<String>,
    count: usize,
}

impl Lark<'_> {
    /// A name that no rule has yet.
    fn name(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}_{}", self.count)
    }

    fn rule(&mut self, name: &str, text: &str) {
        self.rules.push(format!("{name}: {text}\n"));
    }

    /// A text, of which special tokens are named as such: no bytes stand for them.
    fn marks(&self, text: &str) -> String {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let tokens = self.tokenizer.encode(text, options).unwrap_or_default();
        let mut parts: Vec<String> = vec![];
        let mut plain = String::new();
        let mut rest = text;
        for token in tokens.into_iter().filter(|token| self.is_special(*token)) {
            let Some((before, after)) =
                self.tokenizer.token_spelling(token).and_then(|spelling| rest.split_once(spelling))
            else {
                continue;
            };
            plain.push_str(before);
            parts.extend(literal(&std::mem::take(&mut plain)));
            parts.push(format!("<[{token}]>"));
            rest = after;
        }
        parts.extend(literal(rest));
        parts.join(" ")
    }

    /// A text that some models begin a line with, and others do not.
    fn on_line(&self, text: &str) -> String {
        match text.strip_prefix('\n') {
            Some(rest) => format!("\"\\n\"? {}", self.marks(rest)),
            None => self.marks(text),
        }
    }

    fn is_special(&self, token: u32) -> bool {
        self.tokenizer.token_bytes(token, SpecialText::Hidden).is_empty()
            && !self.tokenizer.token_bytes(token, SpecialText::Shown).is_empty()
    }

    /// The arguments that a schema has, in its order; those that are not required may be left out.
    fn arguments(&mut self, parameters: &Value, one: impl Fn(&mut Self, &str, &Value) -> String) -> String {
        let required = parameters["required"].as_array();
        let is_required = |key: &str| required.is_some_and(|keys| keys.iter().any(|k| k == key));
        let mut all = vec![];
        for (key, schema) in parameters["properties"].as_object().into_iter().flatten() {
            let text = one(self, key, &with_definitions(schema, parameters));
            all.push(if is_required(key) { format!("({text})") } else { format!("({text})?") });
        }
        all.join(" ")
    }

    /// A value that ends with `end`: a string as it is, anything else as JSON.
    fn value(&mut self, schema: &Value, end: &str) -> String {
        let strings = schema["enum"].as_array().filter(|values| values.iter().all(Value::is_string));
        if let Some(values) = strings {
            let values: Vec<String> = values.iter().filter_map(|v| literal(v.as_str()?)).collect();
            return format!("({}) {}", values.join(" | "), self.marks(end));
        }
        if schema["type"] == "string" {
            let name = self.name("text");
            // It ends where its tag ends first.
            self.rule(&format!("{name}[lazy]"), &format!("/(?s:.*){}/", escaped(end)));
            return name;
        }
        format!("{} {}", schema_text(schema), self.marks(end))
    }

    /// Thoughts up to their end.
    fn thoughts(&mut self, end: &str) -> String {
        let marks = self.marks(end);
        let is_special = marks.starts_with("<[");
        if is_special {
            self.rule("thoughts", "/(?s:.*)/");
        } else {
            self.rule("thoughts[lazy]", &format!("/(?s:.*){}/", escaped(end)));
        }
        // Templates write line breaks between thoughts and the rest.
        format!("thoughts {} /\\n{{1,2}}/?", if is_special { &marks } else { "" })
    }

    /// Any text, and after it, if `mark` comes, `begin` and `rest`.
    fn after_text(&mut self, mark: &str, begin: &str, rest: &str) -> String {
        if mark.is_empty() {
            // A text that begins as JSON is a call.
            self.rule("PLAIN", "/[^\\s{](?s:.*)/");
            return format!("PLAIN? | {begin} {rest}");
        }
        if begin.starts_with("<[") {
            self.rule("PLAIN", "/(?s:.+)/");
            return format!("PLAIN? | PLAIN? {begin} {rest}");
        }
        let text = escaped(mark);
        self.rule("PLAIN", &format!("/(?s:.*)/ & ~/(?s:.*){text}(?s:.*)/"));
        self.rule("begin[lazy]", &format!("/(?s:.*){text}/"));
        format!("PLAIN? | begin {} {rest}", begin_after(begin, mark))
    }
}

/// What is left of a literal after the text that it begins with.
fn begin_after(begin: &str, mark: &str) -> String {
    let text: String = serde_json::from_str(begin).unwrap_or_default();
    text.strip_prefix(mark).and_then(literal).unwrap_or_default()
}

/// A schema with the definitions of another one, which its references name by their places in that.
fn with_definitions(schema: &Value, of: &Value) -> Value {
    let mut schema = schema.clone();
    for key in ["$defs", "definitions"] {
        if let (Value::Object(keys), Some(definitions)) = (&mut schema, of.get(key)) {
            keys.insert(key.to_owned(), definitions.clone());
        }
    }
    schema
}

/// A value that a schema describes.
fn schema_text(schema: &Value) -> String {
    let mut schema = schema.clone();
    if let Value::Object(keys) = &mut schema {
        keys.insert("x-guidance".to_owned(), json!({"whitespace_pattern": WHITESPACE}));
    }
    format!("%json {schema}")
}

/// A text as a literal; none if it is empty.
fn literal(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| Value::String(text.to_owned()).to_string())
}

/// A text within a regular expression between slashes.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            c if c.is_alphanumeric() || " _\"'<>=:,;".contains(c) || !c.is_ascii() => out.push(c),
            c => out.extend(['\\', c]),
        }
    }
    out
}

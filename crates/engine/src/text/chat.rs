//! Chat templates: a conversation as the prompt that the model was trained on.
//!
//! A template is a program from an untrusted file. It runs with limits on its steps, its depth and its output, sees
//! nothing but the conversation, and cannot load other templates. Its memory is limited by its steps alone: a string
//! may double with each, and a value may contain itself, which is walked by recursion. minijinja has no limits for
//! that. Run untrusted templates in a process of their own, as `weighbridge run` does.

use std::fmt;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// A compiled template.
///
/// It sees `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `tools` (none), and the functions
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

    /// Writes a conversation as a prompt. With `add_generation_prompt` it ends where the answer begins.
    ///
    /// # Errors
    /// If the template refuses the conversation, or takes too many steps or too much room.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        bos: &str,
        eos: &str,
    ) -> Result<String, Error> {
        let wrong = |e: &minijinja::Error| Error::malformed(NAME, describe(e));
        let template = self.environment.get_template(NAME).map_err(|e| wrong(&e))?;
        let messages: Vec<Value> = messages
            .iter()
            .map(|m| context! { role => m.role.as_str(), content => m.content.as_str() })
            .collect();
        let mut out = Bounded { bytes: Vec::new() };
        let facts = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => bos,
            eos_token => eos,
            tools => Value::from(()),
        };
        template.render_captured_to(facts, &mut out).map_err(|e| wrong(&e))?;
        String::from_utf8(out.bytes).map_err(|_| Error::malformed(NAME, "it writes what is no UTF-8"))
    }
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

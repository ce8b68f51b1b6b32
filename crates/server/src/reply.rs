//! The text of an answer as what clients of chats get: text, thoughts and calls.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use weighbridge::engine::text::{Part, ReplyReader, ReplySyntax};

use crate::refusal::Refusal;
use crate::shapes::{CalledFunction, Delta, ToolCall};

/// An answer that is read piece by piece.
#[derive(Clone)]
pub(crate) struct Reply {
    reader: ReplyReader,
    /// Its calls so far.
    calls: usize,
}

impl Reply {
    pub(crate) fn new(syntax: ReplySyntax, is_thinking: bool, tools: Vec<Value>) -> Reply {
        Reply { reader: ReplyReader::new(syntax, is_thinking, tools), calls: 0 }
    }

    /// Takes the next piece. Returns what is certain; `id` makes ids of calls.
    pub(crate) fn push(&mut self, text: &str, id: impl FnMut() -> String) -> Vec<Delta> {
        let parts = self.reader.push(text);
        self.deltas(parts, id)
    }

    /// Ends the answer. Returns the rest.
    pub(crate) fn finish(&mut self, id: impl FnMut() -> String) -> Vec<Delta> {
        let parts = self.reader.finish();
        self.deltas(parts, id)
    }

    /// Why it has ended: to have calls answered, if there are any.
    pub(crate) fn finish_reason(&self, reason: &'static str) -> &'static str {
        if self.calls > 0 && reason == "stop" { "tool_calls" } else { reason }
    }

    /// Whether it has calls so far.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    fn deltas(&mut self, parts: Vec<Part>, mut id: impl FnMut() -> String) -> Vec<Delta> {
        let mut delta = |part| match part {
            Part::Text(text) => Delta { content: Some(text), ..Delta::default() },
            Part::Thought(text) => Delta { reasoning_content: Some(text), ..Delta::default() },
            Part::Call(call) => {
                let index = self.calls;
                self.calls += 1;
                let function = CalledFunction { name: call.name, arguments: call.arguments };
                let call = ToolCall { index: Some(index), id: id(), kind: "function", function };
                Delta { tool_calls: vec![call], ..Delta::default() }
            }
        };
        parts.into_iter().map(&mut delta).collect()
    }
}

/// An answer in JSON, which a thread of its own writes: others go on.
pub(crate) async fn sent(
    write: impl FnOnce() -> serde_json::Result<Vec<u8>> + Send + 'static,
) -> Result<Response, Refusal> {
    let written = tokio::task::spawn_blocking(write).await;
    let Ok(Ok(json)) = written else { return Err(Refusal::failed("the answer could not be written")) };
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response())
}

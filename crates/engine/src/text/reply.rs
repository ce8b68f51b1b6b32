//! The parts of an answer: what the model thinks, what it says, and the tools that it calls.

use serde_json::Value;

use super::calls::{Call, CallSyntax, Cursor, Stop};

/// The tags around thoughts, in the templates of models that think. Source: the chat templates of DeepSeek-R1, Qwen 3, GLM 4.6
/// and others; Ministral 3; Seed-OSS.
const THOUGHTS: &[[&str; 2]] =
    &[["<think>", "</think>"], ["[THINK]", "[/THINK]"], ["<seed:think>", "</seed:think>"]];

/// How an answer of a model is read.
#[derive(Clone, Debug, Default)]
pub struct ReplySyntax {
    /// What encloses thoughts.
    pub thoughts: Option<[&'static str; 2]>,
    /// How calls are written. None: whatever is written is text.
    pub calls: Option<&'static CallSyntax>,
}

impl ReplySyntax {
    /// Finds what encloses the thoughts of a model with this template.
    pub fn thoughts(template: &str) -> Option<[&'static str; 2]> {
        THOUGHTS.iter().find(|[_, end]| template.contains(end)).copied()
    }

    /// The strings that may be special tokens: such tokens must be in the text that is read.
    pub fn marks(&self) -> Vec<&'static str> {
        let calls = self.calls.map(CallSyntax::marks);
        self.thoughts.iter().flatten().copied().chain(calls.into_iter().flatten()).collect()
    }

    /// Whether an answer to this prompt begins within thoughts, since the prompt has their beginning.
    pub fn is_thinking(&self, prompt: &str) -> bool {
        self.thoughts.is_some_and(|[begin, _]| prompt.trim_end().ends_with(begin))
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model says.
    Text(String),
    /// What it thinks.
    Thought(String),
    /// A tool that it calls.
    Call(Call),
}

/// Reads an answer piece by piece.
///
/// Nothing is lost: what only looks like a call, or breaks off, is text.
#[derive(Clone, Debug)]
pub struct ReplyReader {
    syntax: ReplySyntax,
    /// The tools that may be called, as OpenAI's API has them: their schemas tell strings from numbers where a model writes neither
    /// as JSON.
    tools: Vec<Value>,
    state: State,
    /// What is not given out yet.
    buffer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// In thoughts; whether anything of them was given out.
    Thoughts { is_begun: bool },
    /// After thoughts, with nothing but white space since.
    AfterThoughts,
    /// In a text.
    Text,
    /// Before the first call, or after another one.
    Calls { is_first: bool },
}

impl ReplyReader {
    /// Begins an answer; `is_thinking` says whether it begins in thoughts ([`ReplySyntax::is_thinking`]).
    pub fn new(syntax: ReplySyntax, is_thinking: bool, tools: Vec<Value>) -> ReplyReader {
        let state = if is_thinking { State::Thoughts { is_begun: false } } else { State::Start };
        ReplyReader { syntax, tools, state, buffer: String::new() }
    }

    /// Takes the next piece. Returns the parts that are certain.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.buffer.push_str(piece);
        self.parts(false)
    }

    /// Ends the answer. Returns the rest.
    pub fn finish(&mut self) -> Vec<Part> {
        self.parts(true)
    }

    fn parts(&mut self, is_end: bool) -> Vec<Part> {
        let mut parts = vec![];
        while !self.buffer.is_empty() && self.step(is_end, &mut parts) {}
        parts
    }

    /// Goes on in one state. Returns whether there is more to do.
    fn step(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Start => self.start(is_end),
            State::Thoughts { is_begun } => self.think(is_begun, is_end, parts),
            State::AfterThoughts => {
                self.buffer.drain(..self.buffer.len() - self.buffer.trim_start().len());
                self.state = if self.buffer.is_empty() { State::AfterThoughts } else { self.text() };
                !self.buffer.is_empty()
            }
            State::Text => self.say(is_end, parts),
            State::Calls { is_first } => self.call(is_first, is_end, parts),
        }
    }

    fn start(&mut self, is_end: bool) -> bool {
        let text = self.buffer.trim_start();
        let white = self.buffer.len() - text.len();
        if let Some([begin, _]) = self.syntax.thoughts {
            if text.starts_with(begin) {
                self.buffer.drain(..white + begin.len());
                self.state = State::Thoughts { is_begun: false };
                return true;
            }
            if !is_end && begin.starts_with(text) {
                return false;
            }
        }
        if !is_end && text.is_empty() && self.is_bare() {
            return false;
        }
        self.state = self.text();
        true
    }

    /// Whether a call is all of the text that it is in.
    fn is_bare(&self) -> bool {
        self.syntax.calls.is_some_and(|calls| calls.begin().is_empty())
    }

    /// The state in which the text of the buffer is read, which is the beginning of what the model says.
    fn text(&self) -> State {
        if self.is_bare() && self.buffer.trim_start().starts_with('{') {
            State::Calls { is_first: true }
        } else {
            State::Text
        }
    }

    fn think(&mut self, is_begun: bool, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let Some([_, end]) = self.syntax.thoughts else {
            self.state = State::Text;
            return true;
        };
        let found = self.buffer.find(end);
        let upto =
            found.unwrap_or_else(|| self.buffer.len() - if is_end { 0 } else { held(&self.buffer, end) });
        let mut thought = &self.buffer[..upto];
        if !is_begun {
            thought = thought.trim_start();
        }
        if found.is_some() || is_end {
            thought = thought.trim_end();
        }
        let is_begun = is_begun || !thought.is_empty();
        if !thought.is_empty() {
            parts.push(Part::Thought(thought.to_owned()));
        }
        self.buffer.drain(..upto + found.map_or(0, |_| end.len()));
        self.state = if found.is_some() { State::AfterThoughts } else { State::Thoughts { is_begun } };
        found.is_some()
    }

    fn say(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let begin = self.syntax.calls.map_or("", CallSyntax::begin);
        let found = if begin.is_empty() { None } else { self.buffer.find(begin) };
        let upto = match found {
            // White space before calls sets them apart: it is text only if they are none.
            Some(at) => self.buffer[..at].trim_end().len(),
            None if is_end || begin.is_empty() => self.buffer.len(),
            None => self.buffer.len() - held(&self.buffer, begin),
        };
        if upto > 0 {
            parts.push(Part::Text(self.buffer[..upto].to_owned()));
        }
        self.buffer.drain(..upto);
        if found.is_some() {
            self.state = State::Calls { is_first: true };
        }
        found.is_some()
    }

    /// Refuses JSON that is an answer and no call, where nothing else tells them apart.
    fn known(&self, calls: Vec<Call>) -> Result<Vec<Call>, Stop> {
        let is_tool = |call: &Call| self.tools.iter().any(|tool| tool["function"]["name"] == call.name);
        if self.is_bare() && !calls.iter().all(is_tool) { Err(Stop::Text) } else { Ok(calls) }
    }

    fn call(&mut self, is_first: bool, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let Some(syntax) = self.syntax.calls else {
            self.state = State::Text;
            return true;
        };
        if is_end && !is_first && self.buffer.trim().is_empty() {
            self.buffer.clear();
            return false;
        }
        let until = syntax.until();
        if !is_end && (until.is_empty() || !self.buffer.contains(until)) {
            return false;
        }
        let mut cursor = Cursor { text: &self.buffer, is_end };
        let read = cursor.calls(syntax, is_first, &self.tools).and_then(|calls| self.known(calls));
        let left = cursor.text.len();
        match read {
            Ok(calls) => {
                let has_ended = calls.is_empty();
                parts.extend(calls.into_iter().map(Part::Call));
                self.buffer.drain(..self.buffer.len() - left);
                self.state = if has_ended { State::AfterThoughts } else { State::Calls { is_first: false } };
                true
            }
            Err(Stop::Wait) => false,
            Err(Stop::Text) => {
                // Past what looked like the beginning of a call, lest it be found again.
                let begin = syntax.begin();
                let white = self.buffer.len() - self.buffer.trim_start().len();
                let upto = if self.buffer[white..].starts_with(begin) { white + begin.len() } else { 0 };
                if upto > 0 {
                    parts.push(Part::Text(self.buffer.drain(..upto).collect()));
                }
                self.state = State::Text;
                true
            }
        }
    }
}

/// The bytes at the end of a text that `mark` may begin with, and white space before them or before what follows.
fn held(text: &str, mark: &str) -> usize {
    let most = text.len().min(mark.len().saturating_sub(1));
    let begins =
        |n: &usize| text.is_char_boundary(text.len() - n) && mark.starts_with(&text[text.len() - n..]);
    let mark = (1..=most).rev().find(begins).unwrap_or(0);
    let before = &text[..text.len() - mark];
    mark + before.len() - before.trim_end().len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The calls that a template writes as `written`, with the name `f` and no arguments.
    fn syntax(written: &str) -> ReplySyntax {
        let call = Call { name: "f".to_owned(), arguments: "{}".to_owned() };
        let calls = CallSyntax::of("", written, &call);
        assert!(calls.is_some(), "{written}");
        ReplySyntax { thoughts: Some(["<think>", "</think>"]), calls }
    }

    /// The parts of a text, whatever pieces it comes in.
    fn parts(syntax: &ReplySyntax, is_thinking: bool, text: &str) -> Vec<Part> {
        let tools =
            vec![json!({"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}})];
        let chars: Vec<char> = text.chars().collect();
        let mut first = None;
        for size in 1..=chars.len().max(1) {
            let mut reader = ReplyReader::new(syntax.clone(), is_thinking, tools.clone());
            let mut all: Vec<Part> = vec![];
            let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut given: Vec<Part> = pieces.flat_map(|piece| reader.push(&piece)).collect();
            given.extend(reader.finish());
            for part in given {
                match (all.last_mut(), part) {
                    (Some(Part::Text(text)), Part::Text(more))
                    | (Some(Part::Thought(text)), Part::Thought(more)) => text.push_str(&more),
                    (_, part) => all.push(part),
                }
            }
            let first = first.get_or_insert_with(|| all.clone());
            assert_eq!(first, &all, "{text:?} in pieces of {size}");
        }
        first.unwrap_or_default()
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn thought(text: &str) -> Part {
        Part::Thought(text.to_owned())
    }

    fn call(arguments: &str) -> Part {
        Part::Call(Call { name: "f".to_owned(), arguments: arguments.to_owned() })
    }

    #[test]
    fn nothing_is_lost_of_what_is_no_call() {
        let hermes = syntax("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
        let list = syntax("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]");
        let bare = syntax("{\"name\": \"f\", \"parameters\": {}}");
        for (syntax, answer) in [
            (&hermes, "a <tool_call>\n{\"name\": \"f\", \"argum"),
            (&hermes, "a <tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call> b"),
            (&hermes, "a <tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>"),
            (&hermes, "a <tool_call> and </tool_call>, <tool_"),
            (&hermes, "  x <tool_call"),
            (&hermes, " \n"),
            (&list, "[TOOL_CALLS]none"),
            (&list, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}"),
            (&bare, "{\"name\": \"Bob\", \"parameters\": {}}"),
            (&bare, "{\"name\": \"f\"}"),
            (&bare, "see {\"name\": \"f\", \"parameters\": {}}"),
            (&bare, "{"),
            (&ReplySyntax::default(), "<think> <tool_call>"),
        ] {
            assert_eq!(parts(syntax, false, answer), [text(answer)], "{answer:?}");
        }
    }

    #[test]
    fn calls_and_thoughts_are_told_from_text() {
        let hermes = syntax("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
        let one = "<tool_call>{\"arguments\": {\"s\": \"</tool_call>\", \"n\": 12345678901234567890123}, \"name\": \"f\"}</tool_call>";
        let arguments = "{\"s\": \"</tool_call>\", \"n\": 12345678901234567890123}";
        let answer = format!("<think>\n a <tool_call> b\n</think>\n\nc\n{one}\n{one} d");
        let wanted = [thought("a <tool_call> b"), text("c"), call(arguments), call(arguments), text(" d")];
        assert_eq!(parts(&hermes, false, &answer), wanted);
        assert_eq!(parts(&hermes, true, "\nx </thin </think> y"), [thought("x </thin"), text("y")]);
        assert_eq!(parts(&hermes, true, "x y "), [thought("x y")]);
        assert_eq!(parts(&hermes, false, "x <think> y"), [text("x <think> y")]);
        // Cut off by the token that ends it.
        assert_eq!(parts(&hermes, false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}"), [call("{}")]);
        // An object in a string.
        let quoted = "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": 1}\"}</tool_call>";
        assert_eq!(parts(&hermes, false, quoted), [call("{\"s\": 1}")]);
    }

    #[test]
    fn texts_between_tags_are_strings_where_the_schema_says_so() {
        let tags = syntax("<tool_call>\n<function=f>\n</function>\n</tool_call>");
        let answer = "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=t>\nx\ny\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(parts(&tags, false, answer), [call(r#"{"s":"12","n":12,"t":"x\ny"}"#)]);
        let keys = syntax("<tool_call>f\n</tool_call>");
        let answer = "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>n</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>";
        assert_eq!(parts(&keys, false, answer), [call(r#"{"s":"1","n":[1]}"#)]);
    }
}

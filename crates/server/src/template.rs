//! How the model reads a conversation, and how its answers are read.

use weighbridge::engine::text::{
    Call, CallForm, CallSyntax, Conversation, EncodeOptions, Message, ReplySyntax, SpecialText, Tokenizer,
};

use serde_json::json;

use crate::offer::Chat;

/// How the model reads a conversation, and how its answers are read.
pub(crate) struct Template {
    chat: Chat,
    /// How calls are written. None: the template has no tools, or its calls are unknown.
    calls: Option<(&'static CallSyntax, CallForm)>,
}

impl Template {
    /// Finds how the model writes calls: the template writes one, and what reads it back is right.
    pub(crate) fn new(chat: Chat) -> Template {
        let calls = if chat.variables.iter().any(|name| name == "tools") { probe(&chat) } else { None };
        Template { chat, calls }
    }

    /// Writes a conversation as a prompt.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<String, String> {
        (self.chat.render)(conversation)
    }

    /// The form of calls that the template takes.
    pub(crate) fn form(&self) -> CallForm {
        self.calls.map_or_else(CallForm::default, |(_, form)| form)
    }

    /// Why a request cannot have tools.
    pub(crate) fn no_tools(&self) -> Option<&'static str> {
        match self.calls {
            Some(_) => None,
            None if self.reads("tools") => {
                Some("the model's template writes calls in a way that is unknown here")
            }
            None => Some("the model's template has no tools"),
        }
    }

    /// Why a conversation cannot have calls and their results: the template would leave them out.
    pub(crate) fn no_calls(&self) -> Option<&'static str> {
        self.no_tools().filter(|_| !self.reads("tools"))
    }

    /// Whether the template reads a variable.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.chat.variables.iter().any(|variable| variable == name)
    }

    /// The variables that it reads.
    pub(crate) fn variables(&self) -> &[String] {
        &self.chat.variables
    }

    /// How answers are read, with calls or without.
    pub(crate) fn reply(&self, with_calls: bool) -> ReplySyntax {
        let calls = self.calls.filter(|_| with_calls).map(|(syntax, _)| syntax);
        ReplySyntax { thoughts: self.chat.thoughts, calls }
    }
}

/// Whether the text of special tokens is needed to read answers: some mark a call.
pub(crate) fn special_text(reply: &ReplySyntax, tokenizer: &Tokenizer) -> SpecialText {
    let options = EncodeOptions { add_special: false, parse_special: true };
    let is_lost = |mark: &&str| {
        let tokens = tokenizer.encode(mark, options).unwrap_or_default();
        tokens.iter().any(|token| tokenizer.token_bytes(*token, SpecialText::Hidden).is_empty())
    };
    if reply.marks().iter().any(is_lost) { SpecialText::Shown } else { SpecialText::Hidden }
}

fn probe(chat: &Chat) -> Option<(&'static CallSyntax, CallForm)> {
    let arguments = json!({"first_key": "one \"two\" three", "second_key": 35});
    let call = Call { name: "probed_tool".to_owned(), arguments: arguments.to_string() };
    let tool = json!({"type": "function", "function": {
        "name": call.name, "description": "A tool.",
        "parameters": {
            "type": "object", "required": ["first_key", "second_key"],
            "properties": {"first_key": {"type": "string", "description": "A text."}, "second_key": {"type": "integer", "description": "A number."}},
        },
    }});
    let asks = || vec![Message::new("user", "A question.")];
    let answers = || {
        // Mistral's templates want such ids.
        let calls = vec![("abcdefgh1".to_owned(), call.clone())];
        [asks(), vec![Message { calls, ..Message::new("assistant", "") }]].concat()
    };
    CallForm::ALL.into_iter().find_map(|form| {
        let conversation = |messages, add_generation_prompt| Conversation {
            tools: vec![tool.clone()],
            form,
            add_generation_prompt,
            ..Conversation::new(messages)
        };
        let prompt = (chat.render)(&conversation(asks(), true)).ok()?;
        let whole = (chat.render)(&conversation(answers(), false)).ok()?;
        Some((CallSyntax::of(&prompt, &whole, &call)?, form))
    })
}

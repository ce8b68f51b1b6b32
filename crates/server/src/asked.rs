//! A conversation that waits for an answer, whatever API asks for it.

use serde_json::{Map, Value};
use weighbridge::engine::text::{Conversation, EncodeOptions, Message};

use crate::prepare::{Common, Form, Prepared, Prompt};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::service::Service;
use crate::template::{Template, special_text};
use crate::tools::Tools;

/// A conversation that waits for an answer.
pub(crate) struct Asked {
    pub(crate) common: Common,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Tools,
    /// More variables of the template.
    pub(crate) variables: Map<String, Value>,
}

/// What the engine is to run, and how its answers are read.
pub(crate) struct Ready {
    pub(crate) common: Common,
    pub(crate) prepared: Prepared,
    pub(crate) reply: Reply,
}

impl Asked {
    /// Writes the conversation as a prompt.
    pub(crate) fn prepare(self, service: &Service) -> Result<Ready, Refusal> {
        let Asked { mut common, messages, tools, variables } = self;
        common.check_model(service)?;
        let template = template(service)?;
        let syntax = template.reply(!tools.list.is_empty());
        common.special = special_text(&syntax, &service.tokenizer);
        let list = tools.list.clone();
        let conversation =
            Conversation { tools: list, variables, form: template.form(), ..Conversation::new(messages) };
        let mut is_thinking = false;
        let prepared = common.prepare(service, 1, usize::MAX, "messages", || {
            let text = render(template, &conversation)?;
            is_thinking = syntax.is_thinking(&text);
            let form = form(service, template, &tools, is_thinking);
            Ok(vec![Prompt { tokens: encode(service, &text)?, form }])
        })?;
        Ok(Ready { common, prepared, reply: Reply::new(syntax, is_thinking, tools.list) })
    }

    /// Counts the tokens of its prompt.
    pub(crate) fn count(self, service: &Service) -> Result<usize, Refusal> {
        self.common.check_model(service)?;
        let template = template(service)?;
        let (tools, variables, form) = (self.tools.list, self.variables, template.form());
        let conversation = Conversation { tools, variables, form, ..Conversation::new(self.messages) };
        Ok(encode(service, &render(template, &conversation)?)?.len())
    }
}

fn template(service: &Service) -> Result<&Template, Refusal> {
    service
        .template
        .as_ref()
        .ok_or_else(|| Refusal::wrong("the model has no chat template: `/v1/completions` continues a text"))
}

fn render(template: &Template, conversation: &Conversation) -> Result<String, Refusal> {
    template.render(conversation).map_err(|why| {
        // A template writes what it likes there.
        let why: String = why.chars().take(2000).collect();
        Refusal::wrong(format!("`messages`: {why}"))
    })
}

fn encode(service: &Service, text: &str) -> Result<Vec<u32>, Refusal> {
    // The template writes its own special tokens, the first included.
    let options = EncodeOptions { add_special: false, parse_special: true };
    service.encode("messages", text, options)
}

/// The form of an answer that may or must call tools.
#[cfg(feature = "grammar")]
fn form(service: &Service, template: &Template, tools: &Tools, is_thinking: bool) -> Option<Form> {
    use weighbridge::engine::grammar::Source;
    use weighbridge::engine::text::{CallGrammar, ToolChoice};
    let reply = template.reply(true);
    let syntax = reply.calls.filter(|_| !tools.list.is_empty())?;
    let form = CallGrammar {
        tools: &tools.list,
        choice: if tools.is_required { ToolChoice::Required } else { ToolChoice::Auto },
        is_single: tools.is_single,
        thoughts: reply.thoughts,
        is_thinking,
    };
    Some(Form {
        source: Source::Lark(syntax.grammar(&form, &service.tokenizer)),
        is_strict: tools.is_strict,
        is_optional: !tools.is_required && !tools.is_strict,
    })
}

/// No answer of this build keeps to a form.
#[cfg(not(feature = "grammar"))]
fn form(_: &Service, _: &Template, _: &Tools, _: bool) -> Option<Form> {
    None
}

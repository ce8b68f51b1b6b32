//! The tools of a request, and which of them the answer may or must call.

use serde_json::{Value, json};
use weighbridge::engine::text::Call;

use crate::fields::Fields;
use crate::template::Template;

/// Tools of a request at most.
const MOST: usize = 128;

/// The tools of a request.
#[derive(Default)]
pub(crate) struct Tools {
    /// As templates have them; only those that may be called.
    pub(crate) list: Vec<Value>,
    /// Whether the answer must call one.
    pub(crate) is_required: bool,
    /// Whether the answer may call one only.
    pub(crate) is_single: bool,
    /// Whether a schema must be followed in all of its parts.
    pub(crate) is_strict: bool,
}

impl Tools {
    /// Reads the fields of a request.
    pub(crate) fn read(fields: &mut Fields, template: Option<&Template>) -> Tools {
        let (mut list, mut is_strict) = (vec![], false);
        let given = fields.objects("tools").unwrap_or_default();
        if given.len() > MOST {
            fields.problem("tools", &format!("wanted at most {MOST} tools"));
        }
        for mut tool in given.into_iter().take(MOST) {
            if tool.text("type").as_deref() != Some("function") {
                tool.problem("type", "wanted `function`");
            }
            if let Some(mut function) = tool.object("function") {
                is_strict |= function.flag("strict").unwrap_or(false);
                list.extend(self::function(&mut function, "parameters"));
                tool.join(function);
            } else if !tool.has_problems() {
                tool.problem("function", "wanted an object with a `name`");
            }
            fields.join(tool);
        }
        let tools = Tools { is_strict, ..choose(fields, list, NAMED, |choice| &choice["function"]["name"]) };
        tools.refuse_unknown(fields, template);
        tools
    }

    /// Names it as a problem if there are tools, and the template has none.
    pub(crate) fn refuse_unknown(&self, fields: &mut Fields, template: Option<&Template>) {
        if let (Some(why), false) = (template.and_then(Template::no_tools), self.list.is_empty()) {
            fields.problem("tools", why);
        }
    }
}

/// Reads one function, whose arguments the field `schema` describes.
pub(crate) fn function(function: &mut Fields, schema: &'static str) -> Option<Value> {
    let name = function.text("name").unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        function.problem("name", "wanted up to 64 letters, digits, `_`, `-` and `.`");
    }
    let description = function.text("description").unwrap_or_default();
    let parameters = match function.value(schema) {
        Some(schema @ Value::Object(_)) => schema,
        None => json!({"type": "object", "properties": {}}),
        Some(_) => {
            function.problem(schema, "wanted a JSON Schema of an object");
            return None;
        }
    };
    // Templates read all three keys.
    Some(
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}),
    )
}

/// How a tool is named.
const NAMED: &str = "{\"type\": \"function\", \"function\": {\"name\": NAME}}";

/// Reads which of the tools may or must be called.
pub(crate) fn choose(
    fields: &mut Fields,
    mut list: Vec<Value>,
    named: &str,
    name: fn(&Value) -> &Value,
) -> Tools {
    let is_single = fields.flag("parallel_tool_calls") == Some(false);
    let choice = fields.value("tool_choice");
    let is_required = match &choice {
        None => false,
        Some(Value::String(choice)) if choice == "none" => {
            list.clear();
            false
        }
        Some(Value::String(choice)) if choice == "auto" => false,
        Some(Value::String(choice)) if choice == "required" => true,
        Some(choice) => {
            let name = name(choice).as_str().filter(|_| choice["type"] == "function");
            list.retain(|tool| tool["function"]["name"].as_str() == name && name.is_some());
            true
        }
    };
    if is_required && list.is_empty() && !fields.has_problems() {
        let wanted = format!("wanted `none`, `auto`, `required` or {named} with the name of a tool");
        fields.problem("tool_choice", &wanted);
    }
    Tools { list, is_required, is_single: is_single || is_named(choice.as_ref()), is_strict: false }
}

/// Whether a choice names a tool: it is called once then.
fn is_named(choice: Option<&Value>) -> bool {
    choice.is_some_and(Value::is_object)
}

/// Reads the calls of an assistant's message, which an earlier answer made.
pub(crate) fn calls(message: &mut Fields) -> Vec<(String, Call)> {
    let mut calls = vec![];
    for mut given in message.objects("tool_calls").unwrap_or_default() {
        given.without_effect(&["index"]);
        if given.text("type").is_some_and(|kind| kind != "function") {
            given.problem("type", "wanted `function`");
        }
        let id = given.text("id").unwrap_or_default();
        if let Some(mut function) = given.object("function") {
            // What OpenAI's client made of the arguments, which it sends back with them.
            function.without_effect(&["parsed_arguments"]);
            let name = function.text("name").unwrap_or_default();
            let arguments = function
                .text("arguments")
                .filter(|text| serde_json::from_str::<serde_json::Map<String, Value>>(text).is_ok());
            if arguments.is_none() {
                function.problem("arguments", "wanted a string that is a JSON object");
            }
            calls.push((id, Call { name, arguments: arguments.unwrap_or_default() }));
            given.join(function);
        } else if !given.has_problems() {
            given.problem("function", "wanted an object with `name` and `arguments`");
        }
        message.join(given);
    }
    calls
}

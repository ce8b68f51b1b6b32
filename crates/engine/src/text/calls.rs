//! Calls of tools, as models write them.
//!
//! Each way of writing is one row of [`TABLE`]. Which one a model was trained on is not guessed from its name: its template writes
//! a call of ours, and the row that reads it back is the one ([`CallSyntax::of`]).

#[cfg(feature = "grammar")]
mod grammar;
mod read;

use serde_json::Value;

#[cfg(feature = "grammar")]
pub use grammar::{CallGrammar, ToolChoice};
pub use read::Call;
pub(super) use read::{Cursor, Stop};

/// How a model writes calls of tools.
#[derive(Debug, PartialEq, Eq)]
pub struct CallSyntax {
    name: &'static str,
    /// What comes before all calls and after them; empty if nothing does.
    section: [&'static str; 2],
    /// What comes before each call and after it; empty if nothing does.
    call: [&'static str; 2],
    body: Body,
}

/// What is written of one call.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    /// A JSON object with these keys: that of the name, that of the arguments, and where there is one that of an id.
    Object(&'static [&'static str]),
    /// A list of such objects.
    List(&'static [&'static str]),
    /// The name, where there is one the first string and an id, the second string, and the arguments as a JSON object.
    Named([&'static str; 2]),
    /// The name between tags, and each argument between tags: what comes before the name, after it, and at the end.
    Tags { function: [&'static str; 3], argument: [&'static str; 3] },
    /// The name, and for each argument its key and its value between tags.
    Keys { key: [&'static str; 2], value: [&'static str; 2] },
}

const ARGUMENTS: &[&str] = &["name", "arguments"];
const PARAMETERS: &[&str] = &["name", "parameters"];
const TOOL_CALL: [&str; 2] = ["<tool_call>\n", "\n</tool_call>"];
const NONE: [&str; 2] = ["", ""];

/// All of them. Source: the chat templates of the models that are named.
const TABLE: &[CallSyntax] = &[
    // Hermes 2 and 3, Qwen 2.5, Qwen 3, QwQ, MiMo, Granite 4.
    CallSyntax { name: "hermes", section: NONE, call: TOOL_CALL, body: Body::Object(ARGUMENTS) },
    // Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5.
    CallSyntax {
        name: "qwen3-coder",
        section: NONE,
        call: TOOL_CALL,
        body: Body::Tags {
            function: ["<function=", ">\n", "</function>"],
            argument: ["<parameter=", ">\n", "\n</parameter>\n"],
        },
    },
    // GLM 4.6 and 4.7, Ling 3, Laguna, Spark 2.5.
    CallSyntax {
        name: "glm",
        section: NONE,
        call: ["<tool_call>", "\n</tool_call>"],
        body: Body::Keys { key: ["\n<arg_key>", "</arg_key>"], value: ["\n<arg_value>", "</arg_value>"] },
    },
    CallSyntax {
        name: "minimax-m1",
        section: ["<tool_calls>\n", "\n</tool_calls>"],
        call: NONE,
        body: Body::Object(ARGUMENTS),
    },
    // Apriel.
    CallSyntax {
        name: "apriel",
        section: ["<tool_calls>", "</tool_calls>"],
        call: NONE,
        body: Body::List(ARGUMENTS),
    },
    CallSyntax {
        name: "minimax-m2",
        section: ["<minimax:tool_call>\n", "\n</minimax:tool_call>"],
        call: NONE,
        body: Body::Tags {
            function: ["<invoke name=\"", "\">\n", "</invoke>"],
            argument: ["<parameter name=\"", "\">", "</parameter>\n"],
        },
    },
    CallSyntax {
        name: "seed",
        section: NONE,
        call: ["<seed:tool_call>\n", "\n</seed:tool_call>"],
        body: Body::Tags {
            function: ["<function=", ">\n", "</function>"],
            argument: ["<parameter=", ">", "</parameter>\n"],
        },
    },
    CallSyntax {
        name: "minicpm5",
        section: NONE,
        call: ["<function name=\"", "</function>"],
        body: Body::Tags { function: ["", "\">", ""], argument: ["<param name=\"", "\">", "</param>"] },
    },
    // Functionary 3.1.
    CallSyntax {
        name: "functionary",
        section: NONE,
        call: ["<function=", "</function>"],
        body: Body::Named(["", ">"]),
    },
    // Mistral Nemo.
    CallSyntax {
        name: "mistral",
        section: ["[TOOL_CALLS]", ""],
        call: NONE,
        body: Body::List(&["name", "arguments", "id"]),
    },
    // Mistral Small 3.2, Devstral Small, Ministral 3.
    CallSyntax {
        name: "mistral-args",
        section: NONE,
        call: ["[TOOL_CALLS]", ""],
        body: Body::Named(["[CALL_ID]", "[ARGS]"]),
    },
    // DeepSeek R1, distilled.
    CallSyntax {
        name: "deepseek-v3",
        section: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
        call: ["<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>"],
        body: Body::Named(["", "\n```json\n"]),
    },
    CallSyntax {
        name: "deepseek-v3.1",
        section: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
        call: ["<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"],
        body: Body::Named(["", "<｜tool▁sep｜>"]),
    },
    CallSyntax {
        name: "kimi-k2",
        section: ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
        call: ["<|tool_call_begin|>functions.", "<|tool_call_end|>"],
        body: Body::Named([":", "<|tool_call_argument_begin|>"]),
    },
    CallSyntax {
        name: "command-r7b",
        section: ["<|START_ACTION|>", "<|END_ACTION|>"],
        call: NONE,
        body: Body::List(&["tool_call_id", "tool_name", "parameters"]),
    },
    // Nemotron Nano 2.
    CallSyntax {
        name: "nemotron",
        section: ["<TOOLCALL>", "</TOOLCALL>"],
        call: NONE,
        body: Body::List(ARGUMENTS),
    },
    // GigaChat 3.1.
    CallSyntax {
        name: "gigachat",
        section: NONE,
        call: ["<|function_call|>", ""],
        body: Body::Object(ARGUMENTS),
    },
    // Llama 3.1 to 3.3: the text is the call.
    CallSyntax { name: "llama", section: NONE, call: NONE, body: Body::Object(PARAMETERS) },
];

impl CallSyntax {
    /// The name of the row.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Finds how a model writes calls. `prompt` is what its template makes of a conversation that waits for an answer, and `whole`
    /// what it makes of the same with `call` as the answer.
    pub fn of(prompt: &str, whole: &str, call: &Call) -> Option<&'static CallSyntax> {
        let reads = |row: &&CallSyntax| {
            // Only a call that is the whole text must begin where the answer does: templates add empty thoughts and the like.
            let text = match row.begin() {
                "" => whole.strip_prefix(prompt),
                begin => whole.rfind(begin).map(|at| &whole[at..]),
            };
            // Nothing that a template writes after a call looks like a part of it.
            let mut cursor = Cursor { text: text.unwrap_or_default(), is_end: true };
            cursor.calls(row, true, &[]).is_ok_and(|calls| matches!(&calls[..], [read] if read.is_same(call)))
        };
        TABLE.iter().find(reads)
    }

    /// What calls begin with; empty if a text with calls has nothing else.
    pub(super) fn begin(&self) -> &'static str {
        let [section, call] = [self.section[0], self.call[0]];
        if section.is_empty() { call } else { section }.trim_end()
    }

    /// What ends a call that can be read; empty if its end is that of the text.
    pub(super) fn until(&self) -> &'static str {
        let [section, call] = [self.section[1], self.call[1]];
        if call.is_empty() { section } else { call }.trim_start()
    }

    /// The strings of it that may be special tokens.
    pub fn marks(&self) -> Vec<&'static str> {
        let between = match self.body {
            Body::Named(between) => between,
            _ => NONE,
        };
        let all = [self.section, self.call, between];
        all.into_iter().flatten().map(str::trim).filter(|mark| !mark.is_empty()).collect()
    }
}

/// What the schema of `tool` says of its argument `key`.
fn schema<'t>(tools: &'t [Value], name: &str, key: &str) -> Option<&'t Value> {
    let tool = tools.iter().map(|tool| &tool["function"]).find(|tool| tool["name"] == name)?;
    tool["parameters"]["properties"].get(key)
}

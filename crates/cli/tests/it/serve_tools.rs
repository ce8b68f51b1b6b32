//! `serve`: tools, calls and thoughts.

use serde_json::{Value, json};

use crate::serve::Server;

/// A template with tools and thoughts, as those of Qwen 3 are.
const TEMPLATE: &str = "\
{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% endif %}";

#[test]
fn tools_are_called_with_arguments_of_their_schemas() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("tools.jinja");
    std::fs::write(&template, TEMPLATE).unwrap();
    let server = Server::start(&["--chat-template", template.to_str().unwrap()]);
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "The weather of a city.", "parameters": {
            "type": "object", "required": ["city", "days"], "additionalProperties": false,
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        }}})
    };
    let ask = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "The weather?"}], "max_tokens": 60,
            "tools": [tool("get_weather"), tool("get_rain")], "temperature": 1.2});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let fits = |call: &Value| {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        let days = arguments["days"].as_u64().unwrap();
        ["Paris", "Rome"].contains(&arguments["city"].as_str().unwrap())
            && (1..=9).contains(&days)
            && arguments.as_object().unwrap().len() == 2
            && call["type"] == "function"
            && call["id"].as_str().unwrap().len() == 9
    };
    for seed in 0..6 {
        // One of either, one of one, and any number.
        for (more, names) in [
            (
                json!({"tool_choice": "required", "parallel_tool_calls": false}),
                &["get_weather", "get_rain"][..],
            ),
            (json!({"tool_choice": {"type": "function", "function": {"name": "get_rain"}}}), &["get_rain"]),
        ] {
            let mut body = ask(more);
            body["seed"] = json!(seed);
            let (status, answer) = server.post("/v1/chat/completions", &body);
            let choice = &answer["choices"][0];
            assert_eq!((status, &choice["finish_reason"]), (200, &json!("tool_calls")), "{answer}");
            assert_eq!(choice["message"]["content"], Value::Null, "{answer}");
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            let name = calls[0]["function"]["name"].as_str().unwrap();
            assert!(calls.len() == 1 && fits(&calls[0]) && names.contains(&name), "{answer}");
            // The same in pieces.
            body["stream"] = json!(true);
            let events = server.events("/v1/chat/completions", &body);
            let deltas = || events.iter().map(|event| &event["choices"][0]["delta"]);
            let streamed: Vec<&Value> =
                deltas().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
            assert_eq!(streamed.len(), 1);
            assert_eq!((&streamed[0]["index"], &streamed[0]["function"]), (&json!(0), &calls[0]["function"]));
            assert!(deltas().all(|delta| delta["content"].as_str().unwrap_or_default().is_empty()));
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
        }
        // Whatever the model says of its own, a call in it has arguments that fit.
        let (status, answer) = server.post("/v1/chat/completions", &ask(json!({"seed": seed})));
        assert_eq!(status, 200, "{answer}");
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
        assert!(calls.into_iter().flatten().all(fits), "{answer}");
    }
    // Calls and their results go back, in either order of fields.
    let messages = json!([
        {"role": "user", "content": "The weather?"},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\", \"days\": 1}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sun"}]},
    ]);
    let (status, answer) =
        server.post("/v1/chat/completions", &ask(json!({"messages": &messages, "tool_choice": "none"})));
    assert_eq!(status, 200, "{answer}");
    // Thoughts are told from what is said: here the answer ends in them.
    let thinks = json!({"chat_template_kwargs": {"enable_thinking": true}, "max_tokens": 8, "temperature": 0, "tools": null});
    let (_, answer) = server.post("/v1/chat/completions", &ask(thinks));
    let message = &answer["choices"][0]["message"];
    assert!(
        message["content"] == "" && !message["reasoning_content"].as_str().unwrap().is_empty(),
        "{answer}"
    );
    for (more, wanted) in [
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "get_snow"}}}),
            "`tool_choice`: wanted `none`",
        ),
        (json!({"tool_choice": "required", "tools": []}), "`tool_choice`: wanted `none`"),
        (
            json!({"chat_template_kwargs": {"thinking": true}}),
            "does not take `thinking`; it takes `enable_thinking`",
        ),
        (json!({"chat_template_kwargs": {"messages": []}}), "does not take `messages`"),
        (json!({"response_format": {"type": "json_object"}}), "`response_format`: not together with `tools`"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            "`tools[0].function.name`: wanted up to 64",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "["}}]}]}),
            "`messages[0].tool_calls[0].function.arguments`: wanted a string that is a JSON object",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}),
            "`messages[0].tool_calls`: is not supported here",
        ),
    ] {
        let (status, answer) = server.post("/v1/chat/completions", &ask(more));
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && said.contains(wanted), "wanted {wanted}: {answer}");
    }
    // A template without tools.
    let plain = Server::start(&[]);
    let (status, answer) = plain.post("/v1/chat/completions", &ask(json!({})));
    let said = answer["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((status, said), (400, "`tools`: the model's template has no tools"), "{answer}");
    // Nor does it write calls that are over: they would be left out.
    let (status, answer) = plain.post("/v1/chat/completions", &json!({"messages": messages}));
    let said = answer["error"]["message"].as_str().unwrap_or_default();
    let wanted = "`messages[1].tool_calls`: the model's template has no tools\n`messages[2].role`: the model's template has no tools";
    assert_eq!((status, said), (400, wanted), "{answer}");
}
